//! The NVIDIA driver behind a trait: memory, pinned memory, streams, events, modules, launches.
//!
//! The driver's library is opened at run time and every symbol is looked up before anything is
//! called, so a program that links this crate starts on machines without a GPU and says what is
//! missing when one is asked for. No toolkit is needed: kernels come as PTX text, which the driver
//! compiles. [`Driver`] and [`Context`] are traits because the emulated driver is one too.
//!
//! Blocks without host steps may also run *resident* ([`CudaOptions::launch`]): in a kernel that stays
//! on the GPU, takes requests from a ring and answers through another, without a call of the driver.
//!
//! [`CudaDevice`] runs plans on any of them, step by step on streams: weights and what is made of them
//! stay in device memory (or are streamed ahead of use where they do not fit), a request's memory is
//! one block, host steps run on the CPU on copies of their operands.
//!
//! Never here: planning, decisions about kernels.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod calibrate;
mod device;
mod driver;
mod error;
mod executable;
mod graphs;
mod handles;
mod host;
mod modules;
mod nvidia;
mod options;
mod persistent;
mod place;
mod pool;
mod resident;
mod resident_owner;
mod spin_kernel;
mod staging;
mod steps;
mod stream_request;
mod sys;
mod watch;

pub use crate::device::CudaDevice;
pub use driver::{
    Arg, Compute, Context, DeviceInfo, DevicePtr, Driver, EventId, FunctionId, FunctionInfo,
    GraphId, Launch, MemoryInfo, ModuleCode, ModuleId, Pinned, StreamId, TensorMap,
};
pub use error::DriverError;
pub use handles::{Event, Graph, Stream};
pub use modules::{Module, Modules};
pub use nvidia::Nvidia;
pub use options::{CudaOptions, Moved};
pub use pool::{Block, Pool, PoolUse};

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::sys::{SYMBOLS, open};
}
