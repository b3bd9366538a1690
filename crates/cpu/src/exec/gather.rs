//! Loads whose addresses other operands give: offsets of a few positions at a time, then elements or
//! whole rows at those offsets.
use super::access::{CIndexed, Piece, piece};
use super::{Axes, COperand, CTile, Ctx, Fault, MAX_AXES, View};
use layout::DType;

/// Positions whose offsets are known at a time.
const CHUNK: usize = 64;
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
    /// What an index is multiplied by, and how many are valid.
    stride: i64,
    extent: i64,
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
    fn new(ctx: &Ctx, i: &CIndexed, org: &Axes<i64>, len: &Axes<i64>) -> Option<Index> {
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
            stride: ctx.param(i.stride),
            extent: ctx.param(i.extent),
        })
    }

    /// Adds the addresses (in elements) of `offsets.len()` positions along `axis`, beginning `at`
    /// bytes behind the first.
    fn add(&self, at: i64, axis: usize, offsets: &mut [i64]) -> Result<(), Fault> {
        macro_rules! run {
            ($t:ty) => {{
                let step = self.st[axis] as isize;
                let p = self.ptr.wrapping_offset(at as isize).cast::<$t>();
                // SAFETY: verified plans keep accesses inside their buffers.
                let of = |i: usize| unsafe { p.offset(i as isize * step).read_unaligned() } as i64;
                let from_start = |v: i64| {
                    if v < 0 {
                        v.wrapping_add(self.extent)
                    } else {
                        v
                    }
                };
                // Without a branch per element: what is outside is looked for afterwards.
                let mut outside = false;
                for (i, o) in offsets.iter_mut().enumerate() {
                    let x = from_start(of(i));
                    outside |= x as u64 >= self.extent as u64;
                    *o = o.wrapping_add(x.wrapping_mul(self.stride));
                }
                let is_outside = |v: &i64| from_start(*v) as u64 >= self.extent as u64;
                if outside && let Some(value) = (0..offsets.len()).map(of).find(is_outside) {
                    return Err(Fault::Index {
                        value,
                        extent: self.extent,
                    });
                }
            }};
        }
        match self.dtype {
            DType::I64 | DType::U64 => run!(i64),
            DType::I32 => run!(i32),
            DType::U32 => run!(u32),
            DType::I16 => run!(i16),
            DType::U16 => run!(u16),
            DType::I8 => run!(i8),
            _ => run!(u8),
        }
        Ok(())
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
    let e = op.elem as i64;
    if e == 0 || op.access.indexed.len() > 4 {
        return Ok(false);
    }
    let mut by: [Option<Index>; 4] = [const { None }; 4];
    let mut vary = 0u32;
    for (slot, i) in by.iter_mut().zip(&op.access.indexed) {
        let Some(x) = Index::new(ctx, i, org, len) else {
            return Ok(false);
        };
        for &a in &tile.axes {
            vary |= u32::from(x.st[a] != 0 && len[a] > 1) << a;
        }
        *slot = Some(x);
    }
    // Loops over axes that indices vary over, and over the others.
    let (mut over, mut rest) = (
        [Step {
            axis: 0,
            len: 1,
            dst: 0,
            src: 0,
        }; MAX_AXES],
        [None; MAX_AXES],
    );
    let (mut n, mut m) = (0, 0);
    for &a in tile.axes.iter().filter(|&&a| len[a] > 1) {
        let src = match op.access.terms.iter().find(|t| t.axis == a) {
            None => 0,
            Some(t) => match piece(t, ctx.p, org[a], len[a]) {
                Piece::Affine(s) => s,
                _ => return Ok(false),
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
            offsets[..count].fill(0);
            for x in by.iter().flatten() {
                let i = outer(&|s| x.st[s.axis]) + first * x.st[inner.axis];
                x.add(i * x.elem, inner.axis, &mut offsets[..count])?;
            }
            for (i, o) in offsets[..count].iter_mut().enumerate() {
                *o = *o * e + from + (first + i as i64) * inner.src;
            }
            let to = dst.wrapping_offset((to + first * inner.dst) as isize);
            others(&rest[..m], to, src, |to, src| {
                // SAFETY: verified plans keep accesses inside their buffers, indices were checked;
                // the tile's memory is its own.
                unsafe {
                    copy(
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
        // The next position of the outer axes.
        let mut i = n.max(1) - 1;
        loop {
            if i == 0 {
                return Ok(true);
            }
            i -= 1;
            at[i] += 1;
            if at[i] < over[i].len {
                break;
            }
            at[i] = 0;
        }
    }
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
                // SAFETY: the caller vouches for every address.
                unsafe {
                    let (d, s) = (dst.offset(i as isize * step), src.offset(o as isize));
                    for j in 0..row / size_of::<$t>() {
                        let v = s.cast::<$t>().add(j).read_unaligned();
                        d.cast::<$t>().add(j).write_unaligned(v);
                    }
                }
            }
        };
    }
    macro_rules! dense {
        ($t:ty) => {
            for (i, &o) in offsets.iter().enumerate() {
                // SAFETY: the caller vouches for every address.
                unsafe {
                    let v = src.offset(o as isize).cast::<$t>().read_unaligned();
                    dst.cast::<$t>().add(i).write_unaligned(v);
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
    match (elem, row == elem && step == elem as isize) {
        (4, true) => dense!(u32),
        (1, _) => elements!(u8),
        (2, _) => elements!(u16),
        (4, _) => elements!(u32),
        _ => elements!(u64),
    }
}
