//! Loads, stores and atomics.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

const SOURCE: &str = include_str!("ptx/memory.ptx");

#[test]
fn narrow_loads_are_extended() {
    let mut b = Bench::new(SOURCE);
    let (p, o) = (b.words(&[0x8765_f321]), b.buffer(32));
    b.clean(&launch("widths", 1, 1).u64(p).u64(o));
    let got = b.read(o, 8);
    assert_eq!(got[..4], [0xf3, 0xffff_fff3, 0x8765, 0xffff_8765]);
    assert_eq!(got[4..6], [0xfff3, 0xffff_ffff]);
    assert_eq!(got[6..], [0xfff3_f3f3, 0x8765_f3f3]);
}

#[test]
fn every_thread_has_its_own_local_memory() {
    let mut b = Bench::new(SOURCE);
    let p = b.buffer(256);
    b.clean(&launch("locals", 1, 64).u64(p));
    assert_eq!(b.read(p, 64), (0..64).map(|k| 4 * k).collect::<Vec<u32>>());
}

#[test]
fn generic_addresses_reach_two_memories() {
    let mut b = Bench::new(SOURCE);
    let p = b.buffer(128);
    b.clean(&Launch {
        shared: 128,
        ..launch("mixed", 1, 32).u64(p)
    });
    let want = |k: u32| k * k + if k.is_multiple_of(2) { 1000 } else { 2000 };
    assert_eq!(b.read(p, 32), (0..32).map(want).collect::<Vec<u32>>());
    // Without dynamic shared memory there is nothing to reach.
    let o = b.run(&launch("mixed", 1, 32).u64(p));
    assert_eq!(o.reports[0].kind, Finding::OutOfBounds);
}

#[test]
fn atomics_of_all_kinds() {
    let mut b = Bench::new(SOURCE);
    let mut start = [0u32; 16];
    (start[1], start[2], start[4], start[7]) = (0x8000_0000, u32::MAX, u32::MAX, 50);
    let p = b.words(&start);
    b.clean(&launch("atomics", 4, 64).u64(p));
    let got = b.read(p, 16);
    let sum = 256 * 255 / 2;
    assert_eq!(got[..6], [sum, 255, 0, u32::MAX, 0, 0]);
    // Up to 99 and back to 0; down from 50 to 0 and on from 99.
    assert_eq!(got[6], 256 % 100);
    assert_eq!(got[7], 99 - (256 - 51) % 100);
    assert_eq!((got[8], got[9]), (sum, 0));
    assert_eq!(f32::from_bits(got[10]), 128.0);
    assert_eq!(
        f64::from_bits(u64::from(got[13]) << 32 | u64::from(got[12])),
        64.0
    );
    assert_eq!(got[14], 0x5c00_5800);
}

#[test]
fn a_histogram_in_shared_memory() {
    let mut b = Bench::new(SOURCE);
    let data: Vec<u32> = (0..128).map(|k| k * k).collect();
    let (p, o) = (b.words(&data), b.buffer(64));
    b.clean(&launch("histogram", 1, 128).u64(p).u64(o));
    let mut want = [0u32; 16];
    for v in data {
        want[v as usize % 16] += 1;
    }
    assert_eq!(b.read(o, 16), want);
}

#[test]
fn swaps_give_the_old_value() {
    let mut b = Bench::new(SOURCE);
    let (p, o) = (b.words(&[3, 5 << 16 | 4]), b.buffer(16));
    b.clean(&launch("swaps", 1, 1).u64(p).u64(o));
    assert_eq!(b.read(o, 4), [3, 7, 9, 5]);
    assert_eq!(b.read(p, 2), [9, 6 << 16 | 4]);
}

/// Runs the tiled product and compares it with a plain one.
pub fn tiled(n: usize, threads: usize, checks: Checks) -> Outcome {
    let mut rng = Rng::new(n as u64);
    let a: Vec<f32> = (0..n * n).map(|_| rng.small()).collect();
    let c: Vec<f32> = (0..n * n).map(|_| rng.small()).collect();
    let mut b = Bench::new(SOURCE);
    let (pa, pb, pc) = (b.floats(&a), b.floats(&c), b.buffer(4 * n * n));
    let side = n as u32 / 16;
    let l = Launch {
        grid: [side, side, 1],
        block: [16, 16, 1],
        threads,
        checks,
        ..Launch::new("tiled").u64(pa).u64(pb).u64(pc).u32(n as u32)
    };
    let o = b.clean(&l);
    let got = b.read_floats(pc, n * n);
    for (m, k) in [(0, 0), (n - 1, n - 1), (n / 2, 3), (5, n / 3)] {
        let want = (0..n).fold(0f32, |s, i| a[m * n + i].mul_add(c[i * n + k], s));
        assert_eq!(got[m * n + k], want);
    }
    o
}

#[test]
fn a_tiled_product_on_one_thread_and_on_two_is_the_same() {
    let one = tiled(64, 1, Checks::default());
    let two = tiled(64, 2, Checks::default());
    assert_eq!((one.threads, two.threads), (1, 2));
    assert_eq!(one.counters, two.counters);
}

#[test]
fn a_missing_barrier_in_the_tiled_product_is_found() {
    for which in [1, 2] {
        let mut seen = 0;
        let source: String = SOURCE
            .lines()
            .scan(false, |inside, l| {
                *inside |= l.contains(".entry tiled");
                if *inside && l.contains("bar.sync") {
                    seen += 1;
                    if seen == which {
                        return Some("\n".to_string());
                    }
                }
                Some(format!("{l}\n"))
            })
            .collect();
        let mut b = Bench::new(&source);
        let (pa, pb, pc) = (
            b.floats(&[1.0; 1024]),
            b.floats(&[1.0; 1024]),
            b.buffer(4096),
        );
        let l = Launch {
            grid: [2, 2, 1],
            block: [16, 16, 1],
            ..Launch::new("tiled").u64(pa).u64(pb).u64(pc).u32(32)
        };
        let o = b.run(&l);
        assert!(
            o.reports.iter().any(|r| r.kind == Finding::SharedRace),
            "barrier {which}: {:?}",
            o.reports
        );
    }
}
