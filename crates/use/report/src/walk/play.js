// Time: every caption has its span; the position is a time, and everything on the page follows from it.
const beats = [];
D.scenes.forEach((scene, s) => scene.beats.forEach((beat, b) => {
  const ms = Math.ceil(Math.max(2800, 1100 + 42 * plain(scene, beat.text).length) / 100) * 100;
  beats.push({ scene, s, beat, b, ms, from: 0 });
}));
let total = 0;
for (const b of beats) { b.from = total; total += b.ms; }
const firstOf = D.scenes.map((_, s) => beats.findIndex((b) => b.s === s));

let at = 0, playing = false, speed = 1, wasBeat = -1, wasScene = -1, drawing = null, last = 0, analogy = false;
const stage = byId("picture");

byId("kind").textContent = `A walk through step ${D.step.number} of ${D.model}` + (D.dims ? ` at ${D.dims}` : "");
byId("step").textContent = D.step.nodes.length ? D.step.nodes[0] + (D.step.nodes.length > 1 ? ` and ${U.plural(D.step.nodes.length - 1, "node")} fused with it` : "") : D.step.name;
byId("meta").textContent = `${D.machine} (${D.target}), ${D.step.chosen}; ` + (D.device ? `run on ${D.device}. ` : "planned for it, nothing ran. ") + D.note;
byId("foot").append(...[["Space", "play or pause"], ["← →", "step"], ["Page Up, Page Down", "scene"], ["Home, End", "begin, end"], ["+ −", "speed"], ["A", "warehouse and factory"]].flatMap(([k, w]) => [el("kbd", {}, k), " " + w + ".   "]), el("br"), `${D.tool}; schema ${D.schema} version ${D.version}.`);
const links = D.scenes.map((s, i) => el("a", { href: "#" + s.id, "data-n": i + 1 }, s.title));
byId("scenes").append(...links.map((a) => el("li", {}, a)));
byId("speed").append(...[0.5, 1, 2, 4, 8].map((v) => el("option", { value: v, selected: v === 1 }, v + "×")));
const scrub = byId("scrub");
scrub.max = total;
const clock = (ms) => { const s = Math.floor(ms / 1000); return Math.floor(s / 60) + ":" + String(s % 60).padStart(2, "0"); };

