//! Tiles in registers: element-wise maps, loads of single elements, stores.
use super::address::Pos;
use super::emitter::{Emitter, Result, Value};
use super::group::Group;
use super::math::{self, Val, kind_of};
use super::text::{Kind, Reg, when};
use expr::{Expr, Inst};
use kernel::{OperandId, TileId};
use layout::DType;

/// A 16-bit float's name in instructions.
pub(crate) fn name16(d: DType) -> &'static str {
    match d {
        DType::BF16 => "bf16",
        _ => "f16",
    }
}

impl Emitter<'_> {
    /// Shape of a tile's registers: its columns and whether it has rows.
    fn shape(&self, tile: TileId) -> Result<(Option<Group>, bool)> {
        let columns = self.columns_of(tile)?;
        let rows = self.kernel.tiles[tile as usize]
            .axes
            .iter()
            .any(|a| self.rows.has(*a));
        Ok((
            if columns.axes.is_empty() {
                None
            } else {
                Some(columns)
            },
            rows,
        ))
    }

    /// `dst = expr(args)`, element by element.
    pub fn map_tile(&mut self, dst: TileId, expr: &Expr, args: &[TileId]) -> Result<()> {
        let (columns, rows) = self.shape(dst)?;
        let constant =
            args.is_empty() && expr.insts.iter().all(|i| !matches!(i, Inst::Index { .. }));
        let mut one = None;
        if constant {
            one = Some(self.element(
                expr,
                args,
                Pos {
                    row: None,
                    column: None,
                },
            )?);
        }
        let value = |e: &mut Self, pos: Pos| -> Result<Reg> {
            match one {
                // Every element gets a register of its own: accumulators change in place.
                Some(v) => Ok(match v.kind {
                    Kind::F => e.t.f("mov.f32", format_args!("{v}")),
                    Kind::D => e.t.d("mov.b64", format_args!("{v}")),
                    Kind::R => e.t.r("mov.b32", format_args!("{v}")),
                    _ => v,
                }),
                None => e.element(expr, args, pos),
            }
        };
        let halves = if rows { self.warp_rows()? / 8 } else { 0 };
        let v = match columns {
            Some(columns) => {
                if !rows {
                    return self.fail("rows of a map", "a tile with columns but no rows is not held in fragments; let its reader compute it");
                }
                let ni = self.warp_columns(&columns)? / 8;
                if u64::from(halves) * u64::from(ni) > 256 {
                    return self.fail(
                        "held values",
                        format!(
                            "{} values per thread; 512 at most can be printed",
                            u64::from(halves) * u64::from(ni) * 2
                        ),
                    );
                }
                let mut regs = vec![None; (halves * ni * 2) as usize];
                // Row by row: what belongs to a row need not be held for long.
                for h in 0..halves {
                    for n in 0..ni {
                        for j in 0..2 {
                            let pos = Pos {
                                row: Some(h),
                                column: Some((&columns, n * 2 + j)),
                            };
                            let r = value(self, pos)?;
                            regs[((h / 2 * ni + n) * 4 + h % 2 * 2 + j) as usize] = Some(r);
                        }
                    }
                }
                Value::Frag {
                    columns,
                    regs: regs.into_iter().flatten().collect(),
                }
            }
            None if rows && halves > 64 => {
                return self.fail(
                    "held values",
                    format!("{halves} values per thread; 64 per row tile at most can be printed"),
                );
            }
            None if rows => {
                let regs = (0..halves)
                    .map(|h| {
                        value(
                            self,
                            Pos {
                                row: Some(h),
                                column: None,
                            },
                        )
                    })
                    .collect::<Result<Vec<_>>>()?;
                Value::Row(regs)
            }
            None => Value::One(value(
                self,
                Pos {
                    row: None,
                    column: None,
                },
            )?),
        };
        self.tiles.insert(dst, v);
        Ok(())
    }

    /// The first output of `expr` at one position.
    fn element(&mut self, expr: &Expr, args: &[TileId], pos: Pos) -> Result<Reg> {
        let mut vals = Vec::with_capacity(args.len());
        for &a in args {
            vals.push(Val {
                reg: self.get(a, pos)?,
                dtype: self.kernel.tiles[a as usize].dtype,
            });
        }
        // Coordinates that the program reads, before it borrows the writer.
        let mut coords = std::collections::BTreeMap::new();
        for i in &expr.insts {
            if let Inst::Index { axis } = i {
                let c = self.coordinate(*axis as kernel::AxisId, pos)?;
                coords.insert(*axis, c);
            }
        }
        let mut index =
            |t: &mut super::text::Text, _: &mut super::params::Params, axis: u32| match coords
                .get(&axis)
                .copied()
                .flatten()
            {
                Some(r) => Ok(t.d("cvt.s64.s32", format_args!("{r}"))),
                None => Ok(t.d("mov.b64", format_args!("0"))),
            };
        match math::eval(&mut self.t, &mut self.params, expr, &vals, &mut index) {
            Ok(v) => match v.first() {
                Some(v) => Ok(v.reg),
                None => self.fail("one output", "the program has no output"),
            },
            Err(why) => self.fail("scalar program", why),
        }
    }

    /// Evaluates a program of scalars only.
    pub fn scalar(&mut self, expr: &Expr, args: &[Val]) -> Result<Reg> {
        let mut index = |_: &mut super::text::Text, _: &mut super::params::Params, _: u32| {
            Err("a fold's program reads a coordinate; that has no PTX form".to_string())
        };
        match math::eval(&mut self.t, &mut self.params, expr, args, &mut index) {
            Ok(v) if v.len() == 1 => Ok(v[0].reg),
            Ok(_) => self.fail("one output", "a fold with a state of one scalar is printed"),
            Err(why) => self.fail("scalar program", why),
        }
    }

    /// Element of `tile` at `pos`.
    fn get(&mut self, tile: TileId, pos: Pos) -> Result<Reg> {
        match self.tiles.get(&tile).cloned() {
            Some(Value::One(r)) => Ok(r),
            Some(Value::Row(regs)) => match pos.row.and_then(|r| regs.get(r as usize)) {
                Some(&r) => Ok(r),
                None => self.fail(
                    "rows of a map",
                    "a value per row is read where there are no rows",
                ),
            },
            Some(Value::Frag { columns, regs }) => {
                let ni = self.warp_columns(&columns)? / 8;
                match pos {
                    Pos {
                        row: Some(h),
                        column: Some((g, c)),
                    } if *g == columns => {
                        Ok(regs[((h / 2 * ni + c / 2) * 4 + h % 2 * 2 + c % 2) as usize])
                    }
                    _ => self.fail(
                        "columns of a map",
                        "an argument has other columns than the result",
                    ),
                }
            }
            Some(Value::Loaded(operand)) => self.load(operand, pos),
            Some(Value::Staged) => self.fail(
                "place",
                "a tile in shared memory is read by contractions only; place it in registers",
            ),
            None => self.fail("order", "a tile is read before it is defined"),
        }
    }

    /// Two neighbouring columns of `operand` can be moved at once.
    fn pairs(&self, operand: OperandId, g: &Group) -> bool {
        let o = &self.kernel.operands[operand as usize];
        let Some(&(axis, tile)) = g.axes.last() else {
            return false;
        };
        matches!(o.dtype, DType::F16 | DType::BF16 | DType::F32)
            && o.access.run(
                axis,
                &self.kernel.axes[axis as usize].extent,
                tile.into(),
                2,
            ) == 2
    }

    /// Loads two neighbours at `from` where `p` holds.
    fn load_pair(&mut self, operand: OperandId, from: &str, p: Option<Reg>) -> Result<[Reg; 2]> {
        let o = &self.kernel.operands[operand as usize];
        let take = when(p);
        Ok(match o.dtype {
            DType::F16 | DType::BF16 => {
                let packed = self.outside16(o.access.outside, o.dtype)?;
                self.t.op(format!("{take}ld.global.b32 {packed}, [{from}]"));
                let h = [(); 2].map(|()| self.t.reg(Kind::H));
                self.t
                    .op(format!("mov.b32 {{{}, {}}}, {packed}", h[0], h[1]));
                h.map(|h| self.widen_half(h, o.dtype))
            }
            _ => {
                let f = [(); 2].map(|()| {
                    self.t.f(
                        "mov.f32",
                        format_args!("{}", math::literal(o.access.outside)),
                    )
                });
                self.t.op(format!(
                    "{take}ld.global.v2.f32 {{{}, {}}}, [{from}]",
                    f[0], f[1]
                ));
                f
            }
        })
    }

    /// Loads the element at `from` where `p` holds.
    fn load_one(&mut self, operand: OperandId, from: &str, p: Option<Reg>) -> Result<Reg> {
        let o = &self.kernel.operands[operand as usize];
        let take = when(p);
        let outside = o.access.outside;
        Ok(match o.dtype {
            DType::F16 | DType::BF16 => {
                let packed = self.outside16(outside, o.dtype)?;
                let h = self
                    .t
                    .def(Kind::H, |d| format!("cvt.u16.u32 {d}, {packed}"));
                self.t.op(format!("{take}ld.global.b16 {h}, [{from}]"));
                self.widen_half(h, o.dtype)
            }
            DType::F32 => {
                let r = self
                    .t
                    .f("mov.f32", format_args!("{}", math::literal(outside)));
                self.t.op(format!("{take}ld.global.f32 {r}, [{from}]"));
                r
            }
            DType::I64 => {
                let r = self.t.d("mov.b64", format_args!("{}", outside as i64));
                self.t.op(format!("{take}ld.global.s64 {r}, [{from}]"));
                r
            }
            DType::I32 => {
                let r = self.t.r("mov.b32", format_args!("{}", outside as i32));
                self.t.op(format!("{take}ld.global.s32 {r}, [{from}]"));
                r
            }
            DType::Bool => {
                let r = self
                    .t
                    .r("mov.b32", format_args!("{}", i32::from(outside != 0.0)));
                self.t.op(format!("{take}ld.global.u8 {r}, [{from}]"));
                self.t.p("setp.ne.s32", format_args!("{r}, 0"))
            }
            d => {
                return self.fail(
                    "element type",
                    format!("operand '{}' of type {d} has no PTX form here", o.name),
                );
            }
        })
    }

    /// Loads one element; outside the extents it is whatever the access says for outside.
    fn load(&mut self, operand: OperandId, pos: Pos) -> Result<Reg> {
        let o = &self.kernel.operands[operand as usize];
        let (rows, columns) = self.depends(&o.access, pos.column.map(|c| c.0));
        let key = |c: Option<(&Group, u32)>| {
            (
                operand,
                pos.row.filter(|_| rows),
                c.filter(|_| columns).map(|(g, c)| (g.clone(), c)),
            )
        };
        if let Some(&r) = self.cache.elements.get(&key(pos.column)) {
            return Ok(r);
        }
        let at = Pos {
            row: pos.row.filter(|_| rows),
            column: pos.column.filter(|_| columns),
        };
        let pair = match at.column {
            Some((g, c)) if self.pairs(operand, g) => Some((g, c & !1)),
            _ => None,
        };
        let at = Pos {
            column: pair.or(at.column),
            ..at
        };
        let inside = self.inside(at)?;
        let bounded = self.bounded(&o.access, at)?;
        let p = self.t.both(inside, bounded);
        let from = self.address(operand, at)?;
        if let Some((g, c)) = pair {
            let two = self.load_pair(operand, &from, p)?;
            for (j, r) in two.into_iter().enumerate() {
                self.cache.elements.insert(key(Some((g, c + j as u32))), r);
            }
            let j = pos.column.map_or(0, |c| c.1 & 1) as usize;
            return Ok(two[j]);
        }
        let r = self.load_one(operand, &from, p)?;
        self.cache.elements.insert(key(pos.column), r);
        Ok(r)
    }

    /// The f16 or bf16 in `h`.
    fn widen_half(&mut self, h: Reg, d: DType) -> Reg {
        match d {
            DType::BF16 => math::wide16(&mut self.t, h),
            _ => self.t.f("cvt.f32.f16", format_args!("{h}")),
        }
    }

    /// `v` as `d`, twice in 32 bits: what a load whose condition fails leaves.
    fn outside16(&mut self, v: f64, d: DType) -> Result<Reg> {
        if v == 0.0 {
            return Ok(self.t.r("mov.b32", format_args!("0")));
        }
        let f = self.t.f("mov.f32", format_args!("{}", math::literal(v)));
        Ok(self.t.r(
            &format!("cvt.rn.{}x2.f32", name16(d)),
            format_args!("{f}, {f}"),
        ))
    }

    /// `operand[..] = src` within the bounds.
    pub fn store(&mut self, operand: OperandId, src: TileId) -> Result<()> {
        let o = &self.kernel.operands[operand as usize];
        let Some(Value::Frag { columns, .. }) = self.tiles.get(&src).cloned() else {
            return self.fail("stored tile", "a tile with rows and columns can be stored");
        };
        if kind_of(o.dtype) != Some(Kind::F) || o.dtype != self.kernel.tiles[src as usize].dtype {
            return self.fail(
                "element type",
                format!("a store of {} has no PTX form here", o.dtype),
            );
        }
        let pair = self.pairs(operand, &columns);
        let (halves, ni) = (self.warp_rows()? / 8, self.warp_columns(&columns)? / 8);
        for h in 0..halves {
            for n in 0..ni {
                let at = |j: u32| Pos {
                    row: Some(h),
                    column: Some((&columns, n * 2 + j)),
                };
                let v = [self.get(src, at(0))?, self.get(src, at(1))?];
                for j in 0..if pair { 1 } else { 2 } {
                    let inside = self.inside(at(j))?;
                    let bounded = self.bounded(&o.access, at(j))?;
                    let p = self.t.both(inside, bounded);
                    let to = self.address(operand, at(j))?;
                    let p = when(p);
                    let one = v[j as usize];
                    match (pair, o.dtype) {
                        (true, DType::F16 | DType::BF16) => {
                            let both = self.t.r(
                                &format!("cvt.rn.{}x2.f32", name16(o.dtype)),
                                format_args!("{}, {}", v[1], v[0]),
                            );
                            self.t.op(format!("{p}st.global.b32 [{to}], {both}"));
                        }
                        (true, _) => self.t.op(format!(
                            "{p}st.global.v2.f32 [{to}], {{{}, {}}}",
                            v[0], v[1]
                        )),
                        (false, DType::F16 | DType::BF16) => {
                            let x = self.t.def(Kind::H, |d| {
                                format!("cvt.rn.{}.f32 {d}, {one}", name16(o.dtype))
                            });
                            self.t.op(format!("{p}st.global.b16 [{to}], {x}"));
                        }
                        (false, _) => self.t.op(format!("{p}st.global.f32 [{to}], {one}")),
                    }
                }
            }
        }
        Ok(())
    }

    /// The registers of a tile of fragments with 0 where its columns end: what lies beyond an
    /// extent takes no part in a sum.
    pub fn masked(&mut self, tile: TileId, columns: &Group, regs: Vec<Reg>) -> Result<Vec<Reg>> {
        self.replaced(tile, columns, regs, 0.0)
    }

    /// The same with any value.
    pub fn replaced(
        &mut self,
        tile: TileId,
        columns: &Group,
        regs: Vec<Reg>,
        by: f64,
    ) -> Result<Vec<Reg>> {
        if columns.axes.iter().all(|&(a, n)| !self.ragged(a, n)) {
            return Ok(regs);
        }
        if kind_of(self.kernel.tiles[tile as usize].dtype) != Some(Kind::F) {
            return self.fail("element type", "only floats can be cut at an extent");
        }
        let (halves, ni) = (self.warp_rows()? / 8, self.warp_columns(columns)? / 8);
        let mut out = regs.clone();
        for n in 0..ni {
            for j in 0..2 {
                let Some(p) = self.inside(Pos {
                    row: None,
                    column: Some((columns, n * 2 + j)),
                })?
                else {
                    continue;
                };
                for h in 0..halves {
                    let i = ((h / 2 * ni + n) * 4 + h % 2 * 2 + j) as usize;
                    out[i] = self.t.f(
                        "selp.f32",
                        format_args!("{}, {}, {p}", regs[i], math::literal(by)),
                    );
                }
            }
        }
        Ok(out)
    }
}
