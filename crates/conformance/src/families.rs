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

/// One case of every family, or a few.
pub fn cases(rng: &mut Rng) -> Vec<Case> {
    vec![
        dense::product(rng),
        dense::conv(rng),
        dense::depthwise(rng),
        dense::grouped(rng),
        moves::map(rng),
        moves::unary(rng),
        moves::mover(rng),
        moves::pad(rng),
        moves::gather(rng),
        rows::softmax(rng),
        rows::reduction(rng),
        rows::pool(rng),
        select::select(rng),
        attention::attention(rng),
        recurrent::recurrent(rng),
        select::places(rng),
        select::sorted(rng),
    ]
}
