//! The tests of this crate, in one program.
mod broken_files;
mod catalog;
mod change;
mod machines;
mod occupancy_vectors;
mod plausible;
mod textbook;
mod ways;
