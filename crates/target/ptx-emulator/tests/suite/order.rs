//! CTAs and the host, ordered by fences, scopes and flags.

use crate::suite::common::*;
use shopfloor_ptx_emulator::*;

const SOURCE: &str = include_str!("ptx/order.ptx");

/// Runs a kernel that passes a message, with several seeds.
fn message(kernel: &str, seed: u64) -> (Outcome, u32) {
    let mut b = Bench::new(SOURCE);
    let (data, flag, out) = (b.words(&[0]), b.words(&[0]), b.words(&[0]));
    let l = Launch {
        seed,
        ..launch(kernel, 2, 1).u64(data).u64(flag).u64(out)
    };
    let o = b.run(&l);
    let got = b.read(out, 1)[0];
    (o, got)
}

#[test]
fn release_and_acquire_order_a_message() {
    for kernel in ["release_acquire", "fences"] {
        for seed in 0..20 {
            let (o, got) = message(kernel, seed);
            assert!(o.clean(), "{kernel}: {:?}", o.reports);
            assert_eq!(got, 42);
        }
    }
}

#[test]
fn what_is_missing_or_too_narrow_is_found_at_any_seed() {
    for seed in 0..20 {
        let (o, _) = message("no_fence", seed);
        let at = line_of(SOURCE, "no_fence", "ld.global.u32 %r2");
        let r = only(&o, Finding::GlobalRace, at);
        assert_eq!(
            r.other_line,
            Some(line_of(SOURCE, "no_fence", "st.global.u32 [%d0]"))
        );
        let (o, _) = message("narrow_fence", seed);
        only(
            &o,
            Finding::GlobalRace,
            line_of(SOURCE, "narrow_fence", "ld.global.u32 %r2"),
        );
        let (o, _) = message("narrow_release", seed);
        let flag = o.reports.iter().find(|r| r.kind == Finding::NarrowScope);
        let flag = flag.unwrap_or_else(|| panic!("{:?}", o.reports));
        let lines = [
            line_of(SOURCE, "narrow_release", "st.release.cta"),
            line_of(SOURCE, "narrow_release", "ld.acquire"),
        ];
        assert!(lines.contains(&flag.line), "{flag}");
        assert!(o.reports.iter().any(|r| r.kind == Finding::GlobalRace));
    }
}

#[test]
fn one_lane_polls_for_its_cta() {
    for seed in 0..20 {
        let mut b = Bench::new(SOURCE);
        let (data, flag, out) = (b.buffer(256), b.words(&[0]), b.buffer(256));
        let l = Launch {
            seed,
            ..launch("one_lane_polls", 2, 64).u64(data).u64(flag).u64(out)
        };
        b.clean(&l);
        assert_eq!(b.read(out, 64), (0..64).collect::<Vec<u32>>());
    }
}

