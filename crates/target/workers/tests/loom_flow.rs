//! Every interleaving of the workers' algorithm, on models small enough to be exhausted:
//! `RUSTFLAGS="--cfg loom" cargo test -p shopfloor-workers --test loom_flow --release`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use shopfloor_workers::flow::{Exit, Flow, Sleep, Slot, StepSpec};
use shopfloor_workers::lease::{LeaseHolder, WorkerLeases};

fn specs(waits: &[&[u32]]) -> Vec<StepSpec> {
    let each = waits.iter().map(|w| StepSpec {
        chunk: 1,
        waits: w.to_vec(),
        tiles: vec![],
        awaited: false,
    });
    let mut specs: Vec<StepSpec> = each.collect();
    StepSpec::await_all(&mut specs);
    specs
}

fn whole(_: usize, _: usize, _: u32, _: u32) -> (u32, u32) {
    (0, 0)
}

/// A task starts when those are done that it needs, whoever ran them, while others still run. Threads
/// are taken off at most twice where they could go on: without a bound this model takes too long.
#[test]
fn tasks_wait_for_tasks() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        struct Shared {
            flow: Flow,
            specs: Vec<StepSpec>,
            first: [UnsafeCell<usize>; 2],
            second: AtomicUsize,
        }
        // SAFETY: the waits order the accesses, which is what loom checks here.
        unsafe impl Sync for Shared {}
        let tasks = [2, 2];
        let mut specs = specs(&[&[], &[]]);
        specs[1].tiles = vec![0];
        StepSpec::await_all(&mut specs);
        let mut flow = Flow::new(2, 2);
        flow.lay(&specs, &tasks);
        let s = Arc::new(Shared {
            flow,
            specs,
            first: [UnsafeCell::new(0), UnsafeCell::new(0)],
            second: AtomicUsize::new(0),
        });
        let work = move |s: &Shared, worker: usize| {
            s.flow.walk(
                worker,
                s.flow.round(),
                &s.specs,
                &tasks,
                |_, _, first, count| (first, first + count),
                || false,
                || true,
                |step, t, _| {
                    let cell = &s.first[t as usize];
                    if step == 0 {
                        // SAFETY: one worker runs the task.
                        cell.with_mut(|p| unsafe { *p = 1 + t as usize });
                    } else {
                        // SAFETY: the task of step 0 of this number is done.
                        let seen = cell.with(|p| unsafe { *p });
                        s.second.fetch_add(seen, Ordering::Relaxed);
                    }
                },
            );
        };
        let other = s.clone();
        let t = thread::spawn(move || work(&other, 1));
        work(&s, 0);
        t.join().unwrap();
        assert_eq!(s.second.load(Ordering::Relaxed), 3);
    });
}

/// Two workers, two steps: every task once, and a step sees what it waited for.
#[test]
fn tickets_and_waits() {
    loom::model(|| {
        struct Shared {
            flow: Flow,
            first: [UnsafeCell<usize>; 2],
            second: AtomicUsize,
        }
        // SAFETY: the waits order the accesses, which is what loom checks here.
        unsafe impl Sync for Shared {}
        let s = Arc::new(Shared {
            flow: Flow::new(2, 2),
            first: [UnsafeCell::new(0), UnsafeCell::new(0)],
            second: AtomicUsize::new(0),
        });
        let work = |s: &Shared, worker: usize| {
            s.flow.walk(
                worker,
                s.flow.round(),
                &specs(&[&[], &[0]]),
                &[2, 1],
                whole,
                || false,
                || true,
                |step, first, count| {
                    assert_eq!(count, 1);
                    if step == 0 {
                        // SAFETY: task `first` is run by one worker only.
                        s.first[first as usize].with_mut(|p| unsafe { *p += 1 });
                    } else {
                        // SAFETY: all tasks of step 0 are done.
                        let sum: usize = s.first.iter().map(|c| c.with(|p| unsafe { *p })).sum();
                        assert_eq!(sum, 2);
                        s.second.fetch_add(1, Ordering::Relaxed);
                    }
                },
            );
        };
        let other = s.clone();
        let t = thread::spawn(move || work(&other, 1));
        work(&s, 0);
        t.join().unwrap();
        assert_eq!(s.second.load(Ordering::Relaxed), 1);
    });
}

