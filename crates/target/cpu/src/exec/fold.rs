//! `Fold`: a monoid's state carried over the elements of tiles.
//!
//! The lane axis is the innermost axis of the widest argument. Where it is kept, states change row by
//! row (ascending along the reduced axes); where it is reduced, a row is reduced by itself, then combined
//! with the state. Either order is fixed by the program and its extents.
mod arg;
pub(super) mod ints;
mod short;
mod walk;

use super::vm::{CH, Coords, Lane, MAX_ARGS, Run};
use super::{CFold, Ctx, Lift, MAX_AXES, View};
use crate::ukr::Columns;
pub(crate) use ints::Ints;
use layout::DType;
use walk::Walk;
pub(super) use walk::next;

/// Elements of a row that are too few for vectors of their own.
const NARROW: i64 = 8;

fn at(v: &View, c: &[i64; MAX_AXES], axes: &[usize], elem: usize) -> *mut u8 {
    let off: i64 = axes.iter().map(|&a| c[a] * v.st[a]).sum();
    v.ptr.wrapping_offset((off * elem as i64) as isize)
}

/// Runs a fold on the current piece.
pub(crate) fn run(ctx: &mut Ctx, f: &CFold) {
    let ctx = &*ctx;
    let all = f.kept.iter().chain(&f.reduced).chain(&f.lane);
    if all.into_iter().any(|&a| ctx.len[a] <= 0) {
        return;
    }
    let mut w = Walk {
        ctx,
        f,
        c: [0; MAX_AXES],
        n: f.lane.map_or(1, |a| ctx.len[a] as usize),
        reduced: &f.reduced,
        lift: Run::new(&f.lift, ctx.kernel.kernels, ctx.area(0), ctx.p),
        combine: Run::new(
            &f.combine,
            ctx.kernel.kernels,
            ctx.area(f.combine_at),
            ctx.p,
        ),
    };
    if let Some(a) = f.arg {
        return w.arg(a);
    }
    if f.horizontal && f.lift.index == 0 {
        // Reduced neighbours of the lane axis join it where every argument continues.
        while let (Some(l), Some((&a, rest))) = (f.lane, w.reduced.split_last()) {
            let merges = |&t: &usize| {
                let v = &ctx.views[t];
                v.st[a] == v.st[l] * w.n as i64
            };
            if !f.args.iter().all(merges) {
                break;
            }
            w.n *= ctx.len[a] as usize;
            w.reduced = rest;
        }
    }
    if f.horizontal && (w.short() || w.rows() || w.strips()) {
        return;
    }
    loop {
        if f.horizontal {
            w.horizontal();
        } else {
            w.vertical();
        }
        if !next(&f.kept, &mut w.c, ctx) {
            return;
        }
    }
}

/// A few axes without allocation.
struct Few {
    n: usize,
    a: [usize; MAX_AXES],
}

impl Few {
    /// `axes` without `but`.
    fn of(axes: &[usize], but: Option<usize>) -> Few {
        let mut v = Few {
            n: 0,
            a: [0; MAX_AXES],
        };
        for &x in axes.iter().filter(|&&x| Some(x) != but) {
            v.a[v.n] = x;
            v.n += 1;
        }
        v
    }

    fn as_slice(&self) -> &[usize] {
        &self.a[..self.n]
    }
}

