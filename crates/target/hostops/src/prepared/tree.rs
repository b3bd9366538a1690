//! Tree ensembles as flat arrays of nodes, walked by several rows at once without a branch.
use super::{Elem, Fast, Form, In, Out, input, whole};
use crate::args::Args;
use crate::ops::{Branch, Classes, Mode, ensemble, transform_as};
use layout::DType;
use tensor::Attrs;

/// Rows that walk at the same time.
const ROWS: usize = 8;

/// A branch: to `next[1]` where the row's feature is at most `value`. A leaf leads to itself.
#[derive(Clone, Copy)]
struct Node {
    feature: u32,
    value: f32,
    next: [u32; 2],
}

struct Forest {
    nodes: Vec<Node>,
    /// Whether a NaN goes to `next[1]`; empty when it never does.
    nan: Vec<bool>,
    /// Root of each tree and how many branches its longest way has.
    roots: Vec<(u32, u32)>,
    /// Where each node's part of `leaves` begins; one more than there are nodes.
    starts: Vec<u32>,
    leaves: Vec<(u32, f64)>,
    /// Columns that a row must have.
    columns: usize,
}

/// The largest float below `v`, or one that nothing is at most.
fn below(v: f32) -> f32 {
    if v == f32::NEG_INFINITY {
        f32::NAN
    } else {
        v.next_down()
    }
}

/// Branches on the longest way from `root`; `None` when it has a cycle.
fn depth(nodes: &[Branch], root: usize, known: &mut [u32]) -> Option<u32> {
    const OPEN: u32 = u32::MAX;
    let mut stack = vec![(root, false)];
    while let Some((at, done)) = stack.pop() {
        let b = &nodes[at];
        if matches!(b.mode, Mode::Leaf) {
            known[at] = 1;
            continue;
        }
        if done {
            known[at] = 1 + known[b.yes].max(known[b.no]);
            continue;
        }
        match known[at] {
            0 => {
                known[at] = OPEN;
                stack.push((at, true));
                stack.extend([(b.yes, false), (b.no, false)]);
            }
            OPEN => return None,
            _ => {}
        }
    }
    Some(known[root] - 1)
}

impl Forest {
    /// `None` for what plain code runs: tests for equality, splits that are no numbers, cycles.
    fn new(a: &Args, kind: &str, outputs: usize) -> Option<Forest> {
        let e = ensemble(a, kind, usize::MAX, outputs).ok()?;
        let n = u32::try_from(e.nodes.len()).ok()?;
        let mut f = Forest {
            nodes: Vec::with_capacity(n as usize),
            nan: Vec::with_capacity(n as usize),
            roots: Vec::with_capacity(e.roots.len()),
            starts: vec![0],
            leaves: Vec::new(),
            columns: 0,
        };
        for (i, b) in e.nodes.iter().enumerate() {
            let leaf = matches!(b.mode, Mode::Leaf);
            if b.value.is_nan() && !leaf {
                return None;
            }
            let (value, turned) = match b.mode {
                Mode::Le => (b.value, false),
                Mode::Lt => (below(b.value), false),
                Mode::Gt => (b.value, true),
                Mode::Ge => (below(b.value), true),
                Mode::Leaf => (0.0, false),
                Mode::Eq | Mode::Ne => return None,
            };
            let (yes, no) = if leaf { (i, i) } else { (b.yes, b.no) };
            let next = if turned { [yes, no] } else { [no, yes] };
            f.nodes.push(Node {
                feature: if leaf {
                    0
                } else {
                    u32::try_from(b.feature).ok()?
                },
                value,
                next: next.map(|x| x as u32),
            });
            f.nan.push(!leaf && b.missing_is_yes != turned);
            if !leaf {
                f.columns = f.columns.max(b.feature.checked_add(1)?);
            } else {
                f.leaves
                    .extend(b.leaves.iter().map(|(o, w)| (*o as u32, *w)));
            }
            f.starts.push(u32::try_from(f.leaves.len()).ok()?);
        }
        let mut known = vec![0; e.nodes.len()];
        for root in e.roots {
            let d = depth(&e.nodes, root, &mut known)?;
            f.roots.push((root as u32, d));
        }
        if f.nan.iter().all(|x| !x) {
            f.nan.clear();
        }
        Some(f)
    }

    /// Calls `f(row, output, weight)` for every leaf that a row ends in, tree by tree.
    fn walk(&self, x: &[f32], columns: usize, rows: usize, mut f: impl FnMut(usize, usize, f64)) {
        // A leaf looks at column 0, which must be there.
        if columns == 0 {
            return;
        }
        for first in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - first);
            // Rows beyond the last walk as the last one does.
            let at: [&[f32]; ROWS] = std::array::from_fn(|r| {
                let row = first + r.min(count - 1);
                &x[row * columns..(row + 1) * columns]
            });
            for &(root, depth) in &self.roots {
                let mut node = [root; ROWS];
                for _ in 0..depth {
                    for r in 0..ROWS {
                        let n = &self.nodes[node[r] as usize];
                        let v = at[r][n.feature as usize];
                        let mut yes = v <= n.value;
                        if !self.nan.is_empty() {
                            yes |= v.is_nan() & self.nan[node[r] as usize];
                        }
                        node[r] = n.next[usize::from(yes)];
                    }
                }
                for (r, n) in node[..count].iter().enumerate() {
                    let n = *n as usize;
                    let part = self.starts[n] as usize..self.starts[n + 1] as usize;
                    for (o, w) in &self.leaves[part] {
                        f(first + r, *o as usize, *w);
                    }
                }
            }
        }
    }
}