/** The drawing of a scene for the present width. */
function draw(s) {
  const scene = D.scenes[s];
  stage.scrollTop = 0;
  drawing = (drawings[scene.picture.kind] || drawings.none)(scene, stage.clientWidth, stage.clientHeight);
  stage.replaceChildren(drawing.node);
}
function enter(s) {
  wasScene = s;
  const scene = D.scenes[s];
  byId("title").textContent = `${s + 1}. ${scene.title}`;
  links.forEach((a, i) => i === s ? a.setAttribute("aria-current", "step") : a.removeAttribute("aria-current"));
  const nav = links[s].closest("nav");
  if (nav.scrollWidth > nav.clientWidth) nav.scrollLeft = links[s].offsetLeft - nav.offsetLeft - 40;
  byId("figures").replaceChildren(...scene.figures.map((f) => el("div", { "data-figure": f.key }, el("dt", {}, f.name), el("dd", {}, figure(f)))));
  draw(s);
  // A page from disk may be forbidden to change its address; the walk goes on without.
  try { if (location.hash.slice(1) !== scene.id) history.replaceState(null, "", "#" + scene.id); } catch { /* no history here */ }
}
/** Scrolls the picture, where it is longer than its frame, to what is lit. */
function reveal() {
  const lit = stage.querySelector(".lit:not(pre *)");
  if (!lit || stage.scrollHeight <= stage.clientHeight) return;
  const a = lit.getBoundingClientRect(), b = stage.getBoundingClientRect();
  if (a.bottom > b.bottom || a.top < b.top) stage.scrollTop += a.top - b.top - 40;
}
function beatAt(t) {
  let lo = 0, hi = beats.length - 1;
  while (lo < hi) { const m = (lo + hi + 1) >> 1; if (beats[m].from <= t) lo = m; else hi = m - 1; }
  return lo;
}
function show() {
  const i = beatAt(at), b = beats[i];
  if (!b) return;
  const fresh = i !== wasBeat;
  if (b.s !== wasScene) enter(b.s);
  if (fresh) {
    wasBeat = i;
    byId("caption").replaceChildren(...said(b.scene, b.beat.text, figure));
    byId("analogy").replaceChildren(...said(b.scene, b.beat.analogy, (f) => f.text));
    for (const d of byId("figures").children) on(d, "lit", b.beat.text.includes("{" + d.dataset.figure + "}"));
    root.dataset.beat = i;
    root.dataset.scene = b.scene.id;
  }
  const t = reduced.matches ? 1 : clamp((at - b.from) / b.ms, 0, 1);
  drawing.update(b.beat.lit, t, b.b);
  if (fresh) reveal();
  if (fresh || !playing || performance.now() - last > 200) {
    last = performance.now();
    scrub.value = at;
    const where = `${clock(at)} of ${clock(total)}`;
    put(byId("clock"), where);
    scrub.setAttribute("aria-valuetext", `scene ${b.s + 1} of ${D.scenes.length}, ${b.scene.title}, ${where}`);
  }
}
let then = 0;
function tick(now) {
  if (!playing) return;
  const step = Math.min(100, now - then);
  then = now;
  at = Math.min(total, at + step * speed);
  if (at >= total) { pause(); root.dataset.ended = "yes"; return; }
  show();
  requestAnimationFrame(tick);
}
function word() {
  put(byId("play-word"), playing ? "Pause" : "Play");
  byId("play-shape").setAttribute("d", playing ? "M4 2h3v12H4zM9 2h3v12H9z" : "M4 2l9 6-9 6z");
}
function play() {
  if (playing || !beats.length) return;
  if (at >= total) at = 0;
  playing = true;
  word();
  then = performance.now();
  requestAnimationFrame((now) => { then = now; tick(now); });
}
function pause() { playing = false; word(); show(); }
/** A caption with its picture as it is at its end. */
function land(i) {
  const b = beats[clamp(i, 0, beats.length - 1)];
  at = b.from + b.ms - 1;
  show();
}
const present = () => beatAt(at);
function scene(s) { playing = false; word(); land(firstOf[clamp(s, 0, D.scenes.length - 1)]); }
function step(by) { playing = false; word(); land(present() + by); }
function faster(by) {
  const all = [...byId("speed").options].map((o) => Number(o.value));
  speed = all[clamp(all.indexOf(speed) + by, 0, all.length - 1)];
  byId("speed").value = speed;
}
/** Room for the longest caption of the walk, so that nothing below moves. */
function reserve() {
  const captions = byId("captions"), probe = el("div"), p = el("p", { id: "caption" }), q = el("p", { id: "analogy" });
  probe.style.visibility = "hidden"; probe.style.position = "absolute"; probe.style.width = captions.clientWidth + "px";
  probe.append(p, q);
  captions.append(probe);
  let most = 0;
  for (const b of beats) {
    p.textContent = plain(b.scene, b.beat.text);
    q.textContent = analogy ? plain(b.scene, b.beat.analogy) : "";
    q.hidden = !analogy || !b.beat.analogy;
    most = Math.max(most, probe.offsetHeight);
  }
  probe.remove();
  captions.style.minHeight = most + 24 + "px";
}
function factory(yes) {
  analogy = yes;
  byId("factory").checked = yes;
  byId("analogy").hidden = !yes;
  reserve();
}
byId("play").addEventListener("click", () => playing ? pause() : play());
byId("first").addEventListener("click", () => scene(beats[present()].s - 1));
byId("last").addEventListener("click", () => scene(beats[present()].s + 1));
byId("back").addEventListener("click", () => step(-1));
byId("forth").addEventListener("click", () => step(1));
byId("speed").addEventListener("change", (e) => { speed = Number(e.target.value); });
byId("factory").addEventListener("change", (e) => factory(e.target.checked));
scrub.addEventListener("input", () => { playing = false; word(); at = Number(scrub.value); show(); });
links.forEach((a, i) => a.addEventListener("click", (e) => { e.preventDefault(); scene(i); }));
const named = () => D.scenes.findIndex((s) => s.id === decodeURIComponent(location.hash.slice(1)));
addEventListener("hashchange", () => { const s = named(); if (s >= 0 && s !== wasScene) scene(s); });
addEventListener("keydown", (e) => {
  if (e.key === "Escape") return closeDrawer();
  if (e.ctrlKey || e.metaKey || e.altKey || !drawer.hidden) return;
  const tag = e.target.tagName;
  // Buttons, lists and the slider keep their own keys.
  if (tag === "SELECT" || (tag === "INPUT" && ["ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown", " "].includes(e.key))) return;
  if ((tag === "BUTTON" || tag === "A") && (e.key === " " || e.key === "Enter")) return;
  const keys = {
    " ": () => playing ? pause() : play(), ArrowLeft: () => step(-1), ArrowRight: () => step(1),
    PageUp: () => scene(beats[present()].s - 1), PageDown: () => scene(beats[present()].s + 1),
    Home: () => { playing = false; word(); land(0); }, End: () => { playing = false; word(); land(beats.length - 1); },
    "+": () => faster(1), "=": () => faster(1), "-": () => faster(-1), a: () => factory(!analogy), A: () => factory(!analogy),
  };
  const f = keys[e.key];
  if (f) { e.preventDefault(); f(); }
});
let width = 0;
new ResizeObserver(() => {
  const w = stage.clientWidth;
  if (w === width) return;
  width = w;
  reserve();
  if (wasScene >= 0) { draw(wasScene); show(); }
}).observe(stage);
reduced.addEventListener("change", show);
factory(false);
land(firstOf[Math.max(0, named())]);
root.dataset.total = Math.round(total);
root.dataset.ready = "yes";
