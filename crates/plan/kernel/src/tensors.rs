//! Operands as tensors of which a task's piece is a box, so that one copy brings it ([`crate::Place::Tensor`]).
use crate::{Access, Axis, AxisId, Swizzle};
use layout::{Arrange, Dim};

/// Dimensions of a tensor at most.
const MOST_DIMS: usize = 5;
/// Elements of a box along a dimension at most, between its first and its last.
const MOST_BOX: i64 = 256;
/// Elements between neighbours of a box along a dimension at most.
const MOST_STEP: i64 = 8;
/// Bits that addresses and strides are a multiple of.
const GRAIN: i64 = 128;
/// Lines after which a swizzle begins anew.
const BLOCK: i64 = 8;

/// A dimension of an operand as a tensor. The coordinate of a piece along it is `base` and so many times the coordinate
/// of each axis; outside `0..extent` there are zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorDim {
    /// Elements along it.
    pub extent: Dim,
    /// Elements of memory from one to the next.
    pub stride: Dim,
    /// Coordinate where all axes are at 0.
    pub base: Dim,
    /// Axes with their coefficients.
    pub terms: Vec<(AxisId, i64)>,
    /// Elements that a piece has along it.
    pub count: i64,
    /// How far apart these are.
    pub step: i64,
}

impl TensorDim {
    /// Elements from the first to the last of a piece.
    pub fn reach(&self) -> i64 {
        (self.count - 1).saturating_mul(self.step).saturating_add(1)
    }

    /// Counts the positions that a piece has along an axis; gives whether it has those of no other.
    fn has(&mut self, axis: AxisId, positions: i64) -> bool {
        let Some(&(_, step)) = self.terms.iter().find(|t| t.0 == axis) else {
            return false;
        };
        let free = self.count == 1;
        (self.count, self.step) = (positions, step);
        free
    }
}

/// An operand as a tensor: its first element, and its dimensions from the innermost on, in the order in which a piece
/// lies in shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorView {
    /// Element of the operand that all coordinates of 0 are at.
    pub offset: Dim,
    /// Dimensions, the innermost first.
    pub dims: Vec<TensorDim>,
}

impl TensorView {
    /// Elements of a box.
    pub fn elements(&self) -> i64 {
        self.dims.iter().map(|d| d.count).product()
    }

    /// The same with boxes that are one of `n` equal shares of its own, which follow each other in shared memory, and the
    /// dimension along which they do; `None` where a share is no whole blocks of 8 lines.
    pub fn share(&self, n: u32) -> Option<(usize, TensorView)> {
        let at = self.dims.iter().rposition(|d| d.count > 1)?;
        let lines: i64 = self.dims.iter().skip(1).map(|d| d.count).product();
        let (n, count) = (i64::from(n.max(1)), self.dims[at].count);
        if at == 0 || count % n != 0 || lines % (n * BLOCK) != 0 {
            return None;
        }
        let mut share = self.clone();
        share.dims[at].count = count / n;
        Some((at, share))
    }
}

impl Access {
    /// The operand as a tensor of which a piece of so many positions along each axis, outermost first as it lies in shared
    /// memory, is a box, or several beside each other along the last axis, each of `line` elements there; elements have so
    /// many `bits`. `None` where it is none that copies of boxes bring: they want addresses and strides of 16 bytes,
    /// which go forwards, lines of 32, 64 or 128 bytes that lie together, at most 5 dimensions, and zeros outside.
    pub fn tensor(
        &self,
        axes: &[Axis],
        piece: &[(AxisId, i64)],
        line: i64,
        bits: u32,
    ) -> Option<TensorView> {
        if !self.indexed.is_empty() || self.outside != 0.0 || !matches!(bits, 8 | 16 | 32) {
            return None;
        }
        let (mut dims, offset) = self.dims(axes)?;
        let &(last, inner) = piece.last()?;
        let bytes = line.checked_mul(i64::from(bits))? / 8;
        Swizzle::of_lines(u32::try_from(bytes).ok()?, bits)?;
        if inner % line != 0 {
            return None;
        }
        for &(a, n) in piece.iter().filter(|p| p.1 != 1) {
            let n = if a == last { line } else { n };
            let own = dims.iter_mut().find(|d| d.terms.iter().any(|t| t.0 == a))?;
            if !own.has(a, n) {
                return None;
            }
        }
        // As a piece lies in shared memory, then those along which it has one element.
        let place = |d: &TensorDim| {
            let own = |p: &(AxisId, i64)| p.1 != 1 && d.terms.iter().any(|t| t.0 == p.0);
            piece.iter().rev().position(own).unwrap_or(piece.len())
        };
        dims.arrange_by_key(place);
        let first = dims.first()?;
        let grain = Dim::Known(GRAIN / i64::from(bits));
        let whole = |d: &Dim| d.is_zero() || d.exact_div(&grain).is_some();
        let together = first.stride.is_one() && first.step == 1 && first.count == line;
        let fits = |d: &TensorDim| {
            (1..=MOST_STEP).contains(&d.step) && (1..=MOST_BOX).contains(&d.reach())
        };
        let forward = |d: &TensorDim| (d.stride.clone() - Dim::ONE).provably_nonneg();
        let legal = dims.len() <= MOST_DIMS
            && dims.iter().all(|d| fits(d) && forward(d))
            && dims[1..].iter().all(|d| whole(&d.stride));
        let begins = whole(&offset) && offset.provably_nonneg();
        (together && legal && begins).then_some(TensorView { offset, dims })
    }

    /// A dimension for each bound, and for each axis without one, with the element that all coordinates of 0 are at.
    fn dims(&self, axes: &[Axis]) -> Option<(Vec<TensorDim>, Dim)> {
        let stride = |a: AxisId| self.term(a)?.stride().cloned();
        let mut dims: Vec<TensorDim> = vec![];
        let mut offset = self.offset.clone();
        for b in &self.bounds {
            let mut own: Option<Dim> = None;
            let mut terms = vec![];
            for (a, by) in &b.terms {
                let by = by.known().filter(|n| *n > 0)?;
                let each = stride(*a)?.exact_div(&Dim::Known(by))?;
                if own.get_or_insert_with(|| each.clone()) != &each {
                    return None;
                }
                terms.push((*a, by));
            }
            let stride = own?;
            offset = offset - b.base.clone() * stride.clone();
            dims.push(TensorDim {
                extent: b.extent.clone(),
                stride,
                base: b.base.clone(),
                terms,
                count: 1,
                step: 1,
            });
        }
        // Along an axis of one position every coordinate is 0.
        let several = |a: AxisId| axes.get(a as usize).is_some_and(|x| !x.extent.is_one());
        for t in self.terms.iter().filter(|t| several(t.axis)) {
            let bounded = |d: &&TensorDim| d.terms.iter().any(|x| x.0 == t.axis);
            match dims.iter().filter(bounded).count() {
                0 => dims.push(TensorDim {
                    extent: axes.get(t.axis as usize)?.extent.clone(),
                    stride: t.stride()?.clone(),
                    base: Dim::ZERO,
                    terms: vec![(t.axis, 1)],
                    count: 1,
                    step: 1,
                }),
                1 => {}
                _ => return None,
            }
        }
        Some((dims, offset))
    }
}
