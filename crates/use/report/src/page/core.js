const steps = D.steps;
const measured = D.measured;
const time = (s) => s.measured ? s.measured.time_us : s.predicted_us * (measured ? 0 : 1);
const runs = (s) => s.measured ? s.measured.runs : 1;
const predicted = (s) => s.predicted_us * runs(s);
const total = steps.reduce((a, s) => a + time(s), 0);
const share = (s) => total > 0 ? time(s) / total : 0;
const unique = (s) => s.unique_read + s.unique_written;
const machineOf = (s) => D.machines[s.device] || D.machines[D.machines.length - 1];
const boundClass = (b) => { const k = String(b).split(":")[0]; return ["compute", "memory", "latency", "launch"].includes(k) ? k : "other"; };
const BOUND_WORDS = { compute: "arithmetic", memory: "moving bytes", latency: "waiting for first accesses and hand-offs", launch: "fixed costs of launches, steps and tasks", other: "something else" };
function boundWords(b) {
  const [k, what] = String(b).split(":");
  if (k === "compute") return "arithmetic on " + what + " units";
  if (k === "memory") return "bytes through " + what;
  return BOUND_WORDS[k] || String(b);
}
// The path that all names begin with says nothing.
const prefix = (() => {
  const first = steps.map((s) => s.nodes[0]).filter((n) => n !== undefined);
  if (first.length < 2) return "";
  let p = first[0];
  for (const n of first) while (!n.startsWith(p)) p = p.slice(0, -1);
  return p.slice(0, p.lastIndexOf("/") + 1);
})();
const short = (n) => n.length > prefix.length && n.startsWith(prefix) ? n.slice(prefix.length) : n;
const label = (s) => short(s.nodes[0] || s.name) + (s.nodes.length > 1 ? " +" + (s.nodes.length - 1) : "");

// One selected step, shown by every view.
const watchers = [];
let selected = -1;
const onSelect = (f) => watchers.push(f);
function select(i, open, figure) {
  selected = i;
  for (const f of watchers) f(i);
  if (open && steps[i]) showStep(steps[i], figure);
}

addEventListener("keydown", (e) => { if (e.key === "Escape") closeDrawer(); });

// A figure: its text, and how it comes about.
const why = (formula, source) => [formula ? el("code", { class: "formula" }, formula) : null, source ? el("span", { class: "src" }, source) : null];
const figure = (text, title, formula, source) => el("button", {
  type: "button", class: "n", "aria-haspopup": "dialog",
  onclick: (e) => { e.stopPropagation(); openDrawer(title, el("p", { class: "v" }, text), why(formula, source)); },
}, text);

const SOURCES = { spec: "from the data sheet or the hardware itself", measured: "measured by a micro-benchmark", recalled: "a published measurement as it was remembered", fitted: "fitted to measurements of kernels", assumed: "assumed" };
const src = (x) => x && x.src ? SOURCES[x.src] || x.src : "";
const val = (x) => x && typeof x === "object" ? x.v : x;
function levelOf(m, name) { return m.levels.find((l) => l.name === name); }

