//! A kernel with what it is run on.

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
    pub(super) fn new(kernel: Kernel, tolerance: f64) -> Case {
        Case {
            kernel,
            symbols: vec![],
            top: 100,
            tolerance,
        }
    }
}
