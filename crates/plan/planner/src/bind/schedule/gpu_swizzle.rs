//! Swizzles of tiles that a GPU's products stage in shared memory, by who reads them.
use kernel::{Fragment, Swizzle};

/// Neighbours that a thread has of rows, of columns and of what is summed, in plain multiply-adds: they are read
/// of shared memory at once.
pub(super) const NEIGHBOURS: u32 = 4;

/// The swizzle with which threads that have neighbouring lines of `line` elements of so many bytes, each its
/// [`NEIGHBOURS`], find 16 bytes of them in different banks: pieces of 16 bytes change places by the number of
/// the thread. None where lines are not whole powers of two of them.
pub(super) fn line_swizzle(line: i64, bytes: i64) -> Swizzle {
    let none = Swizzle::default();
    let piece = 16 / bytes.max(1);
    if piece < 2 || line.count_ones() != 1 || line < 2 * piece {
        return none;
    }
    let bits = (line / piece).min(8).ilog2();
    let base = piece.ilog2();
    Swizzle {
        bits,
        base,
        shift: (line * i64::from(NEIGHBOURS)).ilog2() - base,
    }
}

/// The swizzle for fragments of f32 of lines of `line` elements. Those along the depth are loaded eight at once, 16
/// bytes of each; of others lanes read words, eight neighbours of four lines.
pub(super) fn word_swizzle(line: i64, deep: bool) -> Swizzle {
    let (bits, base) = if deep { (3, 2) } else { (2, 3) };
    let vectors = u32::try_from(line >> base).unwrap_or(0);
    if line.count_ones() != 1 || vectors < 2 {
        return Swizzle::default();
    }
    let own = vectors.ilog2();
    let all = Swizzle {
        bits: own.min(bits),
        base,
        // Lines shorter than all banks share them with their neighbours.
        shift: own.max(if deep { 3 } else { 2 }),
    };
    match all.fits(u32::try_from(line).unwrap_or(0), 32) {
        true => all,
        false => Swizzle::default(),
    }
}

/// Bytes of the longest line that a warpgroup's instructions read.
const LONGEST: u32 = 128;

/// The swizzle of lines of so many elements that a warpgroup's instructions read.
pub(super) fn group_lines(f: Fragment, line: u32) -> Option<Swizzle> {
    let bits = f.input.bits();
    Swizzle::of_lines(line.checked_mul(bits)? / 8, bits)
}

/// The same of elements as they are multiplied.
pub(super) fn multiplied_lines(f: Fragment, line: u32) -> Option<Swizzle> {
    let bits = f.multiplied()[0].bits();
    Swizzle::of_lines(line.checked_mul(bits)? / 8, bits)
}

/// The swizzle of [`group_lines`] for lines that may be longer: then they lie in parts behind each other.
pub(super) fn parted_lines(f: Fragment, line: u32) -> Option<Swizzle> {
    let most = LONGEST * 8 / f.input.bits();
    match line.is_multiple_of(most) {
        true => group_lines(f, most),
        false => group_lines(f, line),
    }
}

/// The swizzle of lines of so many numbers of 4 bits along the depth, of which the lanes of eight neighbouring ones read
/// the same 16 bytes together.
pub(super) fn number_lines(line: i64) -> Swizzle {
    let found = u32::try_from(line / 2).ok();
    let found = found.and_then(|bytes| Swizzle::of_lines(bytes, 4));
    found.unwrap_or_default()
}
