//! Kernels that differ in their names alone.
use foldhash::HashMap;
use kernel::Kernel;
use std::hash::{BuildHasher, Hasher};

/// Numbers of lists of kernels that differ in names alone, as layers do.
#[derive(Default)]
pub(super) struct Alike {
    /// By the hash of the kernels without names.
    known: HashMap<u64, Vec<usize>>,
    unnamed: Vec<Vec<Kernel>>,
}

impl Alike {
    /// The number of kernels like these; the next one for new ones.
    pub(super) fn number(&mut self, kernels: &[&Kernel]) -> usize {
        let mut hasher = self.known.hasher().build_hasher();
        kernels.iter().for_each(|k| k.hash_unnamed(&mut hasher));
        let alike = self.known.entry(hasher.finish()).or_default();
        let unnamed: Vec<Kernel> = kernels.iter().map(|k| unnamed(k)).collect();
        if let Some(&n) = alike.iter().find(|&&n| self.unnamed[n] == unnamed) {
            return n;
        }
        alike.push(self.unnamed.len());
        self.unnamed.push(unnamed);
        self.unnamed.len() - 1
    }
}

/// The kernel without names.
fn unnamed(kernel: &Kernel) -> Kernel {
    let mut k = kernel.clone();
    k.name.clear();
    k.axes.iter_mut().for_each(|a| a.name.clear());
    k.operands.iter_mut().for_each(|o| o.name.clear());
    k.tiles.iter_mut().for_each(|t| t.name.clear());
    k
}
