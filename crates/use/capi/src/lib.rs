//! shopfloor for C: models are loaded from files and memory, described, run and planned. cbindgen makes
//! `include/shopfloor.h` from this crate, and `docs/c.md` explains it.
//!
//! # Safety
//! Every function here is called from C, and no other library has functions whose names begin with `shopfloor_`.
//! What its pointers must point to is in the header: text ends with a zero byte, a list has as many members as its
//! count says, a handle was made by this library and not freed. Null pointers, counts that do not fit, and pointers
//! between two members of a list are errors. Nothing is kept of what a pointer points to beyond the call, unless the
//! function says so. A panic is an error too and does not leave the library.
//!
//! Never here: a decision about models or plans.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

mod boundary;
mod dtype;
mod error;
mod options;
mod plan;
mod request;
mod session;
mod stream;

pub use dtype::*;
pub use error::*;
pub use options::*;
pub use plan::*;
pub use request::*;
pub use session::*;
pub use stream::*;
