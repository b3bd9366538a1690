//! How workers that never leave share requests, and how a host talks to them.
//!
//! [`flow`] hands the tasks of a request to threads, [`lease`] decides which threads work, [`place`] and
//! [`time_slice`] say where and before whom; [`ring`] is the protocol between a host and workers that see the same
//! memory. Nothing here knows a plan, a kernel or a tensor, so that loom compiles nothing else to go through the
//! interleavings.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod flow;
pub mod lease;
pub mod padded;
pub mod place;
pub mod prefetch;
pub mod ring;
pub mod time_slice;
