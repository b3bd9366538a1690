//! Mistakes that must be found, at the right line.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

const SOURCE: &str = include_str!("ptx/faults.ptx");

fn bench() -> Bench {
    Bench::new(SOURCE)
}

fn line(kernel: &str, mark: &str) -> u32 {
    line_of(SOURCE, kernel, mark)
}

#[test]
fn a_barrier_orders_shared_memory() {
    let mut b = bench();
    let p = b.words(&(0..64).collect::<Vec<u32>>());
    b.clean(&launch("reverse", 1, 64).u64(p));
    assert_eq!(b.read(p, 64), (0..64).rev().collect::<Vec<u32>>());
}

#[test]
fn a_missing_barrier_is_a_race() {
    for seed in 0..8 {
        let mut b = bench();
        let p = b.words(&(0..64).collect::<Vec<u32>>());
        let l = Launch {
            seed,
            checks: Checks {
                uninitialised: false,
                ..Checks::default()
            },
            ..launch("reverse_race", 1, 64).u64(p)
        };
        let o = b.run(&l);
        let (st, ld) = (
            line("reverse_race", "st.shared"),
            line("reverse_race", "ld.shared"),
        );
        assert!(!o.clean());
        for r in &o.reports {
            assert_eq!(r.kind, Finding::SharedRace, "{r}");
            assert!(
                [(ld, Some(st)), (st, Some(ld))].contains(&(r.line, r.other_line)),
                "{r}"
            );
        }
    }
}

#[test]
fn readers_must_be_done_before_a_tile_is_written_again() {
    let mut b = bench();
    let p = b.buffer(256);
    let o = b.run(&launch("overwrite", 1, 64).u64(p));
    let (st, ld) = (
        line("overwrite", "st.shared"),
        line("overwrite", "ld.shared"),
    );
    assert!(!o.clean());
    for r in &o.reports {
        assert_eq!(r.kind, Finding::SharedRace);
        assert!(r.line == st || r.line == ld, "{r}");
    }
}

#[test]
fn out_of_bounds_is_found() {
    let mut b = bench();
    let p = b.buffer(64 * 4 - 4);
    let o = b.run(&launch("past_the_end", 1, 64).u64(p));
    let r = only(&o, Finding::OutOfBounds, line("past_the_end", "st.global"));
    assert_eq!((r.warp, r.lane), (1, 31));
    assert!(
        r.message.contains("4 bytes past the end of the 252 bytes"),
        "{}",
        r.message
    );
    let o = b.run(&launch("past_the_end", 1, 32).u64(64));
    only(&o, Finding::OutOfBounds, line("past_the_end", "st.global"));
}

#[test]
fn freed_memory_is_out_of_bounds() {
    let mut b = bench();
    let p = b.buffer(256);
    b.machine.memory.free(p).unwrap();
    let o = b.run(&launch("past_the_end", 1, 32).u64(p));
    let r = only(&o, Finding::OutOfBounds, line("past_the_end", "st.global"));
    assert!(r.message.contains("freed"), "{}", r.message);
    assert!(b.machine.memory.free(p).is_err());
}

#[test]
fn misaligned_vectors_are_found() {
    let mut b = bench();
    let p = b.words(&[0; 16]);
    let o = b.run(&launch("misaligned_vector", 1, 32).u64(p));
    only(
        &o,
        Finding::Misaligned,
        line("misaligned_vector", "ld.global.v4"),
    );
}

#[test]
fn shared_memory_has_an_end() {
    let mut b = bench();
    let o = b.run(&launch("shared_past_the_end", 1, 32).u64(0));
    only(
        &o,
        Finding::OutOfBounds,
        line("shared_past_the_end", "st.shared"),
    );
}

#[test]
fn reading_what_nobody_wrote_is_found() {
    let mut b = bench();
    let (p, q) = (b.buffer(4), b.buffer(4));
    let o = b.run(&launch("copy_word", 1, 1).u64(p).u64(q));
    only(
        &o,
        Finding::UninitialisedMemory,
        line("copy_word", "ld.global"),
    );
    // Three of four bytes are not enough.
    b.machine.memory.write(q, &[1, 2, 3]).unwrap();
    let o = b.run(&launch("copy_word", 1, 1).u64(p).u64(q));
    only(
        &o,
        Finding::UninitialisedMemory,
        line("copy_word", "ld.global"),
    );
    b.machine.memory.write(q + 3, &[4]).unwrap();
    b.clean(&launch("copy_word", 1, 1).u64(p).u64(q));
    let o = b.run(&launch("shared_unwritten", 1, 1).u64(p));
    only(
        &o,
        Finding::UninitialisedShared,
        line("shared_unwritten", "ld.shared"),
    );
}

#[test]
fn registers_must_be_written_first() {
    let mut b = bench();
    let p = b.buffer(128);
    let o = b.run(&launch("register_unwritten", 1, 32).u64(p));
    let r = only(
        &o,
        Finding::UninitialisedRegister,
        line("register_unwritten", "add.u32 %r2"),
    );
    assert_eq!(r.lane, 31);
    assert!(r.message.contains("%r1"));
    // Where only lanes that wrote it are there, all is well.
    b.clean(&launch("register_unwritten", 1, 31).u64(p));
}

#[test]
fn checks_can_be_switched_off() {
    let mut b = bench();
    let p = b.buffer(128);
    let l = Launch {
        checks: Checks::none(),
        ..launch("register_unwritten", 1, 32).u64(p)
    };
    b.clean(&l);
}

