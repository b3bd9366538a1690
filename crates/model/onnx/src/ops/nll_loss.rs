//! NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
use super::{OpDef, op, softmax};
use crate::import::{Ctx, Lowered, NodeView, monoids};
use expr::Compare;
use graph::ValueId;
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("NegativeLogLikelihoodLoss", nll), op("SoftmaxCrossEntropyLoss", cross_entropy)];

fn nll<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let x = n.input(0)?;
    let y = loss(c, n, x)?;
    c.set(n, 0, y);
    Ok(())
}

fn cross_entropy<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let x = n.input(0)?;
    if c.rank(x) < 2 {
        return Err("needs scores of rank 2 or more".into());
    }
    let name = if n.wants(1) { n.name(1) } else { n.tmp("log") };
    let log = softmax::softmax(c, n, name, x, &[1], true)?;
    if n.wants(1) {
        c.set(n, 1, log);
    }
    let y = loss(c, n, log)?;
    c.set(n, 0, y);
    Ok(())
}

/// The loss of log-probabilities `x` [n, c, ..] at the classes that input 1 names.
fn loss<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId) -> Lowered<ValueId> {
    let (target, weight) = (n.input(1)?, n.opt(2));
    let (s, d, t) = (c.shape(x), c.dtype(x), c.dtype(target));
    if s.len() < 2 || c.rank(target) + 1 != s.len() {
        return Err(format!("needs scores of one rank more than the classes, they have {} and {}", s.len(), c.rank(target)).into());
    }
    let ignored = n.int_opt("ignore_index")?;
    let how = n.text("reduction", "mean")?;
    let mut thin = c.shape(target);
    thin.insert(1, Dim::ONE);
    let at = c.reshape(n, n.tmp("classes"), target, thin)?;
    let mut inputs = vec![x, at];
    if let Some(w) = weight {
        inputs.push(c.along(n, n.tmp("weight.c"), w, s.len(), 1)?);
    }
    // What each class of each sample gives: its score (or its weight) where it is the sample's own.
    let part = |c: &mut Ctx<'m>, what: &str, score: bool| {
        let own = c.map(n, n.tmp(&format!("{what}.own")), &inputs, |e, a| {
            let k = e.index(1);
            let class = if t == DType::I64 { a[1] } else { e.cast(a[1], DType::I64) };
            let mut here = e.compare(Compare::Eq, class, k);
            if let Some(i) = ignored {
                let i = e.int(i, DType::I64);
                let counts = e.compare(Compare::Ne, class, i);
                here = e.binary(expr::Binary::And, here, counts);
            }
            let (zero, one) = (e.constant(0.0, d), e.constant(1.0, d));
            let mut v = one;
            if score {
                let minus = e.unary(expr::Unary::Neg, a[0]);
                v = minus;
            }
            if let Some(&w) = a.get(2) {
                v = if score { e.mul(v, w) } else { w };
            }
            e.select(here, v, zero)
        })?;
        c.reduce(n, n.tmp(what), own, monoids::sum(d), &[1], false)
    };
    let each = part(c, "each", true)?;
    if how == "none" {
        return c.reshape(n, n.name(0), each, s[..1].iter().chain(&s[2..]).cloned().collect());
    }
    let all: Vec<usize> = (0..c.rank(each)).collect();
    match how.as_str() {
        "sum" => c.reduce(n, n.name(0), each, monoids::sum(d), &all, false),
        "mean" if weight.is_none() && ignored.is_none() => {
            let count = c.count(each, &all);
            c.reduce(n, n.name(0), each, monoids::mean(d, &count), &all, false)
        }
        "mean" => {
            let weights = part(c, "weights", false)?;
            let sum = c.reduce(n, n.tmp("sum"), each, monoids::sum(d), &all, false)?;
            let total = c.reduce(n, n.tmp("total"), weights, monoids::sum(d), &all, false)?;
            c.map(n, n.name(0), &[sum, total], |e, a| e.div(a[0], a[1]))
        }
        other => Err(format!("attribute 'reduction' is '{other}', it must be none, sum or mean").into()),
    }
}
