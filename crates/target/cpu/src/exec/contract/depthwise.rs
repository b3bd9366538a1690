//! Products in which every lane has its own sum.
//!
//! Along the innermost row axis, pixels whose taps are all inside need one pointer per tap for the whole
//! run; pixels at the rim get a table of their own, taps outside pointing to zeros.
use super::job::{Job, List, TABLE, clip, next};
use crate::exec::{Axes, CAccess, CBound, CContract, Ctx, MAX_AXES, View};
use crate::ukr::{Depthwise, Depthwise8, Line, Lines, Taps};
use layout::DType;

/// What is the same for every run of pixels.
struct Plan<'a> {
    ctx: &'a Ctx<'a>,
    taps: List,
    /// Innermost row axis.
    x: Option<usize>,
    view: &'a View,
    bounds: Option<&'a CAccess>,
    table: *mut *const f32,
    /// What taps outside the tensor point to.
    outside: *const u8,
    /// Bytes of an element of both factors: 4 for f32, 1 for 8-bit integers.
    size: i64,
    call: Depthwise,
    /// Taps whose pointers lie a pixel apart come in runs of this many.
    run: usize,
    /// So many neighbouring lanes read as many neighbours of the input each; 1 for lanes that read their own.
    group: usize,
}

/// Taps at most: the table begins with one pointer per tap and five lists of one number per tap.
const TAPS: usize = 1024;
/// The lists.
const OFFSET: usize = 0;
const FROM: usize = 1;
const TO: usize = 2;
const LOW: usize = 3;
const HIGH: usize = 4;

fn shift(p: *const u8, n: i64, size: i64) -> *const f32 {
    p.wrapping_offset((n * size) as isize).cast()
}

/// Runs `d`; of 8-bit integers where an element has one byte, with inputs shared by `group` lanes.
///
/// # Safety
///
/// As the micro-kernels.
unsafe fn call(ctx: &Ctx, d: &Depthwise, size: i64, group: usize) {
    let k = ctx.kernel.kernels;
    // SAFETY: the caller's contract; pointers are those of the factors' own elements.
    unsafe {
        if group > 1 {
            return (k.grouped)(d, group);
        }
        if size != 1 {
            return (k.depthwise)(d);
        }
        (k.depthwise8)(&Depthwise8 {
            pixels: d.pixels,
            channels: d.channels,
            taps: d.taps,
            table: d.table.cast(),
            table_step: d.table_step,
            x_step: d.x_step,
            x_offset: d.x_offset,
            w: d.w.cast(),
            ldw: d.ldw,
            out: d.out.cast(),
            out_step: d.out_step,
            accumulate: d.accumulate,
        });
    }
}

/// The axes of a product in the order of their loops.
struct Order {
    /// Summed axes that the micro-kernel takes together.
    taps: List,
    /// Innermost row axis.
    x: Option<usize>,
    /// All others; the first `summed` of them are summed.
    outer: List,
    summed: usize,
    /// Stride of the weights along what the micro-kernel sums.
    ldw: i64,
}

impl Order {
    /// `None` where the inputs of a group of lanes do not lie side by side.
    fn new(ctx: &Ctx, c: &CContract, job: &Job, group: i64) -> Option<Order> {
        let len = &ctx.len;
        let mut taps = List::long(&c.over, len);
        let mut ldw = None;
        if group > 1 {
            // The inputs of a group are the innermost of what is summed; the micro-kernel takes them together.
            let i = (0..taps.n).find(|&i| job.a.st[taps.a[i]] == 1 && len[taps.a[i]] == group)?;
            ldw = Some(job.b.st[taps.a[i]]);
            taps.a.copy_within(i + 1..taps.n, i);
            taps.n -= 1;
        }
        taps.outermost_first(&job.b.st);
        let mut outer = List::NONE;
        taps.merge(len, &job.b.st, &mut outer);
        if let Some(ldw) = ldw
            && taps.inner(&job.b.st) != ldw * group
        {
            // Weights of neighbouring taps lie further apart than one tap's.
            taps.as_slice().iter().for_each(|&a| outer.push(a));
            taps.n = 0;
        }
        let summed = outer.n;
        let mut rows = List::long(&c.rows, len);
        let x = rows.as_slice().last().copied();
        rows.n = rows.n.saturating_sub(1);
        for list in [rows, List::long(&c.columns, len), List::long(&c.batch, len)] {
            list.as_slice().iter().for_each(|&a| outer.push(a));
        }
        Some(Order {
            taps,
            x,
            outer,
            summed,
            ldw: ldw.unwrap_or_else(|| taps.inner(&job.b.st)),
        })
    }
}

