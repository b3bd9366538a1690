//! One module per command.
pub mod bench;
pub mod demo;
pub mod emit;
pub mod emulate;
pub mod inspect;
pub mod machines;
pub mod plan;
pub mod profile;
pub mod run;
pub mod test;
