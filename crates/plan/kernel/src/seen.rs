//! Which positions of an axis matter: those that a mask hides from every row of a task need not be gone through.
//!
//! It is read off a kernel's programs. Where an affine condition on coordinates holds, all that the statements along
//! an axis add to what they accumulate over it may be the identity: minus infinity for a maximum, weights of 0 for a
//! sum. Such positions are hidden. Nothing that is stored says so, so that no file can say it wrongly.
//!
//! What a hidden position holds counts as finite: it may be read (in a piece that is seen in part) or not. A value
//! that is infinite or no number may reach a row that does not see it in the first case, as 0 times that value.
use crate::{AxisId, AxisTile, Kernel, Stmt, TileId};
use expr::{Binary, Compare, Expr, Inst, Monoid, Scalar, Unary};
use layout::{DType, Dim};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Numbers in an edge at most: coordinates are computed in 32 bits.
const MOST: i64 = 1 << 30;
/// What an extent that is a symbol is taken to be at most, before a number that its coordinates are multiplied by.
const USUAL: i64 = 1 << 20;

/// A position along one axis that depends on coordinates along others: `base + sum(coefficient * coordinate)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// Axes with their coefficients, whose signs are known.
    pub terms: Vec<(AxisId, Dim)>,
    /// The rest.
    pub base: Dim,
}

impl Edge {
    /// Whether the edge lies further on where the coordinate of a term does.
    pub fn grows(coefficient: &Dim) -> bool {
        coefficient.provably_nonneg()
    }

    /// The edge's last position for coordinates within `span` (first and last along an axis), or its first one.
    fn reach(
        &self,
        last: bool,
        lookup: &dyn Fn(&str) -> Option<i64>,
        span: &dyn Fn(AxisId) -> (i64, i64),
    ) -> Option<i64> {
        let base = self.base.eval(lookup)?;
        self.terms.iter().try_fold(base, |sum, (axis, c)| {
            let (low, high) = span(*axis);
            let at = if Edge::grows(c) == last { high } else { low };
            sum.checked_add(c.eval(lookup)?.checked_mul(at)?)
        })
    }
}

/// The positions of an axis that matter: those at or after every edge of `from` and before every edge of `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seen {
    /// Where they begin; nothing: at the first.
    pub from: Vec<Edge>,
    /// Where they end, exclusive; nothing: behind the last.
    pub to: Vec<Edge>,
}

impl Seen {
    /// Whether all positions matter.
    pub fn is_all(&self) -> bool {
        self.from.is_empty() && self.to.is_empty()
    }

    /// The first position of `extent` that any row within `span` (first and last coordinate along an axis) sees, and
    /// the one behind the last; `None` where a dimension has no value. Edges of several conditions are taken one by
    /// one, so that there may be more between than are seen.
    pub fn range(
        &self,
        extent: i64,
        lookup: &dyn Fn(&str) -> Option<i64>,
        span: &dyn Fn(AxisId) -> (i64, i64),
    ) -> Option<(i64, i64)> {
        let (mut first, mut end) = (0, extent);
        for e in &self.from {
            first = first.max(e.reach(false, lookup, span)?);
        }
        for e in &self.to {
            end = end.min(e.reach(true, lookup, span)?);
        }
        Some((first, end.max(0)))
    }

    /// The same in pieces of `tile` positions: the first piece, and how many there are from it on.
    pub fn pieces(&self, tile: i64, (first, end): (i64, i64)) -> (i64, i64) {
        let (tile, first) = (tile.max(1), first.max(0) / tile.max(1));
        let end = end.max(0) / tile + i64::from(end > 0 && end % tile > 0);
        (first, (end - first).max(0))
    }
}

fn small(n: i64) -> bool {
    (-MOST..=MOST).contains(&n)
}

/// A sum of coordinates.
#[derive(Clone, Debug, PartialEq)]
struct Affine {
    terms: BTreeMap<AxisId, Dim>,
    base: Dim,
}

impl Affine {
    fn of(base: Dim) -> Affine {
        Affine {
            terms: BTreeMap::new(),
            base,
        }
    }

    /// `self + factor * o`.
    fn plus(&self, factor: &Dim, o: &Affine) -> Affine {
        let mut sum = self.clone();
        sum.base = self.base.clone() + factor.clone() * o.base.clone();
        for (a, c) in &o.terms {
            let own = sum.terms.entry(*a).or_insert(Dim::ZERO);
            *own = own.clone() + factor.clone() * c.clone();
        }
        sum.terms.retain(|_, c| !c.is_zero());
        sum
    }

    fn minus(&self, o: &Affine) -> Affine {
        self.plus(&Dim::Known(-1), o)
    }

    fn negative(&self) -> Affine {
        Affine::of(Dim::ZERO).minus(self)
    }

