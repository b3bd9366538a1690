//! `cpu`: see ARCHITECTURE.md.

pub mod calibrate;
pub mod detect;
pub mod isa;
pub mod ukr;
