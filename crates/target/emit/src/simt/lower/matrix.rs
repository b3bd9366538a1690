//! Contractions by matrix instructions: m16n8k16 of 16-bit floats and of f32 as bf16, m16n8k8 of f32 as TF32, and
//! m16n8k32 of 8-bit integers, whose fragments are those of 16 bits with two elements in place of one.
//!
//! Fragments of 16-bit floats, for lane l with g = l / 4 and p = 2 (l % 4): the left factor has rows g and g + 8 at
//! depths p, p + 1 and p + 8, p + 9 (a0: g, p; a1: g + 8, p; a2: g, p + 8; a3: g + 8, p + 8), the right one column g
//! at depths p, p + 1 (b0) and p + 8, p + 9 (b1), sums rows g (c0, c1) and g + 8 (c2, c3) at columns p, p + 1. The
//! sums of two neighbouring blocks of 8 columns are, rounded to the factors' type, the left fragment of a
//! product that sums over those columns. Fragments of f32 are alike with one depth, l % 4, in place of p and p + 1,
//! and 4 in place of 8 depths further on.
use super::state::{At, Lower, Result, SharedTile, TileStorage};
use super::widened::Widened;
use crate::simt::ir::{Inst, Op, Reg, Ty, Var};
use expr::Binary;
use kernel::{AxisId, Factors, Fragment, Stmt, TileId};
use layout::{Arrange, DType};
use std::rc::Rc;

/// Positions summed per piece at most.
const MAX_DEPTH: i64 = 1024;

/// The sums of fragment number `m` along the rows and `n` along the columns.
pub(super) fn fragment_sums(sums: &[Vec<Var>], m: usize, n: usize) -> [Var; 4] {
    let (top, low, c) = (&sums[m * 2], &sums[m * 2 + 1], n * 2);
    [top[c], top[c + 1], low[c], low[c + 1]]
}

/// A factor in shared memory.
pub(super) struct Staged {
    home: Rc<SharedTile>,
    /// Whether it has the rows.
    rows: bool,
    /// Whether lines are along the depth.
    pub(super) deep: bool,
    /// First element of this lane's line, and its place in the line: of a block that is loaded at once one, of one
    /// whose words the lane reads by itself one for each half of the depth.
    lines: Vec<(Reg, Reg)>,
    /// First depth of this warp's part of a piece.
    pub(super) from: Reg,
    /// How what is multiplied is made of it, where it is not that.
    pub(super) made: Option<Rc<Widened>>,
}

impl Staged {
    /// Whether it has the rows.
    pub(super) fn rows(&self) -> bool {
        self.rows
    }

    /// Where it lies.
    pub(super) fn home(&self) -> &Rc<SharedTile> {
        &self.home
    }

    /// The first of this lane's lines.
    pub(super) fn number_line(&self) -> (Reg, Reg) {
        self.lines[0]
    }
}

/// A contraction by matrix instructions.
pub(super) struct Contraction {
    pub(super) fragment: Fragment,
    pub(super) left: Left,
    pub(super) right: Staged,
    /// Lower parts of the right factor, where the others are its upper ones.
    pub(super) lower: Option<Staged>,
    /// Sums of this thread by half of rows and column.
    pub(super) sums: Vec<Vec<Var>>,
    /// The groups of rows and columns.
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Positions that this warp sums per piece.
    pub(super) depth: i64,
}

/// Where the left factor comes from.
pub(super) enum Left {
    Staged(Staged),
    /// Values of this thread by half of rows and column, as sums of an earlier product have them.
    Held(Vec<Vec<Reg>>),
}

