use crate::MemoryView;
use crate::units;
use serde::Serialize;

/// A branch or loop body of control flow, planned on its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BodyView {
    /// Model node that it belongs to.
    pub node: String,
    /// `then`, `else` or `body`.
    pub which: String,
    /// How often it runs in a request, where that is known: 1 for branches, a constant trip count
    /// for loops.
    pub times: Option<u64>,
    /// Predicted time of one run, microseconds, bodies inside it included; none where its sizes are
    /// known only while a request runs.
    pub predicted_us: Option<f64>,
    /// Memory it takes.
    pub memory: Option<MemoryView>,
}

/// Predicted microseconds that bodies add to a request: the larger branch of each `If`, a loop's
/// body as often as it runs (once where that is not known).
pub fn bodies_us(bodies: &[BodyView]) -> f64 {
    let mut sum = 0.0;
    let mut i = 0;
    while i < bodies.len() {
        let b = &bodies[i];
        let one = b.predicted_us.unwrap_or(0.0);
        match bodies.get(i + 1) {
            Some(e) if b.which == "then" && e.which == "else" => {
                sum += one.max(e.predicted_us.unwrap_or(0.0));
                i += 2;
            }
            _ => {
                sum += one * b.times.unwrap_or(1) as f64;
                i += 1;
            }
        }
    }
    sum
}

/// What the prediction takes for granted about control flow, a line each.
pub(crate) fn bodies_text(bodies: &[BodyView]) -> Vec<String> {
    let time = |b: &BodyView| match b.predicted_us {
        Some(us) => units::seconds(us * 1e-6),
        None => "unknown until its sizes are known".into(),
    };
    let mut lines = Vec::new();
    let mut i = 0;
    while i < bodies.len() {
        let b = &bodies[i];
        match bodies.get(i + 1) {
            Some(e) if b.which == "then" && e.which == "else" => {
                let larger = if e.predicted_us > b.predicted_us {
                    "else"
                } else {
                    "then"
                };
                lines.push(format!(
                    "if {}: then {}, else {}; the larger ({larger}) is counted",
                    b.node,
                    time(b),
                    time(e)
                ));
                i += 2;
            }
            _ => {
                lines.push(match b.times {
                    Some(n) => format!("loop {}: {} each time, {n} times", b.node, time(b)),
                    None => format!(
                        "loop {}: {} each time; how often is known only when it runs, counted once",
                        b.node,
                        time(b)
                    ),
                });
                i += 1;
            }
        }
    }
    lines
}
