//! From a tile program to the instructions of a thread.
//!
//! Every axis lies over threads as the mapping's spreads say, for every tile alike, so that a
//! statement finds the elements of register tiles where it needs them; what lies otherwise goes
//! through shared memory or is computed where it is used. A statement that touches register tiles is
//! unrolled along their axes, others loop.
mod access;
mod beyond;
mod bf16;
mod cluster;
mod deep;
mod groups;
mod matrix;
mod parts;
mod pipeline;
mod quads;
mod staging;
mod state;
mod stmt;
mod storage;
mod sums;
mod walk;
mod warpgroup;
mod warpgroup_parts;
mod warpgroup_words;
mod widened;

use super::build::{Build, without_unread};
use super::dependents::with_wait;
use super::fresh::with_fresh_sums;
use super::ir::{Buffer, Inst, Op, Program, Reg, Ty, Warpgroup};
use crate::EmitError;
pub use cluster::in_cluster;
use expr::{Binary, Compare};
use kernel::{
    AxisId, AxisTile, Edge, Factors, Fragment, GpuMapping, Kept, Kernel, Mapping, Node, Operand,
    OperandId, Place, Role, Seen, TileId, TileProgram, work,
};
use layout::{DType, Dim};
pub use state::Caps;
pub(crate) use state::Result;
use state::{At, Axis, Beyond, Cut, Lower, TileStorage};
use std::collections::BTreeSet;

/// Positions of an axis per piece at most.
const MAX_PIECE: i64 = 1 << 20;

/// The program of every thread for `program`.
///
/// # Errors
/// A rule of the schedule that this form needs is broken, or an element type has no form here.
pub fn lower(program: &TileProgram, caps: Caps) -> Result<Program> {
    let schedule = program.schedule();
    let all = Kept::all(program.kernel(), schedule).map_err(|why| EmitError::Rule {
        kernel: program.kernel().name.clone(),
        statement: "the mapping".into(),
        rule: "parts in a cluster",
        why,
    })?;
    let kernel = &*cluster::as_kept(program.kernel(), &all);
    let fail = |rule: &'static str, why: &str| {
        Err(EmitError::Rule {
            kernel: kernel.name.clone(),
            statement: "the mapping".into(),
            rule,
            why: why.into(),
        })
    };
    let Mapping::Gpu(map) = &schedule.mapping else {
        let why = "the schedule is for a CPU; bind the program to a GPU's target";
        return fail("GPU mapping", why);
    };
    if let Some(why) = too_large(kernel) {
        return fail("coordinates", &why);
    }
    let (whole, map) = (map, &map.of_computing());
    if let Some(f) = map.fragment
        && let Err((rule, why)) = fragment(f, map, caps)
    {
        return fail(rule, &why);
    }
    if schedule.chunk != 1 {
        return fail("chunk", "a CTA takes one task");
    }
    let program = checked(program, kernel, [whole, map], (&all, caps))?;
    verified(&program);
    Ok(program)
}

