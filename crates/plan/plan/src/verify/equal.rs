//! Dimensions that every request makes equal.
//!
//! A block's constraints are checked whenever its parameters are evaluated ([`crate::Bound`]), so a
//! proof may take them for granted. Each is solved for a symbol where that can be done; what a
//! symbol is solved for then stands in its place. A symbol that also occurs in floors of quotients
//! (`h = 2*floordiv(h + 1, 2)`) is solved for the floors, which become symbols of their own.
use super::access::{MAX_NORM, norm};
use crate::Constraint;
use layout::Arrange;
use layout::{Atom, Dim, DimBox, Range, Sym};
use std::collections::{BTreeMap, BTreeSet};

/// Terms that what a symbol is solved for may have.
const MAX_TERMS: usize = 16;

/// Solved constraints.
pub struct Equal {
    solved: BTreeMap<Sym, Dim>,
    /// Products of symbols that are a number: what a reshape to stated sizes makes of them.
    products: Vec<(Vec<Sym>, i64)>,
    /// The box of the symbols that are left.
    pub dims: DimBox,
    fresh: usize,
}

impl Equal {
    /// `None` when there is nothing to take for granted.
    pub fn new(constraints: &[Constraint], dims: &DimBox) -> Option<Equal> {
        if constraints.is_empty() {
            return None;
        }
        let mut e = Equal {
            solved: BTreeMap::new(),
            products: Vec::new(),
            dims: dims.clone(),
            fresh: 0,
        };
        // What one solves may let another be solved.
        for _ in 0..2 {
            for c in constraints {
                let (Some(l), Some(r)) = (e.canon(&c.left), e.canon(&c.right)) else {
                    continue;
                };
                e.solve(&(l - r));
            }
        }
        (!e.solved.is_empty() || !e.products.is_empty()).then_some(e)
    }

    /// `d` with solved symbols replaced; `None` when that could leave 64 bits.
    pub fn canon(&self, d: &Dim) -> Option<Dim> {
        if d.known().is_some() {
            return Some(d.clone());
        }
        let mut used = BTreeSet::new();
        d.symbols(&mut used);
        let solved = used.iter().any(|s| self.solved.contains_key(s));
        let product = |p: &(Vec<Sym>, i64)| p.0.iter().all(|s| used.contains(s));
        if !solved && !self.products.iter().any(product) {
            return Some(d.clone());
        }
        let sizes = |s: &str| match self.solved.get(s) {
            Some(e) => norm(e, &self.dims),
            None => self.dims.get(s).map_or(MAX_NORM, |r| i128::from(r.hi)),
        };
        (weight(d, &sizes) < MAX_NORM)
            .then(|| self.with_products(d.substitute(&|s| self.solved.get(s).cloned())))
    }

    /// `d` with the products that are numbers replaced.
    fn with_products(&self, d: Dim) -> Dim {
        if self.products.is_empty() || norm(&d, &self.dims) >= MAX_NORM {
            return d;
        }
        let mut out = Dim::ZERO;
        for (c, atoms) in d.terms() {
            let mut atoms = atoms.to_vec();
            let mut product = Dim::Known(c);
            for (symbols, n) in &self.products {
                let mut rest = atoms.clone();
                let all = symbols.iter().all(|s| {
                    let at = rest
                        .iter()
                        .position(|a| matches!(a, Atom::Sym(x) if x == s));
                    at.map(|i| rest.swap_remove(i)).is_some()
                });
                if all {
                    atoms = rest;
                    product = product * Dim::Known(*n);
                }
            }
            out = out + atoms.iter().map(dim_of).fold(product, |p, a| p * a);
        }
        out
    }

    /// Notes `zero` if it says that a product of symbols is a number that it can be.
    fn note_product(&mut self, zero: &Dim) {
        let (mut number, mut product) = (0i64, None);
        for (c, atoms) in zero.terms() {
            let symbols: Option<Vec<Sym>> = atoms
                .iter()
                .map(|a| match a {
                    Atom::Sym(s) => Some(s.clone()),
                    _ => None,
                })
                .collect();
            match symbols {
                Some(s) if s.is_empty() => number = c,
                Some(s) if product.is_none() => product = Some((c, s)),
                _ => return,
            }
        }
        let Some((c, symbols)) = product else { return };
        let (Some(n), Some(0)) = (
            number.checked_neg().and_then(|n| n.checked_div(c)),
            number.checked_rem(c),
        ) else {
            return;
        };
        // No larger than the symbols can make it, so that no sum grows by what stands for them.
        let most = symbols.iter().try_fold(1i128, |p, s| {
            Some(p.saturating_mul(i128::from(self.dims.get(s)?.hi.max(1))))
        });
        if n > 0 && most.is_some_and(|m| i128::from(n) <= m) {
            self.products.push((symbols, n));
        }
    }

    /// Takes `zero` to be 0.
    fn solve(&mut self, zero: &Dim) {
        if zero.known().is_some() || norm(zero, &self.dims) >= MAX_NORM {
            return;
        }
        let gcd = zero.terms().fold(0i64, |g, t| gcd(g, t.0));
        let zero = match zero.exact_div(&Dim::Known(gcd.max(1))) {
            Some(z) => z,
            None => zero.clone(),
        };
        // Symbols that stand alone with a coefficient of one; the shortest solution first.
        let mut found: Vec<(usize, Sym, Dim)> = Vec::new();
        for (c, atoms) in zero.terms() {
            let ([Atom::Sym(s)], 1 | -1) = (atoms, c) else {
                continue;
            };
            let rest = zero.clone() - Dim::Known(c) * Dim::sym(s);
            let value = rest * Dim::Known(-c);
            if value.terms().count() <= MAX_TERMS {
                found.push((cost(&value), s.clone(), value));
            }
        }
        found.arrange_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        for (_, s, value) in found {
            let mut used = BTreeSet::new();
            value.symbols(&mut used);
            let value = match used.contains(&s) {
                true => self.without_floors(&s, &value),
                false => Some(value),
            };
            if let Some(v) = value {
                self.take(&s, v);
                return;
            }
        }
        self.note_product(&zero);
    }