/** Every figure of a step with its formula and source. */
function stepFigures(s) {
  const m = machineOf(s), out = [], t = time(s), per = runs(s);
  const put = (key, name, value, formula, source) => out.push({ key, name, value, formula, source });
  const clock = "workers' clocks, " + (measured ? U.plural(measured.active, "request") + " after " + measured.warmup : "");
  if (s.measured) {
    put("time", "time", U.us(t), "median over requests of (end of the last span − begin of the first)", clock);
    put("error", "measured over predicted", U.signed(s.measured.error), `${U.us(t)} ÷ ${U.us(predicted(s))} − 1`, "the two figures beside it");
  }
  put("share", "share of the steps' time", U.pct(share(s)), `${U.us(t)} ÷ ${U.us(total)} (sum over ${steps.length} steps)`, s.measured ? clock : "predictions");
  const parts = [...s.units.map(([n, v]) => `${n} units ${U.us(v)}`), ...s.levels.map(([n, v]) => `${n} ${U.us(v)}`)];
  put("predicted", "predicted", U.us(predicted(s)),
    `longest of [${parts.join(", ") || "nothing"}], statement by statement, times the imbalance of the last round\n+ first access and hand-offs ${U.us(s.latency_us)}\n+ fixed costs ${U.us(s.launch_us)}` + (per === 1 ? "" : `\n× ${U.num(per)} runs`),
    `cost model over ${m.name}; at peak and all overlapped ${U.us(s.interval_us[0])}, with nothing overlapped ${U.us(s.interval_us[1])}`);
  put("bound", "bound by", s.bound + " (" + boundWords(s.bound) + ")", "the largest part of the prediction", rateSource(s, m));
  if (s.ops > 0) put("ops", "operations", U.count(s.ops) + (s.flop > 0 ? `, of them ${U.flop(s.flop)} of products` : ""), s.ops_by.map(([c, d, n]) => `${c} ${d}: ${U.count(n)}`).join("\n"), "counted over the statements of the tile program; a multiply-add is two");
  if (s.flop > 0 && t > 0) put("rate", "rate of products", U.flops(s.flop * per / t * 1e6), `${U.flop(s.flop)}${per === 1 ? "" : " × " + U.num(per)} ÷ ${U.us(t)}`, s.measured ? "measured time" : "predicted time");
  put("bytes", "distinct bytes", U.bytes(unique(s)), `${U.bytes(s.unique_read)} read + ${U.bytes(s.unique_written)} written`, "elements that the tile program touches, each once, times their size");
  if (t > 0 && unique(s) > 0) put("gbs", "distinct bytes per second", U.rate(unique(s) * per / t * 1e6), `${U.bytes(unique(s))} ÷ ${U.us(t)}`, s.measured ? "measured time" : "predicted time");
  put("traffic", "bytes across the levels", s.traffic.map((x, i) => [m.levels[i], x]).filter(([l, x]) => l && l.name !== "register" && x[0] + x[1] > 0).map(([l, x]) => `${l.name} ${U.bytes(x[0] + x[1])}`).join(", ") || "none",
    s.traffic.map((x, i) => [m.levels[i], x]).filter(([l, x]) => l && x[0] + x[1] > 0).map(([l, x]) => `${l.name}: ${U.bytes(x[0])} loaded, ${U.bytes(x[1])} stored`).join("\n"), "read off the tile program with the sizes of " + m.name + "'s levels");
  if (s.ops > 0 && unique(s) > 0) put("intensity", "operations per distinct byte", U.num(s.ops / unique(s)), `${U.count(s.ops)} ÷ ${U.bytes(unique(s))}`, "tile program");
  if (s.roof_us) put("roof", "at the roof", U.us(s.roof_us) + (t > 0 ? ` (${U.pct(s.roof_us * per / t)} reached)` : ""), "the longest of arithmetic and each level's bytes, at peak, all overlapped, without fixed costs", `roofline of ${m.name}; bound there by ${s.roof_bound}`);
  put("tasks", "tasks", String(s.tasks) + (s.measured ? ` on ${U.plural(s.measured.workers, "worker")}` : ""), "points of the schedule's grid: " + (s.schedule || "1"), "schedule");
  return out;
}
/** The machine's figure that a bound rests on. */
function rateSource(s, m) {
  const [k, what] = String(s.bound).split(":");
  if (k === "memory") {
    const l = levelOf(m, what);
    if (l) return `${what} of ${m.name} reads ${U.rate(val(l.read))} (${src(l.read)})`;
    const link = (m.links || []).find((x) => x.name === what);
    if (link) return `${what} carries ${U.rate(val(link.bandwidth))} (${src(link.bandwidth)})`;
  }
  if (k === "compute") {
    const u = m.units.find((x) => x.name === what && s.ops_by.some((o) => o[1] === x.dtype)) || m.units.find((x) => x.name === what);
    if (u) return `${what} ${u.dtype} of ${m.name}: ${U.ops(val(u.rate))} (${src(u.rate)})`;
  }
  if (k === "launch") return `a step costs ${U.us(val(m.costs.step_s) * 1e6)} (${src(m.costs.step_s)}), a task ${U.us(val(m.costs.task_s) * 1e6)} (${src(m.costs.task_s)})`;
  if (k === "latency") return `a hand-off costs ${U.us(val(m.costs.handoff_s) * 1e6)} (${src(m.costs.handoff_s)})`;
  return m.name;
}
function whyText(w) {
  const alt = w.alternatives.map(([what, us]) => `${what}, predicted ${U.us(us)}`);
  return el("li", {}, el("b", {}, w.subject + ": " + w.choice + ". "), w.reason, alt.length ? el("ul", {}, alt.map((a) => el("li", {}, "instead: " + a))) : null);
}
function showStep(s, hit) {
  const dl = el("dl");
  let at = null;
  for (const f of stepFigures(s)) {
    const dd = el("dd", { class: f.key === hit ? "hit" : null }, el("span", { class: "v" }, f.value), ...why(f.formula, f.source));
    if (f.key === hit) at = dd;
    dl.append(el("dt", {}, f.name), dd);
  }
  const own = s.whys.map((i) => D.whys[i]);
  const part = (title, list) => list.length ? [el("h3", {}, title), el("ul", {}, list)] : [];
  const buffers = (list) => list.map((b) => D.buffers[b]).filter(Boolean).map((b) => el("li", {}, `${b.name}: ${U.bytes(b.bytes)} of ${b.dtype}, ${b.kind}`));
  openDrawer(`Step ${s.number}: ${label(s)}`,
    el("p", { class: "note" }, `${s.family} · ${s.shapes || "no axes"} · tiles ${s.schedule || "-"}`),
    dl,
    part("Why it runs so", [...(s.reason ? [el("li", {}, s.reason)] : []), ...own.filter((w) => w.pass !== "schedule" && w.pass !== "fuse").map(whyText)]),
    part("Schedules that it beat", own.filter((w) => w.pass === "schedule").flatMap((w) => w.alternatives).map(([what, us]) => el("li", {}, `${what}: predicted ${U.us(us)}`))),
    part("Fused, and why", own.filter((w) => w.pass === "fuse" && !w.choice.startsWith("not")).map(whyText)),
    part("Not fused, and why", own.filter((w) => w.pass === "fuse" && w.choice.startsWith("not")).map(whyText)),
    part(`Nodes of the model (${s.nodes.length})`, s.nodes.map((n) => el("li", {}, n))),
    part("Reads", buffers(s.reads)), part("Writes", buffers(s.writes)));
  if (at) at.scrollIntoView({ block: "center", behavior: "instant" });
}

