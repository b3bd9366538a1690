//! Bulk copies: that they come late, and what must be waited for.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

const SOURCE: &str = include_str!("ptx/bulk.ptx");

fn edited(edits: &[(&str, &str)]) -> String {
    let mut source = SOURCE.to_string();
    for (from, to) in edits {
        assert!(source.contains(from), "{from}");
        source = source.replacen(from, to, 1);
    }
    source
}

fn through(source: &str, seed: u64) -> (Outcome, Vec<u32>) {
    let mut b = Bench::new(source);
    let p = b.words(&(0..128).collect::<Vec<u32>>());
    let q = b.buffer(512);
    let l = Launch {
        seed,
        ..launch("through", 1, 128).u64(p).u64(q)
    };
    let o = b.run(&l);
    (o, b.read(q, 128))
}

fn twice(source: &str) -> (Outcome, u32) {
    let mut b = Bench::new(source);
    let (p, q) = (b.buffer(16), b.buffer(16));
    let o = b.run(&launch("twice", 1, 1).u64(p).u64(q));
    (o, b.read(q, 1)[0])
}

/// Every seed finds one of these kinds at the line with the mark.
fn always(edits: &[(&str, &str)], kinds: &[Finding], mark: &str) {
    let source = edited(edits);
    let line = line_of(&source, "through", mark);
    for seed in 0..8 {
        let (o, _) = through(&source, seed);
        let hit = |r: &Report| kinds.contains(&r.kind) && r.line == line;
        assert!(o.reports.iter().any(hit), "{edits:?}: {:?}", o.reports);
    }
}

#[test]
fn words_come_and_go() {
    for seed in 0..16 {
        let (o, got) = through(SOURCE, seed);
        assert!(o.clean(), "{:?}", o.reports);
        assert_eq!(got, (1..129).collect::<Vec<u32>>());
        assert_eq!(o.counters.total.global_bytes, 1024);
    }
    // The same seed is the same run.
    assert_eq!(through(SOURCE, 5).0, through(SOURCE, 5).0);
}

#[test]
fn what_comes_is_waited_for() {
    let kinds = [Finding::EarlyRead, Finding::SharedRace];
    always(&[("@!%p bra WAIT;", "")], &kinds, "ld.shared.u32");
    // A phase that expects no bytes says nothing of them.
    let plain = (
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r5;",
        "mbarrier.arrive.shared::cta.b64 _, [%r1];",
    );
    let source = edited(&[plain]);
    for seed in 0..8 {
        assert!(!through(&source, seed).0.clean());
    }
    let source = edited(&[("b64 _, [%r1], %r5;", "b64 _, [%r1], 528;")]);
    let (o, _) = through(&source, 0);
    let r = o.reports.iter().find(|r| r.kind == Finding::Deadlock);
    let said = r.is_some_and(|r| r.message.contains("0 of 1 arrivals and 16 bytes"));
    assert!(said, "{:?}", o.reports);
}

#[test]
fn what_goes_is_fenced_and_waited_for() {
    let store = "bulk_group [%d1]";
    let fence = "fence.proxy.async.shared::cta;\n    bar.sync 0;";
    always(
        &[(fence, "bar.sync 0;")],
        &[Finding::MissingProxyFence],
        store,
    );
    always(
        &[(fence, "fence.proxy.async.shared::cta;")],
        &[Finding::SharedRace],
        store,
    );
    always(
        &[("cp.async.bulk.wait_group 0;\nOUT", "OUT")],
        &[Finding::Undefined],
        store,
    );
}

#[test]
fn barriers_are_made_visible_to_copies() {
    let fence = ("@%one fence.mbarrier_init.release.cluster;\n", "\n");
    let load = "complete_tx::bytes [%r2]";
    always(&[fence], &[Finding::MissingProxyFence], load);
    let other = (fence.0, "fence.proxy.async;\n");
    let o = through(&edited(&[other]), 0).0;
    assert!(o.clean(), "{:?}", o.reports);
}

#[test]
fn sizes_and_places_are_multiples_of_16() {
    let load = "complete_tx::bytes [%r2]";
    for edit in [
        ("mov.u32 %r5, 512", "mov.u32 %r5, 508"),
        ("[%r2], [%d0], %r5", "[%r2], [%d0+8], %r5"),
        ("[%r2], [%d0], %r5", "[%r2+4], [%d0], %r5"),
    ] {
        let mark = if edit.1.contains("+4") {
            "[%r2+4]"
        } else {
            load
        };
        always(&[edit], &[Finding::Misaligned], mark);
    }
    let long = ("mov.u32 %r5, 512", "mov.u32 %r5, 528");
    always(&[long], &[Finding::OutOfBounds], load);
}

#[test]
fn groups_are_waited_for_in_turn() {
    let (o, got) = twice(SOURCE);
    assert!(o.clean(), "{:?}", o.reports);
    assert_eq!(got, 16);
    let found = |edit: (&str, &str), kind: Finding, mark: &str| {
        let source = edited(&[edit]);
        let (o, _) = twice(&source);
        let line = line_of(&source, "twice", mark);
        let hit = |r: &Report| r.kind == kind && r.line == line;
        assert!(o.reports.iter().any(hit), "{edit:?}: {:?}", o.reports);
    };
    // The buffer is still read.
    let wait = "cp.async.bulk.wait_group.read 0;\n";
    found((wait, "\n"), Finding::SharedRace, "// again");
    // What is written is not there yet when it was only read.
    let last = "cp.async.bulk.wait_group 0;\n    ld.global";
    let read = "cp.async.bulk.wait_group.read 0;\n    ld.global";
    found((last, read), Finding::GlobalRace, "ld.global.u32 %r5");
}
