//! Cheap proofs that two steps write different bytes of one buffer (pieces of a concatenation).
use super::waits::DisjointWrites;
use kernel::{Access, Kernel, Role};
use layout::{Arrange, Dim, DimBox};
use plan::{BufferId, Pieces, Reach, Step, StepSet, StepWork};

/// What steps certainly write, in a box of dims.
pub(crate) struct Writes<'a> {
    pub steps: &'a [Step],
    pub dims: &'a DimBox,
}

impl Writes<'_> {
    fn le(&self, x: &Dim, y: &Dim) -> bool {
        x.provably_le(y)
            || self
                .dims
                .bounds(&(y.clone() - x.clone()))
                .is_some_and(|r| r.lo >= 0)
    }

    /// Where the only access of step `i` to what it writes of `b` lies, for every period that keeps it in one part.
    fn reaches(&self, i: usize, b: BufferId) -> Option<Vec<Reach>> {
        let all = written(&self.steps[i], b)?;
        let &[(access, kernel)] = all.as_slice() else {
            return None;
        };
        let a = upright(access, kernel, self.dims)?;
        let mut periods: Vec<&Dim> = a.1.iter().map(|p| &p.1).chain([&Dim::ZERO]).collect();
        periods.arrange();
        periods.dedup();
        let each = periods.into_iter().filter_map(|period| {
            let (lo, hi) = residues(&a, period);
            let fits = self.le(&lo, &hi)
                && self.le(&Dim::ZERO, &lo)
                && (period.is_zero() || self.le(&hi, period));
            let period = period.clone();
            fits.then_some(Reach { period, lo, hi })
        });
        Some(each.collect())
    }
}

impl DisjointWrites for Writes<'_> {
    fn pair(&self, j: usize, i: usize, b: BufferId) -> bool {
        let (Some(x), Some(y)) = (written(&self.steps[j], b), written(&self.steps[i], b)) else {
            return false;
        };
        x.iter().all(|a| y.iter().all(|c| self.apart(a, c)))
    }

    fn piece(&self, pieces: &mut Pieces, i: usize, b: BufferId) -> StepSet {
        let reaches = self.reaches(i, b).unwrap_or_default();
        let top = |d: &Dim| self.dims.at_top(d);
        pieces.add(i, reaches, &top, &|x, y| self.le(x, y))
    }
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

impl Writes<'_> {
    /// True when the accesses are proved to touch different elements: for some stride that both have,
    /// they stay in different parts of each period.
    fn apart(&self, (a, ka): &(&Access, &Kernel), (c, kc): &(&Access, &Kernel)) -> bool {
        let (Some(a), Some(c)) = (upright(a, ka, self.dims), upright(c, kc, self.dims)) else {
            return false;
        };
        let mut periods: Vec<Dim> = vec![Dim::ZERO];
        let shared = |s: &&Dim| c.1.iter().any(|x| x.1 == **s);
        periods.extend(a.1.iter().map(|x| &x.1).filter(shared).cloned());
        periods.iter().any(|p| {
            let ((la, ha), (lc, hc)) = (residues(&a, p), residues(&c, p));
            let inside =
                |lo: &Dim, hi: &Dim| p.is_zero() || (self.le(&Dim::ZERO, lo) && self.le(hi, p));
            inside(&la, &ha) && inside(&lc, &hc) && (self.le(&ha, &lc) || self.le(&hc, &la))
        })
    }
}
