//! Contractions by matrix instructions of warpgroups, whose factors lie along the depth in shared memory.
//!
//! An instruction has 64 rows, 16 of each warp, in blocks of eight: two of each warp. A warp's rows are neighbours, so
//! that where it has more than 16 the blocks of one instruction are as many times eight lines apart.
use super::matrix::Staged;
use super::state::{Lower, Result};
use crate::simt::ir::{Inst, Lines, Reg, Var};
use kernel::{Factors, Fragment, Swizzle};

/// Warps of a warpgroup, and lines of a block.
const WARPS: i64 = 4;
const BLOCK: i64 = 8;

impl Lower<'_> {
    /// The products of all instructions of the warpgroup, added to the sums; the last of them may be under way still
    /// where [`Lower::products_ahead`] says so.
    pub(super) fn multiply_warpgroup(
        &mut self,
        fragment: Fragment,
        sums: &[Vec<Var>],
        (left, right): (&Staged, &Staged),
        (rows, columns): (usize, usize),
        depth: i64,
    ) -> Result<()> {
        let tall = self.groups[rows].warp / i64::from(kernel::WARP_ROWS);
        let wide = self.groups[columns].warp;
        let [tall_warps, wide_warps] = self.map.warps.map(i64::from);
        if wide != i64::from(fragment.n) || wide_warps != 1 || tall_warps % WARPS != 0 {
            return self.fail(
                "warpgroups",
                format!(
                    "{tall_warps} x {wide_warps} warps have {wide} columns each; instructions of {} columns take four warps along the rows",
                    fragment.n
                ),
            );
        }
        if fragment.factors == Factors::Tf32x3 {
            return self.fail("fragment", "warpgroups multiply factors whole, or as TF32");
        }
        let own = self.warpgroup_rows(tall);
        self.b.push(Inst::WarpgroupFence);
        for step in (0..depth).step_by(fragment.k as usize) {
            let b = self.lines(right, (None, 0), BLOCK, step)?;
            for i in 0..tall {
                let a = self.lines(left, (Some(own), i * BLOCK), BLOCK * tall, step)?;
                let halves = [&sums[i as usize], &sums[(tall + i) as usize]];
                let each = (0..sums[0].len()).step_by(2);
                let list = each.flat_map(|c| halves.map(|h| [h[c], h[c + 1]]));
                self.b.push(Inst::WarpgroupMultiply {
                    fragment,
                    sums: list.flatten().collect(),
                    a,
                    b,
                });
            }
        }
        self.b.push(Inst::WarpgroupCommit);
        let left = u32::from(self.products_ahead);
        self.b.push(Inst::WarpgroupWait(left));
        Ok(())
    }

    /// The first row of this thread's warpgroup, whose warps have so many times 16.
    fn warpgroup_rows(&mut self, tall: i64) -> Reg {
        let number = self.quotient(self.thread, WARPS * 32);
        let each = self.b.int(WARPS * i64::from(kernel::WARP_ROWS) * tall);
        self.b.mul(number, each)
    }

    /// Lines of a factor from one on, whose blocks are so many apart, at a depth.
    fn lines(
        &mut self,
        s: &Staged,
        (own, more): (Option<Reg>, i64),
        apart: i64,
        depth: i64,
    ) -> Result<Lines> {
        let home = s.home();
        let bits = self.shared[home.array as usize].dtype.bits();
        let line = u32::try_from(home.line).unwrap_or(0);
        let swizzle = Swizzle::of_lines(line.saturating_mul(bits) / 8, bits);
        if !s.deep() || swizzle != Some(home.swizzle) {
            return self.fail(
                "lines of warpgroups",
                format!(
                    "lines of {line} elements of {bits} bits; warpgroups read lines along the depth of 32, 64 or 128 bytes, each with its swizzle"
                ),
            );
        }
        let width = self.b.int(home.line);
        let mut index = self.b.int(more * home.line + depth);
        if let Some(own) = own {
            let first = self.b.mul(own, width);
            index = self.b.add(first, index);
        }
        let home = s.home().clone();
        let index = self.staged(&home, index);
        Ok(Lines {
            array: home.array,
            index,
            line,
            pitch: u32::try_from(apart * home.line).unwrap_or(0),
            swizzle: home.swizzle,
        })
    }
}
