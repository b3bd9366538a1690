//! Loads and stores of whole tiles: bounds, leaves and gathered addresses are taken apart until a
//! piece is affine and inside, then that piece is copied.
use super::access::{Piece, piece};
use super::copy::{strided_copy, strided_fill};
use super::gather::gather;
use super::{Axes, CAccess, CIndexed, COperand, CTile, Ctx, Fault, MAX_AXES, View};
use layout::DType;

struct Transfer<'a> {
    ctx: &'a Ctx<'a>,
    op: &'a COperand,
    tile: &'a CTile,
    view: &'a View,
    load: bool,
}

/// Copies the current piece of `operand` into `view` (a tile's memory).
pub(crate) fn load(ctx: &Ctx, operand: usize, tile: usize, view: &View) -> Result<(), Fault> {
    run(ctx, operand, tile, view, true)
}

/// Copies `view` (a tile's memory) to the current piece of `operand`.
pub(crate) fn store(ctx: &Ctx, operand: usize, tile: usize, view: &View) -> Result<(), Fault> {
    run(ctx, operand, tile, view, false)
}

fn run(ctx: &Ctx, operand: usize, tile: usize, view: &View, load: bool) -> Result<(), Fault> {
    let t = Transfer {
        ctx,
        op: &ctx.kernel.operands[operand],
        tile: &ctx.kernel.tiles[tile],
        view,
        load,
    };
    t.go(&ctx.org, &ctx.len, 0)
}

/// The value at coordinates `c` of an integer operand.
fn index_value(ctx: &Ctx, o: &COperand, c: &Axes<i64>, depth: usize) -> Result<i64, Fault> {
    let mut at = o.access.address(ctx.p, c);
    if depth < 4 {
        for i in &o.access.indexed {
            at += gathered(ctx, i, c, depth + 1)?;
        }
    }
    let ptr = ctx.bufs[o.buffer].wrapping_offset((at * o.elem as i64) as isize);
    // SAFETY: verified plans keep accesses inside their buffers.
    Ok(unsafe {
        match o.dtype {
            DType::I64 | DType::U64 => ptr.cast::<i64>().read_unaligned(),
            DType::I32 => ptr.cast::<i32>().read_unaligned() as i64,
            DType::U32 => ptr.cast::<u32>().read_unaligned() as i64,
            DType::I16 => ptr.cast::<i16>().read_unaligned() as i64,
            DType::U16 => ptr.cast::<u16>().read_unaligned() as i64,
            DType::I8 => ptr.cast::<i8>().read() as i64,
            _ => ptr.read() as i64,
        }
    })
}

fn gathered(ctx: &Ctx, i: &CIndexed, c: &Axes<i64>, depth: usize) -> Result<i64, Fault> {
    let v = index_value(ctx, &ctx.kernel.operands[i.by], c, depth)?;
    let extent = ctx.param(i.extent);
    let at = if v < 0 { v.wrapping_add(extent) } else { v };
    if at < 0 || at >= extent {
        return Err(Fault::Index { value: v, extent });
    }
    Ok(at * ctx.param(i.stride))
}

/// First and one past the last position `i` with `0 <= first + c * i < extent`, for `c` other than 0.
fn inside(first: i64, c: i64, extent: i64) -> (i64, i64) {
    if c > 0 {
        let before = (-first).max(0);
        (
            before.div_euclid(c) + i64::from(before.rem_euclid(c) != 0),
            (extent - first + c - 1).div_euclid(c),
        )
    } else {
        let d = -c;
        let over = (first - extent + 1).max(0);
        (
            over.div_euclid(d) + i64::from(over.rem_euclid(d) != 0),
            first.div_euclid(d) + 1,
        )
    }
}

