//! Axes that the lanes of matrix instructions have together: an accumulator's rows, and its columns.
//!
//! Of an accumulator fragment lane `l` has rows `l / 4` and eight further on, and columns `2 (l % 4)` and
//! the next; a warp's fragments follow each other along both, and warps lie along both.
use super::state::{At, Lower, Result, Run};
use crate::simt::ir::Reg;
use expr::{Binary, Compare};
use kernel::{AxisId, Stmt, TileId};
use layout::Arrange;

/// Lanes along the columns, and along the rows, of a fragment.
pub(super) const LANES: [u32; 2] = [4, 8];
/// Rows of a fragment's half, and columns of a block of fragments.
const BLOCK: i64 = 8;

/// Axes that are numbered as one, and how that number lies over threads.
pub(super) struct Group {
    /// Axes with their positions per tile, outermost first.
    pub axes: Vec<(AxisId, i64)>,
    /// Whether they are rows.
    pub rows: bool,
    /// Positions that a thread has.
    pub slots: i64,
    /// Positions that a warp has.
    pub warp: i64,
    /// This thread's first position.
    start: Reg,
}

impl Group {
    /// Position of a thread's own number `slot`, from its first on.
    fn shift(&self, slot: i64) -> i64 {
        match self.rows {
            true => slot * BLOCK,
            false => slot / 2 * BLOCK + slot % 2,
        }
    }
}

