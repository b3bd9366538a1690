//! Coordinates, addresses and bounds of single elements.
use super::emitter::{Emitter, Result};
use super::group::Group;
use super::params::Num;
use super::text::{Kind, Reg};
use kernel::{Access, AxisId, OperandId};

/// Element of a fragment: `row` counts 8-row halves (mi * 2 + h), `column` counts 8-column blocks
/// and elements of a pair (ni * 2 + j). A tile without rows or columns leaves them out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pos<'g> {
    pub row: Option<u32>,
    pub column: Option<(&'g Group, u32)>,
}

impl Emitter<'_> {
    /// Columns of a group that one warp holds.
    pub fn warp_columns(&self, g: &Group) -> Result<u32> {
        let n = g.size() / self.map.warps[1].max(1);
        if n == 0
            || !n.is_multiple_of(16)
            || !n.is_power_of_two()
            || n * self.map.warps[1] != g.size()
        {
            return self.fail("columns of a warp", format!("{} columns over {} warps; a power of two of at least 16 per warp can be printed", g.size(), self.map.warps[1]));
        }
        Ok(n)
    }

    /// Rows that one warp holds.
    pub fn warp_rows(&self) -> Result<u32> {
        let (size, warps) = (self.rows.size(), self.map.warps[0].max(1));
        let n = size / warps;
        if n == 0 || !n.is_multiple_of(16) || !n.is_power_of_two() || n * warps != size {
            return self.fail("rows of a warp", format!("{size} rows over {warps} warps; a power of two of at least 16 per warp can be printed"));
        }
        Ok(n)
    }

    /// Each axis' coordinate at a position of a group (`rows`: of the rows), in the group's order.
    fn coords(&mut self, g: &Group, rows: bool, index: u32) -> Result<Vec<Reg>> {
        if let Some(c) = self.cache.parts.get(&(g.clone(), index)) {
            return Ok(c.clone());
        }
        let start = match self.cache.start.get(g) {
            Some(&r) => r,
            None => {
                let (warp, each, lane) = match rows {
                    true => (self.ids.warp[0], self.warp_rows()?, self.ids.quad),
                    false => (self.ids.warp[1], self.warp_columns(g)?, self.ids.pair),
                };
                let r = self
                    .t
                    .r("mad.lo.u32", format_args!("{warp}, {each}, {lane}"));
                self.cache.start.insert(g.clone(), r);
                r
            }
        };
        // Rows: 16 per fragment, halves 8 apart. Columns: 8 per block, pairs side by side.
        let shift = if rows {
            index * 8
        } else {
            index / 2 * 8 + index % 2
        };
        let at = if shift == 0 {
            start
        } else {
            self.t.r("add.u32", format_args!("{start}, {shift}"))
        };
        let parts = g.split(&mut self.t, at);
        let coords: Vec<Reg> = g
            .axes
            .iter()
            .zip(parts)
            .map(|(&(a, _), p)| self.absolute(a, p))
            .collect();
        self.cache.parts.insert((g.clone(), index), coords.clone());
        Ok(coords)
    }

    /// `part` counted from the beginning of the axis.
    pub fn absolute(&mut self, axis: AxisId, part: Reg) -> Reg {
        match self.base.get(&axis) {
            Some(b) => self.t.r("add.u32", format_args!("{part}, {b}")),
            None => part,
        }
    }

    fn side(&mut self, g: &Group, rows: bool, index: u32) -> Result<Option<Reg>> {
        if let Some(&p) = self.cache.inside.get(&(g.clone(), index)) {
            return Ok(p);
        }
        let coords = self.coords(g, rows, index)?;
        let mut all = None;
        for (&(axis, tile), c) in g.axes.iter().zip(coords) {
            if self.ragged(axis, tile) {
                let extent = self
                    .params
                    .dim32(&mut self.t, &self.kernel.axes[axis as usize].extent);
                let p = self.t.p("setp.lt.s32", format_args!("{c}, {extent}"));
                all = self.t.both(all, Some(p));
            }
        }
        self.cache.inside.insert((g.clone(), index), all);
        Ok(all)
    }

    /// Whether the position is within the extents; `None`: always.
    pub fn inside(&mut self, pos: Pos) -> Result<Option<Reg>> {
        let row = match pos.row {
            Some(r) => self.side(&self.rows.clone(), true, r)?,
            None => None,
        };
        let column = match pos.column {
            Some((g, c)) => self.side(g, false, c)?,
            None => None,
        };
        Ok(self.t.both(row, column))
    }

    /// The coordinate along `axis`; `None`: 0.
    pub fn coordinate(&mut self, axis: AxisId, pos: Pos) -> Result<Option<Reg>> {
        let rows = self.rows.clone();
        if let Some(i) = rows.axes.iter().position(|a| a.0 == axis) {
            return match pos.row {
                Some(r) => Ok(Some(self.coords(&rows, true, r)?[i])),
                None => self.fail(
                    "axes of a value",
                    format!(
                        "row axis '{}' is read where there are no rows",
                        self.axis_name(axis)
                    ),
                ),
            };
        }
        if let Some((g, c)) = pos.column
            && let Some(i) = g.axes.iter().position(|a| a.0 == axis)
        {
            return Ok(Some(self.coords(g, false, c)?[i]));
        }
        if self.uniform(axis) {
            return Ok(self.base.get(&axis).copied());
        }
        self.fail("axes of a value", format!("axis '{}' is neither row nor column of this tile, and a CTA holds several of its positions", self.axis_name(axis)))
    }

    /// `sum + coordinate * stride` in 64 bits.
    pub fn mul_add(&mut self, sum: Option<Reg>, coordinate: Reg, stride: Num) -> Option<Reg> {
        match (stride, sum) {
            (Num::Known(0), _) => sum,
            (Num::Known(v), Some(s)) if i32::try_from(v).is_ok() => Some(
                self.t
                    .d("mad.wide.s32", format_args!("{coordinate}, {v}, {s}")),
            ),
            (Num::Known(v), None) if i32::try_from(v).is_ok() => {
                Some(self.t.d("mul.wide.s32", format_args!("{coordinate}, {v}")))
            }
            (n, s) => {
                let c = self.t.d("cvt.s64.s32", format_args!("{coordinate}"));
                Some(match s {
                    Some(s) => self.t.d("mad.lo.s64", format_args!("{c}, {n}, {s}")),
                    None => self.t.d("mul.lo.s64", format_args!("{c}, {n}")),
                })
            }
        }
    }

    /// The stride of a term that the emitter can use.
    pub fn stride(&mut self, term: &kernel::Term) -> Result<Num> {
        match term.stride() {
            Some(s) => Ok(self.params.dim(&mut self.t, s)),
            None => self.fail(
                "plain strides",
                format!(
                    "axis '{}' is addressed in blocks; only plain strides can be printed",
                    self.axis_name(term.axis)
                ),
            ),
        }
    }

    /// Which of rows and columns an access depends on.
    pub fn depends(&self, access: &Access, g: Option<&Group>) -> (bool, bool) {
        let axes = || {
            access.terms.iter().map(|t| t.axis).chain(
                access
                    .bounds
                    .iter()
                    .flat_map(|b| b.terms.iter().map(|t| t.0)),
            )
        };
        (
            axes().any(|a| self.rows.has(a)),
            g.is_some_and(|g| axes().any(|a| g.has(a))),
        )
    }

    /// Global address of the element at `pos`: a register and bytes beyond it.
    pub fn address(&mut self, operand: OperandId, pos: Pos) -> Result<String> {
        let o = &self.kernel.operands[operand as usize];
        let size = (o.dtype.bits() / 8) as i64;
        if !o.access.indexed.is_empty() {
            return self.fail(
                "no gather",
                format!(
                    "operand '{}' is indexed by another one; that has no PTX form yet",
                    o.name
                ),
            );
        }
        let (rows, columns) = self.depends(&o.access, pos.column.map(|c| c.0));
        let row = if rows { pos.row } else { None };
        let whole = match self.cache.rows.get(&(operand, row)) {
            Some(&r) => r,
            None => {
                let mut sum = match self.params.dim(&mut self.t, &o.access.offset) {
                    Num::Known(0) => None,
                    n => Some(self.t.d("mov.b64", format_args!("{n}"))),
                };
                for term in &o.access.terms {
                    if pos.column.is_some_and(|(g, _)| g.has(term.axis)) {
                        continue;
                    }
                    let stride = self.stride(term)?;
                    if let Some(c) = self.coordinate(
                        term.axis,
                        Pos {
                            row: pos.row,
                            column: None,
                        },
                    )? {
                        sum = self.mul_add(sum, c, stride);
                    }
                }
                let pointer = self.params.pointer(&mut self.t, operand);
                let r = match sum {
                    None => pointer,
                    Some(s) => self
                        .t
                        .d("mad.lo.s64", format_args!("{s}, {size}, {pointer}")),
                };
                self.cache.rows.insert((operand, row), r);
                r
            }
        };
        let Some((g, c)) = pos.column.filter(|_| columns) else {
            return Ok(whole.to_string());
        };
        // Along a single axis of known stride the columns of a lane lie at fixed distances.
        let plain = match (
            g.axes.as_slice(),
            o.access
                .terms
                .iter()
                .find(|t| g.has(t.axis))
                .and_then(|t| t.stride())
                .and_then(|s| s.known()),
        ) {
            ([_], Some(s)) => s
                .checked_mul(size * i64::from(c / 2 * 8 + c % 2))
                .filter(|b| i32::try_from(*b).is_ok()),
            _ => None,
        };
        let (c, beyond) = plain.map_or((c, 0), |b| (0, b));
        let key = (operand, row, g.clone(), c);
        let sum = match self.cache.both.get(&key) {
            Some(&r) => r,
            None => {
                let r = match self.along(operand, g, c)? {
                    Some(a) => self.t.d("add.s64", format_args!("{whole}, {a}")),
                    None => whole,
                };
                self.cache.both.insert(key, r);
                r
            }
        };
        Ok(format!("{sum}+{beyond}"))
    }

    /// Bytes that a column adds to an address.
    fn along(&mut self, operand: OperandId, g: &Group, c: u32) -> Result<Option<Reg>> {
        let o = &self.kernel.operands[operand as usize];
        let size = (o.dtype.bits() / 8) as i64;
        let key = (operand, g.clone(), c);
        if let Some(&r) = self.cache.columns.get(&key) {
            return Ok(r);
        }
        let mut sum = None;
        for term in o.access.terms.iter().filter(|t| g.has(t.axis)) {
            let stride = match self.stride(term)? {
                Num::Known(v) => Num::Known(v.saturating_mul(size)),
                Num::Reg(r) => Num::Reg(self.t.d("mul.lo.s64", format_args!("{r}, {size}"))),
            };
            if let Some(x) = self.coordinate(
                term.axis,
                Pos {
                    row: None,
                    column: Some((g, c)),
                },
            )? {
                sum = self.mul_add(sum, x, stride);
            }
        }
        self.cache.columns.insert(key, sum);
        Ok(sum)
    }

    /// Whether the access' own bounds hold at `pos`; `None`: always.
    pub fn bounded(&mut self, access: &Access, pos: Pos) -> Result<Option<Reg>> {
        let mut all = None;
        for b in &access.bounds {
            let mut sum = self.params.dim32(&mut self.t, &b.base);
            for (axis, c) in &b.terms {
                let Some(x) = self.coordinate(*axis, pos)? else {
                    continue;
                };
                let c = self.params.dim32(&mut self.t, c);
                sum = Num::Reg(self.t.r("mad.lo.s32", format_args!("{x}, {c}, {sum}")));
            }
            let sum = self.t.r("mov.b32", format_args!("{sum}"));
            let extent = self.params.dim32(&mut self.t, &b.extent);
            // A negative sum is a large unsigned one.
            let p = self.t.p("setp.lt.u32", format_args!("{sum}, {extent}"));
            all = self.t.both(all, Some(p));
        }
        Ok(all)
    }

    /// A register with `v` (32 bits).
    pub fn in_reg(&mut self, v: Num) -> Reg {
        match v {
            Num::Reg(r) if r.kind == Kind::R => r,
            v => self.t.r("mov.b32", format_args!("{v}")),
        }
    }
}
