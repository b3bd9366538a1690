//! Statements other than sums: loads, stores, maps, relabelled tiles.
use super::state::{At, Lower, Result, TileStorage};
use super::walk::Guard;
use crate::simt::ir::{Inst, Reg, Ty};
use crate::simt::scalar;
use expr::Expr;
use kernel::{AxisId, Label, OperandId, Stmt, Swizzle, TileId};
use std::collections::BTreeSet;

/// Loads of a copy to shared memory that are written out before the first is stored.
const AHEAD: i64 = 8;

/// A copy of an operand's piece into a tile in shared memory.
struct Staging<'a> {
    dst: TileId,
    operand: OperandId,
    /// The tile's axes, and positions along each.
    axes: &'a [AxisId],
    sizes: &'a [i64],
    array: u32,
    swizzle: Swizzle,
    /// Elements of one access.
    wide: i64,
    /// Elements that all threads copy in a round.
    step: i64,
}

impl Lower<'_> {
    /// Name of a statement for errors.
    fn describe(&self, s: &Stmt) -> String {
        let name = |t: &TileId| self.tile_name(*t).to_string();
        match s {
            Stmt::Load { dst, operand } => {
                format!(
                    "{} = load {}",
                    name(dst),
                    self.kernel.operands[*operand as usize].name
                )
            }
            Stmt::Store { operand, src } => {
                format!(
                    "store {} = {}",
                    self.kernel.operands[*operand as usize].name,
                    name(src)
                )
            }
            Stmt::Map { dst, .. } => format!("{} = map", name(dst)),
            Stmt::Contract { acc, .. } => format!("{} += contract", name(acc)),
            Stmt::Fold { monoid, .. } => format!("fold {}", monoid.name),
            Stmt::Relabel { dst, src, .. } => format!("{} = relabelled {}", name(dst), name(src)),
        }
    }

    pub fn stmt(&mut self, s: &Stmt) -> Result<()> {
        self.at = self.describe(s);
        // Nothing happens where a tile is defined that is computed where it is used.
        let nowhere = |l: &Self, t: TileId| {
            matches!(
                *l.homes[t as usize],
                TileStorage::Memory(_) | TileStorage::Formula(_)
            )
        };
        if let Stmt::Load { dst, .. } | Stmt::Map { dst, .. } | Stmt::Relabel { dst, .. } = s
            && nowhere(self, *dst)
        {
            return Ok(());
        }
        let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
        s.reads().iter().for_each(|&t| self.arrays(t, &mut reads));
        s.writes().iter().for_each(|&t| self.arrays(t, &mut writes));
        let hazard = reads.iter().any(|a| self.written.contains(a))
            || writes
                .iter()
                .any(|a| self.read.contains(a) || self.written.contains(a));
        if hazard {
            self.barrier();
        }
        match s {
            Stmt::Load { dst, operand } => self.stage(*dst, *operand)?,
            Stmt::Store { operand, src } => self.store(*operand, *src)?,
            Stmt::Map { dst, expr, args } => self.map(*dst, expr, args)?,
            Stmt::Contract { acc, a, b, over } => self.contract(*acc, *a, *b, over)?,
            Stmt::Fold {
                monoid,
                state,
                args,
                over,
                rescale,
            } => self.fold(monoid, state, args, over, rescale.as_ref())?,
            Stmt::Relabel {
                dst, src, labels, ..
            } => self.relabel(*dst, *src, labels)?,
        }
        self.read.extend(reads);
        self.written.extend(writes);
        Ok(())
    }

    /// Values of the outputs of `e`.
    pub fn expr(
        &mut self,
        e: &Expr,
        args: &[Reg],
        at: Option<&At>,
        rank: Option<Reg>,
    ) -> Result<Vec<Reg>> {
        let mut index = |b: &mut crate::simt::build::Build, axis: u32| match (rank, at) {
            (Some(r), _) => Ok(r),
            (None, Some(at)) => {
                let c = at.coord.get(axis as usize).copied();
                let c = c.ok_or("it reads a coordinate along an axis that is not there")?;
                Ok(match b.number(c) {
                    Some(v) => b.constant(v, Ty::I64),
                    None => b.op(Ty::I64, crate::simt::ir::Op::Convert(c)),
                })
            }
            _ => Err("it reads a coordinate where there is none".to_string()),
        };
        match scalar::eval(&mut self.b, e, args, &mut index) {
            Ok(v) => Ok(v),
            Err(why) => self.fail("scalar program", why),
        }
    }

    /// Copies the elements at `offsets` of the shared tile: all loads stand before the first store.
    fn copy_to_shared(&mut self, c: &Staging, offsets: &[Reg]) -> Result<()> {
        let mut loaded = vec![];
        for &offset in offsets {
            let mut at = self.origin();
            let mut rest = offset;
            let mut exists = None;
            for (&a, &n) in c.axes.iter().zip(c.sizes).rev() {
                let i = a as usize;
                let size = self.b.int(n);
                let p = match c.axes.first() == Some(&a) {
                    true => rest,
                    false => self.b.rem(rest, size),
                };
                rest = self.b.div(rest, size);
                let axis = self.axes[i].clone();
                at.coord[i] = self.b.add(axis.base, p);
                if !axis.full {
                    let fine = self.b.compare(expr::Compare::Lt, p, axis.len);
                    at.valid[i] = Some(fine);
                    exists = self.b.both(exists, Some(fine));
                }
            }
            // The last round may go beyond the tile.
            let elements: i64 = c.sizes.iter().product();
            let over = elements % c.step != 0;
            let end = self.b.int(elements);
            let within = over.then(|| self.b.compare(expr::Compare::Lt, offset, end));
            if let (Some(w), Some(&a)) = (within, c.axes.first()) {
                let v = &mut at.valid[a as usize];
                *v = self.b.both(*v, Some(w));
            }
            let values = if c.wide > 1 {
                let p = self.place(c.operand, &at)?;
                let guard = self.b.both(p.exists, p.inside);
                let guard = self.b.both(guard, exists);
                let guard = self.b.both(guard, within);
                let ty = self.ty(c.dst);
                let dst: Vec<Reg> = (0..c.wide).map(|_| self.b.fresh(ty)).collect();
                self.b.push(Inst::LoadRun {
                    dst: dst.clone(),
                    operand: c.operand,
                    index: p.index,
                    guard: guard.filter(|&g| self.b.number(g) != Some(1)),
                });
                let source = &self.kernel.operands[c.operand as usize];
                let (dtype, outside) = (source.dtype, source.access.outside);
                // A run is inside or outside as a whole.
                match p.inside.filter(|_| outside != 0.0) {
                    Some(inside) => {
                        let other = self.literal(outside, dtype);
                        dst.iter()
                            .map(|&r| self.b.select(inside, r, other))
                            .collect()
                    }
                    None => dst,
                }
            } else {
                vec![self.load(c.operand, &at)?]
            };
            loaded.push((offset, within, values));
        }
        for (offset, within, values) in loaded {
            let index = self.swizzled(offset, c.swizzle);
            self.guarded(within, |l| {
                l.b.push(Inst::StoreShared {
                    array: c.array,
                    index,
                    values,
                });
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Loads `operand` into a tile with memory of its own.
    fn stage(&mut self, dst: TileId, operand: OperandId) -> Result<()> {
        let axes = self.kernel.tiles[dst as usize].axes.clone();
        let home = self.homes[dst as usize].clone();
        let TileStorage::Shared {
            array,
            ref sizes,
            swizzle,
        } = *home
        else {
            let unrolled = self.unrolled(&[dst]);
            return self.walk(
                &axes,
                &unrolled,
                Guard::Skip,
                self.origin(),
                &mut |l, at| {
                    let v = l.load(operand, at)?;
                    l.put(dst, at, v)
                },
            );
        };
        // All threads share in the copy, neighbours along the last axis.
        let elements: i64 = sizes.iter().product();
        let access = &self.kernel.operands[operand as usize].access;
        let bits = self.kernel.operands[operand as usize].dtype.bits();
        let mut wide = 1;
        if let (Some(&last), true) = (axes.last(), bits >= 8) {
            let most = (self.map.load_bytes * 8 / bits).max(1);
            let extent = &self.kernel.axes[last as usize].extent;
            let tile = sizes.last().copied().unwrap_or(1);
            let keeps = swizzle.bits == 0 || 1 << swizzle.base >= most;
            if keeps {
                wide = i64::from(access.run(last, extent, tile, most));
            }
        }
        let step = i64::from(self.map.threads) * wide;
        let rounds = (elements + step - 1) / step;
        let wide_reg = self.b.int(wide);
        let first = self.b.mul(self.thread, wide_reg);
        let staging = Staging {
            dst,
            operand,
            axes: &axes,
            sizes,
            array,
            swizzle,
            wide,
            step,
        };
        if rounds <= AHEAD {
            let mut offsets = vec![];
            for r in 0..rounds {
                let by = self.b.int(r * step);
                offsets.push(self.b.add(first, by));
            }
            self.copy_to_shared(&staging, &offsets)?;
        } else {
            let (to, by) = (self.b.int(elements), self.b.int(step));
            let i = self.b.fresh(Ty::I32);
            self.b.open();
            self.copy_to_shared(&staging, &[i])?;
            let body = self.b.close();
            self.b.push(Inst::For {
                i,
                from: first,
                to,
                step: by,
                body,
            });
        }
        self.b.forget_shared();
        Ok(())
    }

    fn map(&mut self, dst: TileId, e: &Expr, args: &[TileId]) -> Result<()> {
        let axes = self.kernel.tiles[dst as usize].axes.clone();
        let mut tiles = args.to_vec();
        tiles.push(dst);
        let unrolled = self.unrolled(&tiles);
        let plain = args.is_empty()
            && !e
                .insts
                .iter()
                .any(|i| matches!(i, expr::Inst::Index { .. }));
        // A constant needs no position; what others read in shared memory is written everywhere.
        let guard = match *self.homes[dst as usize] {
            TileStorage::Held { .. } if !plain => Guard::Skip,
            _ => Guard::Carry,
        };
        let own = self.owner(dst);
        self.guarded(own, |l| {
            l.walk(&axes, &unrolled, guard, l.origin(), &mut |l, at| {
                let mut given = vec![];
                for &a in args {
                    given.push(l.value(a, at)?);
                }
                let v = l.expr(e, &given, Some(at), None)?;
                l.put(dst, at, v[0])
            })
        })
    }

    fn store(&mut self, operand: OperandId, src: TileId) -> Result<()> {
        let axes = self.kernel.tiles[src as usize].axes.clone();
        let unrolled = self.unrolled(&[src]);
        let own = self.first_of_equals(&axes);
        self.guarded(own, |l| {
            l.walk(&axes, &unrolled, Guard::Skip, l.origin(), &mut |l, at| {
                let v = l.value(src, at)?;
                l.write(operand, at, v, None)
            })
        })
    }

    fn relabel(&mut self, dst: TileId, src: TileId, labels: &[Label]) -> Result<()> {
        if matches!(*self.homes[dst as usize], TileStorage::Shared { .. }) {
            return self.hand_over(dst, src, labels);
        }
        let axes = self.kernel.tiles[dst as usize].axes.clone();
        let mut unrolled = self.unrolled(&[src, dst]);
        for l in labels {
            if unrolled.contains(&l.from) {
                unrolled.insert(l.to);
            }
        }
        self.walk(
            &axes,
            &unrolled,
            Guard::Skip,
            self.origin(),
            &mut |l, at| {
                let from = l.relabelled(labels, at);
                let v = l.value(src, &from)?;
                l.put(dst, at, v)
            },
        )
    }

    /// Every thread writes what is its own of `src` to where `dst` has it in shared memory.
    fn hand_over(&mut self, dst: TileId, src: TileId, labels: &[Label]) -> Result<()> {
        let axes: Vec<AxisId> = self.kernel.tiles[src as usize].axes.clone();
        let unrolled = self.unrolled(&[src]);
        let own = self.first_of_equals(&axes);
        self.guarded(own, |l| l.hand(dst, src, labels, &axes, &unrolled))
    }

    fn hand(
        &mut self,
        dst: TileId,
        src: TileId,
        labels: &[Label],
        axes: &[AxisId],
        unrolled: &BTreeSet<AxisId>,
    ) -> Result<()> {
        self.walk(axes, unrolled, Guard::Skip, self.origin(), &mut |l, at| {
            let v = l.value(src, at)?;
            let mut to = at.clone();
            let mut inside = None;
            for label in labels {
                let first = l.b.dim(&label.first, Ty::I32);
                let end = l.b.dim(&l.kernel.axes[label.to as usize].extent, Ty::I32);
                let c = l.b.sub(at.coord[label.from as usize], first);
                let zero = l.b.int(0);
                let low = l.b.compare(expr::Compare::Ge, c, zero);
                let high = l.b.compare(expr::Compare::Lt, c, end);
                inside = l.b.both(inside, Some(low));
                inside = l.b.both(inside, Some(high));
                to.coord[label.to as usize] = c;
            }
            l.guarded(inside, |l| l.put(dst, &to, v))
        })
    }
}
