//! The greatest or smallest element of a row, or of every column of a matrix, and where it is.
//!
//! Columns are plain loops over blocks of lanes: the compiler makes vectors of them for the instruction set that a wrapper of
//! `kernels.rs` names.
//!
//! # Safety
//!
//! As for [`super::columns`].

use super::row;
use super::simd::Simd;

/// Lanes that are compared together.
const WIDE: usize = 16;

/// Vectors of a row that are compared before it is seen whether any was meant.
const VECTORS: usize = 4;

/// What of a row is picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The greatest, not the smallest.
    pub largest: bool,
    /// Of equal elements the last one.
    pub last: bool,
    /// What becomes of NaNs.
    pub nan: Nan,
}

/// What a NaN is to a pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nan {
    /// Better than any number.
    Wins,
    /// Worse than any number.
    Loses,
    /// Better with rank 0, else worse.
    FirstStays,
}

/// The best of each of `n` columns among `rows` rows and what is at hand.
#[derive(Clone, Copy, Debug)]
pub struct Picks {
    /// What is picked.
    pub pick: Pick,
    /// Rows, at most 2^30.
    pub rows: usize,
    /// Columns, contiguous in x, values and ranks.
    pub n: usize,
    /// The first element of the first row.
    pub x: *const f32,
    /// From one row to the next, in elements; any sign.
    pub ld: isize,
    /// Rank of the first row.
    pub base: i64,
    /// From the rank of one row to the next, at least 0.
    pub by: i64,
    /// The best of each column, which ranks below `base`.
    pub values: *mut f32,
    /// Its rank, less than 0 where there is none.
    pub ranks: *mut i64,
}

/// Whether `v` is taken where `kept`, which came before it, is at hand: the greater one.
#[inline(always)]
fn takes<const LAST: bool, const WINS: bool>(v: f32, kept: f32) -> bool {
    // What is not worse: comparisons with a NaN are false.
    let better = if LAST { v >= kept } else { v > kept };
    let (nan, kept) = (v.is_nan(), kept.is_nan());
    let by_nan = match (WINS, LAST) {
        (true, true) => nan,
        (true, false) => nan & !kept,
        (false, true) => kept,
        (false, false) => kept & !nan,
    };
    better | by_nan
}

/// Hands `$f` the two constants of `$p`, in the order of [`takes`], before its other parameters.
macro_rules! known {
    ($p:expr, $f:ident $(:: <$t:tt>)? ($($a:expr),*)) => {{
        let p: Pick = $p;
        match (p.last, p.nan == Nan::Wins) {
            (true, true) => $f::<true, true $(, $t)?>($($a),*),
            (true, false) => $f::<true, false $(, $t)?>($($a),*),
            (false, true) => $f::<false, true $(, $t)?>($($a),*),
            (false, false) => $f::<false, false $(, $t)?>($($a),*),
        }
    }};
}

/// What turns the sign of numbers whose smallest is picked: that is the greatest of their opposites.
fn sign(pick: Pick) -> u32 {
    if pick.largest { 0 } else { 1 << 31 }
}

/// `v`, its sign turned by what [`sign`] says; a NaN stays one.
#[inline(always)]
fn turned(v: f32, sign: u32) -> f32 {
    f32::from_bits(v.to_bits() ^ sign)
}

/// See [`Picks`].
#[inline(always)]
#[allow(
    clippy::extra_unused_type_parameters,
    reason = "every kernel of the table is wrapped for an instruction set"
)]
pub(super) unsafe fn columns<S: Simd>(d: &Picks) {
    if d.rows == 0 {
        return;
    }
    let mut c = 0;
    // SAFETY: the columns that the caller vouches for, each once.
    unsafe {
        while c + WIDE <= d.n {
            known!(d.pick, strip::<WIDE>(d, c));
            c += WIDE;
        }
        while c < d.n {
            known!(d.pick, strip::<1>(d, c));
            c += 1;
        }
    }
}

