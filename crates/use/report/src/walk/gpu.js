// Tasks onto workers, warps onto an SM, lanes onto sectors and banks, tiles within tiles: in the numbers of
// the step itself.

/** Squares in a grid of `cols` columns: where each begins, and a path of the first `n` of some order. */
function cells(count, x, y, cols, size) {
  const at = [];
  for (let i = 0; i < count; i++) at.push(`M${(x + i % cols * size + 1).toFixed(1)} ${(y + Math.floor(i / cols) * size + 1).toFixed(1)}h${(size - 2).toFixed(1)}v${(size - 2).toFixed(1)}h${(2 - size).toFixed(1)}z`);
  return at;
}
/** The largest squares of which `count` fit into w by h. */
function fit(count, w, h, most) {
  let size = Math.min(most, Math.sqrt(w * h / Math.max(1, count)));
  while (size > 2 && Math.floor(w / size) * Math.floor(h / size) < count) size -= 0.25;
  return Math.max(2.5, size);
}

drawings.waves = (scene, w, h) => {
  const p = scene.picture, wide = Math.max(260, w - 32), narrow = wide < 620;
  const slots = p.workers * p.per_worker, gpu = p.worker === "SM";
  // More than so many squares say no more; each then stands for several.
  const MOST = 2400, each = Math.max(1, Math.ceil(p.tasks / MOST)), shown = Math.ceil(p.tasks / each);
  const halfW = narrow ? wide : (wide - 40) / 2, half = narrow ? (h - 110) / 2 : h - 76;
  const x1 = narrow ? 0 : halfW + 40, y1 = narrow ? half + 52 : 30;
  const s0 = fit(shown, halfW, half - 8, 26), c0 = Math.max(1, Math.floor(halfW / s0));
  // Slots of an SM stand beside each other.
  const unit = fit(p.workers, halfW, half - 8, 64), c1 = Math.max(1, Math.floor(halfW / unit));
  const inner = Math.ceil(Math.sqrt(p.per_worker)), tasks = cells(shown, 0, 30, c0, s0), workers = cells(p.workers, x1, y1, c1, unit);
  const slotAt = [];
  for (let k = 0; k < p.per_worker; k++) for (let i = 0; i < p.workers; i++) {
    const s = (unit - 4) / inner, x = x1 + i % c1 * unit + 2 + k % inner * s, y = y1 + Math.floor(i / c1) * unit + 2 + Math.floor(k / inner) * s;
    slotAt.push(`M${(x + 0.5).toFixed(1)} ${(y + 0.5).toFixed(1)}h${(s - 1).toFixed(1)}v${(s - 1).toFixed(1)}h${(1 - s).toFixed(1)}z`);
  }
  const done = sv("path", { class: "full", d: "" }), now = sv("path", { class: "now", d: "" }), busy = sv("path", { class: "full", d: "" });
  const status = text(0, 14, "", "b"), right = text(x1, y1 - 16, "", "b");
  const label = `${U.plural(p.tasks, p.task)} in ${U.plural(p.waves, gpu ? "wave" : "round")} over ${U.plural(p.workers, p.worker)}` + (p.per_worker > 1 ? ` with ${p.per_worker} each` : "");
  const node = el("div", { class: "pad" }, svg(wide, h - 34, label,
    sv("path", { class: "cell", d: tasks.join("") }), sv("path", { class: "cell", d: workers.join("") }), done, now, busy, status, right,
    each > 1 ? text(0, narrow ? half + 30 : h - 42, `a square is ${each} ${p.task}s`, "m") : null));
  let was = "";
  const show = (from, to, text0) => {
    const key = from + " " + to + text0;
    if (key === was) return;
    was = key;
    done.setAttribute("d", tasks.slice(0, Math.floor(from / each)).join(""));
    now.setAttribute("d", tasks.slice(Math.floor(from / each), Math.ceil(to / each)).join(""));
    busy.setAttribute("d", slotAt.slice(0, Math.min(slots, to - from)).join(""));
    put(status, `${to} of ${U.plural(p.tasks, p.task)} taken`);
    put(right, text0);
  };
  const wave = (k) => [k * slots, Math.min(p.tasks, (k + 1) * slots)];
  const word = (k) => gpu ? `wave ${k + 1} of ${p.waves}` : `${U.plural(p.workers, p.worker)}`;
  return {
    node, update(lit, t) {
      const e = span(t, 0, 0.85);
      if (lit === "grid") return show(0, 0, `${U.plural(p.workers, p.worker)}`);
      if (lit === "first") { const [, to] = wave(0); return show(0, Math.round(ease(e) * to), word(0)); }
      if (lit === "waves") { const k = Math.min(p.waves - 1, Math.floor(e * p.waves)); return show(...wave(k), word(k)); }
      if (lit === "last" && gpu) return show(...wave(p.waves - 1), word(p.waves - 1));
      if (lit === "last") { const to = Math.round(ease(e) * p.tasks); return show(Math.max(0, to - p.workers), to, word(0)); }
      return show(...wave(p.waves - 1), word(p.waves - 1));
    },
  };
};

