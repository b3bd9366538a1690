//! Input symbols that the graph takes to be equal to something else.
use crate::{Graph, Op, SymbolSource, ValueId};
use layout::{Dim, Sym};
use std::collections::BTreeSet;

impl Graph {
    /// Pairs (symbol of an input, extent) that element-wise nodes and joins take to be equal: a
    /// mask's own `total_length` that is added to scores of extent `past + length`, say. The extent
    /// uses input symbols only, not the symbol itself. Substituting them lets equal extents be seen
    /// as equal.
    pub fn symbol_equalities(&self) -> Vec<(Sym, Dim)> {
        let mut found: Vec<(Sym, Dim)> = Vec::new();
        let inputs: Vec<&Sym> = self
            .symbols
            .iter()
            .filter(|s| matches!(s.source, SymbolSource::Input { .. }))
            .map(|s| &s.name)
            .collect();
        let place = |s: &Sym| inputs.iter().position(|i| *i == s);
        let mut pair = |a: &Dim, b: &Dim| {
            if a.is_one() || b.is_one() {
                return;
            }
            let replaced = |d: &Dim, by: &[(Sym, Dim)]| {
                d.substitute(&|s| by.iter().find(|(f, _)| **f == *s).map(|(_, e)| e.clone()))
            };
            // By what was found before, so that no two symbols stand for each other.
            let (a, b) = (replaced(a, &found), replaced(b, &found));
            for (s, e) in [(&b, &a), (&a, &b)] {
                let Some(name) = s.as_sym() else { continue };
                let name: Sym = name.into();
                let Some(at) = place(&name) else { continue };
                let mut used = BTreeSet::new();
                e.symbols(&mut used);
                // Of two symbols the one declared first stays.
                let lone_later = e
                    .as_sym()
                    .is_some_and(|o| place(&o.into()).is_some_and(|p| p > at));
                if e.known().is_some()
                    || used.contains(&name)
                    || lone_later
                    || used.iter().any(|u| place(u).is_none())
                {
                    continue;
                }
                let this = [(name.clone(), e.clone())];
                for (_, known) in &mut found {
                    *known = replaced(known, &this);
                }
                found.extend(this);
                return;
            }
        };
        let shape = |v: &ValueId| &self.value(*v).shape;
        for node in &self.nodes {
            let Some(out) = node.outputs.first() else {
                continue;
            };
            let out = shape(out);
            match &node.op {
                Op::Map(_) => {
                    for v in &node.inputs {
                        let s = shape(v);
                        let missing = out.len().saturating_sub(s.len());
                        s.iter().zip(&out[missing..]).for_each(|(a, b)| pair(a, b));
                    }
                }
                Op::Kernel(k) => k.equal.iter().for_each(|(a, b)| pair(a, b)),
                Op::Concat { axis } => {
                    for v in &node.inputs {
                        for (d, (a, b)) in shape(v).iter().zip(out).enumerate() {
                            if d != *axis {
                                pair(a, b);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }
}
