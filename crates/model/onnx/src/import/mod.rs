//! Import: from ONNX messages to a [`graph::Graph`] of core ops.
//!
//! The lowering of each operator lies in [`crate::ops`]; here is what they stand on: names and
//! scopes ([`ctx`]), attributes ([`node`]), helpers that add core ops ([`emit`]), known contents
//! ([`known`]), types of what sequences hold ([`kind`]), types held as codes ([`narrow`]),
//! functions and bodies ([`body`]), what the file says of inputs and outputs ([`ports`]); [`names`] checks the whole model beforehand.

mod body;
mod ctx;
mod custom;
mod emit;
mod error;
mod kind;
mod known;
mod lowering;
mod model;
pub(crate) mod monoids;
mod names;
mod narrow;
mod node;
mod num;
mod ports;
pub(crate) mod sparse;
mod stated;
mod types;

pub use custom::{CustomLowered, CustomNode, CustomOp, CustomOps};
pub use error::{ImportError, UnsupportedNode};
pub use model::{ImportOptions, Imported, Report, import, import_file, import_refused};
pub use ports::{Metadata, Port, PortDim};

pub(crate) use body::BodyInput;
pub(crate) use ctx::{Ctx, Item, MAX_UNROLLED, Mark};
pub(crate) use emit::{axes_of, axis_of, to_dtype};
pub(crate) use error::LowerError;
pub(crate) use kind::Kind;
pub(crate) use node::NodeView;
pub(crate) use num::Num;
pub(crate) use stated::TakenOut;
pub(crate) use types::narrow_name;
pub use types::unpack_codes;

/// What a lowering gives.
pub(crate) type Lowered<T = ()> = Result<T, LowerError>;