/** A section with its heading; views are made one after the other. */
const views = [];
function section(id, title, note, ...body) {
  const s = el("section", { id, "aria-labelledby": id + "-h" }, el("h2", { id: id + "-h" }, title), note ? el("p", { class: "note" }, note) : null, ...body);
  byId("sections").append(s);
  byId("toc").append(el("li", {}, el("a", { href: "#" + id }, title)));
  return s;
}
/** Draws now and again when its width has changed. */
function fluid(host, draw) {
  let width = 0;
  const again = () => { const w = Math.floor(host.clientWidth); if (w > 0 && w !== width) { width = w; draw(w); } };
  new ResizeObserver(again).observe(host);
  again();
}
function legend(used) {
  return el("ul", { class: "key", "aria-label": "Key" }, ["compute", "memory", "latency", "launch", "other"].filter((k) => used.has(k)).map((k) =>
    el("li", {}, sv("svg", { width: 14, height: 14, "aria-hidden": "true" }, sv("rect", { width: 14, height: 14, class: "f-" + k })), k === "other" ? "not predicted" : `${k}: ${BOUND_WORDS[k]}`)));
}
const usedBounds = new Set(steps.map((s) => boundClass(s.bound)));
/** Round values for an axis. */
function ticks(lo, hi, n) {
  const raw = (hi - lo) / Math.max(1, n), p = 10 ** Math.floor(Math.log10(raw)), r = raw / p;
  const step = (r < 1.5 ? 1 : r < 3.5 ? 2 : r < 7.5 ? 5 : 10) * p, out = [];
  for (let v = Math.ceil(lo / step) * step; v <= hi + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}
const decades = (lo, hi) => { const out = []; for (let e = Math.ceil(Math.log10(lo) - 1e-9); e <= Math.log10(hi) + 1e-9; e++) out.push(10 ** e); return out; };
