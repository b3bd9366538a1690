//! Many sessions and callers on one engine: turns, bounds, cancelling, draining, joining, failures.
use shopfloor::status;
use shopfloor::{
    Call, Cancel, Engine, Error, Outputs, Session, SessionBuilder, Tensor, Tolerance, compare,
    inputs,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runtime::RunError;

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/digits_cnn/model.onnx")
}

/// An engine on which something happens before every ticket of work.
fn engine(threads: usize, fault: Arc<cpu::Fault>) -> Arc<Engine> {
    let device = cpu::CpuDevice::new(cpu::CpuOptions {
        threads: Some(threads),
        fault: Some(fault),
        ..Default::default()
    })
    .unwrap();
    let planner = planner::Planner::new(
        vec![(
            device::Device::machine(&device).clone(),
            device::Device::target(&device).clone(),
        )],
        planner::PlanOptions::default(),
    );
    Engine::new(Arc::new(device), Arc::new(planner))
}

/// An engine whose work takes `us` microseconds more per ticket, with the number of tickets.
fn slow(threads: usize, us: u64) -> (Arc<Engine>, Arc<AtomicUsize>) {
    let n = Arc::new(AtomicUsize::new(0));
    let counts = n.clone();
    let e = engine(
        threads,
        Arc::new(move |_: &str| {
            counts.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_micros(us));
            Ok(())
        }),
    );
    (e, n)
}

/// An engine whose work stands still while the flag is set, with the number of tickets that came.
fn gated(threads: usize) -> (Arc<Engine>, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (gate, n) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (shut, counts) = (gate.clone(), n.clone());
    let e = engine(
        threads,
        Arc::new(move |_: &str| {
            counts.fetch_add(1, Ordering::SeqCst);
            while shut.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok(())
        }),
    );
    (e, gate, n)
}

fn on(engine: &Arc<Engine>) -> SessionBuilder {
    Session::builder().with_engine(engine.clone())
}

/// An input of `batch` items, different for every `seed`.
fn input(s: &Session, batch: i64, seed: u64) -> Tensor {
    let sizes = [("batch".to_string(), batch)].into_iter().collect();
    let mut named = inputs::random_inputs(s.model(), &sizes).unwrap();
    let mut t = named.remove(0).1;
    for i in 0..t.len() {
        let v = t.get_f64(i);
        t.set_f64(
            i,
            v * (1.0 + (seed % 97) as f64 / 50.0) - (seed % 13) as f64 / 40.0,
        );
    }
    t
}

fn run(s: &Session, x: &Tensor) -> Result<Outputs, Error> {
    s.run(&[("image", x)])
}

fn same(got: Outputs, want: Outputs) {
    let c = compare(
        &got.into_vec(),
        &want.into_vec(),
        Tolerance {
            rtol: 1e-5,
            atol: 1e-7,
        },
    );
    assert!(c.agrees, "{:?}", c.complaint());
}

fn cause(e: Error) -> RunError {
    match e {
        Error::Run(e) => e,
        e => panic!("{e}"),
    }
}

