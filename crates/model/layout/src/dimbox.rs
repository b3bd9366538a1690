//! Boxes of dimensions: a range per symbol, and bounds of dimension expressions over them. Plans state the
//! sizes that they cover as a [`DimBox`]; the verifier proves with these bounds.
use crate::{Arrange, Dim, Inserted, Sym};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Inclusive range of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range {
    /// Smallest value.
    pub lo: i64,
    /// Largest value.
    pub hi: i64,
}

impl Range {
    /// The range of products of a value of each; `None` when it overflows.
    fn times(self, o: Range) -> Option<Range> {
        let ends = [
            self.lo.checked_mul(o.lo)?,
            self.lo.checked_mul(o.hi)?,
            self.hi.checked_mul(o.lo)?,
            self.hi.checked_mul(o.hi)?,
        ];
        Some(Range {
            lo: ends.into_iter().min()?,
            hi: ends.into_iter().max()?,
        })
    }

    /// The range of sums of a value of each; `None` when it overflows.
    fn plus(self, o: Range) -> Option<Range> {
        Some(Range {
            lo: self.lo.checked_add(o.lo)?,
            hi: self.hi.checked_add(o.hi)?,
        })
    }
}

/// A box of dimensions: for every symbol the range of values that a plan covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DimBox {
    ranges: BTreeMap<Sym, Range>,
}

impl DimBox {
    /// The box without symbols.
    pub fn new() -> DimBox {
        DimBox::default()
    }

    /// Adds or replaces the range of `sym`.
    pub fn insert(&mut self, sym: impl Into<Sym>, lo: i64, hi: i64) {
        self.ranges.insert(sym.into(), Range { lo, hi });
    }

    /// The range of `sym`, if the box has it.
    pub fn get(&self, sym: &str) -> Option<Range> {
        self.ranges.get(sym).copied()
    }

