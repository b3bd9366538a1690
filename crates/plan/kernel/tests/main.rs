//! The tests of this crate, in one program.
use shopfloor_kernel as kernel;

mod common;
mod factors;
mod limits;
mod parse;
mod recompute;
mod seen;
mod tensors;
mod text;
mod verify;
mod work;
