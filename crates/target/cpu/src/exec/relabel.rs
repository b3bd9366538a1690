//! `Relabel`: a tile, or a part of it, under other labels; what is carried from position to position.
use super::copy::strided_copy;
use super::{CRelabel, Ctx, MAX_AXES, View};

/// Runs a relabelling on the current piece.
pub(crate) fn run(ctx: &mut Ctx, r: &CRelabel) {
    if !r.copied {
        ctx.lay_with(|ctx, views| match views.get_disjoint_mut([r.dst, r.src]) {
            Ok([v, from]) => lay(ctx, r, from, v),
            // A tile under labels of its own.
            Err(_) => {
                let from = views[r.src];
                lay(ctx, r, &from, &mut views[r.dst]);
            }
        });
        return;
    }
    let mut v = View::EMPTY;
    lay(ctx, r, &ctx.views[r.src], &mut v);
    ctx.lay_with(|ctx, views| ctx.lay_scratch(r.dst, &mut views[r.dst]));
    let own = &ctx.views[r.dst];
    let elem = ctx.kernel.tiles[r.src].elem;
    let axes = &ctx.kernel.tiles[r.dst].axes;
    let (mut to, mut at, mut len) = ([0; MAX_AXES], [0; MAX_AXES], [0; MAX_AXES]);
    for (i, &a) in axes.iter().enumerate() {
        (to[i], at[i], len[i]) = (own.st[a], v.st[a], ctx.len[a]);
    }
    let n = axes.len();
    if len[..n].iter().all(|&l| l > 0) {
        // SAFETY: the result's own scratch, and the source's elements under the result's labels,
        // which the verifier keeps within the source; the two are different tiles' memory.
        unsafe {
            strided_copy(
                ctx.kernel.kernels,
                elem,
                own.ptr,
                &to[..n],
                v.ptr,
                &at[..n],
                &len[..n],
            );
        }
    }
}

/// The source `from` under the result's labels.
fn lay(ctx: &Ctx, r: &CRelabel, from: &View, v: &mut View) {
    let tile = &ctx.kernel.tiles[r.src];
    v.clear(from.buffer);
    (v.ptr, v.block) = (from.ptr, from.block);
    for &a in &tile.axes {
        v.st[a] = from.st[a];
    }
    for &(a, to, first) in &r.labels {
        let st = from.st[a];
        let off = ctx.param(first) * st * tile.elem as i64;
        v.ptr = v.ptr.wrapping_offset(off as isize);
        v.st[to] = st;
        v.st[a] = 0;
    }
}
