//! Products of f32 by warpgroups, as exact as multiply-adds: factors in two parts of TF32, as in [`super::parts`].
//!
//! Warpgroups read both parts from shared memory. While the products of a piece are under way, all threads make the
//! parts of the next piece: there are two places for parts, and pieces themselves stay until their sums are taken,
//! which may have to be made of them.
use super::matrix::{Left, Staged};
use super::parts::CHUNK;
use super::state::{Lower, Result, SharedTile};
use crate::simt::ir::{Inst, Reg, SharedArray, Ty, Var, Warpgroup};
use expr::Compare;
use kernel::{AxisTile, Factors, OperandId, Stmt, TileId};
use layout::DType;
use std::rc::Rc;

/// Places for the parts of a piece.
const PLACES: i64 = 2;
/// Elements that a thread takes at once.
const WIDE: i64 = 4;

/// Both parts of a factor: a shared array with room for [`PLACES`] pieces each.
struct Parts {
    home: Rc<SharedTile>,
    upper: u32,
    lower: u32,
}

impl Parts {
    /// The upper or lower part of the piece in a place that begins at an element.
    fn of(&self, upper: bool, first: Reg) -> (&SharedTile, (u32, Reg)) {
        let array = if upper { self.upper } else { self.lower };
        (&self.home, (array, first))
    }
}

