//! ai.onnx.ml TreeEnsembleRegressor and TreeEnsembleClassifier.
use super::ml_scores::{classified, labels, largest, logistic, rows, transform, transform_as};
use crate::args::Args;
use crate::data::from_f64s;
use crate::error::{R, Why};
use layout::DType;
use layout::Inserted;
use std::collections::BTreeMap;
use tensor::Tensor;

/// Comparison at a branch.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    Le,
    Lt,
    Ge,
    Gt,
    Eq,
    Ne,
    Leaf,
}

/// A node of a tree as the model lists it.
pub(crate) struct Branch {
    pub mode: Mode,
    pub feature: usize,
    pub value: f32,
    pub yes: usize,
    pub no: usize,
    pub missing_is_yes: bool,
    /// Output and weight of a leaf.
    pub leaves: Vec<(usize, f64)>,
}

/// All trees of an operator.
pub(crate) struct Ensemble {
    pub nodes: Vec<Branch>,
    pub roots: Vec<usize>,
}

fn long(a: &Args, name: &str, len: Option<usize>) -> R<Vec<i64>> {
    let v = a.attr_ints(name)?.unwrap_or_default();
    match len {
        Some(n) if v.len() != n => {
            Err(format!("attribute '{name}' has {} values, not {n}", v.len()).into())
        }
        _ => Ok(v),
    }
}

/// Reads the trees; `kind` is `target` or `class`.
pub(crate) fn ensemble(a: &Args, kind: &str, columns: usize, outputs: usize) -> R<Ensemble> {
    let trees = long(a, "nodes_treeids", None)?;
    let n = trees.len();
    let ids = long(a, "nodes_nodeids", Some(n))?;
    let features = long(a, "nodes_featureids", Some(n))?;
    let yes = long(a, "nodes_truenodeids", Some(n))?;
    let no = long(a, "nodes_falsenodeids", Some(n))?;
    let missing = long(a, "nodes_missing_value_tracks_true", None)?;
    let (values, modes) = (a.floats("nodes_values")?, a.texts("nodes_modes")?);
    if values.len() != n || modes.len() != n {
        return Err(format!("nodes_values and nodes_modes must have {n} values").into());
    }
    let at: BTreeMap<(i64, i64), usize> = trees
        .iter()
        .copied()
        .zip(ids.iter().copied())
        .zip(0..)
        .inserted();
    let find = |t: i64, id: i64| {
        at.get(&(t, id))
            .copied()
            .ok_or_else(|| Why(format!("tree {t} has no node {id}")))
    };
    let mut nodes = Vec::with_capacity(n);
    let mut roots: Vec<usize> = Vec::new();
    for i in 0..n {
        let mode = match modes[i].as_str() {
            "BRANCH_LEQ" => Mode::Le,
            "BRANCH_LT" => Mode::Lt,
            "BRANCH_GTE" => Mode::Ge,
            "BRANCH_GT" => Mode::Gt,
            "BRANCH_EQ" => Mode::Eq,
            "BRANCH_NEQ" => Mode::Ne,
            "LEAF" => Mode::Leaf,
            m => return Err(format!("mode '{m}' is not one that ONNX lists").into()),
        };
        let leaf = matches!(mode, Mode::Leaf);
        let feature = usize::try_from(features[i]).unwrap_or(usize::MAX);
        if !leaf && feature >= columns {
            return Err(format!("feature {} is outside {columns} columns", features[i]).into());
        }
        if i == 0 || trees[i] != trees[i - 1] {
            roots.push(i);
        }
        nodes.push(Branch {
            mode,
            feature,
            value: values[i] as f32,
            yes: if leaf { 0 } else { find(trees[i], yes[i])? },
            no: if leaf { 0 } else { find(trees[i], no[i])? },
            missing_is_yes: missing.get(i).is_some_and(|m| *m != 0),
            leaves: Vec::new(),
        });
    }
    let owners = long(a, &format!("{kind}_treeids"), None)?;
    let leaf_ids = long(a, &format!("{kind}_nodeids"), Some(owners.len()))?;
    let targets = long(a, &format!("{kind}_ids"), Some(owners.len()))?;
    let weights = a.floats(&format!("{kind}_weights"))?;
    if weights.len() != owners.len() {
        return Err(format!("{kind}_weights must have {} values", owners.len()).into());
    }
    for i in 0..owners.len() {
        let o = usize::try_from(targets[i]).ok().filter(|o| *o < outputs);
        let o = o.ok_or_else(|| format!("{kind} {} is outside {outputs}", targets[i]))?;
        nodes[find(owners[i], leaf_ids[i])?]
            .leaves
            .push((o, weights[i]));
    }
    Ok(Ensemble { nodes, roots })
}

impl Ensemble {
    /// The leaf that a row ends in; an error when a tree has a cycle.
    fn leaf(&self, root: usize, x: &[f32]) -> R<&Branch> {
        let mut at = root;
        for _ in 0..=self.nodes.len() {
            let b = &self.nodes[at];
            let v = x.get(b.feature).copied().unwrap_or(0.0);
            let yes = match b.mode {
                Mode::Leaf => return Ok(b),
                Mode::Le => v <= b.value,
                Mode::Lt => v < b.value,
                Mode::Ge => v >= b.value,
                Mode::Gt => v > b.value,
                Mode::Eq => v == b.value,
                Mode::Ne => v != b.value,
            };
            at = if yes || v.is_nan() && b.missing_is_yes {
                b.yes
            } else {
                b.no
            };
        }
        Err("a tree has a cycle".into())
    }
}

