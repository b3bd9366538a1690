//! Products in which every lane has its own sum.
//!
//! Along the innermost row axis, pixels whose taps are all inside need one pointer per tap for the whole
//! run; pixels at the rim get a table of their own, taps outside pointing to zeros.
use super::{CContract, Job, List, Rows, TABLE, next};
use crate::exec::access::CAccess;
use crate::exec::{Axes, Ctx, MAX_AXES, View};
use crate::ukr::Depthwise;

/// What is the same for every run of pixels.
struct Plan<'a> {
    ctx: &'a Ctx<'a>,
    taps: List,
    /// Innermost row axis.
    x: Option<usize>,
    view: &'a View,
    bounds: Option<&'a CAccess>,
    table: *mut *const f32,
    call: Depthwise,
    /// Taps whose pointers lie a pixel apart come in runs of this many.
    run: usize,
}

fn shift(p: *const u8, n: i64) -> *const f32 {
    p.wrapping_offset((n * 4) as isize).cast()
}

/// False when the operands do not lie as the micro-kernel needs them.
pub(super) fn run(ctx: &Ctx, c: &CContract, job: &Job) -> bool {
    let len = &ctx.len;
    let Some(lane) = c.lane else { return false };
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
    let n = len[lane];
    if n > 1 && [&job.a, &job.b, &job.c].iter().any(|v| v.st[lane] != 1) || job.b.block.is_some() {
        return false;
    }
    let bounded = |a: usize| {
        job.bounds.is_some_and(|b| {
            b.bounds
                .iter()
                .any(|b| b.terms.iter().any(|t| t.0 == a && ctx.param(t.1) != 0))
        })
    };
    if bounded(lane) {
        return false;
    }
    let mut taps = List::long(&c.over, len);
    taps.a[..taps.n].sort_unstable_by_key(|&a| std::cmp::Reverse(job.b.st[a]));
    let mut outer = List::NONE;
    taps.merge(len, &job.b.st, &mut outer);
    let summed = outer.n;
    let mut rows = List::long(&c.rows, len);
    let x = rows.as_slice().last().copied();
    rows.n = rows.n.saturating_sub(1);
    for &a in rows
        .as_slice()
        .iter()
        .chain(List::long(&c.columns, len).as_slice())
        .chain(List::long(&c.batch, len).as_slice())
    {
        outer.push(a);
    }
    let nt = taps.count(len);
    let ldw = taps.inner(&job.b.st);
    let (x_step, out_step) = x.map_or((0, 0), |a| (job.a.st[a], job.c.st[a]));
    if nt > TABLE as i64 / 2 || ldw < 0 || out_step < 0 {
        return false;
    }
    let run = match taps.as_slice().last() {
        Some(&s) if x_step > 0 && job.a.st[s] == x_step => len[s] as usize,
        _ => 1,
    };
    let mut p = Plan {
        ctx,
        taps,
        x,
        view: &job.a,
        bounds: job.bounds,
        table: ctx.scratch.wrapping_add(ctx.kernel.table).cast(),
        call: Depthwise {
            pixels: 0,
            channels: n as usize,
            taps: nt as usize,
            run: 1,
            table: std::ptr::null(),
            table_step: nt as usize,
            x_step: 0,
            x_offset: 0,
            w: std::ptr::null(),
            ldw: ldw as usize,
            out: std::ptr::null_mut(),
            out_step: out_step as usize,
            bias: std::ptr::null(),
            accumulate: false,
        },
        run,
    };
    let axes = outer.as_slice();
    let mut o = [0i64; MAX_AXES];
    loop {
        let (mut a, mut b, mut d) = (0, 0, 0);
        let mut org = ctx.org;
        for &x in axes {
            a += o[x] * job.a.st[x];
            b += o[x] * job.b.st[x];
            d += o[x] * job.c.st[x];
            org[x] += o[x];
        }
        let first = axes[..summed].iter().all(|&x| o[x] == 0);
        p.call.accumulate = job.accumulate || !first;
        p.row(
            shift(job.a.ptr, a),
            shift(job.b.ptr, b),
            shift(job.c.ptr, d).cast_mut(),
            &org,
        );
        if !next(axes, &mut o, len) {
            return true;
        }
    }
}

