//! Einsum.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, monoids};
use graph::ValueId;
use layout::{Arrange, Dim};

pub(crate) const OPS: &[OpDef] = &[op("Einsum", lower)];

/// Labels of one term against a tensor of `rank`; an ellipsis stands for labels from 100 on,
/// right-aligned.
fn labels(term: &str, rank: usize, wide: &mut usize) -> Lowered<Vec<u8>> {
    let letters = term.bytes().filter(|b| b.is_ascii_alphabetic()).count();
    let dots = term.contains("...");
    let extra = rank.checked_sub(letters).filter(|&e| dots || e == 0);
    let extra = extra.ok_or_else(|| format!("term '{term}' does not fit a tensor of rank {rank}"))?;
    if extra > 64 {
        return Err("has too many dimensions".into());
    }
    *wide = (*wide).max(extra);
    let mut out = Vec::new();
    let mut rest = term;
    while let Some(ch) = rest.chars().next() {
        if let Some(r) = rest.strip_prefix("...") {
            out.extend((0..extra).rev().map(|i| 190 - i as u8));
            rest = r;
            continue;
        }
        if !ch.is_ascii_alphabetic() {
            return Err(format!("term '{term}' holds '{ch}'; only letters and ... are allowed").into());
        }
        out.push(ch as u8);
        rest = &rest[1..];
    }
    Ok(out)
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let xs = n.all_inputs()?;
    let equation: String = n.text("equation", "")?.chars().filter(|ch| !ch.is_whitespace()).collect();
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != xs.len() {
        return Err(format!("'{equation}' has {} terms for {} inputs", terms.len(), xs.len()).into());
    }
    let mut wide = 0;
    let mut ins = Vec::new();
    for (t, &x) in terms.iter().zip(&xs) {
        ins.push(labels(t, c.rank(x), &mut wide)?);
    }
    let ellipsis: Vec<u8> = (0..wide).rev().map(|i| 190 - i as u8).collect();
    let out: Vec<u8> = match right {
        Some(r) => {
            let letters = r.bytes().filter(|b| b.is_ascii_alphabetic()).count();
            let rank = letters + if r.contains("...") { wide } else { 0 };
            labels(r, rank, &mut wide.clone())?
        }
        None => {
            let mut once: Vec<u8> = ins.iter().flatten().copied().filter(|l| l.is_ascii_alphabetic()).collect();
            once.arrange();
            let all = once.clone();
            once.retain(|l| all.iter().filter(|x| *x == l).count() == 1);
            ellipsis.into_iter().chain(once).collect()
        }
    };
    let repeated = |l: &[u8]| l.iter().enumerate().any(|(i, x)| l[..i].contains(x));
    let mut xs = xs;
    for (x, l) in xs.iter_mut().zip(&mut ins) {
        while repeated(l) {
            (*x, *l) = diagonal(c, n, *x, l)?;
        }
    }
    if repeated(&out) || out.iter().any(|l| !ins.iter().any(|i| i.contains(l))) {
        return Err(format!("'{equation}' has a wrong output term").into());
    }
    let y = match (xs.as_slice(), ins.as_slice()) {
        ([x], [l]) => one(c, n, n.name(0), *x, l, &out)?,
        _ => {
            // Left to right, keeping what later terms or the output need.
            let (mut x, mut l) = (xs[0], ins[0].clone());
            for i in 1..xs.len() {
                let last = i + 1 == xs.len();
                let next = if last { out.clone() } else {
                    let mut k: Vec<u8> = Vec::new();
                    for &s in l.iter().chain(&ins[i]) {
                        if !k.contains(&s) && (out.contains(&s) || ins[i + 1..].iter().any(|t| t.contains(&s))) {
                            k.push(s);
                        }
                    }
                    k
                };
                let name = if last { n.name(0) } else { n.tmp(&format!("part{i}")) };
                x = two(c, n, name, (x, &l), (xs[i], &ins[i]), &next)?;
                l = next;
            }
            x
        }
    };
    c.set(n, 0, y);
    Ok(())
}

/// The product of two terms, in their own type: small integers wrap. A dimension of extent 1 that
/// faces another extent is dropped, so that its label is the other's alone.
fn two<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, a: (ValueId, &[u8]), b: (ValueId, &[u8]), out: &[u8]) -> Lowered<ValueId> {
    let sides = [a, b].map(|(x, l)| (c.shape(x), l));
    let facing = |side: usize, label: u8| {
        let (s, l) = &sides[1 - side];
        l.iter().position(|x| *x == label).map(|i| &s[i])
    };
    let mut kept = Vec::new();
    for (i, (x, l)) in [a, b].into_iter().enumerate() {
        let wide = |d: usize| !sides[i].0[d].is_one() || facing(i, l[d]).is_none_or(Dim::is_one);
        let dims: Vec<usize> = (0..l.len()).filter(|&d| wide(d)).collect();
        let shape = dims.iter().map(|&d| sides[i].0[d].clone()).collect();
        let labels: Vec<u8> = dims.iter().map(|&d| l[d]).collect();
        kept.push((c.reshaped(n, format!("{name}.{i}"), x, shape)?, labels));
    }
    let (d, [(x, lx), (y, ly)]) = (c.dtype(a.0), [&kept[0], &kept[1]]);
    let product = graph::product_type(d, c.dtype(b.0))?;
    let exact = if product == d { name.clone() } else { format!("{name}.wide") };
    let z = c.contract(n, exact, (*x, lx), (*y, ly), out)?;
    c.cast(n, name, z, d)
}

/// A label that a term has twice: what lies off the diagonal is made zero and summed away.
fn diagonal<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, l: &[u8]) -> Lowered<(ValueId, Vec<u8>)> {
    let d = c.dtype(x);
    let pair = (0..l.len()).find_map(|j| l[..j].iter().position(|s| *s == l[j]).map(|i| (i, j)));
    let (i, j) = pair.ok_or("has no label twice")?;
    let s = c.shape(x);
    c.assume(n, &s[i], &s[j]);
    let name = n.tmp(&format!("diagonal{}", l.len()));
    let kept = c.map(n, format!("{name}.kept"), &[x], |e, a| {
        let (p, q) = (e.index(i as u32), e.index(j as u32));
        let on = e.compare(expr::Compare::Eq, p, q);
        let zero = e.constant(0.0, d);
        e.select(on, a[0], zero)
    })?;
    let y = c.reduce(n, name, kept, monoids::sum(d), &[j], false)?;
    let mut rest = l.to_vec();
    rest.remove(j);
    Ok((y, rest))
}

fn one<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, mut x: ValueId, l: &[u8], out: &[u8]) -> Lowered<ValueId> {
    let axes: Vec<usize> = (0..l.len()).filter(|&i| !out.contains(&l[i])).collect();
    let left: Vec<u8> = l.iter().copied().filter(|s| out.contains(s)).collect();
    if !axes.is_empty() {
        let d = c.dtype(x);
        x = c.reduce(n, n.tmp("sum"), x, monoids::sum(d), &axes, false)?;
    }
    let perm = out.iter().filter_map(|s| left.iter().position(|t| t == s)).collect();
    c.permute(n, name, x, perm)
}
