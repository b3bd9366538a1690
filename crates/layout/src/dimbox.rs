use crate::{Dim, Sym};
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

    /// The smallest and largest value that `dim` can take in the box (interval arithmetic, so the
    /// true range may be narrower); `None` when a symbol is missing or the arithmetic overflows.
    pub fn bounds(&self, dim: &Dim) -> Option<Range> {
        let mut sum = Range { lo: 0, hi: 0 };
        for (c, atoms) in dim.terms() {
            let mut p = Range { lo: c, hi: c };
            for a in &atoms {
                let r = self.atom_bounds(a)?;
                let ends = [
                    p.lo.checked_mul(r.lo)?,
                    p.lo.checked_mul(r.hi)?,
                    p.hi.checked_mul(r.lo)?,
                    p.hi.checked_mul(r.hi)?,
                ];
                p = Range {
                    lo: ends.into_iter().min()?,
                    hi: ends.into_iter().max()?,
                };
            }
            sum.lo = sum.lo.checked_add(p.lo)?;
            sum.hi = sum.hi.checked_add(p.hi)?;
        }
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

impl FromIterator<(Sym, Range)> for DimBox {
    fn from_iter<T: IntoIterator<Item = (Sym, Range)>>(iter: T) -> DimBox {
        DimBox {
            ranges: iter.into_iter().collect(),
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
