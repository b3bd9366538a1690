//! Products in which every lane has its own sum.
use super::{CContract, Job, List, Rows, TABLE, next};
use crate::exec::{Ctx, MAX_AXES};
use crate::ukr::Depthwise;

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
    if bounded(lane) || c.over.iter().any(|&a| len[a] <= 0) {
        return false;
    }
    let mut taps = List::long(&c.over, len);
    taps.a[..taps.n].sort_unstable_by_key(|&a| std::cmp::Reverse(job.b.st[a]));
    let mut outer = List::NONE;
    taps.merge(len, &job.b.st, &mut outer);
    let summed = outer.n;
    let mut rows = List::long(&c.rows, len);
    rows.merge(len, &job.c.st, &mut outer);
    for &a in List::long(&c.columns, len)
        .as_slice()
        .iter()
        .chain(List::long(&c.batch, len).as_slice())
    {
        outer.push(a);
    }
    let (m, nt) = (rows.count(len), taps.count(len));
    let (ldw, out_step) = (taps.inner(&job.b.st), rows.inner(&job.c.st));
    if nt > TABLE as i64 || ldw < 0 || out_step < 0 {
        return false;
    }
    let per = (TABLE as i64 / nt.max(1)).max(1);
    let table = ctx
        .scratch
        .wrapping_add(ctx.kernel.table)
        .cast::<*const f32>();
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
        let shift = |p: *mut u8, n: i64| p.wrapping_offset((n * 4) as isize);
        let mut row = 0;
        while row < m {
            let count = per.min(m - row);
            let mut t = [0i64; MAX_AXES];
            let mut at = 0;
            loop {
                let mut here = org;
                let mut off = a;
                for &x in taps.as_slice() {
                    here[x] += t[x];
                    off += t[x] * job.a.st[x];
                }
                let r = Rows {
                    ctx,
                    rows: rows.as_slice(),
                    view: &job.a,
                    bounds: job.bounds,
                    org: here,
                    base: shift(job.a.ptr, off),
                };
                // SAFETY: `per * nt` pointers fit the table.
                unsafe { r.fill(row, count, table.add(at), nt as usize) };
                at += 1;
                if !next(taps.as_slice(), &mut t, len) {
                    break;
                }
            }
            let call = Depthwise {
                pixels: count as usize,
                channels: n as usize,
                taps: nt as usize,
                run: 1,
                table,
                table_step: nt as usize,
                x_step: 0,
                x_offset: 0,
                w: shift(job.b.ptr, b).cast(),
                ldw: ldw as usize,
                out: shift(job.c.ptr, d + row * out_step).cast(),
                out_step: out_step as usize,
                bias: std::ptr::null(),
                accumulate: job.accumulate || !first,
            };
            // SAFETY: the table names rows of the piece, or zeros as long as the lanes.
            unsafe { (ctx.kernel.kernels.depthwise)(&call) };
            row += count;
        }
        if !next(axes, &mut o, len) {
            return true;
        }
    }
}