impl Lower<'_> {
    /// The contraction that is all that a loop does besides copies, where warpgroups multiply parts of its factors.
    pub(super) fn multiplies_parts<'n>(&self, stmts: &[&'n Stmt]) -> Option<&'n Stmt> {
        let parts = self
            .map
            .fragment
            .is_some_and(|f| f.factors == Factors::Tf32x3);
        if !parts || !self.products_alone(stmts) {
            return None;
        }
        stmts
            .iter()
            .find(|s| matches!(s, Stmt::Contract { .. }))
            .copied()
    }

    /// As [`Lower::ring`] for `contract`, by warpgroups that multiply parts of its factors.
    pub(super) fn ring_in_parts(
        &mut self,
        copies: &[(TileId, OperandId, Rc<SharedTile>)],
        (cuts, counts, total): (&[AxisTile], &[Reg], Reg),
        contract: &Stmt,
    ) -> Result<()> {
        let (Stmt::Contract { acc, a, b, over }, Some(fragment)) = (contract, self.map.fragment)
        else {
            return self.fail("parts of factors", "there is no product");
        };
        let stages = copies.first().map_or(0, |c| c.2.stages);
        if stages < 3 {
            return self.fail(
                "parts of factors",
                format!("{stages} stages; one piece is copied, one cut in parts and one multiplied: use 3"),
            );
        }
        let p = self.contraction(fragment, *acc, (*a, *b), over)?;
        let Left::Staged(left) = &p.left else {
            return self.fail("left factor", "warpgroups read it from shared memory");
        };
        if p.depth > CHUNK {
            return self.fail(
                "depth",
                format!("{} positions are summed by the matrix unit alone", p.depth),
            );
        }
        let [tops, lows] = [left, &p.right].map(|s| self.parts_of(s));
        let own: Vec<Vec<Var>> = p
            .sums
            .iter()
            .map(|line| line.iter().map(|_| self.b.var(Ty::F32)).collect())
            .collect();
        let [zero, one, ahead] = [0, 1, i64::from(stages) - 1].map(|n| self.b.int(n));
        let i = self.b.open_loop();
        self.copy_piece(copies, (cuts, counts, total), i, i)?;
        self.b.close_loop(i, (zero, ahead, one));
        self.wait(stages - 2);
        self.meet();
        self.cut(&[&tops, &lows], zero, total)?;
        let i = self.b.open_loop();
        self.b.forget_shared();
        let next = self.b.add(i, one);
        // The next piece is there, and everybody has taken the sums of the one before.
        self.wait(stages - 3);
        self.meet();
        let far = self.b.add(i, ahead);
        let into = self.remainder(far, stages.into());
        self.copy_piece(copies, (cuts, counts, total), far, into)?;
        self.enter_piece(cuts, counts, i);
        self.b.push(Inst::Warpgroup(Warpgroup::Fence));
        let place = self.remainder(i, PLACES);
        // The small products first.
        for (n, (a, b)) in [(false, true), (true, false), (true, true)]
            .into_iter()
            .enumerate()
        {
            let [left, right] = [&tops, &lows].map(|f| self.place_of(f, place));
            self.products(&p, (&own, n == 0), tops.of(a, left), lows.of(b, right))?;
        }
        self.b.push(Inst::Warpgroup(Warpgroup::Commit));
        self.cut(&[&tops, &lows], next, total)?;
        self.b.push(Inst::Warpgroup(Warpgroup::Wait(0)));
        let stage = self.remainder(i, stages.into());
        let outer = self.stage.replace(stage);
        let groups = (p.rows, p.columns);
        self.take_parts(&p.sums, &own, (left, &p.right), groups, (0, p.depth))?;
        self.stage = outer;
        self.b.forget_shared();
        self.b.close_loop(i, (zero, total, one));
        Ok(())
    }

    /// Shared memory for the parts of a factor.
    fn parts_of(&mut self, s: &Staged) -> Parts {
        let home = s.home().clone();
        let name = self.shared[home.array as usize].name.clone();
        let mut array = |part: &str| {
            self.shared.push(SharedArray {
                name: format!("{part} parts of {name}"),
                dtype: DType::F32,
                elements: (home.elements * PLACES) as u32,
            });
            self.shared.len() as u32 - 1
        };
        let (upper, lower) = (array("upper"), array("lower"));
        Parts { home, upper, lower }
    }

    /// The first element of a place of a factor's parts.
    fn place_of(&mut self, f: &Parts, place: Reg) -> Reg {
        let each = self.b.int(f.home.elements);
        self.b.mul(place, each)
    }

    /// All threads cut piece `n` in parts, unless there is none: where an element lies its parts do.
    fn cut(&mut self, factors: &[&Parts], n: Reg, total: Reg) -> Result<()> {
        let there = self.b.compare(Compare::Lt, n, total);
        self.b.forget_shared();
        self.guarded(Some(there), |l| {
            let each: Vec<(&Parts, Vec<Reg>)> =
                factors.iter().map(|f| (*f, l.offsets(f))).collect();
            // All loads stand before the first that waits for one.
            let mut loaded = vec![];
            for (f, offsets) in each {
                for offset in offsets {
                    let dst = l.elements_of(f, n, offset);
                    loaded.push((f, offset, dst));
                }
            }
            let place = l.remainder(n, PLACES);
            for (f, offset, dst) in loaded {
                let first = l.place_of(f, place);
                let index = l.b.add(first, offset);
                let parts: Vec<[Reg; 2]> = dst.into_iter().map(|x| l.value_in_parts(x)).collect();
                for (array, part) in [(f.upper, 0), (f.lower, 1)] {
                    let values = parts.iter().map(|p| p[part]).collect();
                    let within = l.within(f, offset);
                    l.guarded(within, |l| {
                        l.b.push(Inst::StoreShared {
                            array,
                            index,
                            values,
                        });
                        Ok(())
                    })?;
                }
            }
            Ok(())
        })?;
        self.b.forget_shared();
        Ok(())
    }

    /// Elements of a factor from which on this thread takes some.
    fn offsets(&mut self, f: &Parts) -> Vec<Reg> {
        let step = WIDE * i64::from(self.map.threads);
        let wide = self.b.int(WIDE);
        let own = self.b.mul(self.thread, wide);
        let all = (0..f.home.elements).step_by(step as usize);
        all.map(|first| {
            let first = self.b.int(first);
            self.b.add(own, first)
        })
        .collect()
    }

    /// Whether `offset` is in a factor, where that is not certain.
    fn within(&mut self, f: &Parts, offset: Reg) -> Option<Reg> {
        let step = WIDE * i64::from(self.map.threads);
        let end = self.b.int(f.home.elements);
        (f.home.elements % step != 0).then(|| self.b.compare(Compare::Lt, offset, end))
    }

    /// Elements of piece `n` of a factor from `offset` on, or its first where there are none.
    fn elements_of(&mut self, f: &Parts, n: Reg, offset: Reg) -> Vec<Reg> {
        let stage = self.remainder(n, f.home.stages.into());
        let each = self.b.int(f.home.elements);
        let from = self.b.mul(stage, each);
        let offset = match self.within(f, offset) {
            Some(there) => {
                let zero = self.b.int(0);
                self.b.select(there, offset, zero)
            }
            None => offset,
        };
        let index = self.b.add(from, offset);
        let dst: Vec<Reg> = (0..WIDE).map(|_| self.b.fresh(Ty::F32)).collect();
        self.b.push(Inst::LoadSharedRun {
            dst: dst.clone(),
            array: f.home.array,
            index,
        });
        dst
    }
}
