//! Products of f32 by matrix instructions of two parts of each factor: of TF32, as exact as multiply-adds, or of bf16,
//! whose upper part is the nearest number of bf16, and the lower one that nearest to what is left.
//!
//! An f32 is the sum of two parts with 11 bits of mantissa each, but for its last two bits: the one nearest to it, and
//! what is left, which f32 arithmetic gives exactly. The product of both lower parts is below the last bit of f32 and
//! left out. (With the upper bits as they are in place of the nearest part, models of the zoo were off by twice to four
//! times as much on an H200, and as fast.)
//! Matrix units cut what they add: every [`CHUNK`] of depth begins with sums of its own, which f32 multiply-adds add to
//! the whole. Measured on an H100, the result is nearer to the true one than that of multiply-adds.
//!
//! Factors are [`kernel::Factors::scale`] times as large before they are cut in two, so that no part of TF32 is below the
//! least normal number, of which matrix units lose bits; the sums are made smaller as they are added. Where a factor or a
//! sum is too large for that, infinite or no number, the sums are no finite numbers: then the warp computes the chunk by
//! multiply-adds of the same elements in shared memory.
use super::matrix::{Contraction, Staged, fragment_sums};
use super::state::{Lower, Result};
use crate::simt::ir::{Inst, Op, Reg, Ty, Var};
use expr::{Binary, Unary};
use kernel::{Factors, Fragment, PARTS_SCALE as SCALE};

/// Depth of the sums that the matrix unit adds up alone.
pub(super) const CHUNK: i64 = kernel::PARTS_DEPTH as i64;
/// Half of the last bit of the upper part, and the upper part's bits.
const HALF: i64 = 0x1000;
const UPPER: i64 = 0xffff_e000;
/// Sums of what shows that a result is no finite number; several, as each waits for the one before it.
const CHAINS: usize = 4;