drawings.warps = (scene, w, h) => {
  const p = scene.picture, wide = Math.max(260, w - 32), narrow = wide < 620;
  const leftW = narrow ? wide : wide * 0.5, size = Math.min(44, Math.floor(Math.min(leftW / 8, (narrow ? h / 2 - 30 : h - 80) / Math.ceil(p.slots / 8))));
  const kids = [text(0, 14, `warp slots of an SM: ${p.slots}`, "b")], held = [];
  for (let i = 0; i < p.slots; i++) {
    const x = i % 8 * size, y = 26 + Math.floor(i / 8) * size, used = i < p.ctas * p.warps, cta = Math.floor(i / Math.max(1, p.warps));
    const r = box(x + 1, y + 1, size - 3, size - 3, used ? (cta % 2 ? "half" : "full") : "cell");
    kids.push(r);
    if (used && size > 20) kids.push(text(x + size / 2 - 1, y + size / 2 + 3, String(cta), cta % 2 ? null : "in", "middle"));
    if (used) held.push({ r, cta, n: kids[kids.length - 1] });
  }
  kids.push(text(0, 26 + Math.ceil(p.slots / 8) * size + 16, "a number is the CTA that holds the slot", "m"));
  const left = svg(narrow ? wide : leftW, 26 + Math.ceil(p.slots / 8) * size + 24, `${p.ctas} CTAs of ${p.warps} warps hold ${p.ctas * p.warps} of ${p.slots} slots`, kids);
  const most = Math.max(1, ...p.limits.map((l) => Math.min(l[1], 64)));
  const limits = p.limits.map(([name, n]) => {
    const i = el("i"); i.style.width = clamp(Math.min(n, 64) / most * 100, 0.5, 100) + "%";
    return { name, node: el("div", { class: "bar" }, el("span", { class: "name" }, name + (p.limiters.includes(name) ? " (the limit)" : "")), el("span", { class: "val" }, U.plural(n, "CTA")), el("div", { class: "track" }, i)) };
  });
  const right = el("div", { class: "bars" }, el("h3", {}, "CTAs that each limit alone would allow"), limits.map((l) => l.node));
  const outer = el("div", { class: "pad" }, narrow ? [left, right] : el("div", { class: "flow" }, left, right));
  if (!narrow) outer.firstChild.style.gridTemplateColumns = "minmax(0, 1fr) minmax(0, 0.8fr)";
  return {
    node: outer, update(lit, t) {
      const e = span(t, 0, 0.7);
      for (const { r, cta, n } of held) {
        const there = lit === "cta" ? cta === 0 : lit === "slots" ? cta < Math.ceil(e * p.ctas) : true;
        const o = there ? "1" : "0.12";
        if (r.style.opacity !== o) { r.style.opacity = o; n.style.opacity = o; }
      }
      for (const l of limits) on(l.node, "lit", lit === "limits" && p.limiters.includes(l.name));
    },
  };
};

