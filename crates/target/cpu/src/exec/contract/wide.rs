//! Factors of 16 bits: what a nest reads of one is widened to f32 once, as it lies, so that the products
//! run on the micro-kernels of f32 with the same strides.
use crate::exec::access::term_address;
use crate::exec::vm::widen;
use crate::exec::{CAccess, COperand, CTerm, CWide, Ctx, MAX_AXES, View};

/// A widened factor at work.
#[derive(Clone, Copy)]
pub(crate) struct Widened {
    from: *mut u8,
    to: *mut u8,
}

/// First element that the current piece of the axes in `mask` reads inside the bounds, and the number of those
/// from there to its last; `None` where bounds and addresses are not proportional.
fn range(a: &CAccess, ctx: &Ctx, mask: u32) -> Option<(i64, i64)> {
    let len = |x: usize| if mask >> x & 1 == 1 { ctx.len[x] } else { 1 };
    let empty = (0..MAX_AXES).any(|x| len(x) <= 0);
    if empty || a.bounds.iter().any(|b| ctx.param(b.extent) <= 0) {
        return Some((0, 0));
    }
    let (mut lo, mut hi) = (ctx.param(a.offset), ctx.param(a.offset));
    let piece = |x: usize| (ctx.org[x], ctx.org[x] + len(x) - 1);
    let mut bounded = 0u32;
    for b in &a.bounds {
        // Rows per step of the bound, the same for each of its axes.
        let mut step = None;
        let (mut first, mut last) = (ctx.param(b.base), ctx.param(b.base));
        for &(x, c) in &b.terms {
            let c = ctx.param(c);
            if c == 0 {
                continue;
            }
            let t = a.terms.iter().find(|t| t.axis == x)?;
            let [(_, st)] = t.leaves.as_slice() else {
                return None;
            };
            let st = ctx.param(*st);
            if st % c != 0 || step.is_some_and(|s| s != st / c) || bounded >> x & 1 == 1 {
                return None;
            }
            step = Some(st / c);
            bounded |= 1 << x;
            let (p, q) = piece(x);
            first += (c * p).min(c * q);
            last += (c * p).max(c * q);
        }
        let Some(step) = step else { continue };
        let base = ctx.param(b.base);
        let extent = ctx.param(b.extent);
        let (first, last) = (first.clamp(0, extent - 1), last.clamp(0, extent - 1));
        let (p, q) = (step * (first - base), step * (last - base));
        lo += p.min(q);
        hi += p.max(q);
    }
    for t in a.terms.iter().filter(|t| bounded >> t.axis & 1 == 0) {
        let (p, q) = piece(t.axis);
        if let [(_, st)] = t.leaves.as_slice() {
            let st = ctx.param(*st);
            lo += (st * p).min(st * q);
            hi += (st * p).max(st * q);
            continue;
        }
        let ends = [p, q].map(|x| term_address(t, ctx.p, x));
        if rises(t, ctx.p) {
            lo += ends[0];
            hi += ends[1];
            continue;
        }
        // In blocks that repeat or overlap: from the start of one to its end, where the piece has all of it.
        let &(size, inner) = t.leaves.last()?;
        let (size, inner) = (ctx.param(size).max(1), ctx.param(inner));
        let starts = [p, q].map(|x| x - x.rem_euclid(size));
        if inner < 0 || starts[0] != p || starts[1] + size - 1 != q {
            return None;
        }
        let at = starts.map(|x| term_address(t, ctx.p, x));
        lo += at[0].min(at[1]);
        hi += at[0].max(at[1]) + inner * (size - 1);
    }
    (lo >= 0 && lo <= hi).then(|| (lo, hi - lo + 1))
}

/// Whether a position further along the axis never lies before an earlier one.
fn rises(t: &CTerm, p: &[i64]) -> bool {
    let leaves = t.leaves.iter().rev();
    let mut leaves = leaves.map(|&(size, st)| (p[size as usize].max(1), p[st as usize]));
    let reach = leaves.try_fold(0i64, |reach, (size, st)| {
        (st >= reach).then(|| st.saturating_mul(size - 1).saturating_add(reach))
    });
    reach.is_some()
}

impl CWide {
    /// Widens what the current piece of the axes in `mask` reads of `o`; `None` where it has no room.
    pub(crate) fn fill(&self, ctx: &Ctx, o: &COperand, mask: u32) -> Option<Widened> {
        let (lo, n) = range(&o.access, ctx, mask)?;
        let n = usize::try_from(n).ok().filter(|&n| n <= self.room)?;
        let to = ctx.scratch.wrapping_add(self.offset);
        let from = ctx.bufs[o.buffer].wrapping_offset(lo as isize * 2);
        // SAFETY: the first and the last of the elements, where there are any, are the operand's, and so is what
        // lies between; the scratch has room for them.
        unsafe { widen(self.dtype, from.cast(), to.cast(), n) };
        Some(Widened { from, to })
    }
}

impl Widened {
    /// Makes `v`, a view of the operand, one of its widened copy.
    pub(crate) fn turn(&self, v: &mut View) {
        let bytes = (v.ptr as isize).wrapping_sub(self.from as isize);
        v.ptr = self.to.wrapping_offset(bytes * 2);
    }
}
