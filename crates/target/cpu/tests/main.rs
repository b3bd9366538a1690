//! The tests of this crate, in one program. Tile programs of every family are run by the suite of all targets.
mod requests;
