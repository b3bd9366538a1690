//! Which changes of a machine's description explain what was measured.

use crate::{Change, Machine};

/// Factors that are tried on a rate; the best of them is refined between its neighbours.
const RATES: [f64; 9] = [0.0625, 0.125, 0.25, 0.4, 0.6, 0.8, 1.25, 2.0, 4.0];
/// Factors that are tried on the size of a cache.
const SIZES: [f64; 4] = [0.125, 0.25, 0.5, 2.0];
/// A change has to take away this share of the error that is left.
const WORTH: f64 = 0.1;
/// Changes at most: more of them explain noise.
const MOST: usize = 3;
/// Mean error, as a natural logarithm, below which there is nothing to explain.
const GOOD: f64 = 0.05;

/// The changes of `machine` that bring predictions closest to what was measured, the one that
/// explains most first; empty where the description is as good as any. `measured` are seconds,
/// and `predict` gives those of item `i` on a machine, `None` where it cannot.
///
/// Bandwidths of the memory and of the caches, the clock, sizes of the caches and fixed costs are
/// tried as [`explain_by`] does.
pub fn explain(
    machine: &Machine,
    measured: &[f64],
    predict: &dyn Fn(&Machine, usize) -> Option<f64>,
) -> Vec<Change> {
    let mut knobs: Vec<(String, &[f64])> =
        vec![("bandwidth".into(), &RATES), ("clock".into(), &RATES)];
    for (_, level) in machine.caches() {
        knobs.push((format!("{}.size", level.name.to_lowercase()), &SIZES));
        knobs.push((format!("{}.bandwidth", level.name.to_lowercase()), &RATES));
    }
    knobs.push(("overhead".into(), &RATES));
    explain_by(machine, knobs, measured, predict)
}

/// [`explain`] by these figures of a description alone, each with the factors to try on it, in
/// ascending order; what is between the best factor and its neighbours is tried too, sizes excepted.
///
/// The figures are tried one after the other, each for the error that those before it leave. Errors
/// are absolute logarithms of ratios, weighted by the root of the time: what takes long counts more,
/// and does not drown the rest.
pub fn explain_by(
    machine: &Machine,
    mut knobs: Vec<(String, &[f64])>,
    measured: &[f64],
    predict: &dyn Fn(&Machine, usize) -> Option<f64>,
) -> Vec<Change> {
    let weight: Vec<f64> = measured
        .iter()
        .map(|m| {
            if m.is_finite() && *m > 0.0 {
                m.sqrt()
            } else {
                0.0
            }
        })
        .collect();
    let total: f64 = weight.iter().sum();
    if total <= 0.0 {
        return Vec::new();
    }
    let error = |m: &Machine| -> f64 {
        let of = |i: usize| {
            if weight[i] == 0.0 {
                return 0.0;
            }
            match predict(m, i) {
                // What is far off is wrong for other reasons.
                Some(p) if p > 0.0 => weight[i] * (measured[i] / p).ln().abs().min(3.0),
                _ => 0.0,
            }
        };
        (0..measured.len()).map(of).sum::<f64>() / total
    };
    let mut chosen = Vec::new();
    let mut at = machine.clone();
    let mut left = error(&at);
    while chosen.len() < MOST && left > GOOD {
        let mut best: Option<(f64, usize, Change, Machine)> = None;
        for (k, (name, factors)) in knobs.iter().enumerate() {
            let attempt = |f: f64| -> Option<(f64, Change, Machine)> {
                let change: Change = format!("{name}={f}x").parse().ok()?;
                let mut m = at.clone();
                change.apply(&mut m).ok()?;
                Some((error(&m), change, m))
            };
            let mut tried: Vec<(f64, (f64, Change, Machine))> = factors
                .iter()
                .filter_map(|&f| Some((f, attempt(f)?)))
                .collect();
            let least = |t: &[(f64, (f64, Change, Machine))]| {
                (0..t.len()).min_by(|&a, &b| t[a].1.0.total_cmp(&t[b].1.0))
            };
            let Some(i) = least(&tried) else { continue };
            if name.ends_with("size") {
                // Nothing lies between.
            } else if tried[i].1.0 < left {
                // Between the neighbours, in logarithms.
                let (mut lo, mut hi) = (
                    tried[i.saturating_sub(1)].0,
                    tried[(i + 1).min(tried.len() - 1)].0,
                );
                for _ in 0..5 {
                    let (a, b) = (lo * (hi / lo).powf(0.35), lo * (hi / lo).powf(0.65));
                    let (a, b) = ((a * 100.0).round() / 100.0, (b * 100.0).round() / 100.0);
                    let (Some(x), Some(y)) = (attempt(a), attempt(b)) else {
                        break;
                    };
                    if x.0 <= y.0 {
                        hi = b;
                    } else {
                        lo = a;
                    }
                    tried.push((a, x));
                    tried.push((b, y));
                }
            }
            let Some(i) = least(&tried) else { continue };
            let (e, change, m) = tried.swap_remove(i).1;
            if best.as_ref().is_none_or(|b| e < b.0 - 1e-9) {
                best = Some((e, k, change, m));
            }
        }
        let Some((e, k, change, m)) = best else { break };
        if e > left * (1.0 - WORTH) {
            break;
        }
        knobs.remove(k);
        chosen.push(change);
        at = m;
        left = e;
    }
    chosen
}