    /// `value` with the floors that contain `s` as symbols of their own; `None` when `s` occurs
    /// elsewhere too.
    fn without_floors(&mut self, s: &Sym, value: &Dim) -> Option<Dim> {
        let (mut out, mut made) = (Dim::ZERO, Vec::new());
        let has = |a: &Atom| {
            let mut used = BTreeSet::new();
            match a {
                Atom::Sym(x) => drop(used.insert(x.clone())),
                Atom::FloorDiv(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                    x.symbols(&mut used);
                    y.symbols(&mut used);
                }
            }
            used.contains(s)
        };
        for (c, atoms) in value.terms() {
            let mut product = Dim::Known(c);
            for a in atoms {
                let one = match a {
                    Atom::FloorDiv(x, y) if has(a) => {
                        let r = self.dims.bounds(&x.floor_div(y))?;
                        let mut name: Sym = format!("q{}", self.fresh).into();
                        while self.dims.get(&name).is_some() {
                            self.fresh += 1;
                            name = format!("q{}", self.fresh).into();
                        }
                        self.fresh += 1;
                        let width = r.hi.checked_sub(r.lo)?;
                        let symbol = Dim::sym(&name) + Dim::Known(r.lo);
                        made.push((name, width));
                        symbol
                    }
                    a if has(a) => return None,
                    a => dim_of(a),
                };
                product = product * one;
            }
            out = out + product;
        }
        for (name, hi) in made {
            self.dims.insert(name, 0, hi);
        }
        Some(out)
    }

    fn take(&mut self, s: &Sym, value: Dim) {
        let grows = |d: &Dim| {
            let sizes = |x: &str| match *x == **s {
                true => norm(&value, &self.dims),
                false => self.dims.get(x).map_or(MAX_NORM, |r| i128::from(r.hi)),
            };
            weight(d, &sizes) >= MAX_NORM
        };
        if norm(&value, &self.dims) >= MAX_NORM || self.solved.values().any(grows) {
            return;
        }
        if let Some(range) = self.dims.get(s) {
            self.narrow(&value, range);
        }
        for v in self.solved.values_mut() {
            *v = v.substitute(&|x| (*x == **s).then(|| value.clone()));
        }
        self.solved.insert(s.clone(), value);
    }

    /// Narrows the range of the one symbol of `value = k * symbol + c` to where the value is in `range`.
    fn narrow(&mut self, value: &Dim, range: Range) {
        let (mut k, mut c, mut symbol) = (0i64, 0i64, None);
        for (n, atoms) in value.terms() {
            match atoms {
                [] => c = n,
                [Atom::Sym(s)] if symbol.is_none() && n > 0 => (k, symbol) = (n, Some(s.clone())),
                _ => return,
            }
        }
        let (Some(s), 1..) = (symbol, k) else { return };
        let Some(old) = self.dims.get(&s) else { return };
        let (Some(lo), Some(hi)) = (range.lo.checked_sub(c), range.hi.checked_sub(c)) else {
            return;
        };
        let lo = lo.div_euclid(k) + i64::from(lo.rem_euclid(k) > 0);
        let (lo, hi) = (old.lo.max(lo), old.hi.min(hi.div_euclid(k)));
        if lo <= hi {
            self.dims.insert(s, lo, hi);
        }
    }
}

fn dim_of(a: &Atom) -> Dim {
    match a {
        Atom::Sym(x) => Dim::sym(x),
        Atom::FloorDiv(x, y) => x.floor_div(y),
        Atom::Min(x, y) => x.min_with(y),
        Atom::Max(x, y) => x.max_with(y),
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    match b {
        0 => a.saturating_abs(),
        b => gcd(b, a.checked_rem(b).unwrap_or(0)),
    }
}

/// How unwelcome a solution is.
fn cost(d: &Dim) -> usize {
    let atom = |a: &Atom| match a {
        Atom::Sym(_) => 1,
        _ => 8,
    };
    let term = |t: (i64, &[Atom])| 1 + usize::from(t.0 < 0) + t.1.iter().map(atom).sum::<usize>();
    d.terms().map(term).sum()
}

/// At least the sum of the magnitudes of a dimension's coefficients once its symbols are replaced
/// by something whose own sums are `sizes`.
fn weight(d: &Dim, sizes: &dyn Fn(&str) -> i128) -> i128 {
    if let Dim::Known(n) = d {
        return i128::from(*n).abs();
    }
    let mut sum = 0i128;
    for (c, atoms) in d.terms() {
        let mut p = i128::from(c).abs();
        for a in atoms {
            let n = match a {
                Atom::Sym(s) => sizes(s),
                Atom::FloorDiv(x, y) => weight(x, sizes).max(weight(y, sizes)),
                Atom::Min(x, y) | Atom::Max(x, y) => weight(x, sizes).max(weight(y, sizes)),
            };
            p = p.saturating_mul(n.max(1));
        }
        sum = sum.saturating_add(p);
    }
    sum
}