/// A step without tasks is over only when what it waits for is: waits are kept by the planner only
/// where another wait does not imply them.
#[test]
fn empty_steps_pass_waits_on() {
    loom::model(|| {
        struct Shared {
            flow: Flow,
            first: UnsafeCell<usize>,
            last: AtomicUsize,
        }
        // SAFETY: the waits order the accesses, which is what loom checks here.
        unsafe impl Sync for Shared {}
        let s = Arc::new(Shared {
            flow: Flow::new(3, 2),
            first: UnsafeCell::new(0),
            last: AtomicUsize::new(0),
        });
        let work = |s: &Shared, worker: usize| {
            s.flow.walk(
                worker,
                s.flow.round(),
                &specs(&[&[], &[0], &[1]]),
                &[1, 0, 1],
                whole,
                || false,
                || true,
                |step, _, _| match step {
                    // SAFETY: one worker runs the only task of step 0.
                    0 => s.first.with_mut(|p| unsafe { *p = 7 }),
                    1 => panic!("step 1 has no tasks"),
                    _ => {
                        // SAFETY: step 2 waits for step 1, which waits for step 0.
                        let seen = s.first.with(|p| unsafe { *p });
                        s.last.store(seen, Ordering::Relaxed);
                    }
                },
            );
        };
        let other = s.clone();
        let t = thread::spawn(move || work(&other, 1));
        work(&s, 0);
        t.join().unwrap();
        assert_eq!(s.last.load(Ordering::Relaxed), 7);
    });
}

/// A job is not let go of while a worker is in it, and a slot serves one job after another.
#[test]
fn slots() {
    loom::model(|| {
        struct Shared {
            slot: Slot<UnsafeCell<usize>>,
        }
        // SAFETY: the slot's protocol is what is checked.
        unsafe impl Sync for Shared {}
        // SAFETY: as above.
        unsafe impl Send for Shared {}
        let s = Arc::new(Shared { slot: Slot::new() });
        let other = s.clone();
        let t = thread::spawn(move || {
            let mut seen = 0;
            for _ in 0..2 {
                let g = other.slot.enter(seen, |job, full| {
                    assert!(full);
                    // SAFETY: readers share the job until it is retired.
                    job.with(|p| unsafe { assert_ne!(*p, 0) });
                    Exit::Empty
                });
                if let Some(g) = g {
                    assert_ne!(g, seen);
                    seen = g;
                }
            }
        });
        for n in 1..=2 {
            let job = Box::new(UnsafeCell::new(n));
            assert!(s.slot.claim());
            s.slot.publish(&*job, 1, 0);
            s.slot.retire();
            // SAFETY: nobody else is in the job any more.
            job.with_mut(|p| unsafe { *p = 0 });
        }
        t.join().unwrap();
    });
}

/// A worker that goes to sleep does not miss what was published meanwhile.
#[test]
fn parking() {
    loom::model(|| {
        struct Shared {
            bed: Sleep,
            work: AtomicUsize,
        }
        let s = Arc::new(Shared {
            bed: Sleep::new(),
            work: AtomicUsize::new(0),
        });
        let other = s.clone();
        let t = thread::spawn(move || {
            let found = || other.work.load(Ordering::SeqCst) == 1;
            while !found() {
                other.bed.sleep(found, thread::park);
            }
        });
        let handle = t.thread().clone();
        s.work.store(1, Ordering::SeqCst);
        s.bed.wake(|| handle.unpark());
        t.join().unwrap();
    });
}

/// Two helpers come to a job that takes one: never both at once, and who left early may be followed.
#[test]
fn room_for_one() {
    loom::model(|| {
        struct Shared {
            slot: Slot<UnsafeCell<usize>>,
        }
        // SAFETY: the slot's protocol is what is checked.
        unsafe impl Sync for Shared {}
        // SAFETY: as above.
        unsafe impl Send for Shared {}
        let s = Arc::new(Shared { slot: Slot::new() });
        let job = Box::new(UnsafeCell::new(0));
        assert!(s.slot.claim());
        s.slot.publish(&*job, 1, 0);
        let help = |s: &Shared| {
            s.slot.enter(0, |job, _| {
                // SAFETY: there is room for one helper, and the caller does not touch the job.
                job.with_mut(|p| unsafe { *p += 1 });
                Exit::Early
            })
        };
        let other = s.clone();
        let t = thread::spawn(move || assert!(help(&other).is_none()));
        assert!(help(&s).is_none());
        t.join().unwrap();
        s.slot.retire();
        // SAFETY: nobody else is in the job any more.
        let n = job.with(|p| unsafe { *p });
        assert!(n == 1 || n == 2);
    });
}

