//! How a schedule for GPUs cuts a product, for what a library's tiles cost ([`machine::ProductCosts`]).
use super::ctx::Space;
use kernel::{AxisId, Family, GpuMapping, OperandId, Schedule, Stmt};
use machine::TiledProduct;

/// The product of a kernel as `schedule` cuts it; `None` where it has none, or it is attention's, whose products are
/// parts of one loop.
pub(super) fn tiled(space: &Space, schedule: &Schedule, g: &GpuMapping) -> Option<TiledProduct> {
    let kernel = space.kernel;
    if kernel.family == Family::Attention || g.rows.is_empty() || g.columns.is_empty() {
        return None;
    }
    let (factors, over) = kernel.body.iter().find_map(|s| match s {
        Stmt::Contract { a, b, over, .. } => {
            Some(([space.source(*a), space.source(*b)], over.as_slice()))
        }
        _ => None,
    })?;
    let along = |axes: &[AxisId]| -> f64 {
        let cut = schedule.grid.iter().filter(|t| axes.contains(&t.axis));
        cut.map(|t| t.tile as f64).product()
    };
    let windows: Vec<AxisId> = over
        .iter()
        .copied()
        .filter(|&a| {
            let all = factors.iter().flatten();
            space.extent(a) > 1 && all.clone().any(|&o| window(space, o, a).is_some())
        })
        .collect();
    let three = |&a: &AxisId| {
        let mut all = factors.iter().flatten();
        space.extent(a) == 3 && all.any(|&o| window(space, o, a) == Some(true))
    };
    Some(TiledProduct {
        rows: along(&g.rows),
        columns: along(&g.columns),
        threads: g.threads,
        matrix: g.fragment.is_some(),
        along: both_along(space, factors, over),
        windows: !windows.is_empty(),
        fewer: windows.len() == 2 && windows.iter().all(three),
    })
}

/// Whether windows of `operand` along the summed `axis` overlap, which lie along another axis with it; and if so,
/// whether they go on in single steps.
fn window(space: &Space, operand: OperandId, axis: AxisId) -> Option<bool> {
    let access = &space.kernel.operands[operand as usize].access;
    let slides = |b: &&kernel::Bound| b.terms.iter().any(|t| t.0 == axis) && b.terms.len() > 1;
    if let Some(b) = access.bounds.iter().find(slides) {
        let steps = |t: &(AxisId, layout::Dim)| space.ctx.top(&t.1) == 1;
        return Some(b.terms.iter().all(steps));
    }
    // Without padding nothing is bounded: windows go on along an axis in steps of fewer elements than they have.
    let own = space.stride(operand, axis);
    let goes_on = |a: AxisId| -> Option<i64> {
        let step = space.stride(operand, a);
        let within = own > 0 && step % own == 0 && (1..space.extent(axis)).contains(&(step / own));
        (a != axis && within && space.extent(a) > 1).then(|| step / own)
    };
    let all = 0..space.extents.len() as AxisId;
    all.into_iter()
        .filter_map(goes_on)
        .min()
        .map(|step| step == 1)
}

/// Bytes of a row of the sum, where both factors lie along it.
fn both_along(space: &Space, factors: [Option<OperandId>; 2], over: &[AxisId]) -> Option<f64> {
    let mut bytes = 0.0f64;
    for o in factors {
        let o = o?;
        if !over.iter().any(|&a| space.stride(o, a) == 1) {
            return None;
        }
        let bits = f64::from(space.kernel.operands[o as usize].dtype.bits());
        bytes = bytes.max(space.points(over) as f64 * bits / 8.0);
    }
    Some(bytes)
}
