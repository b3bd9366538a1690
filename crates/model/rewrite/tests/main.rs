//! The tests of this crate, in one program.
mod golden;
mod moves;
mod pads;
mod resample;
mod run;
mod same_results;
mod stages;