/// Rows, columns and elements of X, when it is of a type that needs no conversion.
fn rows(x: &In<'_>) -> Option<(usize, usize, Vec<f32>)> {
    let (n, columns) = match *x.shape {
        [c] => (1, c),
        [r, c] => (r, c),
        _ => return None,
    };
    let v = match x.dtype {
        DType::F32 => f32::chunks(x.bytes).iter().map(|b| f32::get(*b)).collect(),
        DType::I64 => i64::chunks(x.bytes)
            .iter()
            .map(|b| i64::get(*b) as f64 as f32)
            .collect(),
        _ => return None,
    };
    Some((n, columns, v))
}

#[derive(Clone, Copy, PartialEq)]
enum Aggregate {
    Sum,
    Average,
    Min,
    Max,
}

pub(super) struct Regressor {
    forest: Forest,
    targets: usize,
    base: Vec<f64>,
    how: Aggregate,
    post: String,
}

pub(super) fn regressor(attrs: &Attrs) -> Option<Regressor> {
    whole(attrs)?;
    let a = Args { attrs, inputs: &[] };
    let targets = usize::try_from(a.int("n_targets", 1).ok()?).ok()?;
    Some(Regressor {
        forest: Forest::new(&a, "target", targets)?,
        targets,
        base: a.floats("base_values").ok()?,
        how: match a.text("aggregate_function", "SUM").ok()? {
            "SUM" => Aggregate::Sum,
            "AVERAGE" => Aggregate::Average,
            "MIN" => Aggregate::Min,
            "MAX" => Aggregate::Max,
            _ => return None,
        },
        post: a.text("post_transform", "NONE").ok()?.into(),
    })
}

impl Form for Regressor {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast {
        let Some((n, columns, x)) = input(inputs, 0).as_ref().and_then(rows) else {
            return Ok(false);
        };
        let (k, [y]) = (self.targets, outputs) else {
            return Ok(false);
        };
        let fits = y.dtype == DType::F32 && *y.shape == [n, k] && columns >= self.forest.columns;
        if !fits || columns == 0 {
            return Ok(false);
        }
        let start = match self.how {
            Aggregate::Min => f64::INFINITY,
            Aggregate::Max => f64::NEG_INFINITY,
            _ => 0.0,
        };
        let mut s = vec![start; n * k];
        match self.how {
            Aggregate::Min => {
                self.forest
                    .walk(&x, columns, n, |r, o, w| s[r * k + o] = s[r * k + o].min(w));
            }
            Aggregate::Max => {
                self.forest
                    .walk(&x, columns, n, |r, o, w| s[r * k + o] = s[r * k + o].max(w));
            }
            _ => self
                .forest
                .walk(&x, columns, n, |r, o, w| s[r * k + o] += w),
        }
        let trees = match self.how {
            Aggregate::Average => self.forest.roots.len().max(1) as f64,
            _ => 1.0,
        };
        let out = f32::chunks_mut(y.bytes);
        for (row, to) in s
            .chunks_exact_mut(k.max(1))
            .zip(out.chunks_exact_mut(k.max(1)))
        {
            for (o, v) in row.iter_mut().enumerate() {
                // A target of which no leaf speaks is 0.
                let seen = *v != start || start == 0.0;
                *v = if seen { *v / trees } else { 0.0 };
                *v += self.base.get(o).copied().unwrap_or(0.0);
            }
            transform_as(&self.post, row)?;
            for (t, v) in to.iter_mut().zip(row) {
                *t = (*v as f32).put();
            }
        }
        Ok(true)
    }
}

pub(super) struct Classifier {
    forest: Forest,
    classes: Classes,
}

pub(super) fn classifier(attrs: &Attrs) -> Option<Classifier> {
    whole(attrs)?;
    let a = Args { attrs, inputs: &[] };
    let classes = Classes::of(&a).ok()?;
    Some(Classifier {
        forest: Forest::new(&a, "class", classes.labels.len())?,
        classes,
    })
}

impl Form for Classifier {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast {
        let Some((n, columns, x)) = input(inputs, 0).as_ref().and_then(rows) else {
            return Ok(false);
        };
        let labels = &self.classes.labels;
        let (k, [picked, y]) = (labels.len(), outputs) else {
            return Ok(false);
        };
        let fits = y.dtype == DType::F32
            && *y.shape == [n, k]
            && picked.dtype == DType::I64
            && *picked.shape == [n]
            && columns >= self.forest.columns;
        if !fits || columns == 0 {
            return Ok(false);
        }
        let mut s: Vec<Option<f64>> = vec![None; n * k];
        self.forest.walk(&x, columns, n, |r, o, w| {
            *s[r * k + o].get_or_insert(0.0) += w;
        });
        let mut scores = vec![0.0; k];
        let to = f32::chunks_mut(y.bytes).chunks_exact_mut(k);
        for ((row, to), label) in s.chunks_exact(k).zip(to).zip(i64::chunks_mut(picked.bytes)) {
            let class = self.classes.scores(row, &mut scores)?;
            *label = labels[class].put();
            for (t, v) in to.iter_mut().zip(&scores) {
                *t = (*v as f32).put();
            }
        }
        Ok(true)
    }
}
