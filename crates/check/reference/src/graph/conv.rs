//! Convolutions and transposed convolutions in wide arithmetic.
use super::matmul::{Wide, matmul};
use super::scalars::{f64s, from_f64s, from_i64s, i64s, next};
use crate::error::R;
use graph::ConvSpec;
use layout::DType;
use tensor::Tensor;

/// Columns that are unfolded at a time.
const COLUMNS: usize = 1024;

/// Sizes of one convolution.
struct Sizes {
    batch: usize,
    groups: usize,
    /// Input channels per group.
    ic: usize,
    /// Output channels per group.
    oc: usize,
    /// Spatial extents of the input, kernel and output.
    input: Vec<usize>,
    kernel: Vec<usize>,
    output: Vec<usize>,
}

fn sizes(s: &ConvSpec, x: &Tensor, w: &Tensor, shape: &[usize]) -> R<Sizes> {
    let (xs, ws) = (x.shape(), w.shape());
    let n = s.kernel.len();
    let lists = [s.strides.len(), s.dilations.len(), s.before.len()];
    let ranks = [xs.len(), ws.len(), shape.len()];
    let groups = usize::try_from(s.groups).unwrap_or(0);
    if ranks != [n + 2; 3] || lists != [n; 3] || groups == 0 {
        return Err(format!("{x:?} and {w:?} do not fit a kernel of {n} dimensions").into());
    }
    let (ic, oc) = (xs[1] / groups, shape[1] / groups);
    let want = if s.transposed {
        [xs[1], oc]
    } else {
        [shape[1], ic]
    };
    let kernel: Vec<usize> = ws[2..].to_vec();
    let fits = xs[1].is_multiple_of(groups)
        && shape[1].is_multiple_of(groups)
        && ws[..2] == want
        && xs[0] == shape[0]
        && kernel.iter().zip(&s.kernel).all(|(a, b)| *a as i64 == *b);
    if !fits {
        return Err(format!(
            "weights {w:?} do not fit {x:?} in {groups} groups with output {shape:?}"
        )
        .into());
    }
    Ok(Sizes {
        batch: xs[0],
        groups,
        ic,
        oc,
        input: xs[2..].to_vec(),
        kernel,
        output: shape[2..].to_vec(),
    })
}

/// For tap `tap` and position `at` of the strided side the address in the other side's plane.
fn address(
    s: &ConvSpec,
    before: &[i64],
    at: &[usize],
    tap: &[usize],
    plane: &[usize],
) -> Option<usize> {
    let mut a = 0;
    for d in 0..plane.len() {
        let c = at[d] as i64 * s.strides[d] + tap[d] as i64 * s.dilations[d] - before[d];
        if c < 0 || c >= plane[d] as i64 {
            return None;
        }
        a = a * plane[d] + c as usize;
    }
    Some(a)
}

/// Coordinates `from..to` (row-major ranks) of `shape`.
fn coordinates(shape: &[usize], from: usize, to: usize) -> Vec<Vec<usize>> {
    (from..to)
        .map(|mut r| {
            let mut c = vec![0; shape.len()];
            for d in (0..shape.len()).rev() {
                c[d] = r % shape[d];
                r /= shape[d];
            }
            c
        })
        .collect()
}

fn taps(kernel: &[usize]) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    let mut t = vec![0; kernel.len()];
    if kernel.contains(&0) {
        return all;
    }
    loop {
        all.push(t.clone());
        if !next(&mut t, kernel) {
            return all;
        }
    }
}

/// `outside` stands in the padding.
fn convolve<T: Wide>(
    s: &ConvSpec,
    z: &Sizes,
    before: &[i64],
    x: &[T],
    w: &[T],
    outside: T,
) -> Vec<T> {
    let (is, os): (usize, usize) = (z.input.iter().product(), z.output.iter().product());
    let taps = taps(&z.kernel);
    let ks = taps.len();
    let (ic, oc) = (z.ic, z.oc);
    let mut y = vec![T::ZERO; z.batch * z.groups * oc * os];
    // The side whose coordinates are multiplied by the strides is walked in chunks.
    let (walked, plane) = if s.transposed {
        (&z.input, &z.output)
    } else {
        (&z.output, &z.input)
    };
    let total: usize = walked.iter().product();
    for from in (0..total).step_by(COLUMNS) {
        let to = total.min(from + COLUMNS);
        let width = to - from;
        let at = coordinates(walked, from, to);
        let map: Vec<Option<usize>> = taps
            .iter()
            .flat_map(|t| at.iter().map(|c| address(s, before, c, t, plane)))
            .collect();
        for g in 0..z.batch * z.groups {
            let group = g % z.groups;
            let (x, y) = (
                &x[g * ic * is..(g + 1) * ic * is],
                &mut y[g * oc * os..(g + 1) * oc * os],
            );
            if s.transposed {
                // Every input position spreads its channels' products over the taps' outputs.
                let mut wt = vec![T::ZERO; oc * ks * ic];
                for c in 0..ic {
                    for o in 0..oc * ks {
                        wt[o * ic + c] = w[(group * ic + c) * oc * ks + o];
                    }
                }
                let mut xs = vec![T::ZERO; ic * width];
                for c in 0..ic {
                    xs[c * width..(c + 1) * width].copy_from_slice(&x[c * is + from..c * is + to]);
                }
                let mut spread = vec![T::ZERO; oc * ks * width];
                matmul(&wt, &xs, &mut spread, oc * ks, ic, width);
                for o in 0..oc {
                    for (a, v) in map.iter().zip(&spread[o * ks * width..]) {
                        if let Some(a) = a {
                            let e = &mut y[o * os + a];
                            *e = e.plus(*v);
                        }
                    }
                }
                continue;
            }
            let mut columns = vec![outside; ic * ks * width];
            for c in 0..ic {
                let src = &x[c * is..(c + 1) * is];
                for (v, a) in columns[c * ks * width..].iter_mut().zip(&map) {
                    if let Some(a) = a {
                        *v = src[*a];
                    }
                }
            }
            let mut part = vec![T::ZERO; oc * width];
            let wg = &w[group * oc * ic * ks..(group + 1) * oc * ic * ks];
            matmul(wg, &columns, &mut part, oc, ic * ks, width);
            for o in 0..oc {
                y[o * os + from..o * os + to].copy_from_slice(&part[o * width..(o + 1) * width]);
            }
        }
    }
    y
}

/// Convolution or its transpose with the given padding before and output shape.
pub(crate) fn run(
    s: &ConvSpec,
    x: &Tensor,
    w: &Tensor,
    before: &[i64],
    d: DType,
    shape: &[usize],
) -> R<Tensor> {
    let z = sizes(s, x, w, shape)?;
    if d.is_float() {
        from_f64s(
            d,
            shape,
            &convolve(s, &z, before, &f64s(x), &f64s(w), s.outside as f64),
        )
    } else {
        from_i64s(
            d,
            shape,
            &convolve(s, &z, before, &i64s(x), &i64s(w), s.outside),
        )
    }
}
