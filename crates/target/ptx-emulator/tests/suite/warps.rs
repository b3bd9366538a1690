//! Exchanges inside a warp, and barriers of a CTA.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

const SOURCE: &str = include_str!("ptx/warps.ptx");

fn run(kernel: &str, threads: u32, words: usize) -> Vec<u32> {
    let mut b = Bench::new(SOURCE);
    let p = b.buffer(words * 4);
    b.clean(&launch(kernel, 1, threads).u64(p));
    b.read(p, words)
}

#[test]
fn butterflies_sum_a_warp() {
    let mut b = Bench::new(SOURCE);
    let p = b.floats(&(0..32).map(|k| k as f32).collect::<Vec<f32>>());
    b.clean(&launch("sum_bfly", 1, 32).u64(p));
    assert_eq!(b.read_floats(p, 32), [496.0; 32]);
}

#[test]
fn shuffles_in_all_modes() {
    let got = run("shuffles", 32, 256);
    for l in 0..32u32 {
        let r = &got[l as usize * 8..][..8];
        assert_eq!((r[0], r[4]), if l >= 3 { (l - 3, 1) } else { (l, 0) });
        assert_eq!((r[1], r[5]), if l + 5 < 32 { (l + 5, 1) } else { (l, 0) });
        assert_eq!((r[2], r[6]), (7, 1));
        assert_eq!(
            (r[3], r[7]),
            if l % 8 + 2 < 8 { (l + 2, 1) } else { (l, 0) }
        );
    }
}

#[test]
fn votes_matches_and_reductions() {
    let got = run("votes", 32, 256);
    for l in 0..32u32 {
        let r = &got[l as usize * 8..][..8];
        assert_eq!(r[0], 31);
        assert_eq!(r[1], 0x1111_1111 << (l % 4));
        assert_eq!(r[2], 0);
        assert_eq!((r[3], r[4]), (496, 31));
        assert_eq!(r[5], 1);
        assert_eq!(r[6], (1u32 << l) - 1);
        assert_eq!(r[7], !((1u32 << l) - 1));
    }
}

#[test]
fn lanes_name_those_who_are_there() {
    let got = run("halves", 32, 32);
    for l in 0..32u32 {
        assert_eq!(got[l as usize], if l < 16 { l ^ 2 } else { l ^ 1 });
    }
}

#[test]
fn warp_barriers_join_lanes_from_two_places() {
    let got = run("warp_barrier", 32, 32);
    assert_eq!(got, (0..32).map(|l| l ^ 16).collect::<Vec<u32>>());
}

#[test]
fn barriers_count_predicates() {
    assert_eq!(run("reductions", 64, 64), [140; 64]);
    assert_eq!(run("reductions", 32, 32), [1132; 32]);
}

#[test]
fn arriving_is_enough_for_a_producer() {
    for seed in 0..10 {
        let mut b = Bench::new(SOURCE);
        let p = b.buffer(128);
        b.clean(&Launch {
            seed,
            ..launch("handover", 1, 64).u64(p)
        });
        assert_eq!(b.read(p, 32), (0..32).map(|k| k * k).collect::<Vec<u32>>());
    }
}

#[test]
fn a_lane_outside_the_mask_is_found() {
    let source = SOURCE.replace("31, 0x0000ffff;", "31, 0x00007fff;");
    let mut b = Bench::new(&source);
    let p = b.buffer(128);
    let o = b.run(&launch("halves", 1, 32).u64(p));
    let at = line_of(&source, "halves", "0x00007fff");
    assert!(
        o.reports
            .iter()
            .any(|r| r.kind == Finding::WarpMask && r.line == at && r.lane == 15),
        "{:?}",
        o.reports
    );
}
