//! Clusters of CTAs: what goes between them, and what orders it.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

const SOURCE: &str = include_str!("ptx/cluster.ptx");

/// A run of `ctas` CTAs of a warp: two buffers, the first with numbers.
fn run(source: &str, kernel: &str, grid: [u32; 3], seed: u64) -> (Outcome, Vec<u32>) {
    let mut b = Bench::new(source);
    let p = b.words(&(0..256).collect::<Vec<u32>>());
    let q = b.buffer(512);
    let mut l = Launch {
        grid,
        seed,
        resident: 4,
        ..launch(kernel, 1, 32)
    };
    if b.module.params(kernel).unwrap().len() == 2 {
        l = l.u64(p);
    }
    let o = b.run(&l.u64(q));
    (o, b.read(q, 64))
}

fn clean(kernel: &str, grid: [u32; 3], seed: u64) -> Vec<u32> {
    let (o, got) = run(SOURCE, kernel, grid, seed);
    assert!(o.clean(), "{kernel}: {:?}", o.reports);
    got
}

#[test]
fn a_cluster_sums() {
    for seed in 0..8 {
        let got = clean("sums", [8, 1, 1], seed);
        assert_eq!(got[..2], [128 * 127 / 2, 128 * 127 / 2 + 128 * 128]);
    }
}

#[test]
fn ranks_go_along_x_then_y() {
    for seed in 0..4 {
        let got = clean("counted", [4, 4, 1], seed);
        // Rank 0 is asked by all 32 lanes of four CTAs.
        assert_eq!(got[..4], [228; 4]);
    }
}

#[test]
fn stores_arrive_and_count() {
    for seed in 0..8 {
        let got = clean("sent", [2, 1, 1], seed);
        for l in 0..32 {
            assert_eq!(got[l as usize], 2 * (1000 + l) + 500);
            assert_eq!(got[32 + l as usize], 2 * l + 500);
        }
    }
    let source = SOURCE.replacen("_, [%r2], 256;", "_, [%r2], 248;", 1);
    for seed in 0..4 {
        assert!(!run(&source, "sent", [2, 1, 1], seed).0.clean());
    }
}

#[test]
fn one_copy_goes_to_both() {
    for seed in 0..8 {
        let got = clean("shared_tile", [2, 1, 1], seed);
        for l in 0..32u32 {
            let want: u32 = (0..3).map(|r| 2 * (64 * r + 2 * l) + 1).sum();
            assert_eq!((got[l as usize], got[32 + l as usize]), (want, want));
        }
    }
    // Each of three rounds reads 128 bytes once for both CTAs.
    let (o, _) = run(SOURCE, "shared_tile", [2, 1, 1], 0);
    let line = line_of(SOURCE, "shared_tile", "complete_tx");
    let own = o.counters.by_line.iter().find(|c| c.0 == line);
    assert_eq!(own.map(|c| c.1.global_bytes), Some(2 * 3 * 128));
    // The other CTA still reads what the next round overwrites.
    let source = SOURCE.replacen("[%r3], 2;", "[%r3], 1;", 1);
    let bad = (0..8).filter(|seed| !run(&source, "shared_tile", [2, 1, 1], *seed).0.clean());
    assert!(bad.count() > 4);
}

#[test]
fn shared_memory_goes_to_shared_memory() {
    for seed in 0..8 {
        let got = clean("handed", [2, 1, 1], seed);
        assert_eq!(got[..32], (0..32).collect::<Vec<u32>>());
    }
    let source = SOURCE.replacen("    fence.proxy.async.shared::cta;\n", "", 1);
    let (o, _) = run(&source, "handed", [2, 1, 1], 0);
    let line = line_of(&source, "handed", "complete_tx");
    only(&o, Finding::MissingProxyFence, line);
}

#[test]
fn a_missing_cluster_barrier_is_a_race() {
    let pair =
        "    barrier.cluster.arrive.release.aligned;\n    barrier.cluster.wait.acquire.aligned;\n";
    let source = SOURCE.replacen(pair, "", 1);
    for seed in 0..8 {
        let (o, _) = run(&source, "sums", [4, 1, 1], seed);
        let kinds = [Finding::SharedRace, Finding::UninitialisedShared];
        let found = o.reports.iter().any(|r| kinds.contains(&r.kind));
        assert!(found, "{:?}", o.reports);
    }
    // Relaxed, it orders nothing.
    let source = SOURCE.replacen("arrive.release.aligned", "arrive.relaxed.aligned", 1);
    let (o, _) = run(&source, "sums", [4, 1, 1], 0);
    let race = o.reports.iter().any(|r| r.kind == Finding::SharedRace);
    assert!(race, "{:?}", o.reports);
}

#[test]
fn who_ends_takes_its_shared_memory_along() {
    let last = "DONE:\n    barrier.cluster.arrive.aligned;\n    barrier.cluster.wait.aligned;\n";
    let source = SOURCE.replacen(last, "DONE:\n", 1);
    let bad = (0..16).any(|seed| {
        let (o, _) = run(&source, "sums", [4, 1, 1], seed);
        // Whether the others came first or not.
        let kinds = [Finding::OutOfBounds, Finding::SharedRace];
        assert!(o.reports.iter().any(|r| kinds.contains(&r.kind)));
        o.reports.iter().any(|r| r.kind == Finding::OutOfBounds)
    });
    assert!(bad);
    // Arriving is not enough.
    let source = SOURCE.replacen(
        last,
        &last.replace("    barrier.cluster.wait.aligned;\n", ""),
        1,
    );
    for seed in 0..8 {
        let (o, _) = run(&source, "sums", [4, 1, 1], seed);
        assert!(!o.clean());
    }
}

#[test]
fn grids_are_whole_clusters() {
    let b = Bench::new(SOURCE);
    let refused = |l: Launch| {
        let l = l.u64(0).u64(0);
        b.machine.run(&b.module, &l).unwrap_err().to_string()
    };
    let e = refused(launch("sums", 6, 32));
    assert!(e.contains("does not go into clusters of 4x1x1"), "{e}");
    let e = refused(Launch {
        cluster: Some([2, 1, 1]),
        ..launch("sums", 4, 32)
    });
    assert!(e.contains("its clusters have 4x1x1"), "{e}");
}
