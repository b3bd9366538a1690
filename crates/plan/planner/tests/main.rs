//! The tests of this crate, in one program.
mod absorb;
mod alternatives;
mod bind;
mod build;
mod concat;
mod cut;
mod golden;
mod known;
mod memory;
mod order;
mod propose;
mod rank;
mod recency;
mod renumber;
mod split;
mod waits;
