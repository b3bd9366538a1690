//! Depthwise convolution over channels-last rows: every channel has its own filter.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::{Simd, held};

/// Operands of `out[p * out_step + c] (+)= sum_t x(p, t)[c] * w[t * ldw + c]` for p < pixels, c < channels, where
/// `x(p, t) = table[p * table_step + t] + p * x_step + x_offset`.
///
/// With `table_step` 0 and `x_step` the distance between pixels, one pointer per tap serves a whole run of inner
/// pixels. With `x_step` 0 the table names every pixel's taps (columns shared between neighbours when
/// `table_step < taps`), and taps in the padding point to zeros. Strides count elements.
#[derive(Clone, Copy, Debug)]
pub struct Depthwise {
    /// Output pixels in a row.
    pub pixels: usize,
    /// Channels, contiguous in x, w and out.
    pub channels: usize,
    /// Taps of the filter.
    pub taps: usize,
    /// Taps come in runs of this many, whose pointers lie `x_step` apart (a filter's row with stride and dilation
    /// 1): each input vector is then loaded once for all of them. 1 promises nothing. Divides `taps`; runs of 3, 5
    /// and 7 with `table_step` 0 are fast.
    pub run: usize,
    /// Pointers to the first channel of the pixels under the taps.
    pub table: *const *const f32,
    /// From one output pixel's pointers to the next one's.
    pub table_step: usize,
    /// Added per output pixel to the pointers.
    pub x_step: usize,
    /// Added to every pointer.
    pub x_offset: usize,
    /// Weights, a row of channels per tap.
    pub w: *const f32,
    /// From one tap's weights to the next.
    pub ldw: usize,
    /// The first output pixel.
    pub out: *mut f32,
    /// From one output pixel to the next.
    pub out_step: usize,
    /// A row of channels that is added once per pixel, or null.
    pub bias: *const f32,
    /// Whether to add to what `out` holds, or to overwrite it without reading.
    pub accumulate: bool,
    /// Bounds of the results (-inf and inf: none); a NaN stays.
    pub lo: f32,
    /// See `lo`.
    pub hi: f32,
}

/// P pixels of CV vectors of channels from channel `c` on, the last vector masked when MASKED, taps in runs of RUN.
#[inline(always)]
unsafe fn tile<S: Simd, const P: usize, const CV: usize, const RUN: usize, const MASKED: bool>(
    d: &Depthwise,
    pixel: usize,
    c: usize,
    tail: S::T,
) {
    // SAFETY: the caller gives pixel + P <= pixels and channels c.. that exist up to the tail.
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
        let at = pixel * d.x_step + d.x_offset + c;
        let mut t = 0;
        while t < d.taps {
            let mut w = [[S::zero(); CV]; RUN];
            for (s, w) in w.iter_mut().enumerate() {
                for (v, w) in w.iter_mut().enumerate() {
                    *w = load::<S, MASKED>(d.w.add((t + s) * d.ldw + c + v * S::W), tail);
                }
            }
            if RUN > 1 {
                // The column under pixel q - s and tap s is the same for all s: one load, up to RUN products.
                let row = (*d.table.add(t)).wrapping_add(at);
                for q in 0..P + RUN - 1 {
                    for v in 0..CV {
                        let x = load::<S, MASKED>(row.wrapping_add(q * d.x_step + v * S::W), tail);
                        for s in 0..RUN {
                            if q >= s && q - s < P {
                                acc[q - s][v] = S::fma(x, w[s][v], acc[q - s][v]);
                            }
                        }
                    }
                }
            } else if d.table_step == 0 {
                let row = (*d.table.add(t)).wrapping_add(at);
                for (p, a) in acc.iter_mut().enumerate() {
                    for v in 0..CV {
                        let x = load::<S, MASKED>(row.wrapping_add(p * d.x_step + v * S::W), tail);
                        a[v] = S::fma(x, w[0][v], a[v]);
                    }
                }
            } else {
                for (p, a) in acc.iter_mut().enumerate() {
                    let x = (*d.table.add((pixel + p) * d.table_step + t))
                        .wrapping_add(at + p * d.x_step);
                    for v in 0..CV {
                        a[v] = S::fma(
                            load::<S, MASKED>(x.wrapping_add(v * S::W), tail),
                            w[0][v],
                            a[v],
                        );
                    }
                }
            }
            t += RUN;
        }
        for p in 0..P {
            for v in 0..CV {
                let o = d.out.add((pixel + p) * d.out_step + c + v * S::W);
                finish::<S, MASKED>(d, o, acc[p][v], tail);
            }
        }
    }
}

/// Puts finished sums to `o`.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd, const MASKED: bool>(
    d: &Depthwise,
    o: *mut f32,
    sums: S::F,
    tail: S::T,
) {
    // SAFETY: the caller vouches for the lanes.
    unsafe {
        let r = if d.accumulate {
            S::add(sums, load::<S, MASKED>(o, tail))
        } else {
            sums
        };
        let r = S::min(S::splat(d.hi), S::max(S::splat(d.lo), r));
        if MASKED {
            S::store_t(o, r, tail)
        } else {
            S::store(o, r)
        }
    }
}

#[inline(always)]
pub(super) unsafe fn load<S: Simd, const MASKED: bool>(p: *const f32, tail: S::T) -> S::F {
    // SAFETY: the caller vouches for the lanes.
    unsafe {
        if MASKED {
            S::load_t(p, tail)
        } else {
            S::load(p)
        }
    }
}

#[inline(always)]
unsafe fn pixels<S: Simd, const P: usize, const CV: usize, const RUN: usize>(
    d: &Depthwise,
    pixel: usize,
) {
    let mut c = 0;
    // SAFETY: the loop keeps to the channels.
    unsafe {
        let full = S::tail(S::W);
        while c + CV * S::W <= d.channels {
            tile::<S, P, CV, RUN, false>(d, pixel, c, full);
            c += CV * S::W;
        }
        while c + S::W <= d.channels {
            tile::<S, P, 1, RUN, false>(d, pixel, c, full);
            c += S::W;
        }
        if c < d.channels {
            tile::<S, P, 1, RUN, true>(d, pixel, c, S::tail(d.channels - c));
        }
    }
}

/// All pixels, six at a time so that each load of weights serves six products, where there are registers for them.
#[inline(always)]
unsafe fn run<S: Simd, const CV: usize, const RUN: usize>(d: &Depthwise) {
    let mut p = 0;
    // SAFETY: the loop keeps to the pixels.
    unsafe {
        while S::REGISTERS > 8 && p + 6 <= d.pixels {
            pixels::<S, 6, CV, RUN>(d, p);
            p += 6;
        }
        while const { held::<S>(2 * CV, RUN * CV) } && p + 2 <= d.pixels {
            pixels::<S, 2, CV, RUN>(d, p);
            p += 2;
        }
        while p < d.pixels {
            pixels::<S, 1, CV, RUN>(d, p);
            p += 1;
        }
    }
}

/// Runs a depthwise convolution.
#[inline(always)]
pub(super) unsafe fn depthwise<S: Simd>(d: &Depthwise) {
    // SAFETY: the caller's contract. Tiles of two vectors where there are registers for them.
    unsafe {
        match (d.run, d.table_step, S::W) {
            (3, 0, 16) => run::<S, 2, 3>(d),
            (3, 0, _) => run::<S, 1, 3>(d),
            (5, 0, _) => run::<S, 1, 5>(d),
            (7, 0, _) => run::<S, 1, 7>(d),
            (_, _, 16) => run::<S, 2, 1>(d),
            _ => run::<S, 1, 1>(d),
        }
    }
}
