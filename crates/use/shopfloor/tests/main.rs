//! The tests of this crate, in one program.
mod abreast;
mod again;
mod another_box;
mod cache;
mod common;
mod engine;
mod kernels;
mod streams;
mod supervise;
