// Another run or machine beside this one, the differences first.
views.push(function against() {
  const O = D.against;
  if (!O) return;
  const tb = (s) => s.time_us, sumA = total, sumB = O.steps.reduce((a, s) => a + tb(s), 0);
  // By name; what is left by the most nodes in common.
  const left = new Map(O.steps.map((s, i) => [i, s])), byName = new Map(O.steps.map((s, i) => [s.name, i])), byNode = new Map(), rows = [];
  O.steps.forEach((s, i) => { for (const n of s.nodes) { if (!byNode.has(n)) byNode.set(n, []); byNode.get(n).push(i); } });
  const rest = [];
  for (const s of steps) { const i = byName.get(s.name); if (i !== undefined && left.has(i)) { rows.push([s, left.get(i)]); left.delete(i); } else rest.push(s); }
  for (const s of rest) {
    const votes = new Map();
    for (const n of s.nodes) for (const i of byNode.get(n) || []) if (left.has(i)) votes.set(i, (votes.get(i) || 0) + 1);
    const best = [...votes].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0];
    if (best) { rows.push([s, left.get(best[0])]); left.delete(best[0]); } else rows.push([s, null]);
  }
  for (const s of left.values()) rows.push([null, s]);
  const list = rows.map(([a, b]) => ({ a, b, ta: a ? time(a) : 0, tb: b ? tb(b) : 0 })).map((r) => ({ ...r, d: r.ta - r.tb })).sort((x, y) => Math.abs(y.d) - Math.abs(x.d));
  const all = list.reduce((a, r) => a + Math.abs(r.d), 0);
  let acc = 0, few = 0;
  for (const r of list) { if (acc >= all * 0.8) break; acc += Math.abs(r.d); few++; }
  const here = (measured ? "measured" : "predicted") + " on " + (D.device || D.machine), there = (O.measured ? "measured" : "predicted") + " on " + (O.device || O.machine);
  const ratio = sumA / sumB, sum = `The steps take ${U.us(sumA)} here (${here}) and ${U.us(sumB)} there (${O.model === D.model ? "" : O.model + " "}${there}): ${ratio >= 1 ? U.num(ratio) + " times as long here" : U.num(1 / ratio) + " times as long there"}. ${U.plural(few, "step")} of ${list.length} make four fifths of the difference; ${rows.filter((r) => !r[0] || !r[1]).length} exist on one side only.`;
  const most = Math.max(...list.map((r) => Math.abs(r.d)), 1e-12), body = el("tbody"), MOST = 30;
  let every = false;
  const more = el("button", { type: "button", onclick: () => { every = !every; lay(); } }, "");
  const head = ["nodes", "kind", "here", "there", "difference", "here ÷ there", "bound here", "bound there"];
  function lay() {
    body.replaceChildren(...(every ? list : list.slice(0, MOST)).map((r) => {
      const i = el("i"); i.style.width = (Math.abs(r.d) / most * 100).toFixed(1) + "%";
      const n = r.a ? label(r.a) : short(r.b.nodes[0] || r.b.name);
      return el("tr", {}, el("td", { class: "name" }, r.a ? el("button", { type: "button", class: "n", onclick: () => select(r.a.number, true, "time") }, n) : n), el("td", {}, (r.a || r.b).family),
        el("td", { class: "r" }, r.a ? U.us(r.ta) : "not here"), el("td", { class: "r" }, r.b ? U.us(r.tb) : "not there"),
        el("td", {}, el("span", { class: "bar", "aria-hidden": "true" }, i), (r.d > 0 ? "+" : r.d < 0 ? "−" : "") + U.us(Math.abs(r.d))), el("td", { class: "r" }, r.a && r.b && r.tb > 0 && r.ta > 0 ? (r.ta >= r.tb ? U.num(r.ta / r.tb) : "1/" + U.num(r.tb / r.ta)) : "-"), el("td", {}, r.a ? r.a.bound : "-"), el("td", {}, r.b ? r.b.bound : "-"));
    }));
    more.textContent = every ? `Only the ${MOST} largest` : `All ${list.length}`;
  }
  lay();
  section("against", "Against " + (O.label || O.model), sum, el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Differences" }, el("table", { class: "steps" }, el("thead", {}, el("tr", {}, head.map((h, i) => el("th", { scope: "col", class: [2, 3, 5].includes(i) ? "r" : null }, h)))), body)), list.length > MOST ? el("p", {}, more) : null);
});