#[test]
fn divergent_barriers_are_found() {
    let mut b = bench();
    let o = b.run(&launch("divergent_barrier", 1, 32));
    assert!(
        o.reports
            .iter()
            .all(|r| r.kind == Finding::DivergentBarrier)
    );
    let lines: Vec<u32> = o.reports.iter().map(|r| r.line).collect();
    assert!(
        lines.contains(&line("divergent_barrier", "bar.sync")),
        "{lines:?}"
    );
    b.clean(&launch("divergent_barrier", 1, 16));
}

#[test]
fn a_deadlock_says_who_waits_where() {
    let mut b = bench();
    let o = b.run(&launch("crossed_barriers", 1, 64));
    assert_eq!(o.reports.len(), 1);
    let r = &o.reports[0];
    assert_eq!(r.kind, Finding::Deadlock);
    for (warp, barrier, mark) in [(0, 1, "bar.sync 1"), (1, 2, "bar.sync 2")] {
        let want = format!(
            "CTA 0,0,0 warp {warp} lanes 0xffffffff line {}: waits at barrier {barrier}, where 32 of 64",
            line("crossed_barriers", mark)
        );
        assert!(r.message.contains(&want), "{}", r.message);
    }
}

#[test]
fn traps_and_endless_loops_end() {
    let mut b = bench();
    let o = b.run(&launch("trapped", 1, 32));
    let r = only(&o, Finding::Trap, line("trapped", "@%p trap"));
    assert_eq!(r.lane, 3);
    let l = Launch {
        step_limit: 10_000,
        ..launch("forever", 1, 32)
    };
    let o = b.run(&l);
    assert_eq!(o.reports[0].kind, Finding::StepLimit);
}

#[test]
fn ctas_that_write_the_same_word_race() {
    let mut b = bench();
    let p = b.buffer(4);
    let one = b.run(&launch("write_write", 8, 1).u64(p));
    let r = only(&one, Finding::GlobalRace, line("write_write", "st.global"));
    assert!(r.message.contains("CTA"), "{}", r.message);
    // The same seed finds the same.
    let two = b.run(&launch("write_write", 8, 1).u64(p));
    assert_eq!(one.reports, two.reports);
}

#[test]
fn variables_of_modules_are_there() {
    let mut b = bench();
    let p = b.buffer(4);
    b.clean(&launch("tables", 1, 1).u64(p));
    assert_eq!(b.read(p, 1), [100]);
    let (table, bytes) = b.module.global("table").unwrap();
    assert_eq!((b.read(table, 4), bytes), (vec![10, 20, 30, 40], 16));
}

#[test]
fn copies_land_when_somebody_waits() {
    let mut b = bench();
    let p = b.words(&(0..128).collect::<Vec<u32>>());
    let o = b.run(&launch("early", 1, 32).u64(p));
    assert!(
        o.reports
            .iter()
            .any(|r| r.kind == Finding::EarlyRead && r.line == line("early", "ld.shared")),
        "{:?}",
        o.reports
    );
    let p = b.words(&(0..128).collect::<Vec<u32>>());
    let q = b.buffer(512);
    b.clean(&launch("two_groups", 1, 32).u64(p).u64(q));
    let want: Vec<u32> = (0..128).map(|k| if k % 4 < 2 { k } else { 0 }).collect();
    assert_eq!(b.read(q, 128), want);
}

#[test]
fn barriers_are_for_those_who_stay() {
    let mut b = bench();
    let p = b.buffer(128);
    b.clean(&launch("leavers", 1, 64).u64(p));
    assert_eq!(b.read(p, 32), (0..32).rev().collect::<Vec<u32>>());
}

#[test]
fn bytes_of_a_word_belong_to_those_who_write_them() {
    for threads in [1, 2] {
        let mut b = bench();
        let p = b.buffer(2 * 64 * 3);
        let l = Launch {
            threads,
            ..launch("neighbours", 3, 64).u64(p)
        };
        b.clean(&l);
        let got = b.machine.memory.read(p, 384).unwrap();
        let halves = got
            .chunks(2)
            .map(|c| u16::from_le_bytes(c.try_into().unwrap()));
        assert!(halves.eq(0..192));
    }
}

#[test]
fn walking_together_orders_nothing() {
    let mut b = bench();
    let o = b.run(&launch("warp_synchronous", 1, 32).u64(0));
    only(
        &o,
        Finding::SharedRace,
        line("warp_synchronous", "ld.shared"),
    );
}

#[test]
fn constants_stay_as_they_are() {
    let mut b = bench();
    let o = b.run(&launch("write_constant", 1, 1));
    only(&o, Finding::ReadOnly, line("write_constant", "st.u32"));
}

#[test]
fn copies_stay_inside_their_source() {
    let mut b = bench();
    let p = b.words(&[0; 7]);
    let o = b.run(&launch("copy_past_the_end", 1, 1).u64(p));
    only(
        &o,
        Finding::OutOfBounds,
        line("copy_past_the_end", "cp.async.cg"),
    );
    let p = b.words(&[0; 8]);
    b.clean(&launch("copy_past_the_end", 1, 1).u64(p));
}

#[test]
fn a_launch_that_takes_too_much_of_this_machine_is_refused() {
    let source = format!("{HEAD}.visible .entry k() {{ .local .b8 x[500000]; ret; }}");
    let b = Bench::new(&source);
    let e = b
        .machine
        .run(&b.module, &launch("k", 1000, 1024))
        .unwrap_err();
    assert!(e.to_string().contains("let fewer be in flight"), "{e}");
}
