//! A kernel with what it is run on.

use kernel::{Factors, Kernel, Mapping, TileProgram};

/// A kernel with what it is run on and how near the results must be.
pub struct Case {
    /// What is computed.
    pub kernel: Kernel,
    /// Values of its symbols.
    pub symbols: Vec<(String, i64)>,
    /// What it is run on, and how near the results must be.
    pub limits: Limits,
}

/// Of what size a kernel's inputs are, and how near its results must be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Integers are below this.
    pub top: u64,
    /// Floats are below this in magnitude.
    pub floats: f64,
    /// Largest difference, relative to the largest magnitude of a result.
    pub tolerance: f64,
    /// Results of less magnitude count as this: the terms of a sum are as large, and may cancel.
    pub least: f64,
}

impl Limits {
    /// Floats below 1 whose results are off by `tolerance` of the largest.
    #[must_use]
    pub fn within(tolerance: f64) -> Limits {
        Limits {
            top: 100,
            floats: 1.0,
            tolerance,
            least: 1e-30,
        }
    }
}

impl Limits {
    /// The limits where `program` may round factors to fewer digits than they have.
    #[must_use]
    pub fn of(self, program: &TileProgram) -> Limits {
        let factors = match &program.schedule().mapping {
            Mapping::Gpu(g) => g.fragment.map_or(Factors::Whole, |f| f.factors),
            Mapping::Cpu(_) => Factors::Whole,
        };
        let Some(rounded) = rounded(factors) else {
            return self;
        };
        Limits {
            tolerance: self.tolerance.max(rounded),
            // Terms of 1 may cancel in a sum.
            least: self.least.max(1.0),
            ..self
        }
    }
}

/// What two factors come to without the digits that are left out of them: those behind ten of TF32, seven of bf16, or
/// sixteen of its parts; `None` where none are.
fn rounded(factors: Factors) -> Option<f64> {
    match factors {
        Factors::Whole | Factors::Tf32x3 => None,
        Factors::Tf32 => Some(1.0 / 256.0),
        Factors::Bf16 => Some(1.0 / 32.0),
        Factors::Bf16x3 => Some(1.0 / 4096.0),
    }
}

impl Case {
    pub(crate) fn new(kernel: Kernel, tolerance: f64) -> Case {
        Case {
            kernel,
            symbols: vec![],
            limits: Limits::within(tolerance),
        }
    }

    /// The results are sums of terms as large as 1, which may cancel.
    pub(crate) fn of_sums(mut self) -> Case {
        self.limits.least = 1.0;
        self
    }
}
