//! What a contraction works on, and the rows of its factor.

use crate::exec::calls::Sources;
use crate::exec::{Axes, CAccess, CContract, Ctx, MAX_AXES, View};
use crate::ukr::Post;

/// Pointers in a row table.
pub(crate) const TABLE: usize = 16 * 1024;

/// What a contraction works on: the current piece's views.
pub(crate) struct Job<'a> {
    pub a: &'a View,
    pub b: &'a View,
    pub c: &'a View,
    /// Bounds of A that do not hold everywhere: elements outside count as zeros.
    pub bounds: Option<&'a CAccess>,
    /// What is read outside them, as long as any row's block.
    pub outside: *const u8,
    pub accumulate: bool,
    /// What is done to finished sums.
    pub post: Post,
    /// Where that comes from.
    pub sources: Sources,
}

impl Job<'_> {
    /// Whether something was done where nothing is summed: all of the result is empty, or its sums are and are
    /// added to what is there. `None` where there is something to sum.
    pub(super) fn without_sums(&self, ctx: &Ctx, c: &CContract) -> Option<bool> {
        let empty = |l: &[usize]| l.iter().any(|&a| ctx.len[a] <= 0);
        if empty(&c.rows)
            || empty(&c.columns)
            || empty(&c.batch)
            || c.lane.is_some_and(|a| ctx.len[a] <= 0)
        {
            return Some(true);
        }
        empty(&c.over).then_some(self.accumulate)
    }

    /// Whether a bound of A moves along axis `a`.
    pub(super) fn bounded(&self, ctx: &Ctx, a: usize) -> bool {
        self.bounds.is_some_and(|b| {
            b.bounds
                .iter()
                .any(|b| b.terms.iter().any(|t| t.0 == a && ctx.param(t.1) != 0))
        })
    }
}

/// Narrows `lo..hi` to the `i` for which `0 <= v + per * i < extent`.
pub(in crate::exec) fn clip(v: i64, per: i64, extent: i64, lo: &mut i64, hi: &mut i64) {
    match per {
        0 if v < 0 || v >= extent => *hi = 0,
        0 => {}
        1.. => {
            *lo = (*lo).max((per - 1 - v).div_euclid(per));
            *hi = (*hi).min((extent - v + per - 1).div_euclid(per));
        }
        _ => {
            *lo = (*lo).max((v - extent - per).div_euclid(-per));
            *hi = (*hi).min(v.div_euclid(-per) + 1);
        }
    }
}

/// Steps coordinates `c` of `axes` with extents `len`; false when they are back at the start.
pub(super) fn next(axes: &[usize], c: &mut Axes<i64>, len: &Axes<i64>) -> bool {
    for &a in axes.iter().rev() {
        c[a] += 1;
        if c[a] < len[a] {
            return true;
        }
        c[a] = 0;
    }
    false
}

/// A short list of axes without allocation.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) n: usize,
    pub(super) a: Axes<usize>,
}

impl List {
    pub(super) const NONE: List = List {
        n: 0,
        a: [0; MAX_AXES],
    };

    pub(super) fn push(&mut self, a: usize) {
        self.a[self.n] = a;
        self.n += 1;
    }

    pub(super) fn as_slice(&self) -> &[usize] {
        &self.a[..self.n]
    }

    /// Those of `axes` with more than one position.
    pub(super) fn long(axes: &[usize], len: &Axes<i64>) -> List {
        let mut l = List::NONE;
        for &a in axes {
            if len[a] > 1 {
                l.push(a);
            }
        }
        l
    }

    /// Takes the axes off the front that do not continue one another in `st`; they are added to `outer`.
    pub(super) fn merge(&mut self, len: &Axes<i64>, st: &Axes<i64>, outer: &mut List) {
        let mut first = self.n.saturating_sub(1);
        while first > 0 && st[self.a[first - 1]] == st[self.a[first]] * len[self.a[first]] {
            first -= 1;
        }
        for i in 0..first {
            outer.push(self.a[i]);
        }
        for i in first..self.n {
            self.a[i - first] = self.a[i];
        }
        self.n -= first;
    }

    /// Sorts the axes by their strides, largest first.
    pub(super) fn outermost_first(&mut self, st: &Axes<i64>) {
        for end in 1..self.n {
            let mut at = end;
            while at > 0 && st[self.a[at - 1]] < st[self.a[at]] {
                self.a.swap(at - 1, at);
                at -= 1;
            }
        }
    }

