const clamp = (v, lo, hi) => Math.max(lo, Math.min(hi, v));
// Motion begins and ends gently.
const ease = (p) => p < 0.5 ? 2 * p * p : 1 - 2 * (1 - p) * (1 - p);
/** The part of `p` between `from` and `to`, as 0 to 1. */
const span = (p, from, to) => clamp((p - from) / Math.max(1e-9, to - from), 0, 1);
const reduced = matchMedia("(prefers-reduced-motion: reduce)");

/** A figure: its text, and at a click how it comes about. */
const figure = (f) => el("button", {
  type: "button", class: "n", "aria-haspopup": "dialog", "data-key": f.key,
  onclick: () => openDrawer(f.name, el("p", { class: "v" }, f.text),
    f.formula ? [el("h3", {}, "Formula"), el("code", { class: "formula" }, f.formula)] : null,
    f.source ? [el("h3", {}, "Source"), el("p", { class: "src" }, f.source)] : null),
}, f.text);

/** A caption's parts: text, and figures where the caption names them. */
function said(scene, text, make) {
  const out = [];
  let rest = text;
  for (;;) {
    const open = rest.indexOf("{");
    if (open < 0) break;
    const close = rest.indexOf("}", open);
    const f = close > 0 ? scene.figures.find((x) => x.key === rest.slice(open + 1, close)) : undefined;
    if (f) { out.push(rest.slice(0, open), make(f)); rest = rest.slice(close + 1); }
    else { out.push(rest.slice(0, open + 1)); rest = rest.slice(open + 1); }
  }
  out.push(rest);
  return out.filter((x) => x !== "");
}
const plain = (scene, text) => said(scene, text, (f) => f.text).join("");
/** A long name keeps its beginning and its end. */
const short = (text, n) => text.length <= n ? text : text.slice(0, Math.ceil((n - 1) / 2)) + "…" + text.slice(text.length - Math.floor((n - 1) / 2));
/** Characters of a 12 px text that fit into so many pixels. */
const room = (px) => Math.max(3, Math.floor(px / 6.6));
const text = (x, y, s, cls, anchor) => sv("text", { x, y, class: cls || null, "text-anchor": anchor || null }, s);
const box = (x, y, w, h, cls) => sv("rect", { x, y, width: Math.max(0, w), height: Math.max(0, h), class: cls });
const svg = (w, h, label, ...kids) => sv("svg", { width: w, height: h, viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label }, ...kids);
/** Sets a class only where it changes. */
const on = (node, cls, yes) => { if (node.classList.contains(cls) !== !!yes) node.classList.toggle(cls, !!yes); };
const put = (node, s) => { if (node.textContent !== s) node.textContent = s; };

// Drawings by kind: each takes (scene, width, height) and gives the node and a function of the beat's role,
// the progress within the beat and the beat's number.
const drawings = {};
