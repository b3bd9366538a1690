//! The scheduler's rules in virtual time: bounds, priorities, deadlines, batches, shares, and a random run.
use super::*;
use crate::batching::Batching;
use std::collections::BTreeSet;

fn policy(f: impl FnOnce(&mut SessionPolicy)) -> Box<SessionPolicy> {
    let mut p = SessionPolicy::default();
    f(&mut p);
    Box::new(p)
}

fn request(id: RequestId, session: SessionId, cost_s: f64) -> Request {
    Request {
        id,
        session,
        cost_s,
        items: 1,
        shape: 0,
        deadline_s: None,
        since_s: 0.0,
    }
}

fn started(actions: &[Action]) -> Vec<(RunId, SessionId, u32)> {
    let of = |a: &Action| match a {
        Action::Start {
            run,
            session,
            workers,
            ..
        } => Some((*run, *session, *workers)),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn scheduler(workers: u32, sessions: &[Box<SessionPolicy>]) -> Scheduler {
    let mut s = Scheduler::new(workers);
    for (i, p) in sessions.iter().enumerate() {
        s.step(0.0, Event::SetPolicy(i as SessionId, p.clone()));
    }
    s
}

#[test]
fn a_queue_is_bounded_and_the_one_that_does_not_fit_hears_so_at_once() {
    let mut s = scheduler(1, &[policy(|p| p.max_queued = 1)]);
    assert_eq!(
        started(&s.step(0.0, Event::Arrive(request(1, 0, 1.0)))),
        [(0, 0, 1)]
    );
    assert_eq!(
        s.step(0.1, Event::Arrive(request(2, 0, 1.0))),
        [Action::Queue(2)]
    );
    let refused = s.step(0.2, Event::Arrive(request(3, 0, 1.0)));
    assert!(
        matches!(
            &refused[..],
            [Action::Reject {
                request: 3,
                why: Refusal::Overloaded {
                    running: 1,
                    queued: 1
                }
            }]
        ),
        "{refused:?}"
    );
    assert_eq!(started(&s.step(1.0, Event::Finish(0))), [(1, 0, 1)]);
    assert!(s.step(2.0, Event::Finish(1)).is_empty());
    assert!(s.is_idle());
    let unknown = s.step(2.0, Event::Arrive(request(4, 9, 1.0)));
    assert!(matches!(
        &unknown[..],
        [Action::Reject {
            why: Refusal::Unknown(9),
            ..
        }]
    ));
    let mut odd = request(5, 0, f64::NAN);
    let malformed = s.step(2.0, Event::Arrive(odd.clone()));
    assert!(matches!(
        &malformed[..],
        [Action::Reject {
            why: Refusal::Malformed(_),
            ..
        }]
    ));
    odd.cost_s = -1.0;
    assert!(matches!(
        &s.step(2.0, Event::Arrive(odd))[..],
        [Action::Reject { .. }]
    ));
}

#[test]
fn an_urgent_request_takes_workers_and_gives_them_back() {
    let background = policy(|p| p.workers = 2);
    let urgent = policy(|p| {
        p.priority = 5;
        p.workers = 2;
    });
    let mut s = scheduler(2, &[background, urgent]);
    s.step(0.0, Event::Arrive(request(1, 0, 1.0)));
    let at = s.step(0.1, Event::Arrive(request(2, 1, 0.1)));
    assert_eq!(at[0], Action::Resize { run: 0, workers: 0 });
    assert_eq!(started(&at), [(1, 1, 2)]);
    let back = s.step(0.2, Event::Finish(1));
    assert_eq!(back, [Action::Resize { run: 0, workers: 2 }]);
}

/// Urgent requests of 10 ms from two callers without a pause, beside the low ones that `low` brings; when each
/// run of the low session began and ended, as far as it did in `end` seconds.
fn beside_urgent(workers: u32, end: f64, low: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut s = scheduler(
        workers,
        &[policy(|p| p.priority = 5), policy(|p| p.priority = -3)],
    );
    let (mut at, mut id) = (0.0, 100);
    let mut cost: BTreeMap<RequestId, f64> = BTreeMap::new();
    // Worker seconds that runs have left, and when the low ones began.
    let mut runs: BTreeMap<RunId, (SessionId, f64, f64, u32)> = BTreeMap::new();
    let mut ended = Vec::new();
    let mut low = low.iter().copied().peekable();
    let mut urgent_waits = 0;
    while at < end {
        let mut events = Vec::new();
        while let Some((_, seconds)) = low.next_if(|l| l.0 <= at) {
            cost.insert(id, seconds);
            events.push(Event::Arrive(request(id, 1, seconds)));
            id += 1;
        }
        while urgent_waits < 2 * workers {
            cost.insert(id, 0.01);
            events.push(Event::Arrive(request(id, 0, 0.01)));
            urgent_waits += 1;
            id += 1;
        }
        let done: Vec<RunId> = runs.iter().filter(|r| r.1.2 <= 0.0).map(|r| *r.0).collect();
        for run in done {
            let (session, began, ..) = runs.remove(&run).unwrap();
            match session {
                0 => urgent_waits -= 1,
                _ => ended.push((began, at)),
            }
            events.push(Event::Finish(run));
        }
        for e in events {
            for a in s.step(at, e) {
                match a {
                    Action::Start {
                        run,
                        session,
                        requests,
                        workers,
                    } => {
                        let left = requests.iter().map(|r| cost[r]).sum();
                        runs.insert(run, (session, at, left, workers));
                    }
                    Action::Resize { run, workers } => runs.get_mut(&run).unwrap().3 = workers,
                    _ => {}
                }
            }
        }
        at += 0.001;
        for r in runs.values_mut() {
            r.2 -= 0.001 * f64::from(r.3);
        }
    }
    ended
}

#[test]
fn what_is_low_rises_after_a_second_beside_urgent_requests_without_a_pause() {
    for workers in [1, 3] {
        // One that comes into the middle, one that is long, and one behind it.
        let low = [(0.5, 0.2), (0.6, 0.4), (0.7, 0.01)];
        let ended = beside_urgent(workers, 6.0, &low);
        assert_eq!(ended.len(), 3, "{workers} workers: {ended:?}");
        let first = ended[0].0;
        assert!((1.5..1.55).contains(&first), "{workers} workers: {ended:?}");
        assert!(ended.iter().all(|e| e.1 < 5.0), "{ended:?}");
    }
}

#[test]
fn a_run_that_stands_still_goes_on_after_a_second() {
    // It begins alone, before the urgent ones come at the first step.
    let mut s = scheduler(1, &[policy(|p| p.priority = 1), policy(|_| {})]);
    s.step(0.0, Event::Arrive(request(1, 1, 5.0)));
    let taken = s.step(0.1, Event::Arrive(request(2, 0, 0.5)));
    assert!(
        taken.contains(&Action::Resize { run: 0, workers: 0 }),
        "{taken:?}"
    );
    s.step(0.2, Event::Arrive(request(3, 0, 0.5)));
    s.step(0.3, Event::Arrive(request(4, 0, 0.5)));
    assert_eq!(started(&s.step(0.6, Event::Finish(1))).len(), 1);
    let on = s.step(1.2, Event::Finish(2));
    assert_eq!(on, [Action::Resize { run: 0, workers: 1 }]);
    // It is not made to wait again at once.
    assert!(started(&s.step(1.3, Event::Arrive(request(5, 0, 0.5)))).is_empty());
}

#[test]
fn a_run_starts_with_what_is_free_and_grows() {
    let two = || policy(|p| p.workers = 2);
    let mut s = scheduler(3, &[two(), two()]);
    assert_eq!(
        started(&s.step(0.0, Event::Arrive(request(1, 0, 1.0)))),
        [(0, 0, 2)]
    );
    assert_eq!(
        started(&s.step(0.0, Event::Arrive(request(2, 1, 1.0)))),
        [(1, 1, 1)]
    );
    assert_eq!(
        s.step(1.0, Event::Finish(0)),
        [Action::Resize { run: 1, workers: 2 }]
    );
}

#[test]
fn lost_workers_are_taken_from_the_newest_and_come_back() {
    let mut s = scheduler(2, &[policy(|_| ())]);
    s.step(0.0, Event::Arrive(request(1, 0, 1.0)));
    s.step(0.0, Event::Arrive(request(2, 0, 1.0)));
    assert_eq!(
        s.step(0.1, Event::WorkersChanged(1)),
        [Action::Resize { run: 1, workers: 0 }]
    );
    assert_eq!(
        s.step(0.2, Event::WorkersChanged(0)),
        [Action::Resize { run: 0, workers: 0 }]
    );
    let both = s.step(0.3, Event::WorkersChanged(2));
    assert_eq!(
        both,
        [
            Action::Resize { run: 0, workers: 1 },
            Action::Resize { run: 1, workers: 1 }
        ]
    );
}

#[test]
fn what_cannot_be_in_time_is_turned_away_at_once_and_learned_from() {
    let mut s = scheduler(
        1,
        &[policy(|p| {
            p.deadline = Some(0.25);
            p.max_queued = 1000;
        })],
    );
    let mut admitted = 0;
    for id in 0..10 {
        let a = s.step(0.0, Event::Arrive(request(id, 0, 0.1)));
        admitted += u32::from(!a.iter().any(|a| matches!(a, Action::Reject { .. })));
    }
    assert_eq!(admitted, 2);
    // Runs take twice what was predicted: fewer are admitted.
    s.step(0.2, Event::Finish(0));
    s.step(0.4, Event::Finish(1));
    assert!((s.load(0).unwrap().ratio - 2.0).abs() < 1e-9);
    let a = s.step(1.0, Event::Arrive(request(20, 0, 0.1)));
    assert_eq!(started(&a).len(), 1);
    let a = s.step(1.0, Event::Arrive(request(21, 0, 0.1)));
    assert!(
        matches!(
            &a[..],
            [Action::Reject {
                why: Refusal::Late { .. },
                ..
            }]
        ),
        "{a:?}"
    );
}

#[test]
fn a_deadline_counts_from_the_call_and_not_from_the_arrival_at_the_scheduler() {
    let mut s = scheduler(1, &[policy(|p| p.deadline = Some(1.0))]);
    let waited = |id, cost_s, since_s| Request {
        since_s,
        ..request(id, 0, cost_s)
    };
    let a = s.step(5.0, Event::Arrive(waited(1, 0.6, 0.4)));
    assert!(matches!(
        &a[..],
        [Action::Reject { why: Refusal::Late { predicted_s, deadline_s }, .. }]
            if (predicted_s - 1.06).abs() < 1e-9 && *deadline_s == 1.0
    ));
    let a = s.step(5.0, Event::Arrive(waited(2, 0.4, 0.4)));
    assert_eq!(started(&a).len(), 1);
    s.step(5.0, Event::Arrive(waited(3, 0.1, 0.4)));
    // Due at 5.6, and to start by then.
    assert!((s.wake_at().unwrap() - (5.6 - 0.11)).abs() < 1e-9);
}

#[test]
fn who_is_held_back_for_company_starts_before_it_would_be_given_up() {
    let mut s = scheduler(
        2,
        &[policy(|p| {
            p.deadline = Some(1.0);
            p.workers = 1;
            p.max_running = 2;
            p.batching.max_items = 8;
            p.batching.max_delay_s = 0.8;
        })],
    );
    s.step(0.0, Event::Arrive(request(1, 0, 0.1)));
    let first = started(&s.step(0.8, Event::Tick));
    assert_eq!(first.len(), 1);
    s.step(0.81, Event::Arrive(request(2, 0, 0.1)));
    // The first takes more than twice what was predicted and is late: predictions and their margin widen.
    s.step(1.05, Event::Finish(first[0].0));
    let wake = s.wake_at().unwrap();
    let a = s.step(wake, Event::Tick);
    assert_eq!(started(&a).len(), 1, "{wake} {a:?}");
}

#[test]
fn what_waited_in_vain_is_given_up_on_a_tick() {
    let mut s = scheduler(1, &[policy(|p| p.deadline = Some(1.0))]);
    s.step(0.0, Event::Arrive(request(1, 0, 0.2)));
    s.step(0.0, Event::Arrive(request(2, 0, 0.2)));
    // By its prediction it may start at 0.8, with the margin on that at 0.78.
    let wake = s.wake_at().unwrap();
    assert!((wake - 0.78).abs() < 1e-9);
    assert_eq!(s.step(0.78, Event::Tick), []);
    let gone = s.step(0.79, Event::Tick);
    assert!(
        matches!(&gone[..], [Action::Expire { request: 2, .. }]),
        "{gone:?}"
    );
    assert_eq!(s.wake_at(), None);
}

#[test]
fn cancelled_requests_leave_the_queue_or_stop_their_run() {
    let mut s = scheduler(1, &[policy(|p| p.batching.max_items = 2)]);
    s.step(0.0, Event::Arrive(request(1, 0, 1.0)));
    for id in 2..5 {
        s.step(0.0, Event::Arrive(request(id, 0, 1.0)));
    }
    assert_eq!(s.step(0.1, Event::Cancel(3)), []);
    assert_eq!(s.step(0.1, Event::Cancel(1)), [Action::Stop(0)]);
    assert_eq!(s.step(0.1, Event::Cancel(1)), []);
    let next = s.step(0.2, Event::Finish(0));
    assert!(matches!(&next[..], [Action::Start { requests, .. }] if requests[..] == [2, 4]));
    assert_eq!(s.step(0.3, Event::Cancel(2)), []);
    assert_eq!(s.step(0.3, Event::Cancel(4)), [Action::Stop(1)]);
}

#[test]
fn a_drained_session_ends_what_it_has_and_takes_no_more() {
    let mut s = scheduler(1, &[policy(|_| ())]);
    s.step(0.0, Event::Arrive(request(1, 0, 1.0)));
    s.step(0.0, Event::Arrive(request(2, 0, 1.0)));
    assert_eq!(s.step(0.1, Event::Drain(0)), []);
    let refused = s.step(0.2, Event::Arrive(request(3, 0, 1.0)));
    assert!(matches!(
        &refused[..],
        [Action::Reject {
            why: Refusal::Draining,
            ..
        }]
    ));
    assert_eq!(started(&s.step(1.0, Event::Finish(0))).len(), 1);
    assert_eq!(s.step(2.0, Event::Finish(1)), [Action::Drained(0)]);
    s.step(3.0, Event::SetPolicy(0, policy(|_| ())));
    assert_eq!(
        started(&s.step(3.0, Event::Arrive(request(4, 0, 1.0)))).len(),
        1
    );
}

#[test]
fn batches_wait_for_company_no_longer_than_allowed() {
    let mut s = scheduler(
        1,
        &[policy(|p| {
            p.batching.max_items = 2;
            p.batching.max_delay_s = 0.01;
        })],
    );
    assert_eq!(
        s.step(1.0, Event::Arrive(request(1, 0, 1.0))),
        [Action::Queue(1)]
    );
    assert_eq!(s.wake_at(), Some(1.01));
    assert_eq!(started(&s.step(1.01, Event::Tick)).len(), 1);
    s.step(2.0, Event::Finish(0));
    s.step(2.0, Event::Arrive(request(2, 0, 1.0)));
    let full = s.step(2.001, Event::Arrive(request(3, 0, 1.0)));
    assert!(matches!(&full[..], [Action::Start { requests, .. }] if requests[..] == [2, 3]));
}

/// Runs a closed world for `horizon` seconds: every session always has requests waiting, a run of a
/// session takes `costs` worker seconds of which the scheduler is told `told`. Returns worker seconds
/// per session.
fn shares(
    workers: u32,
    policies: &[Box<SessionPolicy>],
    costs: &[f64],
    told: &[f64],
    horizon: f64,
) -> Vec<f64> {
    let mut s = scheduler(workers, policies);
    let (mut now, mut next, mut served) = (0.0, 0, vec![0.0; policies.len()]);
    let mut runs: Vec<(RunId, SessionId, u32, f64)> = Vec::new();
    let mut actions = Vec::new();
    for session in 0..policies.len() as SessionId {
        for _ in 0..4 {
            actions.extend(s.step(
                now,
                Event::Arrive(request(next, session, told[session as usize])),
            ));
            next += 1;
        }
    }
    while now < horizon {
        for a in actions.drain(..) {
            match a {
                Action::Start {
                    run,
                    session,
                    workers,
                    ..
                } => runs.push((run, session, workers, costs[session as usize])),
                Action::Resize { run, workers } => {
                    if let Some(r) = runs.iter_mut().find(|r| r.0 == run) {
                        r.2 = workers;
                    }
                }
                _ => {}
            }
        }
        let end = |r: &(RunId, SessionId, u32, f64)| match r.2 {
            0 => f64::INFINITY,
            n => r.3 / f64::from(n),
        };
        let at = (0..runs.len())
            .min_by(|&a, &b| end(&runs[a]).total_cmp(&end(&runs[b])))
            .unwrap();
        let dt = end(&runs[at]);
        for r in &mut runs {
            r.3 -= dt * f64::from(r.2);
            served[r.1 as usize] += dt * f64::from(r.2);
        }
        now += dt;
        let (run, session, ..) = runs.swap_remove(at);
        actions.extend(s.step(now, Event::Finish(run)));
        actions.extend(s.step(
            now,
            Event::Arrive(request(next, session, told[session as usize])),
        ));
        next += 1;
    }
    served
}

#[test]
fn workers_are_shared_by_weight_even_where_predictions_are_wrong() {
    let of = |w: f64| policy(|p| p.weight = w);
    for (workers, costs, told) in [
        (2, [0.01, 0.03], [0.01, 0.03]),
        (4, [0.01, 0.03], [0.01, 0.03]),
        // Its predictions are a quarter of the truth, which must not buy it more.
        (2, [0.02, 0.02], [0.005, 0.02]),
    ] {
        let served = shares(workers, &[of(1.0), of(3.0)], &costs, &told, 20.0);
        let share = served[1] / (served[0] + served[1]);
        assert!((share - 0.75).abs() < 0.03, "{workers} {costs:?} {share}");
    }
}

/// A random policy.
fn any_policy(rng: &mut fastrand::Rng) -> Box<SessionPolicy> {
    policy(|p| {
        p.weight = 1.0 + rng.u64(..4) as f64;
        p.priority = rng.u64(..3) as i32;
        p.max_queued = rng.u64(..6) as usize;
        p.max_running = 1 + rng.u64(..4) as usize;
        p.workers = 1 + rng.u64(..5) as u32;
        p.spread = rng.u64(..2) == 0;
        p.deadline = (rng.u64(..2) == 0).then_some(0.5);
        p.batching.max_items = 1 + rng.u64(..4) as u32;
        p.batching.max_delay_s = rng.u64(..2) as f64 * 0.02;
    })
}

/// Workers are shared out without being oversubscribed, and none is idle while something may run.
fn check_workers(
    s: &Scheduler,
    runs: &BTreeMap<RunId, (Vec<RequestId>, u32)>,
    (now, total, waiting): (f64, u32, usize),
    seed: u64,
) {
    let granted: u32 = runs.values().map(|r| r.1).sum();
    assert!(granted <= total, "{seed}: {granted} of {total}");
    assert_eq!(granted, s.granted());
    let load: Vec<SessionLoad> = (0..s.sessions.len() as u32)
        .map(|i| s.load(i).unwrap())
        .collect();
    let queued: usize = load.iter().map(|l| l.queued).sum();
    assert_eq!(queued, waiting, "{seed}");
    if granted < total {
        // A worker is idle: nothing stands still, and what waits may not start.
        assert!(runs.values().all(|r| r.1 > 0), "{seed}");
        for (i, l) in load.iter().enumerate() {
            let p = &s.sessions[&(i as u32)];
            let held = p.queue.ready_at(p.stretch()).is_none_or(|at| at > now);
            assert!(
                l.queued == 0 || held || l.running >= p.policy.max_running,
                "{seed}"
            );
        }
    }
}

#[test]
fn whatever_happens_workers_are_never_oversubscribed_and_no_request_is_lost() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut total = 1 + rng.u64(..8) as u32;
        let mut s = Scheduler::new(total);
        let sessions = 1 + rng.u64(..4) as u32;
        for id in 0..sessions {
            s.step(0.0, Event::SetPolicy(id, any_policy(&mut rng)));
        }
        // What an engine would hold.
        let mut runs: BTreeMap<RunId, (Vec<RequestId>, u32)> = BTreeMap::new();
        let (mut waiting, mut gone, mut cancelled) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut now, mut next) = (0.0, 0);
        for round in 0..400 {
            now += rng.u64(..100) as f64 * 1e-3;
            let ids: Vec<RunId> = runs.iter().filter(|r| r.1.1 > 0).map(|r| *r.0).collect();
            let event = match rng.u64(..10) {
                0..=4 if round < 300 => {
                    next += 1;
                    let mut r = request(
                        next,
                        rng.u64(..u64::from(sessions)) as u32,
                        rng.u64(..200) as f64 * 1e-3,
                    );
                    r.items = 1 + rng.u64(..3) as u32;
                    r.shape = rng.u64(..2);
                    Event::Arrive(r)
                }
                5 if round < 300 => {
                    total = rng.u64(..9) as u32;
                    Event::WorkersChanged(total)
                }
                6 => Event::Cancel(rng.u64(..next + 1)),
                7 => Event::Tick,
                _ if !ids.is_empty() => {
                    let run = ids[rng.u64(..ids.len() as u64) as usize];
                    for r in runs.remove(&run).unwrap().0 {
                        assert!(gone.insert(r));
                    }
                    Event::Finish(run)
                }
                _ if round == 300 => {
                    total = 4;
                    Event::WorkersChanged(4)
                }
                _ => Event::Tick,
            };
            if let Event::Arrive(r) = &event {
                waiting.insert(r.id);
            }
            if let Event::Cancel(r) = &event {
                if waiting.remove(r) {
                    gone.insert(*r);
                }
                cancelled.insert(*r);
            }
            for a in s.step(now, event) {
                match a {
                    Action::Start {
                        run,
                        requests,
                        workers,
                        ..
                    } => {
                        assert!(workers > 0 && !requests.is_empty());
                        for r in &requests {
                            assert!(waiting.remove(r), "{seed}: {r} started twice");
                        }
                        assert!(runs.insert(run, (requests, workers)).is_none());
                    }
                    Action::Resize { run, workers } => runs.get_mut(&run).unwrap().1 = workers,
                    Action::Reject { request, .. } | Action::Expire { request, .. } => {
                        assert!(waiting.remove(&request));
                        assert!(gone.insert(request));
                    }
                    Action::Queue(r) => assert!(waiting.contains(&r)),
                    Action::Stop(run) => {
                        assert!(runs[&run].0.iter().all(|r| cancelled.contains(r)));
                    }
                    Action::Drained(_) => panic!("nobody drains"),
                }
            }
            check_workers(&s, &runs, (now, total, waiting.len()), seed);
        }
        let running: usize = runs.values().map(|r| r.0.len()).sum();
        assert_eq!(
            gone.len() + waiting.len() + running,
            next as usize,
            "{seed}"
        );
    }
}

