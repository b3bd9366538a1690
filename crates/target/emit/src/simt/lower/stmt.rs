//! Statements other than sums: loads, stores, maps, relabelled tiles.
use super::state::{At, Lower, Result, TileStorage};
use super::walk::Guard;
use crate::simt::ir::{Reg, Ty};
use crate::simt::scalar;
use expr::Expr;
use kernel::{AxisId, Label, OperandId, Stmt, TileId};
use std::collections::BTreeSet;

impl Lower<'_> {
    /// Name of a statement for errors.
    pub fn describe(&self, s: &Stmt) -> String {
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
            // What it is made of may have to be set there.
            return self.set_beyond(*dst);
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
            Stmt::Load { dst, operand } => self.load_tile(*dst, *operand)?,
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
        let zeroed = self.zeroed.contains(&dst);
        let mut before = vec![];
        // What rows have is read once for all their elements.
        self.b.read_once(true);
        let done = self.guarded(own, |l| {
            l.walk(&axes, &unrolled, guard, l.origin(), &mut |l, at| {
                let mut given = vec![];
                for &a in args {
                    given.push(l.value(a, at)?);
                }
                let mut v = l.expr(e, &given, Some(at), None)?[0];
                let exists = l.exists_but(&axes, at, |l, a| l.zero_beyond(dst, a));
                if let (true, Some(p)) = (zeroed, exists) {
                    let zero = l.zero(dst);
                    v = l.b.select(p, v, zero);
                }
                let Some(run) = l.written_together(dst, at) else {
                    return l.put(dst, at, v);
                };
                before.push(v);
                if run.number + 1 < run.of {
                    return Ok(());
                }
                let first = l.first_of(at, &run);
                l.put_run(dst, &first, std::mem::take(&mut before))
            })
        });
        self.b.read_once(false);
        done?;
        self.set_beyond(dst)
    }

    /// 0 as an element of a tile.
    pub fn zero(&mut self, t: TileId) -> Reg {
        let ty = self.ty(t);
        match ty.is_float() {
            true => self.b.float(0.0, ty),
            false => self.b.constant(0, ty),
        }
    }

    fn store(&mut self, operand: OperandId, src: TileId) -> Result<()> {
        if self.store_quads(operand, src)? {
            return Ok(());
        }
        let axes = self.kernel.tiles[src as usize].axes.clone();
        let unrolled = self.unrolled(&[src]);
        let own = self.first_of_equals(&axes);
        let mut before = vec![];
        self.guarded(own, |l| {
            l.walk(&axes, &unrolled, Guard::Skip, l.origin(), &mut |l, at| {
                let v = l.value(src, at)?;
                let Some(run) = l.stored_together(operand, at) else {
                    return l.write(operand, at, v, None);
                };
                // Neighbours are written with the last of them.
                before.push(v);
                if run.number + 1 < run.of {
                    return Ok(());
                }
                let first = l.first_of(at, &run);
                l.write_run(operand, &first, std::mem::take(&mut before), None)
            })
        })
    }

    fn relabel(&mut self, dst: TileId, src: TileId, labels: &[Label]) -> Result<()> {
        if matches!(*self.homes[dst as usize], TileStorage::Shared(_)) {
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
