//! The tensor-core calculator's report.
use super::because;
use crate::table::{Align, Style, Table};
use crate::units;
use machine::Machine;
use machine::calc::{self, Product};
use serde::Serialize;
use std::fmt::Write;

/// One way onto the matrix units.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorWayView {
    /// Format of the operands.
    pub dtype: String,
    /// Format of the sums.
    pub accumulator: String,
    /// One instruction's m, n, k.
    pub tile: [u64; 3],
    /// Extents in whole tiles.
    pub padded: [u64; 3],
    /// Useful share of the work.
    pub useful: f64,
    /// Seconds at full rate.
    pub seconds: f64,
    /// Operations per second.
    pub rate: f64,
    /// Whether the operands are rounded to another format first.
    pub rounds: bool,
}

/// Whether a product uses the matrix units.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorView {
    /// Machine name.
    pub machine: String,
    /// m, n, k.
    pub shape: [u64; 3],
    /// Format of the operands.
    pub dtype: String,
    /// Whether it uses them as it stands.
    pub uses: bool,
    /// The ways, those of its own format first.
    pub ways: Vec<TensorWayView>,
    /// Seconds on the vector units.
    pub vector_s: Option<f64>,
    /// How much faster the first way is than the vector units.
    pub speedup: Option<f64>,
    /// The reasons.
    pub explanation: Vec<String>,
}

impl TensorView {
    /// Judges a product on a machine.
    pub fn new(m: &Machine, p: &Product) -> TensorView {
        let fit = calc::tensor_fit(m, p);
        let ways: Vec<TensorWayView> = fit
            .ways
            .iter()
            .map(|w| TensorWayView {
                dtype: w.dtype.to_string(),
                accumulator: w.accumulator.to_string(),
                tile: [w.tile.0, w.tile.1, w.tile.2],
                padded: [w.padded.0, w.padded.1, w.padded.2],
                useful: w.useful,
                seconds: w.seconds,
                rate: w.rate,
                rounds: w.rounds,
            })
            .collect();
        let speedup = match (ways.first(), fit.vector_s) {
            (Some(w), Some(v)) if w.seconds > 0.0 => Some(v / w.seconds),
            _ => None,
        };
        TensorView {
            machine: m.name.clone(),
            shape: [p.m, p.n, p.k],
            dtype: p.dtype.to_string(),
            uses: fit.uses,
            ways,
            vector_s: fit.vector_s,
            speedup,
            explanation: fit.reasons,
        }
    }

    /// The table and the reasons.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        let [m, n, k] = self.shape;
        let _ = writeln!(
            out,
            "{}",
            style.heading(&format!(
                "{}: C[{m},{n}] = A[{m},{k}] B[{k},{n}] in {}",
                self.machine, self.dtype
            ))
        );
        let _ = writeln!(
            out,
            "  {}\n",
            if self.uses {
                "uses the matrix units"
            } else {
                "does not use the matrix units as it stands"
            }
        );
        let mut t = Table::new(&[
            ("  units", Align::Left),
            ("format", Align::Left),
            ("tile", Align::Right),
            ("padded to", Align::Right),
            ("useful", Align::Right),
            ("rate", Align::Right),
            ("time at it", Align::Right),
        ]);
        let by = |v: &[u64; 3]| format!("{}x{}x{}", v[0], v[1], v[2]);
        for w in &self.ways {
            t.row(vec![
                if w.rounds {
                    "  matrix, rounded"
                } else {
                    "  matrix"
                }
                .into(),
                format!("{} -> {}", w.dtype, w.accumulator),
                by(&w.tile),
                by(&w.padded),
                units::percent(w.useful),
                units::flop_rate(w.rate),
                units::seconds(w.seconds),
            ]);
        }
        if let Some(v) = self.vector_s {
            let ops = 2.0 * self.shape.iter().map(|v| *v as f64).product::<f64>();
            t.row(vec![
                "  vector".into(),
                self.dtype.clone(),
                "-".into(),
                "-".into(),
                units::percent(1.0),
                if v > 0.0 {
                    units::flop_rate(ops / v)
                } else {
                    "-".into()
                },
                units::seconds(v),
            ]);
        }
        // No unit at all takes the format.
        if !t.is_empty() {
            let _ = writeln!(out, "{}", t.render(style));
        }
        let _ = writeln!(out, "{}", style.heading("why"));
        out.push_str(&because(&self.explanation, style));
        out
    }
}
