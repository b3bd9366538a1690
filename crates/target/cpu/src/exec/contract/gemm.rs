//! Matrix products: strided rows, row tables (convolutions) and dot products.
use super::job::{Job, List, Rows, next};
use crate::exec::{CContract, Ctx, MAX_AXES, View};
use crate::ukr::{Dot, Gemm, GemmKernel, Indirect, Panels};

/// The axes of a product in the order of their loops.
struct Order {
    rows: List,
    /// Summed axes but for `kin`, in the order of B's rows.
    taps: List,
    /// The block of k: the summed axis that is contiguous in A, else the longest.
    kin: Option<usize>,
    /// All others; the first `summed` of them are summed.
    outer: List,
    summed: usize,
}

impl Order {
    fn new(ctx: &Ctx, c: &CContract, job: &Job) -> Order {
        let len = &ctx.len;
        let long = List::long(&c.over, len);
        let free = |a: &&usize| !job.bounded(ctx, **a) && job.a.st[**a] >= 0;
        let kin = long
            .as_slice()
            .iter()
            .filter(free)
            .find(|&&a| job.a.st[a] == 1)
            .or_else(|| long.as_slice().iter().filter(free).max_by_key(|&&a| len[a]))
            .copied();
        let mut taps = List::NONE;
        for &a in long.as_slice() {
            if Some(a) != kin {
                taps.push(a);
            }
        }
        // Taps in the order of B's rows.
        taps.outermost_first(&job.b.st);
        let mut outer = List::NONE;
        if let (Some(k), true) = (kin, taps.n > 0) {
            taps.push(k);
            taps.merge(len, &job.b.st, &mut outer);
            taps.n -= 1;
        } else {
            taps.merge(len, &job.b.st, &mut outer);
        }
        let summed = outer.n;
        let mut rows = List::long(&c.rows, len);
        rows.merge(len, &job.c.st, &mut outer);
        for axes in [&c.columns, &c.batch] {
            for &a in List::long(axes, len).as_slice() {
                outer.push(a);
            }
        }
        Order {
            rows,
            taps,
            kin,
            outer,
            summed,
        }
    }

    /// The stride of A's rows where it is one for all of them, and for all taps likewise.
    fn row_stride(&self, ctx: &Ctx, c: &CContract, job: &Job) -> Option<i64> {
        let Order {
            rows, taps, kin, ..
        } = *self;
        if job.bounds.is_some() {
            return None;
        }
        let (mut r, mut peeled) = (rows, List::NONE);
        r.merge(&ctx.len, &job.a.st, &mut peeled);
        let (mut t, mut cut) = (taps, List::NONE);
        if let Some(k) = kin {
            t.push(k);
        }
        t.merge(&ctx.len, &job.a.st, &mut cut);
        let st = rows.inner(&job.a.st);
        if peeled.n > 0 || cut.n > 0 || st < 0 {
            return None;
        }
        // Groups are contiguous along k only within one block of it.
        let alone = kin.is_none() && taps.n > 0;
        (!alone || !c.grouped && taps.inner(&job.a.st) >= 0).then_some(st)
    }
}

/// One product without batch: what is the same for each call.
struct Plan<'a> {
    ctx: &'a Ctx<'a>,
    c: &'a CContract,
    job: &'a Job<'a>,
    kernel: GemmKernel,
    order: Order,
    m: i64,
    n: i64,
    kc: i64,
    nkb: i64,
    lda: Option<i64>,
    ldc: i64,
    /// Strides of B along k and along lanes.
    b_k: i64,
    b_lane: i64,
    /// B is read where it lies: a call is all there is to it.
    plain: bool,
}

/// The operands of one call.
struct Call<'a> {
    a: *mut u8,
    b: *mut u8,
    c: *mut u8,
    accumulate: bool,
    /// Coordinates of its first element.
    org: &'a [i64; MAX_AXES],
}