    pub(super) fn count(&self, len: &Axes<i64>) -> i64 {
        self.as_slice().iter().map(|&a| len[a]).product()
    }

    /// Stride of the innermost axis.
    pub(super) fn inner(&self, st: &Axes<i64>) -> i64 {
        if self.n == 0 {
            0
        } else {
            st[self.a[self.n - 1]]
        }
    }
}

/// Pointers of rows `first..first + count` (row-major rank over `rows`) at the taps' coordinates in `org`:
/// `out[i]`. Rows outside the bounds point to zeros.
pub(super) struct Rows<'a> {
    pub(super) ctx: &'a Ctx<'a>,
    pub(super) rows: &'a [usize],
    pub(super) view: &'a View,
    pub(super) bounds: Option<&'a CAccess>,
    pub(super) outside: *const u8,
    /// Axes that are not at their origin: (axis, coordinate within the piece).
    pub(super) org: Axes<i64>,
    pub(super) base: *mut u8,
}

impl Rows<'_> {
    /// # Safety
    ///
    /// `out` has `count` places.
    pub(super) unsafe fn fill(&self, first: i64, count: i64, out: *mut *const f32) {
        let ctx = self.ctx;
        let len = &ctx.len;
        // Images of a batch differ by a distance only.
        if let Some((&outer, inner)) = self.rows.split_first()
            && !inner.is_empty()
        {
            let slice: i64 = inner.iter().map(|&a| len[a]).product();
            let free = self.bounds.is_none_or(|b| {
                let moved = |t: &(usize, u32)| t.0 == outer && ctx.param(t.1) != 0;
                !b.bounds.iter().any(|b| b.terms.iter().any(moved))
            });
            if free && first % slice == 0 && count > slice {
                // SAFETY: the first slice is a part of `count` places, and so is each further one.
                unsafe {
                    self.fill(first, slice, out);
                    let by = self.view.st[outer] as isize * 4;
                    for i in slice as usize..count as usize {
                        let p = *out.add(i - slice as usize);
                        let inside = !std::ptr::eq(p.cast(), self.outside);
                        *out.add(i) = p.wrapping_byte_offset(if inside { by } else { 0 });
                    }
                }
                return;
            }
        }
        let mut c = [0i64; MAX_AXES];
        let mut rest = first;
        for &a in self.rows.iter().rev() {
            c[a] = rest % len[a];
            rest /= len[a];
        }
        let inner = self.rows.last().copied();
        let st = inner.map_or(0, |a| self.view.st[a]) * 4;
        let mut done = 0;
        while done < count {
            let (from, run) = match inner {
                Some(a) => (c[a], (len[a] - c[a]).min(count - done)),
                None => (0, 1),
            };
            let off: i64 = self.rows.iter().map(|&a| c[a] * self.view.st[a]).sum();
            let p = self.base.wrapping_offset((off * 4) as isize);
            let (mut lo, mut hi) = (0, run);
            for b in self.bounds.iter().flat_map(|b| &b.bounds) {
                let mut v = ctx.param(b.base);
                let mut per = 0;
                for &(a, k) in &b.terms {
                    let k = ctx.param(k);
                    let here = if self.rows.contains(&a) {
                        self.org[a] + c[a]
                    } else {
                        self.org[a]
                    };
                    v += k * here;
                    if Some(a) == inner {
                        per = k;
                    }
                }
                clip(v, per, ctx.param(b.extent), &mut lo, &mut hi);
            }
            let (lo, hi) = (lo.clamp(0, run), hi.clamp(0, run));
            // SAFETY: the caller gives `count` places.
            unsafe {
                let put = |i: i64, p: *const u8| *out.add((done + i) as usize) = p.cast();
                for i in 0..lo.min(run) {
                    put(i, self.outside);
                }
                for i in lo..hi {
                    put(i, p.wrapping_offset((i * st) as isize));
                }
                for i in hi.max(lo)..run {
                    put(i, self.outside);
                }
            }
            done += run;
            if let Some(a) = inner {
                c[a] = from + run;
                if c[a] >= len[a] {
                    c[a] = 0;
                    next(&self.rows[..self.rows.len() - 1], &mut c, len);
                }
            }
        }
    }
}
