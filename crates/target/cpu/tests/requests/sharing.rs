//! Several callers on one device: no more threads work than there are workers, the more urgent goes first,
//! requests are called off, and what goes wrong in one stays in it.
use super::{K, M, N, bytes, model, store, values, want};
use device::{Device, DeviceError, Executable, Frame, PackedStore, Permit, Request};
use plan::{Plan, PlanSegment};
use shopfloor_cpu::{CpuDevice, CpuOptions, Fault};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(super) fn device(threads: usize, fault: Arc<Fault>) -> CpuDevice {
    CpuDevice::new(CpuOptions {
        threads: Some(threads),
        machine: Some(shopfloor_cpu::detect::detect()),
        fault: Some(fault),
        ..Default::default()
    })
    .expect("a device")
}

/// The plan with its steps called `name` and not taken for so short that one thread does it alone.
fn named(name: &str, mut p: Plan) -> Plan {
    for s in &mut p.segments {
        if let PlanSegment::Block(b) = s {
            b.predicted.time_s = 1.0;
            let steps = b.steps.iter_mut().enumerate();
            steps.for_each(|(i, s)| s.name = format!("{name}{i}"));
        }
    }
    p
}

pub(super) fn compiled(d: &CpuDevice, w: &[f32], name: &str, tile: i64) -> Arc<dyn Executable> {
    let plan = Arc::new(named(name, model(tile)).verify().expect("valid"));
    d.compile(plan, 0, &store(w, false), &PackedStore::new())
        .expect("compiles")
}

pub(super) fn run(
    e: &dyn Executable,
    f: &mut Frame,
    x: &[f32],
    permit: Permit<'_>,
) -> Result<Vec<f32>, DeviceError> {
    let ins = bytes(x);
    let mut out = vec![0u8; (M * N * 4) as usize];
    let request = Request {
        symbols: &[],
        inputs: &[&ins],
        outputs: &mut [&mut out],
        states: &mut [],
        timeline: None,
        stop_after: None,
        permit,
    };
    e.run(f, request)?;
    Ok(out
        .chunks_exact(4)
        .map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]))
        .collect())
}

#[test]
fn no_more_threads_work_than_there_are_workers() {
    let w = values(N * K, 3);
    for threads in [1, 2, 3] {
        let now = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let (n, m) = (now.clone(), most.clone());
        let d = device(
            threads,
            Arc::new(move |_: &str| {
                m.fetch_max(n.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_micros(30));
                n.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }),
        );
        let e = compiled(&d, &w, "any", 8);
        let granted: [AtomicU32; 4] = std::array::from_fn(|n| AtomicU32::new(n as u32));
        std::thread::scope(|s| {
            for c in 0..5 {
                let (e, w, granted) = (&e, &w, &granted);
                s.spawn(move || {
                    let mut f = e.new_frame().expect("a frame");
                    for i in 0..60 {
                        let x = values(M * K, c * 100 + i);
                        let permit = Permit {
                            workers: Some(&granted[i as usize % 4]),
                            priority: (c % 3) as i32 - 1,
                            cancel: None,
                        };
                        let y = run(&**e, &mut f, &x, permit).expect("runs");
                        assert_eq!(y, want(&x, w));
                    }
                });
            }
        });
        let most = most.load(Ordering::SeqCst);
        assert!(
            most <= threads,
            "{most} threads worked at once, {threads} may"
        );
    }
}

/// Waits for `is`, at most ten seconds: a wait that ends without it is seen by the test's own checks.
fn wait_until(is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
}

/// Who began a task, in order.
type Log = Arc<Mutex<Vec<u8>>>;

/// A device whose tasks take `task`, and from the `held`th on wait until the flag is set.
fn logging(threads: usize, task: Duration, held: usize) -> (CpuDevice, Log, Arc<AtomicBool>) {
    let log: Log = Arc::default();
    let go = Arc::new(AtomicBool::new(true));
    let (to, goes) = (log.clone(), go.clone());
    let d = device(
        threads,
        Arc::new(move |step: &str| {
            let at = {
                let mut log = to.lock().unwrap();
                log.push(step.as_bytes()[0]);
                log.len()
            };
            std::thread::sleep(task);
            wait_until(|| at < held || goes.load(Ordering::SeqCst));
            Ok(())
        }),
    );
    (d, log, go)
}