drawings.lanes = (scene, w, h) => {
  const rs = scene.picture.requests, wide = Math.max(300, w - 24);
  const host = el("div", { class: "pad" });
  if (!rs.length) { host.append(el("p", { class: "note" }, "Nothing was counted here; the caption says why.")); return { node: host, update() {} }; }
  const views = rs.map((r) => {
    const cache = r.space === "cache", far = r.space !== "shared", nLanes = r.lanes.length;
    const unit = !far ? "bank" : cache ? "cache line" : r.unit === 32 ? "sector" : "line";
    const lw = Math.min(34, wide / Math.max(1, nLanes)), kids = [], wires = [], yl = 60, yb = h - 120;
    const title = (r.line ? (cache ? `move ${r.line}: ` : `line ${r.line}: `) : "") + (far ? `${unit}s of ${r.unit} bytes` : "32 banks of 4 bytes");
    const whose = cache ? `lanes of the first vector, ${r.bytes} bytes each` : r.partial === null && r.lit !== r.role ? `invocations of a subgroup, ${r.bytes} bytes each` : `lanes of warp ${r.warp}, CTA ${r.cta.join(",")}, ${r.bytes} bytes each`;
    const how = r.way === "strided" ? `strided by ${r.stride} bytes` : r.way;
    kids.push(text(0, 14, title, "b"), text(0, 32, short(r.text, room(wide)), "m"), text(0, 54, short(`${whose}: ${how}`, room(wide)), "m"));
    const laneRects = [];
    for (let i = 0; i < nLanes; i++) {
      const x = i * lw, used = r.lanes[i] !== null && r.lanes[i] !== undefined;
      const rect = box(x + 0.5, yl, lw - 1.5, 24, used ? "half" : "cell");
      laneRects.push(rect); kids.push(rect);
      if (lw > 18 || i % 8 === 0) kids.push(text(x + lw / 2, yl + 16, String(i), used ? null : "m", "middle"));
    }
    const targets = new Map(), order = [];
    const group = far ? nLanes : r.bytes >= 16 ? 8 : r.bytes >= 8 ? 16 : 32;
    if (far) {
      // Everything that a lane touches, in the order of addresses.
      for (const a of r.lanes) if (a !== null && a !== undefined) for (let s = Math.floor(a / r.unit); s <= Math.floor((a + r.bytes - 1) / r.unit); s++) targets.set(s, 0);
      [...targets.keys()].sort((a, b) => a - b).forEach((s, i) => { targets.set(s, i); order.push(s); });
    } else for (let b = 0; b < 32; b++) { targets.set(b, b); order.push(b); }
    const n = Math.max(1, order.length), tw = Math.min(60, wide / n), tRects = order.map((s, i) => {
      const x = i * tw, rect = box(x + 0.5, yb, Math.max(1, tw - 1.5), 26, "cell");
      kids.push(rect);
      const every = Math.ceil(26 / tw);
      if (i % every === 0) kids.push(text(x + tw / 2, yb + 40, String(s), "m", "middle"));
      return rect;
    });
    kids.push(text(0, yb + 58, !far ? "banks" : r.way === "by data" ? "where the data says: each lane's element may lie on a line of its own" : unit === "sector" ? "sectors, counted from the first line of 128 bytes" : `${unit}s, counted from the first`, "m"));
    const counter = text(0, yb + 80, "", "big");
    kids.push(counter);
    r.lanes.forEach((a, i) => {
      if (a === null || a === undefined) return;
      const own = [];
      const wide1 = far ? r.unit : 4, first = Math.floor(a / wide1), last = Math.floor((a + r.bytes - 1) / wide1);
      for (let s = first; s <= Math.min(last, first + 3); s++) own.push(targets.get(far ? s : s % 32));
      const x0 = i * lw + lw / 2, to = own.map((k) => k * tw + tw / 2), mid = to.reduce((p, v) => p + v, 0) / to.length;
      const line = sv("line", { x1: x0, y1: yl + 24, x2: x0, y2: yl + 24, class: "wire" });
      kids.push(line);
      wires.push({ i, line, x0, mid, own, wave: Math.floor(i / group), was: -1 });
    });
    const what = far ? U.plural(r.moved, unit) + ` ${unit === "sector" ? "moved" : "touched"}; ${r.ideal} would do` : `${r.moved} ${r.moved === 1 ? "pass" : "passes"} over the banks; ${r.ideal} would do`;
    const node = svg(wide, h - 30, `${r.space} ${r.role}: ${what}`, kids);
    const waves = Math.max(1, ...wires.map((x) => x.wave + 1));
    return { r, node, draw(t) {
      const e = span(t, 0, 0.8) * waves, hit = new Set();
      for (const x of wires) {
        const p = ease(clamp(e - x.wave, 0, 1));
        if (p >= 1 && (far || Math.ceil(e) - 1 === x.wave || e >= waves)) for (const k of x.own) hit.add(k);
        if (p === x.was) continue;
        x.was = p;
        x.line.setAttribute("x2", (x.x0 + (x.mid - x.x0) * p).toFixed(1));
        x.line.setAttribute("y2", (yl + 24 + (yb - yl - 24) * p).toFixed(1));
        on(x.line, "on", p > 0);
        on(laneRects[x.i], "full", p > 0 && p < 1); on(laneRects[x.i], "half", !(p > 0 && p < 1));
      }
      tRects.forEach((q, k) => { on(q, "full", hit.has(k)); on(q, "cell", !hit.has(k)); });
      put(counter, t >= 0.8 ? what : far ? `${U.plural(hit.size, unit)} so far` : `group ${Math.min(waves, Math.floor(e) + 1)} of ${waves}`);
    } };
  });
  let now = null;
  return {
    node: host, update(lit, t) {
      const v = views.find((x) => x.r.lit === lit) || views[0];
      if (v !== now) { now = v; host.replaceChildren(v.node); }
      v.draw(v.r.lit === lit ? t : lit === "" ? 1 : 0);
    },
  };
};

