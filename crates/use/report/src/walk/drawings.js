// Boxes, bars and texts. A drawing's function is given the role that the caption speaks of, the progress of
// the caption from 0 to 1, and its number.
drawings.nodes = (scene) => {
  const p = scene.picture;
  const value = (v) => el("div", { class: "tile" }, el("b", {}, v.name), el("span", {}, `${v.kind}, ${v.dtype}, ${U.bytes(v.bytes)}`));
  const reads = p.values.filter((v) => !v.written).map(value), writes = p.values.filter((v) => v.written).map(value);
  const nodes = p.nodes.map((n) => el("div", { class: "tile" }, el("b", {}, n.op || "?"), el("span", {}, n.name)));
  const decisions = p.decisions.map((d) => el("li", {}, el("b", {}, `${d.subject}: ${d.choice}. `), d.reason));
  const list = decisions.length ? el("div", { class: "list" }, el("h3", {}, "What was fused and what was not"), el("ul", {}, decisions)) : null;
  const node = el("div", { class: "pad" },
    el("div", { class: "flow" },
      el("div", {}, el("h3", {}, "reads"), reads),
      el("div", { class: "mid" }, el("h3", {}, nodes.length > 1 ? "one step" : "a step"), el("div", { class: "group" }, nodes.length ? nodes : "moves data")),
      el("div", {}, el("h3", {}, "writes"), writes)), list);
  return {
    node, update(lit, t) {
      nodes.forEach((n, i) => on(n, "lit", lit === "first" ? i === 0 : lit === "nodes" && span(t, 0, 0.7) * nodes.length > i));
      reads.forEach((n, i) => on(n, "lit", lit === "values" && span(t, 0, 0.4) * reads.length > i));
      writes.forEach((n, i) => on(n, "lit", lit === "values" && span(t, 0.4, 0.8) * writes.length > i));
      if (list) on(list, "lit", lit === "decisions");
    },
  };
};

function barList(title, bars, most) {
  const rows = bars.map((b) => {
    const fillIn = el("i");
    fillIn.style.width = clamp(b.us / most * 100, 0.4, 100) + "%";
    return { b, fillIn, node: el("div", { class: "bar" }, el("span", { class: "name" }, b.name), el("span", { class: "val" }, U.us(b.us)), el("div", { class: "track" }, fillIn)) };
  });
  return { rows, node: el("div", { class: "bars" }, title ? el("h3", {}, title) : null, rows.map((r) => r.node)) };
}
const longest = (bars) => Math.max(1e-9, ...bars.map((b) => b.us));
/** Bars of the caption's role grow while it is told; the others stand. */
function growing(lists) {
  return (lit, t) => {
    for (const { b, fillIn, node } of lists.flatMap((l) => l.rows)) {
      const own = lit !== "" && b.role === lit;
      on(node, "lit", own);
      fillIn.style.transform = own ? `scaleX(${ease(span(t, 0, 0.6)).toFixed(4)})` : "none";
    }
  };
}
drawings.bars = (scene) => {
  const p = scene.picture;
  const lists = [barList(p.title, p.bars, longest(p.bars))];
  if (p.more.length) lists.push(barList(p.more_title, p.more, longest(p.more)));
  return { node: el("div", { class: "pad" }, lists.map((l) => l.node)), update: growing(lists) };
};

drawings.bill = (scene, w) => {
  const p = scene.picture, wide = Math.max(200, w - 40), total = Math.max(p.predicted_us, p.measured_us || 0, 1e-9);
  const scale = wide / total;
  let x = 0;
  const parts = p.parts.map((b) => { const at = x; x += b.us * scale; return { b, at, width: b.us * scale, rect: box(at, 26, b.us * scale, 34, b.role === "busy" ? "full" : b.role === "latency" ? "half" : "cell") }; });
  const strip = svg(wide, p.measured_us === null ? 70 : 124, `Predicted ${U.us(p.predicted_us)}: ` + p.parts.map((b) => `${b.name} ${U.us(b.us)}`).join(", "),
    text(0, 16, `predicted ${U.us(p.predicted_us)}`, "b"), parts.map((q) => q.rect),
    p.measured_us === null ? null : [text(0, 84, `measured ${U.us(p.measured_us)}`, "b"), box(0, 92, p.measured_us * scale, 26, "full")]);
  const lists = [barList("The prediction's parts", p.parts, longest(p.parts)), barList("What each unit and level would take alone; these overlap", p.alone, longest(p.alone))];
  const grow = growing(lists);
  return {
    node: el("div", { class: "pad" }, strip, lists.map((l) => l.node)), update(lit, t) {
      grow(lit === "alone" ? "" : lit, t);
      if (lit === "alone") for (const r of lists[1].rows) on(r.node, "lit", r.b.us >= longest(p.alone));
      const shown = lit === "parts" ? ease(span(t, 0, 0.8)) * wide : wide;
      for (const q of parts) q.rect.setAttribute("width", clamp(shown - q.at, 0, q.width).toFixed(1));
    },
  };
};

