//! The parts, each run in a process of its own.
mod calibrate;
mod conformance;
mod kernels;
mod models;
mod probe;
mod products;
mod resident;
mod torch;
#[cfg(feature = "webgpu")]
mod wgsl;
#[cfg(not(feature = "webgpu"))]
mod wgsl {
    /// Says that this program has no WGSL.
    pub fn run(_: &crate::options::Options) -> Result<(), String> {
        let why = "this program was built without the feature webgpu";
        crate::lines::left("WGSL on this GPU", why);
        Ok(())
    }
}

use crate::broken::caught;
use crate::lines::{Line, say};
use crate::options::Options;
use std::process::ExitCode;

/// A part.
pub struct Part {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Seconds of 450 that it may take.
    pub seconds: f64,
    /// Seconds for which it may say nothing before it is taken for stuck: what hangs, and what a driver
    /// compiles for as long.
    pub silence: f64,
    /// Columns of its table.
    pub columns: &'static [&'static str],
    /// What it does; an error is that of the whole part.
    pub run: fn(&Options) -> Result<(), String>,
}

/// All parts, in their order. The machine as measured is what kernels are predicted for, and those are
/// what PyTorch is asked about.
pub const ALL: &[Part] = &[
    Part {
        name: "calibrate",
        title: "The machine, measured by our own kernels",
        seconds: 40.0,
        silence: 30.0,
        columns: calibrate::COLUMNS,
        run: calibrate::run,
    },
    Part {
        name: "models",
        title: "Models against their references, step by step and by a kernel that stays",
        seconds: 80.0,
        silence: 30.0,
        columns: models::COLUMNS,
        run: models::run,
    },
    Part {
        name: "resident",
        title: "The life of a kernel that stays",
        seconds: 45.0,
        silence: 30.0,
        columns: resident::COLUMNS,
        run: resident::run,
    },
    Part {
        name: "products",
        title: "Products in every precision, and the stages of a recipe for Hopper, beside cuBLAS",
        seconds: 70.0,
        silence: 60.0,
        columns: products::COLUMNS,
        run: products::run,
    },
    Part {
        name: "kernels",
        title: "Every kernel beside its prediction, and its share of the roof",
        seconds: 60.0,
        silence: 30.0,
        columns: &[],
        run: kernels::run,
    },
    Part {
        name: "torch",
        title: "The same operations in PyTorch",
        seconds: 45.0,
        silence: 60.0,
        columns: &[],
        run: torch::run,
    },
    Part {
        name: "conformance",
        title: "Every family at random shapes against the reference",
        seconds: 60.0,
        silence: 30.0,
        columns: conformance::COLUMNS,
        run: conformance::run,
    },
    Part {
        name: "wgsl",
        title: "The same through WGSL and Vulkan",
        seconds: 40.0,
        silence: 30.0,
        columns: conformance::COLUMNS,
        run: wgsl::run,
    },
];

/// Names of the parts.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|p| p.name).collect()
}

/// Runs one part in this process.
pub fn run(name: &str, o: &Options) -> ExitCode {
    let run = match name {
        "probe" => probe::run,
        _ => match ALL.iter().find(|p| p.name == name) {
            Some(p) => p.run,
            None => {
                eprintln!("gpu-check: there is no part '{name}'");
                return ExitCode::from(2);
            }
        },
    };
    match caught(|| run(o)) {
        Ok(()) => {
            say(&Line::End);
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

pub use conformance::rows as counted;
pub use models::MODELS;

/// A model's place among the slice.
pub fn order(model: &str) -> usize {
    let at = MODELS.iter().position(|m| *m == model);
    at.unwrap_or(MODELS.len())
}
