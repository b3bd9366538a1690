//! How resident workers share requests, and how a host talks to them.
//!
//! [`flow`] hands the tasks of a request to threads, [`lease`] decides which threads work, [`place`] on which
//! processors and [`time_slice`] in which order; [`ring`] is the protocol between a host and workers that share
//! memory. Nothing here knows a plan, a kernel or a tensor, so that loom, which tries all interleavings, compiles
//! nothing else.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod flow;
pub mod lease;
pub mod padded;
pub mod place;
pub mod prefetch;
pub mod ring;
pub mod time_slice;