drawings.tiles = (scene, w, h) => {
  const p = scene.picture, wide = Math.max(260, w - 32), n = p.tiles.length;
  const cols = wide < 620 ? Math.min(2, n) : n, rowsN = Math.ceil(n / cols), pw = wide / cols - 20, ph = (h - 40) / rowsN - 64;
  const roles = ["whole", "cta", n > 3 ? (p.instruction.startsWith("fma") ? "thread" : "warp") : "instruction", "instruction"];
  const kids = [], panels = [];
  p.tiles.forEach((t, i) => {
    const x = i % cols * (pw + 20), y = Math.floor(i / cols) * (ph + 64) + 40, s = Math.min(pw / t.n, ph / t.m);
    // A product much longer than wide is drawn no thinner than can be seen; its label has the figures.
    const bw = clamp(t.n * s, 26, pw), bh = clamp(t.m * s, 26, ph), inner = p.tiles[i + 1];
    const frame = box(x + 1, y, bw, bh, "cell"), title = text(x, y - 22, t.name, "b");
    kids.push(title, text(x, y - 7, `${t.m} x ${t.n}, sums of ${t.k}`, "m"), frame);
    if (!inner) { panels.push({ frame, count: 0 }); return; }
    const rows = Math.max(1, Math.ceil(t.m / inner.m)), columns = Math.max(1, Math.ceil(t.n / inner.n));
    if (rows <= 64 && columns <= 64) {
      let d = "";
      for (let r = 1; r < rows; r++) d += `M${x + 1} ${(y + bh * r / rows).toFixed(1)}h${bw}`;
      for (let c = 1; c < columns; c++) d += `M${(x + 1 + bw * c / columns).toFixed(1)} ${y}v${bh}`;
      kids.push(sv("path", { class: "thin", d }));
    }
    const mark = box(x + 1, y, Math.max(4, bw / columns), Math.max(4, bh / rows), "now");
    kids.push(mark, text(x, y + bh + 16, `${rows} x ${columns} of the next`, "m"));
    panels.push({ frame, mark, rows, columns, x: x + 1, y, bw, bh, count: rows * columns, was: -1 });
  });
  const label = p.tiles.map((t) => `${t.name} ${t.m} x ${t.n} x ${t.k}`).join(", ") + "; " + p.instruction;
  return {
    node: el("div", { class: "pad" }, svg(wide, h - 34, label, kids)), update(lit, t) {
      panels.forEach((q, i) => {
        on(q.frame, "frame", roles[i] === lit || (i === n - 1 && lit === "instruction"));
        if (!q.count) return;
        // The next one's mark goes over all of its places while the caption speaks of it.
        const moves = roles[i + 1] === lit || (i === n - 2 && lit === "instruction");
        const k = moves ? Math.min(q.count - 1, Math.floor(span(t, 0, 0.9) * q.count)) : 0;
        if (k === q.was) return;
        q.was = k;
        q.mark.setAttribute("x", (q.x + k % q.columns * q.bw / q.columns).toFixed(1));
        q.mark.setAttribute("y", (q.y + Math.floor(k / q.columns) * q.bh / q.rows).toFixed(1));
      });
    },
  };
};

