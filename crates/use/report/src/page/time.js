// Head of the page: the sentence, what bounds the time, the figures that matter.
views.push(function head() {
  document.title = `${D.model}: ${measured ? "profile" : "plan"}`;
  byId("kind").textContent = measured ? "Profile: measured beside predicted" : "Plan: a prediction, nothing of it was measured";
  byId("model").textContent = D.model;
  byId("sentence").textContent = D.sentence;
  byId("meta").textContent = [D.device || D.machine, measured ? U.plural(D.threads, "worker") : "", D.target, D.launch ? "launch " + D.launch : "", D.precision ? "precision " + D.precision : "", D.dims, measured ? `${U.plural(measured.active, "request")} measured after ${measured.warmup}` : "", D.note].filter(Boolean).join(" · ");
  // Shares of the steps' time by what bounds them, written beside a bar that needs no colour.
  const shares = new Map();
  for (const s of steps) shares.set(s.bound, (shares.get(s.bound) || 0) + share(s));
  const list = [...shares].filter((x) => x[1] > 0).sort((a, b) => b[1] - a[1]);
  const bar = byId("boundbar");
  const host = el("div"), text = el("ul", { class: "key" });
  for (const [b, v] of list.slice(0, 5)) text.append(el("li", {},
    sv("svg", { width: 14, height: 14, "aria-hidden": "true" }, sv("rect", { width: 14, height: 14, class: "f-" + boundClass(b) })),
    figure(`${b} ${U.pct(v)}`, `Bound by ${b}`, `sum of the time of ${U.plural(steps.filter((s) => s.bound === b).length, "step")} whose prediction's largest part is this\n÷ ${U.us(total)}, the sum over all steps`, measured ? "time is measured, what bounds it is read off the prediction" : "prediction")));
  bar.append(host, text);
  fluid(host, (w) => {
    const g = sv("svg", { width: w, height: 18, role: "img", "aria-label": "Shares of the steps' time: " + list.map(([b, v]) => `${b} ${U.pct(v)}`).join(", ") });
    let x = 0;
    for (const [b, v] of list) { g.append(sv("rect", { x, y: 0, width: Math.max(0.5, v * w - 1.5), height: 18, class: "f-" + boundClass(b) })); x += v * w; }
    host.replaceChildren(g);
  });
  const put = (name, text, sub, formula, source) => byId("figures").append(el("div", {}, el("dt", {}, name), el("dd", {}, figure(text, name, formula, source), el("span", { class: "sub" }, sub || ""))));
  const clock = measured ? `caller's and workers' clocks, ${U.plural(measured.active, "request")} after ${measured.warmup}` : "";
  if (measured) {
    const rest = measured.request_us - measured.steps_us;
    put("a request", U.us(measured.request_us), "median", "median over requests of the time from the call to its return", clock);
    const o = measured.overhead;
    const beside = o ? `a request's own: ${U.us(o.median.host_us)} on the host before and after its steps, ${U.us(o.median.waited_us)} while no worker was at one\n${o.descheduled} of ${U.plural(o.requests, "request")} had a worker that could run and had no processor` : "what a request takes beside is waiting between steps, copies and control flow, and whatever else ran on these cores";
    put("its steps", U.us(measured.steps_us), rest >= 0 ? `${U.us(rest)} beside them` : `overlap by ${U.us(-rest)}`, `sum over steps of their median times\n${beside}`, clock);
    put("predicted", U.us(D.predicted_us), U.signed(measured.steps_us / D.predicted_us - 1) + " measured over it", `sum over steps of their predictions\nerror: ${U.us(measured.steps_us)} ÷ ${U.us(D.predicted_us)} − 1`, "cost model over " + D.machine);
  } else {
    put("a request", U.us(D.predicted_us), `${U.us(D.interval_us[0])} to ${U.us(D.interval_us[1])}`, "sum over steps of their predictions, branches and loop bodies included\ninterval: all overlapped at peak without fixed costs, to nothing overlapped", "cost model over " + D.machine);
  }
  const t = (measured ? measured.steps_us : D.predicted_us) * 1e-6;
  if (D.flop > 0) put("products", U.flop(D.flop), U.flops(D.flop / t), `sum over steps of multiply-adds, two each\nrate: ${U.flop(D.flop)} ÷ ${U.us(t * 1e6)}`, "tile programs");
  const u = steps.reduce((a, s) => a + unique(s) * runs(s), 0);
  put("distinct bytes", U.bytes(u), U.rate(u / t), `sum over steps of the elements that each touches once\nrate: ${U.bytes(u)} ÷ ${U.us(t * 1e6)}`, "tile programs");
  put("memory", U.bytes(D.memory.total), `arena ${U.bytes(D.memory.arena)} a request`, `packed ${U.bytes(D.memory.packed)} + weights in place ${U.bytes(D.memory.weights_in_place)}${D.memory.late ? ` + late ${U.bytes(D.memory.late)}` : ""} + arena ${U.bytes(D.memory.arena)} × ${D.memory.requests} requests + scratch ${U.bytes(D.memory.scratch)} of each worker and request`, "stated by the plan; an upper bound");
  put("steps", String(steps.length), `of ${D.accounting.total} nodes`, `${D.accounting.in_steps} nodes are in steps, ${D.accounting.views} are views, ${D.accounting.folded} are done at load, ${D.accounting.dead} are not needed, ${D.accounting.control} are control flow`, "the plan's accounting of every node");
});

