//! Window reductions without copies: a load that reaches outside its tensor and the fold that reads it,
//! where what lies outside changes nothing.
use super::fold::next;
use super::vm::{CH, narrow, widen};
use super::{CBound, CPool, Ctx, Fault, Lift, MAX_AXES, Op, View};

/// Runs a window reduction on the current piece, by `ops` where it lies otherwise than the short way needs.
pub(crate) fn run(
    ctx: &mut Ctx,
    c: &CPool,
    ops: impl Fn(&mut Ctx, &[Op]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if fast(ctx, c) {
        Ok(())
    } else {
        ops(ctx, &c.body)
    }
}

fn fast(ctx: &Ctx, c: &CPool) -> bool {
    let f = &c.fold;
    let Some(lane) = f.lane else { return false };
    let all = f.kept.iter().chain(&f.reduced).chain([&lane]);
    if all.into_iter().any(|&a| ctx.len[a] <= 0) {
        return true;
    }
    let o = &ctx.kernel.operands[c.operand];
    let mask = ctx.kernel.tiles[c.tile].mask;
    let Some(mut a) = o.access.view(ctx, mask, o, false) else {
        return false;
    };
    let s = ctx.views[f.state[0]];
    let Some((wide, at)) = &c.wide else {
        return windows(ctx, c, lane, a, s);
    };
    // The state without gaps, so that it widens in one piece.
    let mut dense = 1;
    for &x in ctx.kernel.tiles[f.state[0]].axes.iter().rev() {
        if ctx.len[x] > 1 && s.st[x] != dense {
            return false;
        }
        dense *= ctx.len[x];
    }
    let Some(window) = wide.fill(ctx, o, mask) else {
        return false;
    };
    let mut state = s;
    state.ptr = ctx.scratch.wrapping_add(*at);
    let n = dense as usize;
    // SAFETY: the state's elements, and as many of its copy.
    unsafe { widen(wide.dtype, s.ptr.cast(), state.ptr.cast(), n) };
    window.turn(&mut a);
    let done = windows(ctx, c, lane, a, state);
    if done {
        // SAFETY: as above.
        unsafe { narrow(wide.dtype, state.ptr.cast(), s.ptr.cast(), n) };
    }
    done
}

/// `to[i] = from[i * step]` for i below n.
///
/// # Safety
/// They are there, and apart.
unsafe fn apart(from: *const f32, step: isize, to: *mut f32, n: usize) {
    // SAFETY: as the caller says.
    unsafe {
        if step == 2 {
            // Known to the compiler, it is a matter of shuffles.
            let mut i = 0;
            while i + 8 < n {
                let pairs = *from.add(2 * i).cast::<[[f32; 2]; 8]>();
                *to.add(i).cast::<[f32; 8]>() = pairs.map(|p| p[0]);
                i += 8;
            }
            (i..n).for_each(|i| *to.add(i) = *from.add(2 * i));
            return;
        }
        (0..n).for_each(|i| *to.add(i) = *from.offset(i as isize * step));
    }
}

/// Folds windows of `a` into `s`, both f32.
fn windows(ctx: &Ctx, c: &CPool, lane: usize, a: View, s: View) -> bool {
    let f = &c.fold;
    let o = &ctx.kernel.operands[c.operand];
    let n = ctx.len[lane];
    if n > 1 && s.st[lane] != 1 || c.simple.lift != Lift::Identity {
        return false;
    }
    // Lanes that lie apart are brought together first, in the row of the fold's temporaries.
    let step = if n > 1 { a.st[lane] } else { 1 };
    let near = ctx.area(f.rows).cast::<f32>();
    // The innermost kept axis is swept for each position of the window.
    let x = f.kept.iter().rev().copied().find(|&k| ctx.len[k] > 1);
    let (mut rows, mut count) = ([0usize; MAX_AXES], 0);
    for &k in f.kept.iter().filter(|&&k| Some(k) != x) {
        rows[count] = k;
        count += 1;
    }
    let rows = &rows[..count];
    let moves = |b: &CBound, axis| {
        let own = |t: &&(usize, u32)| Some(t.0) == axis && ctx.param(t.1) != 0;
        b.terms.iter().find(own).is_some()
    };
    let both = |b: &CBound| moves(b, x) && moves(b, Some(lane));
    if o.access.bounds.iter().any(both) {
        return false;
    }
    let m = x.map_or(1, |x| ctx.len[x]);
    let (sx, ax) = x.map_or((0, 0), |x| (s.st[x], a.st[x]));
    let at = |v: &View, r: &[i64; MAX_AXES], t: &[i64; MAX_AXES]| {
        let off: i64 = f.kept.iter().map(|&k| r[k] * v.st[k]).sum::<i64>()
            + f.reduced.iter().map(|&k| t[k] * v.st[k]).sum::<i64>();
        v.ptr.wrapping_offset((off * 4) as isize).cast::<f32>()
    };
    let mut r = [0i64; MAX_AXES];
    loop {
        let mut t = [0i64; MAX_AXES];
        loop {
            // Positions of the innermost kept axis, and lanes, whose element is there.
            let (mut lo, mut hi) = (0, m);
            let (mut from, mut to) = (0, n);
            for b in &o.access.bounds {
                let (mut v, mut per, mut across) = (ctx.param(b.base), 0, 0);
                for &(axis, k) in &b.terms {
                    let k = ctx.param(k);
                    v += k * (ctx.org[axis] + r[axis] + t[axis]);
                    if Some(axis) == x {
                        per = k;
                    } else if axis == lane {
                        across = k;
                    }
                }
                let extent = ctx.param(b.extent);
                match across {
                    0 => super::contract::clip(v, per, extent, &mut lo, &mut hi),
                    _ => super::contract::clip(v, across, extent, &mut from, &mut to),
                }
            }
            let (lo, hi) = (lo.clamp(0, m), hi.clamp(0, m));
            let (from, to) = (from.clamp(0, n), to.clamp(0, n));
            let (p, q) = (at(&s, &r, &[0; MAX_AXES]), at(&a, &r, &t));
            let row = |i: i64, lanes: std::ops::Range<i64>| {
                let (mut p, mut q) = (
                    p.wrapping_offset((i * sx + lanes.start) as isize),
                    q.wrapping_offset((i * ax + lanes.start * step) as isize),
                );
                let mut left = (lanes.end - lanes.start).max(0) as usize;
                // SAFETY: elements of the state's and of the operand's current piece, inside the bounds; the
                // row of temporaries has CH elements and more.
                unsafe {
                    if step == 1 {
                        (c.simple.combine)(p, q, p, left);
                        return;
                    }
                    while left > 0 {
                        let some = left.min(CH);
                        apart(q, step as isize, near, some);
                        (c.simple.combine)(p, near, p, some);
                        (p, q) = (p.add(some), q.offset(some as isize * step as isize));
                        left -= some;
                    }
                }
            };
            if lo < hi && sx == n && ax == n && step == 1 && (from, to) == (0, n) {
                row(lo, 0..(hi - lo) * n);
            } else {
                (lo..hi).for_each(|i| row(i, from..to));
            }
            if !next(&f.reduced, &mut t, ctx) {
                break;
            }
        }
        if !next(rows, &mut r, ctx) {
            return true;
        }
    }
}
