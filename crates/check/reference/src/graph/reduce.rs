//! Folds of monoids over axes.
use super::Symbols;
use super::scalars::{broadcast, get, next, set, strides};
use crate::error::R;
use expr::{CompiledExpr, EvalContext, Monoid, Scalar};
use tensor::Tensor;

/// A monoid's programs, compiled.
pub(crate) struct Fold<'a> {
    identity: CompiledExpr,
    lift: CompiledExpr,
    combine: CompiledExpr,
    finish: CompiledExpr,
    lookup: &'a dyn Fn(&str) -> Option<i64>,
    scratch: Vec<Scalar>,
}

impl<'a> Fold<'a> {
    /// Compiles `m` with its dimensions bound.
    pub fn new(m: &Monoid, lookup: &'a dyn Fn(&str) -> Option<i64>) -> R<Fold<'a>> {
        let c = |e| -> R<CompiledExpr> { Ok(CompiledExpr::new(e)?.bound(lookup)?) };
        Ok(Fold {
            identity: c(&m.identity)?,
            lift: c(&m.lift)?,
            combine: c(&m.combine)?,
            finish: c(&m.finish)?,
            lookup,
            scratch: Vec::new(),
        })
    }

    fn eval(&mut self, which: usize, inputs: &[Scalar], index: i64) -> R<Vec<Scalar>> {
        let e = [&self.identity, &self.lift, &self.combine, &self.finish][which];
        let mut out = vec![Scalar::Int(0); e.output_len()];
        let ctx = EvalContext {
            inputs,
            index: &[index],
            symbols: self.lookup,
        };
        e.eval_into(&ctx, &mut self.scratch, &mut out)?;
        Ok(out)
    }

    /// State of an empty reduction.
    pub fn identity(&mut self) -> R<Vec<Scalar>> {
        self.eval(0, &[], 0)
    }

    /// State of the element of rank `index`.
    pub fn lift(&mut self, element: &[Scalar], index: i64) -> R<Vec<Scalar>> {
        self.eval(1, element, index)
    }

    /// Two states to one.
    pub fn combine(&mut self, left: &[Scalar], right: &[Scalar]) -> R<Vec<Scalar>> {
        let both = [left, right].concat();
        self.eval(2, &both, 0)
    }

    /// State to results.
    pub fn finish(&mut self, state: &[Scalar]) -> R<Vec<Scalar>> {
        self.eval(3, state, 0)
    }

    /// State of elements `from..to`, halves combined in order: the error of a long sum grows with
    /// the logarithm of its length. `element` adds an element's arguments and gives its rank.
    pub fn range(
        &mut self,
        from: usize,
        to: usize,
        element: &mut dyn FnMut(usize, &mut Vec<Scalar>) -> i64,
    ) -> R<Vec<Scalar>> {
        if to - from > 8 {
            let middle = from + (to - from) / 2;
            let left = self.range(from, middle, element)?;
            let right = self.range(middle, to, element)?;
            return self.combine(&left, &right);
        }
        let mut args = Vec::new();
        let mut state: Option<Vec<Scalar>> = None;
        for i in from..to {
            args.clear();
            let rank = element(i, &mut args);
            let one = self.lift(&args, rank)?;
            state = Some(match state {
                None => one,
                Some(s) => self.combine(&s, &one)?,
            });
        }
        match state {
            Some(s) => Ok(s),
            None => self.identity(),
        }
    }
}

/// Reduction of broadcast inputs over `axes`.
pub(crate) fn run(
    m: &Monoid,
    axes: &[usize],
    keep: bool,
    inputs: &[&Tensor],
    symbols: &Symbols,
) -> R<Vec<Tensor>> {
    let rank = inputs.iter().map(|t| t.shape().len()).max().unwrap_or(0);
    let mut shape = vec![1usize; rank];
    for t in inputs {
        let skip = rank - t.shape().len();
        for (d, n) in t.shape().iter().enumerate() {
            if *n != 1 {
                shape[skip + d] = *n;
            }
        }
    }
    if axes.iter().any(|a| *a >= rank) {
        return Err(format!("axes {axes:?} are outside {rank} dimensions").into());
    }
    let by: Vec<Vec<usize>> = inputs
        .iter()
        .map(|t| broadcast(t.shape(), &shape))
        .collect::<R<_>>()?;
    let kept: Vec<usize> = (0..rank).filter(|d| !axes.contains(d)).collect();
    let outer: Vec<usize> = kept.iter().map(|d| shape[*d]).collect();
    let inner: Vec<usize> = axes.iter().map(|d| shape[*d]).collect();
    let out_shape: Vec<usize> = if keep {
        (0..rank)
            .map(|d| if axes.contains(&d) { 1 } else { shape[d] })
            .collect()
    } else {
        outer.clone()
    };
    let lookup = |s: &str| symbols.get(s);
    let mut fold = Fold::new(m, &lookup)?;
    let mut out: Vec<Tensor> = fold
        .finish
        .output_types()
        .iter()
        .map(|d| Tensor::zeros(*d, &out_shape))
        .collect::<Result<_, _>>()?;
    if outer.contains(&0) {
        return Ok(out);
    }
    let count: usize = inner.iter().product();
    let ranks = strides(&inner);
    let mut at = vec![0; outer.len()];
    for o in 0.. {
        let base: Vec<usize> = by
            .iter()
            .map(|b| at.iter().zip(&kept).map(|(c, d)| c * b[*d]).sum())
            .collect();
        let state = fold.range(0, count, &mut |i, args| {
            for ((t, b), start) in inputs.iter().zip(&by).zip(&base) {
                let inside: usize = (0..axes.len())
                    .map(|q| i / ranks[q] % inner[q] * b[axes[q]])
                    .sum();
                args.push(get(t, start + inside));
            }
            i as i64
        })?;
        for (t, r) in out.iter_mut().zip(fold.finish(&state)?) {
            set(t, o, r);
        }
        if !next(&mut at, &outer) {
            break;
        }
    }
    Ok(out)
}
