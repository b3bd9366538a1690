//! Passes from graph to graph that know no machine: what they do is right everywhere, and what
//! depends on a cost (fusion, tiling, placement) is left to the planner.
//!
//! [`PASSES`] is the table; [`run`] applies it until nothing changes. Every single rewrite costs
//! one unit of fuel, so that a bad one is found by bisection over [`Options::fuel`].
#![forbid(unsafe_code)]

mod affine;
mod attention;
mod change;
mod cse;
mod dead;
mod edit;
mod empty;
mod error;
mod fold;
mod hoist;
mod integer;
mod labels;
mod maps;
mod moves;
mod pads;
mod parts;
mod pattern;
mod recurrent;
mod resample;
mod run;
mod shapes;
mod shared;
mod stages;
mod views;

pub use change::{Change, Fuel, Rewritten};
pub use error::Error;
pub use run::{Options, PASSES, Pass, run};
