//! Rules for tiles that are staged in shared memory. Planner and emitters must agree on them.
use crate::{Access, Axis, AxisId, Swizzle};
use layout::{Dim, Leaf};

/// Neighbours along an axis that a thread touches at once, at most: numbers of 4 bits in 16 bytes.
pub const MOST_NEIGHBOURS: u32 = 32;

impl Access {
    /// How many neighbours along `axis` can be moved at once: the largest power of two up to `most`
    /// of which every aligned run is contiguous, begins on a multiple of itself (the buffer does),
    /// and is inside or outside as a whole. `extent` is the axis', `tile` its positions per tile.
    pub fn run(&self, axis: AxisId, extent: &Dim, tile: i64, most: u32) -> u32 {
        let unit = self
            .term(axis)
            .is_some_and(|t| t.stride().is_some_and(Dim::is_one));
        let bound = self
            .bounds
            .iter()
            .any(|b| b.terms.iter().any(|t| t.0 == axis));
        if !unit || bound || !self.indexed.is_empty() {
            return 1;
        }
        let others = || {
            let terms = self.terms.iter().filter(|t| t.axis != axis);
            terms.flat_map(|t| &t.leaves).map(|l| &l.stride)
        };
        let mut n = most.max(1);
        while n > 1 {
            let fits = |d: &Dim| d.exact_div(&Dim::Known(n.into())).is_some();
            let whole = n.is_power_of_two() && tile % i64::from(n) == 0;
            if whole && fits(extent) && fits(&self.offset) && others().all(fits) {
                return n;
            }
            n /= 2;
        }
        1
    }

    /// Whether every piece of `lines` positions of one axis and `depth` of another, elements of so many `bits`, lies in
    /// one run: in lines of 16 bytes along the depth, those of all positions side by side, and behind them those of the
    /// next 16 bytes of the depth. Tensor-core instructions of a warpgroup read it like that, without a swizzle.
    pub fn image(
        &self,
        axes: &[Axis],
        (line, lines): (AxisId, i64),
        (along, depth): (AxisId, i64),
        bits: u32,
    ) -> bool {
        let extent = |a: AxisId| axes.get(a as usize)?.extent.known();
        let leaves = |a: AxisId| -> Option<Vec<(i64, i64)>> {
            let known = |l: &Leaf| Some((l.extent.known()?, l.stride.known()?));
            self.term(a)?.leaves.iter().map(known).collect()
        };
        let vector = i64::from(128 / bits.clamp(1, 128));
        let beside = match leaves(line).as_deref() {
            // All of them are in one panel.
            Some(&[(_, s)]) => s == vector && extent(line).is_some_and(|e| e <= lines),
            Some(&[_, (e, s)]) => (e, s) == (lines, vector),
            _ => false,
        };
        let deep = match leaves(along).as_deref() {
            Some(&[(_, far), near]) => far == lines * vector && near == (vector, 1),
            _ => false,
        };
        let whole = extent(along).is_some_and(|e| depth > 0 && e % depth == 0);
        let plain = self.bounds.is_empty() && self.indexed.is_empty();
        // Copies of runs begin at multiples of 16 bytes.
        let begins = |d: &Dim| d.is_zero() || d.exact_div(&Dim::Known(vector)).is_some();
        let others = self.terms.iter().flat_map(|t| {
            let near = move |l: &&Leaf| !(t.axis == along && l.stride.is_one());
            t.leaves.iter().filter(near)
        });
        let plain = plain && begins(&self.offset) && others.into_iter().all(|l| begins(&l.stride));
        beside && deep && whole && depth % vector == 0 && plain
    }
}

impl Swizzle {
    /// The swizzle of lines of `bytes` of elements of so many bits by which tensor-core instructions of a warpgroup
    /// read shared memory: pieces of 16 bytes change places by the number of the line of 128 bytes that they lie in.
    /// `None` for lines that these do not read.
    pub fn of_lines(bytes: u32, bits: u32) -> Option<Swizzle> {
        let base = (128 / bits.max(1)).checked_ilog2()?;
        matches!(bytes, 32 | 64 | 128).then(|| Swizzle {
            bits: (bytes / 16).ilog2(),
            base,
            shift: 3,
        })
    }

    /// Elements of so many bits of the lines whose swizzle ([`Swizzle::of_lines`]) this is.
    pub fn line(self, bits: u32) -> Option<i64> {
        let own = |bytes: &u32| Swizzle::of_lines(*bytes, bits) == Some(self);
        let bytes = [32, 64, 128].into_iter().find(own)?;
        // Texts and what the host holds have no bits.
        (bytes * 8).checked_div(bits).map(i64::from)
    }

    /// Whether the swizzle maps lines of `inner` elements of so many `bits`, 8, 16 or 32, onto themselves and blocks of
    /// 16 by 16 elements commute with it: it moves whole vectors of 16 bytes, at most of 8 elements, within a line,
    /// by bits of the line's number that eight neighbouring lines go through.
    pub fn fits(&self, inner: u32, bits: u32) -> bool {
        let vector = 128 / bits.clamp(8, 32);
        if self.bits == 0 {
            return inner.is_multiple_of(vector);
        }
        let own = vector.ilog2();
        (own..=own.max(3)).contains(&self.base)
            && self.bits <= 5
            && (self.bits..=10).contains(&self.shift)
            && inner.is_power_of_two()
            && (1 << (self.base + self.bits)..=1 << (self.base + self.shift)).contains(&inner)
            && inner
                .checked_mul(8)
                .is_some_and(|n| n.is_multiple_of(1 << (self.base + self.shift + self.bits)))
    }
}
