//! One module per command.
pub mod access;
pub mod advise;
pub mod annotate;
pub mod bench;
pub mod demo;
pub mod emit;
pub mod emulate;
pub mod fleet;
pub mod inspect;
pub mod machines;
pub mod occupancy;
pub mod plan;
pub mod predict;
pub mod profile;
pub mod roofline;
pub mod run;
pub mod simulate;
pub mod supervise;
pub mod tensorcore;
pub mod test;
#[cfg(unix)]
pub mod top;
pub mod transfer;
pub mod walk;
pub mod what_if;
