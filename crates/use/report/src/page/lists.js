// The step table.
views.push(function table() {
  const most = Math.max(...steps.map(time), 1e-12);
  const columns = [
    { key: "number", name: "step", r: true, get: (s) => s.number, text: (s) => String(s.number), up: true },
    { key: "name", name: "nodes", get: (s) => label(s), up: true },
    { key: "family", name: "kind", get: (s) => s.family, text: (s) => s.family, up: true },
    { key: "time", name: "time", r: true, get: time },
    { key: "share", name: "share", r: true, get: share, text: (s) => U.pct(share(s)) },
    ...(measured ? [{ key: "predicted", name: "predicted", r: true, get: predicted, text: (s) => U.us(predicted(s)) },
      { key: "error", name: "error", r: true, get: (s) => s.measured ? s.measured.error : -2, text: (s) => s.measured ? U.signed(s.measured.error) : "-" }] : []),
    { key: "bound", name: "bound by", get: (s) => s.bound, text: (s) => s.bound, up: true },
    { key: "roof", name: "of roof", r: true, get: (s) => s.roof_us && time(s) > 0 ? s.roof_us * runs(s) / time(s) : -1, text: (s) => s.roof_us && time(s) > 0 ? U.pct(s.roof_us * runs(s) / time(s)) : "-" },
    { key: "rate", name: "FLOPS", r: true, get: (s) => time(s) > 0 ? s.flop * runs(s) / time(s) : 0, text: (s) => s.flop > 0 && time(s) > 0 ? U.flops(s.flop * runs(s) / time(s) * 1e6) : "-" },
    { key: "bytes", name: "distinct bytes", r: true, get: unique, text: (s) => U.bytes(unique(s)) },
    { key: "gbs", name: "bytes/s", r: true, get: (s) => time(s) > 0 ? unique(s) * runs(s) / time(s) : 0, text: (s) => time(s) > 0 ? U.rate(unique(s) * runs(s) / time(s) * 1e6) : "-" },
    { key: "tasks", name: "tasks", r: true, get: (s) => s.tasks, text: (s) => String(s.tasks) },
  ];
  let sort = { key: "time", dir: -1 }, current = 0;
  const rows = steps.map((s) => {
    const tr = el("tr", { class: "row", tabindex: -1, "data-s": s.number });
    for (const c of columns) {
      const td = el("td", { class: (c.r ? "r" : "") + (c.key === "name" ? " name" : ""), "data-k": c.key });
      if (c.key === "name") td.append(el("span", { class: "clip", title: s.nodes.join("\n") || s.name }, label(s)));
      else if (c.key === "time") { const i = el("i"); i.style.width = (time(s) / most * 100).toFixed(1) + "%"; td.append(el("span", { class: "bar", "aria-hidden": "true" }, i), U.us(time(s))); }
      else td.append(c.text(s));
      tr.append(td);
    }
    return { s, tr, text: (s.name + " " + s.nodes.join(" ") + " " + s.family + " " + s.bound + " " + (s.module || "")).toLowerCase() };
  });
  const body = el("tbody"), said = el("span", { role: "status" });
  const heads = columns.map((c) => el("th", { scope: "col", class: c.r ? "r" : null, "aria-sort": "none" }, el("button", { type: "button", onclick: () => { sort = { key: c.key, dir: sort.key === c.key ? -sort.dir : c.up ? 1 : -1 }; lay(); } }, c.name)));
  const search = el("input", { type: "search", id: "filter", placeholder: "node, kind, bound", "aria-label": "Show only steps with", oninput: () => lay() });
  const families = [...new Set(steps.map((s) => s.family))].sort();
  const family = el("select", { "aria-label": "Kind", onchange: () => lay() }, el("option", { value: "" }, "every kind"), families.map((f) => el("option", { value: f }, f)));
  const grid = el("table", { class: "steps", "aria-label": "Steps" }, el("thead", {}, el("tr", {}, heads)), body);
  section("steps", "Steps", "Each row opens the step: every figure with its formula and source, what it was fused with and why, what it beat. " + D.kinds,
    el("div", { class: "tools" }, el("label", {}, "Filter ", search), family, said), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Step table" }, grid));
  let shown = [];
  function lay() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), c = columns.find((x) => x.key === sort.key);
    shown = rows.filter((r) => (!family.value || r.s.family === family.value) && words.every((w) => r.text.includes(w)));
    shown.sort((a, b) => { const x = c.get(a.s), y = c.get(b.s); return (x < y ? -1 : x > y ? 1 : 0) * sort.dir || a.s.number - b.s.number; });
    columns.forEach((x, i) => heads[i].setAttribute("aria-sort", x.key === sort.key ? (sort.dir > 0 ? "ascending" : "descending") : "none"));
    body.replaceChildren(...shown.map((r) => r.tr));
    current = Math.min(current, Math.max(0, shown.length - 1));
    for (const r of rows) r.tr.tabIndex = -1;
    if (shown[current]) shown[current].tr.tabIndex = 0;
    const t = shown.reduce((a, r) => a + share(r.s), 0);
    said.textContent = `${shown.length} of ${U.plural(rows.length, "step")}, ${U.pct(t)} of the time`;
  }
  body.addEventListener("click", (e) => { const tr = e.target.closest("tr"), td = e.target.closest("td"); if (tr) { current = shown.findIndex((r) => r.tr === tr); select(Number(tr.dataset.s), true, td && td.dataset.k); } });
  body.addEventListener("keydown", (e) => {
    const at = shown.findIndex((r) => r.tr === e.target);
    if (at < 0) return;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1, PageDown: at + 15, PageUp: at - 15 }[e.key];
    if (to !== undefined) { shown[at].tr.tabIndex = -1; current = Math.max(0, Math.min(shown.length - 1, to)); shown[current].tr.tabIndex = 0; shown[current].tr.focus(); }
    else if (e.key === "Enter" || e.key === " ") select(Number(e.target.dataset.s), true);
    else return;
    e.preventDefault();
  });
  onSelect((i) => { for (const r of rows) r.tr.classList.toggle("on", r.s.number === i); });
  window.filterSteps = (text) => { search.value = text; family.value = ""; lay(); byId("steps").scrollIntoView(); };
  lay();
});