#[test]
fn sessions_of_one_file_share_weights_and_every_caller_has_its_own_answer() {
    let (e, _) = slow(2, 0);
    let a = on(&e).with_weight(3.0).commit_from_file(file()).unwrap();
    let b = on(&e).with_priority(2).commit_from_file(file()).unwrap();
    let lone = Session::builder()
        .with_threads(1)
        .commit_from_file(file())
        .unwrap();
    std::thread::scope(|s| {
        for c in 0..6u64 {
            let (a, b, lone) = (&a, &b, &lone);
            s.spawn(move || {
                for i in 0..30 {
                    let x = input(a, 1 + (c as i64 + i) % 3, c * 1000 + i as u64);
                    let session = if (c + i as u64).is_multiple_of(2) {
                        a
                    } else {
                        b
                    };
                    same(run(session, &x).unwrap(), run(lone, &x).unwrap());
                }
            });
        }
    });
    let m = e.memory();
    assert_eq!(m.sessions.len(), 2);
    assert!(m.weights > 0 && m.weights == m.sessions[0].weights);
    assert_eq!(m.weights, m.sessions[1].weights);
    let own: u64 = m
        .sessions
        .iter()
        .map(|s| s.arenas + s.states + s.queue)
        .sum();
    assert_eq!(m.total, m.weights + m.packed + own);
    assert!(m.sessions.iter().all(|s| s.arenas > 0 && s.queue == 0));
    let views = e.sessions();
    assert_eq!(views.iter().map(|v| v.stats.done).sum::<u64>(), 180);
    assert!(
        views
            .iter()
            .all(|v| v.load.running == 0 && v.load.queued == 0)
    );
    #[cfg(unix)]
    {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine");
        let server = status::StatusServer::start(e.clone(), &socket).unwrap();
        let mut seen = status::status_at(&socket).unwrap();
        assert_eq!(seen.sessions.len(), 2);
        assert_eq!(seen.sessions.iter().map(|s| s.stats.done).sum::<u64>(), 180);
        // A name is whole, however much there is to say of where the time goes.
        for s in &mut seen.sessions {
            s.predicted_s = 123.4e-6;
            s.families = ["contract", "recurrent", "elementwise"]
                .map(|f| (f.into(), 10))
                .into();
        }
        let text = seen.render(None, Default::default());
        assert!(
            text.contains("digits_cnn") && !text.contains("(exact"),
            "{text}"
        );
        seen.sessions[0].launched = [shopfloor::Launch::Graph].into();
        let text = seen.render(None, Default::default());
        assert!(text.contains("(graph,") && text.contains("f32)"), "{text}");
        let text = status::metrics_at(&socket).unwrap();
        assert!(text.contains("shopfloor_requests_total{session=\"0\",model=\"digits_cnn\"} "));
        assert!(status::StatusServer::start(e.clone(), &socket).is_err());
        drop(server);
        assert!(!socket.exists() && status::status_at(&socket).is_err());
        // What a process left there that was ended is replaced, what is no socket is not.
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(socket.exists());
        drop(status::StatusServer::start(e.clone(), &socket).unwrap());
        std::fs::write(&socket, "a file").unwrap();
        assert!(status::StatusServer::start(e.clone(), &socket).is_err());
    }
    drop(b);
    assert_eq!(e.memory().sessions.len(), 1);
}

#[test]
fn a_full_queue_refuses_at_once() {
    let (e, gate, tickets) = gated(1);
    let s = on(&e).with_queue(1, 1).commit_from_file(file()).unwrap();
    let x = input(&s, 1, 1);
    run(&s, &x).unwrap();
    gate.store(true, Ordering::SeqCst);
    let before = tickets.load(Ordering::SeqCst);
    std::thread::scope(|t| {
        let first = t.spawn(|| run(&s, &x).unwrap());
        while tickets.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        let second = t.spawn(|| run(&s, &x).unwrap());
        while s.runtime().view().load.queued == 0 {
            std::thread::yield_now();
        }
        // Nothing that runs can end before this is answered.
        let refused = run(&s, &x).err().map(cause);
        gate.store(false, Ordering::SeqCst);
        let refused = refused.unwrap();
        assert_eq!(
            refused,
            RunError::Overloaded {
                running: 1,
                queued: 1
            }
        );
        assert!(refused.to_string().contains("overloaded"), "{refused}");
        same(first.join().unwrap(), second.join().unwrap());
    });
    assert_eq!(s.runtime().view().stats.refused, 1);
}

#[test]
fn requests_are_cancelled_while_they_wait_and_while_they_run() {
    let (e, tickets) = slow(1, 3000);
    let s = on(&e).commit_from_file(file()).unwrap();
    let x = input(&s, 1, 1);
    let want = run(&s, &x).unwrap();
    let whole = tickets.load(Ordering::SeqCst);
    assert!(whole >= 4, "{whole} tickets are too few to see it");
    let (runs, waits) = (Cancel::new(), Cancel::new());
    let call = |c: &Cancel| {
        let call = Call {
            cancel: Some(c),
            deadline: None,
        };
        s.run_call(&[("image", &x)], call)
    };
    std::thread::scope(|t| {
        let first = t.spawn(|| call(&runs));
        while tickets.load(Ordering::SeqCst) == whole {
            std::thread::yield_now();
        }
        let second = t.spawn(|| call(&waits));
        while s.runtime().view().load.queued == 0 {
            std::thread::yield_now();
        }
        waits.cancel();
        assert_eq!(
            cause(second.join().unwrap().err().unwrap()),
            RunError::Cancelled
        );
        assert!(!first.is_finished(), "who waits leaves at once");
        runs.cancel();
        assert_eq!(
            cause(first.join().unwrap().err().unwrap()),
            RunError::Cancelled
        );
        assert!(tickets.load(Ordering::SeqCst) < 2 * whole);
    });
    same(call(&Cancel::new()).unwrap(), want);
    assert_eq!(cause(call(&runs).err().unwrap()), RunError::Cancelled);
}

