//! Copies of operands' pieces into shared memory, all at once or in a ring of stages that runs ahead of the
//! loop that reads it.
use super::state::{At, Axis, Cut, Lower, Result, SharedTile, TileStorage};
use super::walk::Guard;
use crate::simt::dependents::touches;
use crate::simt::ir::{Inst, Reg, Tensor, Ty, Warpgroup};
use expr::{Binary, Compare};
use kernel::{AxisTile, Node, OperandId, Seen, Stmt, TileId};
use layout::{DType, Inserted};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Loads of a copy to shared memory that are written out before the first is stored.
const AHEAD: i64 = 8;
/// Threads of a warp.
const WARP: u32 = 32;
/// Copies beside what follows that are written out, whose places are then computed before any loop.
const MAX_COPIES: i64 = 64;

/// A loop of a tile program: its axis with the piece, and the positions that matter.
pub(super) type Looped<'n> = (AxisTile, &'n Seen);

/// A copy of an operand's piece into a tile in shared memory.
struct Staging {
    dst: TileId,
    operand: OperandId,
    home: Rc<SharedTile>,
    /// Elements of one access.
    wide: i64,
    /// Elements that all threads copy in a round.
    step: i64,
    /// First element of the stage that is filled.
    first: Reg,
    /// Whether the thread goes on meanwhile.
    beside: bool,
}

/// What one thread copies in one go.
struct Piece {
    at: At,
    /// Whether it exists along axes that the operand does not depend on, and lies in the tile, where that is
    /// not certain.
    apart: Option<Reg>,
    within: Option<Reg>,
}