/// Where the elements of a right factor are in shared memory.
#[derive(Clone, Copy)]
pub(super) enum Elements<'a> {
    Whole(&'a Staged),
    /// As their upper and lower parts.
    Parts([&'a Staged; 2]),
}

/// Words of a block in two parts.
struct Parts {
    upper: [Reg; 4],
    lower: [Reg; 4],
}

impl Lower<'_> {
    /// The products of all fragments, added to the sums, with a left factor in shared memory.
    pub(super) fn multiply_parts(&mut self, p: &Contraction, left: &Staged) -> Result<()> {
        let right = match &p.lower {
            Some(lower) => Elements::Parts([&p.right, lower]),
            None => Elements::Whole(&p.right),
        };
        let (fragment, sums, depth) = (p.fragment, &p.sums, p.depth);
        let own: Vec<Vec<Var>> = sums
            .iter()
            .map(|line| line.iter().map(|_| self.b.var(Ty::F32)).collect())
            .collect();
        for from in (0..depth).step_by(CHUNK as usize) {
            let to = depth.min(from + CHUNK);
            let zero = self.b.float(0.0, Ty::F32);
            own.iter().flatten().for_each(|&v| self.b.set(v, zero));
            let sides = [p.rows, p.columns].map(|g| self.groups[g].warp / 16);
            for step in (from..to).step_by(fragment.k as usize) {
                self.multiply_step(fragment, &own, (left, right), sides.into(), step)?;
            }
            let groups = (p.rows, p.columns);
            self.take_parts(sums, &own, (left, right), groups, (from, to))?;
        }
        Ok(())
    }

    /// Adds the sums that the matrix unit made of parts at depths `from` to `to`, or where those are no finite numbers
    /// what multiply-adds make of the factors.
    pub(super) fn take_parts(
        &mut self,
        sums: &[Vec<Var>],
        own: &[Vec<Var>],
        factors: (&Staged, Elements),
        groups: (usize, usize),
        depths: (i64, i64),
    ) -> Result<()> {
        let odd = self.odd(own);
        let plain = self.b.op(Ty::Bool, Op::Unary(Unary::Not, odd));
        self.guarded(Some(plain), |l| {
            let scale = l.map.fragment.map_or(1.0, |f| f.factors.scale());
            let back = l.b.float(1.0 / (scale * scale), Ty::F32);
            for (&sum, &part) in sums.iter().flatten().zip(own.iter().flatten()) {
                let (sum_now, part) = (l.b.get(sum), l.b.get(part));
                let both = l.b.op(Ty::F32, Op::MulAdd(part, back, sum_now));
                l.b.set(sum, both);
            }
            Ok(())
        })?;
        self.guarded(Some(odd), |l| {
            l.multiply_exactly(sums, factors, groups, depths)
        })
    }

    /// The products of all fragments at one depth. The blocks of the shorter side are there at once.
    fn multiply_step(
        &mut self,
        fragment: Fragment,
        sums: &[Vec<Var>],
        (left, right): (&Staged, Elements),
        (tall, wide): (i64, i64),
        step: i64,
    ) -> Result<()> {
        let left = Elements::Whole(left);
        let (few, many, first) = match tall <= wide {
            true => (tall, wide, left),
            false => (wide, tall, right),
        };
        let mut held: Vec<Parts> = vec![];
        for n in 0..few {
            held.push(self.block_in_parts(fragment, first, n * 16, step)?);
        }
        for n in 0..many {
            let second = if tall <= wide { right } else { left };
            let own = self.block_in_parts(fragment, second, n * 16, step)?;
            let with = |m: usize| match tall <= wide {
                true => (m, n as usize, &held[m], &own),
                false => (n as usize, m, &own, &held[m]),
            };
            for half in 0..2 {
                let of = |words: [Reg; 4]| [words[half * 2], words[half * 2 + 1]];
                // The small products first.
                for (upper_left, upper_right) in [(false, true), (true, false), (true, true)] {
                    for k in 0..few as usize {
                        let (m, n, l, r) = with(k);
                        self.b.push(Inst::Multiply {
                            fragment,
                            sums: fragment_sums(sums, m, n * 2 + half),
                            a: if upper_left { l.upper } else { l.lower },
                            b: of(if upper_right { r.upper } else { r.lower }),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Words as they are multiplied in TF32: by one multiply-add near one of the two numbers of TF32 on either side,
    /// where the matrix unit takes the one towards zero.
    pub(super) fn in_tf32(&mut self, words: [Reg; 4]) -> [Reg; 4] {
        words.map(|w| {
            let v = self.b.op(Ty::F32, Op::Bits(w));
            let near = self.value_near(v);
            self.b.op(Ty::U32, Op::Bits(near))
        })
    }

    /// An f32 of which the matrix unit takes a number of TF32 near it.
    pub(super) fn value_near(&mut self, x: Reg) -> Reg {
        let by = self.b.float(kernel::NEAR_TF32, Ty::F32);
        self.b.op(Ty::F32, Op::MulAdd(x, by, x))
    }

    /// The words of the block of 16 rows or columns, as deep as a fragment, in two parts.
    fn block_in_parts(
        &mut self,
        fragment: Fragment,
        e: Elements,
        own: i64,
        depth: i64,
    ) -> Result<Parts> {
        let s = match e {
            Elements::Whole(s) => s,
            Elements::Parts([upper, lower]) => {
                return Ok(Parts {
                    upper: self.block(upper, own, depth)?,
                    lower: self.block(lower, own, depth)?,
                });
            }
        };
        let both = match fragment.factors {
            Factors::Bf16x3 => {
                let pairs = self.pairs(s, own, depth)?;
                pairs.map(|pair| self.pair_in_parts(pair))
            }
            _ => self.block(s, own, depth)?.map(|w| {
                let x = self.b.op(Ty::F32, Op::Bits(w));
                let parts = self.value_in_parts(x);
                parts.map(|v| self.b.op(Ty::U32, Op::Bits(v)))
            }),
        };
        Ok(Parts {
            upper: both.map(|b| b[0]),
            lower: both.map(|b| b[1]),
        })
    }

    /// An f32 in two parts of TF32, [`SCALE`] times as large: the upper and the lower one.
    pub(super) fn value_in_parts(&mut self, x: Reg) -> [Reg; 2] {
        let by = self.b.float(SCALE, Ty::F32);
        let (half, bits) = (
            self.b.constant(HALF, Ty::U32),
            self.b.constant(UPPER, Ty::U32),
        );
        let whole = self.b.binary(Binary::Mul, x, by);
        let word = self.b.op(Ty::U32, Op::Bits(whole));
        let near = self.b.binary(Binary::Add, word, half);
        let upper = self.b.binary(Binary::And, near, bits);
        let part = self.b.op(Ty::F32, Op::Bits(upper));
        [part, self.b.binary(Binary::Sub, whole, part)]
    }

    /// Whether a lane of the warp has sums that are no finite numbers.
    fn odd(&mut self, sums: &[Vec<Var>]) -> Reg {
        let zero = self.b.float(0.0, Ty::F32);
        let mut chains = [zero; CHAINS];
        for (i, &v) in sums.iter().flatten().enumerate() {
            let v = self.b.get(v);
            // What is not finite gives no number.
            chains[i % CHAINS] = self.b.op(Ty::F32, Op::MulAdd(v, zero, chains[i % CHAINS]));
        }
        let [a, b, c, d] = chains;
        let (a, c) = (
            self.b.binary(Binary::Add, a, b),
            self.b.binary(Binary::Add, c, d),
        );
        let all = self.b.binary(Binary::Add, a, c);
        let strange = self.b.op(Ty::Bool, Op::Unary(Unary::IsNan, all));
        self.b.op(Ty::Bool, Op::AnyLane(strange))
    }

    /// The sums and products of this thread at depths `from` to `to`, by multiply-adds.
    fn multiply_exactly(
        &mut self,
        sums: &[Vec<Var>],
        (left, right): (&Staged, Elements),
        (rows, columns): (usize, usize),
        (from, to): (i64, i64),
    ) -> Result<()> {
        let i = self.b.open_loop();
        let depth = self.b.add(i, left.from);
        let at = |l: &mut Self, group: usize, slot: usize| l.slot_position(group, slot as i64);
        let mut tops = vec![];
        for slot in 0..sums[0].len() {
            let column = at(self, columns, slot);
            tops.push(self.element_of(right, column, depth)?);
        }
        for (slot, line) in sums.iter().enumerate() {
            let row = at(self, rows, slot);
            let x = self.element(left, row, depth);
            for (&y, &sum) in tops.iter().zip(line) {
                let before = self.b.get(sum);
                let now = self.b.op(Ty::F32, Op::MulAdd(x, y, before));
                self.b.set(sum, now);
            }
        }
        let [from, to, one] = [from, to, 1].map(|v| self.b.int(v));
        self.b.close_loop(i, (from, to, one));
        Ok(())
    }

    /// The element of a right factor at a column of the piece and a depth.
    fn element_of(&mut self, e: Elements, column: Reg, depth: Reg) -> Result<Reg> {
        match e {
            Elements::Whole(right) => match &right.made {
                Some(made) => self.widened_element(right, &made.clone(), (column, depth)),
                None => Ok(self.element(right, column, depth)),
            },
            Elements::Parts(parts) => {
                let own = self.map.fragment.map_or(Factors::Whole, |f| f.factors);
                let parts = parts.map(|p| self.element(p, column, depth));
                let whole = self.expr(own.whole(), &parts, None, None)?;
                Ok(whole[0])
            }
        }
    }
}