pub(crate) fn regressor(a: &Args) -> R<Vec<Tensor>> {
    let (n, columns, x) = rows(a)?;
    let k = crate::data::extent(a.int("n_targets", 1)?)?;
    let e = ensemble(a, "target", columns, k)?;
    let base = a.floats("base_values")?;
    let how = a.text("aggregate_function", "SUM")?;
    let mut y = Vec::new();
    for r in 0..n {
        let mut s: Vec<Option<f64>> = vec![None; k];
        for root in &e.roots {
            for (o, w) in &e.leaf(*root, &x[r * columns..(r + 1) * columns])?.leaves {
                let old = s[*o];
                s[*o] = Some(match (how, old) {
                    ("SUM" | "AVERAGE", _) => old.unwrap_or(0.0) + w,
                    ("MIN", Some(v)) => v.min(*w),
                    ("MAX", Some(v)) => v.max(*w),
                    ("MIN" | "MAX", None) => *w,
                    _ => return Err(format!("aggregate '{how}' is not one that ONNX lists").into()),
                });
            }
        }
        let trees = if how == "AVERAGE" {
            e.roots.len().max(1)
        } else {
            1
        } as f64;
        let mut s: Vec<f64> = (0..k)
            .map(|o| s[o].unwrap_or(0.0) / trees + base.get(o).copied().unwrap_or(0.0))
            .collect();
        transform(a, &mut s)?;
        y.extend(s);
    }
    Ok(vec![from_f64s(DType::F32, &[n, k], &y)?])
}

pub(crate) fn classifier(a: &Args) -> R<Vec<Tensor>> {
    let (n, columns, x) = rows(a)?;
    let classes = Classes::of(a)?;
    let k = classes.labels.len();
    let e = ensemble(a, "class", columns, k)?;
    let (mut picked, mut y) = (Vec::with_capacity(n), Vec::new());
    for r in 0..n {
        let mut s: Vec<Option<f64>> = vec![None; k];
        for root in &e.roots {
            for (o, w) in &e.leaf(*root, &x[r * columns..(r + 1) * columns])?.leaves {
                *s[*o].get_or_insert(0.0) += w;
            }
        }
        let at = y.len();
        y.resize(at + k, 0.0);
        picked.push(classes.labels[classes.scores(&s, &mut y[at..])?]);
    }
    classified(&picked, &y)
}

/// What a classifier makes of what its leaves gave each class.
pub(crate) struct Classes {
    /// One for each class; there is at least one.
    pub labels: Vec<i64>,
    base: Vec<f64>,
    /// There are two classes, and the leaves speak of one only.
    alone: bool,
    /// No weight is negative.
    positive: bool,
    post: String,
}

impl Classes {
    pub fn of(a: &Args) -> R<Classes> {
        let labels = labels(a)?;
        if labels.is_empty() {
            return Err("there is no class".into());
        }
        let ids = long(a, "class_ids", None)?;
        Ok(Classes {
            base: a.floats("base_values")?,
            alone: labels.len() == 2 && ids.windows(2).all(|w| w[0] == w[1]),
            positive: a.floats("class_weights")?.iter().all(|w| *w >= 0.0),
            post: a.text("post_transform", "NONE")?.into(),
            labels,
        })
    }

    /// The class that is picked and the scores of all; `s`: what the leaves that a row came to gave each, if any.
    pub fn scores(&self, s: &[Option<f64>], scores: &mut [f64]) -> R<usize> {
        if let ([first, second], true) = (s, self.alone) {
            return self.of_two([*first, *second], scores);
        }
        for (i, (score, v)) in scores.iter_mut().zip(s).enumerate() {
            *score = v.unwrap_or(0.0) + self.base.get(i).copied().unwrap_or(0.0);
        }
        let picked = largest(scores);
        transform_as(&self.post, scores)?;
        Ok(picked)
    }

    /// The same for two classes where the leaves speak of one only. The standard does not say it; this is what
    /// onnxruntime 1.32 does.
    fn of_two(&self, [mut first, mut second]: [Option<f64>; 2], scores: &mut [f64]) -> R<usize> {
        let both = second.is_some();
        match *self.base {
            [_, base] if both => {
                let sum = base + first.unwrap_or(0.0);
                (first, second) = (first.map(|_| -sum), Some(sum));
            }
            [base, ..] => first = first.map(|v| v + base).or((!both).then_some(base)),
            [] => {}
        }
        let weight = second.or(first).unwrap_or(0.0);
        let least = if self.positive { 0.5 } else { 0.0 };
        let v = first.unwrap_or(0.0);
        let two = match self.post.as_str() {
            post if both || self.base.len() == 2 => {
                let mut two = [v, second.unwrap_or(0.0)];
                transform_as(post, &mut two)?;
                two
            }
            "LOGISTIC" => [logistic(-v), logistic(v)],
            _ if self.positive => [1.0 - v, v],
            _ => [-v, v],
        };
        scores.iter_mut().zip(two).for_each(|(to, v)| *to = v);
        Ok(usize::from(weight > least))
    }
}