/// False when the operands do not lie as the micro-kernel needs them.
pub(super) fn run(ctx: &Ctx, c: &CContract, job: &Job) -> bool {
    let len = &ctx.len;
    let Some(lane) = c.lane else { return false };
    if let Some(done) = job.without_sums(ctx, c) {
        return done;
    }
    let n = len[lane];
    let Some(group) = shared(c, job, len, lane) else {
        return false;
    };
    let own = match group {
        1 => [job.a, job.b, job.c].iter().all(|v| v.st[lane] == 1),
        _ => [job.b, job.c].iter().all(|v| v.st[lane] == 1),
    };
    if n > 1 && !own || job.b.block.is_some() {
        return false;
    }
    if job.bounded(ctx, lane) {
        return false;
    }
    let Some(order) = Order::new(ctx, c, job, group) else {
        return false;
    };
    let Order {
        taps,
        x,
        ldw,
        summed,
        ..
    } = order;
    let floats = c.dtype == DType::F32;
    if floats
        && group == 1
        && !job.accumulate
        && summed == 0
        && !job.post.added
        && planes(ctx, job, &order, n)
    {
        return true;
    }
    let nt = taps.count(len);
    let (x_step, out_step) = x.map_or((0, 0), |a| (job.a.st[a], job.c.st[a]));
    let room = ctx.kernel.pointers() - 6 * TAPS as i64;
    if nt > (TAPS as i64).min(room) || ldw < 0 || out_step < 0 {
        return false;
    }
    let run = match taps.as_slice().last() {
        Some(&s) if x_step > 0 && job.a.st[s] == x_step => len[s] as usize,
        _ => 1,
    };
    // Sums must be whole when something is done to them.
    if job.post.any() && (summed > 0 || job.post.added) {
        return false;
    }
    let mut p = Plan {
        ctx,
        taps,
        x,
        view: job.a,
        bounds: job.bounds,
        table: ctx.scratch.wrapping_add(ctx.kernel.table).cast(),
        outside: job.outside,
        size: if c.bytes { 1 } else { 4 },
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
            bias: job.post.bias,
            accumulate: false,
            lo: job.post.lo,
            hi: job.post.hi,
        },
        run,
        group: group as usize,
    };
    p.each(job, &order);
    true
}

/// How many neighbouring lanes read as many neighbours of `a` each: 1 where every lane reads its own, `None`
/// where lanes lie otherwise.
fn shared(c: &CContract, job: &Job, len: &Axes<i64>, lane: usize) -> Option<i64> {
    let size = match job.a.block {
        Some(b) if b.axis == lane && b.size == b.stride && job.a.st[lane] == 0 => b.size,
        Some(_) => return None,
        // One group alone.
        None if job.a.st[lane] == 0 && len[lane] > 1 => len[lane],
        None => return Some(1),
    };
    let fits = matches!(size, 2 | 4 | 8) && len[lane] % size == 0;
    (fits && c.dtype == DType::F32 && !c.bytes).then_some(size)
}

/// Where the lists of lines begin in the table, in pointers.
const LINES: usize = TABLE / 4;

/// What bounds say of whole lines of pixels.
struct LineBounds {
    /// Columns inside: `0 <= column + left < columns`.
    left: i64,
    columns: i64,
    /// Bounds that are the same for a whole line, by number.
    across: [usize; 8],
    count: usize,
}

impl LineBounds {
    /// `None` where a bound along the line is not that of columns, `stride` of them per pixel and `apart` per
    /// tap: all others must be the same for a whole line.
    fn new(
        ctx: &Ctx,
        bounds: &[CBound],
        order: &Order,
        (x, s): (usize, usize),
        (stride, apart): (i64, i64),
    ) -> Option<LineBounds> {
        let along = |b: &CBound, a: usize| {
            let t = b.terms.iter().filter(|t| t.0 == a);
            t.map(|t| ctx.param(t.1)).sum::<i64>()
        };
        let mut found = LineBounds {
            left: 0,
            columns: i64::MAX / 2,
            across: [0; 8],
            count: 0,
        };
        let mut seen = false;
        for (i, b) in bounds.iter().enumerate() {
            let (kx, ks) = (along(b, x), along(b, s));
            if (kx, ks) == (0, 0) {
                *found.across.get_mut(found.count)? = i;
                found.count += 1;
                continue;
            }
            let taps = order.taps.as_slice().iter().filter(|&&a| a != s);
            let mut others = taps.chain(order.outer.as_slice());
            if seen || others.any(|&a| along(b, a) != 0) || (kx, ks) != (stride, apart) {
                return None;
            }
            seen = true;
            let here = b.terms.iter().map(|&(a, k)| ctx.param(k) * ctx.org[a]);
            found.left = ctx.param(b.base) + here.sum::<i64>();
            found.columns = ctx.param(b.extent).max(0);
        }
        Some(found)
    }
}

