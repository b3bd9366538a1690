//! Depthwise convolution of whole planes.

use super::{Guarded, Rng, close, fenced, isas};
use shopfloor_microkernels::{Line, Lines, Taps, kernels};

#[test]
fn planes_match_f64() {
    let mut rng = Rng::new(61);
    for isa in isas() {
        let k = kernels(isa);
        for _ in 0..300 {
            let (width, stride) = ([3, 5, 7][rng.below(3)], 1 + rng.below(2));
            let high = 1 + rng.below(5);
            let (ih, iw) = (rng.extent(9), rng.extent(24));
            let channels = rng.extent(90);
            let (top, left) = (rng.below(high), rng.below(width));
            // Output may reach beyond the input on the far side too.
            let (oh, pixels) = (
                1 + (ih + top) / stride,
                1 + (iw + left + rng.below(width)) / stride,
            );
            let (step, ldw) = (channels + rng.below(3), channels + rng.below(3));
            let out_step = channels + rng.below(3);
            let (x, x_at) = fenced(&rng.values(ih * iw * step));
            let (w, w_at) = fenced(&rng.values(high * width * ldw));
            let bias = rng.values(channels);
            let biased = rng.below(2) == 0;
            let (lo, hi) = if rng.below(2) == 0 {
                (0.0, 2.0)
            } else {
                (f32::NEG_INFINITY, f32::INFINITY)
            };
            let mut out = Guarded::new((oh * pixels - 1) * out_step + channels);
            let (mut lines, mut taps) = (vec![], vec![]);
            for y in 0..oh {
                for r in 0..high {
                    let row = (y * stride + r) as isize - top as isize;
                    if (0..ih as isize).contains(&row) {
                        let first = row * iw as isize - left as isize;
                        taps.push(Taps {
                            x: x[x_at..].as_ptr().wrapping_offset(first * step as isize),
                            w: w[w_at + r * width * ldw..].as_ptr(),
                        });
                    }
                }
                lines.push(Line {
                    out: out.ptr().wrapping_add(y * pixels * out_step),
                    to: taps.len(),
                });
            }
            let d = Lines {
                lines: lines.as_ptr(),
                count: oh,
                taps: taps.as_ptr(),
                width,
                stride,
                left: -(left as isize),
                columns: iw,
                step,
                x_offset: 0,
                out_offset: 0,
                pixels,
                channels,
                ldw,
                out_step,
                bias: if biased {
                    bias.as_ptr()
                } else {
                    std::ptr::null()
                },
                lo,
                hi,
            };
            assert!(Lines::fits(width, stride));
            // SAFETY: the lists name lines of x, w and out; columns keep to the input.
            unsafe { (k.lines)(&d) };
            out.check();
            for (y, p, c) in (0..oh)
                .flat_map(|y| (0..pixels).map(move |p| (y, p)))
                .flat_map(|(y, p)| (0..channels).map(move |c| (y, p, c)))
            {
                let mut want = if biased { f64::from(bias[c]) } else { 0.0 };
                for (r, s) in (0..high).flat_map(|r| (0..width).map(move |s| (r, s))) {
                    let row = (y * stride + r) as isize - top as isize;
                    let col = (p * stride + s) as isize - left as isize;
                    if (0..ih as isize).contains(&row) && (0..iw as isize).contains(&col) {
                        let at = (row as usize * iw + col as usize) * step + c;
                        want += f64::from(x[x_at + at])
                            * f64::from(w[w_at + (r * width + s) * ldw + c]);
                    }
                }
                let want = want.clamp(f64::from(lo), f64::from(hi));
                close(
                    out.inner()[(y * pixels + p) * out_step + c],
                    want,
                    60.0,
                    "pixel",
                );
            }
        }
    }
}
