//! The oracle: plain interpreters of graphs, kernels and tile programs, used by tests only.
//!
//! [`run_graph`] evaluates a graph of core ops node by node on dense tensors; scalar programs round
//! as [`expr`] says, products and sums of contractions and convolutions are taken in f64.
//! [`run_kernel`] evaluates a kernel's statements on whole axes, [`run_tiles`] a tile program
//! task by task in any order that its grid allows, with every access checked.
#![forbid(unsafe_code)]

mod error;
mod graph;
mod tiles;

pub use crate::graph::{Difference, Trace, first_difference, run_graph, run_graph_named};
pub use error::RefError;
pub use tiles::{Memory, run_body, run_kernel, run_tiles};
