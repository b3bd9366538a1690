// Head, differences, then the rest in the order in which they were written.
const first = views.filter((v) => v.name === "head" || v.name === "against");
for (const v of [...first, ...views.filter((v) => !first.includes(v))]) {
  try { v(); } catch (e) { complain(v.name + ": " + (e && e.stack || e)); }
}
byId("foot").textContent = `Made by ${D.tool}. The data of this page is in it as JSON, ${D.schema} ${D.version}; nothing is fetched.`;
if (location.hash.length > 1) { const t = byId(decodeURIComponent(location.hash.slice(1))); if (t) t.scrollIntoView({ behavior: "instant" }); }
root.dataset.ready = (performance.now() - began).toFixed(0);
