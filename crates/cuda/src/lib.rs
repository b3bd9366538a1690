//! The NVIDIA driver behind a trait: memory, pinned memory, streams, events, modules, launches.
//!
//! The driver's library is opened at run time and every symbol is looked up before anything is
//! called, so a program that links this crate starts on machines without a GPU and says what is
//! missing when one is asked for. No toolkit is needed: kernels come as PTX text, which the driver
//! compiles. [`Driver`] and [`Context`] are traits because the emulated driver is one too.
//!
//! Never here: planning, tile programs, emission.
#![deny(unsafe_op_in_unsafe_fn)]

mod driver;
mod error;
mod handles;
mod modules;
mod nvidia;
mod pool;
mod sys;

pub use driver::{
    Arg, Compute, Context, DeviceInfo, DevicePtr, Driver, EventId, FunctionId, FunctionInfo,
    Launch, MemoryInfo, ModuleId, Pinned, StreamId,
};
pub use error::DriverError;
pub use handles::{Event, Stream};
pub use modules::{Module, Modules};
pub use nvidia::Nvidia;
pub use pool::{Block, Pool, PoolUse};
