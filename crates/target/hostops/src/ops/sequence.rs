//! Sequences: their items are shared, not copied, where one sequence is made of another.
use crate::args::Args;
use crate::data;
use crate::error::R;
use std::sync::Arc;
use tensor::{HostValue, Tensor};

/// Items of input `i`.
fn items<'a>(a: &Args<'a>, i: usize) -> R<&'a [Arc<Tensor>]> {
    let t: &'a Tensor = a.input(i)?;
    t.items()
        .ok_or_else(|| format!("input {i} is {t:?}, not a sequence").into())
}

/// Position given by input `i`, counted from the end when negative; `extent` when left out.
fn position(a: &Args, i: usize, count: usize, last: usize) -> R<usize> {
    if a.opt(i).is_none() {
        return Ok(last);
    }
    let p = a.scalar(i)?;
    let n = count as i64;
    let at = if p < 0 { p + n } else { p };
    if at < 0 || at > last as i64 {
        return Err(format!("position {p} is outside a sequence of {count} items").into());
    }
    Ok(at as usize)
}

fn made(items: Vec<Arc<Tensor>>) -> Vec<Tensor> {
    vec![Tensor::from_host_value(HostValue::Sequence(items))]
}

pub(crate) fn empty(_: &Args) -> R<Vec<Tensor>> {
    Ok(made(Vec::new()))
}

pub(crate) fn construct(a: &Args) -> R<Vec<Tensor>> {
    a.input(0)?;
    let all: R<Vec<Arc<Tensor>>> = (0..a.inputs.len())
        .map(|i| Ok(Arc::new(a.input(i)?.clone())))
        .collect();
    Ok(made(all?))
}

pub(crate) fn insert(a: &Args) -> R<Vec<Tensor>> {
    let mut all = items(a, 0)?.to_vec();
    let at = position(a, 2, all.len(), all.len())?;
    all.insert(at, Arc::new(a.input(1)?.clone()));
    Ok(made(all))
}

pub(crate) fn erase(a: &Args) -> R<Vec<Tensor>> {
    let mut all = items(a, 0)?.to_vec();
    let last = all.len().checked_sub(1).ok_or("the sequence is empty")?;
    all.remove(position(a, 1, all.len(), last)?);
    Ok(made(all))
}

pub(crate) fn at(a: &Args) -> R<Vec<Tensor>> {
    let all = items(a, 0)?;
    let last = all.len().checked_sub(1).ok_or("the sequence is empty")?;
    Ok(vec![Tensor::clone(&all[position(a, 1, all.len(), last)?])])
}

pub(crate) fn length(a: &Args) -> R<Vec<Tensor>> {
    Ok(vec![Tensor::from_i64(&[], &[items(a, 0)?.len() as i64])?])
}

pub(crate) fn split(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let axis = data::axis(a.int("axis", 0)?, x.shape().len())?;
    let keep = a.int("keepdims", 1)? != 0;
    let (before, extent, after) = data::around(x.shape(), axis);
    let sizes: Vec<usize> = match a.opt(1) {
        None => vec![1; extent],
        Some(t) if t.shape().is_empty() => {
            let k = data::extent(a.scalar(1)?)?;
            if k == 0 {
                return Err("it cannot split into parts of no elements".into());
            }
            let mut s = vec![k; extent / k];
            if extent % k > 0 {
                s.push(extent % k);
            }
            s
        }
        Some(t) => data::ints(t)
            .into_iter()
            .map(data::extent)
            .collect::<R<_>>()?,
    };
    if sizes.iter().try_fold(0usize, |s, k| s.checked_add(*k)) != Some(extent) {
        return Err(format!("the parts {sizes:?} do not add up to {extent}").into());
    }
    let texts = x.text();
    let raw = data::raw(x);
    let mut start = 0;
    let mut all = Vec::new();
    for k in sizes {
        let mut shape = x.shape().to_vec();
        shape[axis] = k;
        let rows = (0..before).flat_map(|b| {
            let at = (b * extent + start) * after;
            at..at + k * after
        });
        let part = match texts {
            Some(t) => data::texts(&shape, rows.map(|i| &t[i]))?,
            None => {
                let mut out = data::RawOut::new(x.dtype(), &shape)?;
                for (o, i) in rows.enumerate() {
                    out.put(o, raw.at(i));
                }
                out.finish()?
            }
        };
        start += k;
        if !keep {
            shape.remove(axis);
        }
        all.push(Arc::new(part.reshaped(&shape)?));
    }
    Ok(made(all))
}

pub(crate) fn concat(a: &Args) -> R<Vec<Tensor>> {
    let all = items(a, 0)?;
    let first = all
        .first()
        .ok_or("the sequence is empty, which has no shape to join")?;
    let new = a.int("new_axis", 0)? != 0;
    let rank = first.shape().len() + new as usize;
    let axis = data::axis(a.int("axis", 0)?, rank)?;
    let mut parts = Vec::new();
    for t in all {
        let mut s = t.shape().to_vec();
        if new {
            s.insert(axis, 1);
        }
        parts.push(Tensor::clone(t).reshaped(&s)?);
    }
    if first.text().is_none() {
        let refs: Vec<&Tensor> = parts.iter().collect();
        return crate::concat(&refs, axis)
            .map(|t| vec![t])
            .map_err(|e| e.to_string().into());
    }
    let mut shape = parts[0].shape().to_vec();
    let fits = |p: &Tensor| {
        p.shape().len() == shape.len()
            && (0..shape.len()).all(|d| d == axis || p.shape()[d] == shape[d])
    };
    if !parts.iter().all(fits) {
        return Err("its items differ in shape".into());
    }
    let before: usize = shape[..axis].iter().product();
    let mut texts: Vec<&String> = Vec::new();
    for b in 0..before {
        for p in &parts {
            let row = p.len() / before;
            let t = p.text().ok_or("its items differ in type")?;
            texts.extend(&t[b * row..(b + 1) * row]);
        }
    }
    shape[axis] = parts.iter().map(|p| p.shape()[axis]).sum();
    Ok(vec![data::texts(&shape, texts)?])
}

pub(crate) fn identity(a: &Args) -> R<Vec<Tensor>> {
    Ok(vec![a.input(0)?.clone()])
}

pub(crate) fn optional(a: &Args) -> R<Vec<Tensor>> {
    let inner = a.opt(0).map(|t| Box::new(t.clone()));
    Ok(vec![Tensor::from_host_value(HostValue::Optional(inner))])
}

fn inner<'a>(a: &Args<'a>) -> R<Option<&'a Tensor>> {
    let t: &'a Tensor = a.input(0)?;
    match t.host_value() {
        Some(HostValue::Optional(v)) => Ok(v.as_deref()),
        // A value where an optional one is expected is one that is there.
        _ => Ok(Some(t)),
    }
}

pub(crate) fn has(a: &Args) -> R<Vec<Tensor>> {
    let there = inner(a)?.is_some();
    Ok(vec![Tensor::from_bytes(
        layout::DType::Bool,
        &[],
        vec![there as u8],
    )?])
}

pub(crate) fn get(a: &Args) -> R<Vec<Tensor>> {
    match inner(a)? {
        Some(t) => Ok(vec![t.clone()]),
        None => Err("the optional value is empty; ask OptionalHasElement first".into()),
    }
}

/// What stands for a branch that does not fit the sizes a model was loaded with.
pub(crate) fn refuse(a: &Args) -> R<Vec<Tensor>> {
    Err(a.text("why", "this branch cannot be taken")?.into())
}
