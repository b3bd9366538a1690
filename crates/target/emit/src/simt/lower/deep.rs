//! Warps along the depth of a product: each has sums of its own over its part of every piece's depth, which the
//! first of them add up, in the order of the parts, and go on with alone.
use super::state::{Lower, Result};
use crate::simt::ir::{Inst, Op, Reg, SharedArray, Ty, Var};
use expr::{Binary, Compare, Unary};
use kernel::{Node, Stmt, TileId};
use layout::DType;

/// The accumulator of the contraction in a node.
pub(super) fn accumulator(node: &Node) -> Option<TileId> {
    match node {
        Node::Stmt(Stmt::Contract { acc, .. }) => Some(*acc),
        Node::Stmt(_) => None,
        Node::Loop { body, .. } => body.iter().find_map(accumulator),
    }
}

/// Whether threads wait for each other in it.
fn waits(i: &Inst) -> bool {
    match i {
        Inst::Barrier => true,
        Inst::If { body, .. } | Inst::For { body, .. } => body.iter().any(waits),
        _ => false,
    }
}

impl Lower<'_> {
    /// What a task does, by all warps or, behind the product that they share, by those that have its sums.
    pub(super) fn task(&mut self, nodes: &[Node]) -> Result<()> {
        let found = nodes
            .iter()
            .enumerate()
            .find_map(|(i, n)| Some((i, accumulator(n)?)));
        let (true, Some((at, acc))) = (self.map.deep() > 1, found) else {
            return self.nodes(nodes);
        };
        self.nodes(&nodes[..at])?;
        let sides = self.sides(acc)?;
        let sums: Vec<Var> = self.sums(acc, sides)?.concat();
        let (number, zero) = (self.deep_number(), self.b.int(0));
        let first = self.b.compare(Compare::Eq, number, zero);
        let other = self.b.op(Ty::Bool, Op::Unary(Unary::Not, first));
        self.guarded(Some(other), |l| {
            let none = l.nothing(&sums);
            sums.iter().for_each(|&v| l.b.set(v, none));
            Ok(())
        })?;
        self.nodes(&nodes[at..=at])?;
        self.added_up(&sums, number, (first, other))?;
        self.b.open();
        self.nodes(&nodes[at + 1..])?;
        let body = self.b.close();
        if body.iter().any(waits) {
            return self.fail(
                "warps along the depth",
                "threads wait for each other behind the product; lay all warps along rows and columns",
            );
        }
        self.b.push(Inst::If { cond: first, body });
        Ok(())
    }

    /// The number of this thread's warp along the depth.
    pub(super) fn deep_number(&mut self) -> Reg {
        let own = i64::from(self.map.threads / self.map.deep());
        self.quotient(self.thread, own)
    }

    /// The first depth of this warp's part of a piece, of which each has so many.
    pub(super) fn deep_part(&mut self, depth: i64) -> Reg {
        let (number, each) = (self.deep_number(), self.b.int(depth));
        self.b.mul(number, each)
    }

    /// Type of sums.
    fn sums_ty(&self, sums: &[Var]) -> Ty {
        sums.first().map_or(Ty::F32, |&v| self.b.vars[v as usize])
    }

    /// 0 of the type of sums.
    fn nothing(&mut self, sums: &[Var]) -> Reg {
        match self.sums_ty(sums) {
            Ty::I32 => self.b.int(0),
            ty => self.b.float(0.0, ty),
        }
    }

    /// Adds the other warps' sums to those of the first, through shared memory.
    fn added_up(&mut self, sums: &[Var], number: Reg, (first, other): (Reg, Reg)) -> Result<()> {
        let own = i64::from(self.map.threads / self.map.deep());
        let (parts, count) = (i64::from(self.map.deep()) - 1, sums.len() as i64);
        let Ok(elements) = u32::try_from(parts * count * own) else {
            return self.fail("warps along the depth", "their sums have no room");
        };
        let (array, ty) = (self.shared.len() as u32, self.sums_ty(sums));
        let dtype = match ty {
            Ty::I32 => DType::I32,
            _ => DType::F32,
        };
        self.shared.push(SharedArray {
            name: "sums of parts".into(),
            dtype,
            elements,
        });
        let thread = self.remainder(self.thread, own);
        self.guarded(Some(other), |l| {
            let before = l.b.int(-count * own);
            let each = l.b.int(count * own);
            let part = l.b.mul(number, each);
            let part = l.b.add(part, before);
            let from = l.b.add(part, thread);
            for (i, &v) in sums.iter().enumerate() {
                let by = l.b.int(i as i64 * own);
                let (index, value) = (l.b.add(from, by), l.b.get(v));
                l.b.push(Inst::StoreShared {
                    array,
                    index,
                    values: vec![value],
                });
            }
            Ok(())
        })?;
        self.barrier();
        self.guarded(Some(first), |l| {
            for part in 0..parts {
                for (i, &v) in sums.iter().enumerate() {
                    let by = l.b.int((part * count + i as i64) * own);
                    let index = l.b.add(thread, by);
                    let more = l.b.op(ty, Op::LoadShared { array, index });
                    let before = l.b.get(v);
                    let now = l.b.binary(Binary::Add, before, more);
                    l.b.set(v, now);
                }
            }
            Ok(())
        })
    }
}