/// Planes that are run line by line.
struct Planes<'a> {
    ctx: &'a Ctx<'a>,
    job: &'a Job<'a>,
    /// Taps but for those along the line.
    tap_lines: &'a [usize],
    bounds: &'a [CBound],
    inside: LineBounds,
    /// Pixels of a line.
    pixels: i64,
    /// Taps are so many columns apart: every so many pixels are a line of their own without gaps.
    apart: i64,
    step: i64,
    out_step: i64,
    /// Where the taps of all lines are listed.
    list: *mut Taps,
}

impl Planes<'_> {
    /// Runs the lines that `d` lists.
    fn call(&self, d: &Lines) {
        let (left, columns, apart) = (self.inside.left, self.inside.columns, self.apart);
        for r in 0..apart.min(self.pixels) {
            // Columns `r + left + apart * j` for all j from `from` to before `to` are inside.
            let from = -((r + left).div_euclid(apart));
            let to = (columns - left - r + apart - 1).div_euclid(apart);
            let d = Lines {
                left: -from as isize,
                columns: (to - from).max(0) as usize,
                pixels: ((self.pixels - r + apart - 1) / apart) as usize,
                x_offset: (r * self.step) as usize,
                out_offset: (r * self.out_step) as usize,
                ..*d
            };
            // SAFETY: pieces of the operands; taps outside the input are left out or looked at by column.
            unsafe { (self.ctx.kernel.kernels.lines)(&d) };
        }
    }

    /// Lists the taps inside the input of the line at `o`, whose operands begin at `a` and `b`, from place
    /// `used` of the list on; the place behind them.
    ///
    /// # Safety
    ///
    /// The list has room for all taps of a line from there on.
    #[inline]
    unsafe fn list_taps(&self, o: &Axes<i64>, (a, b): (i64, i64), mut used: usize) -> usize {
        let (ctx, job) = (self.ctx, self.job);
        let mut t = [0i64; MAX_AXES];
        loop {
            let inside = self.inside.across[..self.inside.count].iter().all(|&i| {
                let b = &self.bounds[i];
                let at = |&(a, k): &(usize, u32)| ctx.param(k) * (ctx.org[a] + o[a] + t[a]);
                let v = ctx.param(b.base) + b.terms.iter().map(at).sum::<i64>();
                (0..ctx.param(b.extent)).contains(&v)
            });
            if inside {
                let (mut ta, mut tb) = (a, b);
                for &x in self.tap_lines {
                    ta += t[x] * job.a.st[x];
                    tb += t[x] * job.b.st[x];
                }
                let put = Taps {
                    x: shift(job.a.ptr, ta, 4),
                    w: shift(job.b.ptr, tb, 4),
                };
                // SAFETY: the caller's contract.
                unsafe { self.list.add(used).write(put) };
                used += 1;
            }
            if !next(self.tap_lines, &mut t, &ctx.len) {
                return used;
            }
        }
    }
}

/// How pixels and taps `along_x` and `along_s` elements apart lie to each other: columns per pixel, columns per
/// tap, and elements per column.
fn columns(along_x: i64, along_s: i64) -> Option<(i64, i64, i64)> {
    if along_x % along_s == 0 {
        Some((along_x / along_s, 1, along_s))
    } else if along_s % along_x == 0 {
        Some((1, along_s / along_x, along_x))
    } else {
        None
    }
}