/// The program for a mapping that was looked at, whole and without warps that only copy, of a kernel with what is `all` kept.
fn checked(
    program: &TileProgram,
    kernel: &Kernel,
    [whole, map]: [&GpuMapping; 2],
    (all, caps): (&[Kept], Caps),
) -> Result<Program> {
    let schedule = program.schedule();
    let mut b = Build::new();
    let staged = |p: &Place| p.stages().is_some_and(|n| n > 1);
    let ahead = map.fragment.is_some() || schedule.places.iter().any(staged);
    let thread = b.op(Ty::I32, Op::Thread);
    let operands_of = 0..kernel.operands.len() as OperandId;
    let mut l = Lower {
        kernel,
        schedule,
        map,
        copiers: whole.copiers,
        walk: None,
        shared_out: whole.shared_out(),
        copier: None,
        caps,
        buffers: operands(kernel, map),
        b,
        axes: vec![],
        groups: vec![],
        homes: vec![],
        depends: operands_of.map(|o| kernel.depends(o)).collect(),
        kept: kernel.operands.iter().map(|_| None).collect(),
        shared: vec![],
        tensors: vec![],
        thread,
        ahead,
        zeroed: BTreeSet::new(),
        beyond: Beyond::default(),
        stage: None,
        products_ahead: false,
        copying: false,
        written: BTreeSet::new(),
        read: BTreeSet::new(),
        faults: vec![],
        at: "the mapping".into(),
    };
    l.axes()?;
    if map.fragment.is_some() {
        l.groups()?;
    }
    // What a walk's next task changes is computed in its body.
    l.walk = (whole.walkers > 0).then(|| l.b.open_loop());
    l.grid();
    l.keeps(all);
    l.homes()?;
    l.zeroed = l.zeroed_tiles();
    l.beyond = l.beyond_ends();
    match l.copiers {
        0 => l.task(program.body())?,
        _ => l.task_of_sides(program.body())?,
    }
    let Lower {
        mut b,
        buffers: operands,
        shared,
        tensors,
        faults,
        ..
    } = l;
    let body = finished(&mut b, &operands, (map, caps));
    let body = cluster::met(body, schedule);
    Ok(Program {
        name: kernel.name.clone(),
        threads: whole.threads,
        registers: map.fragment.map(|_| map.registers),
        body,
        regs: b.regs,
        vars: b.vars,
        shared,
        dims: b.dims,
        operands,
        tensors,
        tasks: work::tasks(kernel, schedule),
        walkers: whole.walkers,
        cluster: whole.cluster,
        faults,
    })
}

/// The instructions of a whole program.
fn finished(b: &mut Build, operands: &[Buffer], (map, caps): (&GpuMapping, Caps)) -> Vec<Inst> {
    let body = without_unread(with_fresh_sums(b.close()), b.regs.len());
    match caps.dependents {
        true => with_wait(body, operands, map.triggers),
        false => body,
    }
}

/// Operands as memory.
fn operands(kernel: &Kernel, map: &GpuMapping) -> Vec<Buffer> {
    let buffer = |(n, o): (usize, &Operand)| Buffer {
        name: o.name.clone(),
        dtype: o.dtype,
        written: o.role == Role::Write,
        constant: map.constants.contains(&(n as OperandId)),
    };
    kernel.operands.iter().enumerate().map(buffer).collect()
}

/// Says where this lowering breaks a rule of its own.
fn verified(program: &Program) {
    if cfg!(debug_assertions)
        && let Err(why) = super::verify::verify(program)
    {
        panic!("{why}\n{program}");
    }
}

/// Which operand has more elements than are numbered.
fn too_large(kernel: &Kernel) -> Option<String> {
    let large = |o: &&Operand| {
        let n = o.elements.known();
        n.is_some_and(|n| n > i64::from(i32::MAX))
    };
    let o = kernel.operands.iter().find(large)?;
    Some(format!(
        "operand '{}' has 2^31 elements or more; they are numbered in 32 bits",
        o.name
    ))
}

/// Whether there is a matrix instruction of this form, and threads for it.
fn fragment(
    f: Fragment,
    map: &GpuMapping,
    caps: Caps,
) -> std::result::Result<(), (&'static str, String)> {
    let (float, whole) = (DType::F32, DType::I32);
    let known = match (f.types(), f.factors) {
        ([DType::F16 | DType::BF16, _], Factors::Whole) if f.right.is_none() => Some((16, float)),
        ([DType::F32, _], Factors::Tf32 | Factors::Tf32x3) if f.right.is_none() => Some((8, float)),
        ([DType::F32, _], Factors::Bf16 | Factors::Bf16x3) if f.right.is_none() => {
            Some((16, float))
        }
        ([DType::I8 | DType::U8, DType::I8 | DType::U8], Factors::Whole) => Some((32, whole)),
        _ => None,
    };
    let shape = match f.m {
        16 => f.n == 8,
        64 => (8..=256).contains(&f.n) && f.n.is_multiple_of(8),
        _ => false,
    };
    if !shape || known != Some((f.k, f.acc)) {
        return Err((
            "fragment",
            "mma.m16n8k16 of f16, bf16 or f32 as bf16 and mma.m16n8k8 of f32 as TF32 into f32, mma.m16n8k32 of 8-bit integers into i32, and the same of 64 rows and 8 to 256 columns by a warpgroup are printed"
                .into(),
        ));
    }
    if f.m == 64 && !caps.warpgroups {
        return Err((
            "fragment",
            "the architecture has no products of warpgroups".into(),
        ));
    }
    let warps = map.warps[0].checked_mul(map.warps[1]);
    if warps.and_then(|w| w.checked_mul(32 * map.deep())) != Some(map.threads) {
        return Err((
            "threads",
            format!(
                "{} threads for {} x {} warps of 32",
                map.threads, map.warps[0], map.warps[1]
            ),
        ));
    }
    if !(24..=255).contains(&map.registers) {
        return Err((
            "registers",
            format!(
                "{} registers per thread; 24 to 255 can be asked for",
                map.registers
            ),
        ));
    }
    Ok(())
}

