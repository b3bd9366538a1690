//! Running a compiled tile program's tasks.
use super::{CEdge, Ctx, Fault, MAX_AXES, Op, View, contract, fold, map, pool, relabel, transfer};
use workers::prefetch::prefetch_line;

/// Number of tasks under the parameters `p`, none where nothing is stored; `None` when it does not fit 32 bits.
pub(crate) fn tasks(k: &super::CKernel, p: &[i64]) -> Option<u32> {
    let empty = (0..k.axes.len()).filter(|&a| p[k.axes[a] as usize] <= 0);
    let empty = empty.fold(0u32, |m, a| m | 1 << a);
    if k.stores.iter().all(|stored| stored & empty != 0) {
        return Some(0);
    }
    k.grid.iter().try_fold(1u32, |n, &(a, t)| {
        let pieces = p[k.axes[a] as usize].max(0).checked_add(t - 1)? / t;
        n.checked_mul(u32::try_from(pieces).ok()?)
    })
}

/// Runs task `t`.
pub(crate) fn task(ctx: &mut Ctx, t: u32) -> Result<(), Fault> {
    let k = ctx.kernel;
    for (a, &e) in k.axes.iter().enumerate() {
        ctx.org[a] = 0;
        ctx.len[a] = ctx.p[e as usize];
    }
    let mut rest = i64::from(t);
    for &(a, tile) in k.grid.iter().rev() {
        let extent = ctx.len[a];
        let pieces = ((extent + tile - 1) / tile).max(1);
        ctx.org[a] = rest % pieces * tile;
        ctx.len[a] = tile.min(extent - ctx.org[a]);
        rest /= pieces;
    }
    ops(ctx, &k.body)
}

/// Runs operations in order.
pub(crate) fn ops(ctx: &mut Ctx, list: &[Op]) -> Result<(), Fault> {
    for op in list {
        if let Some(t) = ctx.trace
            && !matches!(op, Op::Load { .. } | Op::Store { .. } | Op::Nest(_))
        {
            t.spoil();
        }
        match op {
            Op::Loop {
                axis,
                tile,
                from,
                to,
                body,
            } => {
                let (org, len) = (ctx.org[*axis], ctx.len[*axis]);
                let first = from.iter().map(|e| reach(ctx, e, false)).fold(0, i64::max);
                let end = to.iter().map(|e| reach(ctx, e, true)).fold(len, i64::min);
                let mut at = first / tile * tile;
                while at < end {
                    ctx.org[*axis] = org + at;
                    ctx.len[*axis] = (*tile).min(len - at);
                    ops(ctx, body)?;
                    at += tile;
                }
                (ctx.org[*axis], ctx.len[*axis]) = (org, len);
            }
            Op::Load {
                dst,
                operand,
                in_place,
            } => {
                let in_place = *in_place
                    && ctx.lay_with(|ctx, v| lay_in_place(ctx, *dst, *operand, &mut v[*dst]));
                if !in_place {
                    if let Some(t) = ctx.trace {
                        t.spoil();
                    }
                    ctx.lay_with(|ctx, v| ctx.lay_scratch(*dst, &mut v[*dst]));
                    transfer::load(ctx, *operand, *dst, &ctx.views[*dst])?;
                }
            }
            Op::Store { operand, src } => {
                let v = &ctx.views[*src];
                if !v.direct {
                    if let Some(t) = ctx.trace {
                        t.spoil();
                    }
                    transfer::store(ctx, *operand, *src, v)?;
                }
            }
            Op::Map(m) => map::run(ctx, m),
            Op::Fold(f) => fold::run(ctx, f),
            Op::Contract(c) => contract::run(ctx, c),
            Op::Nest(n) => contract::nest(ctx, n, ops)?,
            Op::Nibbles(n) => super::nibbles::run(ctx, n, ops)?,
            Op::Pool(p) => pool::run(ctx, p, ops)?,
            Op::Relabel(r) => relabel::run(ctx, r),
        }
    }
    Ok(())
}

/// The last position of an edge, or its first one, for the present rows.
fn reach(ctx: &Ctx, e: &CEdge, last: bool) -> i64 {
    let base = ctx.param(e.base);
    e.terms.iter().fold(base, |sum, &(a, c, grows)| {
        let further = if grows == last { ctx.len[a] - 1 } else { 0 };
        sum.saturating_add(ctx.param(c).saturating_mul(ctx.org[a] + further))
    })
}

/// Makes `v` the operand's own memory as the tile, where that is possible for the current piece.
fn lay_in_place(ctx: &Ctx, dst: usize, operand: usize, v: &mut View) -> bool {
    let o = &ctx.kernel.operands[operand];
    let mask = ctx.kernel.tiles[dst].mask;
    let lies = o.access.bounds_hold(ctx, mask) && o.access.lay(ctx, mask, o, false, v);
    if lies {
        // Whatever is done with it finds out first how to go about it.
        prefetch_line(v.ptr);
    }
    lies
}

/// A context for `kernel` over this worker's memory.
pub(crate) fn context<'a>(
    kernel: &'a super::CKernel,
    p: &'a [i64],
    bufs: &'a [*mut u8],
    scratch: *mut u8,
    views: &'a mut [View],
    zeros: *const u8,
) -> Ctx<'a> {
    Ctx {
        kernel,
        p,
        bufs,
        scratch,
        views,
        zeros,
        org: [0; MAX_AXES],
        len: [0; MAX_AXES],
        trace: None,
    }
}
