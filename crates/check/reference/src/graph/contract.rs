//! Contractions (einsum of two factors) in wide arithmetic.
use super::matmul::{Wide, matmul};
use super::scalars::{f64s, from_f64s, from_i64s, i64s, next, strides};
use crate::error::R;
use graph::ContractSpec;
use layout::DType;
use std::collections::BTreeMap;
use tensor::Tensor;

/// One factor: labels, extents and dense row-major elements.
pub(crate) struct Factor<'a, L, T> {
    /// One label per dimension.
    pub labels: &'a [L],
    /// One extent per dimension.
    pub shape: &'a [usize],
    /// Elements.
    pub values: &'a [T],
}

/// Extent of every label.
fn extents<L: Copy + Ord, T>(factors: [&Factor<L, T>; 2]) -> R<BTreeMap<L, usize>> {
    let mut e = BTreeMap::new();
    for f in factors {
        if f.labels.len() != f.shape.len() {
            return Err(format!("{} labels do not fit shape {:?}", f.labels.len(), f.shape).into());
        }
        for (l, n) in f.labels.iter().zip(f.shape) {
            if *e.entry(*l).or_insert(*n) != *n {
                return Err(format!("one label has extents {} and {n}", e[l]).into());
            }
        }
    }
    Ok(e)
}

/// Elements of a factor in the order of the labels `order`; labels that are missing there are
/// summed.
fn arranged<L: Copy + Ord, T: Wide>(
    f: &Factor<L, T>,
    order: &[L],
    e: &BTreeMap<L, usize>,
) -> Vec<T> {
    if f.labels == order {
        return f.values.to_vec();
    }
    let own = strides(f.shape);
    // A label that occurs twice walks the diagonal.
    let by = |l: &L| -> usize {
        let same = f.labels.iter().zip(&own).filter(|(x, _)| *x == l);
        same.map(|(_, s)| s).sum()
    };
    let mut summed: Vec<L> = f
        .labels
        .iter()
        .filter(|l| !order.contains(l))
        .copied()
        .collect();
    summed.sort_unstable();
    summed.dedup();
    let outer: Vec<usize> = order.iter().map(|l| e[l]).collect();
    let inner: Vec<usize> = summed.iter().map(|l| e[l]).collect();
    let outer_by: Vec<usize> = order.iter().map(by).collect();
    let inner_by: Vec<usize> = summed.iter().map(by).collect();
    let address =
        |at: &[usize], by: &[usize]| -> usize { at.iter().zip(by).map(|(c, s)| c * s).sum() };
    let n: usize = outer.iter().product();
    let mut out = Vec::with_capacity(n);
    if n == 0 {
        return out;
    }
    let mut at = vec![0; outer.len()];
    loop {
        let base = address(&at, &outer_by);
        let mut sum = T::ZERO;
        if !inner.contains(&0) {
            let mut q = vec![0; inner.len()];
            loop {
                sum = sum.plus(f.values[base + address(&q, &inner_by)]);
                if !next(&mut q, &inner) {
                    break;
                }
            }
        }
        out.push(sum);
        if !next(&mut at, &outer) {
            return out;
        }
    }
}

/// Sum of products over the labels that are missing from `out`, in the order of `out`.
pub(crate) fn einsum<L: Copy + Ord, T: Wide>(
    a: &Factor<L, T>,
    b: &Factor<L, T>,
    out: &[L],
) -> R<Vec<T>> {
    let e = extents([a, b])?;
    if out.iter().any(|l| !e.contains_key(l)) {
        return Err("a label of the output is in neither input".into());
    }
    let pick = |in_a: bool, in_b: bool, in_out: bool| -> Vec<L> {
        let has = |v: &[L], l: &L, want: bool| v.contains(l) == want;
        e.keys()
            .filter(|l| has(a.labels, l, in_a) && has(b.labels, l, in_b) && has(out, l, in_out))
            .copied()
            .collect()
    };
    let (batch, m) = (pick(true, true, true), pick(true, false, true));
    let (n, k) = (pick(false, true, true), pick(true, true, false));
    let size = |l: &[L]| -> usize { l.iter().map(|l| e[l]).product() };
    let av = arranged(a, &[&batch[..], &m, &k].concat(), &e);
    let bv = arranged(b, &[&batch[..], &k, &n].concat(), &e);
    let (ms, ns, ks) = (size(&m), size(&n), size(&k));
    let mut c = vec![T::ZERO; size(&batch) * ms * ns];
    for i in 0..size(&batch) {
        matmul(
            &av[i * ms * ks..(i + 1) * ms * ks],
            &bv[i * ks * ns..(i + 1) * ks * ns],
            &mut c[i * ms * ns..(i + 1) * ms * ns],
            ms,
            ks,
            ns,
        );
    }
    let have = [&batch[..], &m, &n].concat();
    let shape: Vec<usize> = have.iter().map(|l| e[l]).collect();
    let product = Factor {
        labels: &have,
        shape: &shape,
        values: &c,
    };
    Ok(arranged(&product, out, &e))
}

/// Sum of products; floats are summed in f64, integers wrap at 64 bits and then at `d`.
pub(crate) fn run(s: &ContractSpec, a: &Tensor, b: &Tensor, d: DType) -> R<Tensor> {
    fn go<T: Wide>(
        s: &ContractSpec,
        a: &Tensor,
        b: &Tensor,
        av: &[T],
        bv: &[T],
    ) -> R<(Vec<usize>, Vec<T>)> {
        let fa = Factor {
            labels: &s.a,
            shape: a.shape(),
            values: av,
        };
        let fb = Factor {
            labels: &s.b,
            shape: b.shape(),
            values: bv,
        };
        let e = extents([&fa, &fb])?;
        let c = einsum(&fa, &fb, &s.out)?;
        Ok((s.out.iter().map(|l| e[l]).collect(), c))
    }
    if d.is_float() {
        let (shape, c) = go(s, a, b, &f64s(a), &f64s(b))?;
        from_f64s(d, &shape, &c)
    } else {
        let (shape, c) = go(s, a, b, &i64s(a), &i64s(b))?;
        from_i64s(d, &shape, &c)
    }
}
