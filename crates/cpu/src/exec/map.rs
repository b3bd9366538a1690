//! `Map`: a vector program over the rows of a tile.
use super::copy::strided_copy;
use super::vm::{CH, Coords, Lane, MAX_ARGS, Program, Run};
use super::{Ctx, MAX_AXES, View};

/// A compiled `Map`.
#[derive(Debug)]
pub(crate) struct CMap {
    pub dst: usize,
    pub args: Vec<usize>,
    pub prog: Program,
    /// The same with every argument given element by element.
    pub flat: Option<Program>,
    /// Kernel axis along lanes; `None` for a scalar tile.
    pub lane: Option<usize>,
}

/// Rows up to this length are run several at a time.
const SHORT: i64 = CH as i64 / 4;

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
    if let (Some(flat), Some(l), true) = (&m.flat, lane, count > 0 && n > 1 && n <= SHORT)
        && dst.st[l] == 1
    {
        short_rows(ctx, m, flat, (&dst, &old), &outer[..count], n);
        ctx.views[m.dst] = dst;
        return;
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

/// Rows of `n` elements, neighbours along the innermost of `outer` taken together: arguments that do
/// not continue from row to row are copied into rows of their own first.
fn short_rows(
    ctx: &Ctx,
    m: &CMap,
    flat: &Program,
    (dst, old): (&View, &View),
    outer: &[usize],
    n: i64,
) {
    let k = ctx.kernel;
    let Some((&a, rest)) = outer.split_last() else {
        return;
    };
    let l = m.lane.unwrap_or(a);
    let view = |t: usize| if t == m.dst { old } else { &ctx.views[t] };
    let per = CH as i64 / n;
    let prog = Run::new(flat, k.kernels, ctx.area(0), ctx.p);
    let buffers = flat.bytes.div_ceil(64) * 64;
    let spread = |i: usize, from: *mut u8, v: &View, elem: usize, rows: i64| {
        let to = ctx.area(buffers + i * CH * 8);
        // SAFETY: `rows * n` elements of the argument, into a row of CH.
        unsafe {
            strided_copy(
                k.kernels,
                elem,
                to,
                &[n, 1],
                from,
                &[v.st[a], v.st[l]],
                &[rows, n],
            )
        };
        Lane { ptr: to, st: 1 }
    };
    let zero = [0; MAX_AXES];
    let mut c = [0i64; MAX_AXES];
    loop {
        let at = |v: &View, elem: usize| {
            let off: i64 = rest.iter().map(|&x| c[x] * v.st[x]).sum();
            v.ptr.wrapping_offset((off * elem as i64) as isize)
        };
        let mut lanes = [Lane::NONE; MAX_ARGS];
        for (i, &t) in m.args.iter().enumerate() {
            let (v, elem) = (view(t), k.tiles[t].elem);
            if v.st[a] == 0 {
                // The same for every row.
                lanes[i] = spread(i, at(v, elem), v, elem, per.min(ctx.len[a]));
            }
        }
        let mut row = 0;
        while row < ctx.len[a] {
            let rows = per.min(ctx.len[a] - row);
            for (i, &t) in m.args.iter().enumerate() {
                let (v, elem) = (view(t), k.tiles[t].elem);
                if v.st[a] == 0 {
                    continue;
                }
                let from = at(v, elem).wrapping_offset((row * v.st[a] * elem as i64) as isize);
                lanes[i] = if v.st[a] == v.st[l] * n {
                    Lane {
                        ptr: from,
                        st: v.st[l],
                    }
                } else {
                    spread(i, from, v, elem, rows)
                };
            }
            let elem = k.tiles[m.dst].elem;
            let to = at(dst, elem).wrapping_offset((row * dst.st[a] * elem as i64) as isize);
            let dense = dst.st[a] == n;
            let made = if dense {
                to
            } else {
                ctx.area(buffers + m.args.len() * CH * 8)
            };
            let coords = Coords {
                at: &zero,
                step: &zero,
            };
            let out = [Lane { ptr: made, st: 1 }];
            prog.row(
                &lanes[..m.args.len()],
                &coords,
                &out,
                (rows * n) as usize,
                true,
            );
            if !dense {
                let (ds, ss, len) = ([dst.st[a], 1], [n, 1], [rows, n]);
                // SAFETY: `rows * n` elements of the tile, from a row of CH.
                unsafe { strided_copy(k.kernels, elem, to, &ds, made, &ss, &len) };
            }
            row += rows;
        }
        if !super::fold::next(rest, &mut c, ctx) {
            return;
        }
    }
}
