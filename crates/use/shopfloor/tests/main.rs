//! The tests of this crate, in one program.
mod abreast;
mod again;
mod another_box;
mod cache;
mod common;
mod custom_op;
mod engine;
mod kernels;
mod kernels_given;
mod simulate;
mod stalls;
mod streams;
mod supervise;
mod walk;
mod walk_browser;
mod walk_lanes;
