//! The tests of this crate, in one program.
extern crate kernel;

mod broken;
mod common;
mod division;
mod early;
mod elapsed;
mod equal;
mod good;
mod json;
mod made_once;
mod parallel;
mod pause;
mod precision;
mod step_set;
mod subprogram;
mod timeline;
