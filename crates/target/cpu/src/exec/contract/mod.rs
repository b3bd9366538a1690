//! `Contract`: products summed along axes, on micro-kernels where operands are f32 and lie right.
//!
//! The accumulator's innermost axis runs along lanes. Where only one factor has it, that factor is B of a
//! matrix product and the other is A; where both have it, the product is depthwise. Axes of the accumulator
//! and A only are rows, axes in all three are batch axes, summed axes are one contiguous block (`kin`) and taps.

mod blocks;
mod depthwise;
mod gemm;
mod generic;
pub(crate) mod post;
pub(crate) mod wide;

pub(super) use generic::run as by_elements;

use super::access::CAccess;
use super::calls::Sources;
use super::{Axes, Ctx, Fault, MAX_AXES, Op, View, run as tasks};
use crate::ukr::{GemmKernel, Post};
use layout::DType;

/// Pointers in a row table.
pub(crate) const TABLE: usize = 16 * 1024;

/// A compiled `Contract`.
#[derive(Debug)]
pub(crate) struct CContract {
    pub acc: usize,
    /// Rows' factor.
    pub a: usize,
    /// Lanes' factor (with the lane axis).
    pub b: usize,
    pub over: Vec<usize>,
    /// Accumulator axes but the lane axis, outermost first: of A only, of B only, of both.
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
    pub batch: Vec<usize>,
    pub lane: Option<usize>,
    /// The lane axis is in both factors.
    pub depthwise: bool,
    pub dtype: DType,
    pub gemm: Option<GemmKernel>,
    /// Elements are groups of small integers and sums i32: only against packed panels.
    pub grouped: bool,
    /// Elements are unsigned and signed 8-bit integers and every lane has its own sum in i32.
    pub bytes: bool,
    /// Bytes of scratch for packing B; 0 where it lies right.
    pub pack: usize,
    /// The accumulator is filled with zeros first.
    pub zero: Option<super::map::CMap>,
    /// The map behind it, where it starts from zeros.
    pub post: Option<post::CPost>,
}

/// Loads, loops and a contraction run as one sequence of micro-kernel calls, A and B in place.
#[derive(Debug)]
pub(crate) struct CNest {
    pub loops: Vec<(usize, i64)>,
    pub contract: CContract,
    /// Operands of the factors.
    pub a: usize,
    pub b: usize,
    /// The summed axis of which so many neighbours are one element of 4 bytes.
    pub grouped: Option<(usize, i64)>,
    /// Scratch (offset, bytes) for what lies outside, where that is no zero.
    pub outside: Option<(usize, usize)>,
    /// The rows' factor is copied first, so that it is contiguous along that axis.
    pub copied: bool,
    /// Where the factors are widened to, those that are no f32.
    pub wide: [Option<wide::CWide>; 2],
    /// The accumulator is filled with zeros first.
    pub zero: Option<super::map::CMap>,
    /// The map behind the product.
    pub post: Option<post::CPost>,
    /// The same statement by statement, without that map.
    pub body: Vec<Op>,
}

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

impl Sources {
    const NONE: Sources = Sources {
        bias: View::SCRATCH,
        added: View::SCRATCH,
    };
}

/// Runs a contraction on the current piece.
pub(crate) fn run(ctx: &mut Ctx, c: &CContract) {
    if let Some(p) = &c.post {
        let mut dst = View::EMPTY;
        if let Some((post, sources)) = p.resolve(ctx, c, &mut dst) {
            let job = Job {
                a: &ctx.views[c.a],
                b: &ctx.views[c.b],
                c: &dst,
                bounds: None,
                outside: ctx.zeros,
                accumulate: false,
                post,
                sources,
            };
            // Empty sums are the map's business.
            if c.over.iter().all(|&a| ctx.len[a] > 0) && fast(ctx, c, &job) {
                ctx.views[p.dst] = dst;
                if let Some(rest) = &p.rest {
                    super::map::run(ctx, rest);
                }
                return;
            }
        }
        sums(ctx, c);
        super::map::run(ctx, &p.map);
        return;
    }
    sums(ctx, c);
}

/// The product alone.
fn sums(ctx: &mut Ctx, c: &CContract) {
    if c.zero.is_some() {
        ctx.lay_with(|ctx, v| ctx.lay_out(c.acc, &mut v[c.acc]));
    }
    if !fast(ctx, c, &plain(ctx, c)) {
        if let Some(z) = &c.zero {
            super::map::run(ctx, z);
        }
        generic::run(ctx, c, &plain(ctx, c));
    }
}

/// The product of the tiles as they lie, and nothing else.
fn plain<'a>(ctx: &'a Ctx, c: &CContract) -> Job<'a> {
    Job {
        a: &ctx.views[c.a],
        b: &ctx.views[c.b],
        c: &ctx.views[c.acc],
        bounds: None,
        outside: ctx.zeros,
        accumulate: c.zero.is_none(),
        post: Post::NONE,
        sources: Sources::NONE,
    }
}

