//! PTX of every family, run on the emulator: what it does, and that nothing is touched that is not
//! there, or without the barriers it takes.
use shopfloor_conformance::{Emulated, run, seeds};

#[test]
fn every_family_agrees_with_the_reference() {
    let out = run(&Emulated::default(), None, 3000, seeds(12)).unwrap_or_else(|e| panic!("{e}"));
    println!("{:?}, refused {:?}", out.agreed, out.refused);
    assert!(out.total() > 250, "{:?}", out.agreed);
    assert!(out.agreed.len() >= 7, "{:?}", out.agreed);
}
