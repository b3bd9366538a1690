//! Contractions by matrix instructions of warpgroups, whose factors lie along the depth in shared memory.
//!
//! An instruction has 64 rows, 16 of each warp, in blocks of eight: two of each warp. A warp's rows are neighbours, so
//! that where it has more than 16 the blocks of one instruction are as many times eight lines apart.
use super::matrix::{Contraction, Left};
use super::state::{Lower, Result, SharedTile};
use crate::simt::ir::{Inst, LeftFactor, Lines, Reg, Var, Warpgroup};
use kernel::{Factors, Swizzle};

/// Warps of a warpgroup, and lines of a block.
const WARPS: i64 = 4;
const BLOCK: i64 = 8;
/// Columns of an instruction.
const MOST_COLUMNS: i64 = 256;

/// Words of a left factor by number of the instruction along the rows and step along the depth.
pub(super) type Words = Vec<Vec<[Reg; 4]>>;

impl Lower<'_> {
    /// The products of all instructions of the warpgroup, added to the sums; the last of them may be under way still
    /// where [`Lower::products_ahead`] says so.
    pub(super) fn multiply_warpgroup(&mut self, p: &Contraction) -> Result<()> {
        if self.copiers > 0 && p.fragment.factors != Factors::Whole {
            return self.multiply_words(p);
        }
        if p.fragment.factors != Factors::Whole {
            return self.fail(
                "factors of warpgroups",
                "threads make them of f32 where a loop does nothing but copy and multiply, by three stages or more",
            );
        }
        let right = p.right.home().clone();
        let b = self.in_stage(&right);
        match &p.left {
            Left::Staged(left) => {
                let left = left.home().clone();
                let a = self.in_stage(&left);
                self.b.push(Inst::Warpgroup(Warpgroup::Fence));
                self.products(p, (&p.sums, false), (&left, a), (&right, b))?;
            }
            Left::Held(held) => {
                let words = self.words_of_held(p, held);
                self.b.push(Inst::Warpgroup(Warpgroup::Fence));
                self.products_of_words(p, (&p.sums, false), &words, (&right, b))?;
            }
        }
        self.b.push(Inst::Warpgroup(Warpgroup::Commit));
        let left = u32::from(self.products_ahead);
        self.b.push(Inst::Warpgroup(Warpgroup::Wait(left)));
        Ok(())
    }

    /// What this thread holds of a left factor of 16 bits, as words.
    fn words_of_held(&mut self, p: &Contraction, held: &[Vec<Reg>]) -> Words {
        let tall = held.len() / 2;
        let steps = (0..p.depth).step_by(p.fragment.k as usize);
        let line = |i: usize| {
            let halves = [&held[i][..], &held[tall + i][..]];
            let of = |step| self.packed(p.fragment.input, halves, step);
            steps.clone().map(of).collect()
        };
        (0..tall).map(line).collect()
    }

    /// A staged tile's array, and the first element of the stage that is read.
    pub(super) fn in_stage(&mut self, home: &SharedTile) -> (u32, Reg) {
        let zero = self.b.int(0);
        (home.array, self.staged(home, zero))
    }

    /// Begins the products of all instructions, which are added to sums or are `fresh` ones: `a` and `b` lie as the
    /// homes beside them, in an array from an element on.
    pub(super) fn products(
        &mut self,
        p: &Contraction,
        (sums, fresh): (&[Vec<Var>], bool),
        (left, a): (&SharedTile, (u32, Reg)),
        (right, b): (&SharedTile, (u32, Reg)),
    ) -> Result<()> {
        self.along_rows(p)?;
        let tall = self.groups[p.rows].warp / i64::from(kernel::WARP_ROWS);
        let own = self.warpgroup_rows(tall);
        for step in (0..p.depth).step_by(p.fragment.k as usize) {
            let b = self.right_lines(p, right, b, step)?;
            for i in 0..tall {
                let a = self.lines(left, a, (Some(own), i * BLOCK), (BLOCK * tall, step))?;
                self.b.push(Inst::Warpgroup(Warpgroup::Multiply {
                    fragment: p.fragment,
                    sums: self.instruction_sums(sums, i as usize, tall as usize),
                    fresh: fresh && step == 0,
                    a: LeftFactor::Lines(a),
                    b,
                }));
            }
        }
        Ok(())
    }

    /// Whether warps lie along the rows alone, four and four, each with all columns of an instruction.
    pub(super) fn along_rows(&self, p: &Contraction) -> Result<()> {
        let wide = self.groups[p.columns].warp;
        let [tall_warps, wide_warps] = self.map.warps.map(i64::from);
        match wide <= MOST_COLUMNS && wide_warps == 1 && tall_warps % WARPS == 0 {
            true => Ok(()),
            false => self.fail(
                "warpgroups",
                format!(
                    "{tall_warps} x {wide_warps} warps have {wide} columns each; instructions have up to {MOST_COLUMNS} and take four warps along the rows"
                ),
            ),
        }
    }

    /// This thread's sums of instruction number `i` of `tall` along the rows, as it has them.
    pub(super) fn instruction_sums(&self, sums: &[Vec<Var>], i: usize, tall: usize) -> Vec<Var> {
        let halves = [&sums[i], &sums[tall + i]];
        let each = (0..sums[0].len()).step_by(2);
        let list = each.flat_map(|c| halves.map(|h| [h[c], h[c + 1]]));
        list.flatten().collect()
    }

    /// The first row of this thread's warpgroup, whose warps have so many times 16.
    fn warpgroup_rows(&mut self, tall: i64) -> Reg {
        let number = self.quotient(self.thread, WARPS * 32);
        let each = self.b.int(WARPS * i64::from(kernel::WARP_ROWS) * tall);
        self.b.mul(number, each)
    }

    /// Lines of all columns of a right factor, which lies as `home` in an array from an element on, at a depth.
    pub(super) fn right_lines(
        &mut self,
        p: &Contraction,
        home: &SharedTile,
        from: (u32, Reg),
        depth: i64,
    ) -> Result<Lines> {
        if p.right.deep {
            return self.lines(home, from, (None, 0), (BLOCK, depth));
        }
        let mut across = self.lines(home, from, (None, depth), (BLOCK, 0))?;
        across.across = true;
        across.beyond = u32::try_from(home.lines() * home.line).unwrap_or(0);
        Ok(across)
    }

    /// Lines of a factor, which lies as `home` in an array from an element on: those from one on, whose blocks are so
    /// many apart, at a depth.
    pub(super) fn lines(
        &mut self,
        home: &SharedTile,
        (array, first): (u32, Reg),
        (own, more): (Option<Reg>, i64),
        (apart, depth): (i64, i64),
    ) -> Result<Lines> {
        let bits = self.shared[array as usize].dtype.bits();
        let line = u32::try_from(home.line).unwrap_or(0);
        let swizzle = Swizzle::of_lines(line.saturating_mul(bits) / 8, bits);
        let whole = home.axes.last().is_some_and(|a| a.1 % home.line == 0);
        let read = home.image || swizzle == Some(home.swizzle);
        if !read || home.panels() > 1 && !whole {
            return self.fail(
                "lines of warpgroups",
                format!(
                    "lines of {line} elements of {bits} bits; warpgroups read lines of 32, 64 or 128 bytes, each with its swizzle"
                ),
            );
        }
        // The lines of the next depths stand behind those of all rows or columns.
        let panel = home.lines() * home.line;
        let beyond = match home.panels() {
            1 => depth,
            _ => depth / home.line * panel + depth % home.line,
        };
        let mut index = self.b.int(more * home.line + beyond);
        if let Some(own) = own {
            let width = self.b.int(home.line);
            let row = self.b.mul(own, width);
            index = self.b.add(row, index);
        }
        Ok(Lines {
            array,
            index: self.b.add(first, index),
            line,
            pitch: u32::try_from(apart * home.line).unwrap_or(0),
            beyond: match home.image {
                true => u32::try_from(panel).unwrap_or(0),
                false => 0,
            },
            across: false,
            swizzle: home.swizzle,
        })
    }
}