fn fast(ctx: &Ctx, c: &CContract, job: &Job) -> bool {
    if c.dtype != DType::F32 && !c.grouped && !c.bytes {
        return false;
    }
    if c.depthwise {
        depthwise::run(ctx, c, job)
    } else {
        gemm::run(ctx, c, job)
    }
}

/// Runs a nest: pieces of loops that the schedule cuts one after the other, all others whole.
pub(crate) fn nest(ctx: &mut Ctx, n: &CNest) -> Result<(), Fault> {
    let Some(trace) = ctx.trace else {
        return run_nest(ctx, n);
    };
    let before = trace.calls();
    run_nest(ctx, n)?;
    let copied = n.grouped.is_some() || n.wide.iter().any(Option::is_some);
    let more = n.post.as_ref().is_some_and(|p| p.rest.is_some());
    if copied || more || trace.calls() != before + 1 {
        trace.spoil();
    }
    Ok(())
}

fn run_nest(ctx: &mut Ctx, n: &CNest) -> Result<(), Fault> {
    let (org, len) = (ctx.org, ctx.len);
    let mut dst = View::EMPTY;
    if let Some(p) = &n.post
        && let Some((post, sources)) = p.resolve(ctx, &n.contract, &mut dst)
    {
        let done = fast_nest(ctx, n, Some((&dst, post, sources)))?;
        (ctx.org, ctx.len) = (org, len);
        if done {
            ctx.views[p.dst] = dst;
            if let Some(rest) = &p.rest {
                super::map::run(ctx, rest);
            }
            return Ok(());
        }
    }
    let done = fast_nest(ctx, n, None)?;
    (ctx.org, ctx.len) = (org, len);
    if !done {
        if let Some(z) = &n.zero {
            super::map::run(ctx, z);
        }
        tasks::ops(ctx, &n.body)?;
    }
    if let Some(p) = &n.post {
        super::map::run(ctx, &p.map);
    }
    Ok(())
}

/// `post`: where finished sums go and what is done to them on the way. False when nothing was computed.
fn fast_nest(
    ctx: &mut Ctx,
    n: &CNest,
    post: Option<(&View, Post, Sources)>,
) -> Result<bool, Fault> {
    let c = &n.contract;
    let k = ctx.kernel;
    let mut copy = None;
    if let Some((x, by)) = n.grouped {
        if n.copied {
            // The copy has room for one piece of the axes that the loops cut.
            if n.loops.iter().any(|&(a, t)| {
                let t = if a == x { t * by } else { t };
                t < ctx.len[a]
            }) {
                return Ok(false);
            }
            let mut v = View::EMPTY;
            ctx.lay_scratch(c.a, &mut v);
            // Accesses of a nest gather nothing, so that loading cannot fail.
            let _ = super::transfer::load(ctx, n.a, c.a, &v);
            let odd = k.tiles[c.a]
                .axes
                .iter()
                .any(|&a| a != x && v.st[a] % by != 0);
            if odd || v.st[x] != 1 {
                return Ok(false);
            }
            let others = k.tiles[c.a].axes.iter().filter(|a| **a != x);
            others.for_each(|&a| v.st[a] /= by);
            copy = Some(v);
        }
        ctx.org[x] /= by;
        ctx.len[x] /= by;
    }
    if (c.dtype != DType::F32 && !c.grouped && !c.bytes) || c.over.iter().any(|&a| ctx.len[a] <= 0)
    {
        return Ok(false);
    }
    let (mut cut, mut cuts) = ([(0usize, 0i64, 0i64); MAX_AXES], 0);
    for &(a, t) in &n.loops {
        if t > 1 && t < ctx.len[a] {
            cut[cuts] = (a, t, ctx.len[a]);
            cuts += 1;
        }
    }
    // A later piece that lies otherwise is run statement by statement, which knows no groups.
    if n.grouped.is_some() && cuts > 0 {
        return Ok(false);
    }
    let mut own = View::EMPTY;
    let acc = match (&n.zero, post) {
        (Some(_), Some((dst, ..))) => dst,
        (Some(_), None) => {
            ctx.lay_out(c.acc, &mut own);
            &own
        }
        (None, _) => {
            own = ctx.views[c.acc];
            &own
        }
    };
    if post.is_some() && (cuts > 0 || n.zero.is_none()) {
        return Ok(false);
    }
    let (ta, tb) = (&k.tiles[c.a], &k.tiles[c.b]);
    let (oa, ob) = (&k.operands[n.a], &k.operands[n.b]);
    // Whether everything lies right is the same for every piece but for bounds, which are looked at whole.
    let bounded = copy.is_none() && !oa.access.bounds_hold(ctx, ta.mask);
    if bounded && oa.access.outside != 0.0 && n.outside.is_none()
        || !ob.access.bounds_hold(ctx, tb.mask)
    {
        return Ok(false);
    }
    let mut widened = [None; 2];
    for (w, (wide, (o, t))) in widened
        .iter_mut()
        .zip(n.wide.iter().zip([(oa, ta), (ob, tb)]))
    {
        if let Some(wide) = wide {
            *w = wide.fill(ctx, o, t.mask);
            if w.is_none() {
                return Ok(false);
            }
        }
    }
    let mut outside = ctx.zeros;
    if let (Some((at, bytes)), true) = (n.outside, bounded) {
        let p = ctx.scratch.wrapping_add(at);
        // SAFETY: the scratch has room for them.
        unsafe { std::ptr::write_bytes(p, oa.outside[0], bytes) };
        outside = p;
    }
    let mut started = false;
    let mut at = [0i64; MAX_AXES];
    let org = ctx.org;
    let (mut a, mut b) = (copy.unwrap_or(View::EMPTY), View::EMPTY);
    loop {
        for (i, &(a, t, whole)) in cut[..cuts].iter().enumerate() {
            ctx.org[a] = org[a] + at[i];
            ctx.len[a] = t.min(whole - at[i]);
        }
        // Where every lane has its own sum, groups of lanes may share what they read.
        let lies = (copy.is_some() || oa.access.lay(ctx, ta.mask, oa, c.depthwise, &mut a))
            && ob.access.lay(ctx, tb.mask, ob, true, &mut b);
        let done = if lies {
            for (w, v) in widened.iter().zip([&mut a, &mut b]) {
                w.iter().for_each(|w: &wide::Widened| w.turn(v));
            }
            let job = Job {
                a: &a,
                b: &b,
                c: acc,
                bounds: bounded.then_some(&oa.access),
                outside,
                accumulate: started || n.zero.is_none(),
                post: post.map_or(Post::NONE, |p| p.1),
                sources: post.map_or(Sources::NONE, |p| p.2),
            };
            fast(ctx, c, &job)
        } else {
            false
        };
        match (done, started) {
            (true, _) => {}
            (false, false) => return Ok(false),
            // A later piece may be shorter and lie otherwise.
            (false, true) => by_statements(ctx, n, *acc)?,
        }
        started = true;
        if !advance(&cut[..cuts], &mut at) {
            break;
        }
    }
    ctx.views[c.acc] = *acc;
    Ok(true)
}

