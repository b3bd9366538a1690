//! Loads whose addresses other operands give: offsets of a few positions at a time, then elements or
//! whole rows at those offsets.
use super::access::{Piece, piece};
use super::{Axes, CIndexed, COperand, CTile, Ctx, Fault, MAX_AXES, View};
use crate::ukr::{Kernels, Ranks};
use layout::DType;

/// Positions whose offsets are known at a time.
const CHUNK: usize = 256;
/// Bytes from which on a row is copied as one.
const ROW: usize = 32;

/// An index operand over the present piece.
struct Index {
    ptr: *const u8,
    dtype: DType,
    /// Bytes per element.
    elem: i64,
    /// Elements per position of each axis.
    st: Axes<i64>,
    /// What an index stands for, in bytes of the source.
    ranks: Ranks,
}

/// A loop over the piece: destination and source strides in bytes.
#[derive(Clone, Copy)]
struct Step {
    axis: usize,
    len: i64,
    dst: i64,
    src: i64,
}

impl Index {
    fn new(
        ctx: &Ctx,
        i: &CIndexed,
        (org, len): (&Axes<i64>, &Axes<i64>),
        source: i64,
    ) -> Option<Index> {
        let o = &ctx.kernel.operands[i.by];
        if !o.access.indexed.is_empty() || o.elem == 0 {
            return None;
        }
        let mut st = [0; MAX_AXES];
        for t in &o.access.terms {
            match piece(t, ctx.p, org[t.axis], len[t.axis]) {
                Piece::Affine(s) => st[t.axis] = s,
                _ if len[t.axis] <= 1 => {}
                _ => return None,
            }
        }
        let at = o.access.address(ctx.p, org) * o.elem as i64;
        Some(Index {
            ptr: ctx.bufs[o.buffer].wrapping_offset(at as isize),
            dtype: o.dtype,
            elem: o.elem as i64,
            st,
            ranks: Ranks {
                extent: ctx.param(i.extent),
                stride: ctx.param(i.stride).wrapping_mul(source),
            },
        })
    }

    /// Adds the addresses (in bytes) of `offsets.len()` positions along `axis`, the indices beginning `at`
    /// bytes behind the first, to what is there or to a beginning and a stride.
    fn add(
        &self,
        k: &Kernels,
        (at, axis): (i64, usize),
        begin: Option<(i64, i64)>,
        offsets: &mut [i64],
    ) -> Result<(), Fault> {
        let (step, n) = (self.st[axis] as isize, offsets.len());
        let p = self.ptr.wrapping_offset(at as isize);
        macro_rules! run {
            ($t:ty, $add:expr) => {{
                let p = p.cast::<$t>();
                // SAFETY: verified plans keep accesses inside their buffers.
                let of = |i: usize| unsafe { p.offset(i as isize * step).read_unaligned() } as i64;
                let outside: bool = $add(p, &of);
                let value = (0..n)
                    .map(of)
                    .find(|v| outside && self.ranks.is_outside(*v));
                if let Some(value) = value {
                    let extent = self.ranks.extent;
                    return Err(Fault::Index { value, extent });
                }
            }};
        }
        macro_rules! plain {
            ($t:ty) => {
                run!($t, |_, of: &dyn Fn(usize) -> i64| {
                    for (i, o) in offsets.iter_mut().enumerate() {
                        if let Some((b, s)) = begin {
                            *o = b + i as i64 * s;
                        }
                        let x = self.ranks.position(of(i));
                        *o = o.wrapping_add(x.wrapping_mul(self.ranks.stride));
                    }
                    true
                })
            };
        }
        let to = offsets.as_mut_ptr();
        match self.dtype {
            // SAFETY: verified plans keep accesses inside their buffers; the offsets are `n`.
            DType::I64 | DType::U64 => run!(i64, |p, _: &dyn Fn(usize) -> i64| unsafe {
                (k.ranks64)(p, step, &self.ranks, begin, to, n)
            }),
            // SAFETY: as above.
            DType::I32 => run!(i32, |p, _: &dyn Fn(usize) -> i64| unsafe {
                (k.ranks32)(p, step, &self.ranks, begin, to, n)
            }),
            DType::U32 => plain!(u32),
            DType::I16 => plain!(i16),
            DType::U16 => plain!(u16),
            DType::I8 => plain!(i8),
            _ => plain!(u8),
        }
        Ok(())
    }
}

