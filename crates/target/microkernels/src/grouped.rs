//! Convolution over channels-last rows in which a few neighbouring channels share their inputs: as depthwise, but
//! for the inputs' vector, which every channel of a group reads whole.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::depthwise::{Depthwise, finish, load};
use super::simd::{Simd, held};

/// P pixels of one vector of channels from channel `c` on, masked when MASKED, taps in runs of RUN. Where pixels are
/// few, K parts of a group's inputs are summed apart, so that no product waits for the one before.
#[inline(always)]
unsafe fn tile<S: Simd, const P: usize, const K: usize, const RUN: usize, const MASKED: bool>(
    d: &Depthwise,
    group: usize,
    pixel: usize,
    c: usize,
    tail: S::T,
) {
    // SAFETY: the caller gives pixel + P <= pixels, channels c.. that exist up to the tail and groups that K divides.
    unsafe {
        let mut acc = [[S::zero(); P]; K];
        if !d.bias.is_null() {
            acc[0] = [load::<S, MASKED>(d.bias.add(c), tail); P];
        }
        let at = pixel * d.x_step + d.x_offset + c;
        let mut t = 0;
        while t < d.taps {
            let mut r = 0;
            while r < group {
                for (k, acc) in acc.iter_mut().enumerate() {
                    let from = S::spread(group, r + k);
                    let mut w = [S::zero(); RUN];
                    for (s, w) in w.iter_mut().enumerate() {
                        let row = (t + s) * group + r + k;
                        *w = load::<S, MASKED>(d.w.add(row * d.ldw + c), tail);
                    }
                    if RUN > 1 {
                        // The column under pixel q - s and tap s is the same for all s: one load, up to RUN products.
                        let row = (*d.table.add(t)).wrapping_add(at);
                        for q in 0..P + RUN - 1 {
                            let x = load::<S, MASKED>(row.wrapping_add(q * d.x_step), tail);
                            let x = S::lanes(x, from);
                            for s in 0..RUN {
                                if q >= s && q - s < P {
                                    acc[q - s] = S::fma(x, w[s], acc[q - s]);
                                }
                            }
                        }
                    } else {
                        for (p, a) in acc.iter_mut().enumerate() {
                            let own = (pixel + p) * d.table_step + t;
                            let x = (*d.table.add(own)).wrapping_add(at + p * d.x_step);
                            let x = S::lanes(load::<S, MASKED>(x, tail), from);
                            *a = S::fma(x, w[0], *a);
                        }
                    }
                }
                r += K;
            }
            t += RUN;
        }
        for p in 0..P {
            let mut sum = acc[0][p];
            for part in &acc[1..] {
                sum = S::add(sum, part[p]);
            }
            finish::<S, MASKED>(d, d.out.add((pixel + p) * d.out_step + c), sum, tail);
        }
    }
}

#[inline(always)]
unsafe fn pixels<S: Simd, const P: usize, const K: usize, const RUN: usize>(
    d: &Depthwise,
    group: usize,
    pixel: usize,
) {
    let mut c = 0;
    // SAFETY: the loop keeps to the channels.
    unsafe {
        while c + S::W <= d.channels {
            tile::<S, P, K, RUN, false>(d, group, pixel, c, S::tail(S::W));
            c += S::W;
        }
        if c < d.channels {
            tile::<S, P, K, RUN, true>(d, group, pixel, c, S::tail(d.channels - c));
        }
    }
}

/// All pixels, eight at a time: as many sums as the units take to be busy, where there are registers for them.
#[inline(always)]
unsafe fn run<S: Simd, const RUN: usize>(d: &Depthwise, group: usize) {
    let mut p = 0;
    // SAFETY: the loop keeps to the pixels.
    unsafe {
        while const { held::<S>(8, RUN) } && p + 8 <= d.pixels {
            pixels::<S, 8, 1, RUN>(d, group, p);
            p += 8;
        }
        while const { held::<S>(4 * 2, RUN) } && p + 4 <= d.pixels {
            pixels::<S, 4, 2, RUN>(d, group, p);
            p += 4;
        }
        while const { held::<S>(2 * 2, RUN) } && p + 2 <= d.pixels {
            pixels::<S, 2, 2, RUN>(d, group, p);
            p += 2;
        }
        while p < d.pixels {
            pixels::<S, 1, 2, RUN>(d, group, p);
            p += 1;
        }
    }
}

/// `out[p * out_step + c] (+)= sum_t sum_r x(p, t)[c / group * group + r] * w[(t * group + r) * ldw + c]`: all else
/// as [`Depthwise`] says. Groups are of 2, 4 or 8 channels, and there are whole groups.
#[inline(always)]
pub(super) unsafe fn grouped<S: Simd>(d: &Depthwise, group: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        match (d.run, d.table_step) {
            (3, 0) => run::<S, 3>(d, group),
            (5, 0) => run::<S, 5>(d, group),
            _ => run::<S, 1>(d, group),
        }
    }
}
