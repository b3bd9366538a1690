//! Symbols and constraints of a block, and its waits for tiles.
use super::block::BlockBuilder;
use super::waits::Bytes;
use kernel::Role;
use layout::Inserted;
use layout::{Dim, Sym, Symbols};
use plan::{BufferId, Constraint, StepWork, SymbolOrigin, TileMap, tile_map};
use std::collections::{BTreeMap, BTreeSet};

/// A wait for tiles must spare at least as much idle time as this many hand-offs.
const WORTH_WAITING: f64 = 8.0;

impl BlockBuilder<'_> {
    /// Which tasks of step `j` a task of step `i` needs, when the target can wait for them, the two
    /// share nothing but what `j` made and `i` reads, and workers would else stand idle at the end
    /// of `j` for long enough.
    pub(super) fn tiles(&self, j: usize, i: usize, shared: &Bytes) -> Option<TileMap> {
        let (a, b) = (&self.block.steps[j], &self.block.steps[i]);
        let ctx = self.ctxs[a.device as usize];
        if a.device != b.device || !ctx.target.tile_waits {
            return None;
        }
        let (tasks, workers) = (a.cost_work.tasks, ctx.workers as u64);
        if tasks < 2 || b.cost_work.tasks < 2 || workers < 2 {
            return None;
        }
        let slots = tasks.div_ceil(workers) * workers;
        let idle = a.predicted.time_s * (1.0 - tasks as f64 / slots as f64);
        // A CTA waits in a loop for one word either way, so that a tile's costs it nothing more.
        let free = ctx.target.gpu.is_some();
        if !free && idle < WORTH_WAITING * ctx.machine.costs.handoff_s.value {
            return None;
        }
        let (
            StepWork::Kernel {
                kernel: k, args: x, ..
            },
            StepWork::Kernel {
                kernel: l, args: y, ..
            },
        ) = (&a.work, &b.work)
        else {
            return None;
        };
        let (ta, tb) = (&self.touches[j], &self.touches[i]);
        let meets = |p: BufferId, q: BufferId| shared.meet(p, q);
        let clash = tb
            .writes
            .iter()
            .any(|&w| ta.reads.iter().chain(&ta.writes).any(|&t| meets(w, t)));
        let crossed = tb
            .reads
            .iter()
            .any(|&r| ta.writes.iter().any(|&w| w != r && meets(w, r)));
        if clash || crossed {
            return None;
        }
        let mut found: Option<TileMap> = None;
        for (w, o) in k.operands.iter().enumerate() {
            for (r, p) in l.operands.iter().enumerate() {
                if o.role != Role::Write || p.role != Role::Read || x[w] != y[r] {
                    continue;
                }
                let m = tile_map(a, w, b, r, self.ctx.dims)?;
                if found.as_ref().is_some_and(|f| *f != m) {
                    return None;
                }
                found = Some(m);
            }
        }
        found
    }

    /// Constraints that say something about the block's symbols; symbols that come in with them
    /// are added to `used`. One that is known only later than the block runs stays out.
    pub(super) fn constraints(&self, used: &mut BTreeSet<Sym>) -> Vec<Constraint> {
        let symbols = self.program.symbols.iter();
        let given = symbols.filter(|s| matches!(s.origin, SymbolOrigin::Input { .. }));
        let given: BTreeSet<&Sym> = given
            .map(|s| &s.name)
            .filter(|s| self.ctx.dims.get(s).is_some())
            .inserted();
        let of = |c: &Constraint| {
            let mut own = BTreeSet::new();
            c.left.symbols(&mut own);
            c.right.symbols(&mut own);
            own
        };
        let own: Vec<BTreeSet<Sym>> = self.program.constraints.iter().map(of).collect();
        let mut of_symbol: BTreeMap<&Sym, Vec<usize>> = BTreeMap::new();
        for (at, own) in own.iter().enumerate() {
            for s in own {
                of_symbol.entry(s).or_default().push(at);
            }
        }
        let mut taken = vec![false; own.len()];
        // Each symbol that comes in may bring in what speaks of it.
        let mut new: Vec<Sym> = used.iter().cloned().collect();
        while let Some(s) = new.pop() {
            for &at in of_symbol.get(&s).into_iter().flatten() {
                let c = &self.program.constraints[at];
                let known = |s: &Sym| used.contains(s) || given.contains(s);
                let bounded = |d: &&Dim| self.ctx.dims.bounds(d).is_some();
                if taken[at]
                    || !own[at].iter().all(known)
                    || ![&c.left, &c.right].iter().all(bounded)
                {
                    continue;
                }
                taken[at] = true;
                for s in &own[at] {
                    if used.insert(s.clone()) {
                        new.push(s.clone());
                    }
                }
            }
        }
        let chosen = self.program.constraints.iter().zip(&taken);
        chosen.filter(|c| *c.1).map(|c| c.0.clone()).collect()
    }

    /// Symbols that the block's parameters use.
    pub(super) fn symbols(&self) -> BTreeSet<Sym> {
        let mut used = Symbols::default();
        for s in self.block.steps.iter().chain(&self.block.init) {
            used.add(&s.tasks);
            match &s.work {
                StepWork::Kernel { kernel, .. } => kernel.for_each_dim(&mut |d| used.add(d)),
                StepWork::Host {
                    inputs, outputs, ..
                } => {
                    inputs
                        .iter()
                        .flatten()
                        .chain(outputs)
                        .flat_map(|a| &a.shape)
                        .for_each(|d| used.add(d));
                }
            }
        }
        for p in self.block.inputs.iter().chain(&self.block.outputs) {
            p.shape.iter().for_each(|d| used.add(d));
        }
        used.used()
    }
}