#[test]
fn the_more_urgent_goes_first_and_the_other_goes_on_afterwards() {
    let w = values(N * K, 3);
    for threads in [1, 2] {
        let (d, log, go) = logging(threads, Duration::from_millis(2), 8);
        let slow = compiled(&d, &w, "background", 1);
        let urgent = compiled(&d, &w, "urgent", 8);
        log.lock().unwrap().clear();
        go.store(false, Ordering::SeqCst);
        let (x, want) = (values(M * K, 1), want(&values(M * K, 1), &w));
        std::thread::scope(|s| {
            let background = s.spawn(|| {
                let mut f = slow.new_frame().expect("a frame");
                run(&*slow, &mut f, &x, Permit::default()).expect("runs")
            });
            while log.lock().unwrap().len() < 4 {
                std::thread::yield_now();
            }
            let mut f = urgent.new_frame().expect("a frame");
            let permit = Permit {
                priority: 1,
                ..Permit::default()
            };
            go.store(true, Ordering::SeqCst);
            assert_eq!(run(&*urgent, &mut f, &x, permit).expect("runs"), want);
            assert!(!background.is_finished());
            assert_eq!(background.join().expect("runs"), want);
        });
        let log = log.lock().unwrap();
        let first = log.iter().position(|&c| c == b'u').expect("it ran");
        let last = log.iter().rposition(|&c| c == b'u').expect("it ran");
        let between = log[first..last].iter().filter(|&&c| c == b'b').count();
        // Whoever takes the last of its tasks may say so after the other one was let on.
        assert!(between <= threads, "{between} of {:?}", &log[first..last]);
        assert!(log[last..].len() > 20, "the rest comes afterwards");
    }
}

/// Both seats are callers' when something urgent comes: one goes to its caller, and the other one to the
/// resident, who found none when the job was shown and went to sleep.
#[test]
fn who_helps_the_urgent_is_woken_when_a_seat_is_left_for_it() {
    let (busy, over) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    // What is prepared when a plan is compiled needs no help.
    let helped = Arc::new(AtomicBool::new(true));
    let (n, h) = (busy.clone(), helped.clone());
    let d = device(
        2,
        Arc::new(move |step: &str| {
            let resident = std::thread::current()
                .name()
                .is_some_and(|n| n.starts_with("shopfloor-"));
            match (step.as_bytes()[0], resident) {
                (b'b', false) => {
                    n.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(3));
                }
                (b'u', true) => h.store(true, Ordering::SeqCst),
                (b'u', false) => wait_until(|| h.load(Ordering::SeqCst)),
                _ => (),
            }
            Ok(())
        }),
    );
    let w = values(N * K, 3);
    let slow = compiled(&d, &w, "background", 1);
    let urgent = compiled(&d, &w, "urgent", 8);
    let (x, want) = (values(M * K, 1), want(&values(M * K, 1), &w));
    busy.store(0, Ordering::SeqCst);
    helped.store(false, Ordering::SeqCst);
    std::thread::scope(|s| {
        for _ in 0..2 {
            let (slow, x, over) = (&slow, &x, over.clone());
            s.spawn(move || {
                let mut f = slow.new_frame().expect("a frame");
                while !over.load(Ordering::SeqCst) {
                    run(&**slow, &mut f, x, Permit::default()).expect("runs");
                }
            });
        }
        for round in 1..=5 {
            let begun = busy.load(Ordering::SeqCst);
            wait_until(|| busy.load(Ordering::SeqCst) >= begun + 4);
            helped.store(false, Ordering::SeqCst);
            let mut f = urgent.new_frame().expect("a frame");
            let permit = Permit {
                priority: 1,
                ..Permit::default()
            };
            let got = run(&*urgent, &mut f, &x, permit).expect("runs");
            if !helped.load(Ordering::SeqCst) || got != want || round == 5 {
                over.store(true, Ordering::SeqCst);
                assert!(
                    helped.load(Ordering::SeqCst),
                    "nobody came in round {round}"
                );
                assert_eq!(got, want);
            }
        }
    });
}