#[test]
fn while_requests_wait_runs_share_the_workers_out() {
    let wide = policy(|p| {
        p.workers = 4;
        p.spread = true;
    });
    let mut s = scheduler(4, &[wide]);
    // Alone it has them all, and then no more than is even.
    let first = s.step(0.0, Event::Arrive(request(0, 0, 1.0)));
    assert_eq!(started(&first), [(0, 0, 4)]);
    let resized = |run, workers| Action::Resize { run, workers };
    let second = s.step(0.1, Event::Arrive(request(1, 0, 1.0)));
    assert_eq!(started(&second), [(1, 0, 2)]);
    assert!(second.contains(&resized(0, 2)));
    for id in 2..=5 {
        s.step(0.2, Event::Arrive(request(id, 0, 1.0)));
    }
    let granted = |s: &Scheduler| s.runs.values().map(|r| r.granted).collect::<Vec<_>>();
    assert_eq!(granted(&s), [1, 1, 1, 1]);
    assert_eq!(s.load(0).unwrap().queued, 2);
    for run in 0..2 {
        s.step(1.0, Event::Finish(run));
    }
    assert_eq!(granted(&s), [1, 1, 1, 1]);
    // Nobody waits any more: who is left has what comes free.
    for run in 2..5 {
        s.step(2.0, Event::Finish(run));
    }
    assert_eq!(granted(&s), [4]);
    // Of one that does not share nothing is taken.
    let own = policy(|p| p.workers = 4);
    let mut s = scheduler(4, &[own]);
    s.step(0.0, Event::Arrive(request(0, 0, 1.0)));
    assert_eq!(started(&s.step(0.1, Event::Arrive(request(1, 0, 1.0)))), []);
}

#[test]
fn what_a_batch_leaves_behind_has_a_time_of_its_own() {
    let joined = policy(|p| {
        p.batching = Batching {
            max_items: 2,
            max_delay_s: 1.0,
            marginal: 1.0,
        };
    });
    let mut s = scheduler(1, &[joined]);
    let at = [(0.0, 1), (0.0, 2), (0.1, 3), (0.1, 4), (0.9, 5)];
    for (now, id) in at {
        s.step(now, Event::Arrive(request(id, 0, 0.1)));
    }
    // The worker is busy, and the next batch is full: nothing is to be done by the clock.
    assert_eq!(s.wake_at(), None);
    let own = s.wake_for(0, 5).expect("its own time");
    assert_eq!(started(&s.step(1.0, Event::Finish(0))), [(1, 0, 1)]);
    s.step(1.1, Event::Finish(1));
    // Nothing else will happen: its caller has to come by itself.
    assert!((own - 1.9).abs() < 1e-9, "{own}");
    assert_eq!(started(&s.step(own, Event::Tick)), [(2, 0, 1)]);
    assert_eq!(s.wake_for(0, 5), None);
}
