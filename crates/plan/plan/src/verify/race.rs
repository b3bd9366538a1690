//! Whether a kernel can be split into tasks at all, judged before it has a schedule or dims.
use super::access::{BUDGET, Prover, Shape};
use kernel::{AxisId, Kernel, Role, Stmt};
use layout::DimBox;
use layout::Inserted;
use std::collections::BTreeSet;

/// Ends of ranges for sizes of which nothing is said, the largest first: proofs leave those out that could
/// leave 64 bits.
const TOPS: [i64; 5] = [1 << 30, 1 << 20, 1 << 15, 1 << 12, 1 << 6];

/// Positions that may write one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// The written operand.
    pub operand: String,
    /// Axes of which two positions may meet: one where the others keep apart without it, else all.
    pub axes: Vec<String>,
}

/// Axes that a schedule may share out over tasks.
fn shared_out(k: &Kernel) -> BTreeSet<AxisId> {
    let mut axes: BTreeSet<AxisId> = (0..k.axes.len() as AxisId).inserted();
    for s in &k.body {
        s.over().iter().for_each(|a| {
            axes.remove(a);
        });
        match s {
            Stmt::Store { src, .. } => {
                let tile = k.tiles.get(*src as usize);
                axes.retain(|a| tile.is_some_and(|t| t.axes.contains(a)));
            }
            Stmt::Relabel { labels, .. } => labels.iter().for_each(|l| {
                axes.remove(&l.from);
                axes.remove(&l.to);
            }),
            _ => {}
        }
    }
    axes
}

/// The first written operand of which two positions may write one element, by the proof of the verifier's
/// rule `race` and whatever the schedule is; sizes that `dims` has no range for are any. The kernel is one
/// that [`Kernel::verify`] takes.
pub fn race(kernel: &Kernel, dims: &DimBox) -> Option<Race> {
    // Then there is one task whatever the schedule.
    if shared_out(kernel).is_empty() {
        return None;
    }
    let mut symbols = BTreeSet::new();
    kernel.for_each_dim(&mut |d| d.symbols(&mut symbols));
    let boxes = TOPS.map(|top| {
        let mut all = dims.clone();
        for s in &symbols {
            if dims.get(s).is_none() {
                all.insert(s.clone(), 1, top);
            }
        }
        all
    });
    let mut budget = BUDGET;
    for o in kernel.operands.iter().filter(|o| o.role == Role::Write) {
        let shape = Shape::new(kernel, o);
        let mut apart = |shape: &Shape| {
            let judged = boxes.iter().find_map(|dims| {
                let shape = shape.clone().settled(dims);
                let mut p = Prover {
                    dims,
                    equal: None,
                    budget: &mut budget,
                };
                p.tame(&shape).then(|| p.injective(&shape))
            });
            judged.unwrap_or(false)
        };
        if apart(&shape) {
            continue;
        }
        let name = |a: AxisId| kernel.axes.get(a as usize).map(|a| a.name.clone());
        let one = shape.axes().find(|&a| apart(&shape.without(a)));
        let axes = match one {
            Some(a) => vec![a],
            None => shape.axes().collect(),
        };
        return Some(Race {
            operand: o.name.clone(),
            axes: axes.into_iter().filter_map(name).collect(),
        });
    }
    None
}