impl Lower<'_> {
    /// Loads `operand` into a tile with memory of its own.
    pub fn load_tile(&mut self, dst: TileId, operand: OperandId) -> Result<()> {
        let TileStorage::Shared(home) = &*self.homes[dst as usize].clone() else {
            let axes = self.kernel.tiles[dst as usize].axes.clone();
            let unrolled = self.unrolled(&[dst]);
            return self.walk(
                &axes,
                &unrolled,
                Guard::Skip,
                self.origin(),
                &mut |l, at| {
                    let v = l.load(operand, at)?;
                    l.put(dst, at, v)
                },
            );
        };
        let zero = self.b.int(0);
        if self.copy(dst, operand, home, zero)? {
            self.b.push(Inst::Commit);
            self.copying = true;
        }
        self.b.forget_shared();
        Ok(())
    }

    /// Copies the current piece of `operand`, which lies as the tile does by the rules of schedules, to where `first` is the
    /// first element.
    pub(super) fn copy_at_once(
        &mut self,
        dst: TileId,
        operand: OperandId,
        home: &SharedTile,
        first: Reg,
    ) -> Result<()> {
        let at = self.origin();
        let p = self.place(operand, &at)?;
        self.b.push(Inst::Bulk {
            array: home.array,
            to: first,
            operand,
            index: p.index,
            elements: u32::try_from(home.elements).unwrap_or(0),
            among: self.among(dst, operand),
        });
        Ok(())
    }

    /// CTAs of the cluster that copy pieces of a tile together.
    fn among(&self, dst: TileId, operand: OperandId) -> u32 {
        match self.schedule.is_multicast(self.kernel, dst, operand) {
            true => self.schedule.among(),
            false => 1,
        }
    }

    /// Copies the current piece of `operand`, which is a box of it as a tensor by the rules of schedules, or several beside
    /// each other, to where `first` is the first element.
    pub(super) fn copy_boxes(
        &mut self,
        dst: TileId,
        operand: OperandId,
        home: &SharedTile,
        first: Reg,
    ) -> Result<()> {
        let source = &self.kernel.operands[operand as usize];
        let (axes, bits) = (&self.kernel.axes, source.dtype.bits());
        let found = source.access.tensor(axes, &home.axes, home.line, bits);
        let Some(view) = found.filter(|_| self.caps.warpgroups) else {
            return self.fail(
                "tensor copies",
                format!("pieces of operand '{}' are no boxes of it", source.name),
            );
        };
        for d in &view.dims {
            for n in [&d.extent, &d.stride] {
                self.b.know(n);
            }
        }
        self.b.know(&view.offset);
        let at = self.origin();
        let panels = home.panels();
        for panel in 0..panels {
            let mut corner = vec![];
            for d in &view.dims {
                let mut own = self.b.dim(&d.base, Ty::I32);
                for &(a, by) in &d.terms {
                    let by = self.b.int(by);
                    let more = self.b.mul(at.coord[a as usize], by);
                    own = self.b.add(own, more);
                }
                if corner.is_empty() {
                    let beside = self.b.int(panel * home.line);
                    own = self.b.add(own, beside);
                }
                corner.push(own);
            }
            let behind = self.b.int(panel * home.elements / panels);
            let to = self.b.add(first, behind);
            self.b.push(Inst::Box {
                array: home.array,
                to,
                operand,
                tensor: self.tensors.len() as u32,
                at: corner,
            });
        }
        self.tensors.push(Tensor {
            operand,
            view,
            swizzle: home.swizzle,
            among: self.among(dst, operand),
        });
        Ok(())
    }

    /// Elements that a thread copies at once.
    fn width(&self, dst: TileId, operand: OperandId, home: &SharedTile) -> Result<i64> {
        let source = &self.kernel.operands[operand as usize];
        let bits = source.dtype.bits();
        let same = self.shared[home.array as usize].dtype == source.dtype;
        let (Some(&(last, tile)), true) = (home.axes.last(), bits >= 8 || same) else {
            return Ok(1);
        };
        let most = (self.map.load_bytes * 8 / bits).max(1);
        let extent = &self.kernel.axes[last as usize].extent;
        let found = source.access.run(last, extent, tile, most);
        // What a factor is made of beside its numbers is little.
        let read = self.kernel.made_of_part(dst);
        let factor =
            |s: &Stmt| matches!(s, Stmt::Contract { a, b, .. } if *a == read || *b == read);
        let factor = self.kernel.body.iter().any(factor);
        if !self.groups.is_empty() && found < most && factor {
            return self.fail(
                "load bytes",
                format!(
                    "operand '{}' can be loaded {} bytes at a time along axis '{}', not {}",
                    source.name,
                    found * bits / 8,
                    self.kernel.axes[last as usize].name,
                    self.map.load_bytes
                ),
            );
        }
        let keeps = home.swizzle.bits == 0 || 1 << home.swizzle.base >= most;
        Ok(if keeps { found.into() } else { 1 })
    }

    /// Copies the current piece of `operand` to where `first` is the first element; gives whether that goes on
    /// beside what follows.
    pub(super) fn copy(
        &mut self,
        dst: TileId,
        operand: OperandId,
        home: &Rc<SharedTile>,
        first: Reg,
    ) -> Result<bool> {
        // All threads share in the copy, neighbours along the last axis.
        let wide = self.width(dst, operand, home)?;
        let source = &self.kernel.operands[operand as usize];
        let bytes = i64::from(source.dtype.bits()) * wide / 8;
        let same = self.shared[home.array as usize].dtype == source.dtype;
        let fills = source.access.outside == 0.0 && same && matches!(bytes, 4 | 8 | 16);
        // Where some copies go on beside what follows, all do: one wait is for all of them.
        let ahead = self.ahead;
        let (thread, threads) = match self.copier {
            Some(lane) => (lane, WARP),
            None => (self.thread, self.map.threads),
        };
        let c = Staging {
            dst,
            operand,
            home: home.clone(),
            wide,
            step: i64::from(threads) * wide,
            first,
            beside: self.caps.copies && fills && ahead,
        };
        let rounds = (home.elements + c.step - 1) / c.step;
        let wide = self.b.int(wide);
        let own = self.b.mul(thread, wide);
        let alone = self.copier.is_some();
        if alone && self.copy_in_lines(&c, own, rounds)? {
            return Ok(true);
        }
        if alone && rounds > AHEAD && home.elements % c.step == 0 {
            self.copy_in_rounds(&c, own, rounds)?;
        } else if rounds <= AHEAD || ahead && rounds <= MAX_COPIES {
            let mut offsets = vec![];
            for r in 0..rounds {
                let by = self.b.int(r * c.step);
                offsets.push(self.b.add(own, by));
            }
            for some in offsets.chunks(AHEAD as usize) {
                self.copy_at(&c, some)?;
            }
        } else {
            let (to, by) = (self.b.int(home.elements), self.b.int(c.step));
            let i = self.b.open_loop();
            self.copy_at(&c, &[i])?;
            self.b.close_loop(i, (own, to, by));
        }
        Ok(c.beside)
    }

    /// As many rounds in a turn of a loop as are written out: a warp that copies by itself has few registers for places
    /// and goes round while others compute.
    fn copy_in_rounds(&mut self, c: &Staging, own: Reg, rounds: i64) -> Result<()> {
        let each = (1..=AHEAD).rev().find(|n| rounds % n == 0).unwrap_or(1);
        let [from, to, by] = [0, rounds * c.step, each * c.step].map(|n| self.b.int(n));
        let i = self.b.open_loop();
        let first = self.b.add(own, i);
        let mut offsets = vec![];
        for r in 0..each {
            let more = self.b.int(r * c.step);
            offsets.push(self.b.add(first, more));
        }
        self.copy_at(c, &offsets)?;
        self.b.close_loop(i, (from, to, by));
        Ok(())
    }

    /// The same where rounds are whole lines of one axis: all that changes from one to the next is a number that is
    /// known. Gives whether it is so.
    fn copy_in_lines(&mut self, c: &Staging, own: Reg, rounds: i64) -> Result<bool> {
        let sizes = c.home.sizes();
        let Some((&inner, outer)) = sizes.split_last() else {
            return Ok(false);
        };
        let lines: Vec<usize> = (0..outer.len()).filter(|&i| outer[i] > 1).collect();
        let whole = c.step % inner == 0 && c.home.elements % c.step == 0 && c.home.panels() == 1;
        let (&[axis], true, true) = (&lines[..], whole, c.beside) else {
            return Ok(false);
        };
        // The swizzle goes by the number of the line, which it takes modulo a period.
        let s = c.home.swizzle;
        let period = 1i64 << (s.base + s.shift + s.bits);
        let first = self.parts(own, &sizes);
        for r in 0..rounds {
            let mut parts = first.clone();
            let by = self.b.int(r * c.step / inner);
            parts[axis] = self.b.add(first[axis], by);
            let piece = self.piece_of(c, &parts);
            let (low, high) = (r * c.step % period, r * c.step / period * period);
            let [low, high] = [low, high].map(|n| self.b.int(n));
            let low = self.b.add(own, low);
            let to = self.swizzled(low, s);
            let to = self.b.add(to, c.first);
            let to = self.b.add(to, high);
            self.copy_beside(c, to, &piece)?;
        }
        Ok(true)
    }

    /// The piece that begins at element `offset` of the tile.
    fn piece(&mut self, c: &Staging, offset: Reg) -> Piece {
        let mut parts = self.parts(offset, &c.home.sizes());
        if c.home.panels() > 1 {
            // The panel's number goes before the place in its line.
            let panel = parts.remove(0);
            let line = self.b.int(c.home.line);
            let first = self.b.mul(panel, line);
            if let Some(within) = parts.last_mut() {
                *within = self.b.add(first, *within);
            }
        }
        let mut piece = self.piece_of(c, &parts);
        // The last round may go beyond the tile.
        let over = c.home.elements % c.step != 0;
        let end = self.b.int(c.home.elements);
        piece.within = over.then(|| self.b.compare(Compare::Lt, offset, end));
        if let (Some(w), Some(&(a, _))) = (piece.within, c.home.axes.first()) {
            let v = &mut piece.at.valid[a as usize];
            *v = self.b.both(*v, Some(w));
        }
        piece
    }

    /// The piece that begins at these positions of the tile's axes.
    fn piece_of(&mut self, c: &Staging, parts: &[Reg]) -> Piece {
        let mut at = self.origin();
        let mut apart = None;
        for (&(a, _), &p) in c.home.axes.iter().zip(parts).rev() {
            let i = a as usize;
            let axis = self.axes[i].clone();
            at.coord[i] = self.b.add(axis.base, p);
            if !axis.full {
                let fine = self.b.compare(Compare::Lt, p, axis.len);
                at.valid[i] = Some(fine);
                // The operand's own place says the others.
                if !self.depends[c.operand as usize].contains(&a) {
                    apart = self.b.both(apart, Some(fine));
                }
            }
        }
        Piece {
            at,
            apart,
            within: None,
        }
    }

    /// Copies what is at `offsets` of the shared tile: all loads stand before the first store.
    fn copy_at(&mut self, c: &Staging, offsets: &[Reg]) -> Result<()> {
        let mut loaded = vec![];
        for &offset in offsets {
            let piece = self.piece(c, offset);
            if c.beside {
                let to = self.swizzled(offset, c.home.swizzle);
                let to = self.b.add(to, c.first);
                self.copy_beside(c, to, &piece)?;
                continue;
            }
            let values = match c.wide {
                1 => vec![self.load(c.operand, &piece.at)?],
                _ => self.load_wide(c, &piece)?,
            };
            loaded.push((offset, piece.within, values));
        }
        for (offset, within, values) in loaded {
            let index = self.swizzled(offset, c.home.swizzle);
            let index = self.b.add(index, c.first);
            self.guarded(within, |l| {
                l.b.push(Inst::StoreShared {
                    array: c.home.array,
                    index,
                    values,
                });
                Ok(())
            })?;
        }
        Ok(())
    }

    fn copy_beside(&mut self, c: &Staging, to: Reg, piece: &Piece) -> Result<()> {
        let p = self.place(c.operand, &piece.at)?;
        let guard = self.guard(&p);
        let guard = self.b.both(guard, piece.apart);
        self.guarded(piece.within, |l| {
            l.b.push(Inst::Copy {
                array: c.home.array,
                to,
                operand: c.operand,
                index: p.index,
                elements: c.wide as u32,
                guard: guard.filter(|&g| l.b.number(g) != Some(1)),
            });
            Ok(())
        })
    }

    fn load_wide(&mut self, c: &Staging, piece: &Piece) -> Result<Vec<Reg>> {
        let p = self.place(c.operand, &piece.at)?;
        let guard = self.b.both(p.exists, p.inside);
        let guard = self.b.both(guard, piece.apart);
        let guard = self.b.both(guard, piece.within);
        let ty = self.ty(c.dst);
        let dst: Vec<Reg> = (0..c.wide).map(|_| self.b.fresh(ty)).collect();
        self.b.push(Inst::LoadRun {
            dst: dst.clone(),
            operand: c.operand,
            index: p.index,
            guard: guard.filter(|&g| self.b.number(g) != Some(1)),
        });
        let source = &self.kernel.operands[c.operand as usize];
        let (dtype, outside): (DType, f64) = (source.dtype, source.access.outside);
        // A run is inside or outside as a whole.
        Ok(match p.inside.filter(|_| outside != 0.0) {
            Some(inside) => {
                let other = self.literal(outside, dtype);
                let one = |&r: &Reg| self.b.select(inside, r, other);
                dst.iter().map(one).collect()
            }
            None => dst,
        })
    }

    /// The loops of a perfect nest and its statements, where copies into shared memory are made in it that run
    /// ahead.
    pub fn nest<'n>(&self, node: &'n Node) -> Option<(Vec<Looped<'n>>, Vec<&'n Stmt>)> {
        let mut cuts = vec![];
        let mut at = node;
        let body = loop {
            let Node::Loop { axis, seen, body } = at else {
                return None;
            };
            cuts.push((*axis, seen));
            match body.as_slice() {
                [one @ Node::Loop { .. }] => at = one,
                b => break b,
            }
        };
        let stmts: Option<Vec<&Stmt>> = body
            .iter()
            .map(|n| match n {
                Node::Stmt(s) => Some(s),
                Node::Loop { .. } => None,
            })
            .collect();
        let stmts = stmts?;
        let mut copies = stmts.iter().filter_map(|s| self.copied(s));
        let runs_ahead = copies.any(|c| c.2.stages > 1 || !self.groups.is_empty());
        runs_ahead.then_some((cuts, stmts))
    }

    /// The shared tile that `s` copies an operand to.
    pub(super) fn copied(&self, s: &Stmt) -> Option<(TileId, OperandId, Rc<SharedTile>)> {
        let Stmt::Load { dst, operand } = s else {
            return None;
        };
        match &*self.homes[*dst as usize] {
            TileStorage::Shared(home) => Some((*dst, *operand, home.clone())),
            _ => None,
        }
    }

    /// Loops around statements as one: copies into shared memory run `stages - 1` pieces ahead.
    pub fn ring(&mut self, loops: &[Looped], stmts: &[&Stmt]) -> Result<()> {
        let copies: Vec<_> = stmts.iter().filter_map(|s| self.copied(s)).collect();
        let stages = copies.first().map_or(1, |c| c.2.stages);
        self.at = "a loop".into();
        if copies.iter().any(|c| c.2.stages != stages) {
            return self.fail(
                "one pipeline depth",
                "tiles staged in one loop have different numbers of stages; use one",
            );
        }
        if !(1..=16).contains(&stages) {
            return self.fail("stages", format!("{stages} stages; 1 to 16 can be printed"));
        }
        // What was done to these arrays before must have come to its end.
        let arrays: BTreeSet<u32> = copies.iter().map(|c| c.2.array).inserted();
        if arrays
            .iter()
            .any(|a| self.read.contains(a) || self.written.contains(a))
        {
            self.barrier();
        }
        let pending = (self.written.clone(), self.read.clone(), self.copying);
        let before = self.axes.clone();
        let cuts: Vec<Cut> = loops.iter().map(|(c, seen)| self.cut(c, seen)).collect();
        let one = self.b.int(1);
        let total = cuts.iter().fold(one, |n, c| self.b.mul(n, c.count));
        if let Some(contract) = self.multiplies_parts(stmts) {
            self.ring_in_parts(&copies, (&cuts, total), contract)?;
            return self.left_ring(arrays, before, pending, total);
        }
        // Products under way read the stage before the one that is read, too.
        let behind = u32::from(stages > 2 && self.products_alone(stmts));
        let pieces = stages - 1 - behind;
        let (zero, ahead) = (self.b.int(0), self.b.int(pieces.into()));
        if stages > 1 {
            self.copy_first(&copies, (&cuts, total), ahead)?;
        }
        let i = self.b.open_loop();
        self.b.forget_shared();
        if stages > 1 {
            self.wait(pieces - 1);
            // Also: everybody has read the stage that is filled next.
            self.meet();
        }
        let next = self.b.add(i, ahead);
        let into = self.remainder(next, stages.into());
        self.copy_piece(&copies, (&cuts, total), next, into)?;
        self.commit();
        if stages == 1 {
            self.wait(0);
            self.meet();
        }
        self.enter_piece(&cuts, i);
        let stage = self.remainder(i, stages.into());
        let outer = self.stage.replace(stage);
        self.products_ahead = behind > 0;
        for s in stmts {
            if self.copied(s).is_none() {
                self.stmt(s)?;
            }
        }
        self.stage = outer;
        self.products_ahead = false;
        if stages == 1 {
            self.meet();
        }
        self.b.forget_shared();
        self.b.close_loop(i, (zero, total, one));
        if behind > 0 {
            self.b.push(Inst::Warpgroup(Warpgroup::Wait(0)));
        }
        self.left_ring(arrays, before, pending, total)
    }

    /// Behind a ring of so many pieces: what was done to shared memory in it, and before.
    fn left_ring(
        &mut self,
        arrays: BTreeSet<u32>,
        before: Vec<Axis>,
        pending: (BTreeSet<u32>, BTreeSet<u32>, bool),
        total: Reg,
    ) -> Result<()> {
        self.read.extend(arrays);
        self.axes = before;
        // A loop without a turn has waited for nothing.
        if self.b.number(total).is_none_or(|n| n < 1) {
            self.written.extend(pending.0);
            self.read.extend(pending.1);
            self.copying |= pending.2;
        }
        Ok(())
    }

    /// Whether all that the loop does besides copies is one contraction, by instructions of warpgroups.
    pub(super) fn products_alone(&self, stmts: &[&Stmt]) -> bool {
        let formula = |s: &Stmt| {
            let mut made = s.writes().into_iter();
            made.all(|t| matches!(*self.homes[t as usize], TileStorage::Formula(_)))
        };
        let mut rest = stmts
            .iter()
            .filter(|s| self.copied(s).is_none() && !formula(s));
        self.warpgroups()
            && matches!(
                (rest.next(), rest.next()),
                (Some(Stmt::Contract { .. }), None)
            )
    }

    /// All threads meet; nothing that was done to shared memory is left to wait for.
    pub(super) fn meet(&mut self) {
        self.copying = false;
        self.barrier();
    }

    /// Copies the first pieces of all, so many as are `ahead` of the one that is read: those of constants before all
    /// others where nothing else was touched before, so that they come before the wait for the kernels before. They are in
    /// the first piece's group then.
    pub(super) fn copy_first(
        &mut self,
        copies: &[(TileId, OperandId, Rc<SharedTile>)],
        (cuts, total): (&[Cut], Reg),
        ahead: Reg,
    ) -> Result<()> {
        let constant = |c: &&(TileId, OperandId, Rc<SharedTile>)| self.is_constant(c.1);
        let (mut before, mut behind): (Vec<_>, Vec<_>) =
            copies.iter().cloned().partition(|c| constant(&c));
        let first = |l: &Self| !l.b.in_loop() && !l.b.has(|i| touches(i, &l.buffers));
        if before.is_empty() || behind.is_empty() || !self.caps.dependents || !first(self) {
            (before, behind) = (vec![], copies.to_vec());
        }
        let [zero, one] = [0, 1].map(|n| self.b.int(n));
        for (list, grouped) in [(before, false), (behind, true)] {
            if list.is_empty() {
                continue;
            }
            let i = self.b.open_loop();
            self.copy_piece(&list, (cuts, total), i, i)?;
            if grouped {
                self.commit();
            }
            self.b.close_loop(i, (zero, ahead, one));
        }
        Ok(())
    }

    /// Whether nothing writes an operand while requests run.
    pub(super) fn is_constant(&self, o: OperandId) -> bool {
        let own = self.buffers.get(usize::from(o));
        own.is_some_and(|b| b.constant)
    }

    /// The copies since the last group are one, where there were none too, so that groups count pieces.
    pub(super) fn commit(&mut self) {
        if self.caps.copies {
            self.b.push(Inst::Commit);
        }
    }

    /// Copies piece `n` of all pieces to `stage`, unless there is none.
    pub(super) fn copy_piece(
        &mut self,
        copies: &[(TileId, OperandId, Rc<SharedTile>)],
        (cuts, total): (&[Cut], Reg),
        n: Reg,
        stage: Reg,
    ) -> Result<()> {
        let there = self.b.compare(Compare::Lt, n, total);
        self.guarded(Some(there), |l| {
            l.enter_piece(cuts, n);
            for (dst, operand, home) in copies {
                l.at = l.describe(&Stmt::Load {
                    dst: *dst,
                    operand: *operand,
                });
                let each = l.b.int(home.elements);
                let first = match home.stages {
                    1 => l.b.int(0),
                    _ => l.b.mul(stage, each),
                };
                l.copy(*dst, *operand, home, first)?;
            }
            Ok(())
        })
    }

    /// Waits until so many groups of copies are under way at most.
    pub(super) fn wait(&mut self, left: u32) {
        if self.caps.copies {
            self.b.push(Inst::Wait(left));
        }
    }

    /// Makes piece `n` of the loops' pieces current, the innermost axis' changing first.
    pub(super) fn enter_piece(&mut self, cuts: &[Cut], n: Reg) {
        let mut rest = n;
        for (i, c) in cuts.iter().enumerate().rev() {
            let known = self.b.number(c.count).filter(|n| *n > 0);
            let own = match (i, known) {
                (0, _) => rest,
                (_, Some(k)) => self.remainder(rest, k),
                _ => self.b.rem(rest, c.count),
            };
            if i > 0 {
                rest = match known {
                    Some(k) => self.quotient(rest, k),
                    None => self.b.div(rest, c.count),
                };
            }
            let tile = self.axes[c.tile.axis as usize].bound.unwrap_or(c.tile.tile);
            let tile = self.b.int(tile);
            let piece = self.b.add(c.first, own);
            let base = self.b.binary(Binary::Mul, piece, tile);
            self.enter(&c.tile, base);
        }
    }
}
