//! Sharing of equal dimension expressions, and maps keyed by their address: programs name few sizes many times.
use crate::{Dim, Sym};
use foldhash::{HashMap, HashSet};
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Expressions that were met, each once.
#[derive(Clone, Debug, Default)]
pub struct DimPool(HashSet<Dim>);

impl DimPool {
    /// Lets `d` share the memory of an equal expression that came by earlier, if one did.
    pub fn share(&mut self, d: &mut Dim) {
        match self.0.get(d) {
            Some(known) => *d = known.clone(),
            None if matches!(d, Dim::Expr(_)) => drop(self.0.insert(d.clone())),
            None => {}
        }
    }
}

/// What is known of expressions, found by where they lie: quick, but equal ones that do not share their
/// memory ([`DimPool`]) are strangers. Numbers are not kept.
#[derive(Clone, Debug)]
pub struct DimMap<T>(HashMap<usize, (Dim, T)>);

impl<T> Default for DimMap<T> {
    fn default() -> DimMap<T> {
        DimMap(HashMap::default())
    }
}

impl<T> DimMap<T> {
    /// What is known of `d`.
    pub fn get(&self, d: &Dim) -> Option<&T> {
        self.0.get(&place(d)?).map(|k| &k.1)
    }

    /// Notes `known` of `d`; true when nothing was known of it so far.
    pub fn insert(&mut self, d: &Dim, known: T) -> bool {
        let Some(at) = place(d) else {
            return false;
        };
        match self.0.entry(at) {
            Entry::Occupied(mut e) => {
                e.get_mut().1 = known;
                false
            }
            Entry::Vacant(e) => {
                // The copy keeps the memory from being given to another expression.
                e.insert((d.clone(), known));
                true
            }
        }
    }
}

/// The symbols of many expressions.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    met: DimMap<()>,
    used: BTreeSet<Sym>,
}

impl Symbols {
    /// Adds those of `d`.
    pub fn add(&mut self, d: &Dim) {
        if self.met.insert(d, ()) {
            d.symbols(&mut self.used);
        }
    }

    /// All of them.
    pub fn used(self) -> BTreeSet<Sym> {
        self.used
    }
}

fn place(d: &Dim) -> Option<usize> {
    match d {
        Dim::Known(_) => None,
        Dim::Expr(e) => Some(Arc::as_ptr(&e.0).addr()),
    }
}