/// Columns c.. of a strip of `W`.
#[inline(always)]
unsafe fn strip<const LAST: bool, const WINS: bool, const W: usize>(d: &Picks, c: usize) {
    // SAFETY: the caller gives columns that are there, in every row.
    unsafe {
        let sign = sign(d.pick);
        let row = |r: usize| {
            let p = d.x.add(c).wrapping_offset(r as isize * d.ld);
            (*p.cast::<[f32; W]>()).map(|v| turned(v, sign))
        };
        let (values, ranks) = (
            &mut *d.values.add(c).cast::<[f32; W]>(),
            &mut *d.ranks.add(c).cast::<[i64; W]>(),
        );
        let (mut v, mut at) = (values.map(|v| turned(v, sign)), [-1i32; W]);
        let first = row(0);
        let mut fixed = [false; W];
        if d.pick.nan == Nan::FirstStays {
            for l in 0..W {
                let first = (d.base == 0) & first[l].is_nan();
                fixed[l] = first | ((ranks[l] == 0) & v[l].is_nan());
            }
        }
        for l in 0..W {
            let none = ranks[l] < 0;
            let taken = none | takes::<LAST, WINS>(first[l], v[l]);
            v[l] = if taken { first[l] } else { v[l] };
            at[l] = if taken { 0 } else { at[l] };
        }
        for r in 1..d.rows {
            let x = row(r);
            for l in 0..W {
                let taken = takes::<LAST, WINS>(x[l], v[l]);
                v[l] = if taken { x[l] } else { v[l] };
                at[l] = if taken { r as i32 } else { at[l] };
            }
        }
        for l in 0..W {
            let rank = d.base + d.by * i64::from(at[l]);
            let rank = if at[l] < 0 { ranks[l] } else { rank };
            ranks[l] = if fixed[l] { 0 } else { rank };
            values[l] = if fixed[l] {
                f32::NAN
            } else {
                turned(v[l], sign)
            };
        }
    }
}

/// Where the best of the `n` elements from `x` on is, the first of which has rank 0; 0 where there is none.
#[inline(always)]
pub(super) unsafe fn row<S: Simd>(pick: &Pick, x: *const f32, n: usize) -> usize {
    // SAFETY: as the caller says.
    unsafe {
        let best = match pick.largest {
            true => row::max::<S>(x, n),
            false => row::min::<S>(x, n),
        };
        let row = std::slice::from_raw_parts(x, n);
        if best.is_nan() {
            return among_nans(*pick, row);
        }
        place::<S>(row, best, pick.last)
    }
}

/// As [`row`], one element after the other.
#[cold]
fn among_nans(pick: Pick, row: &[f32]) -> usize {
    let (mut at, sign) = (0, sign(pick));
    for (i, &v) in row.iter().enumerate().skip(1) {
        let stays = pick.nan == Nan::FirstStays && at == 0 && row[0].is_nan();
        if !stays && known!(pick, takes(turned(v, sign), turned(row[at], sign))) {
            at = i;
        }
    }
    at
}

/// The first or last of the elements that are `v`; 0 where there is none.
#[inline(always)]
unsafe fn place<S: Simd>(row: &[f32], v: f32, last: bool) -> usize {
    let group = S::W * VECTORS;
    let within = |from: usize, to: usize| {
        let part = &row[from..to];
        let at = match last {
            true => part.iter().rposition(|x| *x == v),
            false => part.iter().position(|x| *x == v),
        };
        at.map(|at| from + at)
    };
    // SAFETY: groups lie within the row.
    let has = |from: usize| unsafe {
        let (p, v) = (row.as_ptr().add(from), S::splat(v));
        let mut any = S::m_none();
        for i in 0..VECTORS {
            any = S::m_or(any, S::eq(S::load(p.add(i * S::W)), v));
        }
        S::m_any(any)
    };
    let whole = row.len() / group * group;
    let at = match last {
        false => {
            let mut groups = (0..whole).step_by(group);
            let at = groups.find(|g| has(*g)).and_then(|g| within(g, g + group));
            at.or_else(|| within(whole, row.len()))
        }
        true => within(whole, row.len()).or_else(|| {
            let mut groups = (0..whole / group).rev().map(|g| g * group);
            groups.find(|g| has(*g)).and_then(|g| within(g, g + group))
        }),
    };
    at.unwrap_or(0)
}
