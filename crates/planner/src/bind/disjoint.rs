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

/// An access as its least address and its (extent, stride) pairs, none of them backwards; `None`
/// where a term has leaves or gathers, or a stride has no sign.
fn upright(a: &Access, k: &Kernel, dims: &DimBox) -> Option<(Dim, Vec<(Dim, Dim)>)> {
    if !a.indexed.is_empty() {
        return None;
    }
    // A size that the box settles is a number, which is quick to reckon with.
    let at = |d: &Dim| match dims.bounds(d) {
        Some(r) if r.lo == r.hi => Dim::Known(r.lo),
        _ => d.clone(),
    };
    let (mut offset, mut pairs) = (at(&a.offset), Vec::new());
    for t in &a.terms {
        let stride = at(t.stride()?);
        let extent = at(&k.axes[t.axis as usize].extent);
        if stride.provably_nonneg() {
            pairs.push((extent, stride));
            continue;
        }
        let back = Dim::Known(-1) * stride.clone();
        if !back.provably_nonneg() {
            return None;
        }
        offset = offset + (extent.clone() - Dim::ONE) * stride;
        pairs.push((extent, back));
    }
    Some((offset, pairs))
}

/// The residues modulo `period` that an access touches, as a range, when every term either moves by
/// whole periods or stays inside one.
fn residues((offset, pairs): &(Dim, Vec<(Dim, Dim)>), period: &Dim) -> (Dim, Dim) {
    let mut width = Dim::ONE;
    for (extent, stride) in pairs {
        if period.is_zero() || stride.exact_div(period).is_none() {
            width = width + (extent.clone() - Dim::ONE) * stride.clone();
        }
    }
    (offset.clone(), offset.clone() + width)
}

/// True when the accesses are proved to touch different elements: for some stride that both have,
/// they stay in different parts of each period.
fn apart((a, ka): &(&Access, &Kernel), (c, kc): &(&Access, &Kernel), dims: &DimBox) -> bool {
    let (Some(a), Some(c)) = (upright(a, ka, dims), upright(c, kc, dims)) else {
        return false;
    };
    let mut periods: Vec<Dim> = vec![Dim::ZERO];
    let shared = |s: &&Dim| c.1.iter().any(|x| x.1 == **s);
    periods.extend(a.1.iter().map(|x| &x.1).filter(shared).cloned());
    let le = |x: &Dim, y: &Dim| {
        x.provably_le(y)
            || dims
                .bounds(&(y.clone() - x.clone()))
                .is_some_and(|r| r.lo >= 0)
    };
    periods.iter().any(|p| {
        let ((la, ha), (lc, hc)) = (residues(&a, p), residues(&c, p));
        let inside = |lo: &Dim, hi: &Dim| p.is_zero() || (le(&Dim::ZERO, lo) && le(hi, p));
        inside(&la, &ha) && inside(&lc, &hc) && (le(&ha, &lc) || le(&hc, &la))
    })
}