impl Plan<'_> {
    /// Pixels along the innermost row axis, from `a` on, at the coordinates `org` of the other axes.
    fn row(&self, a: *const f32, w: *const f32, out: *mut f32, org: &Axes<i64>) {
        let m = self.x.map_or(1, |x| self.ctx.len[x]);
        let x_step = self.x.map_or(0, |x| self.view.st[x]);
        let (mut lo, mut hi) = (0, m);
        let (mut from, mut to) = (usize::MAX, 0);
        let mut gaps = false;
        let mut t = [0i64; MAX_AXES];
        let mut at = 0;
        loop {
            let (l, h) = self.inside(&t, org, m);
            if l < h {
                gaps |= from != usize::MAX && to != at;
                from = from.min(at);
                to = at + 1;
                (lo, hi) = (lo.max(l), hi.min(h));
                let off: i64 = self
                    .taps
                    .as_slice()
                    .iter()
                    .map(|&s| t[s] * self.view.st[s])
                    .sum();
                // SAFETY: at most `nt` pointers, which fit half the table.
                unsafe { *self.table.add(at) = shift(a.cast(), off) };
            }
            at += 1;
            if !next(self.taps.as_slice(), &mut t, &self.ctx.len) {
                break;
            }
        }
        if gaps || from == usize::MAX || hi - lo < 2 || x_step < 0 {
            self.rim(0, m, a, w, out, org);
            return;
        }
        let whole = from.is_multiple_of(self.run) && (to - from).is_multiple_of(self.run);
        let d = Depthwise {
            pixels: (hi - lo) as usize,
            taps: to - from,
            run: if whole { self.run } else { 1 },
            table: self.table.wrapping_add(from),
            table_step: 0,
            x_step: x_step as usize,
            x_offset: (lo * x_step) as usize,
            w: w.wrapping_add(from * self.call.ldw),
            out: out.wrapping_add(lo as usize * self.call.out_step),
            ..self.call
        };
        // SAFETY: every tap of these pixels is inside the tensor.
        unsafe { (self.ctx.kernel.kernels.depthwise)(&d) };
        self.rim(0, lo, a, w, out, org);
        self.rim(hi, m, a, w, out, org);
    }

    /// Pixels of which tap `t` is inside.
    fn inside(&self, t: &Axes<i64>, org: &Axes<i64>, m: i64) -> (i64, i64) {
        let (mut lo, mut hi) = (0, m);
        for b in self.bounds.iter().flat_map(|b| &b.bounds) {
            let mut v = self.ctx.param(b.base);
            let mut per = 0;
            for &(a, k) in &b.terms {
                let k = self.ctx.param(k);
                let tap = if self.taps.as_slice().contains(&a) {
                    t[a]
                } else {
                    0
                };
                v += k * (org[a] + tap);
                if Some(a) == self.x {
                    per = k;
                }
            }
            super::clip(v, per, self.ctx.param(b.extent), &mut lo, &mut hi);
        }
        (lo.clamp(0, m), hi.clamp(0, m))
    }

    /// Pixels `from..to` by a table of every pixel's taps.
    fn rim(
        &self,
        from: i64,
        to: i64,
        a: *const f32,
        w: *const f32,
        out: *mut f32,
        org: &Axes<i64>,
    ) {
        let nt = self.call.taps;
        let per = (TABLE as i64 / nt.max(1) as i64).max(1);
        let rows: &[usize] = self.x.as_slice();
        let mut row = from;
        while row < to {
            let count = per.min(to - row);
            let mut t = [0i64; MAX_AXES];
            let mut at = 0;
            loop {
                let mut here = *org;
                let mut off = 0;
                for &x in self.taps.as_slice() {
                    here[x] += t[x];
                    off += t[x] * self.view.st[x];
                }
                let r = Rows {
                    ctx: self.ctx,
                    rows,
                    view: self.view,
                    bounds: self.bounds,
                    org: here,
                    base: shift(a.cast(), off).cast_mut().cast(),
                };
                // SAFETY: `per * nt` pointers fit the table.
                unsafe { r.fill(row, count, self.table.add(at), nt) };
                at += 1;
                if !next(self.taps.as_slice(), &mut t, &self.ctx.len) {
                    break;
                }
            }
            let d = Depthwise {
                pixels: count as usize,
                table: self.table,
                w,
                out: out.wrapping_add(row as usize * self.call.out_step),
                ..self.call
            };
            // SAFETY: the table names rows of the piece, or zeros as long as the lanes.
            unsafe { (self.ctx.kernel.kernels.depthwise)(&d) };
            row += count;
        }
    }
}