#[test]
fn the_last_cta_sees_all_parts() {
    for seed in 0..10 {
        let mut b = Bench::new(SOURCE);
        let (parts, counter, out) = (b.buffer(8 * 64 * 4), b.words(&[0]), b.words(&[0]));
        let l = Launch {
            seed,
            resident: 3,
            ..launch("last_one_sums", 8, 64)
                .u64(parts)
                .u64(counter)
                .u64(out)
        };
        b.clean(&l);
        assert_eq!(b.read(out, 1), [512 * 511 / 2]);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let steps = |seed| message("release_acquire", seed).0.counters;
    assert_eq!(steps(3), steps(3));
    assert!((0..20).any(|s| steps(s) != steps(3)));
}

/// Serves forty requests; the host orders its own with a release or, `fenced`, with a fence.
fn ring(kernel: &str, fenced: bool) -> (Vec<u32>, Outcome, u64) {
    let mut b = Bench::new(SOURCE);
    let at = b.machine.memory.allocate(272, MemoryKind::Host).unwrap();
    b.machine.memory.write(at, &[0; 272]).unwrap();
    let l = Launch {
        block: [1, 1, 1],
        ..Launch::new(kernel).u64(at)
    };
    let mut run = b.machine.start(&b.module, &l).unwrap();
    let m = &b.machine.memory;
    let mut got = Vec::new();
    for k in 0..40u32 {
        let slot = u64::from(k % 32 * 4);
        run.store(m, at + 16 + slot, &(100 + k).to_le_bytes(), HostOrder::Weak)
            .unwrap();
        let order = if fenced {
            run.fence();
            HostOrder::Relaxed
        } else {
            HostOrder::Release
        };
        run.store(m, at, &(k + 1).to_le_bytes(), order).unwrap();
        let mut slices = 0;
        loop {
            let tail = run.load(m, at + 8, 4, HostOrder::Acquire).unwrap();
            if tail == (k + 1).to_le_bytes() {
                break;
            }
            slices += 1;
            assert!(slices < 1000, "{:?}", run.dump(m));
            if run.slice(m, 50) == Status::Fault {
                return (got, run.outcome(), run.steps());
            }
        }
        let v = run.load(m, at + 144 + slot, 4, HostOrder::Weak).unwrap();
        got.push(u32::from_le_bytes(v.try_into().unwrap()));
    }
    // Without requests it goes to sleep, and costs nothing.
    let mut status = Status::Running;
    for _ in 0..100 {
        status = run.slice(m, 1000);
    }
    assert_eq!(status, Status::Parked);
    let idle = run.steps();
    run.slice(m, 100_000);
    assert_eq!(run.steps(), idle);
    run.store(m, at + 4, &1u32.to_le_bytes(), HostOrder::Relaxed)
        .unwrap();
    assert_eq!(run.slice(m, 100_000), Status::Done);
    (got, run.outcome(), run.steps())
}

#[test]
fn a_resident_kernel_serves_the_host() {
    let (got, o, steps) = ring("resident", false);
    assert!(o.clean(), "{:?}", o.reports);
    assert_eq!(got, (0..40).map(|k| 2 * (100 + k)).collect::<Vec<u32>>());
    assert!(steps < 5000, "{steps}");
}

#[test]
fn the_host_is_outside_the_scope_of_the_device() {
    let (_, o, _) = ring("resident_narrow", false);
    let head = line_of(SOURCE, "resident_narrow", "ld.acquire.gpu");
    assert!(
        o.reports
            .iter()
            .any(|r| r.kind == Finding::NarrowScope && r.line == head),
        "{:?}",
        o.reports
    );
    let read = line_of(SOURCE, "resident_narrow", "ld.global.u32 %r4");
    assert!(
        o.reports
            .iter()
            .any(|r| r.kind == Finding::GlobalRace && r.line == read),
        "{:?}",
        o.reports
    );
}

#[test]
fn a_lock_orders_those_who_take_it() {
    for seed in 0..10 {
        let mut b = Bench::new(SOURCE);
        let (lock, sum) = (b.words(&[0]), b.words(&[0]));
        let l = Launch {
            seed,
            ..launch("locked", 50, 1).u64(lock).u64(sum)
        };
        b.clean(&l);
        assert_eq!(b.read(sum, 1), [50]);
    }
}

#[test]
fn lanes_of_a_warp_may_take_a_lock_too() {
    // Lanes that hold the lock go on while others of their warp wait for it.
    let mut b = Bench::new(SOURCE);
    let (lock, sum) = (b.words(&[0]), b.words(&[0]));
    b.clean(&launch("locked", 2, 64).u64(lock).u64(sum));
    assert_eq!(b.read(sum, 1), [128]);
}

#[test]
fn polling_for_nothing_is_a_deadlock() {
    let mut b = Bench::new(SOURCE);
    let flag = b.words(&[0]);
    let o = b.run(&launch("lonely", 3, 32).u64(flag));
    assert_eq!(o.reports.len(), 1);
    let r = &o.reports[0];
    assert_eq!(r.kind, Finding::Deadlock);
    assert!(
        r.message.contains(&format!("polls {flag:#x}, which is 0")),
        "{}",
        r.message
    );
    assert!(o.counters.total.issued < 2000);
}

#[test]
fn a_cta_that_does_not_fit_beside_the_others_is_named() {
    let mut b = Bench::new(SOURCE);
    let (data, flag, out) = (b.words(&[0]), b.words(&[1]), b.words(&[0]));
    let _ = (data, out);
    b.machine.memory.write(flag, &0u32.to_le_bytes()).unwrap();
    let l = Launch {
        resident: 2,
        ..launch("lonely", 5, 32).u64(flag)
    };
    let o = b.run(&l);
    assert!(
        o.reports[0]
            .message
            .contains("3 CTAs have not started, as 2 are in flight"),
        "{}",
        o.reports[0]
    );
}

#[test]
fn a_fence_of_the_host_is_as_good_as_a_release() {
    let (got, o, _) = ring("resident", true);
    assert!(o.clean(), "{:?}", o.reports);
    assert_eq!(got.len(), 40);
}

#[test]
fn a_host_without_order_is_found() {
    let mut b = Bench::new(SOURCE);
    let at = b.machine.memory.allocate(272, MemoryKind::Host).unwrap();
    b.machine.memory.write(at, &[0; 272]).unwrap();
    let l = Launch {
        block: [1, 1, 1],
        ..Launch::new("resident").u64(at)
    };
    let mut run = b.machine.start(&b.module, &l).unwrap();
    let m = &b.machine.memory;
    run.store(m, at + 16, &[5, 0, 0, 0], HostOrder::Weak)
        .unwrap();
    run.store(m, at, &[1, 0, 0, 0], HostOrder::Relaxed).unwrap();
    while run.slice(m, 100) == Status::Running {}
    // The kernel read the request without an order, and the host reads the answer without one.
    run.load(m, at + 144, 4, HostOrder::Weak).unwrap();
    let read = line_of(SOURCE, "resident", "ld.global.u32 %r4");
    let write = line_of(SOURCE, "resident", "st.global.u32 [%d2+144]");
    let lines: Vec<u32> = run.reports().iter().map(|r| r.line).collect();
    assert_eq!(lines, [read, write], "{:?}", run.reports());
    assert!(run.reports()[1].cta.is_none());
}

#[test]
fn another_launch_on_the_same_memory_is_seen_after_a_nudge() {
    let mut b = Bench::new(SOURCE);
    let flag = b.words(&[0]);
    let mut run = b
        .machine
        .start(&b.module, &launch("lonely", 1, 32).u64(flag))
        .unwrap();
    let m = &b.machine.memory;
    while run.slice(m, 100) == Status::Running {}
    assert_eq!(run.slice(m, 100), Status::Parked);
    m.write(flag, &[1, 0, 0, 0]).unwrap();
    assert_eq!(run.slice(m, 100), Status::Parked);
    run.nudge();
    assert_eq!(run.slice(m, 1000), Status::Done);
    assert_eq!(run.finished(), 1);
}