// Where in the model's modules the time goes, by the paths in the nodes' names.
views.push(function modules() {
  const tree = { name: "", kids: new Map(), t: 0, n: 0, depth: 0, path: "" };
  for (const s of steps) {
    let at = tree;
    for (const part of (s.module ? s.module.split("/") : [])) {
      if (!at.kids.has(part)) at.kids.set(part, { name: part, kids: new Map(), t: 0, n: 0, depth: at.depth + 1, path: (at.path ? at.path + "/" : "") + part });
      at = at.kids.get(part); at.t += time(s); at.n++;
    }
  }
  let top = tree;
  while (top.kids.size === 1) top = [...top.kids.values()][0];
  if (top.kids.size < 2) return;
  const open = new Set(), body = el("tbody");
  // What holds most of the time is open from the start.
  for (let at = top; at; at = [...at.kids.values()].find((k) => k.kids.size > 1 && k.t > total * 0.6)) if (at !== top) open.add(at.path);
  section("modules", "By module", "Time by where nodes come from, as their names tell it; a step that joins several counts where its first node is.", el("div", { class: "wide" }, el("table", { class: "tree", "aria-label": "Time by module" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "module"), el("th", { scope: "col" }, "time"), el("th", { scope: "col", class: "r" }, "share"), el("th", { scope: "col", class: "r" }, "steps"))), body)));
  function lay(focus) {
    const out = [];
    const walk = (node) => {
      for (const k of [...node.kids.values()].sort((a, b) => b.t - a.t)) {
        const deep = k.kids.size > 0, i = el("i"); i.style.width = (k.t / total * 100).toFixed(1) + "%";
        const name = el("td"); name.style.paddingLeft = (k.depth - top.depth - 1) * 20 + "px";
        const twist = deep ? el("button", { type: "button", class: "twist", "aria-expanded": String(open.has(k.path)), "aria-label": "Parts of " + k.name, "data-p": k.path, onclick: () => { open.has(k.path) ? open.delete(k.path) : open.add(k.path); lay(k.path); } }, open.has(k.path) ? "▾" : "▸") : el("span", { class: "twist" }, "");
        name.append(twist, el("button", { type: "button", class: "n", title: "Show its steps", onclick: () => filterSteps(k.path) }, k.name));
        out.push(el("tr", {}, name, el("td", {}, el("span", { class: "bar", "aria-hidden": "true" }, i), U.us(k.t)), el("td", { class: "r" }, U.pct(k.t / total)), el("td", { class: "r" }, String(k.n))));
        if (open.has(k.path)) walk(k);
      }
    };
    walk(top);
    body.replaceChildren(...out);
    if (focus !== undefined) for (const b of body.querySelectorAll(".twist")) if (b.dataset.p === focus) b.focus();
  }
  lay();
});