#[test]
fn what_cannot_be_done_in_time_is_refused() {
    let (e, tickets) = slow(1, 2000);
    let s = on(&e).commit_from_file(file()).unwrap();
    let x = input(&s, 1, 1);
    let timed = |d: Duration| {
        let call = Call {
            cancel: None,
            deadline: Some(d),
        };
        s.run_call(&[("image", &x)], call)
    };
    // What it takes is learned from the first ones.
    for _ in 0..5 {
        timed(Duration::from_secs(10)).unwrap();
    }
    let before = tickets.load(Ordering::SeqCst);
    let late = cause(timed(Duration::from_millis(1)).err().unwrap());
    assert!(matches!(late, RunError::Late { .. }), "{late}");
    assert_eq!(
        tickets.load(Ordering::SeqCst),
        before,
        "nothing of it was begun"
    );
    timed(Duration::from_secs(10)).unwrap();
}

#[test]
fn a_session_that_drains_finishes_what_it_has() {
    let (e, tickets) = slow(2, 500);
    let s = on(&e).commit_from_file(file()).unwrap();
    let x = input(&s, 1, 1);
    run(&s, &x).unwrap();
    let before = tickets.load(Ordering::SeqCst);
    let done = AtomicUsize::new(0);
    std::thread::scope(|t| {
        for _ in 0..4 {
            t.spawn(|| {
                run(&s, &x).unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let at_hand = || {
            let load = s.runtime().view().load;
            load.running + load.queued + done.load(Ordering::SeqCst)
        };
        while tickets.load(Ordering::SeqCst) == before || at_hand() < 4 {
            std::thread::yield_now();
        }
        s.drain();
        let v = s.runtime().view();
        assert_eq!((v.load.running, v.load.queued), (0, 0));
        assert_eq!(cause(run(&s, &x).err().unwrap()), RunError::Draining);
    });
    assert_eq!(done.load(Ordering::SeqCst), 4);
    s.runtime().set_policy(s.runtime().policy());
    run(&s, &x).unwrap();
}

#[test]
fn requests_are_joined_and_each_has_what_it_would_have_alone() {
    let tickets = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let counted = tickets.clone();
    let e = engine(
        2,
        Arc::new(move |step: &str| {
            *counted.lock().unwrap().entry(step.into()).or_default() += 1;
            std::thread::sleep(Duration::from_micros(100));
            Ok(())
        }),
    );
    let plain = on(&e).commit_from_file(file()).unwrap();
    let joined = on(&e)
        .with_batching(6, Duration::from_millis(20))
        .commit_from_file(file())
        .unwrap();
    let cases: Vec<Tensor> = (0..24)
        .map(|i| input(&plain, 1 + i % 3, 7 * i as u64))
        .collect();
    let want: Vec<Outputs> = cases.iter().map(|x| run(&plain, x).unwrap()).collect();
    for x in &cases {
        run(&plain, x).unwrap();
    }
    // How often the plan ran: some step of it has one ticket, whatever the batch.
    let count = |f: &dyn Fn()| {
        tickets.lock().unwrap().clear();
        f();
        tickets.lock().unwrap().values().copied().min().unwrap_or(0)
    };
    let all = |s: &Session| {
        std::thread::scope(|t| {
            let each: Vec<_> = cases
                .iter()
                .map(|x| t.spawn(|| run(s, x).unwrap()))
                .collect();
            let got = each.into_iter().map(|t| t.join().unwrap());
            got.collect::<Vec<_>>()
        })
    };
    all(&joined);
    let apart = count(&|| drop(all(&plain)));
    let together = count(&|| {
        for (got, want) in all(&joined).into_iter().zip(&want) {
            let same_shape = got["probabilities"].shape() == want["probabilities"].shape();
            assert!(same_shape);
            let c = compare(
                &got.into_vec(),
                &[("probabilities".into(), want["probabilities"].clone())],
                Tolerance {
                    rtol: 1e-5,
                    atol: 1e-7,
                },
            );
            assert!(c.agrees, "{:?}", c.complaint());
        }
    });
    assert!(together < apart, "{together} runs joined, {apart} apart");
    // One that is given up does not take the others with it.
    let off = Cancel::new();
    std::thread::scope(|t| {
        let gone = t.spawn(|| {
            let call = Call {
                cancel: Some(&off),
                deadline: None,
            };
            joined.run_call(&[("image", &cases[0])], call)
        });
        let stays = t.spawn(|| run(&joined, &cases[1]).unwrap());
        off.cancel();
        let _ = gone.join().unwrap();
        same(stays.join().unwrap(), run(&plain, &cases[1]).unwrap());
    });
    assert_eq!(e.memory().sessions.iter().map(|s| s.queue).sum::<u64>(), 0);
}

#[test]
fn joined_requests_end_early_when_all_of_them_are_given_up() {
    let (e, tickets) = slow(1, 3000);
    let s = on(&e)
        .with_batching(3, Duration::from_secs(5))
        .commit_from_file(file())
        .unwrap();
    let x = input(&s, 1, 1);
    let count = || tickets.load(Ordering::SeqCst);
    let offs = [Cancel::new(), Cancel::new(), Cancel::new()];
    let together = |offs: &[Cancel; 3], midway: &(dyn Fn() + Sync)| {
        let before = count();
        let got = std::thread::scope(|t| {
            let each: Vec<_> = offs
                .iter()
                .map(|c| {
                    let call = Call {
                        cancel: Some(c),
                        deadline: None,
                    };
                    let (s, x) = (&s, &x);
                    t.spawn(move || s.run_call(&[("image", x)], call))
                })
                .collect();
            while count() == before {
                std::thread::yield_now();
            }
            midway();
            let all = each.into_iter().map(|t| t.join().unwrap());
            all.collect::<Vec<_>>()
        });
        (got, count() - before)
    };
    // The first makes the plan.
    together(&std::array::from_fn(|_| Cancel::new()), &|| {});
    let (got, whole) = together(&std::array::from_fn(|_| Cancel::new()), &|| {});
    assert!(got.iter().all(Result::is_ok) && whole >= 4, "{whole}");
    let (got, some) = together(&offs, &|| offs[1..].iter().for_each(Cancel::cancel));
    assert!(got[0].is_ok());
    assert_eq!(some, whole, "one of them still wants it");
    let offs: [Cancel; 3] = std::array::from_fn(|_| Cancel::new());
    let (got, none) = together(&offs, &|| offs.iter().for_each(Cancel::cancel));
    for r in got {
        assert_eq!(cause(r.err().unwrap()), RunError::Cancelled);
    }
    assert!(none < whole, "{none} of {whole} tickets");
}

#[test]
fn a_thousand_failures_hurt_nobody_else() {
    let (n, wrong) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let on_now = Arc::new(AtomicBool::new(false));
    let (a, b, c) = (n.clone(), wrong.clone(), on_now.clone());
    let e = engine(
        2,
        Arc::new(move |_: &str| {
            let n = a.fetch_add(1, Ordering::Relaxed);
            if !c.load(Ordering::Relaxed) || !n.is_multiple_of(31) {
                return Ok(());
            }
            b.fetch_add(1, Ordering::Relaxed);
            if n.is_multiple_of(2) {
                std::panic::resume_unwind(Box::new("injected"));
            }
            Err("injected".into())
        }),
    );
    let plain = on(&e).commit_from_file(file()).unwrap();
    let joined = on(&e)
        .with_batching(4, Duration::from_micros(200))
        .with_priority(1)
        .commit_from_file(file())
        .unwrap();
    let cases: Vec<Tensor> = (0..8).map(|i| input(&plain, 1, 5 * i)).collect();
    let want: Vec<Tensor> = cases
        .iter()
        .map(|x| run(&plain, x).unwrap()["probabilities"].clone())
        .collect();
    on_now.store(true, Ordering::SeqCst);
    let (ok, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|t| {
        for k in 0..4usize {
            let (plain, joined, cases, want) = (&plain, &joined, &cases, &want);
            let (wrong, ok, failed) = (&wrong, &ok, &failed);
            t.spawn(move || {
                let s = if k < 2 { plain } else { joined };
                let mut i = k;
                while wrong.load(Ordering::Relaxed) < 1000 {
                    i = (i + 1) % cases.len();
                    match run(s, &cases[i]) {
                        Ok(out) => {
                            ok.fetch_add(1, Ordering::Relaxed);
                            let got = [("p".to_string(), out["probabilities"].clone())];
                            let c = compare(
                                &got,
                                &[("p".into(), want[i].clone())],
                                Tolerance {
                                    rtol: 1e-5,
                                    atol: 1e-7,
                                },
                            );
                            assert!(c.agrees, "{:?}", c.complaint());
                        }
                        Err(e) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            assert!(matches!(cause(e), RunError::Device(_)));
                        }
                    }
                }
            });
        }
    });
    on_now.store(false, Ordering::SeqCst);
    assert!(ok.load(Ordering::Relaxed) > 100 && failed.load(Ordering::Relaxed) > 100);
    for s in e.sessions() {
        assert_eq!((s.load.running, s.load.queued, s.load.workers), (0, 0, 0));
    }
    // Four callers cannot have left more than four slots behind.
    let m = e.memory();
    let most = m.sessions.iter().map(|s| s.arenas).max().unwrap();
    let x = &cases[3];
    run(&plain, x).unwrap();
    run(&joined, x).unwrap();
    assert!(most > 0 && e.memory().sessions.iter().all(|s| s.arenas <= most));
}
