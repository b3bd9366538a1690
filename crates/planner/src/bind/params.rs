//! Symbols and constraints of a block.
use super::block::BlockBuilder;
use layout::Sym;
use plan::{Constraint, StepWork, SymbolOrigin};
use std::collections::BTreeSet;

impl BlockBuilder<'_> {
    /// Constraints that say something about the block's symbols; symbols that come in with them
    /// are added to `used`. One that is known only later than the block runs stays out.
    pub(super) fn constraints(&self, used: &mut BTreeSet<Sym>) -> Vec<Constraint> {
        let given = |s: &Sym| {
            self.program
                .symbols
                .iter()
                .any(|x| x.name == *s && matches!(x.origin, SymbolOrigin::Input { .. }))
        };
        let mut taken = vec![false; self.program.constraints.len()];
        loop {
            let before = taken.iter().filter(|t| **t).count();
            for (c, t) in self.program.constraints.iter().zip(&mut taken) {
                let mut own = BTreeSet::new();
                c.left.symbols(&mut own);
                c.right.symbols(&mut own);
                let known = own
                    .iter()
                    .all(|s| used.contains(s) || (given(s) && self.ctx.dims.get(s).is_some()));
                let bounded = [&c.left, &c.right]
                    .iter()
                    .all(|d| self.ctx.dims.bounds(d).is_some());
                if !*t && known && bounded && own.iter().any(|s| used.contains(s)) {
                    *t = true;
                    used.extend(own);
                }
            }
            if taken.iter().filter(|t| **t).count() == before {
                break;
            }
        }
        let chosen = self.program.constraints.iter().zip(&taken);
        chosen.filter(|c| *c.1).map(|c| c.0.clone()).collect()
    }

    /// Symbols that the block's parameters use.
    pub(super) fn symbols(&self) -> BTreeSet<Sym> {
        let mut used = BTreeSet::new();
        for s in self.block.steps.iter().chain(&self.block.init) {
            s.tasks.symbols(&mut used);
            match &s.work {
                StepWork::Kernel { kernel, .. } => {
                    kernel.for_each_dim(&mut |d| d.symbols(&mut used))
                }
                StepWork::Host {
                    inputs, outputs, ..
                } => {
                    inputs
                        .iter()
                        .flatten()
                        .chain(outputs)
                        .flat_map(|a| &a.shape)
                        .for_each(|d| d.symbols(&mut used));
                }
            }
        }
        for p in self.block.inputs.iter().chain(&self.block.outputs) {
            p.shape.iter().for_each(|d| d.symbols(&mut used));
        }
        used
    }
}
