//! Cheap proofs that two steps write different bytes of one buffer (pieces of a concatenation).
use kernel::{Access, Kernel, Role};
use layout::{Dim, DimBox};
use plan::{BufferId, Step, StepWork};

/// True when the two steps certainly write different elements of buffer `b`.
pub(crate) fn writes(x: &Step, y: &Step, b: BufferId, dims: &DimBox) -> bool {
    let (Some(px), Some(py)) = (written(x, b), written(y, b)) else {
        return false;
    };
    px.iter().all(|a| py.iter().all(|c| apart(a, c, dims)))
}

fn written(s: &Step, b: BufferId) -> Option<Vec<(&Access, &Kernel)>> {
    let StepWork::Kernel { kernel, args, .. } = &s.work else {
        return None;
    };
    Some(
        kernel
            .operands
            .iter()
            .zip(args)
            .filter(|(o, x)| o.role == Role::Write && **x == b)
            .map(|(o, _)| (&o.access, &**kernel))
            .collect(),
    )
}

/// The residues modulo `period` that an access touches, as a range, when every term either moves by
/// whole periods or stays inside one.
fn residues(a: &Access, k: &Kernel, period: &Dim) -> Option<(Dim, Dim)> {
    if !a.indexed.is_empty() {
        return None;
    }
    let mut width = Dim::ONE;
    for t in &a.terms {
        let [leaf] = t.leaves.as_slice() else {
            return None;
        };
        if period.is_zero() || leaf.stride.exact_div(period).is_none() {
            if !leaf.stride.provably_nonneg() {
                return None;
            }
            width =
                width + (k.axes[t.axis as usize].extent.clone() - Dim::ONE) * leaf.stride.clone();
        }
    }
    Some((a.offset.clone(), a.offset.clone() + width))
}

/// True when the accesses are proved to touch different elements: for some stride that both have,
/// they stay in different parts of each period.
fn apart((a, ka): &(&Access, &Kernel), (c, kc): &(&Access, &Kernel), dims: &DimBox) -> bool {
    let mut periods: Vec<Dim> = vec![Dim::ZERO];
    let strides = |x: &Access| {
        x.terms
            .iter()
            .flat_map(|t| t.leaves.iter().map(|l| l.stride.clone()))
            .collect::<Vec<_>>()
    };
    let other = strides(c);
    periods.extend(strides(a).into_iter().filter(|s| other.contains(s)));
    let le = |x: &Dim, y: &Dim| {
        x.provably_le(y)
            || dims
                .bounds(&(y.clone() - x.clone()))
                .is_some_and(|r| r.lo >= 0)
    };
    periods.iter().any(|p| {
        let (Some((la, ha)), Some((lc, hc))) = (residues(a, ka, p), residues(c, kc, p)) else {
            return false;
        };
        let inside = |lo: &Dim, hi: &Dim| p.is_zero() || (le(&Dim::ZERO, lo) && le(hi, p));
        inside(&la, &ha) && inside(&lc, &hc) && (le(&ha, &lc) || le(&hc, &la))
    })
}
