//! Depthwise convolution of whole planes: lines of output pixels from lines of input, every channel with its
//! own filter.
//!
//! A few vectors of channels are taken through all lines before the next: their weights stay near, each input
//! line is fetched from far once and used for every tap. A register tile is a run of neighbouring pixels, for
//! which each input column of a line of taps is loaded once. Columns in the padding add nothing and are left
//! out, and so are lines of taps outside, which the caller does not list.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::{Simd, held};

/// A line of input with the weights of the taps that run along it.
#[derive(Clone, Copy, Debug)]
pub struct Taps {
    /// The pixel under the first tap of the first output pixel, which may lie in the padding.
    pub x: *const f32,
    /// The first tap's weights.
    pub w: *const f32,
}

/// A line of output pixels.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The first pixel.
    pub out: *mut f32,
    /// Behind the last of its taps' lines; they begin where those of the line before end.
    pub to: usize,
}

/// Operands of `out(l)[p * out_step + c] = bias[c] + sum over the line's taps t and s < width with
/// 0 <= left + p * stride + s < columns of t.x[(p * stride + s) * step + c] * t.w[s * ldw + c]`
/// for all lines l, p < pixels and c < channels; offsets are left out here.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Lines of output.
    pub lines: *const Line,
    /// How many.
    pub count: usize,
    /// Lines of taps of all lines of output.
    pub taps: *const Taps,
    /// Taps along a line: 3, 5 or 7.
    pub width: usize,
    /// Input columns from one output pixel to the next: 1 or 2.
    pub stride: usize,
    /// Column of the first tap of the first pixel.
    pub left: isize,
    /// Columns of the input.
    pub columns: usize,
    /// Elements from one column to the next.
    pub step: usize,
    /// Added to every `x`.
    pub x_offset: usize,
    /// Added to every `out`.
    pub out_offset: usize,
    /// Output pixels of a line.
    pub pixels: usize,
    /// Channels, contiguous in input, weights and output.
    pub channels: usize,
    /// From one tap's weights to the next.
    pub ldw: usize,
    /// From one output pixel to the next.
    pub out_step: usize,
    /// A row of channels that is added once per pixel, or null.
    pub bias: *const f32,
    /// Bounds of the results (-inf and inf: none); a NaN stays.
    pub lo: f32,
    /// See `lo`.
    pub hi: f32,
}

impl Lines {
    /// Whether there is a fast kernel for so many taps along a line and such a stride.
    #[must_use]
    pub fn fits(width: usize, stride: usize) -> bool {
        matches!(width, 3 | 5 | 7) && matches!(stride, 1 | 2)
    }
}

#[inline(always)]
unsafe fn load<S: Simd, const MASKED: bool>(p: *const f32, tail: S::T) -> S::F {
    // SAFETY: the caller vouches for the lanes.
    unsafe {
        if MASKED {
            S::load_t(p, tail)
        } else {
            S::load(p)
        }
    }
}

/// P pixels from `pixel` on of CV vectors of channels from `c` on.
#[inline(always)]
unsafe fn tile<
    S: Simd,
    const P: usize,
    const CV: usize,
    const K: usize,
    const STRIDE: usize,
    const MASKED: bool,
>(
    d: &Lines,
    (line, taps): (&Line, &[Taps]),
    pixel: usize,
    c: usize,
    tail: S::T,
) {
    // SAFETY: the caller gives pixel + P <= pixels and channels c.. that exist up to the tail; columns are
    // looked at before they are read.
    unsafe {
        let mut acc = [[S::zero(); CV]; P];
        if !d.bias.is_null() {
            for v in 0..CV {
                let b = load::<S, MASKED>(d.bias.add(c + v * S::W), tail);
                for a in &mut acc {
                    a[v] = b;
                }
            }
        }
        let first = d.left.wrapping_add((pixel * STRIDE) as isize);
        let at = pixel * STRIDE * d.step + d.x_offset + c;
        for t in taps {
            let mut w = [[S::zero(); CV]; K];
            for (s, w) in w.iter_mut().enumerate() {
                for (v, w) in w.iter_mut().enumerate() {
                    *w = load::<S, MASKED>(t.w.wrapping_add(s * d.ldw + c + v * S::W), tail);
                }
            }
            let mut x = t.x.wrapping_add(at);
            for q in 0..(P - 1) * STRIDE + K {
                if (first.wrapping_add(q as isize) as usize) < d.columns {
                    for v in 0..CV {
                        let x = load::<S, MASKED>(x.wrapping_add(v * S::W), tail);
                        for s in 0..K {
                            // The pixel that has this column under tap s, if there is one.
                            if q >= s && (q - s) % STRIDE == 0 && (q - s) / STRIDE < P {
                                let p = (q - s) / STRIDE;
                                acc[p][v] = S::fma(x, w[s][v], acc[p][v]);
                            }
                        }
                    }
                }
                x = x.wrapping_add(d.step);
            }
        }
        let (lo, hi) = (S::splat(d.lo), S::splat(d.hi));
        for p in 0..P {
            for v in 0..CV {
                let o = line
                    .out
                    .add((pixel + p) * d.out_step + d.out_offset + c + v * S::W);
                let r = S::min(hi, S::max(lo, acc[p][v]));
                if MASKED {
                    S::store_t(o, r, tail)
                } else {
                    S::store(o, r)
                }
            }
        }
    }
}

