//! Emitters: from a tile program to the text that a device's own assembler or compiler takes.
//!
//! Pure functions: no I/O, no drivers. An emitter chooses nothing: tiles, pipeline depth, places,
//! swizzles, warps, fragment, load width and raster order are the schedule's; what the schedule does
//! not allow is an [`EmitError`] that names the statement and the rule, which the verifier of
//! schedules makes unreachable.
#![forbid(unsafe_code)]

mod error;
pub mod ptx;
pub mod simt;
pub mod wgsl;

pub use error::EmitError;