/// Loops over the axes of a piece that are longer than 1.
struct Loops {
    /// Over those that indices vary over: `n`, or one of a single position.
    over: [Step; MAX_AXES],
    n: usize,
    /// Over the others: `m`.
    rest: [Option<Step>; MAX_AXES],
    m: usize,
}

impl Loops {
    /// `None` where addresses are not affine over the piece. `vary` has a bit for every axis that indices
    /// vary over.
    fn new(
        ctx: &Ctx,
        op: &COperand,
        (tile, view): (&CTile, &View),
        (org, len): (&Axes<i64>, &Axes<i64>),
        vary: u32,
    ) -> Option<Loops> {
        let e = op.elem as i64;
        let one = Step {
            axis: 0,
            len: 1,
            dst: 0,
            src: 0,
        };
        let (mut over, mut rest) = ([one; MAX_AXES], [None; MAX_AXES]);
        let (mut n, mut m) = (0, 0);
        for &a in tile.axes.iter().filter(|&&a| len[a] > 1) {
            let src = match op.access.terms.iter().find(|t| t.axis == a) {
                None => 0,
                Some(t) => match piece(t, ctx.p, org[a], len[a]) {
                    Piece::Affine(s) => s,
                    _ => return None,
                },
            };
            let step = Step {
                axis: a,
                len: len[a],
                dst: view.st[a] * e,
                src: src * e,
            };
            if vary >> a & 1 == 1 {
                over[n] = step;
                n += 1;
            } else {
                rest[m] = Some(step);
                m += 1;
            }
        }
        Some(Loops { over, n, rest, m })
    }
}

/// Loads the piece `org`, `len` of `op` to `dst`, strides of the tile in `view`. False: addresses are
/// not affine over the piece, and nothing was done. The bounds hold.
pub(in crate::exec) fn gather(
    ctx: &Ctx,
    op: &COperand,
    tile: &CTile,
    view: &View,
    dst: *mut u8,
    (org, len): (&Axes<i64>, &Axes<i64>),
) -> Result<bool, Fault> {
    let (e, k) = (op.elem as i64, ctx.kernel.kernels);
    if e == 0 || op.access.indexed.len() > 4 {
        return Ok(false);
    }
    let mut by: [Option<Index>; 4] = [const { None }; 4];
    let mut vary = 0u32;
    for (slot, i) in by.iter_mut().zip(&op.access.indexed) {
        let Some(x) = Index::new(ctx, i, (org, len), e) else {
            return Ok(false);
        };
        for &a in &tile.axes {
            vary |= u32::from(x.st[a] != 0 && len[a] > 1) << a;
        }
        *slot = Some(x);
    }
    let Some(Loops {
        over,
        n,
        mut rest,
        mut m,
    }) = Loops::new(ctx, op, (tile, view), (org, len), vary)
    else {
        return Ok(false);
    };
    // The innermost of the others is a row when it lies in one piece on both sides.
    let mut row = e;
    if let Some(i) = (0..m)
        .rev()
        .find(|&i| rest[i].is_some_and(|s| s.dst == e && s.src == e))
        && let Some(s) = rest[i]
    {
        row = s.len * e;
        rest.copy_within(i + 1..m, i);
        m -= 1;
    }
    let inner = over[n.max(1) - 1];
    let base = op.access.address(ctx.p, org) * e;
    let src = ctx.bufs[op.buffer].wrapping_offset(base as isize);
    let mut at = [0i64; MAX_AXES];
    let mut offsets = [0i64; CHUNK];
    loop {
        let outer = |f: &dyn Fn(&Step) -> i64| -> i64 {
            over[..n.max(1) - 1]
                .iter()
                .zip(&at)
                .map(|(s, c)| c * f(s))
                .sum()
        };
        let (to, from) = (outer(&|s| s.dst), outer(&|s| s.src));
        let mut first = 0;
        while first < inner.len {
            let count = (inner.len - first).min(CHUNK as i64) as usize;
            let mut begin = Some((from + first * inner.src, inner.src));
            for x in by.iter().flatten() {
                let i = outer(&|s| x.st[s.axis]) + first * x.st[inner.axis];
                x.add(
                    k,
                    (i * x.elem, inner.axis),
                    begin.take(),
                    &mut offsets[..count],
                )?;
            }
            let to = dst.wrapping_offset((to + first * inner.dst) as isize);
            others(&rest[..m], to, src, |to, src| {
                // SAFETY: verified plans keep accesses inside their buffers, indices were checked;
                // the tile's memory is its own.
                unsafe {
                    copy(
                        k,
                        to,
                        inner.dst as isize,
                        src,
                        &offsets[..count],
                        row as usize,
                        op.elem,
                    )
                }
            });
            first += count as i64;
        }
        if !step(&over[..n.max(1) - 1], &mut at) {
            return Ok(true);
        }
    }
}

