//! The tests of this crate, in one program.
mod golden;
mod pads;
mod resample;
mod same_results;
mod stages;