impl Walk<'_> {
    fn lane_st(&self, v: &View) -> i64 {
        self.f.lane.map_or(0, |a| v.st[a])
    }

    fn args(&self) -> [Lane; MAX_ARGS] {
        let mut rows = [Lane::NONE; MAX_ARGS];
        for (r, &t) in rows.iter_mut().zip(&self.f.args) {
            let v = &self.ctx.views[t];
            let off: i64 = self
                .f
                .kept
                .iter()
                .chain(self.reduced)
                .map(|&a| self.c[a] * v.st[a])
                .sum();
            let elem = self.ctx.kernel.tiles[t].elem as i64;
            *r = Lane {
                ptr: v.ptr.wrapping_offset((off * elem) as isize),
                st: self.lane_st(v),
            };
        }
        rows
    }

    fn state(&self, i: usize) -> Lane {
        let t = self.f.state[i];
        let v = &self.ctx.views[t];
        let st = if self.f.horizontal {
            0
        } else {
            self.lane_st(v)
        };
        Lane {
            ptr: at(v, &self.c, &self.f.kept, self.ctx.kernel.tiles[t].elem),
            st,
        }
    }

    /// Row `i` of set `set` of the temporaries.
    fn temp(&self, set: usize, i: usize) -> Lane {
        let row = set * self.f.dtypes.len() + i;
        Lane {
            ptr: self.ctx.area(self.f.rows + row * CH * 8),
            st: 1,
        }
    }

    /// Rank along the reduced axes of the row's element `from`, and its step: `Index(0)` of the lift.
    fn coords(&self, from: usize) -> ([i64; MAX_AXES], [i64; MAX_AXES]) {
        let (mut base, mut step) = ([0; MAX_AXES], [0; MAX_AXES]);
        let mut rank = 0;
        let mut below = 0;
        for &(a, extent) in &self.f.rank {
            let e = self.ctx.param(extent);
            rank = rank * e + self.ctx.org[a] + self.c[a];
            below = if Some(a) == self.f.lane { 1 } else { below * e };
        }
        step[0] = if self.f.horizontal { below } else { 0 };
        base[0] = rank + step[0] * from as i64;
        (base, step)
    }

    /// The lifted values of elements `from..from + n` of the current row, in set `set`.
    fn lifted(&self, from: usize, n: usize, set: usize) {
        let f = self.f;
        let mut args = self.args();
        for (r, &t) in args.iter_mut().zip(&f.args) {
            r.ptr = r.ptr.wrapping_offset(
                (from as i64 * r.st) as isize * self.ctx.kernel.tiles[t].elem as isize,
            );
        }
        let (base, step) = self.coords(from);
        let mut outs = [Lane::NONE; MAX_ARGS];
        for (i, o) in outs.iter_mut().enumerate().take(f.dtypes.len()) {
            *o = self.temp(set, i);
        }
        self.lift.row(
            &args[..f.args.len()],
            &Coords {
                at: &base,
                step: &step,
            },
            &outs[..f.dtypes.len()],
            n,
            true,
        );
    }

    /// Combines `n` left states with `n` right ones into `outs`, which may be either.
    fn combined(&self, left: &[Lane], right: &[Lane], outs: &[Lane], n: usize) {
        let s = self.f.dtypes.len();
        let mut args = [Lane::NONE; MAX_ARGS];
        args[..s].copy_from_slice(left);
        args[s..2 * s].copy_from_slice(right);
        let zero = [0; MAX_AXES];
        let mut from = 0;
        while from < n {
            let m = CH.min(n - from);
            let shift = |l: &Lane, i: usize| Lane {
                ptr: l.ptr.wrapping_offset(
                    (from as i64 * l.st) as isize * bytes(self.f.dtypes[i]) as isize,
                ),
                st: l.st,
            };
            let mut a = [Lane::NONE; MAX_ARGS];
            for (i, l) in args[..2 * s].iter().enumerate() {
                a[i] = shift(l, i % s);
            }
            let mut o = [Lane::NONE; MAX_ARGS];
            for (i, l) in outs.iter().enumerate() {
                o[i] = shift(l, i);
            }
            self.combine.row(
                &a[..2 * s],
                &Coords {
                    at: &zero,
                    step: &zero,
                },
                &o[..s],
                m,
                false,
            );
            from += m;
        }
    }

    /// Rows that lie one behind the other, folded into a few first: sums and the like of short rows
    /// then run on long ones. False where rows do not lie so.
    fn vertical_block(&self) -> bool {
        let f = self.f;
        let (Some(simple), Some((&a, rest)), [arg]) =
            (f.simple, self.reduced.split_last(), f.args.as_slice())
        else {
            return false;
        };
        let v = &self.ctx.views[*arg];
        let n = self.n as i64;
        let rows = self.ctx.len[a];
        let (state, x) = (self.state(0), self.args()[0]);
        if !rest.is_empty() && rest.iter().any(|&r| self.ctx.len[r] > 1)
            || simple.lift != Lift::Identity
            // Longer rows fill vectors by themselves.
            || n > NARROW
            || rows < 4
            || x.st != 1
            || state.st != 1
            || v.st[a] != n
        {
            return false;
        }
        let long = CH as i64 / n * n;
        let total = rows * n;
        if total < 2 * long {
            return false;
        }
        let t = self.temp(0, 0).ptr.cast::<f32>();
        let src = x.ptr.cast::<f32>();
        // SAFETY: `total` elements of the argument; the temporary row has CH, the state n.
        unsafe {
            std::ptr::copy_nonoverlapping(src, t, long as usize);
            let mut at = long;
            while at < total {
                let m = long.min(total - at);
                (simple.combine)(t, src.add(at as usize), t, m as usize);
                at += m;
            }
            let p = state.ptr.cast::<f32>();
            let mut at = 0;
            while at < long {
                (simple.combine)(p, t.add(at as usize), p, self.n);
                at += n;
            }
        }
        true
    }

    /// Columns folded by a micro-kernel down the innermost reduced axis. False where there is more to it.
    fn columns(&mut self) -> bool {
        let f = self.f;
        let ctx = self.ctx;
        let Some((simple, fold)) = f.simple.and_then(|s| Some((s, s.columns?))) else {
            return false;
        };
        let mean = simple.lift == Lift::Deviation;
        let unit = |l: &Lane| l.st == 1 || self.n == 1;
        let (state, args) = (self.state(0), self.args());
        if !unit(&state) || !unit(&args[0]) || mean && !unit(&args[1]) {
            return false;
        }
        // Reduced axes that continue one another are one.
        let x = &ctx.views[f.args[0]];
        let (mut rows, mut ld) = (1, 0);
        let mut rest = self.reduced;
        while let Some((&a, outer)) = rest.split_last() {
            if rows > 1 && ctx.len[a] > 1 && x.st[a] != ld * rows {
                break;
            }
            if rows == 1 {
                ld = x.st[a];
            }
            rows *= ctx.len[a];
            rest = outer;
        }
        loop {
            let args = self.args();
            let d = Columns {
                rows: rows as usize,
                n: self.n,
                x: args[0].ptr.cast(),
                ld: ld as isize,
                mean: if mean {
                    args[1].ptr.cast()
                } else {
                    std::ptr::null()
                },
                acc: state.ptr.cast(),
            };
            // SAFETY: rows of n elements in tiles; the state and the mean are one such row each.
            unsafe { fold(&d) };
            if !next(rest, &mut self.c, ctx) {
                return true;
            }
        }
    }

    fn vertical(&mut self) {
        let f = self.f;
        if self.vertical_block() || self.columns() {
            return;
        }
        loop {
            self.vertical_row();
            if !next(self.reduced, &mut self.c, self.ctx) {
                break;
            }
        }
        debug_assert!(f.reduced.iter().all(|&a| self.c[a] == 0));
    }

    fn vertical_row(&self) {
        let f = self.f;
        let s = f.dtypes.len();
        if let Some(simple) = f.simple {
            let state = self.state(0);
            let a = self.args()[0];
            let unit = |l: &Lane| l.st == 1 || self.n == 1;
            if unit(&state) && simple.lift == Lift::Identity && unit(&a) {
                let p = state.ptr.cast::<f32>();
                // SAFETY: rows of n elements in tiles.
                unsafe { (simple.combine)(p, a.ptr.cast(), p, self.n) };
                return;
            }
            if unit(&state) {
                let mut from = 0;
                while from < self.n {
                    let m = CH.min(self.n - from);
                    self.lifted(from, m, 0);
                    // SAFETY: as above; the temporary row has CH elements.
                    unsafe {
                        let p = state.ptr.cast::<f32>().add(from);
                        (simple.combine)(p, self.temp(0, 0).ptr.cast(), p, m);
                    }
                    from += m;
                }
                return;
            }
        }
        let mut from = 0;
        while from < self.n {
            let m = CH.min(self.n - from);
            self.lifted(from, m, 0);
            let (mut states, mut lifts) = ([Lane::NONE; MAX_ARGS], [Lane::NONE; MAX_ARGS]);
            for i in 0..s {
                let l = self.state(i);
                let e = bytes(f.dtypes[i]) as isize;
                states[i] = Lane {
                    ptr: l.ptr.wrapping_offset((from as i64 * l.st) as isize * e),
                    st: l.st,
                };
                lifts[i] = self.temp(0, i);
            }
            self.combined(&states[..s], &lifts[..s], &states[..s], m);
            from += m;
        }
    }

    /// Rows that a micro-kernel reduces, one after the other. False where there is more to it.
    fn rows(&self) -> bool {
        let f = self.f;
        let ctx = self.ctx;
        let (Some(simple), Some(l)) = (f.simple, f.lane) else {
            return false;
        };
        let (Some(reduce), false) = (simple.reduce, simple.lift == Lift::Program) else {
            return false;
        };
        let (x, s) = (&ctx.views[f.args[0]], &ctx.views[f.state[0]]);
        let mean = (simple.lift == Lift::Deviation).then(|| &ctx.views[f.args[1]]);
        if x.st[l] != 1 || self.reduced.iter().any(|&a| ctx.len[a] > 1) {
            return false;
        }
        let Some((&inner, outer)) = f.kept.split_last() else {
            return false;
        };
        let k = ctx.kernel.kernels;
        let mut c = [0i64; MAX_AXES];
        loop {
            let at = |v: &View| {
                let off: i64 = outer.iter().map(|&a| c[a] * v.st[a]).sum();
                v.ptr.cast::<f32>().wrapping_offset(off as isize)
            };
            let (mut p, mut q) = (at(s), at(x));
            let mut r = mean.map_or(std::ptr::null_mut(), at);
            for _ in 0..ctx.len[inner] {
                // SAFETY: rows of n elements in tiles; the state (and the mean) is one element.
                unsafe {
                    let v = match simple.lift {
                        Lift::Square => (k.row_sum_sq)(q, 0.0, self.n),
                        Lift::Deviation => (k.row_sum_sq)(q, *r, self.n),
                        _ => reduce(q, self.n),
                    };
                    (simple.combine)(p, &v, p, 1);
                }
                p = p.wrapping_offset(s.st[inner] as isize);
                q = q.wrapping_offset(x.st[inner] as isize);
                r = r.wrapping_offset(mean.map_or(0, |m| m.st[inner]) as isize);
            }
            if !next(outer, &mut c, ctx) {
                return true;
            }
        }
    }

    /// Short rows of which neighbours along a kept axis continue one another: each strip of rows is
    /// summed (or the like) along the outer reduced axes by whole vectors, and every row's share of the
    /// result reduced at the end. False where there is more to it.
    fn strips(&self) -> bool {
        let f = self.f;
        let ctx = self.ctx;
        let (Some(simple), Some(l)) = (f.simple, f.lane) else {
            return false;
        };
        let (Some(reduce), false) = (simple.reduce, simple.lift == Lift::Program) else {
            return false;
        };
        let (x, s) = (&ctx.views[f.args[0]], &ctx.views[f.state[0]]);
        let times: i64 = self.reduced.iter().map(|&a| ctx.len[a]).product();
        let n = self.n as i64;
        if x.st[l] != 1 || n > CH as i64 / 8 || times < 8 {
            return false;
        }
        // The kept axis whose rows continue one another.
        let side = f
            .kept
            .iter()
            .copied()
            .find(|&a| ctx.len[a] > 1 && x.st[a] == n);
        let mean = (simple.lift == Lift::Deviation).then(|| &ctx.views[f.args[1]]);
        if mean.is_some_and(|m| self.reduced.iter().any(|&a| m.st[a] != 0)) {
            return false;
        }
        let per = side.map_or(1, |a| ctx.len[a].min(CH as i64 / n));
        let k = ctx.kernel.kernels;
        let (acc, line) = (self.temp(0, 0).ptr.cast::<f32>(), self.temp(1, 0).ptr);
        // A set is a row of CH numbers of 8 bytes: the strip and the means repeated share one.
        let (line, means) = (line.cast::<f32>(), line.cast::<f32>().wrapping_add(CH));
        let mut c = [0i64; MAX_AXES];
        let outer: Few = Few::of(&f.kept, side);
        loop {
            let mut first = 0;
            let count = side.map_or(1, |a| ctx.len[a]);
            while first < count {
                if let Some(a) = side {
                    c[a] = first;
                }
                let rows = per.min(count - first);
                let wide = (rows * n) as usize;
                let at = |v: &View, c: &[i64; MAX_AXES]| {
                    let off: i64 = f.kept.iter().map(|&a| c[a] * v.st[a]).sum();
                    v.ptr.cast::<f32>().wrapping_offset(off as isize)
                };
                let from = at(x, &c);
                // SAFETY: strips of `wide` elements of the argument, at most CH; states and means are one
                // element per row.
                unsafe {
                    if let Some(m) = mean {
                        let (p, st) = (at(m, &c), side.map_or(0, |a| m.st[a]));
                        for r in 0..rows {
                            let v = *p.wrapping_offset((r * st) as isize);
                            std::slice::from_raw_parts_mut(means.add((r * n) as usize), n as usize)
                                .fill(v);
                        }
                    }
                    let mut t = [0i64; MAX_AXES];
                    let mut started = false;
                    loop {
                        let off: i64 = self.reduced.iter().map(|&a| t[a] * x.st[a]).sum();
                        let q = from.wrapping_offset(off as isize);
                        let src = match simple.lift {
                            Lift::Identity => q.cast_const(),
                            Lift::Square => q.cast_const(),
                            _ => {
                                (k.sub)(q, means, line, wide);
                                line.cast_const()
                            }
                        };
                        match (simple.lift, started) {
                            (Lift::Identity, false) => {
                                std::ptr::copy_nonoverlapping(src, acc, wide)
                            }
                            (Lift::Identity, true) => (simple.combine)(acc, src, acc, wide),
                            (_, false) => (k.mul)(src, src, acc, wide),
                            (_, true) => (k.fma)(src, src, acc, acc, wide),
                        }
                        started = true;
                        if !next(self.reduced, &mut t, ctx) {
                            break;
                        }
                    }
                    let (p, st) = (at(s, &c), side.map_or(0, |a| s.st[a]));
                    for r in 0..rows {
                        let v = reduce(acc.add((r * n) as usize), n as usize);
                        let p = p.wrapping_offset((r * st) as isize);
                        (simple.combine)(p, &v, p, 1);
                    }
                }
                first += rows;
            }
            if let Some(a) = side {
                c[a] = 0;
            }
            if !next(outer.as_slice(), &mut c, ctx) {
                return true;
            }
        }
    }

    fn horizontal(&mut self) {
        loop {
            self.horizontal_row();
            if !next(self.reduced, &mut self.c, self.ctx) {
                return;
            }
        }
    }

    fn horizontal_row(&self) {
        let f = self.f;
        let k = self.ctx.kernel.kernels;
        let s = f.dtypes.len();
        if let Some(simple) = f.simple
            && let Some(reduce) = simple.reduce
        {
            let p = self.state(0).ptr.cast::<f32>();
            let args = self.args();
            let x = args[0].ptr.cast::<f32>();
            // SAFETY: rows of n elements in tiles; the state is one element.
            unsafe {
                let mut r = None;
                if args[0].st == 1 || self.n == 1 {
                    r = match simple.lift {
                        Lift::Identity => Some(reduce(x, self.n)),
                        Lift::Square => Some((k.row_sum_sq)(x, 0.0, self.n)),
                        Lift::Deviation => {
                            Some((k.row_sum_sq)(x, *args[1].ptr.cast::<f32>(), self.n))
                        }
                        Lift::Program => None,
                    };
                }
                match r {
                    Some(v) => (simple.combine)(p, &v, p, 1),
                    None => {
                        let mut from = 0;
                        while from < self.n {
                            let m = CH.min(self.n - from);
                            self.lifted(from, m, 0);
                            let v = reduce(self.temp(0, 0).ptr.cast(), m);
                            (simple.combine)(p, &v, p, 1);
                            from += m;
                        }
                    }
                }
            }
            return;
        }
        let mut from = 0;
        while from < self.n {
            let mut m = CH.min(self.n - from);
            self.lifted(from, m, 0);
            from += m;
            if let Some(i) = f.ints {
                // SAFETY: a row of m lifted elements; the state is one of its own.
                unsafe { i.row(self.state(0).ptr, self.temp(0, 0).ptr, m) };
                continue;
            }
            let (mut set, mut to) = (0, 1);
            // Neighbours are combined in pairs until one is left: a fixed order that keeps left left.
            while m > 1 {
                let (mut left, mut right, mut outs) = (
                    [Lane::NONE; MAX_ARGS],
                    [Lane::NONE; MAX_ARGS],
                    [Lane::NONE; MAX_ARGS],
                );
                for i in 0..s {
                    let l = self.temp(set, i);
                    left[i] = Lane { ptr: l.ptr, st: 2 };
                    right[i] = Lane {
                        ptr: l.ptr.wrapping_add(bytes(f.dtypes[i])),
                        st: 2,
                    };
                    outs[i] = self.temp(to, i);
                }
                self.combined(&left[..s], &right[..s], &outs[..s], m / 2);
                if m % 2 == 1 {
                    for i in 0..s {
                        let e = bytes(f.dtypes[i]);
                        // SAFETY: elements m - 1 and m / 2 of rows of CH.
                        unsafe {
                            let from = left[i].ptr.add((m - 1) * e);
                            std::ptr::copy_nonoverlapping(from, outs[i].ptr.add(m / 2 * e), e);
                        }
                    }
                }
                m = m.div_ceil(2);
                (set, to) = (to, set);
            }
            let (mut states, mut lifts) = ([Lane::NONE; MAX_ARGS], [Lane::NONE; MAX_ARGS]);
            for i in 0..s {
                states[i] = self.state(i);
                lifts[i] = self.temp(set, i);
            }
            self.combined(&states[..s], &lifts[..s], &states[..s], 1);
        }
    }
}

/// Bytes of an element in a tile.
pub(crate) fn bytes(d: DType) -> usize {
    (d.bits() as usize / 8).max(1)
}