/// All lines of CV vectors of channels from `c` on.
#[inline(always)]
unsafe fn strip<
    S: Simd,
    const CV: usize,
    const K: usize,
    const STRIDE: usize,
    const MASKED: bool,
>(
    d: &Lines,
    c: usize,
    tail: S::T,
) {
    let mut from = 0;
    for l in 0..d.count {
        // SAFETY: lines and taps are as many as the caller says; tiles keep to the pixels.
        unsafe {
            let line = &*d.lines.add(l);
            let taps = std::slice::from_raw_parts(d.taps.wrapping_add(from), line.to - from);
            from = line.to;
            let both = (line, taps);
            let mut p = 0;
            if S::W == 16 {
                // Fourteen pixels are better shared out as twice seven.
                while d.pixels - p == 7 || d.pixels - p == 14 {
                    tile::<S, 7, CV, K, STRIDE, MASKED>(d, both, p, c, tail);
                    p += 7;
                }
                while p + 8 <= d.pixels {
                    tile::<S, 8, CV, K, STRIDE, MASKED>(d, both, p, c, tail);
                    p += 8;
                }
            }
            while const { held::<S>(4 * CV, K * CV) } && p + 4 <= d.pixels {
                tile::<S, 4, CV, K, STRIDE, MASKED>(d, both, p, c, tail);
                p += 4;
            }
            while const { held::<S>(2 * CV, K * CV) } && p + 2 <= d.pixels {
                tile::<S, 2, CV, K, STRIDE, MASKED>(d, both, p, c, tail);
                p += 2;
            }
            while p < d.pixels {
                tile::<S, 1, CV, K, STRIDE, MASKED>(d, both, p, c, tail);
                p += 1;
            }
        }
    }
}

#[inline(always)]
unsafe fn channels<S: Simd, const CV: usize, const K: usize, const STRIDE: usize>(d: &Lines) {
    let mut c = 0;
    // SAFETY: strips keep to the channels.
    unsafe {
        while c + CV * S::W <= d.channels {
            strip::<S, CV, K, STRIDE, false>(d, c, S::tail(S::W));
            c += CV * S::W;
        }
        while c < d.channels {
            strip::<S, 1, K, STRIDE, true>(d, c, S::tail(S::W.min(d.channels - c)));
            c += S::W;
        }
    }
}

/// Runs a depthwise convolution; nothing when [`Lines::fits`] says no.
#[inline(always)]
pub(super) unsafe fn lines<S: Simd>(d: &Lines) {
    // SAFETY: the caller's contract. Tiles of two vectors where there are registers for them.
    unsafe {
        match (d.width, d.stride, S::W) {
            (3, 1, 16) => channels::<S, 2, 3, 1>(d),
            (3, 2, 16) => channels::<S, 2, 3, 2>(d),
            (5, 1, 16) => channels::<S, 2, 5, 1>(d),
            (5, 2, 16) => channels::<S, 2, 5, 2>(d),
            (3, 1, _) => channels::<S, 1, 3, 1>(d),
            (3, 2, _) => channels::<S, 1, 3, 2>(d),
            (5, 1, _) => channels::<S, 1, 5, 1>(d),
            (5, 2, _) => channels::<S, 1, 5, 2>(d),
            (7, 1, _) => channels::<S, 1, 7, 1>(d),
            (7, 2, _) => channels::<S, 1, 7, 2>(d),
            _ => {}
        }
    }
}
