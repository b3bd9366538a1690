//! The tests of this crate, in one program.
mod independence;
mod shape;
mod text;
