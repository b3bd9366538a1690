//! `shopfloor-cli`: see ARCHITECTURE.md.
#![forbid(unsafe_code)]

fn main() {}
