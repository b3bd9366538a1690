//! Every family on the CPU backend, by the same suite.
use cpu::{CpuDevice, CpuOptions};
use shopfloor_conformance::{OnDevice, run, seeds};

#[test]
fn every_family_agrees_with_the_reference() {
    let d = CpuDevice::new(CpuOptions {
        threads: Some(2),
        ..CpuOptions::default()
    });
    let d = d.expect("a CPU");
    let out = run(&OnDevice(&d), None, 9000, seeds(40)).unwrap_or_else(|e| panic!("{e}"));
    assert!(out.total() > 500, "{out:?}");
    assert!(out.agreed.len() >= 7, "{:?}", out.agreed);
}
