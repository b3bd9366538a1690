//! Operand addresses with parameters for every number.
use super::{Axes, Block, CAccess, CBound, CIndexed, COperand, CTerm, Ctx, View};
use kernel::Access;
use plan::Params;

impl CAccess {
    pub(crate) fn new(a: &Access, params: &mut Params) -> CAccess {
        CAccess {
            offset: params.intern(&a.offset),
            terms: a
                .terms
                .iter()
                .map(|t| CTerm {
                    axis: t.axis as usize,
                    leaves: t
                        .leaves
                        .iter()
                        .map(|l| (params.intern(&l.extent), params.intern(&l.stride)))
                        .collect(),
                })
                .collect(),
            bounds: a
                .bounds
                .iter()
                .map(|b| CBound {
                    terms: b
                        .terms
                        .iter()
                        .map(|(a, d)| (*a as usize, params.intern(d)))
                        .collect(),
                    base: params.intern(&b.base),
                    extent: params.intern(&b.extent),
                })
                .collect(),
            outside: a.outside,
            indexed: a
                .indexed
                .iter()
                .map(|i| CIndexed {
                    by: i.by as usize,
                    stride: params.intern(&i.stride),
                    extent: params.intern(&i.extent),
                })
                .collect(),
        }
    }

    /// Address (elements) of coordinates `c`, without gathered parts.
    pub(crate) fn address(&self, p: &[i64], c: &Axes<i64>) -> i64 {
        let mut at = p[self.offset as usize];
        for t in &self.terms {
            at += term_address(t, p, c[t.axis]);
        }
        at
    }

    /// Axes (as bits) that the address, bounds or gathered parts depend on.
    pub(crate) fn mask(&self) -> u32 {
        let terms = self.terms.iter().map(|t| t.axis);
        let bounds = self.bounds.iter().flat_map(|b| b.terms.iter().map(|t| t.0));
        terms.chain(bounds).fold(0, |m, a| m | 1 << a)
    }

    /// Smallest and largest value of bound `b` over the piece `org`, `len` of the axes in `mask`
    /// (other axes: at `org`).
    pub(crate) fn bound_range(
        b: &CBound,
        p: &[i64],
        org: &Axes<i64>,
        len: &Axes<i64>,
        mask: u32,
    ) -> (i64, i64) {
        let (mut lo, mut hi) = (p[b.base as usize], p[b.base as usize]);
        for &(a, c) in &b.terms {
            let c = p[c as usize];
            let first = c * org[a];
            let last = if mask >> a & 1 == 1 {
                first + c * (len[a] - 1).max(0)
            } else {
                first
            };
            lo += first.min(last);
            hi += first.max(last);
        }
        (lo, hi)
    }

    /// Whether every bound holds everywhere in the current piece of the axes in `mask`.
    pub(crate) fn bounds_hold(&self, ctx: &Ctx, mask: u32) -> bool {
        self.bounds.iter().all(|b| {
            let (lo, hi) = CAccess::bound_range(b, ctx.p, &ctx.org, &ctx.len, mask);
            lo >= 0 && hi < ctx.param(b.extent)
        })
    }

    /// Strides of the current piece of the axes in `mask`, when addresses are affine there.
    /// Bounds are not looked at. `blocks`: one axis may lie in blocks.
    pub(crate) fn view(&self, ctx: &Ctx, mask: u32, o: &COperand, blocks: bool) -> Option<View> {
        let mut v = View::EMPTY;
        self.lay(ctx, mask, o, blocks, &mut v).then_some(v)
    }

    /// [`CAccess::view`] into a tile's own view; where it is false, what that holds means nothing.
    pub(crate) fn lay(
        &self,
        ctx: &Ctx,
        mask: u32,
        o: &COperand,
        blocks: bool,
        v: &mut View,
    ) -> bool {
        if !self.indexed.is_empty() || o.elem == 0 {
            return false;
        }
        v.clear(o.buffer as u32);
        let at = self.address(ctx.p, &ctx.org);
        v.ptr = ctx.bufs[o.buffer].wrapping_offset((at * o.elem as i64) as isize);
        for t in &self.terms {
            if mask >> t.axis & 1 == 0 {
                continue;
            }
            match piece(t, ctx.p, ctx.org[t.axis], ctx.len[t.axis]) {
                Piece::Affine(s) => v.st[t.axis] = s,
                Piece::Blocks { size, inner, outer } if blocks && v.block.is_none() => {
                    v.st[t.axis] = inner;
                    v.block = Some(Block {
                        axis: t.axis,
                        size,
                        stride: outer,
                    });
                }
                _ => return false,
            }
        }
        true
    }
}

/// Address part of coordinate `c` of a term's axis.
#[inline]
pub(crate) fn term_address(t: &CTerm, p: &[i64], c: i64) -> i64 {
    match t.leaves.as_slice() {
        [(_, s)] => c * p[*s as usize],
        _ => leaves_address(t, p, c),
    }
}

fn leaves_address(t: &CTerm, p: &[i64], c: i64) -> i64 {
    let (mut at, mut rank) = (0, c);
    for &(e, s) in t.leaves.iter().rev() {
        let e = p[e as usize].max(1);
        at += rank.rem_euclid(e) * p[s as usize];
        rank = rank.div_euclid(e);
    }
    at
}

/// How a piece of an axis lies in memory.
pub(crate) enum Piece {
    /// With one stride.
    Affine(i64),
    /// In blocks of `size`, the piece starting with one.
    Blocks { size: i64, inner: i64, outer: i64 },
    /// With one stride for the first `n` positions only.
    First(i64),
}

/// Looks at positions `org..org + len` of a term's axis.
#[inline]
pub(crate) fn piece(t: &CTerm, p: &[i64], org: i64, len: i64) -> Piece {
    match t.leaves.as_slice() {
        [] => Piece::Affine(0),
        [.., (_, s)] if t.leaves.len() == 1 || len <= 1 => Piece::Affine(p[*s as usize]),
        _ => piece_of_leaves(t, p, org, len),
    }
}

fn piece_of_leaves(t: &CTerm, p: &[i64], org: i64, len: i64) -> Piece {
    let at = |i: usize| (p[t.leaves[i].0 as usize].max(1), p[t.leaves[i].1 as usize]);
    let mut i = t.leaves.len() - 1;
    let (mut size, mut stride) = at(i);
    loop {
        let r = org.rem_euclid(size);
        if r + len <= size || i == 0 {
            return Piece::Affine(stride);
        }
        let (e, s) = at(i - 1);
        if size == 1 {
            (size, stride) = (e, s);
        } else if s == stride * size {
            size *= e;
        } else {
            let blocks = (len + size - 1) / size;
            if r == 0 && (i == 1 || (org / size).rem_euclid(e) + blocks <= e) {
                return Piece::Blocks {
                    size,
                    inner: stride,
                    outer: s,
                };
            }
            return Piece::First(size - r);
        }
        i -= 1;
    }
}
