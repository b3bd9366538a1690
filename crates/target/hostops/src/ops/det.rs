//! Det: determinants of the trailing square matrices.
use crate::args::Args;
use crate::data::{f64s, from_f64s};
use crate::error::R;
use tensor::Tensor;

/// Determinant of a row-major n x n matrix by elimination with pivots.
fn determinant(m: &mut [f64], n: usize) -> f64 {
    let mut det = 1.0;
    for c in 0..n {
        let best = (c..n).max_by(|a, b| m[a * n + c].abs().total_cmp(&m[b * n + c].abs()));
        let p = best.unwrap_or(c);
        if m[p * n + c] == 0.0 {
            return 0.0;
        }
        if p != c {
            for k in 0..n {
                m.swap(p * n + k, c * n + k);
            }
            det = -det;
        }
        det *= m[c * n + c];
        for r in c + 1..n {
            let f = m[r * n + c] / m[c * n + c];
            for k in c..n {
                m[r * n + k] -= f * m[c * n + k];
            }
        }
    }
    det
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let [outer @ .., n, m] = x.shape() else {
        return Err("X must have two dimensions or more".into());
    };
    if n != m {
        return Err(format!("matrices of {n} by {m} have no determinant").into());
    }
    let mut v = f64s(x);
    let y: Vec<f64> = if *n == 0 {
        vec![1.0; outer.iter().product()]
    } else {
        v.chunks_exact_mut(n * n)
            .map(|c| determinant(c, *n))
            .collect()
    };
    Ok(vec![from_f64s(x.dtype(), outer, &y)?])
}
