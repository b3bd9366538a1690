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

mod cache;
mod compare;
mod custom;
mod devices;
pub mod division;
mod error;
mod future;
mod gpu;
pub mod inputs;
pub mod machines;
mod model;
mod operator;
mod outputs;
mod pair;
mod profile;
mod session;
mod spans;
mod special;
mod states;
pub mod status;
mod supervise;
mod texts;

pub use cache::Cache;
pub use compare::{
    Comparison, Element, OutputComparison, Tolerance, compare, compare_by_type, thinned,
};
pub use devices::{Device, default_engine, engine_on};
pub use division::divide;
pub use error::{Cause, Error, ErrorKind};
pub use future::RunFuture;
pub use model::{Model, ModelOptions, Precision};
pub use operator::{Attributes, Operator, OperatorCall, OperatorNode, ValueType};
pub use outputs::Outputs;
pub use profile::{how_ran, how_run, profile, profile_of, step_views};
pub use session::{Session, SessionBuilder};
pub use supervise::{DecisionListener, SuperviseOptions, Supervision, SupervisionCost};
pub use texts::{read_text, write_file};

pub use cpu::isa::Isa;
pub use device::{DeviceError, Place, PlanErrorText, Transfers, UnifiedBuffer};
pub use graph::Graph;
pub use layout::{DType, Dim, DimBox, Sym};
pub use machine::{Change, Machine, Way as Launch, Work};
pub use onnx::{Metadata, Port, PortDim, Report as ImportReport};
pub use plan::division::Division;
pub use plan::{Goal, Plan, PlanError, Program, Timeline, VerifiedPlan, Why};
pub use report::{HowRun, Profile, StepView, Worker};
pub use runtime::{
    Answer, Batching, Binding, Call, Cancel, Engine, Memory, RunError, STREAM_CAPACITY,
    Session as RuntimeSession, Stream,
};
pub use supervisor::supervise::{Decision, Mode, Options as DecideOptions};
pub use tensor::{
    HostValue, IntoTensor, Memory as TensorMemory, Tensor, TensorElement, TensorError, ToShape,
};

/// What calls of this library give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Inputs by name: `inputs!["x" => &x, "mask" => Tensor::from_array(([2], vec![0i64, 1]))?]`, of tensors, references
/// to them and `Arc`s of them; or by their places among [`Session::inputs`]: `inputs![&x, &mask]`.
#[macro_export]
macro_rules! inputs {
    ($($name:expr => $tensor:expr),* $(,)?) => {
        &[$(($name, ::core::convert::AsRef::<$crate::Tensor>::as_ref(&$tensor))),*] as &[(&str, &$crate::Tensor)]
    };
    ($($tensor:expr),* $(,)?) => {
        &[$(("", ::core::convert::AsRef::<$crate::Tensor>::as_ref(&$tensor))),*] as &[(&str, &$crate::Tensor)]
    };
}
