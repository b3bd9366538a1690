//! What the classifiers and regressors of ai.onnx.ml share: rows, post transforms, labels.
use crate::args::Args;
use crate::data::{f32s, from_f64s, from_i64s};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

/// Rows and columns of the input (a vector is one row) with its elements.
pub(super) fn rows(a: &Args) -> R<(usize, usize, Vec<f32>)> {
    let x = a.input(0)?;
    match *x.shape() {
        [c] => Ok((1, c, f32s(x))),
        [r, c] => Ok((r, c, f32s(x))),
        _ => Err(format!("X has shape {:?}, not rows of columns", x.shape()).into()),
    }
}

/// 1 / (1 + exp(-x)).
pub(crate) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Inverse of the normal distribution as the standard approximates it.
fn probit(p: f64) -> f64 {
    let x = 2.0 * p - 1.0;
    let sign = if x < 0.0 { -1.0 } else { 1.0 };
    let l = ((1.0 - x) * (1.0 + x)).ln();
    let v = 2.0 / (std::f64::consts::PI * 0.147) + 0.5 * l;
    let w = v * v - l / 0.147;
    std::f64::consts::SQRT_2 * sign * (w.sqrt() - v).sqrt()
}

/// Applies attribute `post_transform` to one row of scores.
pub(super) fn transform(a: &Args, s: &mut [f64]) -> R<()> {
    transform_as(a.text("post_transform", "NONE")?, s)
}

/// Scores up to this size are 0 for SOFTMAX_ZERO.
const NOTHING: f64 = 1e-7;

/// Applies the post transform of this name.
pub(crate) fn transform_as(post: &str, s: &mut [f64]) -> R<()> {
    match post {
        "NONE" => {}
        "LOGISTIC" => s.iter_mut().for_each(|x| *x = logistic(*x)),
        "PROBIT" => s.iter_mut().for_each(|x| *x = probit(*x)),
        t @ ("SOFTMAX" | "SOFTMAX_ZERO") => {
            // What is all but 0 stays so.
            let least = if t == "SOFTMAX_ZERO" { NOTHING } else { -1.0 };
            let top = s.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mut sum = 0.0;
            for x in s.iter_mut() {
                *x = if x.abs() <= least {
                    0.0
                } else {
                    (*x - top).exp()
                };
                sum += *x;
            }
            s.iter_mut().for_each(|x| *x /= sum);
        }
        t => return Err(format!("post transform '{t}' is not one that ONNX lists").into()),
    }
    Ok(())
}

/// The integer labels of a classifier.
pub(crate) fn labels(a: &Args) -> R<Vec<i64>> {
    match a.attr_ints("classlabels_int64s")? {
        Some(v) => Ok(v),
        None => Ok(a
            .attr_ints("classlabels_ints")?
            .ok_or("integer class labels are missing")?),
    }
}

/// Index of the first largest element.
pub(crate) fn largest(s: &[f64]) -> usize {
    let mut best = 0;
    for (i, x) in s.iter().enumerate() {
        if *x > s[best] {
            best = i;
        }
    }
    best
}

/// Labels and scores as outputs.
pub(super) fn classified(labels: &[i64], scores: &[f64]) -> R<Vec<Tensor>> {
    let rows = labels.len();
    let k = scores.len().checked_div(rows).unwrap_or(0);
    Ok(vec![
        from_i64s(&[rows], labels)?,
        from_f64s(DType::F32, &[rows, k], scores)?,
    ])
}