drawings.code = (scene) => {
  const p = scene.picture;
  const panes = p.panes.map((q) => {
    const lines = q.lines.map((l) => el("div", { "data-n": l.number }, l.text || " "));
    // Lines in blocks that a browser lays out only when they are seen.
    const wraps = q.language === "tile program", blocks = [], BLOCK = 40;
    for (let i = 0; i < lines.length; i += BLOCK) {
      const block = el("section", {}, lines.slice(i, i + BLOCK));
      if (!wraps) { block.style.height = Math.min(BLOCK, lines.length - i) * 18 + "px"; block.style.width = Math.max(...q.lines.map((l) => l.text.length)) + 8 + "ch"; }
      blocks.push(block);
    }
    const pre = el("pre", { tabindex: 0, "aria-label": q.language }, blocks);
    const more = q.of - q.lines.length;
    const heading = `${q.language}, ${U.plural(q.of, "line")}` + (more > 0 ? `; ${q.lines.length} of them shown` : "");
    return { q, lines, pre, node: el("div", { class: "pane" + (wraps ? " wrap" : "") }, el("h3", {}, heading), pre) };
  });
  const node = el("div", { class: "panes" }, panes.map((q) => q.node), panes.length ? null : el("p", { class: "note" }, p.note));
  let was = null;
  return {
    node, update(lit) {
      if (lit === was) return;
      was = lit;
      for (const { q, lines, pre } of panes) {
        let first = -1, best = -1, most = 0;
        q.lines.forEach((l, i) => { const own = lit !== "" && l.role === lit; on(lines[i], "lit", own); if (own && first < 0) first = i; });
        // Where most of them stand together.
        q.lines.forEach((l, i) => { if (l.role === lit && lit !== "") { let n = 0; for (let j = i; j < Math.min(i + 12, q.lines.length); j++) if (q.lines[j].role === lit) n++; if (n > most) { most = n; best = i; } } });
        const to = best >= 0 ? best : first;
        if (to >= 0) pre.scrollTop = Math.max(0, lines[to].getBoundingClientRect().top - pre.getBoundingClientRect().top + pre.scrollTop - 60);
        else if (lit === "") pre.scrollTop = 0;
      }
    },
  };
};

drawings.memory = (scene, w) => {
  const p = scene.picture, wide = Math.max(220, w - 32), parts = [], tiles = [];
  p.places.forEach((place, i) => {
    const own = p.blocks.filter((b) => b.place === i);
    if (!own.length) return;
    const arena = own.filter((b) => b.kind === "arena"), beside = own.filter((b) => b.kind !== "arena");
    parts.push(el("h3", {}, `${place.name}, ${U.bytes(place.capacity)}`));
    if (place.arena > 0) {
      const kids = [box(0.5, 22.5, wide - 1, 52, "cell"), text(0, 14, `arena of a request, ${U.bytes(place.arena)}`, "m")];
      for (const b of arena) {
        const x = b.offset / place.arena * wide, bw = Math.max(3, b.bytes / place.arena * wide);
        const rect = box(x + 1, 26, Math.min(bw, wide - x) - 2, 45, b.role === "read" ? "half" : b.role === "write" ? "full" : "thin");
        kids.push(rect);
        if (bw > 60) kids.push(text(x + 8, 46, short(b.name, room(bw - 16)), b.role === "write" ? "in" : null), text(x + 8, 62, short(`${b.role || "other"}, ${U.bytes(b.bytes)}`, room(bw - 16)), b.role === "write" ? "in" : null));
        kids.push(text(x, 88, `+${U.bytes(b.offset)}`, "m"));
        tiles.push({ b, rect });
      }
      parts.push(svg(wide, 96, `Arena of ${U.bytes(place.arena)}: ` + arena.map((b) => `${b.name} at ${b.offset}, ${U.bytes(b.bytes)}`).join("; "), kids));
    }
    for (const b of beside) {
      const tile = el("div", { class: "tile" }, el("b", {}, b.name), el("span", {}, `${b.kind}, ${U.bytes(b.bytes)}` + (b.role ? `, ${b.role === "read" ? "read" : "written"}` : "")));
      parts.push(tile);
      tiles.push({ b, tile });
    }
  });
  return {
    node: el("div", { class: "pad" }, parts), update(lit, t) {
      for (const { b, rect, tile } of tiles) {
        const own = lit === "arena" ? b.kind === "arena" : lit === "beside" ? b.role === "" : lit !== "" && b.role === lit;
        if (tile) on(tile, "lit", own);
        // Lit by its rim, which pulses once.
        if (rect) rect.style.strokeWidth = own ? (2 + 2 * Math.sin(Math.PI * span(t, 0, 0.8))).toFixed(2) : "1";
      }
    },
  };
};

