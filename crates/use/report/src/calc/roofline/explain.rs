//! The sentences beside a roofline.

use super::tables::intensity;
use super::{IdealOp, PointView, RooflineView};
use crate::units;
use layout::Arrange;

/// The level that bounds, if one does.
fn bounding(p: &PointView) -> Option<&super::LevelPointView> {
    let name = p.bound.strip_prefix("memory:")?;
    p.levels.iter().find(|l| l.level == name)
}

/// What an operator's roofline says.
pub fn of_op(v: &RooflineView, op: &IdealOp) -> Vec<String> {
    let mut out = Vec::new();
    let s = &v.summary;
    let Some(p) = v.points.first() else {
        return out;
    };
    let Some(memory) = p.memory() else {
        return out;
    };
    let peak = v.roofs.iter().find(|r| r.level == memory.level);
    let peak = peak.map_or(0.0, |r| r.peak);
    let rate = if p.compute_s > 0.0 {
        p.ops / p.compute_s
    } else {
        0.0
    };
    out.push(format!(
        "Intensity: {} with every operand moved once ({}) are {} operations for each byte.",
        units::flop(s.ops),
        units::bytes(s.bytes),
        intensity(s.intensity)
    ));
    out.push(format!(
        "Ridge point: {} on {} divided by {} of {} is {} operations for each byte; below it bytes are what takes the time, above it arithmetic.",
        units::flop_rate(rate),
        p.unit,
        units::byte_rate(peak),
        memory.level,
        units::number(memory.ridge)
    ));
    out.push(longer(s.compute_s, s.memory_s));
    if op.contracts && op.ideal.ops > 0.0 {
        out.push(
            "A product has more arithmetic for each byte the larger it is (n/6 FLOP/byte for n x n in f32): only large ones can keep the units busy."
                .into(),
        );
    }
    let own: Vec<&PointView> = v
        .points
        .iter()
        .filter(|p| p.predicted_s.is_some())
        .collect();
    for p in &own {
        of_kernel(&mut out, p, s.bytes.max(1.0), op.contracts, own.len() == 1);
    }
    out
}

/// Which of arithmetic and memory takes longer, and what follows from it.
fn longer(compute_s: f64, memory_s: f64) -> String {
    let (long, short) = (compute_s.max(memory_s), compute_s.min(memory_s));
    let times = if short > 0.0 {
        format!(", {} times as long", units::number(long / short))
    } else {
        String::new()
    };
    if memory_s > compute_s {
        format!(
            "Memory takes {} and arithmetic {}{times}: faster units would gain nothing. Fewer bytes would: fuse it with its neighbours so that operands stay on the chip, or store them narrower.",
            units::seconds(memory_s),
            units::seconds(compute_s)
        )
    } else {
        format!(
            "Arithmetic takes {} and memory {}{times}: more bandwidth would gain nothing. A narrower format on faster units, or fewer operations, would.",
            units::seconds(compute_s),
            units::seconds(memory_s)
        )
    }
}

/// What a kernel of ours does at the levels; `unique` are the operands' bytes, each once, and `alone` says that it is all
/// that the operator takes.
fn of_kernel(out: &mut Vec<String>, p: &PointView, unique: f64, contracts: bool, alone: bool) {
    let mut parts: Vec<String> = Vec::new();
    for l in p.levels.iter().filter(|l| l.counts && l.bytes > 0.0) {
        parts.push(format!(
            "{} {} times",
            l.level,
            units::number(l.bytes / unique)
        ));
    }
    if alone && !parts.is_empty() {
        let why = match contracts {
            true => {
                "Our kernel's tiles are fetched again for every tile of the other operand, so the operands' bytes cross"
            }
            false => "In our kernel the operands' bytes cross",
        };
        out.push(format!(
            "{why} {}{}",
            parts.join(", "),
            match contracts {
                true => ": nearer levels carry more, and have to be faster.",
                false => ".",
            }
        ));
        if let (Some(at), Some(memory)) = (p.reached(), p.memory())
            && at.level != memory.level
        {
            out.push(format!(
                "What it touches fits {}, where the next request finds it again: of requests one after the other {} sees nothing.",
                at.level, memory.level
            ));
        }
    }
    if let Some(l) = bounding(p) {
        out.push(format!(
            "Its roof is {}: {} at {} operations for each byte{}.",
            l.level,
            units::bytes(l.bytes),
            intensity(l.intensity),
            if contracts {
                "; larger tiles would ask less of it"
            } else {
                ""
            }
        ));
    }
    if let (Some(share), Some(bound)) = (p.share(), &p.predicted_bound) {
        out.push(format!(
            "Predicted are {}, of which the roof is {}: the rest is what real kernels lose, efficiency below peak, waves that do not fill the machine, first accesses and fixed costs. The prediction is bound by {bound}.",
            units::seconds(p.predicted_s.unwrap_or(0.0)),
            units::percent(share)
        ));
    }
}

/// What a model's roofline says.
pub fn of_model(v: &RooflineView) -> Vec<String> {
    let mut out = vec![
        "A step stands left of a level's ridge point when its bytes at that level take longer than its arithmetic. Its roof is the longest of arithmetic and of every level's bytes: a step can be bound by L2 though memory is idle."
            .to_string(),
    ];
    let total = v.summary.time_s;
    let mut bounds: Vec<(&str, f64, usize)> = Vec::new();
    for p in &v.points {
        match bounds.iter_mut().find(|b| b.0 == p.bound) {
            Some(b) => (b.1, b.2) = (b.1 + p.roof_s, b.2 + 1),
            None => bounds.push((&p.bound, p.roof_s, 1)),
        }
    }
    bounds.arrange_by(|a, b| b.1.total_cmp(&a.1));
    let list: Vec<String> = bounds
        .iter()
        .filter(|b| b.1 > 0.0)
        .take(4)
        .map(|b| {
            format!(
                "{} {} in {}",
                b.0,
                units::percent(b.1 / total.max(f64::MIN_POSITIVE)),
                units::plural(b.2 as u64, "step")
            )
        })
        .collect();
    if !list.is_empty() {
        out.push(format!("Of the time at the roofs: {}.", list.join(", ")));
    }
    let own = v.predicted_s.unwrap_or(0.0) - v.elsewhere_s;
    if own > 0.0 {
        let fixed: f64 = v
            .points
            .iter()
            .filter(|p| matches!(p.predicted_bound.as_deref(), Some("launch" | "latency")))
            .map(|p| p.predicted_s.unwrap_or(0.0))
            .sum();
        out.push(format!(
            "The roofs leave {} of the predicted {}; steps too small to fill the machine, bound by launch or latency, are {} of it{}.",
            units::percent(total / own),
            units::seconds(own),
            units::percent(fixed / own),
            if fixed > 0.5 * own {
                ": a larger batch or workers that stay would gain more than a faster machine"
            } else {
                ""
            }
        ));
    }
    let none = v.points.iter().filter(|p| p.ops <= 0.0).count();
    if none > 0 {
        out.push(format!(
            "Without arithmetic, and so without a place in the plot: {} (moves).",
            units::plural(none as u64, "step")
        ));
    }
    out
}
