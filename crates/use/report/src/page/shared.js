"use strict";
// What every page of this program begins with: errors, nodes, numbers, and the drawer.

// What goes wrong is written into the document, where a test (or a curious reader) finds it.
const root = document.documentElement;
const began = performance.now();
const complain = (text) => { root.dataset.errors = (root.dataset.errors ? root.dataset.errors + "\n" : "") + text; };
addEventListener("error", (e) => complain(String(e.message)));
addEventListener("unhandledrejection", (e) => complain(String(e.reason)));
document.addEventListener("securitypolicyviolation", (e) => complain("blocked: " + e.violatedDirective));

const D = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
// Everything that is shown goes through text nodes: names in a model are text, whatever they look like.
function fill(node, attrs, kids) {
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith("on")) node.addEventListener(k.slice(2), v);
    else node.setAttribute(k, v === true ? "" : v);
  }
  for (const c of kids.flat()) if (c !== null && c !== undefined) node.append(c);
  return node;
}
const el = (tag, attrs, ...kids) => fill(document.createElement(tag), attrs, kids);
const sv = (tag, attrs, ...kids) => fill(document.createElementNS(SVG, tag), attrs, kids);

// Numbers with units, as the command line prints them.
function digits(v) { const a = Math.abs(v); return a >= 99.95 || a === 0 ? v.toFixed(0) : a >= 9.995 ? v.toFixed(1) : v.toFixed(2); }
function scaled(v, step, names) {
  if (!Number.isFinite(v)) return "-";
  let i = 0;
  while (Math.abs(v) >= step * 0.9995 && i + 1 < names.length) { v /= step; i++; }
  return ((i === 0 && Number.isInteger(v) ? String(v) : digits(v)) + " " + names[i]).trim();
}
const U = {
  us: (v) => v === 0 ? "0" : scaled(v * 1e3, 1e3, ["ns", "us", "ms", "s"]),
  bytes: (v) => scaled(v, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]),
  rate: (v) => scaled(v, 1e3, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]),
  flop: (v) => scaled(v, 1e3, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]),
  flops: (v) => scaled(v, 1e3, ["FLOPS", "kFLOPS", "MFLOPS", "GFLOPS", "TFLOPS", "PFLOPS"]),
  ops: (v) => scaled(v, 1e3, ["op/s", "kop/s", "Mop/s", "Gop/s", "Top/s", "Pop/s"]),
  count: (v) => scaled(v, 1e3, ["", "k", "M", "G", "T", "P"]),
  pct: (v) => Number.isFinite(v) ? (v * 100).toFixed(1) + "%" : "-",
  signed: (v) => !Number.isFinite(v) ? "-" : Math.abs(v) >= 9.995 ? (v + 1).toFixed(0) + "×" : (v > 0 ? "+" : v < 0 ? "−" : "") + Math.abs(v * 100).toFixed(0) + "%",
  num: (v) => Number.isFinite(v) ? digits(v) : "-",
  plural: (n, w) => n + " " + w + (n === 1 ? "" : "s"),
};

// The drawer lies over the page, so that opening it moves nothing.
const drawer = byId("drawer");
let opener = null;
function openDrawer(title, ...body) {
  if (drawer.hidden) opener = document.activeElement;
  byId("drawer-title").textContent = title;
  byId("drawer-body").replaceChildren(...body.flat().filter(Boolean));
  drawer.hidden = false;
  drawer.scrollTop = 0;
  drawer.focus({ preventScroll: true });
}
function closeDrawer() {
  if (drawer.hidden) return;
  drawer.hidden = true;
  if (opener && opener.isConnected) opener.focus({ preventScroll: true });
}
byId("drawer-close").addEventListener("click", closeDrawer);
