//! The tests of this crate, in one program.
mod arrivals;
mod cost;
mod rng;
mod scenarios;
