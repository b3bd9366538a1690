//! ai.onnx.ml TreeEnsemble (version 5): branches and leaves apart, sets of members.
use super::ml_scores::{rows, transform_as};
use crate::args::Args;
use crate::data::{f64s, from_f64s, ints};
use crate::error::R;
use tensor::{Attr, Tensor};

/// All trees of an ensemble.
struct Trees {
    features: Vec<usize>,
    splits: Vec<f64>,
    modes: Vec<i64>,
    /// (is a leaf, index) when the comparison holds and when it does not.
    yes: Vec<(bool, usize)>,
    no: Vec<(bool, usize)>,
    missing_is_yes: Vec<bool>,
    members: Vec<Vec<f64>>,
    targets: Vec<usize>,
    weights: Vec<f64>,
    roots: Vec<usize>,
}

fn numbers(a: &Args, name: &str) -> R<Vec<f64>> {
    match a.attrs.get(name) {
        Some(Attr::Tensor(t)) => Ok(f64s(t)),
        None => Ok(Vec::new()),
        _ => Err(format!("attribute '{name}' must be a tensor").into()),
    }
}

fn indices(a: &Args, name: &str, below: usize) -> R<Vec<usize>> {
    let v = a.attr_ints(name)?.unwrap_or_default();
    v.into_iter()
        .map(|i| {
            let i = usize::try_from(i).ok().filter(|i| *i < below);
            i.ok_or_else(|| format!("attribute '{name}' has an entry outside {below}").into())
        })
        .collect()
}

fn read(a: &Args, columns: usize, outputs: usize) -> R<Trees> {
    let splits = numbers(a, "nodes_splits")?;
    let n = splits.len();
    let modes = match a.attrs.get("nodes_modes") {
        Some(Attr::Tensor(t)) => ints(t),
        _ => return Err("attribute 'nodes_modes' must be a tensor".into()),
    };
    let features = indices(a, "nodes_featureids", columns)?;
    let weights = numbers(a, "leaf_weights")?;
    let targets = indices(a, "leaf_targetids", outputs)?;
    let side = |what: &str| -> R<Vec<(bool, usize)>> {
        let leaf = a
            .attr_ints(&format!("nodes_{what}leafs"))?
            .unwrap_or_default();
        let ids = a
            .attr_ints(&format!("nodes_{what}nodeids"))?
            .unwrap_or_default();
        if leaf.len() != n || ids.len() != n {
            return Err(format!("the branches' {what} sides must have {n} entries").into());
        }
        leaf.iter()
            .zip(ids)
            .map(|(&l, i)| {
                let below = if l != 0 { weights.len() } else { n };
                let i = usize::try_from(i).ok().filter(|i| *i < below);
                Ok((l != 0, i.ok_or("a branch leads nowhere")?))
            })
            .collect()
    };
    let (yes, no) = (side("true")?, side("false")?);
    if modes.len() != n || features.len() != n || targets.len() != weights.len() {
        return Err(format!("its attributes do not fit {n} branches").into());
    }
    let missing = a
        .attr_ints("nodes_missing_value_tracks_true")?
        .unwrap_or_default();
    let values = numbers(a, "membership_values")?;
    let mut sets = values.split(|v| v.is_nan());
    let mut members = Vec::new();
    for &m in &modes {
        members.push(match m {
            6 => sets.next().ok_or("a membership test has no set")?.to_vec(),
            0..=5 => Vec::new(),
            m => return Err(format!("mode {m} is not one that ONNX lists").into()),
        });
    }
    Ok(Trees {
        features,
        splits,
        modes,
        yes,
        no,
        missing_is_yes: (0..n)
            .map(|i| missing.get(i).is_some_and(|m| *m != 0))
            .collect(),
        members,
        targets,
        weights,
        roots: indices(a, "tree_roots", n.max(1))?,
    })
}

impl Trees {
    fn leaf(&self, root: usize, x: &[f32]) -> R<usize> {
        let mut at = root;
        for _ in 0..=self.splits.len() {
            let (v, split) = (
                x[*self.features.get(at).ok_or("a tree has no branch")?],
                self.splits[at] as f32,
            );
            let yes = match self.modes[at] {
                0 => v <= split,
                1 => v < split,
                2 => v >= split,
                3 => v > split,
                4 => v == split,
                5 => v != split,
                _ => self.members[at].iter().any(|m| *m as f32 == v),
            };
            let yes = yes || v.is_nan() && self.missing_is_yes[at];
            let (leaf, next) = if yes { self.yes[at] } else { self.no[at] };
            if leaf {
                return Ok(next);
            }
            at = next;
        }
        Err("a tree has a cycle".into())
    }
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (n, columns, x) = rows(a)?;
    let k = crate::data::extent(a.int("n_targets", 1)?.max(1))?;
    let trees = read(a, columns, k)?;
    let how = a.int("aggregate_function", 1)?;
    let post = match a.int("post_transform", 0)? {
        0 => "NONE",
        1 => "SOFTMAX",
        2 => "LOGISTIC",
        3 => "SOFTMAX_ZERO",
        4 => "PROBIT",
        t => return Err(format!("post transform {t} is not one that ONNX lists").into()),
    };
    let mut y = Vec::new();
    for r in 0..n {
        let mut s: Vec<Option<f64>> = vec![None; k];
        for &root in &trees.roots {
            let leaf = trees.leaf(root, &x[r * columns..(r + 1) * columns])?;
            let (o, w) = (trees.targets[leaf], trees.weights[leaf]);
            s[o] = Some(match (how, s[o]) {
                (0 | 1, old) => old.unwrap_or(0.0) + w,
                (2, Some(v)) => v.min(w),
                (3, Some(v)) => v.max(w),
                (2 | 3, None) => w,
                _ => return Err(format!("aggregate {how} is not one that ONNX lists").into()),
            });
        }
        let share = if how == 0 {
            trees.roots.len().max(1)
        } else {
            1
        } as f64;
        let mut s: Vec<f64> = s.into_iter().map(|v| v.unwrap_or(0.0) / share).collect();
        transform_as(post, &mut s)?;
        y.extend(s);
    }
    Ok(vec![from_f64s(a.input(0)?.dtype(), &[n, k], &y)?])
}