// What lies where in the arena, and when.
views.push(function memory() {
  const live = D.buffers.map((b, i) => ({ ...b, i })).filter((b) => b.kind === "arena" && b.first !== null && b.bytes > 0);
  const M = D.memory, rows = [["weights in place", M.weights_in_place, "read where the file lies mapped"], ["packed weights", M.packed, "made at load, shared by all requests"], ["late weights", M.late, "planned when the data gives their sizes"], ["arena", M.arena * M.requests, `${U.bytes(M.arena)} for each of up to ${M.requests} requests at once`], ["scratch", M.scratch * Math.max(0, M.workers + M.requests - 1), `${U.bytes(M.scratch)} for each worker and request`], ["state", M.state, "of a stream"]].filter((r) => r[1] > 0);
  const most = Math.max(...rows.map((r) => r[1]), 1);
  const tableOf = el("table", { "aria-label": "Memory" }, el("thead", {}, el("tr", {}, ["what", "bytes", ""].map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, rows.map(([n, v, t]) => { const i = el("i"); i.style.width = (v / most * 100).toFixed(1) + "%"; return el("tr", {}, el("th", { scope: "row" }, n), el("td", {}, el("span", { class: "bar", "aria-hidden": "true" }, i), U.bytes(v)), el("td", {}, t)); }), el("tr", {}, el("th", { scope: "row" }, "total"), el("td", {}, el("span", { class: "bar", "aria-hidden": "true" }), U.bytes(M.total)), el("td", {}, "at most, of the above together"))));
  const sec = section("memory", "Memory", null);
  const sorted = (list) => [...new Set(list)].sort((a, b) => a - b), places = sorted(live.map((b) => b.place)), plans = sorted(live.map((b) => b.plan));
  for (const plan of plans) for (const place of places) {
    const own = live.filter((b) => b.place === place && b.plan === plan);
    if (!own.length) continue;
    const reserved = Math.max(...own.map((b) => b.offset + b.bytes), 1);
    // Only the steps of this plan lie in this arena.
    const from = plans.length > 1 ? Math.min(...own.map((b) => b.first)) : 0, n = plans.length > 1 ? Math.max(...own.map((b) => b.last)) + 1 - from : steps.length;
    const used = new Array(n).fill(0);
    for (const b of own) for (let i = b.first; i <= b.last; i++) used[i - from] += b.bytes;
    const peak = Math.max(...used), at = used.indexOf(peak) + from;
    const where = (plans.length > 1 ? `, plan ${plan + 1}` : "") + (places.length > 1 ? " on " + (D.machines[place] || { name: "device " + place }).name : "");
    const host = el("div"), hint = el("p", { class: "hint", "aria-live": "polite" });
    sec.append(el("p", { class: "note" }, `The arena of a request${where}: steps to the right, addresses upwards, a box for each value. Reserved ${U.bytes(reserved)}; most in use at once ${U.bytes(peak)} (${U.pct(peak / reserved)}), at step ${at}. Below: bytes in use.`), host, hint);
    const g = sv("svg", { role: "img", "aria-label": `Arena${where} over the steps: ${U.bytes(reserved)} reserved, at most ${U.bytes(peak)} in use, at step ${at}` });
    host.append(g);
    let W = 600;
    const draw = (w) => {
      W = w;
      const h1 = 260, h2 = 54, gap = 16, L = 74, H = h1 + gap + h2 + 24, kids = [];
      g.setAttribute("width", w); g.setAttribute("height", H);
      const fx = (i) => L + (i - from) / n * (w - L), fy = (b) => 6 + (h1 - 6) * (1 - b / reserved), gy = (b) => h1 + gap + h2 * (1 - b / reserved);
      const unit = 1024 ** Math.max(0, Math.floor(Math.log2(reserved) / 10));
      for (const t of ticks(0, reserved / unit, 4).map((v) => v * unit)) { const y = Math.round(fy(t)) + 0.5; kids.push(sv("path", { d: `M${L} ${y}H${w}`, class: "grid" }), sv("text", { x: L - 8, y: y + 4, "text-anchor": "end", class: "m" }, U.bytes(t))); }
      for (const b of own) kids.push(sv("rect", { x: fx(b.first), y: fy(b.offset + b.bytes), width: Math.max(1, fx(b.last + 1) - fx(b.first)), height: Math.max(1, fy(b.offset) - fy(b.offset + b.bytes)), class: (selected >= 0 && steps[selected] && (steps[selected].reads.includes(b.i) || steps[selected].writes.includes(b.i)) ? "f-compute" : "pb") + " box", "data-b": b.i }));
      let d = `M${L} ${gy(0)}`;
      used.forEach((v, i) => { d += `V${gy(v).toFixed(1)}H${fx(i + from + 1).toFixed(1)}`; });
      kids.push(sv("path", { d: d + `V${gy(0)}Z`, class: "f-other" }), sv("path", { d: `M${L} ${gy(reserved)}H${w}`, class: "axis" }));
      kids.push(sv("text", { x: L - 8, y: gy(reserved) + 4, "text-anchor": "end", class: "m" }, "reserved"), sv("text", { x: L - 8, y: gy(0), "text-anchor": "end", class: "m" }, "in use"));
      for (const t of ticks(from, from + n, Math.max(2, w / 110)).filter(Number.isInteger)) kids.push(sv("text", { x: Math.min(fx(t), w - 14), y: H - 4, "text-anchor": t === from ? "start" : "middle", class: "m" }, t === from ? `step ${t}` : String(t)));
      if (selected >= from && selected < from + n) kids.push(sv("path", { d: `M${fx(selected + 0.5)} 6V${h1 + gap + h2}`, class: "join" }));
      g.replaceChildren(...kids);
    };
    const say = (e) => { const i = e.target.getAttribute && e.target.getAttribute("data-b"), b = i === null ? null : D.buffers[i]; hint.textContent = b ? `${b.name}  ·  ${U.bytes(b.bytes)} of ${b.dtype} at ${U.count(b.offset)}  ·  steps ${b.first} to ${b.last}` : " "; };
    say({ target: {} , getAttribute: null });
    g.addEventListener("pointerover", say);
    g.addEventListener("click", (e) => { const i = e.target.getAttribute("data-b"); if (i !== null) { const b = D.buffers[i]; openDrawer(b.name, el("p", {}, `${U.bytes(b.bytes)} of ${b.dtype} at offset ${b.offset} of the arena`), why(`alive from step ${b.first}, which writes it, to step ${b.last}, its last reader`, "the plan's buffers")); } });
    onSelect(() => draw(W));
    fluid(host, draw);
  }
  sec.append(el("h3", {}, "In all"), el("div", { class: "wide" }, tableOf));
});

// The steps as a graph: rows in plan order, arcs where a value goes on.
views.push(function fusion() {
  const writer = new Map(), arcs = [];
  steps.forEach((s) => { for (const b of s.reads) if (writer.has(b)) arcs.push([writer.get(b), s.number, b]); for (const b of s.writes) writer.set(b, s.number); });
  const RH = 24, H = steps.length * RH + 8, LEFT = Math.min(150, Math.max(60, innerWidth * 0.16));
  const fused = steps.filter((s) => s.nodes.length > 1).length, no = D.whys.filter((w) => w.pass === "fuse" && w.choice.startsWith("not")).length;
  const rowsHost = el("div", { class: "frows", role: "list", "aria-label": "Steps in plan order" });
  rowsHost.style.height = H + "px";
  const g = sv("svg", { width: LEFT, height: H, "aria-hidden": "true" });
  rowsHost.append(g);
  const box = el("div", { class: "scroll", tabindex: -1 }, rowsHost);
  box.style.maxHeight = "420px";
  section("fusion", "Fusion", `${fused} of ${steps.length} steps join several nodes. Arcs on the left are values that go through memory from one step to a later one; ${no} pairs were looked at and left apart. A row opens the reasons for both.`, box);
  const y = (i) => 4 + i * RH + RH / 2;
  const paths = arcs.map(([a, b]) => { const d = Math.min(LEFT - 14, 8 + Math.sqrt(b - a) * 9); return sv("path", { d: `M${LEFT - 4} ${y(a)}C${LEFT - 4 - d} ${y(a)} ${LEFT - 4 - d} ${y(b)} ${LEFT - 4} ${y(b)}`, class: "arc" }); });
  g.append(...paths);
  // Only the rows in sight are in the document: a model may have thousands.
  let first = -1, last = -1;
  const live = new Map();
  function lay() {
    const a = Math.max(0, Math.floor(box.scrollTop / RH) - 12), b = Math.min(steps.length, Math.ceil((box.scrollTop + box.clientHeight) / RH) + 12);
    if (a === first && b === last) return;
    first = a; last = b;
    for (const [i, r] of live) if (i < a || i >= b) { r.remove(); live.delete(i); }
    for (let i = a; i < b; i++) if (!live.has(i)) {
      const s = steps[i];
      const ops = s.nodes.length ? s.nodes.map((n) => n.slice(n.lastIndexOf("/") + 1)).join(" + ") : s.name;
      const r = el("button", { type: "button", class: "frow" + (i === selected ? " on" : ""), role: "listitem", onclick: () => select(i, true) }, el("span", { class: "no" }, String(s.number)), el("span", { class: "nm" }, label(s)), el("span", { class: "mu" }, `${s.family} · ${ops}`));
      r.style.top = 4 + i * RH + "px"; r.style.left = LEFT + "px";
      live.set(i, r); rowsHost.append(r);
    }
  }
  box.addEventListener("scroll", lay);
  new ResizeObserver(() => { first = -1; lay(); }).observe(box);
  onSelect((i) => {
    arcs.forEach(([a, b], k) => paths[k].classList.toggle("on", a === i || b === i));
    for (const [k, r] of live) r.classList.toggle("on", k === i);
    if (drawer.hidden && i >= 0 && !box.contains(document.activeElement)) box.scrollTop = Math.max(0, y(i) - box.clientHeight / 2);
  });
  lay();
});

views.push(function advice() {
  const A = D.advice;
  if (!A) return;
  const good = A.advice.filter((a) => a.gain >= 1.01), idle = A.advice.filter((a) => a.gain < 1.01);
  const by = { replanned: "planned again with the change", repredicted: "work changed and predicted again" };
  const sec = section("advice", "What would help", `Ranked by predicted gain over ${U.us(A.now_s * 1e6)} a request${A.dims ? " (" + A.dims + ")" : ""} on ${A.machine}. Gains do not add.`);
  if (good.length) sec.append(el("ol", { class: "advice" }, good.map((a) => el("li", {}, el("span", { class: "gain" }, figure(U.num(a.gain) + "×", a.what, `${U.us(A.now_s * 1e6)} ÷ ${a.new_s === null ? "-" : U.us(a.new_s * 1e6)}`, by[a.computed])), el("div", {}, el("b", {}, a.what), el("p", {}, a.reason.charAt(0).toUpperCase() + a.reason.slice(1))))))); 
  else sec.append(el("p", {}, "Nothing that was tried gains a per cent."));
  if (idle.length) sec.append(el("details", {}, el("summary", {}, "What would not help"), el("ul", {}, idle.map((a) => el("li", {}, `${a.kind}: ${a.reason}`)))));
});

views.push(function machine() {
  const m = D.machines[D.machines.length - 1], worker = m.kind === "gpu" ? "SM" : "core";
  const here = steps.filter((s) => machineOf(s) === m), time_ = here.reduce((a, s) => a + time(s), 0);
  const load = m.levels.map((_, i) => here.reduce((a, s) => { const t = s.traffic[i]; return t ? [a[0] + t[0] * runs(s), a[1] + t[1] * runs(s)] : a; }, [0, 0]));
  const cross = load.map((x) => x[0] + x[1]), most = Math.max(...cross.filter((_, i) => m.levels[i].name !== "register"), 1);
  const list = el("ol", { class: "levels" });
  const big = Math.max(...m.levels.map((l) => Math.log2(Math.max(2, val(l.bytes)))));
  const width = (l) => Math.round(34 + 66 * Math.log2(Math.max(2, val(l.bytes))) / big) + "%";
  const count = (l) => Math.max(1, Math.ceil(val(m.workers) / Math.max(1, l.shared_by)));
  m.levels.forEach((l, i) => {
    if (i > 0 && l.name !== "register") {
      const wide = cross[i] > 0 ? Math.max(2, 26 * Math.sqrt(cross[i] / most)) : 0, s = cross[i] / val(l.read) * 1e6;
      list.append(el("li", { class: "pipe" }, sv("svg", { width: 30, height: 34, "aria-hidden": "true" }, sv("rect", { x: 15 - wide / 2, y: 0, width: wide, height: 34, class: "f-compute" }), wide ? null : sv("path", { d: "M15 0V34", class: "join" })),
        cross[i] > 0 ? el("span", {}, figure(`${U.bytes(cross[i])} a request`, `Bytes across ${l.name}`, `${U.bytes(load[i][0])} loaded + ${U.bytes(load[i][1])} stored, summed over ${U.plural(here.length, "step")}`, "read off the tile programs with this machine's sizes"), ", at peak ", figure(U.us(s), `Time of ${l.name} at peak`, `${U.bytes(cross[i])} ÷ ${U.rate(val(l.read))}`, src(l.read)), time_ > 0 ? ` (${U.pct(s / time_)} of the steps' time)` : "") : el("span", { class: "note" }, "nothing crosses")));
    }
    const box = el("div", { class: "lv" }, el("b", {}, l.name), el("span", {}, figure(U.bytes(val(l.bytes)), `Size of ${l.name}`, `for each of ${count(l)}`, src(l.bytes)), count(l) > 1 ? ` × ${count(l)}` : "", ` · `, figure(U.rate(val(l.read)), `Bandwidth of ${l.name}`, `reading, all ${val(m.workers)} ${worker}s together; writing ${U.rate(val(l.write))}`, src(l.read)), val(l.latency_s) > 0 ? " · " : "", val(l.latency_s) > 0 ? figure(U.us(val(l.latency_s) * 1e6), `Latency of ${l.name}`, "first access", src(l.latency_s)) : ""));
    box.style.maxWidth = width(l);
    list.append(el("li", {}, box));
  });
  const assumed = [...m.levels.flatMap((l) => [l.read, l.latency_s]), ...m.units.map((u) => u.rate), ...Object.values(m.costs)].filter((x) => x && x.src === "assumed").length;
  section("machine", "The machine, and what crossed it", `${m.name}: ${val(m.workers)} ${worker}s at ${scaled(val(m.clock_hz), 1e3, ["Hz", "kHz", "MHz", "GHz"])}. From registers outwards; pipes are the bytes of one request. ${assumed ? `${assumed} of its figures are assumed, not measured; calibrating it would make predictions firmer.` : "No figure that the prediction rests on is assumed."}`,
    list, el("h3", {}, "Units"), el("div", { class: "wide" }, el("table", {}, el("thead", {}, el("tr", {}, ["unit", "inputs", "instruction set", "operations per second", "source"].map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, m.units.map((u) => el("tr", {}, el("th", { scope: "row" }, u.name), el("td", {}, u.dtype), el("td", {}, u.isa || "-"), el("td", {}, U.ops(val(u.rate))), el("td", {}, src(u.rate))))))));
});

views.push(function nodes() {
  const A = D.accounting;
  if (!A.nodes || !A.nodes.length) return;
  const box = el("div"), search = el("input", { type: "search", "aria-label": "Show only nodes with", placeholder: "node, operator, fate" });
  const MOST = 500;
  const lay = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = A.nodes.filter(([n, o, f]) => { const t = (n + " " + o + " " + f).toLowerCase(); return words.every((w) => t.includes(w)); });
    box.replaceChildren(el("p", { class: "note", role: "status" }, `${found.length} of ${A.nodes.length} nodes${found.length > MOST ? `, the first ${MOST} shown` : ""}`), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["node", "operator", "what became of it", "steps"].map((h) => el("th", { scope: "col" }, h)))),
      el("tbody", {}, found.slice(0, MOST).map(([n, o, f, st]) => el("tr", {}, el("td", {}, n), el("td", {}, o), el("td", {}, f), el("td", {}, (st || []).map((i) => el("button", { type: "button", class: "n", onclick: () => select(i, true) }, String(i))).flatMap((b) => [b, " "]))))))));
  };
  search.addEventListener("input", lay);
  const d = el("details", { ontoggle: () => { if (d.open && !box.firstChild) lay(); } }, el("summary", {}, "Every node"), el("div", { class: "tools" }, el("label", {}, "Filter ", search)), box);
  section("nodes", "Nodes of the model", `${A.total} nodes: ${A.in_steps} in steps, ${A.views} views that cost nothing, ${A.folded} done at import or load, ${A.dead} not needed, ${A.control} control flow.`, d);
});
