//! Import: models made here, and the zoo where it is at hand.
mod zoo;