/// The next position `at` of `axes`; false when it is back at the start.
#[inline]
fn step(axes: &[Step], at: &mut [i64; MAX_AXES]) -> bool {
    for (s, at) in axes.iter().zip(at).rev() {
        *at += 1;
        if *at < s.len {
            return true;
        }
        *at = 0;
    }
    false
}

/// Calls `f` for every position of `steps`.
fn others(
    steps: &[Option<Step>],
    to: *mut u8,
    from: *const u8,
    mut f: impl FnMut(*mut u8, *const u8),
) {
    let mut at = [0i64; MAX_AXES];
    let (mut to, mut from) = (to, from);
    loop {
        f(to, from);
        let mut i = steps.len();
        loop {
            if i == 0 {
                return;
            }
            i -= 1;
            let Some(s) = steps[i] else { return };
            at[i] += 1;
            to = to.wrapping_offset(s.dst as isize);
            from = from.wrapping_offset(s.src as isize);
            if at[i] < s.len {
                break;
            }
            to = to.wrapping_offset((-s.dst * s.len) as isize);
            from = from.wrapping_offset((-s.src * s.len) as isize);
            at[i] = 0;
        }
    }
}

/// Rows of `row` bytes from `offsets` behind `src` to places `step` bytes apart.
///
/// # Safety
///
/// Every address is valid; source and destination do not overlap.
unsafe fn copy(
    k: &Kernels,
    dst: *mut u8,
    step: isize,
    src: *const u8,
    offsets: &[i64],
    row: usize,
    elem: usize,
) {
    macro_rules! elements {
        ($t:ty) => {
            for (i, &o) in offsets.iter().enumerate() {
                let (d, s) = (dst.offset(i as isize * step), src.offset(o as isize));
                for j in 0..row / size_of::<$t>() {
                    let v = s.cast::<$t>().add(j).read_unaligned();
                    d.cast::<$t>().add(j).write_unaligned(v);
                }
            }
        };
    }
    if row >= ROW {
        for (i, &o) in offsets.iter().enumerate() {
            // SAFETY: the caller vouches for every address.
            unsafe {
                let (d, s) = (dst.offset(i as isize * step), src.offset(o as isize));
                std::ptr::copy_nonoverlapping(s, d, row);
            }
        }
        return;
    }
    let (o, n) = (offsets.as_ptr(), offsets.len());
    // SAFETY: the caller vouches for every address.
    unsafe {
        match (elem, row == elem && step == elem as isize) {
            (1, true) => (k.take8)(src, o, dst, n),
            (2, true) => (k.take16)(src.cast(), o, dst.cast(), n),
            (4, true) => (k.take32)(src.cast(), o, dst.cast(), n),
            (_, true) => (k.take64)(src.cast(), o, dst.cast(), n),
            (1, _) => elements!(u8),
            (2, _) => elements!(u16),
            (4, _) => elements!(u32),
            _ => elements!(u64),
        }
    }
}
