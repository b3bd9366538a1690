//! Import: models made here, and the zoo where it is at hand.
use crate::reader::encode;
mod golden;
mod made;
mod ranks;
mod refused;
mod shapes;
mod sparse;
mod zoo;
