//! Products of f32 by warpgroups: factors near numbers of TF32, or in two parts of it, as in [`super::parts`].
//!
//! Warpgroups read them from shared memory and cut off what TF32 has not, so threads put there what is to be multiplied.
//! While the products of a piece are under way, all threads do so for the next piece: there are two places for it. Pieces
//! themselves stay until the sums of parts are taken, which may have to be made of them.
use super::matrix::{Left, Staged};
use super::parts::{CHUNK, Elements};
use super::state::{Cut, Lower, Result, SharedTile};
use crate::simt::ir::{Inst, Reg, SharedArray, Ty, Var, Warpgroup};
use expr::Compare;
use kernel::{Factors, OperandId, Stmt, TileId};
use layout::DType;
use std::rc::Rc;

/// Places for the parts of a piece.
const PLACES: i64 = 2;
/// Elements that a thread takes at once.
const WIDE: i64 = 4;

/// What is multiplied of a factor: a shared array with room for [`PLACES`] pieces for its one part, or for the upper and
/// the lower one.
struct Parts {
    home: Rc<SharedTile>,
    arrays: Vec<u32>,
}

impl Parts {
    /// A part of the piece in a place that begins at an element.
    fn of(&self, part: usize, first: Reg) -> (&SharedTile, (u32, Reg)) {
        (&self.home, (self.arrays[part], first))
    }
}

/// Parts of both factors that are multiplied, the small products first.
pub(super) fn products_of(factors: Factors) -> &'static [(usize, usize)] {
    match factors {
        Factors::Tf32x3 | Factors::Bf16x3 => &[(1, 0), (0, 1), (0, 0)],
        Factors::Whole | Factors::Tf32 | Factors::Bf16 => &[(0, 0)],
    }
}

impl Lower<'_> {
    /// The contraction that is all that a loop does besides copies, where warpgroups multiply what threads make of its
    /// factors.
    pub(super) fn multiplies_parts<'n>(&self, stmts: &[&'n Stmt]) -> Option<&'n Stmt> {
        let parts = self
            .map
            .fragment
            .is_some_and(|f| f.factors != Factors::Whole);
        if !parts || !self.products_alone(stmts) {
            return None;
        }
        stmts
            .iter()
            .find(|s| matches!(s, Stmt::Contract { .. }))
            .copied()
    }

    /// As [`Lower::ring`] for `contract`, by warpgroups that multiply what threads make of its factors.
    pub(super) fn ring_in_parts(
        &mut self,
        copies: &[(TileId, OperandId, Rc<SharedTile>)],
        (cuts, total): (&[Cut], Reg),
        contract: &Stmt,
    ) -> Result<()> {
        let (Stmt::Contract { acc, a, b, over }, Some(fragment)) = (contract, self.map.fragment)
        else {
            return self.fail("factors of warpgroups", "there is no product");
        };
        let stages = copies.first().map_or(0, |c| c.2.stages);
        if stages < 3 {
            return self.fail(
                "factors of warpgroups",
                format!(
                    "{stages} stages; one piece is copied, one made ready and one multiplied: use 3"
                ),
            );
        }
        let p = self.contraction(fragment, *acc, (*a, *b), over)?;
        let Left::Staged(left) = &p.left else {
            return self.fail("left factor", "warpgroups read it from shared memory");
        };
        if fragment.multiplied() != fragment.types() {
            return self.fail(
                "factors of warpgroups",
                "words of bf16 are made of f32 where warps of their own copy",
            );
        }
        let in_parts = fragment.products() > 1;
        if in_parts && p.depth > CHUNK {
            return self.fail(
                "depth",
                format!("{} positions are summed by the matrix unit alone", p.depth),
            );
        }
        let [tops, lows] = [left, &p.right].map(|s| self.parts_of(s, fragment.factors));
        let own = match in_parts {
            true => self.sums_of_parts(&p.sums),
            false => p.sums.clone(),
        };
        let [zero, one, ahead] = [0, 1, i64::from(stages) - 1].map(|n| self.b.int(n));
        self.copy_first(copies, (cuts, total), ahead)?;
        self.wait(stages - 2);
        self.meet();
        self.make_parts(&[&tops, &lows], zero, total)?;
        let i = self.b.open_loop();
        self.b.forget_shared();
        let next = self.b.add(i, one);
        // The next piece is there, and everybody has taken the sums of the one before.
        self.wait(stages - 3);
        self.meet();
        let far = self.b.add(i, ahead);
        let into = self.remainder(far, stages.into());
        self.copy_piece(copies, (cuts, total), far, into)?;
        self.commit();
        self.enter_piece(cuts, i);
        self.b.push(Inst::Warpgroup(Warpgroup::Fence));
        let place = self.remainder(i, PLACES);
        for (n, &(a, b)) in products_of(fragment.factors).iter().enumerate() {
            let [left, right] = [&tops, &lows].map(|f| self.place_of(f, place));
            let fresh = in_parts && n == 0;
            self.products(&p, (&own, fresh), tops.of(a, left), lows.of(b, right))?;
        }
        self.b.push(Inst::Warpgroup(Warpgroup::Commit));
        self.make_parts(&[&tops, &lows], next, total)?;
        self.b.push(Inst::Warpgroup(Warpgroup::Wait(0)));
        if in_parts {
            let stage = self.remainder(i, stages.into());
            let outer = self.stage.replace(stage);
            let groups = (p.rows, p.columns);
            let factors = (left, Elements::Whole(&p.right));
            self.take_parts(&p.sums, &own, factors, groups, (0, p.depth))?;
            self.stage = outer;
        }
        self.b.forget_shared();
        self.b.close_loop(i, (zero, total, one));
        Ok(())
    }

    /// As many sums for the products of parts.
    pub(super) fn sums_of_parts(&mut self, sums: &[Vec<Var>]) -> Vec<Vec<Var>> {
        let mut line = |l: &Vec<Var>| l.iter().map(|_| self.b.var(Ty::F32)).collect();
        sums.iter().map(&mut line).collect()
    }

    /// Shared memory for what is multiplied of a factor.
    fn parts_of(&mut self, s: &Staged, factors: Factors) -> Parts {
        let home = s.home().clone();
        let name = self.shared[home.array as usize].name.clone();
        let mut array = |part: &str| {
            self.shared.push(SharedArray {
                name: format!("{part} of {name}"),
                dtype: DType::F32,
                elements: (home.elements * PLACES) as u32,
            });
            self.shared.len() as u32 - 1
        };
        let arrays = match products_of(factors).len() {
            1 => vec![array("tf32")],
            _ => vec![array("upper parts"), array("lower parts")],
        };
        Parts { home, arrays }
    }

    /// The first element of a place of a factor's parts.
    fn place_of(&mut self, f: &Parts, place: Reg) -> Reg {
        let each = self.b.int(f.home.elements);
        self.b.mul(place, each)
    }

    /// All threads make what is multiplied of piece `n`, unless there is none: where an element lies that does.
    fn make_parts(&mut self, factors: &[&Parts], n: Reg, total: Reg) -> Result<()> {
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
                let parts: Vec<Vec<Reg>> = dst.into_iter().map(|x| l.made_of(f, x)).collect();
                for (part, &array) in f.arrays.iter().enumerate() {
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

    /// What is multiplied of an element.
    fn made_of(&mut self, f: &Parts, x: Reg) -> Vec<Reg> {
        match f.arrays.len() {
            1 => vec![self.value_near(x)],
            _ => self.value_in_parts(x).to_vec(),
        }
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
