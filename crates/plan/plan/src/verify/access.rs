//! Proofs about addresses over a box of dims.
//!
//! Addresses are sums of independent parts (extent, stride), so their ends are sums of the parts'
//! ends. Ends are kept as dimension expressions and compared by the interval of the difference, so
//! that what both sides share cancels. Points of the box where an extent is 0 or less have no
//! accesses; the formulas give some number there, which can only make a proof fail.
//!
//! Where intervals do not decide and the box has few points, every point is looked at by itself.
use super::equal::Equal;
use crate::Reach;
use kernel::{Access, AxisId, Bound, Kernel, Operand};
use layout::{Arrange, Atom, Dim, DimBox, Sym};
use std::collections::BTreeSet;

/// Something about shapes and dimensions that a prover tries to show.
type Claim<'f> = dyn Fn(&mut Prover, &[Shape], &[Dim]) -> bool + 'f;

/// Points that one proof may look at.
const MAX_POINTS: i64 = 4096;
/// Points that one plan may look at.
pub(crate) const BUDGET: i64 = 1 << 20;
/// Steps of one proof that take parts of a sum for something simpler.
const RELAXATIONS: usize = 24;
/// Above this no sum of products is looked at: it could leave 64 bits.
pub(super) const MAX_NORM: i128 = 1 << 61;

/// What is asked of one point: shapes and dimensions with numbers.
type PointCheck<'a> = &'a dyn Fn(&mut Prover, &[Shape], &[i64]) -> bool;

/// A part of an address: `stride * (0..extent)`.
#[derive(Clone, Debug)]
struct Part {
    extent: Dim,
    stride: Dim,
}

/// An operand's addresses: extents of all axes, and the access.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    extents: Vec<Dim>,
    access: Access,
}

/// Compares dimension expressions over a box.
pub(crate) struct Prover<'a> {
    pub dims: &'a DimBox,
    /// What every request makes equal.
    pub equal: Option<&'a Equal>,
    /// Points left.
    pub budget: &'a mut i64,
}

impl Shape {
    pub fn new(k: &Kernel, o: &Operand) -> Shape {
        Shape {
            extents: k.axes.iter().map(|a| a.extent.clone()).collect(),
            access: o.access.clone(),
        }
    }

    /// `elements` dense elements from 0 on.
    pub fn dense(elements: Dim) -> Shape {
        let term = kernel::Term::flat(0, elements.clone(), Dim::ONE);
        Shape {
            extents: vec![elements],
            access: Access::strided(Dim::ZERO, vec![term]),
        }
    }

    /// Axes that the address depends on.
    pub fn axes(&self) -> impl Iterator<Item = AxisId> {
        self.access.terms.iter().map(|t| t.axis)
    }

    /// The same for one position along `axis`.
    pub fn without(&self, axis: AxisId) -> Shape {
        let mut one = self.clone();
        one.access.terms.retain(|t| t.axis != axis);
        one
    }

    /// The same with numbers where the box has a single value for every symbol and something is
    /// accessed: what is to be shown of it is then a sum, not a proof.
    pub fn settled(self, dims: &DimBox) -> Shape {
        match self.at(&|s| single(dims, s)) {
            Some(Ok(s)) => s,
            _ => self,
        }
    }

    fn symbols(&self, out: &mut BTreeSet<Sym>) {
        self.extents.iter().for_each(|e| e.symbols(out));
        self.access.for_each_dim(&mut |d| d.symbols(out));
    }

