//! Bytes across each level: a reuse model over the nest of loops and grid axes.
//!
//! For the level behind a capacity, the nest is walked from the innermost entry outwards. An entry
//! whose axis an operand depends on multiplies its traffic; one that it does not depend on does so
//! only when the distinct bytes of everything inside exceed the capacity. Once everything up to an
//! entry fits, each operand has crossed the level once (that also takes overlapping windows out).
//!
//! A capacity that workers share holds what a wave of concurrent tasks touches in step: the grid
//! entries of one wave are walked before the loops. Private capacities hold a copy per worker.
use super::space::{Space, runs_over};
use super::{byte_size, rows};
use crate::{AxisId, Mapping, OperandId, Place, Stmt, TileProgram};
use machine::{Level, Machine, Work};

/// One loop of the nest: `axis` grows from `inner` to `outer` positions in `n` passes.
#[derive(Clone, Copy)]
struct Entry {
    axis: usize,
    inner: f64,
    outer: f64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Panels of a contraction's micro-kernel.
    Panel,
    Loop,
    Grid,
}

struct Model<'a> {
    p: &'a TileProgram,
    s: &'a Space,
    /// Loading statement's tile per operand.
    tile: Vec<Option<usize>>,
    /// Operand feeds a contraction.
    contracted: Vec<bool>,
    /// Statements that read the operand's tile, or what is computed from it where they use it.
    readers: Vec<f64>,
    /// Operands that are read at all.
    read: Vec<bool>,
    /// Axes that the statements which read an operand's tile run over.
    run: Vec<Vec<AxisId>>,
}

/// Adds the traffic of every statement to its part of the work.
pub(super) fn traffic(
    p: &TileProgram,
    s: &Space,
    machine: &Machine,
    far: &dyn Fn(usize) -> f64,
    parts: &mut [Work],
) {
    let memory = machine.memory_index();
    // Levels that are the same memory as a nearer one (shared memory and L1) count once.
    let chain: Vec<usize> = (0..=memory.min(machine.levels.len().saturating_sub(1)))
        .filter(|&i| {
            let l = &machine.levels[i];
            l.name != "register"
                && !l
                    .same_place_as
                    .as_ref()
                    .is_some_and(|n| machine.levels[..i].iter().any(|x| x.name == *n))
        })
        .collect();
    if s.tasks() == 0 {
        return;
    }
    let Some(&near) = chain.first() else { return };
    let cpu = matches!(p.schedule().mapping, Mapping::Cpu(_));
    let m = Model::new(p, s);
    m.nearest_level(machine, near, parts);
    let (readers, writers) = (m.first_readers(), m.writers());
    let spilled = m.scratch_traffic();
    let operands = 0..p.kernel().operands.len();
    let lies: Vec<usize> = operands
        .map(|o| machine.nearest_holding_index(far(o)))
        .collect();
    let active = machine
        .worker_count()
        .min(usize::try_from(s.tasks()).unwrap_or(usize::MAX))
        .max(1);
    let resident = resident(p, machine);
    for pair in chain.windows(2) {
        let nearer = &machine.levels[pair[0]];
        let private = nearer.is_private() || active == 1;
        let capacity = if private {
            nearer.capacity_per_worker(active)
        } else {
            nearer.capacity()
        };
        let concurrent = active
            .min(usize::try_from(nearer.shared_by).unwrap_or(active))
            .max(1);
        let wave = if private { 1.0 } else { concurrent as f64 };
        // On a GPU what all resident tasks go through again competes for the capacity.
        let together = if cpu { 1.0 } else { wave * resident };
        let loaded = m.loaded(capacity, active as f64, wave, together);
        let loaded = match private {
            true => m.multicast(loaded, &machine.levels[pair[1]], active),
            false => loaded,
        };
        for (o, operand) in p.kernel().operands.iter().enumerate() {
            if pair[1] > lies[o] {
                continue;
            }
            if let (Some(at), true) = (readers[o], loaded[o] > 0.0) {
                parts[at].add_traffic(pair[1], loaded[o], 0.0);
            }
            // What a cluster's CTAs keep goes no further.
            let kept = p.schedule().gives_parts();
            if let (Some(at), false) = (writers[o], m.read[o] || kept) {
                let stored = s.elements[o] * byte_size(operand.dtype);
                parts[at].add_traffic(pair[1], 0.0, stored);
            }
        }
        // What one task makes for itself does not stay near when all of it is more than that.
        if cpu && m.working_set(&s.piece, false) > capacity {
            for (part, (loaded, stored)) in parts.iter_mut().zip(&spilled) {
                part.add_traffic(pair[1], *loaded, *stored);
            }
        }
    }
}

