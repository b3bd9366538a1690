//! Products of f32 by warpgroups where warps of their own copy: threads read rows of the left factor from shared memory
//! as it was copied, make of them what is multiplied, and give it in registers; the right factor lies as it is multiplied,
//! since it was laid out.
use super::matrix::{Contraction, Left, Staged};
use super::parts::{CHUNK, Elements};
use super::state::{Lower, Result, SharedTile};
use super::warpgroup::Words;
use super::warpgroup_parts::products_of;
use crate::simt::ir::{Inst, LeftFactor, Op, Reg, Ty, Var, Warpgroup};
use kernel::{Factors, Fragment};

/// Rows of a block, and lanes that have words of a row.
const BLOCK: i64 = 8;
const LANES: i64 = 4;

/// Elements of which this thread makes its words, as [`Words`]: one of each, or two.
type Read = Vec<Vec<[Vec<Reg>; 4]>>;

impl Lower<'_> {
    /// The products of all instructions of the warpgroup, added to the sums. Those of the piece before, which
    /// [`Lower::products_ahead`] lets go on, are over when the words that they read are made anew.
    pub(super) fn multiply_words(&mut self, p: &Contraction) -> Result<()> {
        let Left::Staged(left) = &p.left else {
            return self.fail("left factor", "threads read it from shared memory");
        };
        let rights: Vec<&Staged> = [Some(&p.right), p.lower.as_ref()]
            .into_iter()
            .flatten()
            .collect();
        let parts = p.fragment.products() > 1;
        let [_, multiplied] = p.fragment.multiplied();
        let lies = |r: &&Staged| {
            let home = r.home();
            home.image && self.shared[home.array as usize].dtype == multiplied
        };
        if parts != p.lower.is_some() || !rights.iter().all(lies) {
            return self.fail(
                "warps that copy",
                "of factors of f32 the right one lies as it is multiplied, as an image of its numbers or of both parts of them",
            );
        }
        if parts && p.depth > CHUNK {
            return self.fail(
                "depth",
                format!("{} positions are summed by the matrix unit alone", p.depth),
            );
        }
        let read = self.words_of(p, left)?;
        if self.products_ahead {
            self.b.push(Inst::Warpgroup(Warpgroup::Wait(0)));
        }
        let words = self.multiplied(p.fragment, &read);
        let own = match parts {
            true => self.sums_of_parts(&p.sums),
            false => p.sums.clone(),
        };
        self.b.push(Inst::Warpgroup(Warpgroup::Fence));
        for (n, &(a, b)) in products_of(p.fragment.factors).iter().enumerate() {
            let home = rights[b].home().clone();
            let from = self.in_stage(&home);
            self.products_of_words(p, (&own, parts && n == 0), &words[a], (&home, from))?;
        }
        self.b.push(Inst::Warpgroup(Warpgroup::Commit));
        if !self.products_ahead {
            self.b.push(Inst::Warpgroup(Warpgroup::Wait(0)));
        }
        if let Some(lower) = &p.lower {
            let factors = (left, Elements::Parts([&p.right, lower]));
            self.take_parts(&p.sums, &own, factors, (p.rows, p.columns), (0, p.depth))?;
        }
        Ok(())
    }

    /// What is multiplied of elements: one word for each, or two of an upper and a lower part.
    fn multiplied(&mut self, fragment: Fragment, read: &Read) -> Vec<Words> {
        let count = products_of(fragment.factors).len().min(2);
        let mut out: Vec<Words> = vec![vec![]; count];
        for line in read {
            let mut made: Vec<Vec<[Reg; 4]>> = vec![vec![]; count];
            for values in line {
                let each = [0, 1, 2, 3].map(|i| self.word_of(fragment.factors, &values[i]));
                for (n, part) in made.iter_mut().enumerate() {
                    part.push([0, 1, 2, 3].map(|i| each[i][n]));
                }
            }
            out.iter_mut().zip(made).for_each(|(o, m)| o.push(m));
        }
        out
    }

    /// The words of one element or of two: what is multiplied, or its upper and its lower part.
    fn word_of(&mut self, factors: Factors, values: &[Reg]) -> Vec<Reg> {
        let bits = |l: &mut Self, v: Reg| l.b.op(Ty::U32, Op::Bits(v));
        match (factors, values) {
            (Factors::Bf16, &[x, y]) => vec![self.pair_near([x, y])],
            (Factors::Bf16x3, &[x, y]) => self.pair_in_parts([x, y]).to_vec(),
            (Factors::Tf32x3, _) => {
                let parts = self.value_in_parts(values[0]);
                parts.map(|v| bits(self, v)).to_vec()
            }
            _ => {
                let near = self.value_near(values[0]);
                vec![bits(self, near)]
            }
        }
    }

    /// Elements of the left factor of which this thread makes its words.
    fn words_of(&mut self, p: &Contraction, left: &Staged) -> Result<Read> {
        let home = left.home().clone();
        // Longer lines lie in parts behind each other.
        let all = home.line * home.panels();
        if home.image || home.line % i64::from(p.fragment.k) != 0 || all < p.depth {
            return self.fail("left factor", "threads read it in lines along the depth");
        }
        let warp = self.groups[p.rows].warp;
        let tall = warp / i64::from(kernel::WARP_ROWS);
        // Elements in a word.
        let each = i64::from(32 / p.fragment.multiplied()[0].bits());
        let place = self.own_line(&home, warp, each);
        let mut words = vec![];
        for i in 0..tall {
            let mut line = vec![];
            for step in (0..p.depth).step_by(p.fragment.k as usize) {
                line.push([(0, 0), (1, 0), (0, 1), (1, 1)].map(|(half, deep)| {
                    let inner = step + deep * LANES * each;
                    let (panel, inner) = (inner / home.line, inner % home.line);
                    let outer = (i + half * tall) * BLOCK + panel * home.lines();
                    let index = self.place_beyond(&home, place, (outer, inner));
                    let array = home.array;
                    match each {
                        1 => vec![self.b.op(Ty::F32, Op::LoadShared { array, index })],
                        n => self.b.load_shared_run((array, index), Ty::F32, n as usize),
                    }
                }));
            }
            words.push(line);
        }
        Ok(words)
    }

    /// The first element of this lane's first row of its warp's, and the place in that line of the `word` elements of its
    /// first word.
    fn own_line(&mut self, home: &SharedTile, warp: i64, word: i64) -> (Reg, Reg) {
        let (lane, number) = (self.lane(), self.warp_number(true));
        let [row, depth] = [self.quotient(lane, LANES), self.remainder(lane, LANES)];
        let word = self.b.int(word);
        let depth = self.b.mul(depth, word);
        let each = self.b.int(warp);
        let first = self.b.mul(number, each);
        let row = self.b.add(first, row);
        let width = self.b.int(home.line);
        let line = self.b.mul(row, width);
        (line, self.within_line(line, depth, home.swizzle))
    }

    /// Begins the products of all instructions with words of the left factor, which are added to sums or are `fresh` ones.
    pub(super) fn products_of_words(
        &mut self,
        p: &Contraction,
        (sums, fresh): (&[Vec<Var>], bool),
        words: &Words,
        (right, b): (&SharedTile, (u32, Reg)),
    ) -> Result<()> {
        self.along_rows(p)?;
        for (step, depth) in (0..p.depth).step_by(p.fragment.k as usize).enumerate() {
            let b = self.right_lines(p, right, b, depth)?;
            for (i, line) in words.iter().enumerate() {
                self.b.push(Inst::Warpgroup(Warpgroup::Multiply {
                    fragment: p.fragment,
                    sums: self.instruction_sums(sums, i, words.len()),
                    fresh: fresh && step == 0,
                    a: LeftFactor::Words(line[step]),
                    b,
                }));
            }
        }
        Ok(())
    }
}