    /// The same with numbers; `None` when a dimension has no value or nothing is accessed.
    fn at(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<Result<Shape, Empty>> {
        let n = |d: &Dim| d.eval(lookup).map(Dim::Known);
        let extents: Vec<Dim> = self.extents.iter().map(n).collect::<Option<_>>()?;
        let none = |e: Option<i64>| e.is_some_and(|e| e <= 0);
        let (terms, bounds) = (&self.access.terms, &self.access.bounds);
        let empty = terms.iter().any(|t| none(extents[t.axis as usize].known()))
            || bounds.iter().any(|b| none(b.extent.eval(lookup)));
        if empty {
            return Some(Err(Empty));
        }
        self.replaced(&n).map(Ok)
    }

    /// The same with every dimension replaced by what `n` gives for it.
    fn replaced(&self, n: &dyn Fn(&Dim) -> Option<Dim>) -> Option<Shape> {
        let extents: Vec<Dim> = self.extents.iter().map(n).collect::<Option<_>>()?;
        let mut access = self.access.clone();
        let a = &self.access;
        access.offset = n(&a.offset)?;
        for l in access.terms.iter_mut().flat_map(|t| &mut t.leaves) {
            l.extent = n(&l.extent)?;
            l.stride = n(&l.stride)?;
        }
        for b in &mut access.bounds {
            for t in &mut b.terms {
                t.1 = n(&t.1)?;
            }
            b.base = n(&b.base)?;
            b.extent = n(&b.extent)?;
        }
        for i in &mut access.indexed {
            i.stride = n(&i.stride)?;
            i.extent = n(&i.extent)?;
        }
        Some(Shape { extents, access })
    }

    /// Parts of the address that bounds in `clipped` say nothing about.
    fn parts(&self, skip: &BTreeSet<u16>) -> Vec<Part> {
        let mut out = Vec::new();
        for t in self.access.terms.iter().filter(|t| !skip.contains(&t.axis)) {
            match t.leaves.as_slice() {
                // A plain stride goes on as far as its axis.
                [l] => out.push(Part {
                    extent: self.extents[t.axis as usize].clone(),
                    stride: l.stride.clone(),
                }),
                many => out.extend(many.iter().map(|l| Part {
                    extent: l.extent.clone(),
                    stride: l.stride.clone(),
                })),
            }
        }
        out.extend(self.access.indexed.iter().map(|i| Part {
            extent: i.extent.clone(),
            stride: i.stride.clone(),
        }));
        out
    }

    /// The factor `k` with which a bounded sum enters the address: every term's stride is `k` times
    /// its coefficient.
    fn factor(&self, b: &Bound) -> Option<Dim> {
        let mut k: Option<Dim> = None;
        for (axis, c) in &b.terms {
            let stride = match self.access.term(*axis) {
                Some(t) => t.stride()?.clone(),
                None => Dim::ZERO,
            };
            c.known().filter(|c| *c != 0)?;
            let q = stride.exact_div(c)?;
            if k.as_ref().is_some_and(|k| *k != q) {
                return None;
            }
            k = Some(q);
        }
        k
    }
}

/// The value of a symbol that has only one in the box.
pub(super) fn single(dims: &DimBox, s: &str) -> Option<i64> {
    dims.get(s).filter(|r| r.lo == r.hi).map(|r| r.lo)
}

/// Nothing is accessed at a point.
pub(crate) struct Empty;

/// The number of elements of a dense tensor; `None` when it could leave 64 bits.
pub(crate) fn product(shape: &[Dim], dims: &DimBox) -> Option<Dim> {
    let size = shape
        .iter()
        .fold(1i128, |p, d| p.saturating_mul(norm(d, dims).max(1)));
    (size < MAX_NORM).then(|| Dim::product(shape))
}

/// How deeply floors, minima and maxima are nested.
fn depth(a: &Atom) -> usize {
    let of = |d: &Dim| d.terms().flat_map(|t| t.1).map(depth).max().unwrap_or(0);
    match a {
        Atom::Sym(_) => 0,
        Atom::FloorDiv(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => 1 + of(x).max(of(y)),
    }
}

fn of_atom(a: &Atom) -> Dim {
    match a {
        Atom::Sym(s) => Dim::sym(s),
        Atom::FloorDiv(x, y) => x.floor_div(y),
        Atom::Min(x, y) => x.min_with(y),
        Atom::Max(x, y) => x.max_with(y),
    }
}

/// At least the sum of the magnitudes of a dimension's coefficients, and of its value, in the box.
pub(super) fn norm(d: &Dim, dims: &DimBox) -> i128 {
    if let Dim::Known(n) = d {
        return i128::from(*n).abs();
    }
    let mut sum = 0i128;
    for (c, atoms) in d.terms() {
        let mut p = i128::from(c).abs();
        for a in atoms {
            let n = match a {
                Atom::Sym(s) => i128::from(dims.get(s).map_or(i64::MAX, |r| r.hi)),
                Atom::FloorDiv(x, _) => norm(x, dims),
                Atom::Min(x, y) | Atom::Max(x, y) => norm(x, dims).max(norm(y, dims)),
            };
            p = p.saturating_mul(n.max(1));
        }
        sum = sum.saturating_add(p);
    }
    sum
}

impl Prover<'_> {
    /// True when `d` is proved to be at least 0 in the whole box.
    pub fn nonneg(&self, d: &Dim) -> bool {
        self.nonneg_here(d)
            || self.equal.is_some_and(|e| {
                let p = Prover {
                    dims: &e.dims,
                    equal: None,
                    budget: &mut 0,
                };
                e.canon(d).is_some_and(|c| c != *d && p.nonneg_here(&c))
            })
    }

    /// As [`Prover::nonneg`], by looking at every point of the box where that alone tells: the last part of a split.
    pub fn never_negative(&mut self, d: &Dim) -> bool {
        self.nonneg(d) || self.each_point(&[], &[d], &|_, _, at| at[0] >= 0)
    }

    fn nonneg_here(&self, d: &Dim) -> bool {
        match d {
            Dim::Known(n) => *n >= 0,
            d => match self.dims.bounds(d) {
                Some(r) if r.lo >= 0 => true,
                // Long sums of sizes are compared both ways round: the wrong way is not worth a
                // search.
                Some(r) if r.hi < 0 => false,
                Some(r) if r.hi == 0 => d.provably_nonneg(),
                _ => d.provably_nonneg() || self.relaxed(d, &mut RELAXATIONS.clone()),
            },
        }
    }

    /// True when something that is nowhere above a positive multiple of `d` is at least 0: a floor
    /// of a quotient taken for the quotient or for the number just above the next lower one, a
    /// minimum or maximum for one of its sides.
    fn relaxed(&self, d: &Dim, fuel: &mut usize) -> bool {
        if *fuel == 0 || norm(d, self.dims) > MAX_NORM {
            return false;
        }
        *fuel -= 1;
        let terms: Vec<(i64, &[Atom])> = d.terms().collect();
        // Deepest first: what stands inside it may cancel once it is gone.
        let mut found: Vec<(usize, &Atom)> = Vec::new();
        for &(c, atoms) in &terms {
            for a in atoms {
                let fits = match a {
                    Atom::FloorDiv(_, y) => y.known().is_some_and(|k| (1..1 << 20).contains(&k)),
                    Atom::Min(..) => c < 0,
                    Atom::Max(..) => c > 0,
                    Atom::Sym(_) => false,
                };
                if fits && !found.iter().any(|f| f.1 == a) {
                    found.push((depth(a), a));
                }
            }
        }
        found.arrange_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        found
            .into_iter()
            .any(|(_, a)| self.without(&terms, a, fuel))
    }

    /// [`Prover::relaxed`] for one choice of what is taken for something simpler.
    fn without(&self, terms: &[(i64, &[Atom])], atom: &Atom, fuel: &mut usize) -> bool {
        // The sum with `atom` replaced in every term by what `of` makes of it for that sign, all
        // else times `scale`; `None` when a cofactor can be negative.
        let replaced = |scale: i64, of: &dyn Fn(bool) -> Option<Dim>| {
            let mut sum = Dim::ZERO;
            for &(c, atoms) in terms {
                let mut rest = Dim::ONE;
                let mut times = 0;
                for a in atoms {
                    if a == atom {
                        times += 1;
                    } else {
                        rest = rest * of_atom(a);
                    }
                }
                let factor = match times {
                    0 => Dim::Known(scale),
                    1 if self.dims.bounds(&rest)?.lo >= 0 => of(c > 0)?,
                    _ => return None,
                };
                sum = sum + Dim::Known(c) * rest * factor;
            }
            Some(sum)
        };
        let ways: Vec<Option<Dim>> = match atom {
            Atom::FloorDiv(x, y) => {
                let k = y.known().unwrap_or(1);
                let low = (**x).clone() - Dim::Known(k - 1);
                vec![replaced(k, &|up| {
                    Some(if up { low.clone() } else { (**x).clone() })
                })]
            }
            Atom::Min(x, y) => [x, y]
                .map(|z| replaced(1, &|up| (!up).then(|| (**z).clone())))
                .into(),
            Atom::Max(x, y) => [x, y]
                .map(|z| replaced(1, &|up| up.then(|| (**z).clone())))
                .into(),
            Atom::Sym(_) => vec![],
        };
        ways.into_iter().flatten().any(|d| {
            norm(&d, self.dims) < MAX_NORM
                && (self.dims.bounds(&d).is_some_and(|r| r.lo >= 0) || self.relaxed(&d, fuel))
        })
    }

    pub fn le(&self, a: &Dim, b: &Dim) -> bool {
        match (a, b) {
            (Dim::Known(a), Dim::Known(b)) => a <= b,
            _ => self.nonneg(&(b.clone() - a.clone())),
        }
    }

    /// Whether sums over the address stay far inside 64 bits.
    pub fn tame(&self, s: &Shape) -> bool {
        let n = |d: &Dim| norm(d, self.dims).saturating_add(1);
        let a = &s.access;
        let mut strides = 1i128;
        let mut sum = n(&a.offset);
        for t in &a.terms {
            for l in &t.leaves {
                strides = strides.saturating_add(n(&l.stride));
                let reach = n(&l.extent).max(n(&s.extents[t.axis as usize]));
                sum = sum.saturating_add(n(&l.stride).saturating_mul(reach));
            }
        }
        for i in &a.indexed {
            sum = sum.saturating_add(n(&i.stride).saturating_mul(n(&i.extent)));
        }
        for b in &a.bounds {
            sum =
                sum.saturating_add(strides.saturating_mul(n(&b.base).saturating_add(n(&b.extent))));
            for (axis, c) in &b.terms {
                sum = sum.saturating_add(n(c).saturating_mul(n(&s.extents[*axis as usize])));
            }
        }
        sum < MAX_NORM
    }

    /// Adds a part's ends to a range; false when the stride's sign is not known.
    fn widen(&self, lo: &mut Dim, hi: &mut Dim, p: &Part) -> bool {
        let reach = p.stride.clone() * (p.extent.clone() - Dim::ONE);
        if self.nonneg(&p.stride) {
            *hi = hi.clone() + reach;
        } else if self.nonneg(&-p.stride.clone()) {
            *lo = lo.clone() + reach;
        } else {
            return false;
        }
        true
    }

    /// The address of a shape as an offset and parts, bounds clipping when `clip` says so: a sum
    /// that a bound keeps in `0..extent` is one part.
    fn components(&self, s: &Shape, clip: bool) -> (Dim, Vec<Part>) {
        let mut skip: BTreeSet<u16> = BTreeSet::new();
        let mut offset = s.access.offset.clone();
        let mut parts = Vec::new();
        for b in s.access.bounds.iter().filter(|_| clip) {
            let Some(k) = s.factor(b) else { continue };
            if b.terms.is_empty() || b.terms.iter().any(|t| skip.contains(&t.0)) {
                continue;
            }
            skip.extend(b.terms.iter().map(|t| t.0));
            offset = offset - k.clone() * b.base.clone();
            parts.push(Part {
                extent: b.extent.clone(),
                stride: k,
            });
        }
        parts.extend(s.parts(&skip));
        (offset, parts)
    }

    /// Lowest and highest address.
    fn range(&self, (offset, parts): &(Dim, Vec<Part>)) -> Option<(Dim, Dim)> {
        let (mut lo, mut hi) = (offset.clone(), offset.clone());
        parts
            .iter()
            .all(|p| self.widen(&mut lo, &mut hi, p))
            .then_some((lo, hi))
    }

    /// Lowest and highest address at coordinate 0 of `axis`, bounds left aside.
    pub fn beside(&self, s: &Shape, axis: u16) -> Option<(Dim, Dim)> {
        if !self.tame(s) {
            return None;
        }
        let parts = s.parts(&BTreeSet::from([axis]));
        self.range(&(s.access.offset.clone(), parts))
    }

    /// Lowest and highest address that any point of the box has, each part taken by itself: wider
    /// where parts vary together, but narrower where what they share does not show in their sum.
    fn ends(&self, (offset, parts): &(Dim, Vec<Part>)) -> Option<(i128, i128)> {
        let r = self.dims.bounds(offset)?;
        let (mut lo, mut hi) = (i128::from(r.lo), i128::from(r.hi));
        for p in parts {
            let (stride, extent) = (self.dims.bounds(&p.stride)?, self.dims.bounds(&p.extent)?);
            let last = i128::from(extent.hi).max(1) - 1;
            lo += (i128::from(stride.lo) * last).min(0);
            hi += (i128::from(stride.hi) * last).max(0);
        }
        Some((lo, hi))
    }

    /// Looks at every point of the box that the shapes' and dims' symbols make; `check` is given
    /// the shapes and dims with numbers. False when there are too many points.
    fn each_point(&mut self, shapes: &[&Shape], extra: &[&Dim], check: PointCheck) -> bool {
        let mut used = BTreeSet::new();
        shapes.iter().for_each(|s| s.symbols(&mut used));
        extra.iter().for_each(|d| d.symbols(&mut used));
        let mut ranges = Vec::new();
        let mut points = 1i64;
        for s in used {
            let Some(r) = self.dims.get(&s) else {
                return false;
            };
            points = points.saturating_mul((r.hi - r.lo).saturating_add(1));
            ranges.push((s, r));
        }
        if ranges.is_empty() || points > MAX_POINTS || points > *self.budget {
            return false;
        }
        *self.budget -= points;
        let mut at: Vec<i64> = ranges.iter().map(|r| r.1.lo).collect();
        let none = DimBox::new();
        loop {
            let lookup = |s: &str| ranges.iter().position(|r| *r.0 == *s).map(|i| at[i]);
            let mut numbers = Vec::new();
            let mut empty = false;
            for s in shapes {
                match s.at(&lookup) {
                    None => return false,
                    Some(Err(Empty)) => empty = true,
                    Some(Ok(s)) => numbers.push(s),
                }
            }
            let Some(values) = extra
                .iter()
                .map(|d| d.eval(&lookup))
                .collect::<Option<Vec<_>>>()
            else {
                return false;
            };
            let mut p = Prover {
                dims: &none,
                equal: None,
                budget: &mut 0,
            };
            let holds =
                empty || (numbers.iter().all(|s| p.tame(s)) && check(&mut p, &numbers, &values));
            if !holds {
                return false;
            }
            // The next point, last symbol fastest.
            let Some(i) = (0..at.len()).rev().find(|&i| at[i] < ranges[i].1.hi) else {
                return true;
            };
            at[i] += 1;
            for j in i + 1..at.len() {
                at[j] = ranges[j].1.lo;
            }
        }
    }

    /// Whether `check` holds of the shapes and dimensions with what is equal in one form.
    fn in_one_form(&mut self, shapes: &[&Shape], extra: &[&Dim], check: &Claim) -> bool {
        let Some(e) = self.equal else { return false };
        let shapes: Option<Vec<Shape>> =
            shapes.iter().map(|s| s.replaced(&|d| e.canon(d))).collect();
        let extra: Option<Vec<Dim>> = extra.iter().map(|d| e.canon(d)).collect();
        let (Some(shapes), Some(extra)) = (shapes, extra) else {
            return false;
        };
        let mut p = Prover {
            dims: &e.dims,
            equal: None,
            budget: self.budget,
        };
        check(&mut p, &shapes, &extra)
    }

    /// True when every address of `s` lies in `0..limit`.
    pub fn inside(&mut self, s: &Shape, limit: &Dim) -> bool {
        self.inside_any(s, limit)
            || self.in_one_form(&[s], &[limit], &|p, s, l| p.inside_any(&s[0], &l[0]))
    }

    /// True when an axis of the access has no coordinates, or a bound holds nowhere, so that nothing is accessed.
    fn never(&self, s: &Shape) -> bool {
        let none = |extent: &Dim| self.dims.bounds(extent).is_some_and(|r| r.hi <= 0);
        let mut terms = s.access.terms.iter();
        terms.any(|t| none(&s.extents[t.axis as usize]))
            || s.access.bounds.iter().any(|b| none(&b.extent))
    }

    fn inside_any(&mut self, s: &Shape, limit: &Dim) -> bool {
        if self.never(s) {
            return true;
        }
        self.tame(s)
            && norm(limit, self.dims) < MAX_NORM
            && (self.inside_here(s, limit)
                || self.each_point(&[s], &[limit], &|p, s, l| {
                    p.inside_here(&s[0], &Dim::Known(l[0]))
                }))
    }

    fn inside_here(&self, s: &Shape, limit: &Dim) -> bool {
        let last = limit.clone() - Dim::ONE;
        let least = self.dims.bounds(limit).map(|r| i128::from(r.lo));
        let fits = |clip| {
            let address = self.components(s, clip);
            self.range(&address)
                .is_some_and(|(lo, hi)| self.nonneg(&lo) && self.le(&hi, &last))
                || self
                    .ends(&address)
                    .is_some_and(|(lo, hi)| lo >= 0 && least.is_some_and(|n| hi < n))
        };
        fits(true) || (!s.access.bounds.is_empty() && fits(false))
    }

    /// True when different coordinates have different addresses.
    pub fn injective(&mut self, s: &Shape) -> bool {
        self.injective_any(s) || self.in_one_form(&[s], &[], &|p, s, _| p.injective_any(&s[0]))
    }

    fn injective_any(&mut self, s: &Shape) -> bool {
        self.tame(s)
            && (self.injective_here(s)
                || self.each_point(&[s], &[], &|p, s, _| p.injective_here(&s[0])))
    }

    fn injective_here(&self, s: &Shape) -> bool {
        // An extent of at most 1 counts for nothing, but strides may have it as a factor.
        [true, false]
            .into_iter()
            .any(|short| self.steps_over(s, short))
    }

    /// Whether strides step over all that smaller ones reach; extents of at most 1 are left out
    /// when `short` says so.
    fn steps_over(&self, s: &Shape, short: bool) -> bool {
        // Sign taken off.
        let mut parts = Vec::new();
        for mut p in s.parts(&BTreeSet::new()) {
            if short && self.le(&p.extent, &Dim::ONE) {
                continue;
            }
            if !self.nonneg(&p.stride) {
                p.stride = -p.stride;
                if !self.nonneg(&p.stride) {
                    return false;
                }
            }
            // Of equal strides the shorter part is the inner one.
            let top = |d: &Dim| self.dims.at_top(d).unwrap_or(0);
            parts.push(((top(&p.stride), top(&p.extent)), p));
        }
        parts.arrange_by_key(|p| p.0);
        // Each stride steps over everything that the smaller ones reach.
        let mut reach = Dim::ONE;
        for (_, p) in parts {
            if !self.le(&reach, &p.stride) {
                return false;
            }
            reach = reach + p.stride * (p.extent - Dim::ONE);
        }
        true
    }

    /// Where the addresses of `s` are proved to lie, as they are and modulo each of its strides.
    pub fn reaches(&self, s: &Shape) -> Vec<Reach> {
        if !self.tame(s) {
            return vec![];
        }
        let reach = |period: Dim, (lo, last): (Dim, Dim)| {
            let hi = last + Dim::ONE;
            let fits = self.nonneg(&lo)
                && self.le(&lo, &hi)
                && (period.is_zero() || self.le(&hi, &period));
            fits.then_some(Reach { period, lo, hi })
        };
        let parts = s.parts(&BTreeSet::new());
        let mut periods: Vec<&Dim> = parts.iter().map(|p| &p.stride).collect();
        periods.arrange();
        periods.dedup();
        let folded = periods.into_iter().filter_map(|period| {
            if !self.le(&Dim::ONE, period) {
                return None;
            }
            let rest = parts
                .iter()
                .filter(|p| p.stride.exact_div(period).is_none());
            let rest = rest.cloned().collect();
            reach(
                period.clone(),
                self.range(&(s.access.offset.clone(), rest))?,
            )
        });
        let whole = self.range(&self.components(s, true));
        let whole = whole.and_then(|r| reach(Dim::ZERO, r));
        whole.into_iter().chain(folded).collect()
    }

    /// True when no address is in both.
    pub fn apart(&mut self, a: &Shape, b: &Shape) -> bool {
        self.apart_any(a, b) || self.in_one_form(&[a, b], &[], &|p, s, _| p.apart_any(&s[0], &s[1]))
    }

    fn apart_any(&mut self, a: &Shape, b: &Shape) -> bool {
        self.tame(a)
            && self.tame(b)
            && (self.apart_here(a, b)
                || self.each_point(&[a, b], &[], &|p, s, _| p.apart_here(&s[0], &s[1])))
    }

    fn apart_here(&self, a: &Shape, b: &Shape) -> bool {
        if let (Some(x), Some(y)) = (
            self.range(&self.components(a, true)),
            self.range(&self.components(b, true)),
        ) && (self.below(&x.1, &y.0) || self.below(&y.1, &x.0))
        {
            return true;
        }
        // Modulo a stride of both, what does not move by whole multiples of it stays in different
        // parts of the period.
        let none = BTreeSet::new();
        let (pa, pb) = (a.parts(&none), b.parts(&none));
        // A stride backwards keeps the same periods as one forwards.
        let shared = |s: &Dim, other: &[Part]| {
            let back = Dim::Known(-1) * s.clone();
            other.iter().any(|q| q.stride == *s || q.stride == back)
        };
        let mut periods: Vec<&Dim> = pa
            .iter()
            .map(|p| &p.stride)
            .filter(|s| shared(s, &pb))
            .chain(pb.iter().map(|p| &p.stride).filter(|s| shared(s, &pa)))
            .collect();
        periods.arrange();
        periods.dedup();
        periods.into_iter().any(|s| {
            if !self.le(&Dim::ONE, s) {
                return false;
            }
            let rest = |offset: &Dim, parts: &[Part]| {
                let (mut lo, mut hi) = (offset.clone(), offset.clone());
                let fits = parts
                    .iter()
                    .filter(|p| p.stride.exact_div(s).is_none())
                    .all(|p| self.widen(&mut lo, &mut hi, p));
                fits.then_some((lo, hi))
            };
            let apart = |difference: &Dim| {
                let (Some(x), Some(y)) = (rest(&Dim::ZERO, &pa), rest(difference, &pb)) else {
                    return false;
                };
                let last = |lo: &Dim| lo.clone() + s.clone() - Dim::ONE;
                (self.below(&x.1, &y.0) && self.le(&y.1, &last(&x.0)))
                    || (self.below(&y.1, &x.0) && self.le(&x.1, &last(&y.0)))
            };
            let difference = b.access.offset.clone() - a.access.offset.clone();
            apart(&difference) || apart(&difference.modulo(s))
        })
    }

    fn below(&self, a: &Dim, b: &Dim) -> bool {
        self.le(&(a.clone() + Dim::ONE), b)
    }
}
