//! Random kernels of every family.
mod attention;
mod chain;
mod dense;
mod moves;
mod recurrent;
mod rows;
mod select;

use crate::Rng;
pub use chain::{Link, chain};
use kernel::Kernel;

/// A kernel with what it is run on and how near the results must be.
pub struct Case {
    /// What is computed.
    pub kernel: Kernel,
    /// Values of its symbols.
    pub symbols: Vec<(String, i64)>,
    /// Integers are below this.
    pub top: u64,
    /// Largest difference, relative to the largest magnitude of a result.
    pub tolerance: f64,
}

impl Case {
    fn new(kernel: Kernel, tolerance: f64) -> Case {
        Case {
            kernel,
            symbols: vec![],
            top: 100,
            tolerance,
        }
    }
}

/// Makes a case by what an [`Rng`] draws, or takes in turn.
pub type Make = fn(&mut Rng) -> Case;

/// What makes the cases, with names.
pub const FAMILIES: [(&str, Make); 17] = [
    ("product", dense::product),
    ("conv", dense::conv),
    ("depthwise", dense::depthwise),
    ("grouped", dense::grouped),
    ("map", moves::map),
    ("unary", moves::unary),
    ("mover", moves::mover),
    ("pad", moves::pad),
    ("gather", moves::gather),
    ("softmax", rows::softmax),
    ("reduction", rows::reduction),
    ("pool", rows::pool),
    ("select", select::select),
    ("attention", attention::attention),
    ("recurrent", recurrent::recurrent),
    ("places", select::places),
    ("sorted", select::sorted),
];

/// One case of every family, or a few.
pub fn cases(rng: &mut Rng) -> Vec<Case> {
    FAMILIES.iter().map(|(_, make)| make(rng)).collect()
}
