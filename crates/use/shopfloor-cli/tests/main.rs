//! The tests of this crate, in one program.
mod calculators;
mod cli;
mod common;
mod emulate;
mod emulated;
mod first_run;
mod folders;
mod help;
mod honest;
mod report;
mod roofline;
mod simulate_supervise;
mod sizes;
mod studies;