drawings.stalls = (scene, w) => {
  const p = scene.picture, most = Math.max(1, ...p.rows.map((r) => r.cycles)), total = p.rows.reduce((a, r) => a + r.cycles, 0) || 1;
  const rows = p.rows.map((r, k) => {
    const i = el("i"); i.style.width = clamp(r.cycles / most * 100, 0.3, 100) + "%";
    return { i, k, node: el("div", { class: "bar" }, el("span", { class: "name" }, `${r.reason}, ${(r.cycles / total * 100).toFixed(1)}%`), el("span", { class: "val" }, U.count(r.cycles)), el("div", { class: "track" }, i)) };
  });
  const bars = el("div", { class: "bars" }, el("h3", {}, `cycles of ${U.plural(p.warps, "warp")} by what they did`), rows.map((r) => r.node));
  // One scheduler from its first cycle on: a row for each of its warps, and a hand that goes along.
  const wide = Math.max(240, w - 32), left = 64, all = p.scheduler.slice(0, 12), end = Math.max(1, ...all.map((x) => x.stretches.length ? x.stretches[x.stretches.length - 1][1] : 0));
  const until = Math.min(end, Math.max(400, end)), x = (c) => left + c / until * (wide - left - 4), kids = [text(0, 14, `one scheduler, its first ${U.count(until)} cycles; dark: issues, light: waits`, "m")];
  const says = all.map((row, i) => {
    const y = 24 + i * 22;
    kids.push(text(0, y + 13, `${row.cta}.${row.warp}`, "m"));
    let busy = "", waits = "";
    for (const [from, to, why] of row.stretches) {
      const d = `M${x(from).toFixed(1)} ${y + (why === 0 ? 0 : 6)}H${Math.max(x(to), x(from) + 0.6).toFixed(1)}v${why === 0 ? 18 : 6}H${x(from).toFixed(1)}z`;
      if (why === 0) busy += d; else waits += d;
    }
    kids.push(sv("path", { class: "wait", d: waits }), sv("path", { class: "busy", d: busy }));
    return row;
  });
  const hand = sv("line", { x1: left, x2: left, y1: 18, y2: 24 + all.length * 22, class: "hand" }), now = text(0, 44 + all.length * 22, "", "b");
  kids.push(hand, now);
  const chart = all.length ? svg(wide, 56 + all.length * 22, `What ${U.plural(all.length, "warp")} of one scheduler did over ${until} cycles`, kids) : null;
  return {
    node: el("div", { class: "pad" }, chart, bars), update(lit, t) {
      for (const r of rows) on(r.node, "lit", lit === "issued" ? r.k === 0 : lit === "waits" ? r.k === 1 : false);
      if (!chart) return;
      const c = (lit === "scheduler" ? span(t, 0, 0.95) : lit === "" || lit === "wait" ? 0 : 1) * until;
      hand.setAttribute("x1", x(c).toFixed(1)); hand.setAttribute("x2", x(c).toFixed(1));
      const doing = says.map((row) => { const s = row.stretches.find(([from, to]) => from <= c && c < to); return s ? `${row.cta}.${row.warp} ${p.rows[s[2]] ? p.rows[s[2]].reason : ""}` : null; }).filter(Boolean);
      put(now, short(`cycle ${Math.round(c)}: ` + (doing.length ? doing.join(", ") : "all done"), room(wide)));
    },
  };
};
