//! One module per command.
pub mod access;
pub mod bench;
pub mod demo;
pub mod emit;
pub mod emulate;
pub mod inspect;
pub mod machines;
pub mod occupancy;
pub mod plan;
pub mod predict;
pub mod profile;
pub mod roofline;
pub mod run;
pub mod tensorcore;
pub mod test;
pub mod transfer;
