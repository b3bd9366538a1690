//! ai.onnx.ml LinearRegressor and LinearClassifier, and what all classifiers share: rows, labels,
//! transforms of scores.
use super::{OpDef, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use graph::{Op, ValueId};
use layout::{DType, Dim};
use tensor::{Attr, Tensor};

const ML: &str = "ai.onnx.ml";
const F: DType = DType::F32;

pub(crate) const OPS: &[OpDef] = &[op_of(ML, "LinearClassifier", classifier), op_of(ML, "LinearRegressor", regressor)];

/// A constant of f32.
pub(super) fn floats<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, shape: &[usize], v: &[f64]) -> Lowered<ValueId> {
    let v: Vec<f32> = v.iter().map(|&x| x as f32).collect();
    let t = Tensor::from_f32(shape, &v).map_err(|e| format!("attribute '{what}': {e}"))?;
    c.constant(&n.tmp(what), t)
}

/// Input 0 as rows of f32: a vector is one row.
pub(super) fn rows<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered<(ValueId, Dim, usize)> {
    let x = c.cast(n, n.tmp("x"), n.input(0)?, F)?;
    let s = c.shape(x);
    let (x, rows) = match s.len() {
        1 => (c.reshape(n, n.tmp("row"), x, vec![Dim::ONE, s[0].clone()])?, Dim::ONE),
        2 => (x, s[0].clone()),
        r => return Err(format!("its input has rank {r}, not rows of columns").into()),
    };
    let width = s.last().and_then(Dim::known).and_then(|w| usize::try_from(w).ok());
    let width = width.ok_or_else(|| LowerError::Unsupported("the number of its columns is not known; give it with --shape".into()))?;
    Ok((x, rows, width))
}

/// Labels of a classifier.
pub(super) enum Labels {
    Ints(Vec<i64>),
    Texts(Vec<String>),
}

impl Labels {
    pub fn of(n: &NodeView) -> Lowered<Labels> {
        let texts = n.texts("classlabels_strings")?.filter(|t| !t.is_empty());
        let ints = match n.ints("classlabels_ints")?.filter(|v| !v.is_empty()) {
            Some(v) => Some(v),
            None => n.ints("classlabels_int64s")?.filter(|v| !v.is_empty()),
        };
        match (ints, texts) {
            (Some(v), None) => Ok(Labels::Ints(v)),
            (None, Some(t)) => Ok(Labels::Texts(t)),
            _ => Err("its class labels must be integers or texts".into()),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Labels::Ints(v) => v.len(),
            Labels::Texts(t) => t.len(),
        }
    }

    /// Binds output 0: the labels at positions `at`.
    pub fn set<'m>(&self, c: &mut Ctx<'m>, n: &NodeView<'m>, at: ValueId) -> Lowered {
        if !n.wants(0) {
            return Ok(());
        }
        let y = match self {
            Labels::Ints(v) => {
                let table = c.constant(&n.tmp("labels"), Tensor::from_i64(&[v.len()], v)?)?;
                c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[table, at], n.name(0))?
            }
            Labels::Texts(t) => {
                let s = c.shape(at).into_iter().map(Some).collect();
                let attrs = tensor::attrs(vec![("texts", Attr::Strs(t.clone()))]);
                let op = Op::Host { name: "text.choose".into(), attrs };
                let name = n.name(0);
                let vs = c.b().node_with_shapes(op, &[at], &[(&name, DType::Str, s)], &n.origin);
                vs.first().copied().ok_or("a label has no value")?
            }
        };
        c.set(n, 0, y);
        Ok(())
    }
}

/// Position of each row's first largest score.
pub(super) fn largest<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: ValueId) -> Lowered<ValueId> {
    let d = c.dtype(s);
    c.reduce(n, n.tmp("best"), s, monoids::arg(d, true, false), &[1], false)
}

/// Inverse of the normal distribution as the standard approximates it.
fn probit(e: &mut ExprBuilder, p: Ref) -> Ref {
    let k = |e: &mut ExprBuilder, v: f64| e.constant(v, F);
    let (one, two) = (k(e, 1.0), k(e, 2.0));
    let x = e.mul(p, two);
    let x = e.sub(x, one);
    let sign = e.unary(Unary::Sign, x);
    let (a, b) = (e.sub(one, x), e.add(one, x));
    let l = e.mul(a, b);
    let l = e.unary(Unary::Log, l);
    let first = k(e, 2.0 / (std::f64::consts::PI * 0.147));
    let half = k(e, 0.5);
    let v = e.mul(half, l);
    let v = e.add(first, v);
    let inverse = k(e, 1.0 / 0.147);
    let w = e.mul(l, inverse);
    let v2 = e.mul(v, v);
    let r = e.sub(v2, w);
    let r = e.unary(Unary::Sqrt, r);
    let r = e.sub(r, v);
    let r = e.unary(Unary::Sqrt, r);
    let root = k(e, std::f64::consts::SQRT_2);
    let y = e.mul(root, sign);
    e.mul(y, r)
}

