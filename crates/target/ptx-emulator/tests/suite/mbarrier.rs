//! Barrier objects: phases, parities, what they order, and what is wrong with them.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

pub const SOURCE: &str = include_str!("ptx/mbarrier.ptx");

fn line(kernel: &str, mark: &str) -> u32 {
    line_of(SOURCE, kernel, mark)
}

/// A run of a kernel of the source, with pieces of its text replaced, on one buffer.
fn run(source: &str, kernel: &str, threads: u32, seed: u64) -> (Outcome, Vec<u32>) {
    let mut b = Bench::new(source);
    let p = b.buffer(256);
    let l = Launch {
        seed,
        ..launch(kernel, 1, threads).u64(p)
    };
    let o = b.run(&l);
    let got = b.read(p, 32);
    (o, got)
}

#[test]
fn arrivals_release_and_waits_acquire() {
    for seed in 0..10 {
        let (o, got) = run(SOURCE, "handover", 64, seed);
        assert!(o.clean(), "{:?}", o.reports);
        let want: Vec<u32> = (0..32u32).map(|l| (l ^ 1) * (l ^ 1)).collect();
        assert_eq!(got, want);
    }
    // Without the wait nothing orders the two.
    let source = SOURCE.replacen("@!%p bra READ;", "", 1);
    let (o, _) = run(&source, "handover", 64, 1);
    assert!(o.reports.iter().any(|r| r.kind == Finding::SharedRace));
}

#[test]
fn everybody_must_see_a_barrier_made() {
    let source = SOURCE.replacen("    bar.sync 0;\n", "", 1);
    let found = (0..8).any(|seed| {
        let (o, _) = run(&source, "handover", 64, seed);
        let kinds = [Finding::SharedRace, Finding::Undefined];
        assert!(!o.clean());
        o.reports.iter().all(|r| kinds.contains(&r.kind))
    });
    assert!(found);
}

#[test]
fn parities_turn_in_a_ring() {
    for seed in 0..10 {
        let (o, got) = run(SOURCE, "ring", 64, seed);
        assert!(o.clean(), "{:?}", o.reports);
        let want: Vec<u32> = (0..32u32).map(|l| 2800 + 8 * (l ^ 1)).collect();
        assert_eq!(got, want);
    }
}

#[test]
fn a_ring_without_one_of_its_waits_races() {
    for cut in ["@!%p bra WAIT_EMPTY;", "@!%p bra WAIT_FULL;"] {
        let source = SOURCE.replacen(cut, "", 1);
        let races = (0..8).filter(|seed| {
            let (o, _) = run(&source, "ring", 64, *seed);
            // Phases may also turn twice under a waiter, who then waits without end.
            assert!(!o.clean());
            o.reports.iter().any(|r| r.kind == Finding::SharedRace)
        });
        assert!(races.count() > 0, "{cut}");
    }
}

#[test]
fn a_wait_without_an_end_names_its_barrier() {
    let (o, _) = run(SOURCE, "one_lacks", 32, 0);
    let r = o.reports.iter().find(|r| r.kind == Finding::Deadlock);
    let r = r.unwrap_or_else(|| panic!("{:?}", o.reports));
    assert_eq!(o.reports.len(), 1);
    let want = "the mbarrier at shared 0x8, in phase 0, in which 1 of 32 arrivals and 0 bytes";
    assert!(r.message.contains(want), "{}", r.message);
}

#[test]
fn what_hardware_leaves_undefined_is_found() {
    for (kernel, mark) in [
        ("too_many", "mbarrier.arrive"),
        ("not_there", "mbarrier.arrive"),
        ("overwritten", "st.shared"),
    ] {
        let (o, _) = run(SOURCE, kernel, 1, 0);
        only(&o, Finding::Undefined, line(kernel, mark));
    }
}

#[test]
fn tokens_name_their_phase() {
    let (o, got) = run(SOURCE, "tokens", 1, 0);
    assert!(o.clean(), "{:?}", o.reports);
    assert_eq!(got[..3], [1, 1, 0]);
}

#[test]
fn asynchronous_copies_arrive_by_themselves() {
    for seed in 0..10 {
        let mut b = Bench::new(SOURCE);
        let (p, q) = (b.words(&(0..128).collect::<Vec<u32>>()), b.buffer(128));
        let l = Launch {
            seed,
            ..launch("copied", 1, 64).u64(p).u64(q)
        };
        b.clean(&l);
        let want: Vec<u32> = (0..32u32).map(|l| 4 * (l ^ 1)).collect();
        assert_eq!(b.read(q, 32), want);
    }
}

#[test]
fn registers_come_from_those_who_give_them() {
    for seed in 0..4 {
        let (o, _) = run(SOURCE, "registers", 384, seed);
        assert!(o.clean(), "{:?}", o.reports);
    }
    let wait = |text: &str| run(&SOURCE.replacen("u32 40;", text, 1), "registers", 384, 0).0;
    let o = wait("u32 48;");
    let r = o.reports.iter().find(|r| r.kind == Finding::Deadlock);
    assert!(
        r.is_some_and(|r| r.message.contains("registers that other warps give back")),
        "{:?}",
        o.reports
    );
    let o = wait("u32 176;");
    assert!(o.reports.iter().any(|r| r.kind == Finding::Undefined));
    let source = SOURCE.replacen(".minnctapersm 1", "", 1);
    let (o, _) = run(&source, "registers", 384, 0);
    assert!(o.reports.iter().all(|r| r.kind == Finding::Undefined));
    assert!(!o.clean());
}