impl Lower<'_> {
    /// An error about the statement at hand.
    fn fail<T>(&self, rule: &'static str, why: impl Into<String>) -> Result<T> {
        Err(EmitError::Rule {
            kernel: self.kernel.name.clone(),
            statement: self.at.clone(),
            rule,
            why: why.into(),
        })
    }

    fn tile_name(&self, t: TileId) -> &str {
        &self.kernel.tiles[t as usize].name
    }

    fn axis(&self, a: AxisId) -> &Axis {
        &self.axes[a as usize]
    }

    /// Axes before any cut is taken into account but the positions per piece.
    fn axes(&mut self) -> Result<()> {
        let directions = self.map.directions();
        let mut next = 1u32;
        for &(stride, count) in &directions {
            if stride != next {
                return self.fail(
                    "spread",
                    format!("threads are numbered along {directions:?}; each direction must begin where the one before ends"),
                );
            }
            next = next.saturating_mul(count);
        }
        if next > self.map.threads {
            return self.fail(
                "spread",
                format!(
                    "{next} threads are needed, the CTA has {}",
                    self.map.threads
                ),
            );
        }
        for (i, a) in self.kernel.axes.iter().enumerate() {
            let spread = self.map.spread(i as AxisId);
            let extent = a.extent.known();
            let bound = self.schedule.positions(self.kernel, i as AxisId);
            if bound.is_some_and(|b| b > MAX_PIECE) && spread.count > 1 {
                return self.fail(
                    "piece",
                    format!("axis '{}' has pieces of more than {MAX_PIECE}", a.name),
                );
            }
            let len = self.b.dim(&a.extent, Ty::I32);
            let full = match (bound, extent) {
                // Pieces of one position, and of an extent that has as many in all.
                (Some(t), None) => t == 1 || a.extent.exact_div(&Dim::Known(t)).is_some(),
                (Some(t), Some(e)) => e % t == 0 && e > 0,
                _ => false,
            };
            let stride = self.b.int(spread.stride.into());
            let count = self.b.int(spread.count.into());
            let mut thread = self.b.int(0);
            if spread.count > 1 {
                thread = self.b.div(self.thread, stride);
                if spread.stride * spread.count < self.map.threads {
                    thread = self.b.rem(thread, count);
                }
            }
            let base = self.b.int(0);
            self.axes.push(Axis {
                bound,
                full,
                base,
                len,
                spread,
                thread,
                group: None,
            });
        }
        Ok(())
    }

    /// Number of pieces of a cut axis.
    fn pieces(&mut self, c: &AxisTile) -> Reg {
        let extent = &self.kernel.axes[c.axis as usize].extent;
        self.b
            .dim(&extent.ceil_div(&Dim::Known(c.tile.max(1))), Ty::I32)
    }

    /// The first position of a cut axis that the present rows see, and the one behind the last.
    fn seen_between(&mut self, c: &AxisTile, seen: &Seen) -> (Reg, Reg) {
        let mut first = self.b.int(0);
        let mut end = self
            .b
            .dim(&self.kernel.axes[c.axis as usize].extent, Ty::I32);
        for e in &seen.from {
            let at = self.reach(e, false);
            first = self.b.binary(Binary::Max, first, at);
        }
        for e in &seen.to {
            let at = self.reach(e, true);
            end = self.b.binary(Binary::Min, end, at);
        }
        (first, end)
    }

    /// The last position of an edge for the present rows, or its first one.
    fn reach(&mut self, e: &Edge, last: bool) -> Reg {
        let base = self.b.dim(&e.base, Ty::I32);
        e.terms.iter().fold(base, |sum, (axis, c)| {
            let Axis { base, len, .. } = self.axes[*axis as usize];
            let at = match Edge::grows(c) == last {
                true => {
                    let (one, end) = (self.b.int(1), self.b.add(base, len));
                    self.b.binary(Binary::Sub, end, one)
                }
                false => base,
            };
            let c = self.b.dim(c, Ty::I32);
            let part = self.b.mul(c, at);
            self.b.add(sum, part)
        })
    }

    /// A loop over the pieces of an axis that the present rows see.
    fn cut(&mut self, c: &AxisTile, seen: &Seen) -> Cut {
        let (zero, all) = (self.b.int(0), self.pieces(c));
        let (tile, mut first, mut count) = (*c, zero, all);
        if !seen.is_all() {
            let each = self.axes[c.axis as usize].bound.unwrap_or(c.tile);
            let (from, end) = self.seen_between(c, seen);
            let (size, rest) = (self.b.int(each), self.b.int(each - 1));
            first = self.b.div(from, size);
            // Not below 0, where the division is of unsigned numbers.
            let end = self.b.binary(Binary::Max, end, zero);
            let end = self.b.add(end, rest);
            let end = self.b.div(end, size);
            let end = self.b.binary(Binary::Min, end, all);
            let left = self.b.binary(Binary::Sub, end, first);
            count = self.b.binary(Binary::Max, left, zero);
        }
        Cut { tile, first, count }
    }

    /// Makes the piece that begins at `base` current.
    fn enter(&mut self, c: &AxisTile, base: Reg) {
        let extent = self
            .b
            .dim(&self.kernel.axes[c.axis as usize].extent, Ty::I32);
        let axis = &self.axes[c.axis as usize];
        let tile = self.b.int(axis.bound.unwrap_or(c.tile));
        let len = match axis.full {
            true => tile,
            false => {
                let left = self.b.sub(extent, base);
                self.b.binary(Binary::Min, left, tile)
            }
        };
        let axis = &mut self.axes[c.axis as usize];
        (axis.base, axis.len) = (base, len);
    }

    /// The task's piece of every grid axis.
    fn grid(&mut self) {
        let grid = self.schedule.grid.clone();
        let counts: Vec<Reg> = grid.iter().map(|g| self.pieces(g)).collect();
        let n = grid.len();
        let mut rest = match self.walk {
            Some(task) => task,
            None => self.b.op(Ty::I32, Op::Task),
        };
        let mut piece = vec![rest; n];
        let mut left = n;
        if self.schedule.raster > 1 && n >= 2 {
            let b = &mut self.b;
            let (rows, columns) = (counts[n - 2], counts[n - 1]);
            let plane = b.mul(rows, columns);
            let inner = b.rem(rest, plane);
            rest = b.div(rest, plane);
            let height = b.int(self.schedule.raster.min(MAX_PIECE));
            let wide = b.mul(columns, height);
            let band = b.div(inner, wide);
            let inner = b.rem(inner, wide);
            let first = b.mul(band, height);
            let tall = b.sub(rows, first);
            let tall = b.binary(Binary::Min, tall, height);
            let row = b.rem(inner, tall);
            piece[n - 2] = b.add(row, first);
            piece[n - 1] = b.div(inner, tall);
            left = n - 2;
        }
        for i in (0..left).rev() {
            if i == 0 {
                piece[0] = rest;
            } else {
                piece[i] = self.b.rem(rest, counts[i]);
                rest = self.b.div(rest, counts[i]);
            }
        }
        for (g, p) in grid.iter().zip(piece) {
            let tile = self
                .b
                .int(self.axes[g.axis as usize].bound.unwrap_or(g.tile));
            let base = self.b.mul(p, tile);
            self.enter(g, base);
        }
    }

    fn nodes(&mut self, nodes: &[Node]) -> Result<()> {
        for n in nodes {
            match n {
                Node::Stmt(s) => self.stmt(s)?,
                Node::Loop { axis, seen, body } => match self.nest(n) {
                    Some((cuts, stmts)) => self.ring(&cuts, &stmts)?,
                    None => self.looped(axis, seen, body)?,
                },
            }
        }
        Ok(())
    }

    fn looped(&mut self, c: &AxisTile, seen: &Seen, body: &[Node]) -> Result<()> {
        let before = self.axes[c.axis as usize].clone();
        // What an iteration does to shared memory, the next one must expect.
        let mut touched = BTreeSet::new();
        self.touched(body, &mut touched);
        self.written.extend(&touched);
        self.read.extend(&touched);
        // A loop without a turn has no barrier either: what was before it is still to be waited for.
        let extent = &self.kernel.axes[c.axis as usize].extent;
        let turns = seen.is_all() && extent.known().is_some_and(|n| n > 0);
        let pending = (!turns).then(|| (self.written.clone(), self.read.clone()));
        let step = self.b.int(before.bound.unwrap_or(c.tile));
        let (first, end) = self.seen_between(c, seen);
        let first = self.b.div(first, step);
        let first = self.b.mul(first, step);
        let i = self.b.open_loop();
        self.b.forget_shared();
        self.enter(c, i);
        self.nodes(body)?;
        self.b.forget_shared();
        self.b.close_loop(i, (first, end, step));
        self.written.extend(&touched);
        self.read.extend(&touched);
        if let Some((written, read)) = pending {
            self.written.extend(written);
            self.read.extend(read);
        }
        self.axes[c.axis as usize] = before;
        Ok(())
    }

    /// Where nothing is iterated: the first position of every piece.
    fn origin(&self) -> At {
        let n = self.axes.len();
        let own = |a: &Axis| (a.own() == Some(1)).then_some(0);
        At {
            coord: self.axes.iter().map(|a| a.base).collect(),
            slot: self.axes.iter().map(own).collect(),
            valid: vec![None; n],
            runs: vec![],
        }
    }

    /// Whether warpgroups read what is staged.
    fn warpgroups(&self) -> bool {
        self.map.fragment.is_some_and(|f| f.warps() > 1)
    }

    fn barrier(&mut self) {
        if std::mem::take(&mut self.copying) {
            self.b.push(Inst::Wait(0));
        }
        if self.warpgroups() {
            self.b.push(Inst::Warpgroup(Warpgroup::ProxyFence));
        }
        self.b.push(Inst::Barrier);
        self.b.forget_shared();
        self.written.clear();
        self.read.clear();
    }

    /// Where several threads have the same elements of a shared tile: whether this one writes them.
    fn owner(&mut self, t: TileId) -> Option<Reg> {
        match *self.homes[t as usize] {
            TileStorage::Shared(_) => {
                let axes = self.kernel.tiles[t as usize].axes.clone();
                self.first_of_equals(&axes)
            }
            _ => None,
        }
    }

    /// Whether this thread is the one of those that hold the same elements of a tile with `axes`
    /// that stores them; `None` where there is only one.
    fn first_of_equals(&mut self, axes: &[AxisId]) -> Option<Reg> {
        let used: Vec<(u32, u32)> = axes.iter().flat_map(|&a| self.directions_of(a)).collect();
        let mut covered = 1;
        let mut out = None;
        let zero = self.b.int(0);
        for d in self.directions() {
            covered = d.0 * d.1;
            if used.contains(&d) {
                continue;
            }
            let found = self
                .axes
                .iter()
                .find(|a| (a.spread.stride, a.spread.count) == d);
            let thread = match found.map(|a| a.thread) {
                Some(t) => t,
                None => {
                    let own = self.quotient(self.thread, d.0.into());
                    self.remainder(own, d.1.into())
                }
            };
            let own = self.b.compare(Compare::Eq, thread, zero);
            out = self.b.both(out, Some(own));
        }
        if covered < self.map.threads {
            let all = self.b.int(covered.into());
            let own = self.b.compare(Compare::Lt, self.thread, all);
            out = self.b.both(out, Some(own));
        }
        out
    }
}
