//! The quantised operators in exact integers: the standard's text word for word, for tests.

use tensor::Tensor;

/// A tensor as integers of any width.
#[derive(Clone, Debug, PartialEq)]
pub struct Ints {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// Elements, row-major.
    pub data: Vec<i64>,
}

/// Integers of a tensor.
pub fn ints(t: &Tensor) -> Ints {
    Ints {
        shape: t.shape().to_vec(),
        data: (0..t.len()).map(|i| t.get_i64(i)).collect(),
    }
}

/// Elements of a tensor as f64, exactly.
pub fn reals(t: &Tensor) -> Vec<f64> {
    (0..t.len()).map(|i| t.get_f64(i)).collect()
}

/// Which parameter belongs to element `i` of a tensor of `shape`: one for all, one per entry of
/// `axis`, or one per `block` entries of it.
pub fn parameter(i: usize, shape: &[usize], params: &[usize], axis: usize, block: usize) -> usize {
    let count: usize = params.iter().product();
    if count == 1 {
        return 0;
    }
    let after: usize = shape[axis + 1..].iter().product();
    let at = i / after % shape[axis];
    if params.len() == 1 {
        return at;
    }
    let before = i / after / shape[axis];
    (before * params[axis] + at / block) * after + i % after
}

/// Smallest and largest value of an integer type.
pub fn range(d: layout::DType) -> (i64, i64) {
    match d.is_signed_int() {
        true => (-(1 << (d.bits() - 1)), (1 << (d.bits() - 1)) - 1),
        false => (0, (1 << d.bits()) - 1),
    }
}

/// To the nearest integer, halves to the even one, within the type.
pub fn rounded(x: f64, zero: i64, to: layout::DType) -> i64 {
    let (lo, hi) = range(to);
    let r = x.round_ties_even().clamp(-1e15, 1e15) as i64;
    (r + zero).clamp(lo, hi)
}

/// Rows of `a` times columns of `b` over leading dimensions of `a`: [.., m, k] x [k, n], each
/// element less its zero point; zero points of `b` may be one per column.
pub fn product(a: &Ints, za: i64, b: &Ints, zb: &[i64]) -> Ints {
    let (k, n) = (b.shape[0], b.shape[1]);
    let rows = a.data.len() / k;
    let mut data = Vec::with_capacity(rows * n);
    for r in 0..rows {
        for c in 0..n {
            let z = if zb.len() == 1 { zb[0] } else { zb[c] };
            data.push(
                (0..k)
                    .map(|i| (a.data[r * k + i] - za) * (b.data[i * n + c] - z))
                    .sum(),
            );
        }
    }
    let mut shape = a.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last = n;
    }
    Ints { shape, data }
}

/// A window over two spatial dimensions.
#[derive(Clone, Debug)]
pub struct Window {
    /// Steps between outputs.
    pub strides: [usize; 2],
    /// Steps between taps.
    pub dilations: [usize; 2],
    /// Padding before and after: top, left, bottom, right.
    pub pads: [usize; 4],
    /// Channel groups.
    pub groups: usize,
}

/// A convolution of [n, c, h, w] with [m, c / groups, kh, kw], elements less their zero points;
/// padding is at the zero point, so it adds nothing.
pub fn convolution(x: &Ints, zx: i64, w: &Ints, zw: &[i64], v: &Window) -> Ints {
    let [n, c, h, wide] = x.shape[..] else {
        panic!("x has rank 4")
    };
    let [m, cg, kh, kw] = w.shape[..] else {
        panic!("w has rank 4")
    };
    let out = |extent: usize, k: usize, d: usize| {
        let span = (k - 1) * v.dilations[d] + 1;
        (extent + v.pads[d] + v.pads[d + 2] - span) / v.strides[d] + 1
    };
    let (oh, ow) = (out(h, kh, 0), out(wide, kw, 1));
    let mut data = Vec::with_capacity(n * m * oh * ow);
    for b in 0..n {
        for o in 0..m {
            let first = o / (m / v.groups) * cg;
            let z = if zw.len() == 1 { zw[0] } else { zw[o] };
            for y in 0..oh {
                for xx in 0..ow {
                    let mut sum = 0;
                    for i in 0..cg {
                        for r in 0..kh {
                            for s in 0..kw {
                                let yy =
                                    (y * v.strides[0] + r * v.dilations[0]).wrapping_sub(v.pads[0]);
                                let xs = (xx * v.strides[1] + s * v.dilations[1])
                                    .wrapping_sub(v.pads[1]);
                                if yy < h && xs < wide {
                                    let e = x.data[((b * c + first + i) * h + yy) * wide + xs];
                                    let t = w.data[((o * cg + i) * kh + r) * kw + s];
                                    sum += (e - zx) * (t - z);
                                }
                            }
                        }
                    }
                    data.push(sum);
                }
            }
        }
    }
    Ints {
        shape: vec![n, m, oh, ow],
        data,
    }
}
