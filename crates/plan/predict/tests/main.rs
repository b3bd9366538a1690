//! The tests of this crate, in one program.
mod accuracy;
mod constants;
mod files;
mod gpus;
mod stats;
