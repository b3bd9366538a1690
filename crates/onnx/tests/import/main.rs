//! Import: models made here, and the zoo where it is at hand.
#[allow(dead_code)]
#[path = "../reader/encode.rs"]
mod encode;
mod golden;
mod made;
mod refused;
mod shapes;
mod zoo;
