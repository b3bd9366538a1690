//! Contractions on tensor cores: ldmatrix and mma.m16n8k16.
//!
//! Fragments of m16n8k16, for lane l with g = l / 4 and p = 2 (l % 4): A holds rows g and g + 8 at
//! depths p, p+1 and p+8, p+9 (a0: g, p; a1: g+8, p; a2: g, p+8; a3: g+8, p+8), B holds column g at
//! depths p, p+1 (b0) and p+8, p+9 (b1), C holds rows g (c0, c1) and g + 8 (c2, c3) at columns p, p+1.
//! ldmatrix.x4 fills four registers from four 8x8 matrices whose line addresses come from lanes
//! 0-7, 8-15, 16-23 and 24-31; `.trans` is needed where depth is not the innermost axis. The C
//! fragments of two neighbouring 8-column blocks are, rounded to the factors' type, the A fragment of a product
//! that sums over those columns.
use super::emitter::{Emitter, Result, Staged, Value};
use super::group::Group;
use super::text::Reg;
use kernel::{AxisId, Swizzle, TileId};
use layout::DType;

impl Emitter<'_> {
    /// Column axes of an accumulator.
    pub fn columns_of(&self, tile: TileId) -> Result<Group> {
        let axes = &self.kernel.tiles[tile as usize].axes;
        let mut columns: Vec<AxisId> = axes
            .iter()
            .copied()
            .filter(|a| !self.rows.has(*a) && !self.uniform(*a))
            .collect();
        let place = |a: &AxisId| self.map.columns.iter().position(|c| c == a);
        // The mapping gives the order of the main accumulator's columns.
        if columns.iter().all(|a| place(a).is_some()) {
            columns.sort_by_key(|a| place(a));
        }
        self.group(&columns)
    }

    /// Line and byte within it that this lane gives to ldmatrix.
    pub fn lane_line(
        &mut self,
        home: Reg,
        is_rows: bool,
        k_inner: bool,
        width: u32,
        s: Swizzle,
        mn: &Group,
    ) -> Result<(Reg, Reg)> {
        let lane = self.ids.lane;
        let (warp, each) = match is_rows {
            true => (self.ids.warp[0], self.warp_rows()?),
            false => (self.ids.warp[1], self.warp_columns(mn)?),
        };
        let t = &mut self.t;
        let low = t.r("and.b32", format_args!("{lane}, 7"));
        let low16 = t.r("and.b32", format_args!("{lane}, 15"));
        // 8 times bit 3, 8 times bit 4 of the lane.
        let third = t.r("and.b32", format_args!("{lane}, 8"));
        let fourth = t.r("shr.u32", format_args!("{lane}, 1"));
        let fourth = t.r("and.b32", format_args!("{fourth}, 8"));
        let low_and_fourth = t.r("add.u32", format_args!("{low}, {fourth}"));
        let (in_mn, in_k) = match (is_rows, k_inner) {
            (true, true) => (low16, fourth),
            (true, false) => (third, low_and_fourth),
            (false, true) => (low_and_fourth, third),
            (false, false) => (fourth, low16),
        };
        let in_mn = t.r("mad.lo.u32", format_args!("{warp}, {each}, {in_mn}"));
        let (outer, inner) = if k_inner {
            (in_mn, in_k)
        } else {
            (in_k, in_mn)
        };
        let within = self.swizzled(outer, inner, width, s);
        let within = self.t.r("shl.b32", format_args!("{within}, 1"));
        let line = self
            .t
            .r("mad.lo.u32", format_args!("{outer}, {}, {home}", width * 2));
        Ok((line, within))
    }

    /// The four registers of the 16x16 block at (`mn`, `k`) of this warp's part.
    fn block(&mut self, s: &Staged, line: Reg, mn: u32, k: u32) -> [Reg; 4] {
        let (outer, inner) = if s.k_inner { (mn, k) } else { (k, mn) };
        let t = &mut self.t;
        // The swizzle is an XOR of the line's bits: whole blocks of 16 commute with it.
        let within = if inner == 0 {
            s.within
        } else {
            t.r("xor.b32", format_args!("{}, {}", s.within, inner * 2))
        };
        let at = t.r("add.u32", format_args!("{line}, {within}"));
        let r = [(); 4].map(|()| t.reg(super::text::Kind::R));
        let trans = if s.k_inner { "" } else { ".trans" };
        t.op(format!(
            "ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{{}, {}, {}, {}}}, [{at}+{}]",
            r[0],
            r[1],
            r[2],
            r[3],
            outer * s.inner * 2
        ));
        r
    }

    /// Type of the factors of tensor-core instructions.
    pub fn input(&self) -> DType {
        self.map.fragment.map_or(DType::F16, |f| f.input)
    }

    /// The products of all fragments, `steps` of 16 summed positions each, added to `sums`.
    fn multiply_add(
        &mut self,
        left: &Left,
        (right, right_line): (&Staged, Reg),
        sums: &[Reg],
        (mi, ni): (u32, u32),
        steps: u32,
    ) {
        let kind = super::value::name16(self.input());
        let frag_columns = steps * 2;
        for step in 0..steps {
            let mut lefts = Vec::new();
            for m in 0..mi {
                lefts.push(match left {
                    Left::Staged(s, line) => self.block(s, *line, m * 16, step * 16),
                    Left::Frag(regs) => {
                        let at = |n: u32, e: u32| regs[((m * frag_columns + n) * 4 + e) as usize];
                        let (n, t) = (step * 2, &mut self.t);
                        // cvt packs its first source into the upper half.
                        [(n, 0), (n, 2), (n + 1, 0), (n + 1, 2)].map(|(n, e)| {
                            t.r(
                                &format!("cvt.rn.{kind}x2.f32"),
                                format_args!("{}, {}", at(n, e + 1), at(n, e)),
                            )
                        })
                    }
                });
            }
            for n in 0..ni / 2 {
                let r = self.block(right, right_line, n * 16, step * 16);
                for (m, l) in lefts.iter().enumerate() {
                    for half in 0..2 {
                        let c = (m as u32 * ni + n * 2 + half) as usize * 4;
                        let s = &sums[c..c + 4];
                        let (b0, b1) = (r[half as usize * 2], r[half as usize * 2 + 1]);
                        let list = format!("{{{}, {}, {}, {}}}", s[0], s[1], s[2], s[3]);
                        self.t.op(format!(
                            "mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {list}, {{{}, {}, {}, {}}}, {{{b0}, {b1}}}, {list}",
                            l[0], l[1], l[2], l[3]
                        ));
                    }
                }
            }
        }
    }

    /// `acc += a * b` summed over `over`.
    pub fn contract(&mut self, acc: TileId, a: TileId, b: TileId, over: &[AxisId]) -> Result<()> {
        let tiles = &self.kernel.tiles;
        let has_rows = |t: TileId| tiles[t as usize].axes.iter().any(|x| self.rows.has(*x));
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
        let input = self.input();
        let factors = [a, b].map(|t| tiles[t as usize].dtype);
        if tiles[acc as usize].dtype != DType::F32 || factors != [input; 2] {
            return self.fail(
                "element type",
                "products of f16 or of bf16 summed in f32 are printed, as the mapping's fragment says",
            );
        }
        let columns = self.columns_of(acc)?;
        let Some(Value::Frag {
            columns: have,
            regs: sums,
        }) = self.tiles.get(&acc).cloned()
        else {
            return self.fail(
                "accumulator",
                "it was not filled before, or it has no columns",
            );
        };
        if have != columns {
            return self.fail("accumulator", "its columns are not those of the product");
        }
        let Some(right) = self.staged.get(&b).cloned() else {
            return self.fail(
                "factor in shared memory",
                "the factor with the columns must be staged in shared memory",
            );
        };
        let (mi, ni) = (self.warp_rows()? / 16, self.warp_columns(&columns)? / 8);
        let depth = self.group(over)?;
        if depth.size() > 1024 || !depth.size().is_multiple_of(16) {
            return self.fail(
                "depth",
                format!(
                    "{} positions are summed per piece; a multiple of 16 up to 1024 can be printed",
                    depth.size()
                ),
            );
        }
        let stage = |e: &mut Self, s: &Staged| match e.read_stage.filter(|_| s.stages > 1) {
            Some(r) => e.t.r(
                "mad.lo.u32",
                format_args!("{r}, {}, {}", s.stage_bytes, s.line),
            ),
            None => s.line,
        };
        let right_line = stage(self, &right);
        let left = match self.tiles.get(&a).cloned() {
            Some(Value::Staged) => {
                let s = self.staged[&a].clone();
                let line = stage(self, &s);
                Left::Staged(s, line)
            }
            Some(Value::Frag { columns, regs }) if columns == depth => {
                if self.map.warps[1] != 1 {
                    return self.fail("warps along columns", "a factor that is held in fragments needs all its columns in one warp; use one warp along the columns");
                }
                let mask = self.masked(a, &columns, regs)?;
                Left::Frag(mask)
            }
            _ => {
                return self.fail(
                    "left factor",
                    "it must be staged, or a tile of fragments whose columns are the summed axes",
                );
            }
        };
        let steps = depth.size() / 16;
        self.multiply_add(&left, (&right, right_line), &sums, (mi, ni), steps);
        Ok(())
    }
}

/// Where the left factor comes from.
enum Left {
    Staged(Staged, Reg),
    Frag(Vec<Reg>),
}
