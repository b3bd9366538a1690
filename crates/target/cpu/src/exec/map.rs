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
    let lane = m.lane;
    let n = merge(ctx, m, (dst, old.as_ref()), (&outer, &mut count));
    let outer = &outer[..count];
    if let (Some((f, slot)), Some(l)) = (m.prog.unary, lane)
        && n >= ALONE
        && dst.st[l] == 1
        && view(m.args[slot]).st[l] == 1
    {
        one_function(ctx, f, (dst, view(m.args[slot])), outer, n);
        return;
    }
    if let (Some(flat), Some(l), true) = (&m.flat, lane, count > 0 && n > 1 && n <= SHORT)
        && dst.st[l] == 1
    {
        short_rows(ctx, m, flat, (dst, old.as_ref()), outer, n);
        return;
    }
    long_rows(ctx, m, (dst, old.as_ref()), outer, n);
}

/// Takes the innermost of `count` outer axes into the lane axis as long as all sides continue; the length of
/// a row then.
#[inline]
fn merge(
    ctx: &Ctx,
    m: &CMap,
    (dst, old): (&View, Option<&View>),
    (outer, count): (&[usize], &mut usize),
) -> i64 {
    let view = |t: usize| match old {
        Some(old) if t == m.dst => old,
        _ => &ctx.views[t],
    };
    let Some(l) = m.lane else { return 1 };
    let mut n = ctx.len[l];
    while *count > 0 {
        let a = outer[*count - 1];
        let merges = |v: &View| v.st[a] == v.st[l] * n;
        // A reader without either axis repeats its value: it may merge only when its lanes are uniform.
        if m.prog.index >> a & 1 == 1
            || m.prog.index >> l & 1 == 1
            || !merges(dst)
            || !m.args.iter().all(|&t| merges(view(t)))
        {
            break;
        }
        n *= ctx.len[a];
        *count -= 1;
    }
    n
}

/// Rows of `n` elements, one at a time.
#[inline]
fn long_rows(ctx: &Ctx, m: &CMap, (dst, old): (&View, Option<&View>), outer: &[usize], n: i64) {
    let k = ctx.kernel;
    let view = |t: usize| match old {
        Some(old) if t == m.dst => old,
        _ => &ctx.views[t],
    };
    let (lane, n_args) = (m.lane, m.args.len());
    let lane_st = |v: &View| lane.map_or(0, |a| v.st[a]);
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
        let mut i = outer.len();
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
    let blocks = Blocks::new(
        ctx,
        (a, inner, l),
        n,
        flat.bytes.div_ceil(64) * 64,
        m.args.len(),
    );
    let zero = [0; MAX_AXES];
    let mut c = [0i64; MAX_AXES];
    let mut lanes = [Lane::NONE; MAX_ARGS];
    let still = |v: &View| v.st[a] == 0 && rest.iter().all(|&x| v.st[x] == 0 || ctx.len[x] == 1);
    for (i, &t) in m.args.iter().enumerate() {
        let v = view(t);
        if still(v) {
            let st = blocks.strides(v);
            lanes[i] = blocks.spread(i, v.ptr, &st, k.tiles[t].elem, per.min(ctx.len[a]));
        }
    }
    let (elem, out) = (k.tiles[m.dst].elem, blocks.strides(dst));
    let made_dense = blocks.continues(&out);
    let own = blocks.row(blocks.results);
    loop {
        let at = |v: &View, elem: usize| {
            let off: i64 = rest.iter().map(|&x| c[x] * v.st[x]).sum();
            v.ptr.wrapping_offset((off * elem as i64) as isize)
        };
        for (i, &t) in m.args.iter().enumerate() {
            let (v, elem) = (view(t), k.tiles[t].elem);
            if v.st[a] == 0 && !still(v) {
                // The same for every block of this row of blocks.
                let st = blocks.strides(v);
                lanes[i] = blocks.spread(i, at(v, elem), &st, elem, per.min(ctx.len[a]));
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
                let st = blocks.strides(v);
                let from = at(v, elem).wrapping_offset((row * v.st[a] * elem as i64) as isize);
                lanes[i] = if blocks.continues(&st) {
                    Lane {
                        ptr: from,
                        st: v.st[l],
                    }
                } else {
                    blocks.spread(i, from, &st, elem, rows)
                };
            }
            let to = at(dst, elem).wrapping_offset((row * dst.st[a] * elem as i64) as isize);
            let made = if made_dense { to } else { own };
            let coords = Coords {
                at: &zero,
                step: &zero,
            };
            let put = [Lane { ptr: made, st: 1 }];
            let n = (rows * block) as usize;
            prog.row(&lanes[..m.args.len()], &coords, &put, n, true);
            if !made_dense {
                blocks.store(to, &out, elem, rows);
            }
            row += rows;
        }
        if !super::fold::next(rest, &mut c, ctx) {
            return;
        }
    }
}

