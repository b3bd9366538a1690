//! From the nodes of a tile program to text: grid, loops, and each statement in order.
use super::emitter::{Copy, Emitter, Result, Value};
use super::group::Group;
use super::params::Num;
use super::text::{Kind, Reg, Text};
use crate::EmitError;
use kernel::{AxisId, AxisTile, Node, Place, Stmt, TileId};
use layout::Dim;
use std::collections::BTreeMap;

impl<'a> Emitter<'a> {
    /// An error about the statement at hand.
    pub fn fail<T>(&self, rule: &'static str, why: impl Into<String>) -> Result<T> {
        Err(EmitError::Rule {
            kernel: self.kernel.name.clone(),
            statement: self.at.clone(),
            rule,
            why: why.into(),
        })
    }

    /// Name of an axis for people.
    pub fn axis_name(&self, a: AxisId) -> String {
        self.kernel
            .axes
            .get(a as usize)
            .map_or_else(|| format!("{a}"), |x| x.name.clone())
    }

    /// Positions of `axis` in a tile.
    pub fn tile_size(&self, axis: AxisId) -> Result<u32> {
        let n = match self.schedule.tile(axis) {
            Some(n) => Some(n),
            None => self
                .kernel
                .axes
                .get(axis as usize)
                .and_then(|a| a.extent.known()),
        };
        match n {
            Some(n) if (1..=65536).contains(&n) => Ok(n as u32),
            Some(n) => self.fail(
                "tile size",
                format!(
                    "axis '{}' has {n} positions per tile; 1 to 65536 can be printed",
                    self.axis_name(axis)
                ),
            ),
            None => self.fail(
                "tile size",
                format!(
                    "axis '{}' is not cut and its extent is symbolic; cut it",
                    self.axis_name(axis)
                ),
            ),
        }
    }

