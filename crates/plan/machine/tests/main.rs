//! The tests of this crate, in one program.
mod broken_files;
mod catalog;
mod change;
mod explain;
mod machines;
mod occupancy_vectors;
mod plausible;
mod slice;
mod textbook;
mod toml;
mod warps;
mod ways;
