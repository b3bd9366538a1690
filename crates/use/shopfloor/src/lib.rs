//! shopfloor runs ONNX models: it plans the whole computation over the machine's memory hierarchy,
//! runs the plan with resident workers, and shows predicted beside measured for every step.
//!
//! ```no_run
//! use shopfloor::{Session, Tensor};
//!
//! # fn main() -> Result<(), shopfloor::Error> {
//! let session = Session::builder().with_threads(2).commit_from_file("model.onnx")?;
//! let image = Tensor::zeros(shopfloor::DType::F32, &[1, 1, 8, 8])?;
//! let outputs = session.run(shopfloor::inputs!["image" => &image])?;
//! println!("{:?}", outputs["probabilities"].shape());
//! # Ok(())
//! # }
//! ```
//!
//! This crate is the only stable interface; the crates behind it may change.
#![forbid(unsafe_code)]

mod advise;
mod annotate;
mod bench;
mod bodies;
mod cache;
mod compare;
mod custom;
mod division;
pub mod emitted;
mod error;
mod fixed;
mod fleet;
mod folders;
mod gpu;
mod half;
mod handoff;
pub mod inputs;
mod inspect;
mod load;
pub mod machines;
mod model;
mod nodes;
mod op;
mod outputs;
pub mod pages;
mod pair;
pub mod planview;
mod profile;
pub mod roofline;
mod session;
mod simulate;
mod special;
pub mod stalls;
mod states;
pub mod status;
mod stream_rates;
mod supervise;
pub mod targets;
mod texts;
pub mod walk;
mod ways;
mod what_if;

pub use advise::advise;
pub use annotate::annotate;
pub use bench::{BenchOptions, Subject, bench, peak_rss};
pub use cache::Cache;
pub use compare::{Comparison, Element, OutputComparison, Tolerance, compare, thinned};
pub use division::{divide, sweep};
pub use error::Error;
pub use fixed::{chain_model, fixed_cost};
pub use fleet::{batch_of, batches, fleet};
pub use folders::{Closeness, TestFolder, Verdict, find_test_folders, run_test_folder};
pub use handoff::handoff;
pub use inspect::inspect;
pub use load::{load_times, planning_times, steady_ms};
pub use model::{Model, ModelOptions, Precision};
pub use op::{OP_FORMS, op_model};
pub use outputs::Outputs;
pub use profile::profile;
pub use session::{Session, SessionBuilder, default_engine, engine_on};
pub use simulate::{SimulateOptions, Simulation, replay, simulate};
pub use stream_rates::streams;
pub use supervise::{
    CallersSaw, Hear, Spent, SuperviseOptions, SupervisedLoad, Supervision, supervised_load,
};
pub use texts::{read_text, write_file};
pub use ways::persistent;
pub use what_if::what_if;

pub use cpu::isa::Isa;
pub use data;
pub use device::{Place, Transfers, UnifiedBuffer};
pub use files;
pub use layout::{DType, Dim, DimBox};
pub use machine::{Change, Machine, calc};
pub use plan::{Goal, Plan, Timeline, Why};
pub use predict;
pub use report;
pub use runtime::{
    Answer, Batching, Binding, Call, Cancel, Engine, Memory, RunError, STREAM_CAPACITY, Stream,
};
pub use sim;
pub use supervisor;
pub use plan::division::Division;
pub use tensor::Tensor;

/// Inputs by name: `inputs!["x" => &x, "mask" => &mask]`.
#[macro_export]
macro_rules! inputs {
    ($($name:expr => $tensor:expr),* $(,)?) => {
        &[$(($name, $tensor)),*] as &[(&str, &$crate::Tensor)]
    };
}