/// False when the operands do not lie as a micro-kernel needs them.
pub(super) fn run(ctx: &Ctx, c: &CContract, job: &Job) -> bool {
    let len = &ctx.len;
    let Some(kernel) = c.gemm else { return false };
    // Blocks of B are panels of lanes; along another axis they leave it without a stride.
    if job.b.block.is_some_and(|b| Some(b.axis) != c.lane) {
        return false;
    }
    if let Some(done) = job.without_sums(ctx, c) {
        return done;
    }
    let n = c.lane.map_or(1, |a| len[a]);
    let lane_st = |v: &View| c.lane.map_or(1, |a| v.st[a]);
    if n > 1 && lane_st(job.c) != 1 {
        return false;
    }
    if c.lane.is_some_and(|a| job.bounded(ctx, a)) {
        return false;
    }
    let order = Order::new(ctx, c, job);
    let Order {
        rows, taps, kin, ..
    } = order;
    let lda = order.row_stride(ctx, c, job);
    let mut p = Plan {
        ctx,
        c,
        job,
        kernel,
        m: rows.count(len),
        n,
        kc: kin.map_or(1, |a| len[a]),
        nkb: taps.count(len),
        lda,
        ldc: rows.inner(&job.c.st),
        b_k: match kin {
            Some(a) => job.b.st[a],
            None => taps.inner(&job.b.st),
        },
        b_lane: lane_st(job.b),
        order,
        plain: false,
    };
    if p.ldc < 0 || (lda.is_none() && p.nkb > ctx.kernel.pointers()) {
        return false;
    }
    if p.b_k < 0 || (n > 1 && p.b_lane < 0) {
        return false;
    }
    let Some(how) = p.how() else { return false };
    if c.grouped && (how != How::Panels || kin.is_some() && p.a_ks() != 1) {
        return false;
    }
    // Sums must be whole when something is done to them, and a vector's length of columns apart.
    let apart = job.b.block.is_some_and(|b| b.size as usize != kernel.nr());
    if job.post.any() && (how == How::Dot || p.order.summed > 0 || apart || n == 1) {
        return false;
    }
    // A matrix times a vector: sums run along the vectors.
    let vector = !c.grouped && n == 1 && how == How::Panels && p.dots() && p.depth() > 1;
    match how {
        How::Dot => p.each(|at| p.dot(at)),
        How::Panels if vector => p.each(|at| p.dot(at)),
        How::Panels => {
            p.plain = true;
            p.each(|at| p.panels(at))
        }
        How::Pack => p.each(|at| p.packed(at)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Panels,
    Pack,
    Dot,
}

fn kernel_lanes(k: &GemmKernel) -> usize {
    // A register tile is a whole number of vectors; sixteen lanes cover every instruction set.
    if k.nr().is_multiple_of(16) { 16 } else { 8 }
}

impl Plan<'_> {
    /// Stride of A along k, when taps and block are one.
    fn a_ks(&self) -> i64 {
        let st = &self.job.a.st;
        self.order.kin.map_or(self.order.taps.inner(st), |a| st[a])
    }

    /// Products per sum in one call.
    fn depth(&self) -> i64 {
        self.kc * self.nkb
    }

    /// Whether A and B are contiguous along k.
    fn dots(&self) -> bool {
        self.b_k == 1 && self.lda.is_some() && self.a_ks() == 1
    }

    /// How B is read.
    fn how(&self) -> Option<How> {
        if self.n == 1 || self.b_lane == 1 || self.job.b.block.is_some() {
            return Some(How::Panels);
        }
        let nr = self.kernel.nr() as i64;
        let packed = self.depth() * ((self.n + nr - 1) / nr) * nr * 4;
        match (self.dots(), packed as usize <= self.c.pack) {
            (true, _) if self.m < 16 => Some(How::Dot),
            (_, true) => Some(How::Pack),
            (true, false) => Some(How::Dot),
            (false, false) => None,
        }
    }

    /// Calls `f` for every position of the outer axes.
    fn each(&self, f: impl Fn(&Call)) -> bool {
        let (ctx, job) = (self.ctx, self.job);
        let axes = self.order.outer.as_slice();
        let mut c = [0i64; MAX_AXES];
        loop {
            let (mut a, mut b, mut o) = (0, 0, 0);
            for &x in axes {
                a += c[x] * job.a.st[x];
                b += c[x] * job.b.st[x];
                o += c[x] * job.c.st[x];
            }
            let first = axes[..self.order.summed].iter().all(|&x| c[x] == 0);
            let shift = |p: *mut u8, n: i64| p.wrapping_offset((n * 4) as isize);
            let mut org = ctx.org;
            for &x in axes {
                org[x] += c[x];
            }
            f(&Call {
                a: shift(job.a.ptr, a),
                b: shift(job.b.ptr, b),
                c: shift(job.c.ptr, o),
                accumulate: job.accumulate || !first,
                org: &org,
            });
            if !next(axes, &mut c, &ctx.len) {
                return true;
            }
        }
    }

    fn dot(&self, at: &Call) {
        let d = Dot {
            m: self.m as usize,
            n: self.n as usize,
            k: self.depth() as usize,
            a: at.a.cast(),
            lda: self.lda.unwrap_or(0) as usize,
            b: at.b.cast(),
            ldb: self.c.lane.map_or(0, |l| self.job.b.st[l]) as usize,
            c: at.c.cast(),
            ldc: self.ldc as usize,
            scale: 1.0,
            accumulate: at.accumulate,
        };
        // SAFETY: rows of the current pieces, contiguous along k (checked by the caller).
        unsafe { (self.ctx.kernel.kernels.dot)(&d) };
    }

    /// Reads B where it lies.
    fn panels(&self, at: &Call) {
        let nr = self.kernel.nr();
        let panels = |b: *mut u8, panel: usize, padded: bool| Panels {
            b: b.cast(),
            ldb: self.b_k as usize,
            panel,
            padded,
        };
        let Some(blk) = self.job.b.block else {
            return self.call(at, panels(at.b, nr, false), self.n);
        };
        if blk.size as usize == nr {
            return self.call(at, panels(at.b, blk.stride as usize, true), self.n);
        }
        let padded = (blk.size as usize).is_multiple_of(kernel_lanes(&self.kernel));
        let mut n = 0;
        while n < self.n {
            let b =
                at.b.wrapping_offset((n / blk.size * blk.stride * 4) as isize);
            let c = at.c.wrapping_offset((n * 4) as isize);
            let columns = blk.size.min(self.n - n);
            self.call(&Call { c, ..*at }, panels(b, nr, padded), columns);
            n += blk.size;
        }
    }

    /// Packs B into panels first.
    fn packed(&self, at: &Call) {
        let (k, nr) = (self.ctx.kernel, self.kernel.nr());
        let (depth, to) = (self.depth() as usize, self.ctx.scratch.wrapping_add(k.pack));
        // SAFETY: the pack area has room (checked in `how`); B's elements are the tile's.
        unsafe {
            (k.kernels.pack_b)(
                depth,
                self.n as usize,
                at.b.cast(),
                self.b_k as usize,
                self.b_lane as usize,
                nr,
                to.cast(),
            );
        }
        let panels = Panels {
            b: to.cast(),
            ldb: nr,
            panel: depth * nr,
            padded: true,
        };
        self.call(at, panels, self.n);
    }

    /// The product with `n` columns of B, which lie at `b`.
    fn call(&self, at: &Call, b: Panels, n: i64) {
        if let Some(lda) = self.lda {
            let g = Gemm {
                m: self.m as usize,
                n: n as usize,
                k: self.depth() as usize,
                a: at.a.cast(),
                lda: lda as usize,
                a_ks: match self.depth() {
                    1 => 1,
                    _ => self.a_ks() as usize,
                },
                b,
                c: at.c.cast(),
                ldc: self.ldc as usize,
                accumulate: at.accumulate,
                post: self.job.post,
            };
            if let Some(t) = self.ctx.trace {
                let job = self.job;
                let buffers = [job.a.buffer, job.b.buffer, job.c.buffer];
                match self.plain {
                    true => t.gemm(&self.kernel, &g, buffers, job.sources, self.ctx.bufs),
                    false => t.spoil(),
                }
            }
            // SAFETY: the pieces' own rows; strides are those of their views.
            unsafe { self.kernel.gemm(&g) };
            return;
        }
        let ctx = self.ctx;
        let len = &ctx.len;
        let table = ctx
            .scratch
            .wrapping_add(ctx.kernel.table)
            .cast::<*const f32>();
        let mr = self.kernel.mr() as i64;
        let per = ((ctx.kernel.pointers() / self.nkb.max(1)) / mr * mr).max(1);
        let mut row = 0;
        while row < self.m {
            let count = per.min(self.m - row);
            let mut t = [0i64; MAX_AXES];
            let mut kb = 0;
            loop {
                let mut here = *at.org;
                let mut off = 0;
                for &x in self.order.taps.as_slice() {
                    here[x] += t[x];
                    off += t[x] * self.job.a.st[x];
                }
                let rows = Rows {
                    ctx,
                    rows: self.order.rows.as_slice(),
                    view: self.job.a,
                    bounds: self.job.bounds,
                    outside: self.job.outside,
                    org: here,
                    base: at.a.wrapping_offset((off * 4) as isize),
                };
                // SAFETY: `per * nkb` pointers fit the table.
                unsafe { rows.fill(row, count, table.add((kb * count) as usize)) };
                kb += 1;
                if !next(self.order.taps.as_slice(), &mut t, len) {
                    break;
                }
            }
            let g = Indirect {
                m: count as usize,
                n: n as usize,
                nkb: self.nkb as usize,
                kc: self.kc as usize,
                table,
                table_ld: count as usize,
                a_offset: 0,
                a_ks: self.order.kin.map_or(1, |k| self.job.a.st[k]) as usize,
                b,
                c: at.c.wrapping_offset((row * self.ldc * 4) as isize).cast(),
                ldc: self.ldc as usize,
                accumulate: at.accumulate,
                post: self.job.post,
            };
            // SAFETY: the table names rows of the piece, or zeros as long as any row's block.
            unsafe { self.kernel.indirect(&g) };
            row += count;
        }
    }
}
