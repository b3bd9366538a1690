//! Counters of known kernels.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

const SOURCE: &str = include_str!("ptx/memory.ptx");

fn counts(o: &Outcome, line: u32) -> Counts {
    let found = o.counters.by_line.iter().find(|l| l.0 == line);
    found.unwrap_or_else(|| panic!("line {line} did not run")).1
}

#[test]
fn bank_conflicts_are_those_of_the_stride() {
    for (by, passes) in [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 1),
        (4, 4),
        (8, 8),
        (16, 16),
        (32, 32),
        (33, 1),
        (31, 1),
    ] {
        let mut b = Bench::new(SOURCE);
        let o = b.buffer(128);
        let l = Launch {
            checks: Checks::none(),
            ..launch("strided", 1, 32).u32(by).u64(o)
        };
        let out = b.clean(&l);
        let c = counts(&out, line_of(SOURCE, "strided", "ld.shared"));
        assert_eq!(
            (c.shared_requests, c.wavefronts, c.conflicts),
            (1, passes, passes - 1),
            "stride {by}"
        );
    }
}

#[test]
fn vectors_go_by_quarters_of_a_warp() {
    for (by, passes) in [(1, 4), (2, 8), (4, 16), (8, 32), (9, 4)] {
        let mut b = Bench::new(SOURCE);
        let out = b.clean(&launch("strided_vectors", 1, 32).u32(by));
        let c = counts(&out, line_of(SOURCE, "strided_vectors", "st.shared"));
        assert_eq!(
            (c.wavefronts, c.conflicts),
            (passes, passes - 4),
            "stride {by}"
        );
    }
}

#[test]
fn sectors_are_those_touched() {
    for (by, first, sectors, lines) in [
        (1, 0, 4, 1),
        (1, 1, 5, 2),
        (2, 0, 8, 2),
        (8, 0, 32, 8),
        (32, 0, 32, 32),
        (0, 5, 1, 1),
    ] {
        let mut b = Bench::new(SOURCE);
        let p = b.words(&[1; 1024]);
        let out = b.clean(&launch("gathered", 1, 32).u64(p).u32(by).u32(first));
        let c = counts(&out, line_of(SOURCE, "gathered", "ld.global"));
        assert_eq!(
            (c.global_requests, c.sectors, c.lines, c.global_bytes),
            (1, sectors, lines, 128),
            "{by} {first}"
        );
    }
}

#[test]
fn lanes_barriers_and_classes_are_counted() {
    let o = crate::suite::memory::tiled(32, 1, Checks::default());
    let at = |mark: &str| counts(&o, line_of(SOURCE, "tiled", mark));
    // Four CTAs of eight warps, two tiles, sixteen steps.
    let fma = at("fma.rn.f32");
    assert_eq!(
        (fma.issued, fma.lanes),
        (4 * 8 * 2 * 16, 4 * 8 * 2 * 16 * 32)
    );
    let first = at("bar.sync");
    assert_eq!((first.barriers, first.waits), (64, 64));
    assert_eq!(o.counters.total.barriers, 128);
    let float = o
        .counters
        .classes
        .iter()
        .find(|c| c.0 == Class::Float)
        .unwrap();
    assert_eq!(float.1, fma.issued);
    // Rows of a are read by half warps at one word each, those of b without conflicts.
    assert_eq!(o.counters.total.conflicts, 0);
}

#[test]
fn tables_keep_to_their_width_and_show_lines_whole() {
    let o = crate::suite::memory::tiled(32, 1, Checks::default());
    let words = |t: &str| t.split_whitespace().collect::<String>();
    for width in [72, 100, 200] {
        let t = counters_table(&o.counters, SOURCE, width);
        assert!(t.lines().all(|l| l.chars().count() <= width), "{t}");
        let shown = words(&t);
        for (line, _) in &o.counters.by_line {
            let text = SOURCE.lines().nth(*line as usize - 1).unwrap();
            assert!(shown.contains(&words(text)), "{text} in\n{t}");
        }
    }
}

#[test]
fn the_first_request_of_an_instruction_is_kept_lane_by_lane() {
    for by in [0, 1, 2, 8, 31] {
        let mut b = Bench::new(SOURCE);
        let o = b.buffer(256);
        let l = Launch {
            requests: true,
            checks: Checks::none(),
            ..launch("strided", 3, 64).u32(by).u64(o)
        };
        let out = b.clean(&l);
        let line = line_of(SOURCE, "strided", "ld.shared");
        let kept: Vec<&Request> = out.requests.iter().filter(|r| r.line == line).collect();
        let [one] = kept[..] else {
            panic!("{kept:?}");
        };
        assert!(one.shared && one.bytes == 4 && one.cta[0] < 3 && one.warp < 2);
        let c = counts(&out, line);
        assert_eq!(one.passes().0 * c.shared_requests, c.wavefronts, "{by}");
        let at: Vec<u64> = one.lanes.iter().map(|a| a.unwrap()).collect();
        assert!(at.windows(2).all(|w| w[1] - w[0] == u64::from(by) * 4));
        let global = out.requests.iter().find(|r| !r.shared).unwrap();
        let c = counts(&out, global.line);
        assert_eq!(global.sectors().0 * c.global_requests, c.sectors, "{by}");
    }
    // Nothing is kept that nobody asked for.
    let mut b = Bench::new(SOURCE);
    let o = b.buffer(256);
    let out = b.clean(&launch("strided", 1, 32).u32(1).u64(o));
    assert!(out.requests.is_empty());
}

/// A request of `bytes` at each of these addresses.
fn request(shared: bool, at: &[u64], bytes: u32) -> Request {
    let mut lanes = [None; 32];
    for (lane, a) in lanes.iter_mut().zip(at) {
        *lane = Some(*a);
    }
    Request {
        line: 1,
        shared,
        cta: [0; 3],
        warp: 0,
        bytes,
        lanes,
    }
}

#[test]
fn strides_conflict_as_known() {
    let stride = |s: u64, bytes: u32| {
        let l: Vec<u64> = (0..32).map(|k| k * s).collect();
        request(true, &l, bytes).passes()
    };
    assert_eq!(stride(4, 4), (1, 1));
    assert_eq!(stride(8, 4), (2, 1));
    assert_eq!(stride(128, 4), (32, 1));
    assert_eq!(stride(132, 4), (1, 1));
    assert_eq!(stride(0, 4), (1, 1));
    assert_eq!(stride(8, 8), (2, 2));
    assert_eq!(stride(16, 16), (4, 4));
    assert_eq!(stride(128, 16), (32, 4));
}

#[test]
fn sectors_as_known() {
    let at = |s: u64| (0..32).map(|k| 0x1000 + k * s).collect::<Vec<u64>>();
    let sectors = |at: &[u64], bytes: u32| request(false, at, bytes).sectors();
    assert_eq!(sectors(&at(4), 4), (4, 1));
    assert_eq!(sectors(&at(8), 4), (8, 2));
    assert_eq!(sectors(&at(128), 4), (32, 32));
    assert_eq!(sectors(&at(16), 16), (16, 4));
    assert_eq!(sectors(&at(0), 4), (1, 1));
    let off: Vec<u64> = at(4).iter().map(|a| a + 4).collect();
    assert_eq!(sectors(&off, 4), (5, 2));
    // Wild addresses are counted before they are refused.
    assert_eq!(sectors(&[u64::MAX], 16), (1, 1));
}
