//! Sums of products: contraction and attention.
use super::{ReliedEqualities, Type, list, product_type, program_types};
use crate::{AttentionSpec, ContractSpec, Value};
use layout::{DType, Dim};
use std::collections::BTreeMap;

pub(super) fn contract(
    s: &ContractSpec,
    v: &[&Value],
    relied: &mut ReliedEqualities,
) -> Result<Type, String> {
    let mut extents: BTreeMap<u8, Dim> = BTreeMap::new();
    for (labels, x) in [(&s.a, v[0]), (&s.b, v[1])] {
        if labels.len() != x.shape.len() {
            return Err(format!(
                "{} labels do not fit '{}' {}",
                labels.len(),
                x.name,
                list(&x.shape)
            ));
        }
        distinct(labels)?;
        for (l, d) in labels.iter().zip(&x.shape) {
            let e = match extents.get(l) {
                Some(o) => relied.unify(o, d)?,
                None => d.clone(),
            };
            extents.insert(*l, e);
        }
    }
    distinct(&s.out)?;
    let mut shape = Vec::new();
    for l in &s.out {
        shape.push(
            extents
                .get(l)
                .cloned()
                .ok_or_else(|| format!("output label {l} is in no input"))?,
        );
    }
    Ok((product_type(v[0].dtype, v[1].dtype)?, shape))
}

fn distinct(labels: &[u8]) -> Result<(), String> {
    let mut seen = [false; 256];
    for &l in labels {
        if std::mem::replace(&mut seen[l as usize], true) {
            return Err(format!(
                "label {l} occurs twice in one tensor; take the diagonal first"
            ));
        }
    }
    Ok(())
}

pub(super) fn attention(
    s: &AttentionSpec,
    v: &[&Value],
    relied: &mut ReliedEqualities,
) -> Result<Type, String> {
    let [q, k, t, extras @ ..] = v else {
        return Err(format!("it takes q, k and v, but has {} inputs", v.len()));
    };
    let rank = q.shape.len();
    if rank < 2 || k.shape.len() != rank || t.shape.len() != rank {
        return Err("q, k and v are not [batch.., rows, columns] alike".into());
    }
    let mut scores = Vec::new();
    for d in 0..rank - 2 {
        let both = relied.unify(&q.shape[d], &k.shape[d])?;
        scores.push(relied.unify(&both, &t.shape[d])?);
    }
    if !relied.same(&q.shape[rank - 1], &k.shape[rank - 1]) {
        return Err("q and k have different widths".into());
    }
    scores.push(q.shape[rank - 2].clone());
    scores.push(relied.unify(&k.shape[rank - 2], &t.shape[rank - 2])?);
    for x in extras {
        if !relied.broadcasts_to(&x.shape, &scores) {
            return Err(format!(
                "'{}' {} does not broadcast to {}",
                x.name,
                list(&x.shape),
                list(&scores)
            ));
        }
    }
    let product = product_type(q.dtype, k.dtype)?;
    let slots: Vec<DType> = std::iter::once(product)
        .chain(extras.iter().map(|x| x.dtype))
        .collect();
    let types = program_types(&s.score, &slots, rank)?;
    if types.len() != 1 || !types[0].is_float() {
        return Err("the score program must have one float result".into());
    }
    let mut shape = scores;
    shape[rank - 1] = t.shape[rank - 1].clone();
    Ok((t.dtype, shape))
}
