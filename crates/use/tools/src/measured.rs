//! What measurement files say of predictions, as a table.
use predict::{Errors, Report};
use report::{Align, Style, Table};
use std::fmt::Write;

/// How far predictions are from what was measured: a row for every source, GPU and operator.
pub fn table(found: &Report, style: Style) -> String {
    let percent = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:.1}%", 100.0 * v));
    let signed = |v: Option<f64>| v.map_or("-".into(), |v| format!("{:+.1}%", 100.0 * v));
    let heads = [
        "source", "gpu", "op", "rows", "covered", "mean", "median", "weighted", "bias", "rank",
    ];
    let columns: Vec<(&str, Align)> = heads
        .iter()
        .enumerate()
        .map(|(c, h)| (*h, if c < 3 { Align::Wrap } else { Align::Right }))
        .collect();
    let mut t = Table::new(&columns);
    let mut line = |source: &str, gpu: &str, op: &str, e: &Errors| {
        t.row(vec![
            source.to_string(),
            gpu.to_string(),
            op.to_string(),
            e.rows.to_string(),
            e.covered.to_string(),
            percent(e.mean_ape),
            percent(e.median_ape),
            percent(e.wape),
            signed(e.bias),
            e.spearman.map_or("-".into(), |v| format!("{v:.3}")),
        ]);
    };
    for g in &found.groups {
        line(&g.source, &g.gpu, &g.op, &g.errors);
    }
    line("all", "", "", &found.overall);
    let mut out = t.render(style);
    let said = "mean, median and weighted: how far predictions are off, as shares of what was measured (weighted: \
                by time); bias: with its sign; rank: how well they order the rows (1 is perfectly)";
    for l in report::units::wrapped(said, style.width) {
        let _ = writeln!(out, "{l}");
    }
    if !found.uncovered.is_empty() {
        let _ = writeln!(out, "\nnot covered:");
        for (why, n) in &found.uncovered {
            let _ = writeln!(out, "{n:>8}  {why}");
        }
    }
    out
}