drawings.levels = (scene, w, h) => {
  const ls = scene.picture.levels, wide = Math.max(240, w - 2), n = ls.length + 1;
  const gap = Math.max(52, Math.min(96, (h - 40) / n)), top = 12, boxH = 34, mid = wide / 2;
  const most = Math.max(1, ...ls.map((l) => Math.max(l.loaded, l.stored)));
  const kids = [], dots = [], rects = [];
  const row = (i, name, note) => { const r = box(16, top + i * gap, wide - 32, boxH, "cell"); rects.push(r); kids.push(r, text(28, top + i * gap + 22, name, "b"), text(wide - 28, top + i * gap + 22, note, "m", "end")); };
  row(0, "registers", "where the arithmetic is");
  const worst = ls.reduce((a, l, i) => l.us > ls[a].us ? i : a, 0);
  ls.forEach((l, i) => {
    row(i + 1, l.level, `${U.bytes(l.capacity)}, alone ${U.us(l.us)}`);
    const y0 = top + i * gap + boxH, y1 = top + (i + 1) * gap, lw = 2 + 12 * l.loaded / most, sw = 2 + 12 * l.stored / most;
    const up = sv("line", { x1: mid - 70, x2: mid - 70, y1, y2: y0, class: "wire", "stroke-width": 1 }), down = sv("line", { x1: mid + 70, x2: mid + 70, y1: y0, y2: y1, class: "wire" });
    up.style.strokeWidth = lw; down.style.strokeWidth = sw;
    kids.push(up, down, text(mid - 84, (y0 + y1) / 2 + 4, `${U.bytes(l.loaded)} up`, null, "end"), text(mid + 84, (y0 + y1) / 2 + 4, `${U.bytes(l.stored)} down`));
    const dot = (x, from, to) => { const c = sv("circle", { cx: x, cy: from, r: 5, class: "dot" }); dots.push({ c, from, to, i }); kids.push(c); };
    if (l.loaded > 0) dot(mid - 70, y1, y0);
    if (l.stored > 0) dot(mid + 70, y0, y1);
  });
  return {
    node: svg(wide, top + ls.length * gap + boxH + 10, ls.map((l) => `${l.level}: ${U.bytes(l.loaded)} loaded, ${U.bytes(l.stored)} stored`).join("; "), kids), update(lit, t) {
      rects.forEach((r, i) => on(r, "now", lit === "slow" && i === worst + 1));
      for (const d of dots) {
        const back = d.to > d.from, moves = lit === "levels" || (lit === "store" && back);
        // Loads come nearer level by level from afar; stores leave the other way.
        const m = ls.length, k = back ? d.i : m - 1 - d.i;
        d.c.setAttribute("cy", (d.from + (d.to - d.from) * (moves ? ease(span(t, k / m * 0.85, (k + 1) / m * 0.85)) : 0)).toFixed(1));
      }
    },
  };
};

drawings.hiding = (scene) => {
  const ls = scene.picture.levels;
  const rows = ls.map(([name, need, have]) => {
    const most = Math.max(need, have, 1), a = el("i"), b = el("i");
    a.style.width = need / most * 100 + "%"; b.style.width = have / most * 100 + "%";
    const line = (what, v, i) => el("div", { class: "bar" }, el("span", { class: "name" }, what), el("span", { class: "val" }, U.bytes(v)), el("div", { class: "track" }, i));
    const needs = line("must be under way for an SM", need, a), has = line("under way with one load a lane", have, b);
    return { a, b, needs, has, node: el("div", { class: "bars" }, el("h3", {}, name), needs, has) };
  });
  const last = rows.length - 1;
  return {
    node: el("div", { class: "pad" }, rows.map((r) => r.node)), update(lit, t) {
      rows.forEach((r, i) => {
        on(r.needs, "lit", lit === "need" && i === last); on(r.has, "lit", lit === "have" && i === last);
        r.a.style.transform = lit === "need" ? `scaleX(${ease(span(t, 0, 0.6)).toFixed(4)})` : "none";
        r.b.style.transform = lit === "have" ? `scaleX(${ease(span(t, 0, 0.6)).toFixed(4)})` : lit === "need" ? "scaleX(0)" : "none";
      });
    },
  };
};
drawings.none = () => ({ node: el("div"), update() {} });