impl Lower<'_> {
    /// An axis that has one position per tile and is neither row nor column.
    fn uniform(&self, a: AxisId) -> bool {
        let laid = self.map.rows.contains(&a) || self.map.columns.contains(&a);
        !laid && self.schedule.tile(a) == Some(1)
    }

    /// Column axes of an accumulator, in the order of the mapping where that names them all.
    fn columns_of(&self, tile: TileId) -> Vec<AxisId> {
        let axes = self.kernel.tiles[tile as usize].axes.iter().copied();
        let mut columns: Vec<AxisId> = axes
            .filter(|a| !self.map.rows.contains(a) && !self.uniform(*a))
            .collect();
        let place = |a: &AxisId| self.map.columns.iter().position(|c| c == a);
        if columns.iter().all(|a| place(a).is_some()) {
            columns.arrange_by_key(place);
        }
        columns
    }

    /// Finds the rows of the mapping and the columns of every accumulator.
    pub fn groups(&mut self) -> Result<()> {
        self.group(self.map.rows.clone(), true)?;
        for s in &self.kernel.body {
            let Stmt::Contract { acc, .. } = s else {
                continue;
            };
            self.at = format!("columns of '{}'", self.tile_name(*acc));
            let columns = self.columns_of(*acc);
            let known = |g: &Group| {
                let axes = g.axes.iter().map(|a| &a.0);
                !g.rows && axes.eq(&columns)
            };
            if !self.groups.iter().any(known) {
                self.group(columns, false)?;
            }
        }
        Ok(())
    }

    fn group(&mut self, axes: Vec<AxisId>, rows: bool) -> Result<()> {
        let warps = i64::from(self.map.warps[usize::from(!rows)].max(1));
        let mut sized = vec![];
        let mut size = 1i64;
        for a in axes {
            if self.axis(a).group.is_some() {
                let name = &self.kernel.axes[a as usize].name;
                return self.fail(
                    "rows and columns",
                    format!("axis '{name}' is among rows or columns of two kinds"),
                );
            }
            let n = self.bound(a)?;
            size = size.saturating_mul(n);
            sized.push((a, n));
        }
        let warp = size / warps;
        let what = if rows { "rows" } else { "columns" };
        if warp % 16 != 0 || warp.count_ones() != 1 || warp * warps != size {
            let rule = if rows {
                "rows of a warp"
            } else {
                "columns of a warp"
            };
            return self.fail(
                rule,
                format!("{size} {what} over {warps} warps; a power of two of at least 16 per warp has fragments"),
            );
        }
        let (lane, number) = (self.lane(), self.warp_number(rows));
        let b = &mut self.b;
        let first = if rows {
            let two = b.int(2);
            b.binary(Binary::Shr, lane, two)
        } else {
            let (mask, two) = (b.int(i64::from(LANES[0]) - 1), b.int(2));
            let pair = b.binary(Binary::And, lane, mask);
            b.mul(pair, two)
        };
        let each = b.int(warp);
        let whole = b.mul(number, each);
        let start = b.add(whole, first);
        for &(a, _) in &sized {
            self.axes[a as usize].group = Some(self.groups.len());
        }
        self.groups.push(Group {
            axes: sized,
            rows,
            slots: if rows { warp / BLOCK } else { warp / BLOCK * 2 },
            warp,
            start,
        });
        Ok(())
    }

    /// Positions of a piece of `a`, which must be known.
    pub fn bound(&self, a: AxisId) -> Result<i64> {
        match self.axis(a).bound {
            Some(n) => Ok(n),
            None => self.fail(
                "tile size",
                format!(
                    "axis '{}' is not cut and its extent is symbolic; cut it",
                    self.kernel.axes[a as usize].name
                ),
            ),
        }
    }

    /// The parts of `index` along axes of so many positions, the last one changing first; what an axis of a
    /// tile has no more of than one is 0.
    pub fn parts(&mut self, index: Reg, sizes: &[i64]) -> Vec<Reg> {
        let mut rest = index;
        let mut out = vec![];
        for (i, &n) in sizes.iter().enumerate().rev() {
            out.push(match i {
                0 => rest,
                _ => self.remainder(rest, n),
            });
            if i > 0 {
                rest = self.quotient(rest, n);
            }
        }
        out.reverse();
        out
    }

    /// `a / n`, of a number that is not negative.
    pub fn quotient(&mut self, a: Reg, n: i64) -> Reg {
        match n.count_ones() {
            1 if n > 1 => {
                let by = self.b.int(n.trailing_zeros().into());
                self.b.binary(Binary::Shr, a, by)
            }
            _ => {
                let n = self.b.int(n);
                self.b.div(a, n)
            }
        }
    }

    /// `a % n`, of a number that is not negative.
    pub fn remainder(&mut self, a: Reg, n: i64) -> Reg {
        match n.count_ones() {
            1 if n > 1 => {
                let mask = self.b.int(n - 1);
                self.b.binary(Binary::And, a, mask)
            }
            _ => {
                let n = self.b.int(n);
                self.b.rem(a, n)
            }
        }
    }

    /// This thread's position number `slot` of a group, in its piece.
    pub fn slot_position(&mut self, group: usize, slot: i64) -> Reg {
        let g = &self.groups[group];
        let (start, shift) = (g.start, g.shift(slot));
        let shift = self.b.int(shift);
        self.b.add(start, shift)
    }

    /// `at` moved to the first of the eight columns that this lane stores of four blocks, of which its quad has the pairs.
    pub fn neighbours_of_lane(&mut self, group: usize, block: i64, at: &At) -> At {
        let (start, axes) = (self.groups[group].start, self.groups[group].axes.clone());
        // The first pair of lane `l` is 2 l columns from the warp's first.
        let mask = self.b.int(i64::from(LANES[0]) - 1);
        let lane = self.b.binary(Binary::And, self.thread, mask);
        let more = self.b.int(BLOCK - 2);
        let more = self.b.mul(lane, more);
        let (first, shift) = (self.b.add(start, more), self.b.int(block * BLOCK));
        let index = self.b.add(first, shift);
        let sizes: Vec<i64> = axes.iter().map(|a| a.1).collect();
        let parts = self.parts(index, &sizes);
        let mut next = at.clone();
        for (&(a, _), p) in axes.iter().zip(parts) {
            let axis = self.axes[a as usize].clone();
            next.coord[a as usize] = self.b.add(axis.base, p);
            next.slot[a as usize] = None;
            next.valid[a as usize] = (!axis.full).then(|| self.b.compare(Compare::Lt, p, axis.len));
        }
        next
    }

    /// `at` moved to this thread's position number `slot` of a group.
    pub fn slot(&mut self, group: usize, slot: i64, at: &At) -> At {
        let g = &self.groups[group];
        let (axes, start) = (g.axes.clone(), g.start);
        // Of a pair the second one lies beside the first along the last axis.
        let paired = !g.rows && axes.last().is_some_and(|a| a.1 % 2 == 0);
        let (from, beside) = match paired {
            true => (slot / 2 * 2, slot % 2),
            false => (slot, 0),
        };
        let shift = self.b.int(g.shift(from));
        let index = self.b.add(start, shift);
        let sizes: Vec<i64> = axes.iter().map(|a| a.1).collect();
        let parts = self.parts(index, &sizes);
        let mut next = at.clone();
        for (n, (&(a, _), p)) in axes.iter().zip(parts).enumerate() {
            let i = a as usize;
            let axis = self.axes[i].clone();
            let last = n + 1 == axes.len();
            let mut place = |l: &mut Self, p: Reg| {
                next.coord[i] = l.b.add(axis.base, p);
                next.slot[i] = Some(slot);
                next.valid[i] = match axis.full {
                    true => None,
                    false => Some(l.b.compare(Compare::Lt, p, axis.len)),
                };
                (next.coord[i], next.valid[i])
            };
            let first = place(self, p);
            if last && paired {
                if beside == 1 {
                    let one = self.b.int(1);
                    let p = self.b.add(p, one);
                    place(self, p);
                }
                next.runs.push(Run {
                    axis: a,
                    number: beside,
                    of: 2,
                    first,
                    innermost: true,
                });
            }
        }
        next
    }

    /// Strides and counts of the threads that axis `a` lies over.
    pub fn directions_of(&self, a: AxisId) -> Vec<(u32, u32)> {
        let axis = self.axis(a);
        let [tall, wide] = self.map.warps;
        let all = match axis.group.map(|g| self.groups[g].rows) {
            None => vec![(axis.spread.stride, axis.spread.count)],
            Some(true) => vec![(LANES[0], LANES[1]), (32 * wide, tall)],
            Some(false) => vec![(1, LANES[0]), (32, wide)],
        };
        all.into_iter().filter(|d| d.1 > 1).collect()
    }

    /// Strides and counts of all directions that threads are numbered along, innermost first.
    pub fn directions(&self) -> Vec<(u32, u32)> {
        let [tall, wide] = self.map.warps;
        match self.groups.is_empty() {
            true => self.map.directions(),
            false => [
                (1, LANES[0]),
                (LANES[0], LANES[1]),
                (32, wide),
                (32 * wide, tall),
            ]
            .into_iter()
            .filter(|d| d.1 > 1)
            .collect(),
        }
    }

    /// The group that holds axis `a`.
    pub fn group_of(&self, a: AxisId) -> Option<usize> {
        self.axis(a).group
    }

    /// The group of exactly these axes, in this order.
    pub fn group_with(&self, axes: &[AxisId]) -> Option<usize> {
        let same = |g: &Group| g.axes.iter().map(|a| &a.0).eq(axes);
        self.groups.iter().position(same)
    }

    /// Axes in which a tile that a contraction reads lies in shared memory, outermost first, and how many of
    /// the last are its lines'. `None` where no contraction reads it.
    pub fn factor_order(&self, t: TileId) -> Option<(Vec<AxisId>, usize)> {
        let t = self.kernel.made_of_part(t);
        let (acc, over) = self.kernel.body.iter().find_map(|s| match s {
            Stmt::Contract { acc, a, b, over } if *a == t || *b == t => Some((*acc, over)),
            _ => None,
        })?;
        let axes = &self.kernel.tiles[t as usize].axes;
        let rows = axes.iter().any(|a| self.map.rows.contains(a));
        let outside = match rows {
            true => self.map.rows.clone(),
            false => self.columns_of(acc),
        };
        let last = axes.last()?;
        let (inner, outer) = match over.contains(last) {
            true => (over, &outside),
            false => (&outside, over),
        };
        let own = |list: &[AxisId]| -> Vec<AxisId> {
            list.iter().copied().filter(|a| axes.contains(a)).collect()
        };
        let (inner, outer) = (own(inner), own(outer));
        let rest = axes.iter().copied();
        let mut order: Vec<AxisId> = rest
            .filter(|a| !inner.contains(a) && !outer.contains(a))
            .collect();
        order.extend(outer);
        let lines = inner.len();
        order.extend(inner);
        Some((order, lines))
    }

    /// This thread's number in its warp.
    pub fn lane(&mut self) -> Reg {
        let mask = self.b.int(31);
        self.b.binary(Binary::And, self.thread, mask)
    }

    /// Number of this thread's warp along the rows or the columns.
    pub fn warp_number(&mut self, rows: bool) -> Reg {
        let warp = self.quotient(self.thread, 32);
        let across = self.map.warps[1].into();
        match rows {
            true => {
                let row = self.quotient(warp, across);
                match self.map.deep() {
                    1 => row,
                    _ => self.remainder(row, self.map.warps[0].into()),
                }
            }
            false => self.remainder(warp, across),
        }
    }
}
