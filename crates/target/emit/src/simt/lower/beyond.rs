//! What tiles hold at positions of a piece that do not exist, so that those who read them need not ask at every element.
//!
//! Lanes of matrix instructions go through whole fragments. Where the last piece of an axis is a part of one, each fold
//! and each product over the axis would choose between an element and what changes nothing. Instead a map's elements
//! beyond the end are set once, and only in a piece that has some: a softmax's scores to minus infinity, of which the
//! maximum, the weights, their sum and their product follow.
use super::state::{At, Beyond, Known, Lower, Result, TileStorage};
use super::walk::Guard;
use crate::simt::ir::Reg;
use expr::{Compare, Monoid, Scalar};
use kernel::{AxisId, Stmt, TileId};
use layout::DType;

/// Values that may change nothing, the best first.
const NEUTRAL: [f64; 2] = [f64::NEG_INFINITY, 0.0];

impl Lower<'_> {
    /// Finds the tiles whose elements beyond an end are worth setting.
    pub(super) fn beyond_ends(&self) -> Beyond {
        let mut out = Beyond::default();
        for g in self.groups.iter().filter(|g| !g.rows) {
            for &(a, _) in g.axes.iter().filter(|(a, _)| !self.axis(*a).full) {
                let Some((t, v, known)) = self.best_set(a) else {
                    continue;
                };
                if out.set.contains_key(&t) {
                    continue;
                }
                out.set.insert(t, (a, v));
                out.known.extend(known);
            }
        }
        out
    }

    /// The tile that most readers gain from where its elements beyond the end of `a` are a value, and what follows.
    fn best_set(&self, a: AxisId) -> Option<(TileId, f64, Known)> {
        let mut best: Option<(usize, (TileId, f64, Known))> = None;
        for s in &self.kernel.body {
            let Stmt::Map { dst, .. } = s else { continue };
            let tile = &self.kernel.tiles[*dst as usize];
            let makers = self.kernel.body.iter();
            let makers = makers.filter(|s| s.writes().contains(dst)).count();
            if !self.is_held(self.held_of(*dst))
                || makers > 1
                || !tile.axes.contains(&a)
                || tile.dtype != DType::F32
            {
                continue;
            }
            for v in NEUTRAL {
                let known = self.following(*dst, a, v);
                let gain = self
                    .kernel
                    .body
                    .iter()
                    .map(|s| self.gains(s, a, &known))
                    .sum();
                if gain > best.as_ref().map_or(0, |b| b.0) {
                    best = Some((gain, (*dst, v, known)));
                }
            }
        }
        best.map(|b| b.1)
    }

    fn is_held(&self, t: TileId) -> bool {
        matches!(*self.homes[t as usize], TileStorage::Held { .. })
    }

    /// The tile that threads hold of `t`: it, or what it is a multiple of where it is computed anew.
    pub(super) fn held_of(&self, t: TileId) -> TileId {
        self.scaled_of(t).map_or(t, |s| s.0)
    }

    /// What a tile that is computed anew is a multiple of, with the factor ([`kernel::scaled`]).
    pub(super) fn scaled_of(&self, t: TileId) -> Option<(TileId, f64)> {
        match *self.homes[t as usize] {
            TileStorage::Formula(_) => kernel::scaled(self.kernel, t),
            _ => None,
        }
    }

    /// What elements beyond the end of `a` are where those of `t` are `v`.
    fn following(&self, t: TileId, a: AxisId, v: f64) -> Known {
        let mut known = Known::from([((t, a), Scalar::Float(v))]);
        for s in &self.kernel.body {
            let Stmt::Map { dst, expr, args } = s else {
                continue;
            };
            let of = |t: &TileId| known.get(&(*t, a)).copied();
            let given: Vec<Option<Scalar>> = args.iter().map(of).collect();
            if *dst != t
                && given.iter().any(Option::is_some)
                && let [Some(made)] = expr.eval_known(&given)[..]
            {
                known.insert((*dst, a), made);
            }
        }
        known
    }

    /// How many choices of an element a statement is spared.
    fn gains(&self, s: &Stmt, a: AxisId, known: &Known) -> usize {
        let zero = |t: &TileId| is_zero(known.get(&(*t, a)));
        match s {
            Stmt::Fold {
                monoid, args, over, ..
            } => usize::from(over.contains(&a) && changes_nothing(monoid, args, a, known)),
            Stmt::Contract {
                a: x, b: y, over, ..
            } if over.contains(&a) => {
                let left =
                    |t: &&TileId| !matches!(*self.homes[**t as usize], TileStorage::Shared(_));
                [x, y].into_iter().filter(left).filter(|t| zero(t)).count()
            }
            _ => 0,
        }
    }

    /// Whether elements of `args` beyond the end of `a` change nothing in a fold.
    pub(super) fn folds_beyond(&self, m: &Monoid, args: &[TileId], a: AxisId) -> bool {
        changes_nothing(m, args, a, &self.beyond.known)
    }

    /// Whether elements of a tile beyond the end of `a` are 0.
    pub(super) fn zero_beyond(&self, t: TileId, a: AxisId) -> bool {
        is_zero(self.beyond.known.get(&(t, a)))
    }

    /// Whether the position exists along all of `axes` but those along which `certain` says that it does not matter.
    pub(super) fn exists_but(
        &mut self,
        axes: &[AxisId],
        at: &At,
        certain: impl Fn(&Self, AxisId) -> bool,
    ) -> Option<Reg> {
        let asked: Vec<AxisId> = axes
            .iter()
            .copied()
            .filter(|a| !certain(self, *a))
            .collect();
        self.exists(&asked, at)
    }

    /// Sets what is beyond the end of the tile that a map made, in a piece that goes beyond it.
    pub(super) fn set_beyond(&mut self, t: TileId) -> Result<()> {
        let Some(&(a, v)) = self.beyond.set.get(&t) else {
            return Ok(());
        };
        let axis = self.axis(a).clone();
        let Some(bound) = axis.bound else {
            return Ok(());
        };
        let bound = self.b.int(bound);
        let part = self.b.compare(Compare::Lt, axis.len, bound);
        // Both values are multiples of themselves.
        let t = self.held_of(t);
        let axes = self.kernel.tiles[t as usize].axes.clone();
        let unrolled = self.unrolled(&[t]);
        // Said by what is left of the axis, positions are compared here and nowhere else.
        let extent = self.kernel.axes[a as usize].extent.clone();
        let extent = self.b.dim(&extent, crate::simt::ir::Ty::I32);
        let done = self.guarded(Some(part), |l| {
            l.axes[a as usize].len = l.b.sub(extent, axis.base);
            l.walk(&axes, &unrolled, Guard::Carry, l.origin(), &mut |l, at| {
                let Some(exists) = at.valid[a as usize] else {
                    return Ok(());
                };
                let x = l.value(t, at)?;
                let none = l.b.float(v, l.b.ty(x));
                let x = l.b.select(exists, x, none);
                l.put(t, at, x)
            })
        });
        self.axes[a as usize].len = axis.len;
        done
    }
}

fn is_zero(v: Option<&Scalar>) -> bool {
    v.is_some_and(|v| v.as_f64() == 0.0)
}

/// Whether a fold of elements that are beyond the end of `a` leaves a state of no elements as it is.
fn changes_nothing(m: &Monoid, args: &[TileId], a: AxisId, known: &Known) -> bool {
    let given: Vec<_> = args.iter().map(|t| known.get(&(*t, a)).copied()).collect();
    let lifted = m.lift.eval_known(&given);
    let identity = m.identity.eval_known(&[]);
    let same = |(x, y): (&Option<Scalar>, &Option<Scalar>)| match (x, y) {
        (Some(x), Some(y)) => x.same_bits(*y),
        _ => false,
    };
    !lifted.is_empty() && lifted.iter().zip(&identity).all(same)
}