/// Adds the current piece to `acc` statement by statement: of a loop that was cut this is one round, and all
/// rounds of one that was not.
fn by_statements(ctx: &mut Ctx, n: &CNest, acc: View) -> Result<(), Fault> {
    let kept = (ctx.org, ctx.len);
    ctx.views[n.contract.acc] = acc;
    tasks::ops(ctx, &n.body)?;
    (ctx.org, ctx.len) = kept;
    Ok(())
}

fn advance(cut: &[(usize, i64, i64)], at: &mut [i64; MAX_AXES]) -> bool {
    for (i, &(_, t, whole)) in cut.iter().enumerate().rev() {
        at[i] += t;
        if at[i] < whole {
            return true;
        }
        at[i] = 0;
    }
    false
}

/// Narrows `lo..hi` to the `i` for which `0 <= v + per * i < extent`.
pub(super) fn clip(v: i64, per: i64, extent: i64, lo: &mut i64, hi: &mut i64) {
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
fn next(axes: &[usize], c: &mut Axes<i64>, len: &Axes<i64>) -> bool {
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
struct List {
    n: usize,
    a: Axes<usize>,
}

impl List {
    const NONE: List = List {
        n: 0,
        a: [0; MAX_AXES],
    };

    fn push(&mut self, a: usize) {
        self.a[self.n] = a;
        self.n += 1;
    }

    fn as_slice(&self) -> &[usize] {
        &self.a[..self.n]
    }

    /// Those of `axes` with more than one position.
    fn long(axes: &[usize], len: &Axes<i64>) -> List {
        let mut l = List::NONE;
        for &a in axes {
            if len[a] > 1 {
                l.push(a);
            }
        }
        l
    }

    /// Takes the axes off the front that do not continue one another in `st`; they are added to `outer`.
    fn merge(&mut self, len: &Axes<i64>, st: &Axes<i64>, outer: &mut List) {
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

    fn count(&self, len: &Axes<i64>) -> i64 {
        self.as_slice().iter().map(|&a| len[a]).product()
    }

    /// Stride of the innermost axis.
    fn inner(&self, st: &Axes<i64>) -> i64 {
        if self.n == 0 {
            0
        } else {
            st[self.a[self.n - 1]]
        }
    }
}

/// Pointers of rows `first..first + count` (row-major rank over `rows`) at the taps' coordinates in `org`:
/// `out[i]`. Rows outside the bounds point to zeros.
struct Rows<'a> {
    ctx: &'a Ctx<'a>,
    rows: &'a [usize],
    view: &'a View,
    bounds: Option<&'a CAccess>,
    outside: *const u8,
    /// Axes that are not at their origin: (axis, coordinate within the piece).
    org: Axes<i64>,
    base: *mut u8,
}

impl Rows<'_> {
    /// # Safety
    ///
    /// `out` has `count` places.
    unsafe fn fill(&self, first: i64, count: i64, out: *mut *const f32) {
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