    /// It, unless its numbers leave what coordinates are computed in.
    fn small(self) -> Value {
        let fits = |d: &Dim| d.terms().all(|(c, _)| small(c));
        match self.terms.values().all(fits) && fits(&self.base) {
            true => Value::Sum(self),
            false => Value::Unknown,
        }
    }

    /// The number that it is, without coordinates.
    fn number(&self) -> Option<Dim> {
        self.terms.is_empty().then(|| self.base.clone())
    }

    /// The remainder by `m` where what is left of multiples of it is known to be less: a coordinate of an axis that has
    /// no more positions.
    fn modulo(&self, m: &Dim, k: &Kernel) -> Option<Affine> {
        if m.is_zero() {
            return None;
        }
        let mut rest = self.clone();
        rest.terms.retain(|_, c| c.exact_div(m).is_none());
        if rest.base.exact_div(m).is_some() {
            rest.base = Dim::ZERO;
        }
        let one = rest.terms.iter().next();
        let fits = match (rest.terms.len(), one) {
            (0, _) => rest.base.is_zero(),
            (1, Some((a, c))) => {
                let extent = &k.axes.get(*a as usize)?.extent;
                c.is_one() && rest.base.is_zero() && extent.provably_le(m)
            }
            _ => false,
        };
        fits.then_some(rest)
    }
}

/// What is known of a value where a condition holds.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Unknown,
    Sum(Affine),
    Known(Scalar),
}

impl Value {
    fn known(s: Scalar) -> Value {
        match s {
            Scalar::Int(n) if !small(n) => Value::Unknown,
            s => Value::Known(s),
        }
    }

    fn truth(t: Option<bool>) -> Value {
        t.map_or(Value::Unknown, |t| Value::Known(Scalar::truth(t)))
    }

    /// As a constant of type `d`.
    fn scalar(&self) -> Option<Scalar> {
        match self {
            Value::Known(s) => Some(*s),
            Value::Sum(a) => Some(Scalar::Int(a.number()?.known()?)),
            Value::Unknown => None,
        }
    }

    fn sum(&self) -> Option<Affine> {
        match self {
            Value::Sum(a) => Some(a.clone()),
            Value::Known(Scalar::Int(n)) => Some(Affine::of(Dim::Known(*n))),
            _ => None,
        }
    }

    fn is_zero(&self) -> bool {
        self.scalar().is_some_and(|s| s.as_f64() == 0.0)
    }
}

/// A comparison of sums of coordinates: which, and the difference of both sides.
type Found = (Compare, Affine);

/// Programs under a condition.
struct Under<'a> {
    kernel: &'a Kernel,
    /// Not below 0.
    condition: Option<&'a Affine>,
    /// Comparisons that were met.
    found: Vec<Found>,
}