// When each worker was at which step.
views.push(function timeline() {
  const lanes = [], T = D.timeline;
  if (T) T.lanes.forEach((l, i) => lanes.push({ name: l.name, spans: T.spans.filter((s) => s[0] === i).map((s) => ({ step: s[1], a: s[2], b: s[2] + s[3], tasks: s[4], what: s[5] })) }));
  let at = 0;
  const order = [];
  const plan = steps.map((s) => { const a = at; at += predicted(s) || 0; return { step: s.number, a, b: at }; });
  lanes.push({ name: T ? "predicted" : "plan", spans: plan });
  const end = Math.max(at, T ? T.total_us : 0) || 1;
  for (const l of lanes) l.spans.sort((x, y) => x.a - y.a);
  const firstSpan = new Map();
  for (const l of lanes) for (const s of l.spans) if (s.step >= 0 && !firstSpan.has(s.step)) { firstSpan.set(s.step, s); }
  order.push(...[...firstSpan].sort((x, y) => x[1].a - y[1].a).map((x) => x[0]));
  let from = 0, to = end, W = 600;
  const LH = 26, LEFT = 112, TOP = 4, host = el("div"), hint = el("p", { class: "hint", "aria-live": "polite" });
  const tool = (text, name, f) => el("button", { type: "button", "aria-label": name, onclick: f }, text);
  const zoom = (f, mid) => {
    const m = mid === undefined ? (from + to) / 2 : mid, w = Math.min(end, Math.max(end / 5e4, (to - from) * f));
    const r = (m - from) / (to - from);
    from = Math.max(0, Math.min(end - w, m - w * r)); to = from + w; draw(W);
  };
  const pan = (d) => { const w = to - from; from = Math.max(0, Math.min(end - w, from + d * w)); to = from + w; draw(W); };
  const all = () => { from = 0; to = end; draw(W); };
  section("timeline", "Timeline", T ? "The last request, as the workers' clocks have it; below it the prediction, step after step." : "The plan's steps, one after the other, as predicted.",
    el("div", { class: "tools" }, tool("−", "Zoom out", () => zoom(2)), tool("+", "Zoom in", () => zoom(0.5)), tool("‹", "Earlier", () => pan(-0.5)), tool("›", "Later", () => pan(0.5)), tool("All", "Whole request", all),
      el("span", { class: "note" }, "Focus it: ", el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " steps, ", el("kbd", {}, "+"), " ", el("kbd", {}, "−"), " zoom, ", el("kbd", {}, "Enter"), " opens")),
    host, hint, legend(usedBounds));
  const H = TOP + lanes.length * LH + 24;
  const g = sv("svg", { height: H, tabindex: 0, role: "application", "aria-label": "Timeline of steps. Arrow keys move from step to step, Enter opens one." });
  host.append(g);
  const describe = (i, span) => {
    const s = steps[i];
    hint.textContent = s ? `${span && span.what && span.what !== "kernel" ? span.what + ": " : ""}step ${s.number}  ${label(s)}  ·  ${U.us(time(s))}${s.measured ? ` measured, ${U.us(predicted(s))} predicted` : " predicted"}  ·  ${s.bound}` : " ";
  };
  const hit = (e) => {
    const r = g.getBoundingClientRect(), x = e.clientX - r.left, lane = lanes[Math.floor((e.clientY - r.top - TOP) / LH)];
    if (!lane || x < LEFT) return null;
    const t = from + (x - LEFT) / (W - LEFT) * (to - from), slack = (to - from) / (W - LEFT) * 3;
    let best = null, far = slack;
    for (const s of lane.spans) { const d = t < s.a ? s.a - t : t > s.b ? t - s.b : 0; if (d <= far && s.step >= 0) { far = d; best = s; if (d === 0) break; } }
    return best;
  };
  function draw(w) {
    W = w; g.setAttribute("width", w);
    const px = (t) => LEFT + (t - from) / (to - from) * (w - LEFT), kids = [];
    const clip = sv("clipPath", { id: "tl-clip" }, sv("rect", { x: LEFT, y: 0, width: w - LEFT, height: H }));
    kids.push(clip);
    for (const t of ticks(from, to, Math.max(2, w / 130))) {
      const x = Math.round(px(t)) + 0.5;
      kids.push(sv("path", { d: `M${x} ${TOP}V${H - 20}`, class: "grid" }));
      kids.push(sv("text", { x: Math.min(x, w - 24), y: H - 6, "text-anchor": x < LEFT + 20 ? "start" : "middle", class: "m" }, U.us(t)));
    }
    const body = sv("g", { "clip-path": "url(#tl-clip)" });
    lanes.forEach((l, i) => {
      const y = TOP + i * LH + 3, h = LH - 6, d = {};
      kids.push(sv("text", { x: 0, y: y + 14, class: "m" }, l.name.length > 18 ? l.name.slice(0, 17) + "…" : l.name));
      for (const s of l.spans) {
        if (s.b < from || s.a > to) continue;
        const x0 = px(Math.max(s.a, from - (to - from))), x1 = Math.max(x0 + 0.6, px(Math.min(s.b, to + (to - from))) - 0.4);
        const k = s.what && s.what !== "kernel" ? (s.what === "wait" ? "other" : "memory") : s.step >= 0 && steps[s.step] ? boundClass(steps[s.step].bound) : "other";
        d[k] = (d[k] || "") + `M${x0.toFixed(1)} ${y}H${x1.toFixed(1)}V${y + h}H${x0.toFixed(1)}Z`;
      }
      for (const [k, p] of Object.entries(d)) body.append(sv("path", { d: p, class: "f-" + k }));
      for (const s of l.spans) if (s.step === selected && s.step >= 0) body.append(sv("rect", { x: px(s.a) - 1, y: y - 1, width: Math.max(3, px(s.b) - px(s.a) + 2), height: h + 2, class: "sel" }));
      // Names where there is room for them.
      for (const s of l.spans) {
        const wide = px(Math.min(s.b, to)) - px(Math.max(s.a, from));
        if (wide < 90 || !steps[s.step]) continue;
        const text = label(steps[s.step]), n = Math.floor((wide - 10) / 7.6);
        if (n >= 8) body.append(sv("text", { x: px(Math.max(s.a, from)) + 5, y: y + 14, class: boundClass(steps[s.step].bound) === "compute" ? "in" : "halo" }, text.length > n ? "…" + text.slice(1 - n) : text));
      }
    });
    g.replaceChildren(...kids, body);
  }
  g.addEventListener("pointermove", (e) => { const s = hit(e); describe(s ? s.step : selected, s); });
  g.addEventListener("pointerleave", () => describe(selected));
  let drag = null;
  g.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, from, moved: false }; });
  addEventListener("pointermove", (e) => {
    if (!drag || Math.abs(e.clientX - drag.x) < 4) return;
    drag.moved = true;
    const w = to - from; from = Math.max(0, Math.min(end - w, drag.from - (e.clientX - drag.x) / (W - LEFT) * w)); to = from + w; draw(W);
  });
  addEventListener("pointerup", () => { setTimeout(() => { drag = null; }); });
  g.addEventListener("click", (e) => { if (drag && drag.moved) return; const s = hit(e); if (s) select(s.step, true); });
  g.addEventListener("wheel", (e) => { if (!e.ctrlKey && !e.metaKey) return; e.preventDefault(); const r = g.getBoundingClientRect(); zoom(e.deltaY > 0 ? 1.25 : 0.8, from + (e.clientX - r.left - LEFT) / (W - LEFT) * (to - from)); }, { passive: false });
  g.addEventListener("keydown", (e) => {
    const k = e.key, at = order.indexOf(selected);
    if (k === "ArrowRight" || k === "ArrowLeft") {
      const i = order[Math.max(0, Math.min(order.length - 1, at < 0 ? 0 : at + (k === "ArrowRight" ? 1 : -1)))], s = firstSpan.get(i);
      if (s && (s.b < from || s.a > to)) { const w = to - from; from = Math.max(0, Math.min(end - w, (s.a + s.b - w) / 2)); to = from + w; }
      if (s) select(i);
    } else if (k === "+" || k === "=") zoom(0.5, firstSpan.has(selected) ? Math.max(from, Math.min(to, firstSpan.get(selected).a)) : undefined);
    else if (k === "-") zoom(2);
    else if (k === "0" || k === "Home") all();
    else if (k === "Enter" && steps[selected]) select(selected, true);
    else return;
    e.preventDefault();
  });
  onSelect((i) => { draw(W); describe(i); });
  describe(-1);
  fluid(host, draw);
});