    /// `axes` as a group.
    pub fn group(&self, axes: &[AxisId]) -> Result<Group> {
        let axes = axes
            .iter()
            .map(|&a| Ok((a, self.tile_size(a)?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Group { axes })
    }

    /// An axis that has one position per tile and is neither row nor column: the same for all
    /// threads of a CTA.
    pub fn uniform(&self, axis: AxisId) -> bool {
        !self.map.rows.contains(&axis)
            && !self.map.columns.contains(&axis)
            && self.schedule.tile(axis) == Some(1)
    }

    /// Where the extent may end inside a piece.
    pub fn ragged(&self, axis: AxisId, tile: u32) -> bool {
        match self.schedule.tile(axis) {
            None => false,
            Some(_) => self.kernel.axes[axis as usize]
                .extent
                .exact_div(&Dim::Known(tile as i64))
                .is_none(),
        }
    }

    /// Number of pieces of a cut axis.
    fn cut_into(&self, cut: &AxisTile) -> Dim {
        let extent = &self.kernel.axes[cut.axis as usize].extent;
        extent.ceil_div(&Dim::Known(cut.tile))
    }

    /// The same as a number of the text.
    fn pieces(&mut self, cut: &AxisTile) -> Num {
        let n = self.cut_into(cut);
        self.params.dim32(&mut self.t, &n)
    }

    /// Task number to the first coordinate along every grid axis.
    pub fn grid(&mut self) -> Result<()> {
        self.at = "the grid".into();
        let grid = self.schedule.grid.clone();
        let number = self.t.source.task();
        let task = self.t.r("mov.u32", format_args!("{number}"));
        let counts: Vec<Num> = grid.iter().map(|g| self.pieces(g)).collect();
        let n = grid.len();
        let mut rest = task;
        let mut piece: Vec<Option<Reg>> = vec![None; n];
        let mut left = n;
        let t = &mut self.t;
        let raster = self.schedule.raster;
        if raster > 1 && n >= 2 {
            if raster > 1 << 16 {
                return self.fail(
                    "raster",
                    format!("bands of {raster} tiles; 65536 at most can be printed"),
                );
            }
            t.note(&format!("raster: bands of {raster} tiles"));
            let (tm, tn) = (counts[n - 2], counts[n - 1]);
            let plane = t.def(Kind::R, |d| format!("mov.b32 {d}, {tm}"));
            let plane = t.r("mul.lo.u32", format_args!("{plane}, {tn}"));
            let inner = t.r("rem.u32", format_args!("{rest}, {plane}"));
            rest = t.r("div.u32", format_args!("{rest}, {plane}"));
            let wide = t.def(Kind::R, |d| format!("mov.b32 {d}, {tn}"));
            let wide = t.r("mul.lo.u32", format_args!("{wide}, {raster}"));
            let band = t.r("div.u32", format_args!("{inner}, {wide}"));
            let inner = t.r("rem.u32", format_args!("{inner}, {wide}"));
            let first = t.r("mul.lo.u32", format_args!("{band}, {raster}"));
            let height = t.def(Kind::R, |d| format!("mov.b32 {d}, {tm}"));
            let height = t.r("sub.u32", format_args!("{height}, {first}"));
            let height = t.r("min.u32", format_args!("{height}, {raster}"));
            let m = t.r("rem.u32", format_args!("{inner}, {height}"));
            piece[n - 2] = Some(t.r("add.u32", format_args!("{m}, {first}")));
            piece[n - 1] = Some(t.r("div.u32", format_args!("{inner}, {height}")));
            left = n - 2;
        }
        for i in (0..left).rev() {
            if i == 0 {
                piece[0] = Some(rest);
            } else {
                piece[i] = Some(t.r("rem.u32", format_args!("{rest}, {}", counts[i])));
                rest = t.r("div.u32", format_args!("{rest}, {}", counts[i]));
            }
        }
        for (g, p) in grid.iter().zip(piece) {
            if let Some(p) = p {
                let first = t.r("mul.lo.u32", format_args!("{p}, {}", g.tile));
                self.base.insert(g.axis, first);
            }
        }
        Ok(())
    }

    /// The nodes of a body, in order.
    pub fn nodes(&mut self, nodes: &[Node]) -> Result<()> {
        for n in nodes {
            match n {
                Node::Stmt(s) => self.stmt(s)?,
                Node::Loop { .. } => {
                    let mut cuts = Vec::new();
                    let mut at = n;
                    let body = loop {
                        let Node::Loop { axis, body } = at else {
                            break None;
                        };
                        cuts.push(*axis);
                        match body.as_slice() {
                            [one @ Node::Loop { .. }] => at = one,
                            b if b.iter().all(|n| matches!(n, Node::Stmt(_))) => break Some(b),
                            _ => break None,
                        }
                    };
                    self.at = "a loop".into();
                    match body {
                        Some(b) => self.pipeline(&cuts, b)?,
                        None => return self.fail("perfect nest", "its body holds both statements and loops; order statements so that loops nest perfectly"),
                    }
                }
            }
        }
        Ok(())
    }

    fn name_stmt(&mut self, s: &Stmt) {
        let k = self.kernel;
        let tile = |t: TileId| k.tiles.get(t as usize).map_or("?", |t| t.name.as_str());
        self.at = match s {
            Stmt::Load { dst, .. } => format!("load of '{}'", tile(*dst)),
            Stmt::Store { src, .. } => format!("store of '{}'", tile(*src)),
            Stmt::Map { dst, .. } => format!("map '{}'", tile(*dst)),
            Stmt::Contract { acc, .. } => format!("contract into '{}'", tile(*acc)),
            Stmt::Relabel { dst, .. } => format!("relabelling to '{}'", tile(*dst)),
            Stmt::Fold { state, .. } => {
                format!("fold into '{}'", state.first().map_or("?", |&s| tile(s)))
            }
        };
        self.t.note(&self.at);
    }

    fn stmt(&mut self, s: &Stmt) -> Result<()> {
        self.name_stmt(s);
        match s {
            Stmt::Load { dst, operand } => match self.schedule.place(*dst) {
                Place::Shared { .. } => {
                    let copy = self.copy(*dst, *operand, &[])?;
                    self.issue(&copy, None, &BTreeMap::new())?;
                    self.t.op("cp.async.commit_group");
                    self.unwaited = true;
                    Ok(())
                }
                _ => {
                    self.tiles.insert(*dst, Value::Loaded(*operand));
                    Ok(())
                }
            },
            Stmt::Store { operand, src } => self.store(*operand, *src),
            Stmt::Map { dst, expr, args } => self.map_tile(*dst, expr, args),
            Stmt::Contract { acc, a, b, over } => {
                if self.unwaited && self.read_stage.is_none() {
                    self.t.op("cp.async.wait_group 0");
                    self.t.barrier();
                    self.unwaited = false;
                }
                self.contract(*acc, *a, *b, over)
            }
            Stmt::Fold {
                monoid,
                state,
                args,
                over,
                rescale,
            } => self.fold(monoid, state, args, over, rescale.as_ref()),
            Stmt::Relabel { .. } => self.fail(
                "tiles under one set of labels",
                "tiles that get other labels, or are carried from position to position, are not printed yet; run this kernel on a CPU",
            ),
        }
    }

    /// The copies into shared memory among `stmts`, and the stages that all of them have.
    fn staging(&mut self, stmts: &[&Stmt], cuts: &[AxisTile]) -> Result<(Vec<Copy>, u32)> {
        let mut copies: Vec<Copy> = Vec::new();
        let mut depth: Option<u32> = None;
        for s in stmts {
            if let Stmt::Load { dst, operand } = s
                && let Place::Shared { stages, .. } = self.schedule.place(*dst)
            {
                self.name_stmt(s);
                if depth.is_some_and(|d| d != stages) {
                    return self.fail(
                        "one pipeline depth",
                        "tiles staged in one loop have different numbers of stages; use one",
                    );
                }
                depth = Some(stages);
                copies.push(self.copy(*dst, *operand, cuts)?);
            }
        }
        let stages = depth.unwrap_or(1);
        self.at = "a loop".into();
        if !(1..=16).contains(&stages) {
            return self.fail("stages", format!("{stages} stages; 1 to 16 can be printed"));
        }
        Ok((copies, stages))
    }

    /// Loops around statements: loads into shared memory run `stages - 1` pieces ahead.
    fn pipeline(&mut self, cuts: &[AxisTile], body: &[Node]) -> Result<()> {
        let stmts: Vec<&Stmt> = body
            .iter()
            .filter_map(|n| if let Node::Stmt(s) = n { Some(s) } else { None })
            .collect();
        let (copies, stages) = self.staging(&stmts, cuts)?;
        // Number of pieces, and two sets of coordinates: of what is copied and of what is computed.
        let counts: Vec<Num> = cuts.iter().map(|c| self.pieces(c)).collect();
        let t = &mut self.t;
        let mut total = t.r("mov.b32", format_args!("{}", counts[0]));
        for c in &counts[1..] {
            total = t.r("mul.lo.u32", format_args!("{total}, {c}"));
        }
        let zero = |t: &mut Text| t.r("mov.b32", format_args!("0"));
        let mut ahead = BTreeMap::new();
        for c in cuts {
            let (a, b) = (zero(t), zero(t));
            ahead.insert(c.axis, a);
            self.base.insert(c.axis, b);
        }
        let (issued, done, write, read) = (zero(t), zero(t), zero(t), zero(t));
        self.cache.clear();
        if stages > 1 {
            let (top, skip) = (self.t.label("fill"), self.t.label("filled"));
            self.t
                .note(&format!("fill {} of {stages} stages", stages - 1));
            self.t.place_loop(&top, Dim::Known(i64::from(stages) - 1));
            self.ahead(&copies, cuts, &ahead, issued, write, total, &skip)?;
            let more = self
                .t
                .p("setp.lt.u32", format_args!("{issued}, {}", stages - 1));
            self.t.op(format!("@{more} bra {top}"));
        }
        let (top, end, skip) = (
            self.t.label("loop"),
            self.t.label("end"),
            self.t.label("issued"),
        );
        let empty = self.t.p("setp.eq.u32", format_args!("{total}, 0"));
        self.t.op(format!("@{empty} bra {end}"));
        let passes: Vec<Dim> = cuts.iter().map(|c| self.cut_into(c)).collect();
        self.t.place_loop(&top, Dim::product(&passes));
        if stages > 1 {
            self.t.op(format!("cp.async.wait_group {}", stages - 2));
            // Also: everybody has read the stage that is filled next.
            self.t.barrier();
            self.ahead(&copies, cuts, &ahead, issued, write, total, &skip)?;
        } else if !copies.is_empty() {
            self.ahead(&copies, cuts, &ahead, issued, write, total, &skip)?;
            self.t.op("cp.async.wait_group 0");
            self.t.barrier();
        }
        self.unwaited = false;
        let outer = self.read_stage.replace(read);
        self.cache.clear();
        for s in &stmts {
            if let Stmt::Load { dst, .. } = s
                && matches!(self.schedule.place(*dst), Place::Shared { .. })
            {
                continue;
            }
            self.stmt(s)?;
        }
        self.read_stage = outer;
        self.at = "a loop".into();
        self.t.note("next piece");
        if stages == 1 && !copies.is_empty() {
            self.t.barrier();
        }
        let base: BTreeMap<AxisId, Reg> =
            cuts.iter().map(|c| (c.axis, self.base[&c.axis])).collect();
        self.advance(cuts, &base);
        self.rotate(read, stages);
        self.t.op(format!("add.u32 {done}, {done}, 1"));
        let more = self.t.p("setp.lt.u32", format_args!("{done}, {total}"));
        self.t.op(format!("@{more} bra {top}"));
        self.t.place(&end);
        for c in cuts {
            self.base.remove(&c.axis);
        }
        self.cache.clear();
        Ok(())
    }

    /// Copies of the next piece, unless there is none; a group is committed in either case, so that
    /// groups count pieces.
    #[allow(clippy::too_many_arguments)]
    fn ahead(
        &mut self,
        copies: &[Copy],
        cuts: &[AxisTile],
        at: &BTreeMap<AxisId, Reg>,
        issued: Reg,
        write: Reg,
        total: Reg,
        skip: &str,
    ) -> Result<()> {
        let none = self.t.p("setp.ge.u32", format_args!("{issued}, {total}"));
        self.t.op(format!("@{none} bra {skip}"));
        let mut stages = 1;
        for c in copies {
            self.issue(c, Some(write), at)?;
            stages = c.stages;
        }
        self.advance(cuts, at);
        self.rotate(write, stages);
        self.t.place(skip);
        self.t.op("cp.async.commit_group");
        self.t.op(format!("add.u32 {issued}, {issued}, 1"));
        Ok(())
    }

    /// The next stage, round robin.
    fn rotate(&mut self, stage: Reg, stages: u32) {
        if stages > 1 {
            self.t.op(format!("add.u32 {stage}, {stage}, 1"));
            let over = self.t.p("setp.eq.u32", format_args!("{stage}, {stages}"));
            self.t.op(format!("@{over} mov.b32 {stage}, 0"));
        }
    }

    /// The next piece, the innermost axis first.
    fn advance(&mut self, cuts: &[AxisTile], at: &BTreeMap<AxisId, Reg>) {
        let mut carry: Option<Reg> = None;
        for (i, c) in cuts.iter().enumerate().rev() {
            let r = at[&c.axis];
            let p = super::text::when(carry);
            self.t.op(format!("{p}add.u32 {r}, {r}, {}", c.tile));
            if i == 0 {
                break;
            }
            let extent = self
                .params
                .dim32(&mut self.t, &self.kernel.axes[c.axis as usize].extent);
            let over = match carry {
                None => self.t.p("setp.ge.s32", format_args!("{r}, {extent}")),
                Some(q) => self
                    .t
                    .p("setp.ge.and.s32", format_args!("{r}, {extent}, {q}")),
            };
            self.t.op(format!("@{over} mov.b32 {r}, 0"));
            carry = Some(over);
        }
    }
}