/// Whole planes in one call: where the innermost taps run along the innermost row axis pixel by pixel. False
/// where they do not.
fn planes(ctx: &Ctx, job: &Job, order: &Order, n: i64) -> bool {
    let len = &ctx.len;
    if ctx.kernel.pointers() < TABLE as i64 {
        return false;
    }
    let (Some(x), Some((&s, tap_lines))) = (order.x, order.taps.as_slice().split_last()) else {
        return false;
    };
    let (along_s, along_x) = (job.a.st[s], job.a.st[x]);
    let (ldw, out_step) = (job.b.st[s], job.c.st[x]);
    if along_s <= 0 || along_x <= 0 || ldw < 0 || out_step < 0 {
        return false;
    }
    let Some((stride, apart, step)) = columns(along_x, along_s) else {
        return false;
    };
    if !Lines::fits(len[s] as usize, stride as usize) {
        return false;
    }
    let bounds = job.bounds.map_or([].as_slice(), |b| b.bounds.as_slice());
    let Some(inside) = LineBounds::new(ctx, bounds, order, (x, s), (stride, apart)) else {
        return false;
    };
    let base = ctx.scratch.wrapping_add(ctx.kernel.table);
    let table = base.cast::<*const f32>();
    let (lines, list) = (
        base.cast::<Line>(),
        table.wrapping_add(LINES).cast::<Taps>(),
    );
    let most = LINES / (size_of::<Line>() / size_of::<usize>());
    let most_taps = (TABLE - LINES) / (size_of::<Taps>() / size_of::<usize>());
    let per: i64 = tap_lines.iter().map(|&a| len[a]).product();
    if per as usize > most_taps {
        return false;
    }
    let mut d = Lines {
        lines,
        count: 0,
        taps: list,
        width: len[s] as usize,
        stride: stride as usize,
        left: inside.left as isize,
        columns: inside.columns as usize,
        step: (step * apart) as usize,
        x_offset: 0,
        out_offset: 0,
        pixels: len[x] as usize,
        channels: n as usize,
        ldw: ldw as usize,
        out_step: (out_step * apart) as usize,
        bias: job.post.bias,
        lo: job.post.lo,
        hi: job.post.hi,
    };
    let planes = Planes {
        ctx,
        job,
        tap_lines,
        bounds,
        inside,
        pixels: len[x],
        apart,
        step,
        out_step,
        list,
    };
    let mut used = 0;
    let axes = order.outer.as_slice();
    let mut o = [0i64; MAX_AXES];
    loop {
        let (mut a, mut b, mut c) = (0, 0, 0);
        for &x in axes {
            a += o[x] * job.a.st[x];
            b += o[x] * job.b.st[x];
            c += o[x] * job.c.st[x];
        }
        // SAFETY: the list is emptied before less than the taps of a line have room.
        used = unsafe { planes.list_taps(&o, (a, b), used) };
        let line = Line {
            out: shift(job.c.ptr, c, 4).cast_mut(),
            to: used,
        };
        // SAFETY: `count` stays below `most`.
        unsafe { lines.add(d.count).write(line) };
        d.count += 1;
        let more = next(axes, &mut o, len);
        if !more || d.count == most || used + per as usize > most_taps {
            planes.call(&d);
            (d.count, used) = (0, 0);
        }
        if !more {
            return true;
        }
    }
}