impl Lower<'_> {
    /// `acc += a * b` summed over `over`.
    pub fn multiply(
        &mut self,
        fragment: Fragment,
        acc: TileId,
        factors: (TileId, TileId),
        over: &[AxisId],
    ) -> Result<()> {
        let p = self.contraction(fragment, acc, factors, over)?;
        match (&p.left, fragment.factors) {
            _ if fragment.warps() > 1 => self.multiply_warpgroup(&p),
            (Left::Staged(left), Factors::Tf32x3 | Factors::Bf16x3) => {
                self.multiply_parts(&p, left)
            }
            _ => self.multiply_add(
                fragment,
                &p.sums,
                (&p.left, &p.right),
                (p.rows, p.columns),
                p.depth,
            ),
        }
    }

    /// What `acc += a * b` summed over `over` takes.
    pub(super) fn contraction(
        &mut self,
        fragment: Fragment,
        acc: TileId,
        (a, b): (TileId, TileId),
        over: &[AxisId],
    ) -> Result<Contraction> {
        let tiles = &self.kernel.tiles;
        let has_rows = |t: TileId| {
            let axes = tiles[t as usize].axes.iter();
            axes.clone().any(|x| self.map.rows.contains(x))
        };
        let (a, b) = match (has_rows(a), has_rows(b)) {
            (true, false) => (a, b),
            (false, true) => (b, a),
            _ => {
                return self.fail(
                    "rows of one factor",
                    "exactly one factor must have the accumulator's rows",
                );
            }
        };
        let factors = [a, b].map(|t| tiles[t as usize].dtype);
        if tiles[acc as usize].dtype != fragment.acc || factors != fragment.types() {
            return self.fail(
                "element type",
                "a product's types must be those of the mapping's fragment",
            );
        }
        let (rows, columns) = self.sides(acc)?;
        let fragment = self.own_fragment(acc, columns, fragment)?;
        let whole = self.depth(over, fragment.k.into())?;
        let depth = self.own_depth(whole, fragment.k.into())?;
        let (right, lower) = self.right_factor(b, (columns, over), depth)?;
        let left = match &*self.homes[a as usize].clone() {
            TileStorage::Shared(home) => {
                Left::Staged(self.factor(a, home, (rows, over), (depth, None))?)
            }
            TileStorage::Held { .. } | TileStorage::Formula(_)
                if fragment.input.bits() == 16 && self.map.deep() == 1 =>
            {
                Left::Held(self.held_factor(a, rows, over)?)
            }
            _ => {
                return self.fail(
                    "left factor",
                    "it must be staged, or be held in 16 bits with the summed axes as its columns",
                );
            }
        };
        let sums = self.sums(acc, (rows, columns))?;
        Ok(Contraction {
            fragment,
            left,
            right,
            lower,
            sums,
            rows,
            columns,
            depth,
        })
    }

    /// The instruction for an accumulator: the mapping's is that of the first, others have the columns of theirs.
    fn own_fragment(&self, acc: TileId, columns: usize, fragment: Fragment) -> Result<Fragment> {
        let first = self.kernel.body.iter().find_map(|s| match s {
            Stmt::Contract { acc, .. } => Some(*acc),
            _ => None,
        });
        let wide = self.groups[columns].warp;
        let own = fragment.of_columns(u32::try_from(wide).unwrap_or(0));
        match first != Some(acc) || own == fragment {
            true => Ok(own),
            false => self.fail(
                "columns of a warpgroup",
                format!(
                    "warps have {wide} columns of it, instructions have {}",
                    fragment.n
                ),
            ),
        }
    }

    /// The factor with the columns, or its upper parts and its lower ones.
    fn right_factor(
        &mut self,
        t: TileId,
        group: (usize, &[AxisId]),
        depth: i64,
    ) -> Result<(Staged, Option<Staged>)> {
        if let Some((home, made)) = self.widened(t, group, depth) {
            let numbers = self.numbers(&made);
            let staged = self.factor(numbers, &home, group, (depth, Some(made)))?;
            return Ok((staged, None));
        }
        let parts = match &*self.homes[t as usize] {
            TileStorage::Formula(_) => self.kernel.parts_of(t),
            _ => None,
        };
        let own = |f: Factors| {
            let words = self.warpgroups() || f.part_type() == DType::BF16;
            words && self.map.fragment.is_some_and(|own| own.factors == f)
        };
        if parts.is_some_and(|p| !own(p.0)) {
            return self.fail(
                "parts of a factor",
                "the factor with the columns was laid out for other instructions",
            );
        }
        let parts = parts.map(|p| p.1);
        let mut staged = |t: TileId| match &*self.homes[t as usize].clone() {
            TileStorage::Shared(home) => self.factor(t, home, group, (depth, None)),
            _ => self.fail(
                "factor in shared memory",
                "the factor with the columns must be staged in shared memory",
            ),
        };
        match parts {
            Some(&[upper, lower]) => Ok((staged(upper)?, Some(staged(lower)?))),
            Some(&[one]) => Ok((staged(one)?, None)),
            _ => Ok((staged(t)?, None)),
        }
    }

    /// The groups of an accumulator's rows and columns.
    pub(super) fn sides(&self, acc: TileId) -> Result<(usize, usize)> {
        let axes = &self.kernel.tiles[acc as usize].axes;
        let mut groups: Vec<usize> = axes.iter().filter_map(|&a| self.group_of(a)).collect();
        groups.arrange();
        groups.dedup();
        let held = matches!(*self.homes[acc as usize], TileStorage::Held { .. });
        match groups[..] {
            [rows, columns] if held && self.groups[rows].rows && !self.groups[columns].rows => {
                Ok((rows, columns))
            }
            _ => self.fail(
                "accumulator",
                "it must be held in registers, with rows and columns",
            ),
        }
    }

    /// Positions summed per piece.
    fn depth(&self, over: &[AxisId], each: i64) -> Result<i64> {
        let mut depth = 1i64;
        for &a in over {
            depth = depth.saturating_mul(self.bound(a)?);
        }
        if depth > MAX_DEPTH || depth % each != 0 {
            return self.fail(
                "depth",
                format!("{depth} positions are summed per piece; a multiple of {each} up to {MAX_DEPTH} has fragments"),
            );
        }
        Ok(depth)
    }

    /// Positions of them that a warp sums, of so many.
    fn own_depth(&self, depth: i64, each: i64) -> Result<i64> {
        let deep = i64::from(self.map.deep());
        let own = depth / deep;
        match deep == 1 || depth % deep == 0 && own % each == 0 && own.count_ones() == 1 {
            true => Ok(own),
            false => self.fail(
                "warps along the depth",
                format!("{depth} positions are summed per piece over {deep} warps; a power of two of at least {each} each has fragments"),
            ),
        }
    }

    /// A staged factor with the rows or columns of a group.
    fn factor(
        &mut self,
        t: TileId,
        home: &Rc<SharedTile>,
        (group, over): (usize, &[AxisId]),
        (depth, made): (i64, Option<Widened>),
    ) -> Result<Staged> {
        let tile = &self.kernel.tiles[t as usize];
        let outside = self.groups[group].axes.clone();
        for &a in outside.iter().map(|(a, _)| a).chain(over) {
            if self.bound(a)? > 1 && !tile.axes.contains(&a) {
                return self.fail(
                    "axes of a factor",
                    format!(
                        "tile '{}' lacks axis '{}'; make it an axis of its own",
                        tile.name, self.kernel.axes[a as usize].name
                    ),
                );
            }
        }
        let stray = |a: &&AxisId| !over.contains(a) && !outside.iter().any(|o| o.0 == **a);
        for &a in tile.axes.iter().filter(stray) {
            if self.bound(a)? > 1 {
                return self.fail(
                    "axes of a factor",
                    format!(
                        "axis '{}' is neither summed nor row nor column, and its tile is not 1",
                        self.kernel.axes[a as usize].name
                    ),
                );
            }
        }
        let (Some(&last), Some(&(inner, _))) = (tile.axes.last(), home.axes.last()) else {
            return self.fail("axes of a factor", "it has none");
        };
        if inner != last {
            return self.fail(
                "innermost axis",
                format!(
                    "axis '{}' is the last of tile '{}' but not of its group",
                    self.kernel.axes[last as usize].name, tile.name
                ),
            );
        }
        let width = u32::try_from(home.line).unwrap_or(0);
        let bits = tile.dtype.bits();
        if made.is_none() && !home.swizzle.fits(width, bits) {
            let s = home.swizzle;
            return self.fail(
                "swizzle",
                format!(
                    "({}, {}, {}) does not keep lines of {width} elements to themselves",
                    s.bits, s.base, s.shift
                ),
            );
        }
        let deep = over.contains(&last);
        let rows = self.groups[group].rows;
        let turned = |f: &Fragment| f.along_depth() && (rows || !f.turns_right());
        if !deep && self.map.fragment.as_ref().is_some_and(turned) {
            return self.fail(
                "lines along the depth",
                "8 bits and what warpgroups multiply lie along what is summed, but for right factors of 16 bits; lay the operand out along it",
            );
        }
        if made.is_some() && (!deep || self.warpgroups()) {
            return self.fail(
                "numbers of 4 bits",
                "factors are made of them for instructions of one warp, where they lie along what is summed",
            );
        }
        // Elements of f32 change places in words of bf16, and so do lines across the depth that lie as they are multiplied.
        let word = self.map.fragment.map(|f| f.multiplied()[0]);
        let beside = bits == 16 && word != self.map.fragment.map(|f| f.input);
        if beside && deep && !self.warpgroups() {
            return self.fail(
                "parts of a factor",
                "single warps read parts in bf16 that lie across what is summed",
            );
        }
        let from = self.deep_part(depth);
        let lines = match (bits == 32 && !deep, &made) {
            (_, Some(made)) => vec![self.number_line(made, home, from)],
            // Warpgroups find their lines by themselves.
            _ if self.warpgroups() => vec![],
            (true, _) => self.word_lines(group, home, from),
            (false, _) => vec![self.lane_line((group, deep), home, (128 / bits, beside), from)],
        };
        Ok(Staged {
            home: home.clone(),
            rows,
            deep,
            lines,
            from,
            made: made.map(Rc::new),
        })
    }

    /// The first element of the line that this lane gives of a block at the warp's first row or column, and
    /// its place in the line; lines are loaded in vectors of so many elements, and change places where words are made of f32
    /// of the other factor.
    fn lane_line(
        &mut self,
        (group, deep): (usize, bool),
        home: &SharedTile,
        (vector, beside): (u32, bool),
        from: Reg,
    ) -> (Reg, Reg) {
        let (rows, each) = (self.groups[group].rows, self.groups[group].warp);
        let (lane, warp) = (self.lane(), self.warp_number(rows));
        let b = &mut self.b;
        let masked = |b: &mut crate::simt::build::Build, r: Reg, mask: i64| {
            let mask = b.int(mask);
            b.binary(Binary::And, r, mask)
        };
        let shifted = |b: &mut crate::simt::build::Build, r: Reg, by: u32| {
            let by = b.int(by.into());
            b.binary(Binary::Shr, r, by)
        };
        let low = masked(b, lane, 7);
        let low16 = masked(b, lane, 15);
        // 8 times bits 3 and 4 of the lane, and as many elements as a vector has.
        let third = masked(b, lane, 8);
        let half = shifted(b, lane, 1);
        let fourth = masked(b, half, 8);
        let both = b.add(low, fourth);
        let vectors = |b: &mut crate::simt::build::Build, eight: Reg| match vector {
            16 => b.add(eight, eight),
            v => shifted(b, eight, (8 / v).ilog2()),
        };
        // The two of a word are four depths apart.
        let across = match beside {
            true => {
                let (pair, second) = (masked(b, lane, 6), masked(b, lane, 1));
                let (pair, four) = (shifted(b, pair, 1), b.int(4));
                let second = b.mul(second, four);
                let own = b.add(pair, second);
                b.add(third, own)
            }
            false => low16,
        };
        let (own, depth) = match (rows, deep) {
            (true, true) => (low16, vectors(b, fourth)),
            (true, false) => (third, both),
            (false, true) => (both, vectors(b, third)),
            (false, false) => (fourth, across),
        };
        let each = b.int(each);
        let first = b.mul(warp, each);
        let own = b.add(first, own);
        let depth = b.add(depth, from);
        let (outer, inner) = if deep { (own, depth) } else { (depth, own) };
        let width = b.int(home.line);
        let line = b.mul(outer, width);
        (line, self.within_line(line, inner, home.swizzle))
    }

    /// The first elements of the lines at this lane's two depths of a fragment of f32, and the places in them of its
    /// first row or column.
    fn word_lines(&mut self, group: usize, home: &SharedTile, from: Reg) -> Vec<(Reg, Reg)> {
        let (rows, each) = (self.groups[group].rows, self.groups[group].warp);
        let (lane, warp) = (self.lane(), self.warp_number(rows));
        let own = self.quotient(lane, 4);
        let depth = self.remainder(lane, 4);
        let depth = self.b.add(depth, from);
        let each = self.b.int(each);
        let first = self.b.mul(warp, each);
        let own = self.b.add(first, own);
        let width = self.b.int(home.line);
        let of = |half: i64| {
            let half = self.b.int(half);
            let depth = self.b.add(depth, half);
            let line = self.b.mul(depth, width);
            (line, self.within_line(line, own, home.swizzle))
        };
        [0, 4].map(of).to_vec()
    }

    /// The words of the block of 16 rows or columns, as deep as a fragment, at (`own`, `depth`) of this warp's part.
    pub(super) fn block(&mut self, s: &Staged, own: i64, depth: i64) -> Result<[Reg; 4]> {
        if let Some(made) = &s.made {
            return self.widened_block(s, &made.clone(), (own, depth));
        }
        if s.lines.len() > 1 {
            // Halves of the depth follow those of rows, and those of columns follow the depth's.
            let at = |n: usize| match s.rows {
                true => (n % 2, n / 2),
                false => (n / 2, n % 2),
            };
            return Ok([0, 1, 2, 3].map(|n| {
                let (half, line) = at(n);
                self.word(s, own + 8 * half as i64, depth, line)
            }));
        }
        let (outer, inner) = if s.deep { (own, depth) } else { (depth, own) };
        let index = self.place_beyond(&s.home, s.lines[0], (outer, inner));
        let dst = [(); 4].map(|()| self.b.fresh(Ty::U32));
        self.b.push(Inst::LoadMatrix {
            dst,
            array: s.home.array,
            index,
            transposed: !s.deep,
        });
        Ok(dst)
    }

    /// A lane's element of a fragment of f32, as a word.
    fn word(&mut self, s: &Staged, own: i64, depth: i64, line: usize) -> Reg {
        let index = self.place_beyond(&s.home, s.lines[line], (depth, own));
        let array = s.home.array;
        let v = self.b.op(Ty::F32, Op::LoadShared { array, index });
        self.b.op(Ty::U32, Op::Bits(v))
    }

    /// The element `outer` lines and `inner` places in the line beyond one in a line that begins at an element.
    pub(super) fn place_beyond(
        &mut self,
        home: &SharedTile,
        (line, within): (Reg, Reg),
        (outer, inner): (i64, i64),
    ) -> Reg {
        // The swizzle is an exclusive or of the line's bits: whole blocks commute with it.
        let inner = self.b.int(inner);
        let within = match self.b.number(inner) {
            Some(0) => within,
            _ => self.b.binary(Binary::Xor, within, inner),
        };
        let line = self.staged(home, line);
        let first = self.b.add(line, within);
        let outer = self.b.int(outer * home.line);
        self.b.add(first, outer)
    }

    /// The element of a factor at a row or column of the piece and a depth.
    pub(super) fn element(&mut self, s: &Staged, own: Reg, depth: Reg) -> Reg {
        let array = s.home.array;
        let (outer, inner) = if s.deep { (own, depth) } else { (depth, own) };
        let width = self.b.int(s.home.line);
        if s.home.image {
            // Lines of 16 bytes: those of the next depths stand behind those of all rows or columns.
            let within = self.remainder(inner, s.home.line);
            let number = self.quotient(inner, s.home.line);
            let each = self.b.int(s.home.lines() * s.home.line);
            let (zero, one) = (self.b.int(0), self.b.int(1));
            let first = self.staged(&s.home, zero);
            // Neighbours differ by numbers that are known: none has a register of its own.
            let terms = [(outer, width), (number, each), (within, one)];
            let index = self.b.linear(first, &terms);
            return self.b.op(Ty::F32, Op::LoadShared { array, index });
        }
        let line = self.b.mul(outer, width);
        let within = self.within_line(line, inner, s.home.swizzle);
        let line = self.staged(&s.home, line);
        let index = self.b.add(line, within);
        self.b.op(Ty::F32, Op::LoadShared { array, index })
    }

    /// A factor that this thread holds, by half of rows and column: 0 where a column does not exist.
    fn held_factor(&mut self, t: TileId, rows: usize, over: &[AxisId]) -> Result<Vec<Vec<Reg>>> {
        let columns = match self.group_with(over) {
            Some(g) if !self.groups[g].rows && self.map.warps[1] == 1 => g,
            Some(_) => {
                return self.fail("warps along columns", "a factor that is held in fragments needs all its columns in one warp; use one warp along the columns");
            }
            None => {
                return self.fail(
                    "left factor",
                    "it must be staged, or be held with the summed axes as its columns",
                );
            }
        };
        let zero = self.b.float(0.0, Ty::F32);
        let mut out = vec![];
        for half in 0..self.groups[rows].slots {
            let row = self.slot(rows, half, &self.origin());
            let mut line = vec![];
            for c in 0..self.groups[columns].slots {
                let at = self.slot(columns, c, &row);
                let v = self.value(t, &at)?;
                let exists = self.exists_but(over, &at, |l, a| l.zero_beyond(t, a));
                line.push(match exists {
                    Some(p) => self.b.select(p, v, zero),
                    None => v,
                });
            }
            out.push(line);
        }
        Ok(out)
    }

    /// Sums of this thread at so many fragments.
    pub(super) fn sums(
        &mut self,
        acc: TileId,
        (rows, columns): (usize, usize),
    ) -> Result<Vec<Vec<Var>>> {
        let TileStorage::Held { vars, own } = &*self.homes[acc as usize].clone() else {
            return self.fail("accumulator", "it must be held in registers");
        };
        let mut out = vec![];
        for half in 0..self.groups[rows].slots {
            let row = self.slot(rows, half, &self.origin());
            let mut line = vec![];
            for c in 0..self.groups[columns].slots {
                let at: At = self.slot(columns, c, &row);
                line.push(self.held(acc, vars, own, &at)?);
            }
            out.push(line);
        }
        Ok(out)
    }

    /// The products of all fragments, added to the sums.
    fn multiply_add(
        &mut self,
        fragment: Fragment,
        sums: &[Vec<Var>],
        (left, right): (&Left, &Staged),
        (rows, columns): (usize, usize),
        depth: i64,
    ) -> Result<()> {
        let tall = self.groups[rows].warp / 16;
        let wide = self.groups[columns].warp / 16;
        let block = |l: &mut Self, s: &Staged, own: i64, step: i64| -> Result<[Reg; 4]> {
            Ok(match fragment.factors {
                Factors::Bf16 if !l.is_words(s) => {
                    l.pairs(s, own, step)?.map(|pair| l.pair_near(pair))
                }
                Factors::Tf32 => {
                    let words = l.block(s, own, step)?;
                    l.in_tf32(words)
                }
                _ => l.block(s, own, step)?,
            })
        };
        for step in (0..depth).step_by(fragment.k as usize) {
            let mut lefts = vec![];
            for m in 0..tall {
                lefts.push(match left {
                    Left::Staged(s) => block(self, s, m * 16, step)?,
                    Left::Held(v) => {
                        let m = m as usize * 2;
                        self.packed(fragment.input, [&v[m], &v[m + 1]], step)
                    }
                });
            }
            for n in 0..wide {
                let r = block(self, right, n * 16, step)?;
                for (m, a) in lefts.iter().enumerate() {
                    for half in 0..2 {
                        self.b.push(Inst::Multiply {
                            fragment,
                            sums: fragment_sums(sums, m, n as usize * 2 + half),
                            a: *a,
                            b: [r[half * 2], r[half * 2 + 1]],
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// The left fragment of 16 rows, of which these are the two halves, from column `from` on.
    pub(super) fn packed(&mut self, d: DType, halves: [&[Reg]; 2], from: i64) -> [Reg; 4] {
        let at = from as usize / 8 * 2;
        [(0, 0), (1, 0), (0, 2), (1, 2)].map(|(half, n)| {
            let line = halves[half];
            let (x, y) = (line[at + n], line[at + n + 1]);
            self.b.op(Ty::U32, Op::Pack(d, x, y))
        })
    }
}
