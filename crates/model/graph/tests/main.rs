//! The tests of this crate, in one program.
mod host;
mod independence;
mod shape;
mod text;
