//! Code that a kernel's user wrote for it.
use layout::{Dim, Sym};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// PTX for a kernel, and how it is launched.
///
/// Its entry takes one parameter of 8 bytes per operand of the kernel, its address, in their order, and
/// behind them one per size, a whole number. What it computes the kernel's statements say.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Code {
    /// Name of the entry.
    pub entry: String,
    /// CTAs along x, y and z.
    pub grid: [Dim; 3],
    /// Threads of a CTA along x, y and z.
    pub threads: [Dim; 3],
    /// Dynamic shared memory of a CTA, in bytes.
    pub shared: Dim,
    /// What is passed behind the addresses.
    pub sizes: Vec<Dim>,
    /// The module.
    pub text: String,
}

impl Code {
    /// Calls `f` for every dimension expression, in a fixed order.
    pub fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.grid.iter().chain(&self.threads).for_each(&mut *f);
        f(&self.shared);
        self.sizes.iter().for_each(f);
    }

    /// As [`Code::for_each_dim`], for a change.
    pub fn for_each_dim_mut(&mut self, f: &mut dyn FnMut(&mut Dim)) {
        let all = self.grid.iter_mut().chain(&mut self.threads);
        all.chain([&mut self.shared])
            .chain(&mut self.sizes)
            .for_each(f);
    }

    /// Symbols of its dimensions that are none of `kernel`'s.
    pub(crate) fn strange(&self, kernel: &crate::Kernel) -> Option<Sym> {
        let (mut own, mut known) = (BTreeSet::new(), BTreeSet::new());
        self.for_each_dim(&mut |d| d.symbols(&mut own));
        kernel.for_each_dim(&mut |d| d.symbols(&mut known));
        own.into_iter().find(|s| !known.contains(s))
    }
}
