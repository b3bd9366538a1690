//! What test programs of all crates share: which part of a campaign a run takes, and what was skipped.
//!
//! Never contains a test of another crate. Crates link it only for their tests.
#![forbid(unsafe_code)]

mod share;
mod skipped;
mod turns;

pub use share::Share;
pub use skipped::{ALLOWED, skip, skipped};
pub use turns::turn;