// Two figures of every step, on logarithmic axes.
function logPlot(o) {
  const L = 74, R = 14, T = 14, B = 40, { w, h } = o;
  const fx = (v) => L + (Math.log10(v) - Math.log10(o.x0)) / (Math.log10(o.x1) - Math.log10(o.x0)) * (w - L - R);
  const fy = (v) => h - B - (Math.log10(v) - Math.log10(o.y0)) / (Math.log10(o.y1) - Math.log10(o.y0)) * (h - B - T);
  const kids = [];
  const thin = (list, room) => { const n = Math.ceil(list.length / Math.max(1, room)); return list.filter((_, i) => i % n === 0); };
  for (const v of thin(decades(o.x0, o.x1), (w - L) / 62)) { const x = Math.round(fx(v)) + 0.5; kids.push(sv("path", { d: `M${x} ${T}V${h - B}`, class: "grid" }), sv("text", { x: Math.min(x, w - 2), y: h - B + 16, "text-anchor": x > w - 34 ? "end" : "middle", class: "m" }, o.xt(v))); }
  for (const v of thin(decades(o.y0, o.y1), (h - B) / 26)) { const y = Math.round(fy(v)) + 0.5; kids.push(sv("path", { d: `M${L} ${y}H${w - R}`, class: "grid" }), sv("text", { x: L - 8, y: y + 4, "text-anchor": "end", class: "m" }, o.yt(v))); }
  kids.push(sv("text", { x: (L + w - R) / 2, y: h - 4, "text-anchor": "middle" }, o.xl));
  return { fx, fy, kids, L, R, T, B };
}
const shape = (k, x, y, r) => k === "compute" ? `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`
  : k === "memory" ? `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`
  : k === "launch" ? `M${x} ${y - r * 1.2}L${x + r * 1.15} ${y + r * 0.9}H${x - r * 1.15}Z` : `M${x} ${y - r * 1.3}L${x + r * 1.3} ${y}L${x} ${y + r * 1.3}L${x - r * 1.3} ${y}Z`;