/// Scores [rows, k] after `post_transform`.
pub(super) fn transformed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, s: ValueId, post: &str) -> Lowered<ValueId> {
    let shape = c.shape(s);
    match post {
        "NONE" => c.reshape(n, name, s, shape),
        "LOGISTIC" => c.map(n, name, &[s], |e, a| e.unary(Unary::Sigmoid, a[0])),
        "PROBIT" => c.map(n, name, &[s], |e, a| probit(e, a[0])),
        "SOFTMAX" => super::softmax::softmax(c, n, name, s, &[1], false),
        "SOFTMAX_ZERO" => {
            let top = c.reduce(n, n.tmp("top"), s, monoids::max(F), &[1], true)?;
            let exp = c.map(n, n.tmp("exp"), &[s, top], |e, a| {
                let d = e.sub(a[0], a[1]);
                let d = e.unary(Unary::Exp, d);
                let size = e.unary(Unary::Abs, a[0]);
                let small = e.constant(1e-7, F);
                let counts = e.compare(Compare::Gt, size, small);
                let zero = e.constant(0.0, F);
                e.select(counts, d, zero)
            })?;
            let sum = c.reduce(n, n.tmp("sum"), exp, monoids::sum(F), &[1], true)?;
            c.map(n, name, &[exp, sum], |e, a| e.div(a[0], a[1]))
        }
        t => Err(format!("post transform '{t}' is not one that ONNX lists").into()),
    }
}

/// One score per row as those of both classes: `[-s, s]`, or `[1 - s, s]` for a share.
pub(super) fn both<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, s: ValueId, share: bool, logistic: bool) -> Lowered<ValueId> {
    let rows = c.shape(s)[0].clone();
    let wide = c.expand(n, n.tmp("twice"), s, vec![rows, Dim::Known(2)])?;
    c.map(n, name, &[wide], |e, a| {
        let i = e.index(1);
        let zero = e.int(0, DType::I64);
        let first = e.compare(Compare::Eq, i, zero);
        let base = e.constant(if share { 1.0 } else { 0.0 }, F);
        let other = e.sub(base, a[0]);
        let y = e.select(first, other, a[0]);
        if logistic { e.unary(Unary::Sigmoid, y) } else { y }
    })
}

/// x · coefficientsᵀ + intercepts, [rows, k].
fn scores<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, k: usize) -> Lowered<ValueId> {
    let (x, _, width) = rows(c, n)?;
    let mut w = n.floats("coefficients")?.unwrap_or_default();
    let b = n.floats("intercepts")?.unwrap_or_default();
    let used = k.checked_mul(width).filter(|used| *used <= w.len());
    let Some(used) = used.filter(|_| b.is_empty() || b.len() == k) else {
        return Err(format!("{} coefficients and {} intercepts do not fit {k} outputs of {width} columns", w.len(), b.len()).into());
    };
    // onnxruntime reads the first ones and leaves the others, of which its own example of a model has some.
    w.truncate(used);
    let w = floats(c, n, "coefficients", &[k, width], &w)?;
    let y = c.contract(n, n.tmp("product"), (x, b"mk"), (w, b"nk"), b"mn")?;
    if b.is_empty() {
        return Ok(y);
    }
    let b = floats(c, n, "intercepts", &[k], &b)?;
    c.map(n, n.tmp("scores"), &[y, b], |e, a| e.add(a[0], a[1]))
}

fn regressor<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let k = usize::try_from(n.int("targets", 1)?).ok().filter(|k| *k > 0).ok_or("attribute 'targets' must be positive")?;
    let post = n.text("post_transform", "NONE")?;
    let s = scores(c, n, k)?;
    let y = transformed(c, n, n.name(0), s, &post)?;
    c.set(n, 0, y);
    Ok(())
}

fn classifier<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let labels = Labels::of(n)?;
    let post = n.text("post_transform", "NONE")?;
    n.int("multi_class", 0)?;
    let single = labels.len() == 2 && n.floats("intercepts")?.is_some_and(|b| b.len() == 1);
    let s = scores(c, n, if single { 1 } else { labels.len() })?;
    let (at, y) = if single {
        let second = above(c, n, s, 0.0)?;
        (second, both(c, n, n.name(1), s, post != "LOGISTIC", post == "LOGISTIC")?)
    } else {
        (largest(c, n, s)?, transformed(c, n, n.name(1), s, &post)?)
    };
    labels.set(c, n, at)?;
    c.set(n, 1, y);
    Ok(())
}

/// 1 for rows whose only score is above `limit`, else 0.
pub(super) fn above<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: ValueId, limit: f64) -> Lowered<ValueId> {
    let rows = c.shape(s)[0].clone();
    let flat = c.reshape(n, n.tmp("flat"), s, vec![rows])?;
    c.map(n, n.tmp("second"), &[flat], |e, a| {
        let k = e.constant(limit, F);
        let more = e.compare(Compare::Gt, a[0], k);
        e.cast(more, DType::I64)
    })
}

/// `x` to the power of a constant.
pub(super) fn power(e: &mut ExprBuilder, x: Ref, p: f64) -> Ref {
    let whole = p as u32;
    if p == whole as f64 && (1..=4).contains(&whole) {
        let mut y = x;
        for _ in 1..whole {
            y = e.mul(y, x);
        }
        return y;
    }
    let p = e.constant(p, F);
    e.binary(Binary::Pow, x, p)
}
