//! Measures of error over pairs of a prediction and a measurement.

use serde::{Deserialize, Serialize};

/// How far predictions are off, as fractions of what was measured; `None` where no row is covered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    /// Rows in all.
    pub rows: usize,
    /// Rows that have a prediction.
    pub covered: usize,
    /// Mean of |predicted - measured| / measured.
    pub mean_ape: Option<f64>,
    /// Median of the same.
    pub median_ape: Option<f64>,
    /// Sum of |predicted - measured| over the sum of measured: long rows weigh more.
    pub wape: Option<f64>,
    /// Mean of (predicted - measured) / measured: above 0 where predictions are too long.
    pub bias: Option<f64>,
    /// Spearman's rank correlation; `None` for fewer than two rows, or where all on a side are alike.
    pub spearman: Option<f64>,
}

impl Errors {
    /// Errors of (predicted, measured) pairs, of `rows` rows; both above 0, in one unit.
    pub fn of(rows: usize, pairs: &[(f64, f64)]) -> Errors {
        let n = pairs.len();
        if n == 0 {
            return Errors {
                rows,
                ..Errors::default()
            };
        }
        let signed: Vec<f64> = pairs.iter().map(|(p, m)| (p - m) / m).collect();
        let sizes: Vec<f64> = signed.iter().map(|e| e.abs()).collect();
        let off: f64 = pairs.iter().map(|(p, m)| (p - m).abs()).sum();
        let all: f64 = pairs.iter().map(|p| p.1).sum();
        Errors {
            rows,
            covered: n,
            mean_ape: Some(sizes.iter().sum::<f64>() / n as f64),
            median_ape: Some(median(&sizes)),
            wape: Some(off / all),
            bias: Some(signed.iter().sum::<f64>() / n as f64),
            spearman: spearman(pairs),
        }
    }
}

/// The middle value, or the mean of the two in the middle; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

/// Ranks from 1; equal values share the mean of their ranks.
fn ranks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut out = vec![0.0; values.len()];
    let mut at = 0;
    while at < order.len() {
        let like = |i: &&usize| values[**i] == values[order[at]];
        let n = order[at..].iter().take_while(like).count().max(1);
        let rank = at as f64 + (n as f64 + 1.0) / 2.0;
        order[at..at + n].iter().for_each(|&i| out[i] = rank);
        at += n;
    }
    out
}

fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let (a, b) = (
        ranks(pairs.iter().map(|p| p.0)),
        ranks(pairs.iter().map(|p| p.1)),
    );
    let mean = (n + 1.0) / 2.0;
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(&b) {
        ab += (x - mean) * (y - mean);
        aa += (x - mean).powi(2);
        bb += (y - mean).powi(2);
    }
    (pairs.len() > 1 && aa > 0.0 && bb > 0.0).then(|| ab / (aa * bb).sqrt())
}