    /// Symbols and ranges, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Sym, Range)> {
        self.ranges.iter().map(|(s, r)| (s, *r))
    }

    /// True when there is no symbol.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True when `lookup` gives every symbol of the box a value inside its range.
    pub fn contains(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> bool {
        self.ranges
            .iter()
            .all(|(s, r)| lookup(s).is_some_and(|v| r.lo <= v && v <= r.hi))
    }

    /// The first symbol whose size `lookup` gives and is not in the box, with that size.
    pub fn outside(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<(&Sym, i64)> {
        self.iter().find_map(|(s, r)| {
            let size = lookup(s)?;
            (!(r.lo..=r.hi).contains(&size)).then_some((s, size))
        })
    }

    /// The smallest and largest value that `dim` can take in the box, exact where `dim` rises or
    /// falls all along every symbol, else an enclosing range; `None` when a symbol is missing or the
    /// arithmetic overflows.
    ///
    /// Symbols and quotients count as independent variables, so `h - 2 * floordiv(h, 2)` is bounded
    /// as if the quotient could be anything in its range.
    pub fn bounds(&self, dim: &Dim) -> Option<Range> {
        if let Dim::Known(n) = dim {
            return Some(Range { lo: *n, hi: *n });
        }
        // With a single value per symbol there is a single value to find.
        let point = |s: &str| self.get(s).filter(|r| r.lo == r.hi).map(|r| r.lo);
        if let Some(n) = dim.eval(&point) {
            return Some(Range { lo: n, hi: n });
        }
        if let Some(r) = self.apart(dim) {
            return r;
        }
        let mut atoms: BTreeMap<&crate::Atom, usize> = BTreeMap::new();
        let mut ranges = Vec::new();
        let mut poly = Vec::with_capacity(dim.terms().count());
        for (c, product) in dim.terms() {
            let mut vars = Vec::with_capacity(product.len());
            for a in product {
                let at = match atoms.get(a) {
                    Some(&i) => i,
                    None => {
                        ranges.push(self.atom_bounds(a)?);
                        atoms.insert(a, ranges.len() - 1);
                        ranges.len() - 1
                    }
                };
                vars.push(at);
            }
            poly.push((c, vars));
        }
        monotone(&poly, &mut ranges)
    }

    /// [`DimBox::bounds`] of a sum in which no atom occurs twice: its terms are independent of each other, so
    /// that intervals are exact. `None` for other sums.
    fn apart(&self, dim: &Dim) -> Option<Option<Range>> {
        let mut atoms: Vec<&crate::Atom> = dim.terms().flat_map(|t| t.1).collect();
        atoms.arrange();
        if atoms.windows(2).any(|w| w[0] == w[1]) {
            return None;
        }
        let sum = dim
            .terms()
            .try_fold(Range { lo: 0, hi: 0 }, |sum, (c, product)| {
                let p = product
                    .iter()
                    .try_fold(Range { lo: c, hi: c }, |p, a| p.times(self.atom_bounds(a)?))?;
                sum.plus(p)
            });
        Some(sum)
    }

    fn atom_bounds(&self, a: &crate::Atom) -> Option<Range> {
        use crate::Atom;
        Some(match a {
            Atom::Sym(s) => self.get(s)?,
            Atom::FloorDiv(x, y) => {
                let (x, y) = (self.bounds(x)?, self.bounds(y)?);
                let y = Range {
                    lo: y.lo.max(1),
                    hi: y.hi.max(1),
                };
                let ends = [
                    x.lo.div_euclid(y.lo),
                    x.lo.div_euclid(y.hi),
                    x.hi.div_euclid(y.lo),
                    x.hi.div_euclid(y.hi),
                ];
                Range {
                    lo: ends.into_iter().min()?,
                    hi: ends.into_iter().max()?,
                }
            }
            Atom::Min(x, y) => {
                let (x, y) = (self.bounds(x)?, self.bounds(y)?);
                Range {
                    lo: x.lo.min(y.lo),
                    hi: x.hi.min(y.hi),
                }
            }
            Atom::Max(x, y) => {
                let (x, y) = (self.bounds(x)?, self.bounds(y)?);
                Range {
                    lo: x.lo.max(y.lo),
                    hi: x.hi.max(y.hi),
                }
            }
        })
    }

    /// The value of `dim` with every symbol at the top of its range.
    pub fn at_top(&self, dim: &Dim) -> Option<i64> {
        dim.eval(&|s| self.get(s).map(|r| r.hi))
    }
}

/// A polynomial: coefficients with the numbers of the variables that are multiplied.
type Poly = [(i64, Vec<usize>)];

/// Interval arithmetic term by term.
fn interval(poly: &Poly, ranges: &[Range]) -> Option<Range> {
    let mut sum = Range { lo: 0, hi: 0 };
    for (c, vars) in poly {
        let mut p = Range { lo: *c, hi: *c };
        for &v in vars {
            p = p.times(ranges[v])?;
        }
        sum = sum.plus(p)?;
    }
    Some(sum)
}

/// As [`interval`], but a variable along which the polynomial only rises or only falls is set to
/// its ends instead: `n * s - n` is at least 0 for n and s of 1 and more, term by term it is not.
fn monotone(poly: &Poly, ranges: &mut [Range]) -> Option<Range> {
    let plain = interval(poly, ranges)?;
    // Sums of few terms are what shapes are made of; longer ones are left to the intervals.
    if poly.len() < 2 || poly.len() > 12 || plain.lo == plain.hi {
        return Some(plain);
    }
    for v in 0..ranges.len() {
        let Range { lo, hi } = ranges[v];
        if lo == hi {
            continue;
        }
        let mut slope: Vec<(i64, Vec<usize>)> = Vec::new();
        for (c, vars) in poly {
            let power = vars.iter().filter(|&&x| x == v).count();
            if let Some(at) = vars.iter().position(|&x| x == v) {
                let mut rest = vars.clone();
                rest.remove(at);
                slope.push((c.checked_mul(power as i64)?, rest));
            }
        }
        if slope.is_empty() {
            continue;
        }
        let Some(rate) = monotone(&slope, ranges) else {
            continue;
        };
        if rate.lo < 0 && rate.hi > 0 {
            continue;
        }
        let (least, most) = if rate.lo >= 0 { (lo, hi) } else { (hi, lo) };
        ranges[v] = Range {
            lo: least,
            hi: least,
        };
        let bottom = monotone(poly, ranges);
        ranges[v] = Range { lo: most, hi: most };
        let top = monotone(poly, ranges);
        ranges[v] = Range { lo, hi };
        return Some(Range {
            lo: bottom?.lo.max(plain.lo),
            hi: top?.hi.min(plain.hi),
        });
    }
    Some(plain)
}

impl FromIterator<(Sym, Range)> for DimBox {
    fn from_iter<T: IntoIterator<Item = (Sym, Range)>>(iter: T) -> DimBox {
        DimBox {
            ranges: iter.into_iter().inserted(),
        }
    }
}

impl std::fmt::Display for DimBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (s, r)) in self.ranges.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            if r.lo == r.hi {
                write!(f, "{s}={}", r.lo)?;
            } else {
                write!(f, "{s}={}..{}", r.lo, r.hi)?;
            }
        }
        Ok(())
    }
}
