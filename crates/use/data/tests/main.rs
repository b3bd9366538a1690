//! The tests of this crate, in one program.
mod arrays;
mod media;
mod proto;
mod zip;
