//! Going over the positions that a thread has.
use super::state::{At, Lower, Result, Run};
use crate::simt::ir::{Inst, Reg};
use expr::{Binary, Compare};
use kernel::{AxisId, MOST_NEIGHBOURS};
use layout::Dim;
use std::collections::BTreeSet;

/// What is done about positions that may not exist.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Guard {
    /// They are left out.
    Skip,
    /// They are gone through like others, loads from outside give 0; positions beyond the piece's
    /// bound are left out.
    Carry,
    /// As [`Guard::Carry`], but positions beyond the piece's bound stand for its last one: nothing is
    /// left out, for what all threads must come by.
    Clamp,
}

/// Numbers of neighbours that are touched at once, the best first.
const NEIGHBOURS: [i64; 5] = [MOST_NEIGHBOURS as i64, 16, 8, 4, 2];

/// Unrolled iterations that are worth it without need.
const SHORT: i64 = 4;

impl Lower<'_> {
    /// Calls `f` at every position of the current pieces of `axes` that this thread has, outermost
    /// axis first. Axes in `unrolled` get their numbers among the thread's own.
    pub fn walk(
        &mut self,
        axes: &[AxisId],
        unrolled: &BTreeSet<AxisId>,
        guard: Guard,
        at: At,
        f: &mut dyn FnMut(&mut Self, &At) -> Result<()>,
    ) -> Result<()> {
        let Some((&a, rest)) = axes.split_first() else {
            return f(self, &at);
        };
        let i = a as usize;
        if let Some(g) = self.group_of(a) {
            return self.walk_group(g, axes, unrolled, guard, &at, f);
        }
        let axis = self.axes[i].clone();
        let (count, each) = (i64::from(axis.spread.count), i64::from(axis.spread.each));
        let own = axis.own();
        let each_reg = self.b.int(each);
        let first = self.b.mul(axis.thread, each_reg);
        let (Some(own), Some(bound)) = (own, axis.bound) else {
            if unrolled.contains(&a) {
                let name = &self.kernel.axes[i].name;
                return self.fail(
                    "register tile",
                    format!("axis '{name}' is not cut and its extent is symbolic, so that no register tile can have it; cut it, or place the tile elsewhere"),
                );
            }
            return self.walk_loop(a, rest, unrolled, guard, at, f);
        };
        if !unrolled.contains(&a) && own > SHORT.max(each) {
            return self.walk_loop(a, rest, unrolled, guard, at, f);
        }
        // Neighbours of a thread of which all or none exist are gone through together.
        let wide = self.neighbours(a, bound, guard);
        for slot in (0..own).step_by(wide as usize) {
            let part = slot / each * (count * each) + slot % each;
            let last = part + (count - 1) * each;
            let part_reg = self.b.int(part);
            let p = self.b.add(first, part_reg);
            let mut next = at.clone();
            next.coord[i] = self.b.add(axis.base, p);
            next.slot[i] = Some(slot);
            let certain = last < bound;
            let exists = match certain && axis.full {
                true => None,
                false => Some(self.b.compare(Compare::Lt, p, axis.len)),
            };
            let skip = match guard {
                Guard::Skip => exists,
                Guard::Clamp => {
                    next.valid[i] = exists;
                    if !certain {
                        let end = self.b.int(bound - wide);
                        let p = self.b.binary(Binary::Min, p, end);
                        next.coord[i] = self.b.add(axis.base, p);
                    }
                    None
                }
                Guard::Carry => {
                    next.valid[i] = exists;
                    let end = self.b.int(bound);
                    (!certain).then(|| self.b.compare(Compare::Lt, p, end))
                }
            };
            self.guarded(skip, |l| {
                l.walk_neighbours((a, wide, p), rest, (unrolled, guard), next, f)
            })?;
        }
        Ok(())
    }

    /// [`Lower::walk`] along `rest` at `wide` neighbours along an axis, of which `first` is the first: position `p`
    /// of the piece, or what stands for it.
    fn walk_neighbours(
        &mut self,
        (a, wide, p): (AxisId, i64, Reg),
        rest: &[AxisId],
        (unrolled, guard): (&BTreeSet<AxisId>, Guard),
        first: At,
        f: &mut dyn FnMut(&mut Self, &At) -> Result<()>,
    ) -> Result<()> {
        if wide == 1 {
            return self.walk(rest, unrolled, guard, first, f);
        }
        let i = a as usize;
        let start = (first.coord[i], first.valid[i]);
        for number in 0..wide {
            let mut next = first.clone();
            let by = self.b.int(number);
            next.coord[i] = self.b.add(start.0, by);
            next.slot[i] = first.slot[i].map(|s| s + number);
            if number > 0 && first.valid[i].is_some() && !self.whole(a, wide) {
                let own = self.b.add(p, by);
                let len = self.axes[i].len;
                next.valid[i] = Some(self.b.compare(Compare::Lt, own, len));
            }
            next.runs.push(Run {
                axis: a,
                number,
                of: wide,
                first: start,
                innermost: rest.is_empty(),
            });
            self.walk(rest, unrolled, guard, next, f)?;
        }
        Ok(())
    }

    /// Whether of so many neighbours along an axis all or none exist.
    pub fn whole(&self, a: AxisId, wide: i64) -> bool {
        let extent = &self.kernel.axes[a as usize].extent;
        self.axis(a).full || extent.exact_div(&Dim::Known(wide)).is_some()
    }

    /// How many neighbours along an axis a thread has that may be touched at once, and of which none is left out
    /// alone; `bound` is the number of positions of a piece.
    fn neighbours(&self, a: AxisId, bound: i64, guard: Guard) -> i64 {
        let each = i64::from(self.axis(a).spread.each);
        let fits = |n: &i64| {
            let together = (guard != Guard::Skip && *n <= 4) || self.whole(a, *n);
            each % n == 0 && bound % n == 0 && together
        };
        NEIGHBOURS.into_iter().find(fits).unwrap_or(1)
    }

    /// [`Lower::walk`] along the axes of a group. What may not exist is not left out: it would be jumped over
    /// for every fragment.
    fn walk_group(
        &mut self,
        group: usize,
        axes: &[AxisId],
        unrolled: &BTreeSet<AxisId>,
        guard: Guard,
        at: &At,
        f: &mut dyn FnMut(&mut Self, &At) -> Result<()>,
    ) -> Result<()> {
        let g = &self.groups[group];
        if let Some((a, _)) = g.axes.iter().find(|(a, n)| *n > 1 && !axes.contains(a)) {
            let name = &self.kernel.axes[*a as usize].name;
            return self.fail(
                "axes of a value",
                format!("axis '{name}' is missing where its rows or columns are gone through"),
            );
        }
        let rest: Vec<AxisId> = axes
            .iter()
            .copied()
            .filter(|a| self.group_of(*a) != Some(group))
            .collect();
        for slot in 0..self.groups[group].slots {
            let mut next = self.slot(group, slot, at);
            for run in &mut next.runs {
                run.innermost &= rest.is_empty();
            }
            self.walk(&rest, unrolled, guard, next, f)?;
        }
        Ok(())
    }

    /// Whether the position exists along all of `axes`, where that is not certain.
    pub fn exists(&mut self, axes: &[AxisId], at: &At) -> Option<Reg> {
        axes.iter().fold(None, |all, &a| {
            let one = at.valid[a as usize];
            self.b.both(all, one)
        })
    }

    /// `f` where `cond` holds.
    pub fn guarded(
        &mut self,
        cond: Option<Reg>,
        f: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let Some(cond) = cond.filter(|&c| self.b.number(c) != Some(1)) else {
            return f(self);
        };
        self.b.open();
        f(self)?;
        let body = self.b.close();
        if self.b.number(cond) != Some(0) && !body.is_empty() {
            self.b.push(Inst::If { cond, body });
        }
        Ok(())
    }

    /// A loop over the thread's own positions, which all exist; an innermost one is written out as often
    /// as the mapping says.
    fn walk_loop(
        &mut self,
        a: AxisId,
        rest: &[AxisId],
        unrolled: &BTreeSet<AxisId>,
        guard: Guard,
        at: At,
        f: &mut dyn FnMut(&mut Self, &At) -> Result<()>,
    ) -> Result<()> {
        let index = a as usize;
        let axis = self.axes[index].clone();
        let (count, each) = (i64::from(axis.spread.count), i64::from(axis.spread.each));
        let each_reg = self.b.int(each);
        let from = self.b.mul(axis.thread, each_reg);
        let round = count * each;
        let wide = self.neighbours(a, axis.bound.unwrap_or(1), Guard::Skip);
        let i = self.b.open_loop();
        let mut times = 1;
        let mut n = 0;
        while n < times {
            for e in (0..each).step_by(wide as usize) {
                let by = self.b.int(n * round + e);
                let p = self.b.add(i, by);
                let whole = if n == 0 { each } else { times * round };
                let first = n == 0 && e == 0;
                let exists = match axis.full && axis.bound.is_some_and(|b| b % whole == 0) || first
                {
                    true => None,
                    false => Some(self.b.compare(Compare::Lt, p, axis.len)),
                };
                let mut next = at.clone();
                next.coord[index] = self.b.add(axis.base, p);
                next.slot[index] = None;
                self.guarded(exists, |l| {
                    l.walk_neighbours((a, wide, p), rest, (unrolled, guard), next, f)
                })?;
            }
            if n == 0 && self.b.is_straight() {
                // Not more often than there is something to do.
                let most = axis.own().map_or(i64::MAX, |own| (own / each).max(1));
                times = i64::from(self.map.unroll).min(most);
            }
            n += 1;
        }
        let step = self.b.int(times * round);
        self.b.close_loop(i, (from, axis.len, step));
        Ok(())
    }
}
