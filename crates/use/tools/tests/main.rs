//! The tests of this crate, in one program.
mod bodies;
#[path = "../../shopfloor/tests/common/mod.rs"]
mod common;
mod custom_op;
mod kernels_given;
mod lanes;
mod simulate;
mod stalls;
mod step_costs;
mod walk;
mod walk_browser;
mod walk_lanes;