impl Transfer<'_> {
    /// Pointer of the tile at coordinates `org`.
    fn tile_ptr(&self, org: &Axes<i64>) -> *mut u8 {
        let mut at = 0;
        for &a in &self.tile.axes {
            at += (org[a] - self.ctx.org[a]) * self.view.st[a];
        }
        self.view
            .ptr
            .wrapping_offset((at * self.tile.elem as i64) as isize)
    }

    fn fill(&self, org: &Axes<i64>, len: &Axes<i64>) {
        if !self.load {
            return;
        }
        let (mut st, mut n) = ([0; MAX_AXES], [0; MAX_AXES]);
        let r = self.tile.axes.len();
        for (i, &a) in self.tile.axes.iter().enumerate() {
            (st[i], n[i]) = (self.view.st[a], len[a]);
        }
        // SAFETY: a piece of the tile's own memory.
        unsafe {
            strided_fill(
                self.ctx.kernel.kernels,
                self.tile.elem,
                self.tile_ptr(org),
                &st[..r],
                &self.op.outside,
                &n[..r],
            )
        }
    }

    /// Calls `go` for every position of axis `a`.
    fn each(&self, a: usize, org: &Axes<i64>, len: &Axes<i64>, depth: usize) -> Result<(), Fault> {
        let (mut o, mut l) = (*org, *len);
        l[a] = 1;
        for i in 0..len[a] {
            o[a] = org[a] + i;
            self.go(&o, &l, depth)?;
        }
        Ok(())
    }

    /// The pieces of axis `a` in which its addresses are affine, one after the other.
    fn pieces(
        &self,
        a: usize,
        of: &Piece,
        (org, len): (&Axes<i64>, &Axes<i64>),
        depth: usize,
    ) -> Result<(), Fault> {
        let step = match of {
            Piece::Blocks { size, .. } => *size,
            Piece::First(n) => *n,
            Piece::Affine(_) => len[a],
        };
        let (mut o, mut l) = (*org, *len);
        (l[a], o[a]) = (step.clamp(1, len[a]), org[a]);
        self.go(&o, &l, depth + 1)?;
        if matches!(of, Piece::First(_)) {
            (o[a], l[a]) = (org[a] + l[a], len[a] - l[a]);
            return self.go(&o, &l, depth + 1);
        }
        let mut at = step;
        while at < len[a] {
            (o[a], l[a]) = (org[a] + at, step.min(len[a] - at));
            self.go(&o, &l, depth + 1)?;
            at += step;
        }
        Ok(())
    }

    fn go(&self, org: &Axes<i64>, len: &Axes<i64>, depth: usize) -> Result<(), Fault> {
        let (ctx, t, op) = (self.ctx, self.tile, self.op);
        if t.axes.iter().any(|&a| len[a] <= 0) {
            return Ok(());
        }
        for b in &op.access.bounds {
            let (lo, hi) = CAccess::bound_range(b, ctx.p, org, len, t.mask);
            let extent = ctx.param(b.extent);
            if lo >= 0 && hi < extent {
                continue;
            }
            if hi < 0 || lo >= extent {
                self.fill(org, len);
                return Ok(());
            }
            let varies =
                |&(a, c): &(usize, u32)| t.mask >> a & 1 == 1 && len[a] > 1 && ctx.param(c) != 0;
            let mut axes = b.terms.iter().filter(|x| varies(x));
            let (Some(&(a, c)), more) = (axes.next(), axes.next()) else {
                self.fill(org, len);
                return Ok(());
            };
            if more.is_some() {
                // Two axes in one bound: taken apart along the outer one.
                let a = t
                    .axes
                    .iter()
                    .copied()
                    .find(|&a| b.terms.iter().any(|x| x.0 == a && varies(x)))
                    .unwrap_or(a);
                return self.each(a, org, len, depth + 1);
            }
            let c = ctx.param(c);
            // The bound at the axis' first position, without this piece's own variation.
            let first = if c > 0 { lo } else { hi };
            let (from, to) = inside(first, c, extent);
            let (from, to) = (from.clamp(0, len[a]), to.clamp(0, len[a]));
            let (mut o, mut l) = (*org, *len);
            if from >= to {
                self.fill(org, len);
                return Ok(());
            }
            l[a] = from;
            self.fill(&o, &l);
            (o[a], l[a]) = (org[a] + to, len[a] - to);
            self.fill(&o, &l);
            (o[a], l[a]) = (org[a] + from, to - from);
            return self.go(&o, &l, depth + 1);
        }
        let gathers = self.load && !op.access.indexed.is_empty();
        if gathers && gather(ctx, op, t, self.view, self.tile_ptr(org), (org, len))? {
            return Ok(());
        }
        let mut extra = 0;
        for i in &op.access.indexed {
            let by = &ctx.kernel.operands[i.by].access;
            let vary = by.mask()
                | by.indexed
                    .iter()
                    .fold(0, |m, j| m | ctx.kernel.operands[j.by].access.mask());
            if let Some(&a) = t.axes.iter().find(|&&a| len[a] > 1 && vary >> a & 1 == 1) {
                return self.each(a, org, len, depth + 1);
            }
            extra += gathered(ctx, i, org, 0)?;
        }
        let (mut ts, mut os, mut n) = ([0; MAX_AXES], [0; MAX_AXES], [0; MAX_AXES]);
        let r = t.axes.len();
        for (i, &a) in t.axes.iter().enumerate() {
            (ts[i], n[i]) = (self.view.st[a], len[a]);
            let Some(term) = op.access.terms.iter().find(|x| x.axis == a) else {
                continue;
            };
            match piece(term, ctx.p, org[a], len[a]) {
                Piece::Affine(s) => os[i] = s,
                other => return self.pieces(a, &other, (org, len), depth),
            }
        }
        let at = op.access.address(ctx.p, org) + extra;
        if op.elem == 0 {
            self.nibbles(org, len, at, &os);
            return Ok(());
        }
        let mem = ctx.bufs[op.buffer].wrapping_offset((at * op.elem as i64) as isize);
        let tp = self.tile_ptr(org);
        // SAFETY: verified plans keep accesses inside their buffers; the tile's memory is its own.
        unsafe {
            let k = ctx.kernel.kernels;
            if self.load {
                strided_copy(k, op.elem, tp, &ts[..r], mem, &os[..r], &n[..r]);
            } else {
                strided_copy(k, op.elem, mem, &os[..r], tp, &ts[..r], &n[..r]);
            }
        }
        Ok(())
    }

    /// Unpacks a piece of 4-bit elements into bytes (a tile of such a type holds one per byte), or packs
    /// bytes into it.
    fn nibbles(&self, org: &Axes<i64>, len: &Axes<i64>, at: i64, os: &[i64]) {
        let axes = &self.tile.axes;
        let base = self.ctx.bufs[self.op.buffer];
        let tp = self.tile_ptr(org);
        let mut c = [0i64; MAX_AXES];
        loop {
            let (mut e, mut d) = (at, 0);
            for (i, &a) in axes.iter().enumerate() {
                e += c[i] * os[i];
                d += c[i] * self.view.st[a];
            }
            // SAFETY: inside the operand, inside the tile.
            unsafe {
                let (byte, by) = (base.offset((e >> 1) as isize), 4 * (e & 1));
                if !self.load {
                    // The other half is this task's too.
                    let v = (*tp.offset(d as isize) & 15) << by;
                    *byte = *byte & !(15 << by) | v;
                } else {
                    let n = *byte >> by & 15;
                    let v = if self.op.dtype == DType::I4 && n > 7 {
                        n | 0xf0
                    } else {
                        n
                    };
                    *tp.offset(d as isize) = v;
                }
            }
            let mut i = axes.len();
            loop {
                if i == 0 {
                    return;
                }
                i -= 1;
                c[i] += 1;
                if c[i] < len[axes[i]] {
                    break;
                }
                c[i] = 0;
            }
        }
    }
}
