//! Rules of how axes lie over threads.
use super::{Blame, unique};
use crate::{AxisId, GpuMapping, Kernel, KernelError, Stmt};
use std::collections::BTreeSet;

/// Neighbours that one thread may have together.
const MAX_EACH: u32 = 64;

pub(super) fn check(k: &Kernel, g: &GpuMapping, b: &Blame) -> Result<(), KernelError> {
    let axes: Vec<AxisId> = g.spread.iter().map(|s| s.axis).collect();
    b.need(
        unique(&axes) && axes.iter().all(|&a| (a as usize) < k.axes.len()),
        "spread",
        || "an axis that is not there, or the same twice, lies over threads".into(),
    )?;
    for s in &g.spread {
        b.need(
            s.stride >= 1 && s.count >= 1 && (1..=MAX_EACH).contains(&s.each),
            "spread",
            || {
                format!(
                    "axis '{}' lies over {} threads {} apart with {} positions each; counts are at least 1, positions at most {MAX_EACH}",
                    k.axes[s.axis as usize].name, s.count, s.stride, s.each
                )
            },
        )?;
    }
    let mut next = 1u32;
    for (stride, count) in g.directions() {
        b.need(stride == next, "spread", || {
            format!("threads {stride} apart do not begin where the {next} before them end")
        })?;
        next = next.saturating_mul(count);
    }
    b.need(next <= g.threads, "spread", || {
        format!("{next} threads are needed, the CTA has {}", g.threads)
    })?;
    for (at, stmt) in k.body.iter().enumerate() {
        together(k, g, b, at, stmt)?;
    }
    Ok(())
}

/// No two axes that a statement goes over lie over the same threads: each thread would see a part of
/// their positions only.
fn together(
    k: &Kernel,
    g: &GpuMapping,
    b: &Blame,
    at: usize,
    stmt: &Stmt,
) -> Result<(), KernelError> {
    let mut axes: BTreeSet<AxisId> = stmt.over().iter().copied().collect();
    let made = match stmt {
        Stmt::Store { src, .. } => vec![*src],
        s => s.writes(),
    };
    for &t in &made {
        axes.extend(&k.tiles[t as usize].axes);
    }
    let mut used: Vec<((u32, u32), AxisId)> = vec![];
    for a in axes {
        let s = g.spread(a);
        if s.count == 1 {
            continue;
        }
        let other = used.iter().find(|u| u.0 == (s.stride, s.count));
        let name = |a: AxisId| &k.axes[a as usize].name;
        if let Some((_, o)) = other {
            // Tiles that a fold rescales have axes of their own.
            let rescales = matches!(
                stmt,
                Stmt::Fold {
                    rescale: Some(_),
                    ..
                }
            );
            b.need(rescales, "spread", || {
                format!(
                    "statement {at} goes over '{}' and '{}', which lie over the same threads",
                    name(*o),
                    name(a)
                )
            })?;
        }
        used.push(((s.stride, s.count), a));
    }
    Ok(())
}
