//! A product as a library would write it. Nothing here is timed.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

const SOURCE: &str = include_str!("ptx/gemm.ptx");

/// c = a b with f16 factors whose products and sums are exact.
fn gemm(n: usize, source: &str, seed: u64, threads: usize) -> (Outcome, Vec<f32>, Vec<f32>) {
    let mut rng = Rng::new(n as u64);
    let mut matrix =
        || -> Vec<f32> { (0..n * n).map(|_| (rng.next() % 17) as f32 - 8.0).collect() };
    let (a, b) = (matrix(), matrix());
    let halves = |v: &[f32]| -> Vec<u8> { v.iter().flat_map(|v| f16(*v).to_le_bytes()).collect() };
    let mut bench = Bench::new(source);
    let (pa, pb) = (bench.bytes(&halves(&a)), bench.bytes(&halves(&b)));
    let pc = bench.buffer(4 * n * n);
    let side = n as u32 / 64;
    let l = Launch {
        grid: [side, side, 1],
        block: [128, 1, 1],
        seed,
        threads,
        ..Launch::new("gemm")
            .u64(pa)
            .u64(pb)
            .u64(pc)
            .u32(n as u32)
            .u32(n as u32)
    };
    let o = bench.run(&l);
    let got = bench.read_floats(pc, n * n);
    let mut want = vec![0f32; n * n];
    for m in 0..n {
        for k in 0..n {
            let x = a[m * n + k];
            for j in 0..n {
                want[m * n + j] += x * b[k * n + j];
            }
        }
    }
    (o, got, want)
}

#[test]
fn a_product_with_copies_in_two_stages() {
    let (o, got, want) = gemm(128, SOURCE, 0, 0);
    assert!(o.clean(), "{:?}", o.reports);
    assert!(got == want);
    let mma = o
        .counters
        .classes
        .iter()
        .find(|c| c.0 == Class::Matrix)
        .unwrap()
        .1;
    assert_eq!(mma, 128 * 128 * 128 / (16 * 8 * 16));
    // The padding of rows is there to have none.
    let loads = o.counters.by_line.iter().filter(|l| {
        SOURCE
            .lines()
            .nth(l.0 as usize - 1)
            .is_some_and(|t| t.contains("ldmatrix"))
    });
    assert_eq!(loads.map(|l| l.1.conflicts).sum::<u64>(), 0);
}

#[test]
fn each_of_its_waits_is_needed() {
    for (cut, found) in [
        ("cp.async.wait_group 1;", Finding::EarlyRead),
        ("bar.sync 0;\n    add.u32 %x1", Finding::SharedRace),
        ("bar.sync 0;\n    mov.u32 %stage", Finding::SharedRace),
    ] {
        let kept = cut
            .replace("cp.async.wait_group 1;", "")
            .replace("bar.sync 0;", "");
        let source = SOURCE.replacen(cut, &kept, 1);
        assert_ne!(source, SOURCE);
        let (o, ..) = gemm(128, &source, 1, 1);
        assert!(
            o.reports.iter().any(|r| r.kind == found),
            "{cut}: {:?}",
            o.reports
        );
    }
}