/// Tasks that one worker holds at a time: CTAs of an SM, one on a CPU.
fn resident(p: &TileProgram, machine: &Machine) -> f64 {
    let Mapping::Gpu(g) = &p.schedule().mapping else {
        return 1.0;
    };
    let block = machine::calc::Block {
        threads: g.threads.into(),
        registers: g.registers.into(),
        shared: p.shared_bytes(crate::TargetKind::Ptx),
    };
    let held = machine::calc::occupancy(&machine.limits, block);
    held.map_or(1.0, |o| o.ctas.max(1) as f64)
}

/// Rows and columns of an accumulator that share one read of a factor.
fn micro(p: &TileProgram, machine: &Machine, s: &Space) -> (Vec<AxisId>, f64, Vec<AxisId>, f64) {
    let whole = |axes: &[AxisId]| axes.iter().map(|&a| s.piece[a as usize]).product::<f64>();
    match &p.schedule().mapping {
        Mapping::Cpu(c) => {
            let lanes = (machine.isa.vector_bytes as f64 / 4.0).max(1.0);
            let (mr, nr) = c.micro.map_or((1.0, lanes), |m| {
                (f64::from(m.mr.max(1)), f64::from(m.nr.max(1)))
            });
            (c.rows.clone(), mr, c.lanes.into_iter().collect(), nr)
        }
        Mapping::Gpu(g) => {
            let (mr, nr) = match g.fragment.filter(|f| f.warps() > 1) {
                // Each instruction reads both of its factors from shared memory.
                Some(f) => {
                    let each = f64::from(f.products());
                    (f64::from(f.m) / each, f64::from(f.n) / each)
                }
                None => {
                    let each = |axes: &[AxisId], warps: u32| whole(axes) / f64::from(warps.max(1));
                    (each(&g.rows, g.warps[0]), each(&g.columns, g.warps[1]))
                }
            };
            let (mr, nr) = (mr.max(1.0), nr.max(1.0));
            (g.rows.clone(), mr, g.columns.clone(), nr)
        }
    }
}

/// For every tile, which statements go through it: those that read it, and for a map that is computed
/// where it is used those that use it.
fn users(p: &TileProgram) -> Vec<Vec<bool>> {
    let k = p.kernel();
    let mut users = vec![vec![false; k.body.len()]; k.tiles.len()];
    for (at, stmt) in k.body.iter().enumerate().rev() {
        let passed_on = match stmt {
            Stmt::Map { dst, .. } if p.schedule().place(*dst) == Place::Recompute => {
                Some(users[*dst as usize].clone())
            }
            _ => None,
        };
        for t in stmt.reads() {
            let own = &mut users[t as usize];
            match &passed_on {
                Some(more) => own.iter_mut().zip(more).for_each(|(o, m)| *o |= m),
                None => own[at] = true,
            }
        }
    }
    users
}

