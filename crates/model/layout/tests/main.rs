//! The tests of this crate, in one program.
mod dims;
mod layouts;
mod shared;
