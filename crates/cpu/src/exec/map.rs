//! `Map`: a vector program over the rows of a tile.
use super::vm::{Coords, Lane, MAX_ARGS, Program, Run};
use super::{Ctx, MAX_AXES, View};

/// A compiled `Map`.
#[derive(Debug)]
pub(crate) struct CMap {
    pub dst: usize,
    pub args: Vec<usize>,
    pub prog: Program,
    /// Kernel axis along lanes; `None` for a scalar tile.
    pub lane: Option<usize>,
}

/// Runs a map on the current piece.
pub(crate) fn run(ctx: &mut Ctx, m: &CMap) {
    let old = ctx.views[m.dst];
    let dst = ctx.define(m.dst);
    let k = ctx.kernel;
    let view = |t: usize| if t == m.dst { &old } else { &ctx.views[t] };
    let axes = &k.tiles[m.dst].axes;
    if axes.iter().any(|&a| ctx.len[a] <= 0) {
        ctx.views[m.dst] = dst;
        return;
    }
    // Outer axes, outermost first; the lane axis takes in its neighbours where all sides continue.
    let (mut outer, mut count) = ([0usize; MAX_AXES], 0);
    for &a in axes {
        if ctx.len[a] > 1 && Some(a) != m.lane {
            outer[count] = a;
            count += 1;
        }
    }
    let n_args = m.args.len();
    let lane = m.lane;
    let mut n = lane.map_or(1, |a| ctx.len[a]);
    let lane_st = |v: &View| lane.map_or(0, |a| v.st[a]);
    while count > 0 && lane.is_some() {
        let a = outer[count - 1];
        let merges = |v: &View| v.st[a] == lane_st(v) * n;
        let l = lane.unwrap_or(0);
        // A reader without either axis repeats its value: it may merge only when its lanes are uniform.
        if m.prog.index >> a & 1 == 1
            || m.prog.index >> l & 1 == 1
            || !merges(&dst)
            || !m.args.iter().all(|&t| merges(view(t)))
        {
            break;
        }
        n *= ctx.len[a];
        count -= 1;
    }
    let mut rows = [Lane::NONE; MAX_ARGS];
    for (r, &t) in rows.iter_mut().zip(&m.args) {
        let v = view(t);
        *r = Lane {
            ptr: v.ptr,
            st: lane_st(v),
        };
    }
    let mut out = [Lane {
        ptr: dst.ptr,
        st: lane_st(&dst),
    }];
    if lane.is_none() {
        out[0].st = 1;
    }
    let mut step = [0; MAX_AXES];
    if let Some(a) = lane {
        step[a] = 1;
    }
    let mut at = ctx.org;
    let prog = Run::new(&m.prog, k.kernels, ctx.area(0), ctx.p);
    let elem = |t: usize| k.tiles[t].elem as i64;
    'rows: loop {
        prog.row(
            &rows[..n_args],
            &Coords {
                at: &at,
                step: &step,
            },
            &out,
            n as usize,
            true,
        );
        let mut i = count;
        loop {
            if i == 0 {
                break 'rows;
            }
            i -= 1;
            let a = outer[i];
            let wrap = at[a] + 1 == ctx.org[a] + ctx.len[a];
            let by = if wrap { 1 - ctx.len[a] } else { 1 };
            at[a] += by;
            for (r, &t) in rows.iter_mut().zip(&m.args) {
                r.ptr = r
                    .ptr
                    .wrapping_offset((by * view(t).st[a] * elem(t)) as isize);
            }
            out[0].ptr = out[0]
                .ptr
                .wrapping_offset((by * dst.st[a] * elem(m.dst)) as isize);
            if !wrap {
                break;
            }
        }
    }
    ctx.views[m.dst] = dst;
}
