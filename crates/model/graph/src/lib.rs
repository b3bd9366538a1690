//! The graph of core ops: what a model computes, without any machine.
//!
//! Import lowers every ONNX operator into the small closed set [`Op`]; everything after import
//! sees only that set. Values carry symbolic shapes; integer tensors whose contents are known as
//! dimension expressions carry those too ([`Value::ints`]), so that shape arithmetic is done while
//! the graph is built.
#![forbid(unsafe_code)]

mod assume;
mod build;
mod equal;
mod error;
mod graph;
mod independence;
mod ops;
mod shape;
mod sizes;
mod text;
mod verify;

pub use build::GraphBuilder;
pub use error::GraphError;
pub use graph::{
    Assumption, Graph, Node, NodeId, Origin, Symbol, SymbolSource, Value, ValueId, ValueSource,
};
pub use ops::{
    AttentionSpec, ContractSpec, ConvSpec, GUESSES_RANK, HostSpec, KernelSpec, Op, PadMode,
    PoolKind, PoolSpec, ROUNDED_BY_SCALE, RecurrentKind, RecurrentSpec, ResampleMode, ResampleSpec,
    ScatterReduce, Undefined, View,
};
pub use shape::product_type;
