//! Matrix descriptors of `wgmma`: where pieces of 16 bytes lie in shared memory.

/// A descriptor's fields, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptor {
    start: u64,
    /// Leading and stride offsets.
    leading: u64,
    stride: u64,
    /// Where the swizzle's pattern begins, in steps of 128 bytes.
    base: u64,
    /// Bytes of a row: 128, 64 or 32, or 16 without a swizzle.
    row: u64,
}

impl Descriptor {
    /// Reads the 64 bits; none when bits are set that have no meaning.
    pub fn decode(bits: u64) -> Option<Descriptor> {
        let field = |at: u32| (bits >> at & 0x3fff) << 4;
        let spare = 3 << 14 | 3 << 30 | 7 << 46 | 0x3ff << 52;
        (bits & spare == 0).then_some(Descriptor {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base: bits >> 49 & 7,
            row: [16, 128, 64, 32][(bits >> 62) as usize],
        })
    }

    /// The swizzle: pieces of a row change places by the address of the row.
    fn swizzled(&self, at: u64) -> u64 {
        let rows = self.row / 16 - 1;
        at ^ ((at >> 7).wrapping_sub(self.base) & rows) << 4
    }

    /// K-major: piece `c` along k of row `mn`.
    pub fn along_k(&self, mn: u64, c: u64) -> u64 {
        let at = self.start + mn / 8 * self.stride + mn % 8 * self.row;
        match self.row {
            16 => at + c * self.leading,
            _ => self.swizzled(at + c * 16),
        }
    }

    /// MN-major, of elements of 2 bytes: piece `c` along m or n at `k`.
    pub fn along_mn(&self, k: u64, c: u64) -> u64 {
        let at = self.start + k % 8 * self.row;
        if self.row == 16 {
            return at + c * self.stride + k / 8 * self.leading;
        }
        let pieces = self.row / 16;
        let at = at + k / 8 * self.stride + c / pieces * self.leading;
        self.swizzled(at + c % pieces * 16)
    }
}
