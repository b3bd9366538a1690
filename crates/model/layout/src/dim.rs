//! Symbolic dimensions: polynomials over named sizes in normal form, so that equal sizes compare equal. Every
//! size, stride and offset above this crate is a [`Dim`]; ranges of symbols are in `dimbox`.
use crate::Arrange;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Neg, Sub};
use std::sync::Arc;

/// Name of a symbolic dimension (`batch`, `past_sequence_length`).
pub type Sym = Arc<str>;

/// A size, stride or offset: a number, or an expression over named symbols.
///
/// Symbols stand for sizes and are taken to be at least 0. Expressions are kept in one normal form
/// (a polynomial with integer coefficients over symbols and irreducible `floordiv`, `min`, `max`
/// atoms), so that `==` on two `Dim`s is a sound proof of equality.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dim {
    /// A number.
    Known(i64),
    /// An expression that is not a number.
    Expr(DimExpr),
}

/// A polynomial over [`Atom`]s; never a plain number (that is [`Dim::Known`]).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DimExpr(pub(crate) Arc<Poly>);

impl Ord for DimExpr {
    fn cmp(&self, o: &DimExpr) -> Ordering {
        match Arc::ptr_eq(&self.0, &o.0) {
            true => Ordering::Equal,
            false => self.0.cmp(&o.0),
        }
    }
}

impl PartialOrd for DimExpr {
    fn partial_cmp(&self, o: &DimExpr) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

/// Monomial (sorted atoms, repeated for powers) to coefficient, without zero coefficients.
pub(crate) type Poly = BTreeMap<Vec<Atom>, i64>;

/// A factor of a monomial that cannot be taken apart further.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Atom {
    /// A named symbol.
    Sym(Sym),
    /// Floor of the quotient; the divisor is positive.
    FloorDiv(Box<Dim>, Box<Dim>),
    /// The smaller of two.
    Min(Box<Dim>, Box<Dim>),
    /// The larger of two.
    Max(Box<Dim>, Box<Dim>),
}

impl Dim {
    /// Zero.
    pub const ZERO: Dim = Dim::Known(0);
    /// One.
    pub const ONE: Dim = Dim::Known(1);

    /// The symbol `name`.
    pub fn sym(name: &str) -> Dim {
        Dim::from_atom(Atom::Sym(name.into()))
    }

    pub(crate) fn from_atom(a: Atom) -> Dim {
        Dim::Expr(DimExpr(Arc::new(BTreeMap::from([(vec![a], 1)]))))
    }

    fn from_poly(p: Poly) -> Dim {
        match p.len() {
            0 => Dim::ZERO,
            1 if p.keys().next().is_some_and(|m| m.is_empty()) => Dim::Known(p[&vec![]]),
            _ => Dim::Expr(DimExpr(Arc::new(p))),
        }
    }

    fn poly(&self) -> Poly {
        self.clone().into_poly()
    }

    /// The sum, without a copy where nobody else has it.
    fn into_poly(self) -> Poly {
        match self {
            Dim::Known(0) => Poly::new(),
            Dim::Known(n) => BTreeMap::from([(vec![], n)]),
            Dim::Expr(e) => Arc::try_unwrap(e.0).unwrap_or_else(|e| (*e).clone()),
        }
    }

    /// The only term, when there is one: its atoms and its coefficient.
    fn single(&self) -> Option<(&[Atom], i64)> {
        match self {
            Dim::Known(0) => None,
            Dim::Known(n) => Some((&[], *n)),
            Dim::Expr(e) if e.0.len() == 1 => e.0.iter().next().map(|(m, c)| (m.as_slice(), *c)),
            Dim::Expr(_) => None,
        }
    }

    /// The terms `(coefficient, atoms)` of the sum, in normal order; a number other than 0 is one term.
    pub fn terms(&self) -> impl Iterator<Item = (i64, &[Atom])> + Clone {
        let (number, sum) = match self {
            Dim::Known(0) => (None, None),
            Dim::Known(n) => (Some((*n, &[][..])), None),
            Dim::Expr(e) => (None, Some(e.0.iter().map(|(m, c)| (*c, m.as_slice())))),
        };
        number.into_iter().chain(sum.into_iter().flatten())
    }