/// An urgent request that is granted one worker has no helpers, and no seat is kept for them: the other one
/// works for whoever comes meanwhile.
#[test]
fn no_seat_is_kept_for_helpers_that_may_not_come() {
    let (begun, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(true)),
    );
    let (b, d) = (begun.clone(), done.clone());
    let device = device(
        2,
        Arc::new(move |step: &str| {
            if step.starts_with('u') {
                b.store(true, Ordering::SeqCst);
                wait_until(|| d.load(Ordering::SeqCst));
            }
            Ok(())
        }),
    );
    let w = values(N * K, 3);
    let other = compiled(&device, &w, "other", 8);
    let urgent = compiled(&device, &w, "urgent", 8);
    let (x, want) = (values(M * K, 1), want(&values(M * K, 1), &w));
    begun.store(false, Ordering::SeqCst);
    done.store(false, Ordering::SeqCst);
    std::thread::scope(|s| {
        let alone = AtomicU32::new(1);
        let (urgent, x, done) = (&urgent, &x, &done);
        let t = s.spawn(move || {
            let mut f = urgent.new_frame().expect("a frame");
            let permit = Permit {
                priority: 1,
                workers: Some(&alone),
                ..Permit::default()
            };
            let waited = Instant::now();
            let got = run(&**urgent, &mut f, x, permit).expect("runs");
            (got, waited.elapsed())
        });
        wait_until(|| begun.load(Ordering::SeqCst));
        let mut f = other.new_frame().expect("a frame");
        let got = run(&*other, &mut f, x, Permit::default()).expect("runs");
        done.store(true, Ordering::SeqCst);
        let (urgent, waited) = t.join().expect("no panic");
        assert!(got == want && urgent == want);
        assert!(
            waited < Duration::from_secs(5),
            "the other one had to wait for the end of the urgent one: {waited:?}"
        );
    });
}

#[test]
fn a_request_that_is_called_off_ends_at_the_next_task() {
    let w = values(N * K, 3);
    for threads in [1, 2] {
        let (d, log, go) = logging(threads, Duration::from_millis(1), 8);
        let e = compiled(&d, &w, "any", 1);
        log.lock().unwrap().clear();
        go.store(false, Ordering::SeqCst);
        let x = values(M * K, 1);
        let off = AtomicBool::new(false);
        let permit = Permit {
            cancel: Some(&off),
            ..Permit::default()
        };
        let mut f = e.new_frame().expect("a frame");
        let mut begun = 0;
        std::thread::scope(|s| {
            let t = s.spawn(|| run(&*e, &mut f, &x, permit));
            while log.lock().unwrap().len() < 3 {
                std::thread::yield_now();
            }
            // One waits for a seat meanwhile where there is only one, and is called off as well.
            let waits = s.spawn(|| run(&*e, &mut e.new_frame().expect("a frame"), &x, permit));
            off.store(true, Ordering::SeqCst);
            begun = log.lock().unwrap().len();
            go.store(true, Ordering::SeqCst);
            assert_eq!(t.join().expect("ends"), Err(DeviceError::Cancelled));
            assert_eq!(waits.join().expect("ends"), Err(DeviceError::Cancelled));
        });
        // Whoever was past its look at the flag starts one more.
        let all = log.lock().unwrap().len();
        assert!(all <= begun + threads, "{begun} and then {all}");
        // The frame and the workers are as good as before.
        let y = run(&*e, &mut f, &x, Permit::default()).expect("runs");
        assert_eq!(y, want(&x, &w));
    }
}

#[test]
fn a_thousand_tasks_fail_or_panic_and_everything_else_is_right() {
    let w = values(N * K, 3);
    let (asked, wrong) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let on = Arc::new(AtomicBool::new(false));
    let (a, b, c) = (asked.clone(), wrong.clone(), on.clone());
    let d = device(
        3,
        Arc::new(move |_: &str| {
            let n = a.fetch_add(1, Ordering::Relaxed);
            if !c.load(Ordering::Relaxed) || !n.is_multiple_of(7) {
                return Ok(());
            }
            b.fetch_add(1, Ordering::Relaxed);
            if n.is_multiple_of(2) {
                // As a panic does, without its message on the terminal.
                std::panic::resume_unwind(Box::new("injected"));
            }
            Err("injected".into())
        }),
    );
    let e = compiled(&d, &w, "any", 8);
    on.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let failed = AtomicUsize::new(0);
    std::thread::scope(|s| {
        for c in 0..4 {
            let (e, w, failed, wrong) = (&e, &w, &failed, &wrong);
            s.spawn(move || {
                let mut f = e.new_frame().expect("a frame");
                let mut i = 0;
                while wrong.load(Ordering::Relaxed) < 1000 {
                    let x = values(M * K, c * 1000 + i);
                    i += 1;
                    match run(&**e, &mut f, &x, Permit::default()) {
                        Ok(y) => assert_eq!(y, want(&x, w)),
                        Err(DeviceError::Step { .. }) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(other) => panic!("{other}"),
                    }
                    assert!(began.elapsed() < Duration::from_secs(60), "it hangs");
                }
            });
        }
    });
    assert!(failed.load(Ordering::Relaxed) >= 300);
    on.store(false, Ordering::SeqCst);
    let x = values(M * K, 9);
    let y = run(
        &*e,
        &mut e.new_frame().expect("a frame"),
        &x,
        Permit::default(),
    );
    assert_eq!(y.expect("runs"), want(&x, &w));
}

