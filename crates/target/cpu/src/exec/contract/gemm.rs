//! Matrix products: strided rows, row tables (convolutions) and dot products.
use super::job::{Job, List, Rows, next};
use crate::exec::{CContract, Ctx, MAX_AXES};
use crate::ukr::{Dot, Gemm, GemmKernel, Indirect, Panels};

/// One product without batch: what is the same for each call.
struct Plan<'a> {
    ctx: &'a Ctx<'a>,
    c: &'a CContract,
    job: &'a Job<'a>,
    rows: List,
    taps: List,
    kin: Option<usize>,
    m: i64,
    n: i64,
    kc: i64,
    nkb: i64,
    lda: Option<i64>,
    ldc: i64,
    /// B is read where it lies: a call is all there is to it.
    plain: bool,
}

/// False when the operands do not lie as a micro-kernel needs them.
pub(super) fn run(ctx: &Ctx, c: &CContract, job: &Job) -> bool {
    let len = &ctx.len;
    let Some(kernel) = c.gemm else { return false };
    // Blocks of B are panels of lanes; along another axis they leave it without a stride.
    if job.b.block.is_some_and(|b| Some(b.axis) != c.lane) {
        return false;
    }
    if c.rows
        .iter()
        .chain(&c.columns)
        .chain(&c.batch)
        .chain(&c.lane)
        .any(|&a| len[a] <= 0)
    {
        return true;
    }
    if c.over.iter().any(|&a| len[a] <= 0) {
        return job.accumulate;
    }
    let n = c.lane.map_or(1, |a| len[a]);
    let lane_st = |v: &crate::exec::View| c.lane.map_or(1, |a| v.st[a]);
    if n > 1 && lane_st(job.c) != 1 {
        return false;
    }
    let bounded = |a: usize| {
        job.bounds.is_some_and(|b| {
            b.bounds
                .iter()
                .any(|b| b.terms.iter().any(|t| t.0 == a && ctx.param(t.1) != 0))
        })
    };
    if c.lane.is_some_and(&bounded) {
        return false;
    }
    // The block of k: the summed axis that is contiguous in A, else the longest.
    let long = List::long(&c.over, len);
    let free = |a: &&usize| !bounded(**a) && job.a.st[**a] >= 0;
    let kin = long
        .as_slice()
        .iter()
        .filter(free)
        .find(|&&a| job.a.st[a] == 1)
        .or_else(|| long.as_slice().iter().filter(free).max_by_key(|&&a| len[a]))
        .copied();
    let kc = kin.map_or(1, |a| len[a]);
    let mut taps = List::NONE;
    for &a in long.as_slice() {
        if Some(a) != kin {
            taps.push(a);
        }
    }
    // Taps in the order of B's rows.
    let sorted = &mut taps.a[..taps.n];
    sorted.sort_unstable_by_key(|&a| std::cmp::Reverse(job.b.st[a]));
    let mut outer = List::NONE;
    if let (Some(k), true) = (kin, taps.n > 0) {
        let mut with = taps;
        with.push(k);
        let mut peeled = List::NONE;
        with.merge(len, &job.b.st, &mut peeled);
        for &a in peeled.as_slice() {
            outer.push(a);
        }
        with.n -= 1;
        taps = with;
    } else {
        taps.merge(len, &job.b.st, &mut outer);
    }
    let taps_outer = outer.n;
    let mut rows = List::long(&c.rows, len);
    let merged_c = {
        let mut peeled = List::NONE;
        rows.merge(len, &job.c.st, &mut peeled);
        peeled
    };
    for &a in merged_c.as_slice() {
        outer.push(a);
    }
    for &a in List::long(&c.columns, len)
        .as_slice()
        .iter()
        .chain(List::long(&c.batch, len).as_slice())
    {
        outer.push(a);
    }
    let (m, nkb) = (rows.count(len), taps.count(len));
    // Rows of A in one stride, when they are; taps likewise.
    let mut lda = None;
    if job.bounds.is_none() {
        let (mut r, mut peeled) = (rows, List::NONE);
        r.merge(len, &job.a.st, &mut peeled);
        let (mut t, mut cut) = (taps, List::NONE);
        if let Some(k) = kin {
            t.push(k);
        }
        t.merge(len, &job.a.st, &mut cut);
        let st = rows.inner(&job.a.st);
        if peeled.n == 0 && cut.n == 0 && st >= 0 {
            lda = Some(st);
        }
    }
    if kin.is_none() && taps.n > 0 && job.a.st[taps.a[taps.n - 1]] < 0 {
        lda = None;
    }
    // Groups are contiguous along k only within one block of it.
    if c.grouped && kin.is_none() && taps.n > 0 {
        lda = None;
    }
    let ldc = rows.inner(&job.c.st);
    if ldc < 0 || (lda.is_none() && nkb > ctx.kernel.pointers()) {
        return false;
    }
    let p = Plan {
        ctx,
        c,
        job,
        rows,
        taps,
        kin,
        m,
        n,
        kc,
        nkb,
        lda,
        ldc,
        plain: false,
    };
    let k_total = kc * nkb;
    let b_k = match kin {
        Some(a) => job.b.st[a],
        None => taps.inner(&job.b.st),
    };
    if b_k < 0 || (n > 1 && lane_st(job.b) < 0) {
        return false;
    }
    // How B lies.
    let unit = n == 1 || lane_st(job.b) == 1 || job.b.block.is_some();
    let how = if unit {
        How::Panels
    } else if b_k == 1 && p.lda.is_some() && a_ks(&p) == 1 && m < 16 {
        How::Dot
    } else if (k_total
        * ((n + kernel.nr() as i64 - 1) / kernel.nr() as i64)
        * kernel.nr() as i64
        * 4) as usize
        <= c.pack
    {
        How::Pack
    } else if b_k == 1 && p.lda.is_some() && a_ks(&p) == 1 {
        How::Dot
    } else {
        return false;
    };
    if c.grouped && (how != How::Panels || kin.is_some() && a_ks(&p) != 1) {
        return false;
    }
    // Sums must be whole when something is done to them, and a vector's length of columns apart.
    let apart = job.b.block.is_some_and(|b| b.size as usize != kernel.nr());
    if job.post.any() && (how == How::Dot || taps_outer > 0 || apart || n == 1) {
        return false;
    }
    if !c.grouped
        && n == 1
        && how == How::Panels
        && b_k == 1
        && p.lda.is_some()
        && a_ks(&p) == 1
        && k_total > 1
    {
        // A matrix times a vector: sums run along the vectors.
        return p.each(&outer, taps_outer, |p, a, b, c, acc, _| p.dot(a, b, c, acc));
    }
    let p = Plan {
        plain: how == How::Panels,
        ..p
    };
    match how {
        How::Dot => p.each(&outer, taps_outer, |p, a, b, c, acc, _| p.dot(a, b, c, acc)),
        How::Panels => p.each(&outer, taps_outer, |p, a, b, c, acc, org| {
            let lanes = kernel_lanes(&kernel);
            match job.b.block {
                None => p.call(
                    &kernel,
                    a,
                    Panels {
                        b: b.cast(),
                        ldb: b_k as usize,
                        panel: kernel.nr(),
                        padded: false,
                    },
                    n,
                    c,
                    acc,
                    org,
                ),
                Some(blk) if blk.size as usize == kernel.nr() => p.call(
                    &kernel,
                    a,
                    Panels {
                        b: b.cast(),
                        ldb: b_k as usize,
                        panel: blk.stride as usize,
                        padded: true,
                    },
                    n,
                    c,
                    acc,
                    org,
                ),
                Some(blk) => {
                    let padded = (blk.size as usize).is_multiple_of(lanes);
                    let mut at = 0;
                    while at < n {
                        let b = b.wrapping_offset((at / blk.size * blk.stride * 4) as isize);
                        let panels = Panels {
                            b: b.cast(),
                            ldb: b_k as usize,
                            panel: kernel.nr(),
                            padded,
                        };
                        p.call(
                            &kernel,
                            a,
                            panels,
                            blk.size.min(n - at),
                            c.wrapping_offset((at * 4) as isize),
                            acc,
                            org,
                        );
                        at += blk.size;
                    }
                }
            }
        }),
        How::Pack => p.each(&outer, taps_outer, |p, a, b, c, acc, org| {
            let nr = kernel.nr();
            let to = ctx.scratch.wrapping_add(ctx.kernel.pack);
            // SAFETY: the pack area has room (checked above); B's elements are the tile's.
            unsafe {
                (ctx.kernel.kernels.pack_b)(
                    k_total as usize,
                    n as usize,
                    b.cast(),
                    b_k as usize,
                    lane_st(job.b) as usize,
                    nr,
                    to.cast(),
                );
            }
            let panels = Panels {
                b: to.cast(),
                ldb: nr,
                panel: k_total as usize * nr,
                padded: true,
            };
            p.call(&kernel, a, panels, n, c, acc, org);
        }),
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

/// Stride of A along k, when taps and block are one.
fn a_ks(p: &Plan) -> i64 {
    match p.kin {
        Some(a) => p.job.a.st[a],
        None => p.taps.inner(&p.job.a.st),
    }
}

impl Plan<'_> {
    /// Calls `f` (a, b, c, accumulate, coordinates) for every position of the outer axes; the first
    /// `taps` of them are summed.
    fn each(
        &self,
        outer: &List,
        taps: usize,
        f: impl Fn(&Plan, *mut u8, *mut u8, *mut u8, bool, &[i64; MAX_AXES]),
    ) -> bool {
        let (ctx, job) = (self.ctx, self.job);
        let axes = outer.as_slice();
        let mut c = [0i64; MAX_AXES];
        loop {
            let (mut a, mut b, mut o) = (0, 0, 0);
            for &x in axes {
                a += c[x] * job.a.st[x];
                b += c[x] * job.b.st[x];
                o += c[x] * job.c.st[x];
            }
            let first = axes[..taps].iter().all(|&x| c[x] == 0);
            let shift = |p: *mut u8, n: i64| p.wrapping_offset((n * 4) as isize);
            let mut org = ctx.org;
            for &x in axes {
                org[x] += c[x];
            }
            f(
                self,
                shift(job.a.ptr, a),
                shift(job.b.ptr, b),
                shift(job.c.ptr, o),
                job.accumulate || !first,
                &org,
            );
            if !next(axes, &mut c, &ctx.len) {
                return true;
            }
        }
    }

    fn dot(&self, a: *mut u8, b: *mut u8, c: *mut u8, accumulate: bool) {
        let lane = self.c.lane;
        let d = Dot {
            m: self.m as usize,
            n: self.n as usize,
            k: (self.kc * self.nkb) as usize,
            a: a.cast(),
            lda: self.lda.unwrap_or(0) as usize,
            b: b.cast(),
            ldb: lane.map_or(0, |l| self.job.b.st[l]) as usize,
            c: c.cast(),
            ldc: self.ldc as usize,
            scale: 1.0,
            accumulate,
        };
        // SAFETY: rows of the current pieces, contiguous along k (checked by the caller).
        unsafe { (self.ctx.kernel.kernels.dot)(&d) };
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of one product")]
    fn call(
        &self,
        kernel: &GemmKernel,
        a: *mut u8,
        b: Panels,
        n: i64,
        c: *mut u8,
        accumulate: bool,
        org: &[i64; MAX_AXES],
    ) {
        if let Some(lda) = self.lda {
            let g = Gemm {
                m: self.m as usize,
                n: n as usize,
                k: (self.kc * self.nkb) as usize,
                a: a.cast(),
                lda: lda as usize,
                a_ks: if self.kc * self.nkb == 1 {
                    1
                } else {
                    a_ks(self) as usize
                },
                b,
                c: c.cast(),
                ldc: self.ldc as usize,
                accumulate,
                post: self.job.post,
            };
            if let Some(t) = self.ctx.trace {
                let job = self.job;
                let buffers = [job.a.buffer, job.b.buffer, job.c.buffer];
                match self.plain {
                    true => t.gemm(kernel, &g, buffers, job.sources, self.ctx.bufs),
                    false => t.spoil(),
                }
            }
            // SAFETY: the pieces' own rows; strides are those of their views.
            unsafe { kernel.gemm(&g) };
            return;
        }
        let ctx = self.ctx;
        let len = &ctx.len;
        let table = ctx
            .scratch
            .wrapping_add(ctx.kernel.table)
            .cast::<*const f32>();
        let mr = kernel.mr() as i64;
        let per = ((ctx.kernel.pointers() / self.nkb.max(1)) / mr * mr).max(1);
        let mut row = 0;
        while row < self.m {
            let count = per.min(self.m - row);
            let mut t = [0i64; MAX_AXES];
            let mut kb = 0;
            loop {
                let mut here = *org;
                let mut off = 0;
                for &x in self.taps.as_slice() {
                    here[x] += t[x];
                    off += t[x] * self.job.a.st[x];
                }
                let rows = Rows {
                    ctx,
                    rows: self.rows.as_slice(),
                    view: self.job.a,
                    bounds: self.job.bounds,
                    outside: self.job.outside,
                    org: here,
                    base: a.wrapping_offset((off * 4) as isize),
                };
                // SAFETY: `per * nkb` pointers fit the table.
                unsafe { rows.fill(row, count, table.add((kb * count) as usize)) };
                kb += 1;
                if !next(self.taps.as_slice(), &mut t, len) {
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
                a_ks: self.kin.map_or(1, |k| self.job.a.st[k]) as usize,
                b,
                c: c.wrapping_offset((row * self.ldc * 4) as isize).cast(),
                ldc: self.ldc as usize,
                accumulate,
                post: self.job.post,
            };
            // SAFETY: the table names rows of the piece, or zeros as long as any row's block.
            unsafe { kernel.indirect(&g) };
            row += count;
        }
    }
}
