//! Fits the constants: coordinate descent on the mean error of logarithms, groups of rows weighing alike,
//! each constant on the families of rows that it is about.

use crate::measurements::{Measurements, Row, Subject};
use crate::ops::Walked;
use crate::report::{Options, Pair, pairs_with};
use crate::{Constants, PredictError, machine_of, stats};
use std::collections::BTreeMap;

/// Errors of logarithms beyond this count no more: rows that are something else than what is predicted.
const MOST: f64 = 1.0;
/// Factors that a constant is tried with, one round after the other.
const STEPS: [f64; 3] = [1.2, 1.06, 1.02];

/// The family that a row is judged in, as the accuracy to reach is stated; `None` for rows that are not
/// fitted.
pub fn family(row: &Row) -> Option<&'static str> {
    Some(match &row.subject {
        Subject::Kernel { op, .. } => match op.as_str() {
            "linear" => "linear",
            "bmm" => "batched matmul",
            "gemm" => "gemm",
            "conv_fwd" => "convolution",
            "softmax" => "softmax",
            "layernorm" => "layer norm",
            "add" | "mul" | "div" | "pow" | "add_scalar" | "mul_scalar" | "div_scalar"
            | "pow_scalar" | "relu" | "gelu" | "tanh" => "element-wise",
            _ => return None,
        },
        Subject::Model { mode, .. } if row.source == "neusight_e2e" => match mode.as_str() {
            "inference" => "whole model, inference",
            "train" => "whole model, training",
            _ => return None,
        },
        Subject::Model { .. } => return None,
        Subject::Decode { test, .. } if test.starts_with("tg") => "decode",
        Subject::Decode { .. } => return None,
    })
}

/// One of several files at most `most` rows of each source, GPU and operator, evenly.
pub fn thinned(m: &Measurements, most: usize) -> Measurements {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&Row>> = BTreeMap::new();
    for r in m.rows.iter().filter(|r| family(r).is_some()) {
        groups
            .entry((&r.source, &r.gpu, r.op()))
            .or_default()
            .push(r);
    }
    let mut rows = vec![];
    for list in groups.values() {
        let n = list.len().min(most);
        rows.extend((0..n).map(|i| list[i * list.len() / n].clone()));
    }
    Measurements {
        file: m.file.clone(),
        rows,
    }
}

/// Pairs of all files.
///
/// # Errors
/// A field that does not read.
pub fn all_pairs<'a>(
    files: &'a [Measurements],
    c: &Constants,
) -> Result<Vec<Pair<'a>>, PredictError> {
    all_with(files, c, &[])
}

fn all_with<'a>(
    files: &'a [Measurements],
    c: &Constants,
    walked: &[Walked],
) -> Result<Vec<Pair<'a>>, PredictError> {
    let (mut out, none) = (vec![], Walked::default());
    for (i, f) in files.iter().enumerate() {
        let walked = walked.get(i).unwrap_or(&none);
        out.extend(pairs_with(f, &Options::default(), c, walked)?);
    }
    Ok(out)
}

/// Mean over families and GPUs of the mean error of logarithms.
fn loss(files: &[Measurements], c: &Constants, walked: &[Walked]) -> Result<f64, PredictError> {
    let mut groups: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for p in all_with(files, c, walked)? {
        let (Some(family), Ok(s)) = (family(p.row), &p.predicted) else {
            continue;
        };
        let e = (s / p.row.seconds).ln().abs().min(MOST);
        groups.entry((family, &p.row.gpu)).or_default().push(e);
    }
    let mut families: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for ((family, _), e) in &groups {
        let mean = e.iter().sum::<f64>() / e.len() as f64;
        // Half of it the middle row, so that a few far ones do not lead.
        families
            .entry(family)
            .or_default()
            .push(0.5 * mean + 0.5 * stats::median(e));
    }
    let mean = |v: &Vec<f64>| v.iter().sum::<f64>() / v.len() as f64;
    Ok(families.values().map(mean).sum::<f64>() / families.len().max(1) as f64)
}

/// Constants fitted to `files`, from where each `start`s; what no row depends on stays there.
///
/// # Errors
/// A field that does not read.
pub fn fit(files: &[Measurements], from: &Constants) -> Result<Constants, PredictError> {
    let mut c = from.clone();
    for v in c.all.values_mut().filter(|v| v.fitted) {
        v.value = v.start;
    }
    let names: Vec<String> = c
        .all
        .iter()
        .filter(|v| v.1.fitted)
        .map(|v| v.0.clone())
        .collect();
    let walked: Vec<Walked> = files.iter().map(|_| Walked::default()).collect();
    // Each constant on the rows that it is about.
    let mut parts: BTreeMap<Vec<String>, Vec<Measurements>> = BTreeMap::new();
    for name in &names {
        let of = c.all[name].of.clone();
        let part = || of_families(files, &of);
        parts.entry(of.clone()).or_insert_with(part);
    }
    for step in STEPS {
        for name in &names {
            let files = &parts[&c.all[name].of];
            let mut best = loss(files, &c, &walked)?;
            for factor in [step, 1.0 / step] {
                // As far as it goes on getting better.
                for _ in 0..4 {
                    let mut next = c.clone();
                    let Some(v) = next.all.get_mut(name) else {
                        break;
                    };
                    v.value = (v.value * factor).min(v.most.unwrap_or(f64::INFINITY));
                    let l = loss(files, &next, &walked)?;
                    if l >= best - 1e-6 {
                        break;
                    }
                    (best, c) = (l, next);
                }
            }
        }
    }
    Ok(c)
}

/// Rows of every file that are judged in one of `families`; all of them where none is named.
fn of_families(files: &[Measurements], families: &[String]) -> Vec<Measurements> {
    let named = |r: &Row| family(r).is_some_and(|f| families.iter().any(|x| x == f));
    let keep = |f: &Measurements| Measurements {
        file: f.file.clone(),
        rows: f
            .rows
            .iter()
            .filter(|r| families.is_empty() || named(r))
            .cloned()
            .collect(),
    };
    files.iter().map(keep).collect()
}

/// Rows of every file whose machine is not `gpu`, or only those.
pub fn of_gpu(files: &[Measurements], gpu: &str, only: bool) -> Vec<Measurements> {
    let card = |name: &str| machine_of(name).map_or(name.to_string(), |m| m.name);
    let left = card(gpu);
    let mut cards: BTreeMap<&str, bool> = BTreeMap::new();
    for r in files.iter().flat_map(|f| &f.rows) {
        cards.entry(&r.gpu).or_insert_with(|| card(&r.gpu) == left);
    }
    let keep = |f: &Measurements| Measurements {
        file: f.file.clone(),
        rows: f
            .rows
            .iter()
            .filter(|r| cards[r.gpu.as_str()] == only)
            .cloned()
            .collect(),
    };
    files.iter().map(keep).collect()
}
