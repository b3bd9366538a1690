//! Every family on the CPU backend, by the same suite.
use cpu::{CpuDevice, CpuOptions};
use device::Device;
use shopfloor_conformance::{OnDevice, run, scalars, seeds};

#[test]
fn every_family_agrees_with_the_reference() {
    let d = CpuDevice::new(CpuOptions {
        threads: Some(2),
        ..CpuOptions::default()
    });
    let d = d.expect("a CPU");
    let own = testing::Share::cases(8, 12);
    let count = seeds((own.end - own.start) as usize);
    let out = run(&OnDevice(&d), None, 9000 + own.start, count).unwrap_or_else(|e| panic!("{e}"));
    assert!(out.total() > 150, "{out:?}");
    assert!(out.agreed.len() >= 7, "{:?}", out.agreed);
}

#[test]
fn scalar_operations_are_right_at_the_edges_of_their_types() {
    let d = CpuDevice::new(CpuOptions {
        threads: Some(1),
        ..CpuOptions::default()
    });
    let d = d.expect("a CPU");
    let target = d.target();
    // Nibbles are read there, and written by host steps.
    let bytes = target.dtypes.iter().filter(|d| d.bits() >= 8);
    let bytes: Vec<_> = bytes.copied().collect();
    let done = scalars(&OnDevice(&d), target, &bytes, 4000, &mut |_| ());
    let done = done.unwrap_or_else(|e| panic!("{e}"));
    println!("{done} operations");
    assert!(done > 500, "{done}");
}
