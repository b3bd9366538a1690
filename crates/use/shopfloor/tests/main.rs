//! The tests of this crate, in one program.
mod cache;
mod common;
mod concurrent_steps;
mod consecutive_requests;
mod devices;
mod engine;
mod from_memory;
mod futures;
mod kernels;
mod operators;
mod schedule_reuse;
mod spans;
mod streams;
mod supervise;
mod tensors;