impl Under<'_> {
    /// Outputs of `e` for arguments of these values; `indexed`: coordinates are those of the kernel's axes.
    fn outputs(&mut self, e: &Expr, args: &[Value], indexed: bool) -> Option<Vec<Value>> {
        let types = e.types().ok()?;
        let mut v: Vec<Value> = Vec::with_capacity(e.insts.len());
        for inst in &e.insts {
            let x = self.inst(inst, &types, &v, args, indexed);
            v.push(x);
        }
        e.outputs
            .iter()
            .map(|&o| v.get(o as usize).cloned())
            .collect()
    }

    fn inst(
        &mut self,
        inst: &Inst,
        types: &[DType],
        v: &[Value],
        args: &[Value],
        indexed: bool,
    ) -> Value {
        let at = |r: u32| &v[r as usize];
        let ty = |r: u32| types[r as usize];
        match inst {
            Inst::Input { slot, .. } => args.get(*slot as usize).cloned().unwrap_or(Value::Unknown),
            Inst::Float { bits, dtype } => {
                Value::Known(Scalar::Float(f64::from_bits(*bits)).of(*dtype))
            }
            Inst::Int { value, dtype } => Value::known(Scalar::Int(*value).of(*dtype)),
            Inst::Index { axis } if indexed => match AxisId::try_from(*axis) {
                Ok(a) => Value::Sum(Affine {
                    terms: BTreeMap::from([(a, Dim::ONE)]),
                    base: Dim::ZERO,
                }),
                Err(_) => Value::Unknown,
            },
            Inst::Index { .. } => Value::Unknown,
            Inst::Dim(d) => Affine::of(d.clone()).small(),
            Inst::Unary(f, a) => match (at(*a).scalar(), at(*a).sum(), f) {
                (Some(s), _, _) => Value::known(s.unary(*f, ty(*a))),
                (None, Some(x), Unary::Neg) => Value::Sum(x.negative()),
                _ => Value::Unknown,
            },
            Inst::Binary(f, a, b) => self.binary(*f, at(*a), at(*b), ty(*a)),
            Inst::Compare(f, a, b) => match (at(*a).scalar(), at(*b).scalar()) {
                (Some(x), Some(y)) => Value::truth(Some(x.compare(*f, y, ty(*a)))),
                _ => match (at(*a).sum(), at(*b).sum()) {
                    (Some(x), Some(y)) => Value::truth(self.compare(*f, x.minus(&y))),
                    _ => Value::Unknown,
                },
            },
            Inst::Select(c, a, b) => match at(*c).scalar() {
                Some(c) if c.as_i64() != 0 => at(*a).clone(),
                Some(_) => at(*b).clone(),
                None if at(*a) == at(*b) => at(*a).clone(),
                None => Value::Unknown,
            },
            Inst::Cast(a, to) => match (at(*a).scalar(), at(*a).sum()) {
                (Some(s), _) => Value::known(s.cast(ty(*a), *to)),
                // In fewer bits it may be another number.
                (None, Some(x)) if *to == DType::I64 => Value::Sum(x),
                _ => Value::Unknown,
            },
        }
    }

    fn binary(&self, f: Binary, a: &Value, b: &Value, dtype: DType) -> Value {
        if let (Some(x), Some(y)) = (a.scalar(), b.scalar()) {
            return Value::known(x.binary(f, y, dtype));
        }
        let low = Value::Known(Scalar::Float(f64::NEG_INFINITY));
        let either = |n: i64| {
            [a, b]
                .into_iter()
                .any(|v| v.scalar() == Some(Scalar::Int(n)))
        };
        match f {
            // What is hidden counts as finite.
            Binary::Add if dtype.is_float() && (*a == low || *b == low) => return low,
            Binary::And if dtype == DType::Bool && either(0) => return Value::truth(Some(false)),
            Binary::Or if dtype == DType::Bool && either(1) => return Value::truth(Some(true)),
            _ => {}
        }
        let (Some(x), Some(y), DType::I64) = (a.sum(), b.sum(), dtype) else {
            return Value::Unknown;
        };
        let made = match f {
            Binary::Add => Some(x.plus(&Dim::ONE, &y)),
            Binary::Sub => Some(x.minus(&y)),
            Binary::Mul => match (x.number(), y.number()) {
                (Some(n), _) => Some(Affine::of(Dim::ZERO).plus(&n, &y)),
                (_, Some(n)) => Some(Affine::of(Dim::ZERO).plus(&n, &x)),
                _ => None,
            },
            Binary::Mod => y.number().and_then(|m| x.modulo(&m, self.kernel)),
            _ => None,
        };
        made.map_or(Value::Unknown, Affine::small)
    }

    /// Whether a difference compares so with 0, as far as the condition tells.
    fn compare(&mut self, f: Compare, d: Affine) -> Option<bool> {
        let number = d.number();
        let (mut low, mut high) = (number.clone(), number);
        if let Some(c) = self.condition {
            low = low.or_else(|| d.minus(c).number());
            let below = d.negative().minus(c).number();
            high = high.or_else(|| below.map(|n| -n));
        }
        let least = |n: i64| low.as_ref().is_some_and(|l| Dim::Known(n).provably_le(l));
        let most = |n: i64| high.as_ref().is_some_and(|h| h.provably_le(&Dim::Known(n)));
        let (yes, no) = match f {
            Compare::Lt => (most(-1), least(0)),
            Compare::Le => (most(0), least(1)),
            Compare::Gt => (least(1), most(0)),
            Compare::Ge => (least(0), most(-1)),
            Compare::Eq => (least(0) && most(0), least(1) || most(-1)),
            Compare::Ne => (least(1) || most(-1), least(0) && most(0)),
        };
        self.found.push((f, d));
        match (yes, no) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    /// Whether `lift` makes the monoid's identity of `args`.
    fn lifts_nothing(&mut self, monoid: &Monoid, args: &[Value]) -> bool {
        let lifted = self.outputs(&monoid.lift, args, false);
        let none = self.outputs(&monoid.identity, &[], false);
        let (Some(lifted), Some(none)) = (lifted, none) else {
            return false;
        };
        let same = |(a, b): (&Value, &Value)| a.scalar().is_some() && a.scalar() == b.scalar();
        lifted.len() == none.len() && lifted.iter().zip(&none).all(same)
    }

    /// Whether positions along `axis` change nothing outside it where the condition holds.
    fn neutral(&mut self, axis: AxisId) -> bool {
        let k = self.kernel;
        let along = |t: TileId| k.tiles[t as usize].axes.contains(&axis);
        let writers = |t: TileId| k.body.iter().filter(|s| s.writes().contains(&t)).count();
        let mut tiles = vec![Value::Unknown; k.tiles.len()];
        let mut neutral = true;
        for s in &k.body {
            let of = |list: &[TileId], tiles: &[Value]| -> Vec<Value> {
                list.iter().map(|&t| tiles[t as usize].clone()).collect()
            };
            let (mut made, over) = (Value::Unknown, s.over().contains(&axis));
            let keeps = match s {
                Stmt::Load { dst, .. } => along(*dst) || !over,
                Stmt::Store { src, .. } => !along(*src),
                Stmt::Map { expr, args, dst } => {
                    let out = self.outputs(expr, &of(args, &tiles), true);
                    // Others of its values hold at other times.
                    if along(*dst) || writers(*dst) == 1 {
                        made = out.and_then(|o| o.into_iter().next()).unwrap_or(made);
                    }
                    true
                }
                Stmt::Relabel { dst, src, .. } => {
                    let apart = !over && along(*src) == along(*dst);
                    if let Value::Known(_) = tiles[*src as usize] {
                        made = tiles[*src as usize].clone();
                    }
                    apart
                }
                Stmt::Contract { a, b, .. } => {
                    !over || of(&[*a, *b], &tiles).iter().any(Value::is_zero)
                }
                Stmt::Fold { monoid, args, .. } => {
                    !over || self.lifts_nothing(monoid, &of(args, &tiles))
                }
            };
            neutral &= keeps;
            for t in s.writes() {
                tiles[t as usize] = made.clone();
            }
        }
        neutral
    }
}

