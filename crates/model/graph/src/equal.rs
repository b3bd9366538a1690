//! Input symbols that the graph takes to be equal to something else.
use crate::{Graph, Op, SymbolSource, ValueId};
use layout::{Dim, Sym};
use std::collections::{BTreeMap, BTreeSet};

impl Graph {
    /// Pairs (symbol of an input, extent) that element-wise nodes and joins take to be equal: a
    /// mask's own `total_length` that is added to scores of extent `past + length`, say. The extent
    /// uses input symbols only, not the symbol itself. Substituting them lets equal extents be seen
    /// as equal.
    pub fn symbol_equalities(&self) -> Vec<(Sym, Dim)> {
        let mut found = Substitutions::default();
        let inputs = self
            .symbols
            .iter()
            .filter(|s| matches!(s.source, SymbolSource::Input { .. }))
            .map(|s| &s.name);
        let mut places: BTreeMap<&Sym, usize> = BTreeMap::new();
        for (at, s) in inputs.enumerate() {
            places.entry(s).or_insert(at);
        }
        let place = |s: &Sym| places.get(s).copied();
        let mut pair = |a: &Dim, b: &Dim| {
            if a.is_one() || b.is_one() {
                return;
            }
            // By what was found before, so that no two symbols stand for each other.
            let (a, b) = (found.replaced(a), found.replaced(b));
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
                found.add(name, e.clone());
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
        found.list()
    }
}

/// Symbols with what stands for them, none of which speaks of another of them.
#[derive(Default)]
struct Substitutions {
    order: Vec<Sym>,
    by: BTreeMap<Sym, Dim>,
    /// For every symbol those that are replaced by something which speaks of it.
    users: BTreeMap<Sym, BTreeSet<Sym>>,
}

impl Substitutions {
    fn replaced(&self, d: &Dim) -> Dim {
        match self.by.is_empty() {
            true => d.clone(),
            false => d.substitute(&|s| self.by.get(s).cloned()),
        }
    }

    fn set(&mut self, name: Sym, by: Dim) {
        let mut used = BTreeSet::new();
        by.symbols(&mut used);
        for s in used {
            self.users.entry(s).or_default().insert(name.clone());
        }
        self.by.insert(name, by);
    }

    fn add(&mut self, name: Sym, by: Dim) {
        for user in self.users.remove(&name).unwrap_or_default() {
            if let Some(known) = self.by.get(&user) {
                let now = known.substitute(&|s| (*s == *name).then(|| by.clone()));
                self.set(user, now);
            }
        }
        self.order.push(name.clone());
        self.set(name, by);
    }

    fn list(self) -> Vec<(Sym, Dim)> {
        let Substitutions { order, mut by, .. } = self;
        let each = order.into_iter();
        each.filter_map(|s| by.remove(&s).map(|d| (s, d))).collect()
    }
}
