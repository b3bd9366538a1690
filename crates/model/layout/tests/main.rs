//! The tests of this crate, in one program.
mod arrange;
mod dims;
mod layouts;
mod shared;
