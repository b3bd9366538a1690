//! Depthwise convolution of unsigned by signed 8-bit integers with sums in i32, over channels-last rows.
//!
//! # Safety
//!
//! As for [`super::depthwise`].

use super::simd::Simd;

/// As [`super::Depthwise`], without what is done to sums: integers wrap.
#[derive(Clone, Copy, Debug)]
pub struct Depthwise8 {
    /// Output pixels in a row.
    pub pixels: usize,
    /// Channels, contiguous in x, w and out.
    pub channels: usize,
    /// Taps of the filter.
    pub taps: usize,
    /// Pointers to the first channel of the pixels under the taps.
    pub table: *const *const u8,
    /// From one output pixel's pointers to the next one's.
    pub table_step: usize,
    /// Added per output pixel to the pointers.
    pub x_step: usize,
    /// Added to every pointer.
    pub x_offset: usize,
    /// Weights, a row of channels per tap.
    pub w: *const i8,
    /// From one tap's weights to the next.
    pub ldw: usize,
    /// The first output pixel.
    pub out: *mut i32,
    /// From one output pixel to the next.
    pub out_step: usize,
    /// Whether to add to what `out` holds, or to overwrite it without reading.
    pub accumulate: bool,
}

/// P pixels of CV vectors of channels from channel `c` on; of the last vector `n` channels where CUT.
#[inline(always)]
unsafe fn tile<S: Simd, const P: usize, const CV: usize, const CUT: bool>(
    d: &Depthwise8,
    pixel: usize,
    c: usize,
    n: usize,
) {
    // SAFETY: the caller gives pixel + P <= pixels and channels c.. that exist up to the cut.
    unsafe {
        let mut acc = [[S::isplat(0); CV]; P];
        let at = pixel * d.x_step + d.x_offset + c;
        for t in 0..d.taps {
            let mut w = [S::isplat(0); CV];
            for (v, w) in w.iter_mut().enumerate() {
                let p = d.w.add(t * d.ldw + c + v * S::W);
                *w = if CUT && v == CV - 1 {
                    let mut own = [0i8; 16];
                    std::ptr::copy_nonoverlapping(p, own.as_mut_ptr(), n);
                    S::load_i8(own.as_ptr())
                } else {
                    S::load_i8(p)
                };
            }
            for (i, acc) in acc.iter_mut().enumerate() {
                let p = *d.table.add((pixel + i) * d.table_step + t);
                let p = p.add(at + i * d.x_step);
                for (v, acc) in acc.iter_mut().enumerate() {
                    let p = p.add(v * S::W);
                    let x = if CUT && v == CV - 1 {
                        let mut own = [0u8; 16];
                        std::ptr::copy_nonoverlapping(p, own.as_mut_ptr(), n);
                        S::load_u8(own.as_ptr())
                    } else {
                        S::load_u8(p)
                    };
                    *acc = S::iadd(*acc, S::imul(x, w[v]));
                }
            }
        }
        for (i, acc) in acc.iter().enumerate() {
            for (v, acc) in acc.iter().enumerate() {
                let p = d.out.add((pixel + i) * d.out_step + c + v * S::W).cast();
                let cut = CUT && v == CV - 1;
                let mask = S::tail(if cut { n } else { S::W });
                let mut sum = *acc;
                if d.accumulate {
                    let old = if cut { S::load_t(p, mask) } else { S::load(p) };
                    sum = S::iadd(sum, S::bits(old));
                }
                if cut {
                    S::store_t(p, S::from_bits(sum), mask);
                } else {
                    S::store(p, S::from_bits(sum));
                }
            }
        }
    }
}

/// All pixels of CV vectors of channels.
#[inline(always)]
unsafe fn column<S: Simd, const CV: usize, const CUT: bool>(d: &Depthwise8, c: usize, n: usize) {
    let mut pixel = 0;
    // SAFETY: the caller's contract; pixels stay below their number.
    unsafe {
        while pixel + 4 <= d.pixels {
            tile::<S, 4, CV, CUT>(d, pixel, c, n);
            pixel += 4;
        }
        while pixel < d.pixels {
            tile::<S, 1, CV, CUT>(d, pixel, c, n);
            pixel += 1;
        }
    }
}

/// Sums for all pixels and channels.
///
/// # Safety
///
/// For all pixels p, taps t and channels c: x(p, t)\[c\] and w\[t\]\[c\] are readable and out\[p\]\[c\] is
/// writable, initialised when `accumulate`, and overlaps nothing.
#[inline(always)]
pub(super) unsafe fn depthwise8<S: Simd>(d: &Depthwise8) {
    let mut c = 0;
    // SAFETY: the caller's contract; vectors stay inside the channels, the last one cut.
    unsafe {
        while c + 2 * S::W <= d.channels {
            column::<S, 2, false>(d, c, 0);
            c += 2 * S::W;
        }
        while c + S::W <= d.channels {
            column::<S, 1, false>(d, c, 0);
            c += S::W;
        }
        if c < d.channels {
            column::<S, 1, true>(d, c, d.channels - c);
        }
    }
}
