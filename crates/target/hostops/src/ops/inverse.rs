//! com.microsoft Inverse: inverses of the trailing square matrices.
use crate::args::Args;
use crate::data::{f64s, from_f64s};
use crate::error::R;
use tensor::Tensor;

/// Inverse of a row-major n x n matrix by elimination with pivots; one that has none gives infinities or NaN.
fn inverse(m: &mut [f64], n: usize) -> Vec<f64> {
    let mut y = vec![0.0; n * n];
    (0..n).for_each(|i| y[i * n + i] = 1.0);
    for c in 0..n {
        let best = (c..n).max_by(|a, b| m[a * n + c].abs().total_cmp(&m[b * n + c].abs()));
        let p = best.unwrap_or(c);
        for k in (0..n).filter(|_| p != c) {
            m.swap(p * n + k, c * n + k);
            y.swap(p * n + k, c * n + k);
        }
        let pivot = m[c * n + c];
        for k in 0..n {
            m[c * n + k] /= pivot;
            y[c * n + k] /= pivot;
        }
        for r in (0..n).filter(|r| *r != c) {
            let f = m[r * n + c];
            for k in 0..n {
                m[r * n + k] -= f * m[c * n + k];
                y[r * n + k] -= f * y[c * n + k];
            }
        }
    }
    y
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let [.., n, m] = *x.shape() else {
        return Err("X must have two dimensions or more".into());
    };
    if n != m {
        return Err(format!("matrices of {n} by {m} have no inverse").into());
    }
    let mut v = f64s(x);
    let all = v
        .chunks_exact_mut((n * n).max(1))
        .flat_map(|c| inverse(c, n));
    let y: Vec<f64> = all.collect();
    Ok(vec![from_f64s(x.dtype(), x.shape(), &y)?])
}