const SHAPES = "circle: arithmetic, square: memory, triangle: fixed costs, diamond: latency";
/** Keys that move through points from the slowest on. */
function pointKeys(g, list, hint, text) {
  const ranked = [...list].sort((a, b) => time(b) - time(a)).map((s) => s.number);
  g.addEventListener("keydown", (e) => {
    const at = ranked.indexOf(selected);
    if (e.key === "ArrowRight" || e.key === "ArrowDown") select(ranked[Math.min(ranked.length - 1, at + 1)]);
    else if (e.key === "ArrowLeft" || e.key === "ArrowUp") select(ranked[Math.max(0, at < 0 ? 0 : at - 1)]);
    else if (e.key === "Enter" && steps[selected]) select(selected, true);
    else return;
    e.preventDefault();
  });
  const near = (e) => { const i = e.target.getAttribute && e.target.getAttribute("data-s"); return i === null ? -1 : Number(i); };
  const say = (i) => { hint.textContent = steps[i] ? text(steps[i]) : " "; };
  g.addEventListener("pointerover", (e) => { const i = near(e); say(i >= 0 ? i : selected); });
  g.addEventListener("click", (e) => { const i = near(e); if (i >= 0) select(i, true); });
  onSelect(say);
  say(-1);
}

views.push(function roofline() {
  const R = D.roofline;
  if (!R || !R.roofs.length) return;
  const m = D.machines[D.machines.length - 1], names = R.roofs.map((r) => r.level);
  const here = steps.filter((s) => (D.machines[s.device] || m) === m);
  const bytesAt = (s, level) => { const i = m.levels.findIndex((l) => l.name === level); const t = s.traffic[i]; return t ? t[0] + t[1] : 0; };
  const rate = (s) => time(s) > 0 ? s.ops * runs(s) / (time(s) * 1e-6) : 0;
  const pts = here.filter((s) => s.ops > 0 && rate(s) > 0);
  if (!pts.length) return;
  const counted = R.roofs.filter((r) => r.counts);
  let level = (counted[counted.length - 1] || R.roofs[0]).level;
  const seen = names.filter((n) => pts.some((s) => bytesAt(s, n) > 0));
  if (!seen.includes(level) && seen.length) level = seen[seen.length - 1];
  const xs = pts.flatMap((s) => seen.map((n) => bytesAt(s, n)).filter((b) => b > 0).map((b) => s.ops / b));
  const top = Math.max(...R.ceilings.map((c) => c.rate), ...pts.map(rate));
  const ridge = Math.max(...counted.map((r) => top / r.peak));
  const x0 = 10 ** Math.floor(Math.log10(Math.min(...xs, 0.1))), x1 = 10 ** Math.ceil(Math.log10(Math.max(...xs, ridge) * 1.5));
  const y1 = 10 ** Math.ceil(Math.log10(top) + 0.05), y0 = Math.max(10 ** Math.floor(Math.log10(Math.min(...pts.map(rate)))), y1 / 1e9);
  const host = el("div"), hint = el("p", { class: "hint", "aria-live": "polite" });
  const none = here.filter((s) => !(s.ops > 0)), far = el("p", { class: "note" });
  const pick = el("fieldset", {}, el("legend", {}, "Bytes counted at"), seen.map((n) => el("label", {}, el("input", { type: "radio", name: "level", value: n, checked: n === level, onchange: () => { level = n; draw(W); } }), " " + n)));
  section("roofline", "Roofline", `Operations per second, ${measured ? "as measured" : "as predicted"}, over operations per byte that crosses a level. Slanted lines are what a level can carry, horizontal ones what units can do, all at the peak of ${m.name}. Areas are shares of time; ${SHAPES}.`,
    el("div", { class: "tools" }, pick), host, hint, far);
  const g = sv("svg", { tabindex: 0, role: "application", "aria-label": "Roofline. Arrow keys move from step to step, the slowest first; Enter opens one." });
  host.append(g);
  let W = 600;
  function draw(w) {
    W = w;
    const h = Math.max(300, Math.min(460, Math.round(w * 0.46)));
    g.setAttribute("width", w); g.setAttribute("height", h);
    const P = logPlot({ w, h, x0, x1, y0, y1, xt: (v) => v >= 1e4 || v < 0.01 ? v.toExponential(0) : String(Number(v.toPrecision(1))), yt: (v) => U.ops(v), xl: `operations per byte at ${level}` });
    const kids = P.kids, clampY = (y) => Math.max(y0, Math.min(y1, y));
    let laid = [];
    R.roofs.forEach((r) => {
      const on = r.level === level;
      // From the left edge or where it enters from below, to the top ceiling.
      const a = Math.max(x0, y0 / r.peak), b = Math.min(x1, top / r.peak);
      if (b <= a) return;
      kids.push(sv("path", { d: `M${P.fx(a)} ${P.fy(clampY(a * r.peak))}L${P.fx(b)} ${P.fy(clampY(b * r.peak))}`, class: on ? "roof on" : "roof" }));
      const f = 0.12, lx = P.fx(a) + (P.fx(b) - P.fx(a)) * f, ly = P.fy(a * r.peak) + (P.fy(b * r.peak) - P.fy(a * r.peak)) * f;
      laid.push({ x: lx + 4, y: ly - 4, t: w < 560 ? r.level : `${r.level} ${U.rate(r.peak)}`, on });
    });
    laid.sort((p, q) => p.y - q.y);
    for (let i = 1; i < laid.length; i++) if (laid[i].y - laid[i - 1].y < 14 && Math.abs(laid[i].x - laid[i - 1].x) < 110) laid[i].y = laid[i - 1].y + 14;
    let lastY = -99;
    [...R.ceilings].sort((a, b) => b.rate - a.rate).forEach((c) => {
      const y = P.fy(clampY(c.rate));
      const from = Math.max(x0, c.rate / Math.max(...R.roofs.map((r) => r.peak)));
      kids.push(sv("path", { d: `M${P.fx(from)} ${y}H${w - P.R}`, class: "roof" }));
      const ty = Math.max(y - 4, lastY + 13); lastY = ty;
      kids.push(sv("text", { x: w - P.R - 2, y: ty, "text-anchor": "end", class: "m halo" }, w < 560 ? `${c.unit} ${c.dtype}` : `${c.unit} ${c.dtype} ${U.ops(c.rate)}`));
    });
    const sel = steps[selected];
    if (sel && pts.includes(sel)) {
      const xs = seen.map((n) => bytesAt(sel, n)).filter((b) => b > 0).map((b) => P.fx(sel.ops / b)), y = P.fy(clampY(rate(sel)));
      if (xs.length) { kids.push(sv("path", { d: `M${Math.min(...xs)} ${y}H${Math.max(...xs)}`, class: "join" })); for (const x of xs) kids.push(sv("circle", { cx: x, cy: y, r: 3, class: "sel" })); }
    }
    let hidden = 0;
    for (const s of [...pts].sort((a, b) => time(b) - time(a))) {
      const bytes = bytesAt(s, level);
      if (!(bytes > 0)) { hidden++; continue; }
      const r = Math.max(3.5, Math.min(22, Math.sqrt(share(s)) * 52)), k = boundClass(s.bound), x = P.fx(s.ops / bytes), y = P.fy(clampY(rate(s)));
      kids.push(sv("path", { d: shape(k, x, y, r), class: `pt f-${k}`, "data-s": s.number }));
      if (s.number === selected) kids.push(sv("circle", { cx: x, cy: y, r: r + 3, class: "sel" }));
    }
    for (const l of laid) kids.push(sv("text", { x: l.x, y: l.y, class: l.on ? "halo" : "m halo" }, l.t));
    g.replaceChildren(...kids);
    far.textContent = `${U.plural(none.length, "step")} without arithmetic (${U.pct(none.reduce((a, s) => a + share(s), 0))} of the time) and ${hidden} whose bytes never reach ${level} have no place here.`;
  }
  pointKeys(g, pts, hint, (s) => `step ${s.number}  ${label(s)}  ·  ${U.ops(rate(s))}  ·  ${s.roof_us ? U.pct(s.roof_us * runs(s) / time(s)) + " of its roof (" + s.roof_bound + ")" : s.bound}`);
  onSelect(() => draw(W));
  fluid(host, draw);
});

