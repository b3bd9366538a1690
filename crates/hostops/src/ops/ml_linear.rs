//! ai.onnx.ml LinearRegressor and LinearClassifier.
use super::ml_scores::{classified, labels, largest, rows, transform};
use crate::args::Args;
use crate::data::from_f64s;
use crate::error::R;
use layout::DType;
use tensor::Tensor;

/// Scores of one row: `k` rows of coefficients times it, plus intercepts.
fn scores(a: &Args, k: usize) -> R<(usize, Vec<Vec<f64>>)> {
    let (n, columns, x) = rows(a)?;
    let (w, b) = (a.floats("coefficients")?, a.floats("intercepts")?);
    if Some(w.len()) != k.checked_mul(columns) || !(b.is_empty() || b.len() == k) {
        return Err(format!(
            "{} coefficients and {} intercepts do not fit {k} outputs of {columns} columns",
            w.len(),
            b.len()
        )
        .into());
    }
    let row = |r: usize| -> Vec<f64> {
        (0..k)
            .map(|j| {
                let dot: f64 = (0..columns)
                    .map(|c| w[j * columns + c] * x[r * columns + c] as f64)
                    .sum();
                dot + b.get(j).copied().unwrap_or(0.0)
            })
            .collect()
    };
    Ok((n, (0..n).map(row).collect()))
}

pub(crate) fn regressor(a: &Args) -> R<Vec<Tensor>> {
    let k = crate::data::extent(a.int("targets", 1)?)?;
    let (n, mut s) = scores(a, k)?;
    s.iter_mut().try_for_each(|r| transform(a, r))?;
    Ok(vec![from_f64s(DType::F32, &[n, k], &s.concat())?])
}

pub(crate) fn classifier(a: &Args) -> R<Vec<Tensor>> {
    let names = labels(a)?;
    let single = names.len() == 2 && a.floats("intercepts")?.len() == 1;
    let k = if single { 1 } else { names.len() };
    let (_, mut s) = scores(a, k)?;
    let mut picked = Vec::with_capacity(s.len());
    for r in &mut s {
        if single {
            // One score stands for the second class.
            let second = r[0] > 0.0;
            *r = vec![-r[0], r[0]];
            transform(a, r)?;
            picked.push(names[second as usize]);
            continue;
        }
        picked.push(*names.get(largest(r)).ok_or("there is no class")?);
        transform(a, r)?;
    }
    classified(&picked, &s.concat())
}
