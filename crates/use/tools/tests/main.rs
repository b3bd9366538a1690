//! The tests of this crate, in one program.
#[path = "../../shopfloor/tests/common/mod.rs"]
mod common;
mod custom_op;
mod kernels_given;
mod simulate;
mod stalls;
mod walk;
mod walk_browser;
mod walk_lanes;
