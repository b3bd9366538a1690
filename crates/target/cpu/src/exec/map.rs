//! `Map`: a vector program over the rows of a tile.
use super::copy::strided_copy;
use super::vm::{CH, Coords, Lane, MAX_ARGS, Program, Run};
use super::{CMap, Ctx, MAX_AXES, View};
use crate::ukr::UnaryFn;

/// Rows up to this length are run several at a time.
const SHORT: i64 = CH as i64 / 4;

/// Arguments that most programs have at most.
const FEW: usize = 4;

/// Runs a map on the current piece.
pub(crate) fn run(ctx: &mut Ctx, m: &CMap) {
    // Where it was, if that is read.
    let old = m.args.contains(&m.dst).then(|| ctx.views[m.dst]);
    ctx.lay_with(|ctx, v| ctx.lay_out(m.dst, &mut v[m.dst]));
    let ctx = &*ctx;
    let k = ctx.kernel;
    let dst = &ctx.views[m.dst];
    let view = |t: usize| match &old {
        Some(old) if t == m.dst => old,
        _ => &ctx.views[t],
    };
    let axes = &k.tiles[m.dst].axes;
    if axes.iter().any(|&a| ctx.len[a] <= 0) {
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
            || !merges(dst)
            || !m.args.iter().all(|&t| merges(view(t)))
        {
            break;
        }
        n *= ctx.len[a];
        count -= 1;
    }
    if let (Some((f, slot)), Some(l)) = (m.prog.unary, lane)
        && n >= ALONE
        && dst.st[l] == 1
        && view(m.args[slot]).st[l] == 1
    {
        one_function(ctx, f, (dst, view(m.args[slot])), &outer[..count], n);
        return;
    }
    if let (Some(flat), Some(l), true) = (&m.flat, lane, count > 0 && n > 1 && n <= SHORT)
        && dst.st[l] == 1
    {
        short_rows(ctx, m, flat, (dst, old.as_ref()), &outer[..count], n);
        return;
    }
    // To clear room for all that there may be takes as long as a short row.
    let (mut few, mut many);
    let rows = if n_args <= FEW {
        few = [Lane::NONE; FEW];
        &mut few[..]
    } else {
        many = [Lane::NONE; MAX_ARGS];
        &mut many[..]
    };
    for (r, &t) in rows.iter_mut().zip(&m.args) {
        let v = view(t);
        *r = Lane {
            ptr: v.ptr,
            st: lane_st(v),
        };
    }
    let mut out = [Lane {
        ptr: dst.ptr,
        st: lane_st(dst),
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
}

/// Elements of a row from which on a call of a function is worth it.
const ALONE: i64 = 8;

/// A function of one argument, row by row in memory.
fn one_function(ctx: &Ctx, f: UnaryFn, (dst, src): (&View, &View), outer: &[usize], n: i64) {
    let mut c = [0i64; MAX_AXES];
    loop {
        let at = |v: &View| {
            let off: i64 = outer.iter().map(|&a| c[a] * v.st[a]).sum();
            v.ptr.cast::<f32>().wrapping_offset(off as isize)
        };
        // SAFETY: rows of n elements of tiles, which are the same or apart.
        unsafe { f(at(src), at(dst), n as usize) };
        if !super::fold::next(outer, &mut c, ctx) {
            return;
        }
    }
}

/// Rows of `n` elements, neighbours along the innermost axes of `outer` taken together: arguments that
/// do not continue from row to row are copied into rows of their own first, those that stay the same
/// once.
fn short_rows(
    ctx: &Ctx,
    m: &CMap,
    flat: &Program,
    (dst, old): (&View, Option<&View>),
    outer: &[usize],
    n: i64,
) {
    let k = ctx.kernel;
    // Axes that a row of CH takes in whole, the one that it takes a part of, and the rest.
    let (mut split, mut block) = (outer.len(), n);
    while split > 1 && block * ctx.len[outer[split - 1]] <= CH as i64 {
        split -= 1;
        block *= ctx.len[outer[split]];
    }
    let (Some(&a), inner) = (outer[..split].last(), &outer[split..]) else {
        return;
    };
    let rest = &outer[..split - 1];
    let l = m.lane.unwrap_or(a);
    let view = |t: usize| match old {
        Some(old) if t == m.dst => old,
        _ => &ctx.views[t],
    };
    let per = (CH as i64 / block).max(1);
    let prog = Run::new(flat, k.kernels, ctx.area(0), ctx.p);
    let buffers = flat.bytes.div_ceil(64) * 64;
    // Extents and dense strides of a block, outermost first.
    let rank = inner.len() + 2;
    let (mut len, mut dense) = ([1i64; MAX_AXES + 1], [1i64; MAX_AXES + 1]);
    (len[rank - 1], dense[rank - 1]) = (n, 1);
    let mut step = n;
    for (i, &x) in inner.iter().enumerate().rev() {
        (len[i + 1], dense[i + 1]) = (ctx.len[x], step);
        step *= ctx.len[x];
    }
    dense[0] = step;
    let strides = |v: &View| {
        let mut st = [0i64; MAX_AXES + 1];
        st[0] = v.st[a];
        for (i, &x) in inner.iter().enumerate() {
            st[i + 1] = v.st[x];
        }
        st[rank - 1] = v.st[l];
        st
    };
    let continues = |st: &[i64; MAX_AXES + 1]| {
        (0..rank).all(|i| len[i] == 1 && i > 0 || st[i] == st[rank - 1] * dense[i])
    };
    let spread = |i: usize, from: *mut u8, st: &[i64; MAX_AXES + 1], elem: usize, rows: i64| {
        let to = ctx.area(buffers + i * CH * 8);
        let mut len = len;
        len[0] = rows;
        // SAFETY: `rows` blocks of the argument, into a row of CH.
        unsafe {
            strided_copy(
                k.kernels,
                elem,
                to,
                &dense[..rank],
                from,
                &st[..rank],
                &len[..rank],
            )
        };
        Lane { ptr: to, st: 1 }
    };
    let zero = [0; MAX_AXES];
    let mut c = [0i64; MAX_AXES];
    let mut lanes = [Lane::NONE; MAX_ARGS];
    let still = |v: &View| v.st[a] == 0 && rest.iter().all(|&x| v.st[x] == 0 || ctx.len[x] == 1);
    for (i, &t) in m.args.iter().enumerate() {
        let v = view(t);
        if still(v) {
            lanes[i] = spread(i, v.ptr, &strides(v), k.tiles[t].elem, per.min(ctx.len[a]));
        }
    }
    let (elem, out) = (k.tiles[m.dst].elem, strides(dst));
    let made_dense = continues(&out);
    loop {
        let at = |v: &View, elem: usize| {
            let off: i64 = rest.iter().map(|&x| c[x] * v.st[x]).sum();
            v.ptr.wrapping_offset((off * elem as i64) as isize)
        };
        for (i, &t) in m.args.iter().enumerate() {
            let (v, elem) = (view(t), k.tiles[t].elem);
            if v.st[a] == 0 && !still(v) {
                // The same for every block of this row of blocks.
                lanes[i] = spread(i, at(v, elem), &strides(v), elem, per.min(ctx.len[a]));
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
                let st = strides(v);
                let from = at(v, elem).wrapping_offset((row * v.st[a] * elem as i64) as isize);
                lanes[i] = if continues(&st) {
                    Lane {
                        ptr: from,
                        st: v.st[l],
                    }
                } else {
                    spread(i, from, &st, elem, rows)
                };
            }
            let to = at(dst, elem).wrapping_offset((row * dst.st[a] * elem as i64) as isize);
            let made = if made_dense {
                to
            } else {
                ctx.area(buffers + m.args.len() * CH * 8)
            };
            let coords = Coords {
                at: &zero,
                step: &zero,
            };
            let put = [Lane { ptr: made, st: 1 }];
            prog.row(
                &lanes[..m.args.len()],
                &coords,
                &put,
                (rows * block) as usize,
                true,
            );
            if !made_dense {
                let mut len = len;
                len[0] = rows;
                // SAFETY: `rows` blocks of the tile, from a row of CH.
                unsafe {
                    strided_copy(
                        k.kernels,
                        elem,
                        to,
                        &out[..rank],
                        made,
                        &dense[..rank],
                        &len[..rank],
                    )
                };
            }
            row += rows;
        }
        if !super::fold::next(rest, &mut c, ctx) {
            return;
        }
    }
}