#[test]
fn workers_come_and_go_while_requests_run() {
    let w = values(N * K, 3);
    let d = device(3, Arc::new(|_: &str| Ok(())));
    let e = compiled(&d, &w, "any", 4);
    std::thread::scope(|s| {
        let callers: Vec<_> = (0..3)
            .map(|c| {
                let (e, w) = (&e, &w);
                s.spawn(move || {
                    let mut f = e.new_frame().expect("a frame");
                    for i in 0..300 {
                        let x = values(M * K, c * 100 + i);
                        let y = run(&**e, &mut f, &x, Permit::default()).expect("runs");
                        assert_eq!(y, want(&x, w));
                    }
                })
            })
            .collect();
        for n in [1, 3, 0, 2, 1, 9].into_iter().cycle() {
            d.limit_workers(n);
            std::thread::sleep(Duration::from_micros(200));
            if callers.iter().all(|c| c.is_finished()) {
                break;
            }
        }
    });
}

/// Of a grant that grows and shrinks: who started each task, and how many were at work then.
#[derive(Default)]
struct Started {
    tasks: Vec<(std::thread::ThreadId, usize)>,
    /// The most that were at work at once.
    most: usize,
    /// Tasks that the caller started with a grant of 3, and then with one of 1. Its look at the grant may
    /// be older than the first of each, not than the second.
    led: [usize; 2],
    /// Tasks started when the caller had surely seen the grant of 1.
    shrunk_at: Option<usize>,
}

#[test]
fn a_grant_that_changes_is_kept_at_the_callers_next_task() {
    let w = values(N * K, 3);
    let started: Arc<Mutex<Started>> = Arc::default();
    let granted = Arc::new(AtomicU32::new(1));
    let (at_work, to, now) = (AtomicUsize::new(0), started.clone(), granted.clone());
    let d = device(
        3,
        // Tasks wait for what comes next, so that a thread that does not get a processor for a while
        // changes no order: from the 9th on for the grant of 3 and for three at work, from the 27th on
        // for the grant of 1, and for the caller to have looked at it.
        Arc::new(move |_: &str| {
            let me = std::thread::current().id();
            let working = at_work.fetch_add(1, Ordering::SeqCst) + 1;
            let at = {
                let mut s = to.lock().unwrap();
                s.tasks.push((me, working));
                s.tasks.len()
            };
            if at > 8 {
                wait_until(|| now.load(Ordering::SeqCst) == 3 || at > 26);
            }
            let (leads, late) = {
                let mut s = to.lock().unwrap();
                let leads = s.tasks[0].0 == me;
                let late = at > 26;
                s.most = s.most.max(working);
                if leads && at > 8 {
                    s.led[usize::from(late && now.load(Ordering::SeqCst) == 1)] += 1;
                }
                if s.led[1] == 2 {
                    s.shrunk_at.get_or_insert(at);
                }
                (leads, late)
            };
            if at > 8 {
                wait_until(|| {
                    let s = to.lock().unwrap();
                    s.most == 3 || leads && s.led[0] < 2
                });
            }
            if late {
                wait_until(|| now.load(Ordering::SeqCst) == 1);
                wait_until(|| leads || to.lock().unwrap().shrunk_at.is_some());
            }
            at_work.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }),
    );
    let e = compiled(&d, &w, "any", 1);
    let x = values(M * K, 1);
    let permit = Permit {
        workers: Some(&granted),
        ..Permit::default()
    };
    *started.lock().unwrap() = Started::default();
    std::thread::scope(|s| {
        let t = s.spawn(|| run(&*e, &mut e.new_frame().expect("a frame"), &x, permit));
        let begun = |n: usize| wait_until(|| started.lock().unwrap().tasks.len() >= n);
        begun(5);
        assert!(started.lock().unwrap().tasks.iter().all(|&(_, n)| n == 1));
        granted.store(3, Ordering::SeqCst);
        begun(27);
        granted.store(1, Ordering::SeqCst);
        assert_eq!(t.join().expect("ends").expect("runs"), want(&x, &w));
    });
    let started = started.lock().unwrap();
    let tasks = &started.tasks;
    assert_eq!(started.most, 3, "{tasks:?}");
    // Whoever was past its look at the grant starts one more task; the caller goes on.
    let at = started.shrunk_at.expect("tasks are left for the caller");
    let after = tasks[at..].iter().filter(|t| t.0 != tasks[0].0).count();
    assert!(after <= 2, "{after} tasks of helpers after {at}: {tasks:?}");
    assert!(tasks.len() > at + 10, "{} tasks", tasks.len());
}