    /// The number, when this is one.
    pub fn known(&self) -> Option<i64> {
        match self {
            Dim::Known(n) => Some(*n),
            Dim::Expr(_) => None,
        }
    }

    /// The symbol's name, when this is a single symbol.
    pub fn as_sym(&self) -> Option<&str> {
        match self {
            Dim::Expr(e) if e.0.len() == 1 => match e.0.iter().next() {
                Some((m, 1)) if m.len() == 1 => match &m[0] {
                    Atom::Sym(s) => Some(s),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// True when this is the number 1.
    pub fn is_one(&self) -> bool {
        *self == Dim::ONE
    }

    /// True when this is the number 0.
    pub fn is_zero(&self) -> bool {
        *self == Dim::ZERO
    }

    /// How many terms and factors it is written with: what it costs to work with. A product has at most as
    /// many as the product of two sizes says.
    pub fn size(&self) -> usize {
        let Dim::Expr(e) = self else { return 1 };
        let factor = |a: &Atom| match a {
            Atom::Sym(_) => 1,
            Atom::FloorDiv(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => 1 + x.size() + y.size(),
        };
        e.0.keys()
            .map(|m| 1 + m.iter().map(factor).sum::<usize>())
            .sum()
    }

    /// Every symbol that occurs, added to `out`.
    pub fn symbols(&self, out: &mut std::collections::BTreeSet<Sym>) {
        if let Dim::Expr(e) = self {
            for a in e.0.keys().flatten() {
                match a {
                    Atom::Sym(s) => {
                        if !out.contains(s) {
                            out.insert(s.clone());
                        }
                    }
                    Atom::FloorDiv(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                        x.symbols(out);
                        y.symbols(out);
                    }
                }
            }
        }
    }

    /// The quotient when `self` is a multiple of `d` for every value of the symbols.
    pub fn exact_div(&self, d: &Dim) -> Option<Dim> {
        if let (Dim::Known(a), Dim::Known(b)) = (self, d) {
            return (a.checked_rem(*b)? == 0).then(|| a.checked_div(*b).map(Dim::Known))?;
        }
        if let Some((lead_m, lead_c)) = d.single() {
            // Every term by itself; as many at most as long division takes.
            let mut quotient = Poly::new();
            let parts: &mut dyn Iterator<Item = (&[Atom], i64)> = match self {
                Dim::Known(0) => return Some(Dim::ZERO),
                Dim::Known(n) => &mut std::iter::once((&[][..], *n)),
                Dim::Expr(e) if e.0.len() >= 64 => return None,
                Dim::Expr(e) => &mut e.0.iter().map(|(m, c)| (m.as_slice(), *c)),
            };
            for (m, c) in parts {
                let (m, f) = divided(m, c, lead_m, lead_c)?;
                quotient.insert(m, f);
            }
            return Some(Dim::from_poly(quotient));
        }
        let divisor = d.poly();
        let (lead_m, lead_c) = leading(&divisor)?;
        let mut rest = self.poly();
        let mut quotient = Poly::new();
        // Multivariate long division by the leading monomial; bounded because each round removes it.
        for _ in 0..64 {
            let Some((m, c)) = leading(&rest) else {
                return Some(Dim::from_poly(quotient));
            };
            let q = remove_factors(&m, &lead_m)?;
            if c.checked_rem(lead_c)? != 0 {
                return None;
            }
            let f = c.checked_div(lead_c)?;
            for (dm, dc) in &divisor {
                // A sum that saturates could cancel what is not equal.
                let product = dc.checked_mul(f)?.checked_neg()?;
                let m = mul_monomials(dm, &q);
                rest.get(&m).copied().unwrap_or(0).checked_add(product)?;
                add_term(&mut rest, m, product);
            }
            add_term(&mut quotient, q, f);
        }
        None
    }

    /// `floor(self / d)` for a divisor that is positive.
    pub fn floor_div(&self, d: &Dim) -> Dim {
        if let (Dim::Known(a), Dim::Known(b)) = (self, d) {
            return Dim::Known(match a.checked_div_euclid(*b) {
                Some(q) => q,
                None if *b == 0 => 0,
                None => i64::MAX,
            });
        }
        if d.is_one() {
            return self.clone();
        }
        if let Some(q) = self.exact_div(d) {
            return q;
        }
        // Whole multiples of the divisor come out of the floor term by term.
        let (mut whole, mut rest) = (Poly::new(), Poly::new());
        let single = d.single();
        for (m, c) in self.poly() {
            if let Some((qm, qc)) = single.and_then(|(lm, lc)| divided(&m, c, lm, lc)) {
                add_term(&mut whole, qm, qc);
                continue;
            }
            let exact = match single {
                Some(_) => None,
                None => Dim::from_poly(BTreeMap::from([(m.clone(), c)])).exact_div(d),
            };
            match (exact, d.known()) {
                (Some(q), _) => {
                    for (qm, qc) in q.poly() {
                        add_term(&mut whole, qm, qc);
                    }
                }
                (None, Some(k)) if m.is_empty() && k > 0 => {
                    add_term(&mut whole, vec![], c.div_euclid(k));
                    add_term(&mut rest, m, c.rem_euclid(k));
                }
                _ => add_term(&mut rest, m, c),
            }
        }
        let rest = Dim::from_poly(rest);
        let whole = Dim::from_poly(whole);
        if rest.is_zero() {
            return whole;
        }
        if let (Some(r), Some(k @ 1..)) = (rest.known(), d.known()) {
            return whole + Dim::Known(r.div_euclid(k));
        }
        whole + Dim::from_atom(Atom::FloorDiv(Box::new(rest), Box::new(d.clone())))
    }

    /// `ceil(self / d)` for a divisor that is positive.
    pub fn ceil_div(&self, d: &Dim) -> Dim {
        if let Some(q) = self.exact_div(d) {
            return q;
        }
        (self.clone() + d.clone() - Dim::ONE).floor_div(d)
    }

    /// `self - d * floor(self / d)`.
    pub fn modulo(&self, d: &Dim) -> Dim {
        self.clone() - self.floor_div(d) * d.clone()
    }

    /// The smaller of two.
    pub fn min_with(&self, o: &Dim) -> Dim {
        if self.provably_le(o) {
            return self.clone();
        }
        if o.provably_le(self) {
            return o.clone();
        }
        let (a, b) = if self <= o { (self, o) } else { (o, self) };
        Dim::from_atom(Atom::Min(Box::new(a.clone()), Box::new(b.clone())))
    }

    /// The larger of two.
    pub fn max_with(&self, o: &Dim) -> Dim {
        if self.provably_le(o) {
            return o.clone();
        }
        if o.provably_le(self) {
            return self.clone();
        }
        let (a, b) = if self <= o { (self, o) } else { (o, self) };
        Dim::from_atom(Atom::Max(Box::new(a.clone()), Box::new(b.clone())))
    }

    /// True when `self <= o` for all symbol values >= 0 (false: not proved).
    pub fn provably_le(&self, o: &Dim) -> bool {
        (o.clone() - self.clone()).provably_nonneg()
    }

    /// True when `self < o` for all symbol values >= 0 (false: not proved).
    pub fn provably_lt(&self, o: &Dim) -> bool {
        (o.clone() - self.clone() - Dim::ONE).provably_nonneg()
    }

    /// True when the value is >= 0 for all symbol values >= 0 (false: not proved).
    pub fn provably_nonneg(&self) -> bool {
        !self.seen_negative() && self.nonneg_within(3)
    }

    /// True when some values of the symbols make it negative: then there is no proof to search for.
    fn seen_negative(&self) -> bool {
        let Dim::Expr(e) = self else { return false };
        if !e.0.values().any(|c| *c < 0) {
            return false;
        }
        // Alike, then apart from each other by what their names give.
        let of = |s: &str, round: u64| match round {
            0 | 1 => round as i64,
            2 => 1 << 20,
            _ => {
                let start = 0xcbf2_9ce4_8422_2325 ^ round;
                let h = s.bytes().fold(start, |h, b| {
                    (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
                });
                // Of all magnitudes.
                (h >> 32) as i64 & ((1 << (h % 20)) - 1)
            }
        };
        (0..8).any(|round| self.eval(&|s| Some(of(s, round))).is_some_and(|v| v < 0))
    }

    /// Proof with at most `depth` atoms replaced by a bound of theirs.
    fn nonneg_within(&self, depth: usize) -> bool {
        let e = match self {
            Dim::Known(n) => return *n >= 0,
            Dim::Expr(e) => e,
        };
        if e.0
            .iter()
            .all(|(m, c)| *c >= 0 && m.iter().all(Atom::nonneg))
        {
            return true;
        }
        // Large sums are not worth the search.
        if depth == 0 || e.0.len() > 16 {
            return false;
        }
        e.0.iter().any(|(m, c)| {
            let [atom] = m.as_slice() else { return false };
            let term = Dim::from_poly(BTreeMap::from([(m.clone(), *c)]));
            let rest = || self.clone() - term;
            let times = |x: &Dim, c: i64| x.clone() * Dim::Known(c);
            match atom {
                // x - (k - 1) <= k*floor(x/k) <= x
                Atom::FloorDiv(x, k) => match k.known() {
                    Some(k @ 1..) if c % k == 0 => {
                        let slack = if *c > 0 { Dim::Known(1 - k) } else { Dim::ZERO };
                        (rest() + times(&((**x).clone() + slack), c / k)).nonneg_within(depth - 1)
                    }
                    // k times the sum has the sign of the sum.
                    Some(k @ 1..=64) if *c < 0 => {
                        (times(&rest(), k) + times(x, *c)).nonneg_within(depth - 1)
                    }
                    _ => false,
                },
                Atom::Min(x, y) if *c < 0 => {
                    let rest = rest();
                    [x, y]
                        .iter()
                        .any(|b| (rest.clone() + times(b, *c)).nonneg_within(depth - 1))
                }
                Atom::Max(x, y) if *c > 0 => {
                    let rest = rest();
                    [x, y]
                        .iter()
                        .any(|b| (rest.clone() + times(b, *c)).nonneg_within(depth - 1))
                }
                _ => false,
            }
        })
    }

    /// Number of terms and atoms, nested ones too, counted no further than `limit`.
    pub(crate) fn weight(&self, limit: usize) -> usize {
        let Dim::Expr(e) = self else { return 1 };
        let mut n = 0;
        for m in e.0.keys() {
            n += 1;
            for a in m {
                n += 1;
                if n > limit {
                    return n;
                }
                if let Atom::FloorDiv(x, y) | Atom::Min(x, y) | Atom::Max(x, y) = a {
                    n += x.weight(limit - n);
                    n += y.weight(limit.saturating_sub(n));
                }
            }
            if n > limit {
                return n;
            }
        }
        n
    }

    /// Replaces symbols by what `f` gives for them; others stay.
    pub fn substitute(&self, f: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        let Dim::Expr(e) = self else {
            return self.clone();
        };
        let mut sum = Dim::ZERO;
        for (m, c) in e.0.iter() {
            let mut product = Dim::Known(*c);
            for a in m {
                let v = match a {
                    Atom::Sym(s) => f(s).unwrap_or_else(|| Dim::from_atom(a.clone())),
                    Atom::FloorDiv(x, y) => x.substitute(f).floor_div(&y.substitute(f)),
                    Atom::Min(x, y) => x.substitute(f).min_with(&y.substitute(f)),
                    Atom::Max(x, y) => x.substitute(f).max_with(&y.substitute(f)),
                };
                product = product * v;
            }
            sum = sum + product;
        }
        sum
    }

    /// The value under `lookup`; `None` when a symbol is missing, a divisor is not positive or
    /// the arithmetic overflows 64 bits.
    pub fn eval(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let e = match self {
            Dim::Known(n) => return Some(*n),
            Dim::Expr(e) => e,
        };
        let mut sum = 0i64;
        for (m, c) in e.0.iter() {
            let mut p = *c;
            for a in m {
                let v = match a {
                    Atom::Sym(s) => lookup(s)?,
                    Atom::FloorDiv(x, y) => {
                        let (x, y) = (x.eval(lookup)?, y.eval(lookup)?);
                        if y <= 0 {
                            return None;
                        }
                        x.div_euclid(y)
                    }
                    Atom::Min(x, y) => x.eval(lookup)?.min(y.eval(lookup)?),
                    Atom::Max(x, y) => x.eval(lookup)?.max(y.eval(lookup)?),
                };
                p = p.checked_mul(v)?;
            }
            sum = sum.checked_add(p)?;
        }
        Some(sum)
    }

    /// Number of symbols and operations: how hard a person finds it to read.
    fn complexity(&self) -> usize {
        self.terms()
            .map(|(_, atoms)| {
                let inner = |a: &Atom| match a {
                    Atom::Sym(_) => 1,
                    Atom::FloorDiv(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                        2 + x.complexity() + y.complexity()
                    }
                };
                1 + atoms.iter().map(inner).sum::<usize>()
            })
            .sum()
    }

    /// Of two extents that are meant to be equal, the one to go on with: a number, else the
    /// simpler form, else `a`.
    pub fn simpler<'a>(a: &'a Dim, b: &'a Dim) -> &'a Dim {
        if b.complexity() < a.complexity() {
            b
        } else {
            a
        }
    }

    /// Product of `dims`; 1 for none.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter().fold(Dim::ONE, |a, d| a * d.clone())
    }
}

impl Atom {
    fn nonneg(&self) -> bool {
        match self {
            Atom::Sym(_) => true,
            Atom::FloorDiv(x, _) => x.provably_nonneg(),
            Atom::Min(x, y) => x.provably_nonneg() && y.provably_nonneg(),
            Atom::Max(x, y) => x.provably_nonneg() || y.provably_nonneg(),
        }
    }
}

/// The term of highest degree, the last in order among those. Unlike the order of the map this
/// one is kept by multiplication, which long division needs.
fn leading(p: &Poly) -> Option<(Vec<Atom>, i64)> {
    p.iter()
        .max_by_key(|(m, _)| (m.len(), *m))
        .map(|(m, c)| (m.clone(), *c))
}

/// A term divided by another, when that is exact.
fn divided(m: &[Atom], c: i64, by: &[Atom], by_c: i64) -> Option<(Vec<Atom>, i64)> {
    c.checked_neg()?;
    if c.checked_rem(by_c)? != 0 {
        return None;
    }
    Some((remove_factors(m, by)?, c.checked_div(by_c)?))
}

fn add_term(p: &mut Poly, m: Vec<Atom>, c: i64) {
    use std::collections::btree_map::Entry;
    match p.entry(m) {
        Entry::Vacant(e) => {
            if c != 0 {
                e.insert(c);
            }
        }
        Entry::Occupied(mut e) => {
            let sum = e.get().saturating_add(c);
            if sum == 0 {
                e.remove();
            } else {
                *e.get_mut() = sum;
            }
        }
    }
}

/// As [`add_term`], copying the atoms only where there is no such term yet.
fn add_ref(p: &mut Poly, m: &[Atom], c: i64) {
    match p.get_mut(m) {
        None => add_term(p, m.to_vec(), c),
        Some(x) => {
            *x = x.saturating_add(c);
            if *x == 0 {
                p.remove(m);
            }
        }
    }
}

fn mul_monomials(a: &[Atom], b: &[Atom]) -> Vec<Atom> {
    let mut m: Vec<Atom> = a.iter().chain(b).cloned().collect();
    m.arrange();
    m
}

fn remove_factors(m: &[Atom], d: &[Atom]) -> Option<Vec<Atom>> {
    let mut left = m.to_vec();
    for f in d {
        let at = left.iter().position(|x| x == f)?;
        left.remove(at);
    }
    Some(left)
}

impl Add for Dim {
    type Output = Dim;
    fn add(self, o: Dim) -> Dim {
        let (mut p, o) = match (self, o) {
            (Dim::Known(a), Dim::Known(b)) => return Dim::Known(a.saturating_add(b)),
            (Dim::Known(0), x) | (x, Dim::Known(0)) => return x,
            (Dim::Known(n), Dim::Expr(e)) => (Dim::Expr(e).into_poly(), Dim::Known(n)),
            (x, o) => (x.into_poly(), o),
        };
        match o {
            Dim::Known(n) => add_term(&mut p, vec![], n),
            Dim::Expr(e) => match Arc::try_unwrap(e.0) {
                Ok(o) => o.into_iter().for_each(|(m, c)| add_term(&mut p, m, c)),
                Err(o) => o.iter().for_each(|(m, c)| add_ref(&mut p, m, *c)),
            },
        }
        Dim::from_poly(p)
    }
}

impl Neg for Dim {
    type Output = Dim;
    fn neg(self) -> Dim {
        self * Dim::Known(-1)
    }
}

impl Sub for Dim {
    type Output = Dim;
    fn sub(self, o: Dim) -> Dim {
        self + -o
    }
}

impl Mul for Dim {
    type Output = Dim;
    fn mul(self, o: Dim) -> Dim {
        let (a, b) = match (self, o) {
            (Dim::Known(a), Dim::Known(b)) => return Dim::Known(a.saturating_mul(b)),
            (Dim::Known(0), _) | (_, Dim::Known(0)) => return Dim::ZERO,
            (Dim::Known(1), x) | (x, Dim::Known(1)) => return x,
            (Dim::Known(n), Dim::Expr(e)) | (Dim::Expr(e), Dim::Known(n)) => {
                let mut p = Dim::Expr(e).into_poly();
                p.values_mut().for_each(|c| *c = c.saturating_mul(n));
                return Dim::from_poly(p);
            }
            (Dim::Expr(a), Dim::Expr(b)) => (a, b),
        };
        let mut p = Poly::new();
        for (ma, ca) in a.0.iter() {
            for (mb, cb) in b.0.iter() {
                add_term(&mut p, mul_monomials(ma, mb), ca.saturating_mul(*cb));
            }
        }
        Dim::from_poly(p)
    }
}

impl From<i64> for Dim {
    fn from(n: i64) -> Dim {
        Dim::Known(n)
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Dim {
        Dim::Known(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = match self {
            Dim::Known(n) => return write!(f, "{n}"),
            Dim::Expr(e) => e,
        };
        // Longest monomials first, the constant last.
        for (i, (m, c)) in e.0.iter().rev().enumerate() {
            let magnitude = c.unsigned_abs();
            match (i, *c < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            if m.is_empty() {
                write!(f, "{magnitude}")?;
                continue;
            }
            if magnitude != 1 {
                write!(f, "{magnitude}*")?;
            }
            for (j, a) in m.iter().enumerate() {
                if j > 0 {
                    f.write_str("*")?;
                }
                match a {
                    Atom::Sym(s) if is_plain(s) => f.write_str(s)?,
                    Atom::Sym(s) => write!(f, "`{s}`")?,
                    Atom::FloorDiv(x, y) => write!(f, "floordiv({x}, {y})")?,
                    Atom::Min(x, y) => write!(f, "min({x}, {y})")?,
                    Atom::Max(x, y) => write!(f, "max({x}, {y})")?,
                }
            }
        }
        Ok(())
    }
}

fn is_plain(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && s.chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for DimExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Dim::Expr(self.clone()), f)
    }
}