/// A worker that leaves early while the job is taken away leaves no room behind: nobody comes into a
/// job that is gone.
#[test]
fn leaving_early_from_a_job_that_ends() {
    loom::model(|| {
        struct Shared {
            slot: Slot<UnsafeCell<usize>>,
        }
        // SAFETY: the slot's protocol is what is checked.
        unsafe impl Sync for Shared {}
        // SAFETY: as above.
        unsafe impl Send for Shared {}
        let s = Arc::new(Shared { slot: Slot::new() });
        let other = s.clone();
        let t = thread::spawn(move || {
            for _ in 0..2 {
                other.slot.enter(0, |job, _| {
                    // SAFETY: readers share the job until it is retired.
                    job.with(|p| unsafe { assert_ne!(*p, 0) });
                    Exit::Early
                });
            }
        });
        let job = Box::new(UnsafeCell::new(1));
        assert!(s.slot.claim());
        s.slot.publish(&*job, 1, 0);
        s.slot.retire();
        assert!(s.slot.open(0).is_none(), "room in a slot without a job");
        // SAFETY: nobody else is in the job any more.
        job.with_mut(|p| unsafe { *p = 0 });
        t.join().unwrap();
    });
}

/// A worker leaves in the middle, when it likes: what it did is known, and nothing is lost.
#[test]
fn leaving_early() {
    loom::model(|| {
        struct Shared {
            flow: Flow,
            first: [UnsafeCell<usize>; 2],
            second: AtomicUsize,
            wanted: AtomicUsize,
        }
        // SAFETY: the waits order the accesses, which is what loom checks here.
        unsafe impl Sync for Shared {}
        let s = Arc::new(Shared {
            flow: Flow::new(2, 2),
            first: [UnsafeCell::new(0), UnsafeCell::new(0)],
            second: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
        });
        let work = |s: &Shared, worker: usize, stay: bool| {
            s.flow.walk(
                worker,
                s.flow.round(),
                &specs(&[&[], &[0]]),
                &[2, 1],
                whole,
                || !stay && s.wanted.load(Ordering::Relaxed) == 1,
                || stay,
                |step, first, _| {
                    s.wanted.store(1, Ordering::Relaxed);
                    if step == 0 {
                        // SAFETY: task `first` is run by one worker only.
                        s.first[first as usize].with_mut(|p| unsafe { *p += 1 });
                    } else {
                        // SAFETY: all tasks of step 0 are done.
                        let sum: usize = s.first.iter().map(|c| c.with(|p| unsafe { *p })).sum();
                        assert_eq!(sum, 2);
                        s.second.fetch_add(1, Ordering::Relaxed);
                    }
                },
            )
        };
        let other = s.clone();
        let t = thread::spawn(move || {
            work(&other, 1, false);
        });
        assert!(work(&s, 0, true));
        t.join().unwrap();
        assert_eq!(s.second.load(Ordering::Relaxed), 1);
    });
}

/// One seat for two callers: each has it alone, and neither waits for ever.
#[test]
fn a_seat_for_two() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        struct Shared {
            leases: WorkerLeases,
            desk: UnsafeCell<usize>,
        }
        // SAFETY: the seat is what is checked: who has it is alone at the desk.
        unsafe impl Sync for Shared {}
        let s = Arc::new(Shared {
            leases: WorkerLeases::new(1),
            desk: UnsafeCell::new(0),
        });
        let work = |s: &Shared| {
            assert!(s.leases.acquire(0, None));
            // SAFETY: as above.
            s.desk.with_mut(|p| unsafe { *p += 1 });
            s.leases.leave(0);
        };
        let other = s.clone();
        let t = thread::spawn(move || work(&other));
        work(&s);
        t.join().unwrap();
        assert_eq!(s.leases.free(), 1);
        assert_eq!(s.leases.waiting(), 0);
        assert_eq!(s.desk.with(|p| unsafe { *p }), 2);
    });
}

/// Who works gives its seat to somebody more urgent and has it again afterwards.
#[test]
fn giving_way() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        struct Shared {
            leases: WorkerLeases,
            desk: UnsafeCell<usize>,
        }
        // SAFETY: the seat is what is checked: who has it is alone at the desk.
        unsafe impl Sync for Shared {}
        let s = Arc::new(Shared {
            leases: WorkerLeases::new(1),
            desk: UnsafeCell::new(0),
        });
        let other = s.clone();
        let t = thread::spawn(move || {
            assert!(other.leases.acquire(1, None));
            // SAFETY: as above.
            other.desk.with_mut(|p| unsafe { *p += 1 });
            other.leases.leave(1);
        });
        assert!(s.leases.acquire(0, None));
        for _ in 0..2 {
            // SAFETY: as above.
            s.desk.with_mut(|p| unsafe { *p += 1 });
            if s.leases.should_yield(0, LeaseHolder::Caller) {
                assert!(s.leases.yield_lease(0, None, || {}));
            }
        }
        s.leases.leave(0);
        t.join().unwrap();
        assert_eq!(s.leases.free(), 1);
        assert_eq!(s.desk.with(|p| unsafe { *p }), 3);
    });
}
