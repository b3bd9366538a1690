//! Products whose factors warps of their own copy, ahead of those that multiply: of one product, or of an attention, whose
//! queries those that multiply bring before.
use super::deep::accumulator;
use super::staging::Looped;
use super::state::{Cut, Lower, Result, SharedTile};
use crate::simt::ir::{Inst, Op, Pipeline, Reg, SharedArray, Ty, Warpgroup};
use kernel::{Factors, Node, OperandId, Stmt, TileId};
use layout::{Arrange, DType, Inserted};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Copies of a piece.
type Copies = [(TileId, OperandId, Rc<SharedTile>)];

/// Loops around a piece, and the number of pieces of all.
type Cuts<'c> = (&'c [Cut], Reg);

/// Whether it touches memory.
fn touches(i: &Inst) -> bool {
    match i {
        Inst::Let(_, Op::Load { .. } | Op::LoadShared { .. }) => true,
        Inst::Let(..) | Inst::Set(..) => false,
        Inst::If { body, .. } | Inst::For { body, .. } => body.iter().any(touches),
        _ => true,
    }
}

impl Lower<'_> {
    /// What a task does where some warps only copy: the product's loop in two sides, and what follows by the threads
    /// that compute.
    pub(super) fn task_of_sides(&mut self, nodes: &[Node]) -> Result<()> {
        self.at = "warps that copy".into();
        let at = nodes.iter().position(|n| accumulator(n).is_some());
        let found = at.and_then(|at| Some((at, self.nest(&nodes[at])?)));
        let loads = |s: &&Stmt| matches!(s, Stmt::Load { .. }) && self.copied(s).is_none();
        let whole = self
            .map
            .fragment
            .is_some_and(|f| f.factors == Factors::Whole);
        let may = |stmts: &[&Stmt]| match whole {
            true => self.warpgroups() && !stmts.iter().any(loads),
            false => self.products_alone(stmts),
        };
        let Some((at, (cuts, stmts))) = found.filter(|f| may(&f.1.1)) else {
            return self.fail(
                "warps that copy",
                "they copy all that a loop loads whose products are of warpgroups, of f32 one that does nothing else",
            );
        };
        if self.map.deep() > 1 {
            return self.fail(
                "warps that copy",
                "what is copied is multiplied by warps along rows",
            );
        }
        let staged = |n: &&Node| matches!(n, Node::Stmt(s) if self.copied(s).is_some());
        let (own, others): (Vec<&Node>, Vec<&Node>) = nodes[..at].iter().partition(staged);
        self.b.open();
        for n in others {
            self.nodes(std::slice::from_ref(n))?;
        }
        let before = self.b.close();
        if before.iter().any(touches) {
            return self.fail(
                "warps that copy",
                "nothing is loaded before the product that all warps would load",
            );
        }
        before.into_iter().for_each(|i| self.b.push(i));
        self.two_sides((&cuts, &stmts), &own, &nodes[at + 1..])
    }

    /// A loop in two sides, what those that compute copy before it, and what follows it.
    fn two_sides(
        &mut self,
        (loops, stmts): (&[Looped], &[&Stmt]),
        own: &[&Node],
        rest: &[Node],
    ) -> Result<()> {
        let copies: Vec<_> = stmts.iter().filter_map(|s| self.copied(s)).collect();
        let stages = copies.first().map_or(1, |c| c.2.stages);
        if copies.iter().any(|c| c.2.stages != stages) || !(2..=16).contains(&stages) {
            return self.fail("stages", "all that is copied ahead has as many, 2 to 16");
        }
        let before = self.axes.clone();
        let cuts: Vec<Cut> = loops.iter().map(|(c, seen)| self.cut(c, seen)).collect();
        let one = self.b.int(1);
        let total = cuts.iter().fold(one, |n, c| self.b.mul(n, c.count));
        // The sums of a piece's parts are taken before others are.
        let in_parts = self.map.fragment.is_some_and(|f| f.products() > 1);
        let behind = u32::from(stages > 2 && !in_parts && self.products_alone(stmts));
        self.shared.push(SharedArray {
            name: "barriers of stages".into(),
            dtype: DType::I64,
            elements: 2 * stages,
        });
        let barriers = self.shared.len() as u32 - 1;
        if self.walk.is_none() {
            self.b.open();
        }
        self.copy_side(&copies, (&cuts, total))?;
        self.axes.clone_from(&before);
        for n in own {
            self.nodes(std::slice::from_ref(*n))?;
        }
        if !own.is_empty() {
            self.barrier();
        }
        let piece = self.b.open_loop();
        let stage = self.b.fresh(Ty::I32);
        self.b.forget_shared();
        self.enter_piece(&cuts, piece);
        self.stage = Some(stage);
        self.products_ahead = behind > 0;
        for s in stmts {
            if self.copied(s).is_none() {
                self.stmt(s)?;
            }
        }
        (self.stage, self.products_ahead) = (None, false);
        self.b.forget_shared();
        self.b.close_side(piece, stage);
        if behind > 0 {
            self.b.push(Inst::Warpgroup(Warpgroup::Wait(0)));
        }
        if behind > 0 && self.walk.is_some() {
            self.b.push(Inst::Freed);
        }
        self.axes = before;
        self.read.extend(copies.iter().map(|c| c.2.array));
        self.nodes(rest)?;
        let staged: BTreeSet<u32> = copies.iter().map(|c| c.2.array).inserted();
        let body = match self.walk {
            Some(_) => {
                // The next task writes to what is shared beside the stages while others may read it still.
                if self.written.union(&self.read).any(|a| !staged.contains(a)) {
                    self.barrier();
                }
                self.b.close_walk()
            }
            None => self.b.close(),
        };
        self.b.push(Inst::Pipeline {
            pipeline: Pipeline {
                walk: self.walk,
                pieces: total,
                stages,
                behind,
                copiers: self.copiers,
                barriers,
                registers: self.shared_out,
                among: self.schedule.among(),
            },
            body,
        });
        Ok(())
    }

    /// The side of a warp that copies a piece, waits for it, and lets products see it.
    fn copy_side(&mut self, copies: &Copies, (cuts, _): Cuts) -> Result<()> {
        let piece = self.b.open_loop();
        let stage = self.b.fresh(Ty::I32);
        self.enter_piece(cuts, piece);
        self.copier = Some(self.lane());
        // Constants come first, which need no kernel before to be over, and of equals those that take no more of the warp.
        let mut copies: Vec<_> = copies.iter().enumerate().collect();
        let at_once = |home: &SharedTile| home.image || home.boxes;
        copies.arrange_by_key(|(n, c)| (!self.is_constant(c.1), !at_once(&c.2), *n));
        for (_, (dst, operand, home)) in copies {
            self.at = self.describe(&Stmt::Load {
                dst: *dst,
                operand: *operand,
            });
            let each = self.b.int(home.elements);
            let first = self.b.mul(stage, each);
            match (home.image, home.boxes) {
                (true, _) => self.copy_at_once(*dst, *operand, home, first)?,
                (_, true) => self.copy_boxes(*dst, *operand, home, first)?,
                _ => {
                    self.copy(*dst, *operand, home, first)?;
                }
            }
        }
        self.copier = None;
        if self.caps.copies {
            self.b.push(Inst::Commit);
            self.b.push(Inst::Wait(0));
        }
        self.b.push(Inst::Warpgroup(Warpgroup::ProxyFence));
        self.b.close_side(piece, stage);
        Ok(())
    }
}