views.push(function predictions() {
  const both = steps.filter((s) => s.measured && time(s) > 0 && predicted(s) > 0);
  if (!both.length) return;
  const vs = both.flatMap((s) => [time(s), predicted(s)]);
  const lo = 10 ** Math.floor(Math.log10(Math.min(...vs))), hi = 10 ** Math.ceil(Math.log10(Math.max(...vs)));
  const near = both.filter((s) => Math.abs(s.measured.error) <= 0.25);
  const host = el("div"), hint = el("p", { class: "hint", "aria-live": "polite" }), list = el("ol", { class: "worst" });
  // Steps of one shape and schedule are off alike: they are one line.
  const alike = new Map();
  for (const s of both) { const k = [s.family, s.shapes, s.schedule, s.bound, s.nodes.length].join("|"); if (!alike.has(k)) alike.set(k, []); alike.get(k).push(s); }
  const off = (l) => Math.abs(l.reduce((a, s) => a + time(s) - predicted(s), 0));
  const worst = [...alike.values()].sort((a, b) => off(b) - off(a)).slice(0, 10);
  for (const l of worst) {
    l.sort((a, b) => Math.abs(time(b) - predicted(b)) - Math.abs(time(a) - predicted(a)));
    const s = l[0], more = l.length > 1 ? ` and ${l.length - 1} like it, ${U.us(off(l))} off together.` : ".";
    list.append(el("li", {}, el("button", { type: "button", class: "n", onclick: () => select(s.number, true, "error") }, el("b", {}, label(s))), ` ${U.us(time(s))} measured, ${U.us(predicted(s))} predicted (${U.signed(s.measured.error)})${more} ` + suspicion(s)));
  }
  section("predicted", "Predicted against measured", `${near.length} of ${both.length} steps are within 25%, which is the band between the thin lines; they are ${U.pct(near.reduce((a, s) => a + share(s), 0))} of the time. Beside it the ten kernels that are furthest off in time.`,
    el("div", { class: "two" }, el("div", {}, host, hint), el("div", {}, el("h3", {}, "Furthest off, and what that says"), list)));
  const g = sv("svg", { tabindex: 0, role: "application", "aria-label": "Measured over predicted time of each step. Arrow keys move from step to step, the slowest first; Enter opens one." });
  host.append(g);
  let W = 500;
  function draw(w) {
    W = w; const h = Math.max(300, Math.min(480, w));
    g.setAttribute("width", w); g.setAttribute("height", h);
    const P = logPlot({ w, h, x0: lo, x1: hi, y0: lo, y1: hi, xt: U.us, yt: U.us, xl: "predicted; measured upwards" });
    const line = (f, c) => sv("path", { d: `M${P.fx(Math.max(lo, lo / f))} ${P.fy(Math.max(lo, lo * f))}L${P.fx(Math.min(hi, hi / f))} ${P.fy(Math.min(hi, hi * f))}`, class: c });
    const kids = [...P.kids, line(1, "roof on"), line(1.25, "roof"), line(0.75, "roof")];
    for (const s of both) {
      const k = boundClass(s.bound), x = P.fx(predicted(s)), y = P.fy(time(s)), r = Math.max(3.5, Math.min(14, Math.sqrt(share(s)) * 40));
      kids.push(sv("path", { d: shape(k, x, y, r), class: `pt f-${k}`, "data-s": s.number }));
      if (s.number === selected) kids.push(sv("circle", { cx: x, cy: y, r: r + 3, class: "sel" }));
    }
    g.replaceChildren(...kids);
  }
  pointKeys(g, both, hint, (s) => `step ${s.number}  ${label(s)}  ·  ${U.us(time(s))} measured, ${U.us(predicted(s))} predicted (${U.signed(s.measured.error)})`);
  onSelect(() => draw(W));
  fluid(host, draw);
});
/** What rate the machine would have had to have for the prediction to be right: a finding, not an excuse. */
function suspicion(s) {
  const m = machineOf(s), t = time(s) / runs(s), fixed = s.latency_us + s.launch_us, left = t - fixed;
  const [k, what] = String(s.bound).split(":");
  if (k === "launch" || k === "latency") return `It is predicted to be mostly ${k === "launch" ? "fixed costs" : "latency"} (${U.us(fixed)}); ${rateSource(s, m)}.`;
  const part = (k === "memory" ? s.levels : s.units).find((x) => x[0] === what);
  if (!part || left <= 0 || !(part[1] > 0)) return `${rateSource(s, m)}.`;
  return `Bound by ${s.bound}: ${rateSource(s, m)}; to take what was measured it would have to be ${left > part[1] ? "1/" + U.num(left / part[1]) : U.num(part[1] / left) + " times"} as fast${s.measured.workers < D.threads ? `, and only ${U.plural(s.measured.workers, "worker")} of ${D.threads} took part` : ""}.`;
}