impl<'a> Model<'a> {
    fn new(p: &'a TileProgram, s: &'a Space) -> Model<'a> {
        let k = p.kernel();
        let n = k.operands.len();
        let mut m = Model {
            p,
            s,
            tile: vec![None; n],
            contracted: vec![false; n],
            readers: vec![0.0; n],
            read: vec![false; n],
            run: vec![vec![]; n],
        };
        for stmt in &k.body {
            if let Stmt::Load { dst, operand } = stmt {
                m.tile[*operand as usize] = Some(*dst as usize);
                m.read[*operand as usize] = true;
                for i in &k.operands[*operand as usize].access.indexed {
                    m.read[i.by as usize] = true;
                }
            }
        }
        let users = users(p);
        let reads: Vec<_> = k.body.iter().map(Stmt::reads).collect();
        for o in 0..n {
            let Some(t) = m.tile[o] else { continue };
            m.readers[o] = users[t].iter().filter(|u| **u).count() as f64;
            for (stmt, list) in k.body.iter().zip(&reads) {
                let reads = list.contains(&(t as u16));
                m.contracted[o] |= reads && matches!(stmt, Stmt::Contract { .. });
                if reads {
                    let axes = 0..s.extent.len() as AxisId;
                    m.run[o].extend(axes.filter(|&a| runs_over(k, stmt, a)));
                }
            }
        }
        m
    }

    /// What statements read and write, at the level next to the registers.
    fn nearest_level(&self, machine: &Machine, level: usize, parts: &mut [Work]) {
        let (k, s) = (self.p.kernel(), self.s);
        let gpu = matches!(self.p.schedule().mapping, Mapping::Gpu(_));
        let size = |t: u16| byte_size(k.tiles[t as usize].dtype);
        let bytes = |t: u16| s.positions(&k.tiles[t as usize].axes) * size(t);
        // A GPU's register tiles touch no memory; a CPU's are memory in its nearest cache.
        let in_registers = |t: u16| {
            let place = self.p.schedule().place(t);
            gpu && matches!(place, Place::Register | Place::Recompute)
        };
        let (rows, mr, columns, nr) = micro(self.p, machine, s);
        for (stmt, w) in k.body.iter().zip(parts) {
            let (mut loaded, mut stored) = (0.0, 0.0);
            match stmt {
                Stmt::Load { dst, operand } => {
                    let place = self.p.schedule().place(*dst).alone();
                    if place != Place::InPlace {
                        if !gpu {
                            let elements = s.positions(&k.tiles[*dst as usize].axes);
                            loaded += elements * byte_size(k.operands[*operand as usize].dtype);
                        }
                        stored += if in_registers(*dst) { 0.0 } else { bytes(*dst) };
                    }
                }
                Stmt::Store { operand, src } => {
                    if self.p.schedule().place(*src) != Place::InPlace {
                        loaded += if in_registers(*src) { 0.0 } else { bytes(*src) };
                        if !gpu {
                            stored += s.positions(&k.tiles[*src as usize].axes)
                                * byte_size(k.operands[*operand as usize].dtype);
                        }
                    }
                }
                Stmt::Map { .. } if rows::expanded(self.p, stmt) => {}
                Stmt::Map { dst, args, .. } => {
                    loaded += args
                        .iter()
                        .filter(|&&t| !in_registers(t))
                        .map(|&t| bytes(t))
                        .sum::<f64>();
                    stored += if in_registers(*dst) { 0.0 } else { bytes(*dst) };
                }
                // A part that nobody carries is the source's own memory.
                Stmt::Relabel { along: None, .. } => {}
                Stmt::Relabel { dst, src, .. } => {
                    let n = s.times(k, stmt);
                    loaded += if in_registers(*src) {
                        0.0
                    } else {
                        n * size(*src)
                    };
                    stored += if in_registers(*dst) {
                        0.0
                    } else {
                        n * size(*dst)
                    };
                }
                Stmt::Fold { args, .. } => {
                    loaded += args
                        .iter()
                        .filter(|&&t| !in_registers(t))
                        .map(|&t| bytes(t))
                        .sum::<f64>();
                }
                Stmt::Contract { acc, a, b, over } => {
                    let times = s.times(k, stmt);
                    for f in [*a, *b] {
                        if in_registers(f) {
                            continue;
                        }
                        let free = |axes: &[AxisId]| -> f64 {
                            axes.iter()
                                .filter(|x| !k.tiles[f as usize].axes.contains(x))
                                .map(|&x| s.piece[x as usize])
                                .product()
                        };
                        let reuse = free(&rows).min(mr).max(1.0) * free(&columns).min(nr).max(1.0);
                        loaded += times / reuse * size(f);
                    }
                    if !in_registers(*acc) {
                        let pieces: f64 = over.iter().map(|&x| s.loop_pieces(x)).product();
                        loaded += bytes(*acc) * (pieces - 1.0).max(0.0);
                        stored += bytes(*acc) * pieces;
                    }
                }
            }
            w.add_traffic(level, loaded, stored);
        }
    }

    /// The statement that fetches each operand: the load where it copies, else the first that reads it.
    fn first_readers(&self) -> Vec<Option<usize>> {
        let k = self.p.kernel();
        let mut out = vec![None; k.operands.len()];
        for (at, stmt) in k.body.iter().enumerate() {
            let Stmt::Load { dst, operand } = stmt else {
                continue;
            };
            let reader = match self.p.schedule().place(*dst).alone() {
                Place::InPlace => k.body.iter().position(|s| s.reads().contains(dst)),
                _ => None,
            };
            out[*operand as usize] = reader.or(Some(at));
            for i in &k.operands[*operand as usize].access.indexed {
                out[i.by as usize] = Some(at);
            }
        }
        out
    }

    /// The statement that writes each operand: the store where it copies, else the last that makes the
    /// stored tile.
    fn writers(&self) -> Vec<Option<usize>> {
        let k = self.p.kernel();
        let mut out = vec![None; k.operands.len()];
        for (at, stmt) in k.body.iter().enumerate() {
            let Stmt::Store { operand, src } = stmt else {
                continue;
            };
            let writer = match self.p.schedule().place(*src) {
                Place::InPlace => k.body.iter().rposition(|s| s.writes().contains(src)),
                _ => None,
            };
            out[*operand as usize] = writer.or(Some(at));
        }
        out
    }

    /// Bytes that each statement reads and writes of tiles that are no operand's memory.
    fn scratch_traffic(&self) -> Vec<(f64, f64)> {
        let (k, s) = (self.p.kernel(), self.s);
        let own = |t: &&u16| self.p.schedule().place(**t).alone() != Place::InPlace;
        let bytes = |t: &u16| {
            let tile = &k.tiles[*t as usize];
            s.positions(&tile.axes) * byte_size(tile.dtype)
        };
        let sum = |list: &[u16]| list.iter().filter(own).map(bytes).sum::<f64>();
        let each = |stmt: &Stmt| match stmt {
            // Sums stay in registers and the factors have a count of their own.
            Stmt::Contract { .. } => (0.0, 0.0),
            Stmt::Map { .. } if rows::expanded(self.p, stmt) => (0.0, 0.0),
            Stmt::Map { args, dst, .. } if args.is_empty() => (0.0, sum(&[*dst])),
            Stmt::Fold { args, .. } => (sum(args), 0.0),
            s => (sum(&s.reads()), sum(&s.writes())),
        };
        k.body.iter().map(each).collect()
    }

    /// Bytes of each operand loaded through a level behind `capacity` bytes.
    ///
    /// `together` tasks of a GPU share the capacity for what each goes through several times.
    fn loaded(&self, capacity: f64, workers: f64, wave: f64, together: f64) -> Vec<f64> {
        let n = self.s.terms.len();
        let (nest, mut len) = self.nest(wave);
        let whole = &self.s.piece;
        let size = |o: usize| byte_size(self.p.kernel().operands[o].dtype);
        let own = |o: usize, len: &[f64], panels: bool| {
            if panels && !self.contracted[o] {
                self.s.distinct(o, whole)
            } else {
                self.s.distinct(o, len)
            }
        };
        let mut bytes: Vec<f64> = (0..n).map(|o| own(o, &len, true) * size(o)).collect();
        // Several statements over a tile that does not fit fetch it each; of what many tasks hold
        // together the part that fits stays.
        let held = self.working_set(&len, false) * together;
        if held > capacity {
            let missed = match together > 1.0 {
                true => (held / capacity.max(1.0) - 1.0).min(1.0),
                false => 1.0,
            };
            for (o, b) in bytes.iter_mut().enumerate() {
                if !self.contracted[o] && !self.copied(o) {
                    *b *= 1.0 + (self.readers[o].max(1.0) - 1.0) * missed;
                }
            }
        }
        let mut copies = vec![workers; n];
        for e in &nest {
            let panels = e.kind == Kind::Panel;
            let fits_inside = self.working_set(&len, panels) <= capacity;
            let gone = match e.kind {
                Kind::Loop => self.s.gone[e.axis],
                Kind::Panel | Kind::Grid => e.outer,
            };
            let passes = if e.inner > 0.0 { gone / e.inner } else { 0.0 };
            for (o, b) in bytes.iter_mut().enumerate() {
                if panels && !self.contracted[o] {
                    continue;
                }
                if self.s.depends[o][e.axis] {
                    *b *= passes;
                    if e.kind == Kind::Grid {
                        copies[o] = (copies[o] / passes.ceil()).max(1.0);
                    }
                } else if self.takes_part(o, e) {
                    if !fits_inside {
                        *b *= passes;
                    } else if e.kind == Kind::Grid && wave == 1.0 {
                        // Neighbouring tasks go to different workers, each with its own copy.
                        let f = copies[o].min(passes.ceil());
                        *b *= f;
                        copies[o] = (copies[o] / f).max(1.0);
                    }
                }
            }
            len[e.axis] = e.outer;
            if self.working_set(&len, panels) <= capacity {
                for (o, b) in bytes.iter_mut().enumerate() {
                    if e.kind != Kind::Grid || wave > 1.0 || self.s.depends[o][e.axis] {
                        *b = b.min(
                            own(o, &len, panels) * size(o) * self.held(o, &copies, workers, wave),
                        );
                    }
                }
            }
        }
        let whole = |o: usize| match self.read[o] {
            true => bytes[o].max(self.s.distinct(o, &self.s.extent) * size(o)),
            false => 0.0,
        };
        (0..n).map(whole).collect()
    }

    /// Bytes of each operand that a level gives workers which ask it for `loaded`: once for the CTAs of a cluster that copy
    /// together, but each worker takes all of them at its own rate.
    fn multicast(&self, mut loaded: Vec<f64>, level: &Level, active: usize) -> Vec<f64> {
        let (k, s) = (self.p.kernel(), self.p.schedule());
        if s.cluster() == 1 {
            return loaded;
        }
        let together = |o: usize| {
            let o = o as OperandId;
            let copied = |x: &Stmt| match x {
                Stmt::Load { dst, operand } => *operand == o && s.is_multicast(k, *dst, o),
                _ => false,
            };
            k.body.iter().any(copied)
        };
        let own = level.read.per_worker.value * active as f64;
        let taken = loaded.iter().sum::<f64>() * (level.read.at(active) / own).min(1.0);
        for (o, b) in loaded.iter_mut().enumerate() {
            if together(o) {
                *b /= f64::from(s.cluster());
            }
        }
        let given: f64 = loaded.iter().sum();
        if given > 0.0 && given < taken {
            loaded.iter_mut().for_each(|b| *b *= taken / given);
        }
        loaded
    }

    /// Whether a GPU's statements read their own copy of operand `o`, which one load made.
    fn copied(&self, o: usize) -> bool {
        let gpu = matches!(self.p.schedule().mapping, Mapping::Gpu(_));
        let place = |t: usize| self.p.schedule().place(t as u16).alone();
        gpu && self.tile[o].is_some_and(|t| place(t) != Place::InPlace)
    }

    /// Copies of an operand that private capacities hold by now.
    fn held(&self, o: usize, copies: &[f64], workers: f64, wave: f64) -> f64 {
        if wave > 1.0 {
            1.0
        } else {
            (workers / copies[o]).max(1.0)
        }
    }

    /// Whether the passes of `e` read operand `o` again though its addresses are the same.
    fn takes_part(&self, o: usize, e: &Entry) -> bool {
        match e.kind {
            Kind::Panel | Kind::Grid => true,
            Kind::Loop => self.run[o].contains(&(e.axis as AxisId)),
        }
    }

    /// Distinct bytes touched when every axis has `len` positions; `panels`: by a contraction only.
    fn working_set(&self, len: &[f64], panels: bool) -> f64 {
        let k = self.p.kernel();
        let mut sum = 0.0;
        for (o, operand) in k.operands.iter().enumerate() {
            if !panels || self.contracted[o] {
                sum += self.s.distinct(o, len) * byte_size(operand.dtype);
            }
        }
        for (t, tile) in k.tiles.iter().enumerate() {
            let place = self.p.schedule().place(t as u16);
            let nowhere = matches!(place, Place::InPlace | Place::Recompute | Place::Cluster);
            if nowhere || self.tile.contains(&Some(t)) {
                continue;
            }
            // Scratch tiles are used again by the next task.
            let elements: f64 = tile
                .axes
                .iter()
                .map(|&a| len[a as usize].min(self.s.piece[a as usize]))
                .product();
            sum += elements * byte_size(tile.dtype);
        }
        sum
    }

    /// The nest, innermost entry first, and the lengths it starts from.
    fn nest(&self, wave: f64) -> (Vec<Entry>, Vec<f64>) {
        let s = self.s;
        let schedule = self.p.schedule();
        let mut len = s.piece.clone();
        let mut nest = Vec::new();
        if let (true, Mapping::Cpu(c)) = (self.contracted.contains(&true), &schedule.mapping) {
            let m = c.micro.unwrap_or(crate::MicroKernel { mr: 1, nr: 1 });
            let mut rows = f64::from(m.mr.max(1));
            let mut cut = |axis: usize, inner: f64| {
                if inner < len[axis] {
                    nest.push(Entry {
                        axis,
                        inner,
                        outer: len[axis],
                        kind: Kind::Panel,
                    });
                    len[axis] = inner;
                }
            };
            for &a in c.rows.iter().rev() {
                let inner = rows.min(s.piece[a as usize]).max(1.0);
                rows = (rows / inner).max(1.0);
                cut(a as usize, inner);
            }
            if let Some(a) = c.lanes {
                cut(a as usize, f64::from(m.nr.max(1)));
            }
        }
        let loops: Vec<Entry> = schedule
            .loops
            .iter()
            .rev()
            .map(|t| t.axis as usize)
            .map(|axis| Entry {
                axis,
                inner: s.piece[axis],
                outer: s.extent[axis],
                kind: Kind::Loop,
            })
            .collect();
        let mut grid: Vec<Entry> = schedule
            .grid
            .iter()
            .rev()
            .map(|t| t.axis as usize)
            .map(|axis| Entry {
                axis,
                inner: s.piece[axis],
                outer: s.extent[axis],
                kind: Kind::Grid,
            })
            .collect();
        // Raster bands: a few tiles of the last axis but one inside the last one.
        if schedule.raster > 1 && grid.len() >= 2 {
            let e = grid[1];
            let band = (e.inner * schedule.raster as f64).min(e.outer);
            grid[1].inner = band;
            grid.insert(0, Entry { outer: band, ..e });
        }
        // One wave of concurrent tasks goes through the loops in step.
        let mut left = wave;
        let mut outer_grid = Vec::new();
        for e in grid {
            let passes = if e.inner > 0.0 {
                e.outer / e.inner
            } else {
                1.0
            };
            let together = left.min(passes).max(1.0);
            left = (left / together).max(1.0);
            let middle = e.inner * together;
            if together > 1.0 {
                nest.push(Entry { outer: middle, ..e });
            }
            if middle < e.outer {
                outer_grid.push(Entry { inner: middle, ..e });
                left = 1.0;
            }
        }
        nest.extend(loops);
        nest.extend(outer_grid);
        (nest, len)
    }
}
