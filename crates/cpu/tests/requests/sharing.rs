//! Several callers on one device: no more threads work than there are workers, the more urgent goes first,
//! requests are called off, and what goes wrong in one stays in it.
use super::{K, M, N, bytes, model, store, values, want};
use device::{Device, DeviceError, Executable, Frame, PackedStore, Permit, Request};
use plan::{Plan, PlanSegment};
use shopfloor_cpu::{CpuDevice, CpuOptions, Fault};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn device(threads: usize, fault: Arc<Fault>) -> CpuDevice {
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

fn compiled(d: &CpuDevice, w: &[f32], name: &str, tile: i64) -> Arc<dyn Executable> {
    let plan = Arc::new(named(name, model(tile)).verify().expect("valid"));
    d.compile(plan, 0, &store(w, false), &PackedStore::new())
        .expect("compiles")
}

fn run(
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

/// Who began a task, in order.
type Log = Arc<Mutex<Vec<u8>>>;

fn logging(threads: usize, task: Duration) -> (CpuDevice, Log) {
    let log: Log = Arc::default();
    let to = log.clone();
    let d = device(
        threads,
        Arc::new(move |step: &str| {
            to.lock().unwrap().push(step.as_bytes()[0]);
            std::thread::sleep(task);
            Ok(())
        }),
    );
    log.lock().unwrap().clear();
    (d, log)
}

#[test]
fn the_more_urgent_goes_first_and_the_other_goes_on_afterwards() {
    let w = values(N * K, 3);
    for threads in [1, 2] {
        let (d, log) = logging(threads, Duration::from_millis(2));
        let slow = compiled(&d, &w, "background", 1);
        let urgent = compiled(&d, &w, "urgent", 8);
        log.lock().unwrap().clear();
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

#[test]
fn a_request_that_is_called_off_ends_at_the_next_task() {
    let w = values(N * K, 3);
    for threads in [1, 2] {
        let (d, log) = logging(threads, Duration::from_millis(1));
        let e = compiled(&d, &w, "any", 1);
        log.lock().unwrap().clear();
        let x = values(M * K, 1);
        let off = AtomicBool::new(false);
        let permit = Permit {
            cancel: Some(&off),
            ..Permit::default()
        };
        let mut f = e.new_frame().expect("a frame");
        std::thread::scope(|s| {
            let t = s.spawn(|| run(&*e, &mut f, &x, permit));
            while log.lock().unwrap().len() < 3 {
                std::thread::yield_now();
            }
            // One waits for a seat meanwhile where there is only one, and is called off as well.
            let waits = s.spawn(|| run(&*e, &mut e.new_frame().expect("a frame"), &x, permit));
            off.store(true, Ordering::SeqCst);
            assert_eq!(t.join().expect("ends"), Err(DeviceError::Cancelled));
            assert_eq!(waits.join().expect("ends"), Err(DeviceError::Cancelled));
        });
        assert!(log.lock().unwrap().len() < 3 + 4 * threads);
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

#[test]
fn a_grant_that_changes_is_kept_at_the_next_task() {
    let w = values(N * K, 3);
    let now = Arc::new(AtomicUsize::new(0));
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let (n, to) = (now.clone(), seen.clone());
    let d = device(
        3,
        Arc::new(move |_: &str| {
            let at_work = n.fetch_add(1, Ordering::SeqCst) + 1;
            to.lock().unwrap().push(at_work);
            std::thread::sleep(Duration::from_millis(1));
            n.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }),
    );
    let e = compiled(&d, &w, "any", 1);
    let granted = AtomicU32::new(1);
    let x = values(M * K, 1);
    let permit = Permit {
        workers: Some(&granted),
        ..Permit::default()
    };
    seen.lock().unwrap().clear();
    std::thread::scope(|s| {
        let t = s.spawn(|| run(&*e, &mut e.new_frame().expect("a frame"), &x, permit));
        let wait = |n: usize| {
            while seen.lock().unwrap().len() < n {
                std::thread::yield_now();
            }
        };
        wait(5);
        assert!(seen.lock().unwrap().iter().all(|&n| n == 1));
        granted.store(3, Ordering::SeqCst);
        wait(26);
        granted.store(1, Ordering::SeqCst);
        assert_eq!(t.join().expect("ends").expect("runs"), want(&x, &w));
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen[8..26].iter().max(), Some(&3), "{seen:?}");
    let end = &seen[32..seen.len().min(36)];
    assert!(end.iter().all(|&n| n == 1), "{seen:?}");
}
