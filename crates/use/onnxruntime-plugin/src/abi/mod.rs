//! What onnxruntime's interface for plugins is made of: its opaque types, the functions that it offers ([`slots`]),
//! and the tables of functions that a plugin fills ([`tables`]).
//!
//! Only what is used here is declared. onnxruntime appends functions to its tables and never moves one, so that
//! a function is found by its number in its table.

pub mod slots;
pub mod tables;

/// The version of onnxruntime's functions that is asked for; onnxruntime 1.24 was the first to have it.
pub const VERSION: u32 = 24;
/// The version of the tables that a plugin fills: they end where those of onnxruntime 1.23 did, and a later one reads
/// no further.
pub const FILLED: u32 = 23;

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            pub struct $name {
                _only_behind_pointers: [u8; 0],
            }
        )*
    };
}

opaque![
    /// What went wrong; null where nothing did.
    OrtStatus,
    /// A value: a tensor, a sequence, a map.
    OrtValue,
    /// What type a value has.
    OrtTypeInfo,
    /// Element type and shape of a tensor.
    OrtTensorInfo,
    /// A graph of nodes.
    OrtGraph,
    /// A node.
    OrtNode,
    /// A value of a graph by its name.
    OrtValueInfo,
    /// An attribute of a node.
    OrtAttribute,
    /// Keys and values.
    OrtKeyValuePairs,
    /// How a session is made.
    OrtSessionOptions,
    /// What a request runs with.
    OrtRunOptions,
    /// Inputs and outputs of a node of a running request.
    OrtKernelContext,
    /// What a node is being made for.
    OrtNodeComputeContext,
    /// Hardware that onnxruntime found.
    OrtHardwareDevice,
    /// Hardware together with a provider that can use it.
    OrtEpDevice,
    /// Where a provider says which nodes it takes.
    OrtEpGraphSupportInfo,
    /// Where messages go.
    OrtLogger,
    /// Memory that onnxruntime hands out.
    OrtAllocator,
    /// Where memory lies.
    OrtMemoryInfo,
    /// A device that memory is of.
    OrtMemoryDevice,
];

/// Kinds of a value.
pub mod onnx_type {
    /// A tensor.
    pub const TENSOR: i32 = 1;
}

/// Kinds of hardware.
pub mod hardware {
    /// The processor.
    pub const CPU: i32 = 0;
}

/// Kinds of an attribute.
pub mod attribute {
    /// An integer.
    pub const INT: i32 = 1;
    /// Integers.
    pub const INTS: i32 = 2;
    /// A number.
    pub const FLOAT: i32 = 3;
    /// Numbers.
    pub const FLOATS: i32 = 4;
    /// Text.
    pub const STRING: i32 = 5;
    /// Texts.
    pub const STRINGS: i32 = 6;
    /// A graph.
    pub const GRAPH: i32 = 7;
    /// A tensor.
    pub const TENSOR: i32 = 8;
}

/// What a failure is about, as onnxruntime numbers it.
pub mod code {
    /// It failed.
    pub const FAIL: i32 = 1;
    /// What was given is wrong.
    pub const INVALID_ARGUMENT: i32 = 2;
    /// It is not covered.
    pub const NOT_IMPLEMENTED: i32 = 9;
}
