//! Copies of tiles into shared memory: where each element lies there, and the asynchronous copies.
use super::emitter::{Copy, Emitter, Result, Staged, Value, Vector};
use super::group::Group;
use super::params::Num;
use super::text::{Kind, Reg, when};
use kernel::{AxisId, AxisTile, OperandId, Place, Stmt, Swizzle, TileId};
use std::collections::BTreeMap;

impl Emitter<'_> {
    /// The contraction that reads `tile`: (accumulator, summed axes).
    fn reader(&self, tile: TileId) -> Result<(TileId, Vec<AxisId>)> {
        let mut found = None;
        for s in &self.kernel.body {
            match s {
                Stmt::Contract { acc, a, b, over }
                    if (*a == tile) != (*b == tile) && found.is_none() =>
                {
                    found = Some((*acc, over.clone()))
                }
                s if s.reads().contains(&tile) => {
                    return self.fail("staged for a contraction", "a tile in shared memory must be a factor of one contraction and nothing else");
                }
                _ => {}
            }
        }
        match found {
            Some(f) => Ok(f),
            None => self.fail(
                "staged for a contraction",
                "a tile in shared memory must be a factor of a contraction",
            ),
        }
    }

    fn check_swizzle(&self, s: Swizzle, inner: u32) -> Result<()> {
        if s.fits(inner) {
            Ok(())
        } else {
            self.fail(
                "swizzle",
                format!(
                    "({}, {}, {}) does not keep lines of {inner} elements to themselves",
                    s.bits, s.base, s.shift
                ),
            )
        }
    }

    /// What a tile in shared memory and the operand that it is loaded from must be.
    fn check_staged(&self, tile: TileId, operand: OperandId) -> Result<()> {
        let o = &self.kernel.operands[operand as usize];
        let decl = &self.kernel.tiles[tile as usize];
        if [o.dtype, decl.dtype] != [self.input(); 2] {
            return self.fail(
                "element type",
                format!(
                    "a staged tile of {} where the fragment takes {}",
                    o.dtype,
                    self.input()
                ),
            );
        }
        if o.access.outside != 0.0 {
            return self.fail(
                "outside value",
                "a staged tile is filled with 0 outside its bounds; another value has no PTX form",
            );
        }
        if !o.access.indexed.is_empty() {
            return self.fail(
                "no gather",
                format!(
                    "operand '{}' is indexed by another one; that has no PTX form yet",
                    o.name
                ),
            );
        }
        Ok(())
    }

    /// Whether the axes of a factor, of which `last` is the last, are those of its rows or columns `mn` and of
    /// its depth `k`.
    fn check_axes(&self, tile: TileId, last: AxisId, mn: &Group, k: &Group) -> Result<()> {
        let decl = &self.kernel.tiles[tile as usize];
        for (a, n) in mn.axes.iter().chain(&k.axes) {
            if *n > 1 && !decl.axes.contains(a) {
                return self.fail(
                    "axes of a factor",
                    format!(
                        "tile '{}' lacks axis '{}'; make it an axis of its own",
                        decl.name,
                        self.axis_name(*a)
                    ),
                );
            }
        }
        if let Some(a) = decl
            .axes
            .iter()
            .find(|a| !mn.has(**a) && !k.has(**a) && !self.uniform(**a))
        {
            return self.fail(
                "axes of a factor",
                format!(
                    "axis '{}' is neither summed nor row nor column, and its tile is not 1",
                    self.axis_name(*a)
                ),
            );
        }
        let inner = if k.has(last) { k } else { mn };
        if inner.axes.last().map(|a| a.0) != Some(last) {
            return self.fail(
                "innermost axis",
                format!(
                    "axis '{}' is the last of tile '{}' but not of its group",
                    self.axis_name(last),
                    decl.name
                ),
            );
        }
        if !k.size().is_multiple_of(16) {
            return self.fail(
                "depth",
                format!(
                    "{} positions are summed per piece; a multiple of 16 can be printed",
                    k.size()
                ),
            );
        }
        Ok(())
    }

    /// Where `stages` of so many bytes begin in shared memory, which are given away.
    fn reserved(&mut self, stages: u32, stage_bytes: u32) -> Result<u32> {
        let at = self.shared_bytes;
        self.shared_bytes = match stage_bytes
            .checked_mul(stages)
            .and_then(|b| b.checked_add(at))
        {
            Some(n) if n <= 1 << 20 => n,
            _ => {
                return self.fail(
                    "shared memory",
                    format!("{stages} stages of {stage_bytes} bytes do not fit"),
                );
            }
        };
        Ok(at)
    }

    /// `v` by `n`, and what is left.
    fn divided(&mut self, v: Reg, n: u32) -> (Reg, Reg) {
        if n.is_power_of_two() {
            (
                self.t
                    .r("shr.u32", format_args!("{v}, {}", n.trailing_zeros())),
                self.t.r("and.b32", format_args!("{v}, {}", n - 1)),
            )
        } else {
            (
                self.t.r("div.u32", format_args!("{v}, {n}")),
                self.t.r("rem.u32", format_args!("{v}, {n}")),
            )
        }
    }

    /// The vectors that a thread copies of a tile of `outer` lines of `inner` elements, which lies at `home`.
    fn vectors(
        &mut self,
        operand: OperandId,
        loops: &[AxisTile],
        (outer, inner): (&Group, &Group),
        (swizzle, home): (Swizzle, Reg),
    ) -> Result<Vec<Vector>> {
        let (lines, width, threads) = (outer.size(), inner.size(), self.map.threads);
        let vec = self.map.load_bytes / 2;
        let (per_line, total) = (width / vec, lines * width / vec);
        if total.div_ceil(threads) > 256 {
            return self.fail(
                "copies of a thread",
                format!(
                    "{total} vectors for {threads} threads; at most 256 for each can be printed"
                ),
            );
        }
        let mut vectors = Vec::new();
        for j in 0..total.div_ceil(threads) {
            let v = self
                .t
                .r("add.u32", format_args!("{}, {}", self.ids.tid, j * threads));
            let part = if (j + 1) * threads > total {
                Some(self.t.p("setp.lt.u32", format_args!("{v}, {total}")))
            } else {
                None
            };
            let (oi, ci) = self.divided(v, per_line);
            let ci = self.t.r("mul.lo.u32", format_args!("{ci}, {vec}"));
            let swizzled = self.swizzled(oi, ci, width, swizzle);
            let element = self
                .t
                .r("mad.lo.u32", format_args!("{oi}, {width}, {swizzled}"));
            let to = self.t.r("mad.lo.u32", format_args!("{element}, 2, {home}"));
            let mut parts: BTreeMap<AxisId, Reg> = BTreeMap::new();
            for (g, r) in [(outer, oi), (inner, ci)] {
                let split = g.split(&mut self.t, r);
                parts.extend(g.axes.iter().map(|a| a.0).zip(split));
            }
            vectors.push(self.vector(operand, &parts, loops, to, part)?);
        }
        Ok(vectors)
    }

    /// Lays out `tile` in shared memory and prepares the copy of `operand` into it; the axes in
    /// `loops` get their coordinates when it is issued.
    pub fn copy(&mut self, tile: TileId, operand: OperandId, loops: &[AxisTile]) -> Result<Copy> {
        let kernel = self.kernel;
        let (o, decl) = (
            &kernel.operands[operand as usize],
            &kernel.tiles[tile as usize],
        );
        let Place::Shared { swizzle, stages } = self.schedule.place(tile) else {
            return self.fail("place", "the tile is not in shared memory");
        };
        self.check_staged(tile, operand)?;
        let (acc, over) = self.reader(tile)?;
        let k = self.group(&over)?;
        let is_rows = decl.axes.iter().any(|a| self.rows.has(*a));
        let mn = if is_rows {
            self.rows.clone()
        } else {
            self.columns_of(acc)?
        };
        let Some(&last) = decl.axes.last() else {
            return self.fail("axes of a factor", "it has none");
        };
        self.check_axes(tile, last, &mn, &k)?;
        let k_inner = k.has(last);
        let (inner, outer) = if k_inner { (&k, &mn) } else { (&mn, &k) };
        let width = inner.size();
        self.check_swizzle(swizzle, width)?;
        let lines = outer.size();
        if u64::from(lines) * u64::from(width) > 1 << 19 {
            return self.fail(
                "shared memory",
                format!("{lines} lines of {width} elements do not fit"),
            );
        }
        let vec = self.map.load_bytes / 2;
        let whole = o.access.run(
            last,
            &kernel.axes[last as usize].extent,
            inner.axes.last().map_or(1, |a| a.1).into(),
            vec.max(1),
        );
        if !matches!(self.map.load_bytes, 2 | 4 | 8 | 16) || whole < vec {
            return self.fail(
                "load bytes",
                format!(
                    "operand '{}' can be loaded {} bytes at a time along axis '{}', not {}",
                    o.name,
                    whole * 2,
                    self.axis_name(last),
                    self.map.load_bytes
                ),
            );
        }
        let stage_bytes = lines * width * 2;
        let at = self.reserved(stages, stage_bytes)?;
        let home = self.t.r("add.u32", format_args!("{}, {at}", self.shared));
        let (line, within) = self.lane_line(home, is_rows, k_inner, width, swizzle, &mn)?;
        let staged = Staged {
            k_inner,
            inner: width,
            stage_bytes,
            stages,
            line,
            within,
        };
        let vectors = self.vectors(operand, loops, (outer, inner), (swizzle, home))?;
        let mut looped = Vec::new();
        for c in loops {
            if let Some(term) = o.access.term(c.axis) {
                let s = self.stride(term)?;
                looped.push((c.axis, s));
            }
        }
        self.staged.insert(tile, staged);
        self.tiles.insert(tile, Value::Staged);
        Ok(Copy {
            operand,
            stages,
            stage_bytes,
            bytes: self.map.load_bytes,
            vectors,
            looped,
        })
    }

    /// What a thread knows about one of its vectors before any loop runs.
    fn vector(
        &mut self,
        operand: OperandId,
        parts: &BTreeMap<AxisId, Reg>,
        loops: &[AxisTile],
        to: Reg,
        part: Option<Reg>,
    ) -> Result<Vector> {
        let kernel = self.kernel;
        let access = &kernel.operands[operand as usize].access;
        let is_looped = |a: AxisId| loops.iter().any(|c| c.axis == a);
        // A looped axis' coordinate without what the loop adds.
        let coordinate = |e: &mut Self, a: AxisId| -> Option<Reg> {
            match (parts.get(&a), is_looped(a)) {
                (Some(&p), true) => Some(p),
                (Some(&p), false) => Some(e.absolute(a, p)),
                (None, true) => None,
                (None, false) => e.base.get(&a).copied(),
            }
        };
        let mut sum = match self.params.dim(&mut self.t, &access.offset) {
            Num::Known(0) => None,
            n => Some(self.t.d("mov.b64", format_args!("{n}"))),
        };
        for term in &access.terms {
            let stride = self.stride(term)?;
            if let Some(c) = coordinate(self, term.axis) {
                sum = self.mul_add(sum, c, stride);
            }
        }
        let pointer = self.params.pointer(&mut self.t, operand);
        let from = match sum {
            None => pointer,
            Some(s) => self.t.d("mad.lo.s64", format_args!("{s}, 2, {pointer}")),
        };
        let (mut always, mut ragged, mut sums) = (None, Vec::new(), Vec::new());
        for (&axis, &p) in parts {
            let tile = self.tile_size(axis)?;
            if tile == 1 || !self.ragged(axis, tile) {
                continue;
            }
            if is_looped(axis) {
                ragged.push((axis, p));
            } else {
                let c = self.absolute(axis, p);
                let extent = self
                    .params
                    .dim32(&mut self.t, &kernel.axes[axis as usize].extent);
                let inside = self.t.p("setp.lt.s32", format_args!("{c}, {extent}"));
                always = self.t.both(always, Some(inside));
            }
        }
        for (i, b) in access.bounds.iter().enumerate() {
            let mut sum = self.params.dim32(&mut self.t, &b.base);
            for (axis, c) in &b.terms {
                let Some(x) = coordinate(self, *axis) else {
                    continue;
                };
                let c = self.params.dim32(&mut self.t, c);
                sum = Num::Reg(self.t.r("mad.lo.s32", format_args!("{x}, {c}, {sum}")));
            }
            let sum = self.in_reg(sum);
            if b.terms.iter().any(|(a, _)| is_looped(*a)) {
                sums.push((i, sum));
            } else {
                let extent = self.params.dim32(&mut self.t, &b.extent);
                let inside = self.t.p("setp.lt.u32", format_args!("{sum}, {extent}"));
                always = self.t.both(always, Some(inside));
            }
        }
        Ok(Vector {
            from,
            to,
            part,
            always,
            ragged,
            sums,
        })
    }

    /// Issues the copies of one piece into stage `write`, for loop coordinates `at`.
    pub fn issue(
        &mut self,
        c: &Copy,
        write: Option<Reg>,
        at: &BTreeMap<AxisId, Reg>,
    ) -> Result<()> {
        let kernel = self.kernel;
        let access = &kernel.operands[c.operand as usize].access;
        self.t.note(&format!(
            "copy '{}'",
            kernel.operands[c.operand as usize].name
        ));
        let stage = write.filter(|_| c.stages > 1).map(|w| {
            self.t
                .r("mul.lo.u32", format_args!("{w}, {}", c.stage_bytes))
        });
        let mut shift = None;
        for (axis, stride) in &c.looped {
            let bytes = match stride {
                Num::Known(v) => Num::Known(v.saturating_mul(2)),
                Num::Reg(r) => Num::Reg(self.t.d("mul.lo.s64", format_args!("{r}, 2"))),
            };
            if let Some(&x) = at.get(axis) {
                shift = self.mul_add(shift, x, bytes);
            }
        }
        // What the loops add to each bound, the same for all vectors.
        let mut moved: BTreeMap<usize, Reg> = BTreeMap::new();
        for (i, b) in access.bounds.iter().enumerate() {
            let mut sum = Num::Known(0);
            for (axis, k) in b.terms.iter().filter(|(a, _)| at.contains_key(a)) {
                let k = self.params.dim32(&mut self.t, k);
                sum = Num::Reg(
                    self.t
                        .r("mad.lo.s32", format_args!("{}, {k}, {sum}", at[axis])),
                );
            }
            if let Num::Reg(r) = sum {
                moved.insert(i, r);
            }
        }
        for v in &c.vectors {
            let mut inside = v.always;
            for (axis, part) in &v.ragged {
                let x = match at.get(axis) {
                    Some(b) => self.t.r("add.u32", format_args!("{part}, {b}")),
                    None => *part,
                };
                let extent = self
                    .params
                    .dim32(&mut self.t, &kernel.axes[*axis as usize].extent);
                let p = self.t.p("setp.lt.s32", format_args!("{x}, {extent}"));
                inside = self.t.both(inside, Some(p));
            }
            for (i, sum) in &v.sums {
                let x = match moved.get(i) {
                    Some(m) => self.t.r("add.s32", format_args!("{sum}, {m}")),
                    None => *sum,
                };
                let extent = self.params.dim32(&mut self.t, &access.bounds[*i].extent);
                let p = self.t.p("setp.lt.u32", format_args!("{x}, {extent}"));
                inside = self.t.both(inside, Some(p));
            }
            let from = match shift {
                Some(s) => self.t.d("add.s64", format_args!("{}, {s}", v.from)),
                None => v.from,
            };
            let to = match stage {
                Some(s) => self.t.r("add.u32", format_args!("{}, {s}", v.to)),
                None => v.to,
            };
            let part = when(v.part);
            if c.bytes == 2 {
                // Too narrow for an asynchronous copy.
                let h = self.t.def(Kind::H, |d| format!("mov.b16 {d}, 0"));
                let take = self.t.both(inside, v.part);
                self.t
                    .op(format!("{}ld.global.b16 {h}, [{from}]", when(take)));
                self.t.op(format!("{part}st.shared.b16 [{to}], {h}"));
                continue;
            }
            let kind = if c.bytes == 16 { "cg" } else { "ca" };
            match inside {
                // A source size of 0 reads nothing and fills with zeros.
                Some(p) => {
                    let size = self.t.r("selp.b32", format_args!("{}, 0, {p}", c.bytes));
                    self.t.op(format!(
                        "{part}cp.async.{kind}.shared.global [{to}], [{from}], {}, {size}",
                        c.bytes
                    ));
                }
                None => self.t.op(format!(
                    "{part}cp.async.{kind}.shared.global [{to}], [{from}], {}",
                    c.bytes
                )),
            }
        }
        Ok(())
    }

    /// Element `i` of line `line` after the swizzle.
    pub fn swizzled(&mut self, line: Reg, i: Reg, width: u32, s: Swizzle) -> Reg {
        if s.bits == 0 {
            return i;
        }
        let whole = self.t.r("mul.lo.u32", format_args!("{line}, {width}"));
        let bits = self.t.r("shr.u32", format_args!("{whole}, {}", s.shift));
        let bits = self.t.r(
            "and.b32",
            format_args!("{bits}, {}", ((1u32 << s.bits) - 1) << s.base),
        );
        self.t.r("xor.b32", format_args!("{i}, {bits}"))
    }
}