impl Kernel {
    /// Whether every task has as many pieces in `loops`: no mask hides some.
    pub fn has_alike_tasks(&self, loops: &[AxisTile]) -> bool {
        loops.iter().all(|l| self.seen(l.axis).is_all())
    }

    /// The positions along `axis` that matter to rows at given coordinates along the other axes, as far as conditions
    /// in its programs tell.
    pub fn seen(&self, axis: AxisId) -> Seen {
        let mut seen = Seen::default();
        let folds = |s: &Stmt| matches!(s, Stmt::Fold { over, .. } | Stmt::Contract { over, .. } if over.contains(&axis));
        let names = |s: &Stmt| match s {
            Stmt::Map { expr, .. } => expr.insts.contains(&Inst::Index { axis: axis.into() }),
            _ => false,
        };
        if !self.body.iter().any(folds) || !self.body.iter().any(names) {
            return seen;
        }
        let mut all = Under {
            kernel: self,
            condition: None,
            found: vec![],
        };
        all.neutral(axis);
        let mut tried: Vec<Affine> = vec![];
        for (f, d) in all.found {
            // Either may hold where the position is hidden.
            let one = Affine::of(Dim::ONE);
            let (below, above) = (d.negative(), d.clone());
            let conditions = match f {
                Compare::Lt | Compare::Ge => [below.minus(&one), above],
                Compare::Le | Compare::Gt => [below, above.minus(&one)],
                Compare::Eq | Compare::Ne => continue,
            };
            for c in conditions {
                if tried.contains(&c) {
                    continue;
                }
                let mut under = Under {
                    kernel: self,
                    condition: Some(&c),
                    found: vec![],
                };
                let own = c.terms.get(&axis).and_then(Dim::known);
                if own.is_some_and(|n| n == 1 || n == -1) && under.neutral(axis) {
                    self.edge(axis, &c, &mut seen);
                }
                tried.push(c);
            }
        }
        seen
    }

    /// Adds the edge behind which, or before which, positions along `axis` have `hidden` not below 0.
    fn edge(&self, axis: AxisId, hidden: &Affine, seen: &mut Seen) {
        let mut rest = hidden.clone();
        let ends = rest.terms.remove(&axis).is_some_and(|c| c.is_one());
        let rest = match ends {
            // axis + rest >= 0
            true => rest.negative(),
            // rest - axis >= 0
            false => rest.plus(&Dim::ONE, &Affine::of(Dim::ONE)),
        };
        let signed = |c: &Dim| c.provably_nonneg() || (-c.clone()).provably_nonneg();
        let fits = |(a, c): (&AxisId, &Dim)| {
            let extent = self
                .axes
                .get(usize::from(*a))
                .and_then(|a| a.extent.known());
            let most = c.known().map(|c| c.saturating_mul(extent.unwrap_or(USUAL)));
            signed(c) && most.is_none_or(small)
        };
        let base = rest.base;
        if !rest.terms.iter().all(fits) {
            return;
        }
        // One that hides nothing.
        let extent = &self.axes[axis as usize].extent;
        let idle = match ends {
            true => rest.terms.is_empty() && extent.provably_le(&base),
            false => rest.terms.is_empty() && base.provably_le(&Dim::ZERO),
        };
        if idle {
            return;
        }
        let edge = Edge {
            terms: rest.terms.into_iter().collect(),
            base,
        };
        match ends {
            true => seen.to.push(edge),
            false => seen.from.push(edge),
        }
    }
}