impl Plan<'_> {
    /// Runs all rows of pixels.
    fn each(&mut self, job: &Job, order: &Order) {
        let ctx = self.ctx;
        let axes = order.outer.as_slice();
        let moving = self.prepare(axes);
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
            let first = axes[..order.summed].iter().all(|&x| o[x] == 0);
            self.call.accumulate = job.accumulate || !first;
            self.row(
                shift(job.a.ptr, a, self.size),
                shift(job.b.ptr, b, self.size),
                shift(job.c.ptr, d, 4).cast_mut(),
                &org,
                moving,
            );
            if !next(axes, &mut o, &ctx.len) {
                return;
            }
        }
    }

    /// Place `i` of the `which`th list of one number per tap.
    fn list(&self, which: usize, i: usize) -> *mut i64 {
        self.table.wrapping_add((1 + which) * TAPS + i).cast()
    }

    /// What of the taps is the same for every row: offsets, and the pixels inside by those bounds that
    /// no axis of `outer` has a part in. Returns the other bounds as bits.
    fn prepare(&self, outer: &[usize]) -> u64 {
        let m = self.x.map_or(1, |x| self.ctx.len[x]);
        let bounds = self.bounds.map_or([].as_slice(), |b| b.bounds.as_slice());
        let still = |b: &CBound| b.terms.iter().all(|t| !outer.contains(&t.0));
        let mut moving = 0u64;
        for (i, b) in bounds.iter().enumerate() {
            moving |= u64::from(!still(b)) << i.min(63);
        }
        let mut t = [0i64; MAX_AXES];
        for at in 0..self.call.taps {
            let off: i64 = self
                .taps
                .as_slice()
                .iter()
                .map(|&s| t[s] * self.view.st[s])
                .sum();
            let (mut lo, mut hi) = (0, m);
            for (_, b) in bounds
                .iter()
                .enumerate()
                .filter(|(i, _)| moving >> i & 1 == 0)
            {
                self.inside(b, &t, &self.ctx.org, &mut lo, &mut hi);
            }
            // SAFETY: the lists have TAPS places each, and there are no more taps.
            unsafe {
                *self.list(OFFSET, at) = off;
                *self.list(FROM, at) = lo.clamp(0, m);
                *self.list(TO, at) = hi.clamp(0, m);
            }
            next(self.taps.as_slice(), &mut t, &self.ctx.len);
        }
        moving
    }

    /// Pixels along the innermost row axis, from `a` on, at the coordinates `org` of the other axes.
    fn row(&self, a: *const f32, w: *const f32, out: *mut f32, org: &Axes<i64>, moving: u64) {
        let m = self.x.map_or(1, |x| self.ctx.len[x]);
        let x_step = self.x.map_or(0, |x| self.view.st[x]);
        let bounds = self.bounds.map_or([].as_slice(), |b| b.bounds.as_slice());
        let (mut lo, mut hi) = (0, m);
        let (mut from, mut to) = (usize::MAX, 0);
        let mut gaps = false;
        let mut t = [0i64; MAX_AXES];
        for at in 0..self.call.taps {
            // SAFETY: the lists have TAPS places each, and there are no more taps.
            let (mut l, mut h, off) = unsafe {
                (
                    *self.list(FROM, at),
                    *self.list(TO, at),
                    *self.list(OFFSET, at),
                )
            };
            if moving != 0 {
                for (_, b) in bounds
                    .iter()
                    .enumerate()
                    .filter(|(i, _)| moving >> i & 1 == 1)
                {
                    self.inside(b, &t, org, &mut l, &mut h);
                }
                next(self.taps.as_slice(), &mut t, &self.ctx.len);
            }
            if l < h {
                gaps |= from != usize::MAX && to != at;
                from = from.min(at);
                to = at + 1;
                (lo, hi) = (lo.max(l), hi.min(h));
            }
            // SAFETY: as above; pointers come before the lists.
            unsafe {
                *self.table.add(at) = shift(a.cast(), off, self.size);
                *self.list(LOW, at) = l;
                *self.list(HIGH, at) = h;
            }
        }
        // Taps outside count as zeros; where they hold something else they cannot be left out.
        let filled = !std::ptr::eq(self.outside, self.ctx.zeros);
        let whole = from == 0 && to == self.call.taps;
        if gaps || from == usize::MAX || hi - lo < 2 || x_step < 0 || filled && !whole {
            self.rim(0, m, w, out);
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
            w: shift(
                w.cast(),
                (from * self.call.ldw * self.group) as i64,
                self.size,
            ),
            out: out.wrapping_add(lo as usize * self.call.out_step),
            ..self.call
        };
        // SAFETY: every tap of these pixels is inside the tensor.
        unsafe { call(self.ctx, &d, self.size, self.group) };
        self.rim(0, lo, w, out);
        self.rim(hi, m, w, out);
    }

    /// Narrows `lo..hi` to the pixels of which tap `t` keeps bound `b`.
    fn inside(&self, b: &CBound, t: &Axes<i64>, org: &Axes<i64>, lo: &mut i64, hi: &mut i64) {
        let (mut v, mut per) = (self.ctx.param(b.base), 0);
        for &(a, k) in &b.terms {
            let k = self.ctx.param(k);
            // Other axes than taps have no coordinate in `t`.
            v += k * (org[a] + t[a]);
            if Some(a) == self.x {
                per = k;
            }
        }
        clip(v, per, self.ctx.param(b.extent), lo, hi);
    }

    /// Pixels `from..to` by a table of every pixel's taps.
    fn rim(&self, from: i64, to: i64, w: *const f32, out: *mut f32) {
        let nt = self.call.taps;
        let table = self.table.wrapping_add(6 * TAPS);
        let per = ((self.ctx.kernel.pointers() - 6 * TAPS as i64) / nt.max(1) as i64).max(1);
        let x_step = self.x.map_or(0, |x| self.view.st[x]);
        let mut row = from;
        while row < to {
            let count = per.min(to - row);
            for i in 0..count {
                let pixel = row + i;
                for at in 0..nt {
                    // SAFETY: `per * nt` pointers fit the table; lists and pointers were set for this row.
                    unsafe {
                        let inside = (*self.list(LOW, at)..*self.list(HIGH, at)).contains(&pixel);
                        let p = shift((*self.table.add(at)).cast(), pixel * x_step, self.size);
                        *table.add(i as usize * nt + at) =
                            if inside { p } else { self.outside.cast() };
                    }
                }
            }
            let d = Depthwise {
                pixels: count as usize,
                table,
                w,
                out: out.wrapping_add(row as usize * self.call.out_step),
                ..self.call
            };
            // SAFETY: the table names rows of the piece, or zeros as long as the lanes.
            unsafe { call(self.ctx, &d, self.size, self.group) };
            row += count;
        }
    }
}