/// Neighbouring rows that are run as one: a block is all positions of some axes, and several of them along
/// another axis are one row of [`CH`] at most.
struct Blocks<'a> {
    ctx: &'a Ctx<'a>,
    /// The axis of which a row takes a part, those that it takes in whole, and that of lanes.
    axes: (usize, &'a [usize], usize),
    /// Extents and dense strides of a block, outermost first, and how many they are.
    len: [i64; MAX_AXES + 1],
    dense: [i64; MAX_AXES + 1],
    rank: usize,
    /// Where rows of their own begin in the scratch.
    rows: usize,
    /// Number of the row for results.
    results: usize,
}

impl Blocks<'_> {
    fn new<'a>(
        ctx: &'a Ctx<'a>,
        axes: (usize, &'a [usize], usize),
        n: i64,
        rows: usize,
        results: usize,
    ) -> Blocks<'a> {
        let inner = axes.1;
        let rank = inner.len() + 2;
        let (mut len, mut dense) = ([1i64; MAX_AXES + 1], [1i64; MAX_AXES + 1]);
        (len[rank - 1], dense[rank - 1]) = (n, 1);
        let mut step = n;
        for (i, &x) in inner.iter().enumerate().rev() {
            (len[i + 1], dense[i + 1]) = (ctx.len[x], step);
            step *= ctx.len[x];
        }
        dense[0] = step;
        Blocks {
            ctx,
            axes,
            len,
            dense,
            rank,
            rows,
            results,
        }
    }

    /// Strides of a block in a tile.
    #[inline]
    fn strides(&self, v: &View) -> [i64; MAX_AXES + 1] {
        let (a, inner, l) = self.axes;
        let mut st = [0i64; MAX_AXES + 1];
        st[0] = v.st[a];
        for (i, &x) in inner.iter().enumerate() {
            st[i + 1] = v.st[x];
        }
        st[self.rank - 1] = v.st[l];
        st
    }

    /// Whether blocks of such strides are one row of one stride.
    #[inline]
    fn continues(&self, st: &[i64; MAX_AXES + 1]) -> bool {
        let last = st[self.rank - 1];
        (0..self.rank).all(|i| self.len[i] == 1 && i > 0 || st[i] == last * self.dense[i])
    }

    /// Row `i` of the scratch.
    #[inline]
    fn row(&self, i: usize) -> *mut u8 {
        self.ctx.area(self.rows + i * CH * 8)
    }

    /// Copies `rows` blocks of argument `i` into a row of its own.
    #[inline]
    fn spread(
        &self,
        i: usize,
        from: *mut u8,
        st: &[i64; MAX_AXES + 1],
        elem: usize,
        rows: i64,
    ) -> Lane {
        let to = self.row(i);
        self.copy((to, &self.dense), (from, st), elem, rows);
        Lane { ptr: to, st: 1 }
    }

    /// Copies `rows` blocks of results to the tile at `to`, of strides `st`.
    #[inline]
    fn store(&self, to: *mut u8, st: &[i64; MAX_AXES + 1], elem: usize, rows: i64) {
        self.copy((to, st), (self.row(self.results), &self.dense), elem, rows);
    }

    /// Copies `rows` blocks between a tile and a row of CH, each with its strides.
    #[inline]
    fn copy(
        &self,
        (to, to_st): (*mut u8, &[i64; MAX_AXES + 1]),
        (from, from_st): (*mut u8, &[i64; MAX_AXES + 1]),
        elem: usize,
        rows: i64,
    ) {
        let rank = self.rank;
        let mut len = self.len;
        len[0] = rows;
        // SAFETY: the tile has `rows` blocks at these strides, and a row of CH has room for them.
        unsafe {
            strided_copy(
                self.ctx.kernel.kernels,
                elem,
                to,
                &to_st[..rank],
                from,
                &from_st[..rank],
                &len[..rank],
            )
        };
    }
}
