//! Which sizes the nodes of a graph use, and which node determines each size that only data gives.
use crate::{Graph, Op, SymbolSource, ValueId, View};
use expr::{Expr, Inst};
use layout::Inserted;
use layout::{Dim, Sym};
use std::collections::{BTreeMap, BTreeSet};

impl Op {
    /// Calls `f` with every size in the attributes and programs of the op, those of bodies included.
    pub fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        fn all(dims: &[Dim], f: &mut dyn FnMut(&Dim)) {
            dims.iter().for_each(f);
        }
        fn program(e: &Expr, f: &mut dyn FnMut(&Dim)) {
            for i in &e.insts {
                if let Inst::Dim(d) = i {
                    f(d);
                }
            }
        }
        fn body(g: &Graph, f: &mut dyn FnMut(&Dim)) {
            for v in &g.values {
                all(&v.shape, f);
                v.ints.iter().for_each(|i| all(i, f));
            }
            g.nodes.iter().for_each(|n| n.op.for_each_dim(f));
        }
        match self {
            Op::Map(e) => program(e, f),
            Op::View(View::Reshape(s) | View::Expand(s)) => all(s, f),
            Op::View(View::Slice {
                starts, extents, ..
            }) => [starts, extents].into_iter().for_each(|d| all(d, f)),
            Op::Pad { before, after, .. } => [before, after].into_iter().for_each(|d| all(d, f)),
            Op::Conv(c) => [&c.before, &c.after].into_iter().for_each(|d| all(d, f)),
            Op::Pool(c) => [&c.before, &c.after].into_iter().for_each(|d| all(d, f)),
            Op::Reduce { monoid, .. } | Op::Scan { monoid, .. } => {
                let m = monoid;
                let parts = [&m.identity, &m.lift, &m.combine, &m.finish];
                parts.into_iter().for_each(|e| program(e, f));
            }
            Op::Attention(a) => program(&a.score, f),
            Op::Sort { k, .. } => f(k),
            Op::Kernel(k) => k.symbols.iter().for_each(|s| f(&Dim::sym(s))),
            Op::If {
                then_branch,
                else_branch,
            } => [then_branch, else_branch]
                .into_iter()
                .for_each(|g| body(g, f)),
            Op::Loop { body: g, .. } => body(g, f),
            Op::View(View::Permute(_))
            | Op::Concat { .. }
            | Op::Gather { .. }
            | Op::ScatterNd(_)
            | Op::Contract(_)
            | Op::Recurrent(_)
            | Op::Resample(_)
            | Op::Host { .. } => {}
        }
    }
}

impl Graph {
    /// For every node the values whose sizes it works with though only data gives them: it comes after
    /// them, also where nothing leads from one to the other.
    pub fn sizes_from(&self) -> Vec<Vec<ValueId>> {
        let mut out = vec![Vec::new(); self.nodes.len()];
        let late = self.symbols.iter().filter_map(|s| match s.source {
            SymbolSource::Late { value, .. } => Some((&s.name, value)),
            SymbolSource::Input { .. } => None,
        });
        let late: BTreeMap<&Sym, ValueId> = late.inserted();
        if late.is_empty() {
            return out;
        }
        for (node, out) in self.nodes.iter().zip(&mut out) {
            let mut used = BTreeSet::new();
            node.op.for_each_dim(&mut |d| d.symbols(&mut used));
            for &v in node.inputs.iter().chain(&node.outputs) {
                self.value(v)
                    .shape
                    .iter()
                    .for_each(|d| d.symbols(&mut used));
            }
            let values: BTreeSet<ValueId> =
                used.iter().filter_map(|s| late.get(s)).copied().inserted();
            out.extend(values.into_iter().filter(|v| !node.outputs.contains(v)));
        }
        out
    }
}
