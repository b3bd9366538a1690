//! Elements at places that other elements give: offsets from indices, and loads at offsets.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

#![allow(
    clippy::extra_unused_type_parameters,
    reason = "plain loops, compiled once for each instruction set as all others are"
)]

use super::simd::Simd;

/// What indices along one axis of a source stand for.
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    /// Positions of the axis; indices below 0 count from its end.
    pub extent: i64,
    /// What lies between two of them, in the unit of the offsets.
    pub stride: i64,
}

impl Ranks {
    /// The position that index `v` stands for, which may be outside.
    #[inline(always)]
    #[must_use]
    pub fn position(&self, v: i64) -> i64 {
        v.wrapping_add(if v < 0 { self.extent } else { 0 })
    }

    /// Whether `v` is an index of no position.
    #[inline(always)]
    #[must_use]
    pub fn is_outside(&self, v: i64) -> bool {
        self.position(v) as u64 >= self.extent as u64
    }
}

/// Offsets of indices that are `step` elements apart: `begin`, `stride` and so on (with no `begin`: what is
/// there), plus what each index stands for. Gives whether any of them is outside.
macro_rules! ranks {
    ($name:ident, $t:ty) => {
        #[inline(always)]
        pub(super) unsafe fn $name<S: Simd>(
            by: *const $t,
            step: isize,
            r: &Ranks,
            begin: Option<(i64, i64)>,
            offsets: *mut i64,
            n: usize,
        ) -> bool {
            let r = *r;
            macro_rules! go {
                ($at:expr, $scaled:expr, $from:expr) => {{
                    let mut outside = false;
                    for i in 0..n {
                        // SAFETY: the caller gives n indices and n offsets.
                        unsafe {
                            let x = r.position(by.offset($at(i)).read_unaligned() as i64);
                            outside |= x as u64 >= r.extent as u64;
                            let o = offsets.add(i);
                            let from: i64 = $from(i, o);
                            *o = from.wrapping_add($scaled(x));
                        }
                    }
                    outside
                }};
            }
            let times = |x: i64| x.wrapping_mul(r.stride);
            let shift = r.stride.trailing_zeros();
            let shifted = |x: i64| x.wrapping_shl(shift);
            let dense = |i: usize| i as isize;
            // SAFETY: the caller gives n offsets.
            let there = |_: usize, o: *mut i64| unsafe { *o };
            // A product of 64 bits takes several instructions; strides are mostly powers of two.
            let power = r.stride > 0 && r.stride.count_ones() == 1;
            match (step, power, begin) {
                (1, true, Some((b, 0))) => go!(dense, shifted, |_, _| b),
                (1, true, None) => go!(dense, shifted, there),
                (1, false, None) => go!(dense, times, there),
                (1, false, Some((b, 0))) => go!(dense, times, |_, _| b),
                (_, _, None) => go!(|i: usize| i as isize * step, times, there),
                (_, _, Some((b, s))) => {
                    go!(|i: usize| i as isize * step, times, |i: usize, _| s
                        .wrapping_mul(i as i64)
                        .wrapping_add(b))
                }
            }
        }
    };
}
ranks!(ranks64, i64);
ranks!(ranks32, i32);

/// Neighbours that are looked at together.
const RUN: usize = 16;

/// `dst[i]` is what lies `offsets[i]` bytes behind `src`. Where neighbours of the source follow each other they
/// are copied as a piece.
macro_rules! take {
    ($name:ident, $t:ty) => {
        #[inline(always)]
        pub(super) unsafe fn $name<S: Simd>(
            src: *const $t,
            offsets: *const i64,
            dst: *mut $t,
            n: usize,
        ) {
            let src = src.cast::<u8>();
            let one = |i: usize| {
                // SAFETY: the caller vouches for every offset.
                unsafe {
                    let v = src.offset(*offsets.add(i) as isize).cast::<$t>();
                    dst.add(i).write_unaligned(v.read_unaligned());
                }
            };
            let mut i = 0;
            while i + RUN <= n {
                // SAFETY: the caller gives n offsets.
                let at = |j: usize| unsafe { *offsets.add(i + j) };
                let first = at(0);
                let off = |j: usize| at(j).wrapping_sub(first) ^ (j * size_of::<$t>()) as i64;
                // The last alone says of most that they do not follow each other.
                if off(RUN - 1) == 0 && (1..RUN - 1).fold(0, |all, j| all | off(j)) == 0 {
                    // SAFETY: the caller vouches for every offset, and these follow each other.
                    unsafe {
                        let v = src.offset(first as isize).cast::<[$t; RUN]>();
                        dst.add(i)
                            .cast::<[$t; RUN]>()
                            .write_unaligned(v.read_unaligned());
                    }
                } else {
                    (i..i + RUN).for_each(one);
                }
                i += RUN;
            }
            (i..n).for_each(one);
        }
    };
}
take!(take8, u8);
take!(take16, u16);
take!(take32, u32);
take!(take64, u64);
