//! The supervisor's decisions on made-up windows: noise, lying descriptions, lost cores, trials, its log.
use super::*;
use machine::Bound;

fn memory() -> Bound {
    Bound::Memory("DRAM".into())
}

fn step(bound: Bound, measured_s: f64) -> StepSeen {
    StepSeen {
        session: 0,
        step: format!("step {bound}"),
        bound,
        predicted_s: 1e-3,
        measured_s,
        count: 10,
    }
}

/// A window in which memory-bound steps take `memory_ms` and others `compute_ms`, predicted 1 ms.
fn window(memory_ms: f64, compute_ms: f64) -> Window {
    Window {
        sessions: vec![SessionSeen {
            session: 0,
            seconds: 0.1,
            arrivals: 20,
            finished: 20,
            run_s: (memory_ms + compute_ms) * 1e-3,
            predicted_s: 2e-3,
            shapes: vec![(7, 20)],
            ..SessionSeen::default()
        }],
        steps: vec![
            step(memory(), memory_ms * 1e-3),
            step(Bound::Compute("fma".into()), compute_ms * 1e-3),
        ],
        workers: vec![1.0, 1.0],
        trial: None,
    }
}

fn proposal(id: ProposalId, gain: f64) -> Proposal {
    Proposal {
        id,
        subject: "session 0: schedules".into(),
        sessions: vec![0],
        gain,
        compare: Compare::RunSeconds,
        why: Why {
            pass: "propose".into(),
            subject: "model".into(),
            choice: format!("plan {id}"),
            alternatives: vec![],
            reason: "smaller tiles".into(),
        },
    }
}

struct Host {
    s: Supervisor,
    now: f64,
    log: Log<Vec<u8>>,
}

impl Host {
    fn new(options: Options) -> Host {
        let log = Log::new(Vec::new(), &options).unwrap();
        Host {
            s: Supervisor::new(options),
            now: 0.0,
            log,
        }
    }

    fn tell(&mut self, o: Observation) -> Vec<Action> {
        let did = self.s.step(self.now, o.clone());
        let record = Record {
            at: self.now,
            told: o,
            did: did.clone(),
        };
        self.log.write(&record).unwrap();
        did
    }

    fn window(&mut self, w: Window) -> Vec<Action> {
        self.now += 0.1;
        self.tell(Observation::Window(Box::new(w)))
    }

    /// Windows until the planner is asked; panics after `most`.
    fn until_asked(&mut self, w: &Window, most: usize) -> Box<plan::Observations> {
        for _ in 0..most {
            for a in self.window(w.clone()) {
                if let Action::Propose(o) = a {
                    return o;
                }
            }
        }
        panic!("not asked within {most} windows");
    }

    /// A trial of `id` in which requests take `with` and `without` ms; the last action of it.
    fn trial(&mut self, id: ProposalId, w: &Window, with: f64, without: f64) -> Option<Action> {
        for i in 0..120 {
            let mut w = w.clone();
            let spread = |v: f64| {
                (0..4)
                    .map(|k| (v + 0.01 * f64::from((i + k) % 5)) * 1e-3)
                    .collect()
            };
            w.trial = Some(TrialSeen {
                proposal: id,
                with: spread(with),
                without: spread(without),
                compared: 1,
                ..TrialSeen::default()
            });
            let end = self
                .window(w)
                .into_iter()
                .find(|a| matches!(a, Action::Promote(_) | Action::RollBack(_)));
            if end.is_some() {
                return end;
            }
        }
        None
    }
}

fn passes(s: &Supervisor) -> Vec<String> {
    s.decisions().map(|d| d.why.pass.clone()).collect()
}

#[test]
fn noise_and_lone_outliers_are_no_facts() {
    let mut h = Host::new(Options::default());
    for i in 0..200 {
        let noise = 1.0 + 0.06 * f64::from(i % 7 - 3) / 3.0;
        let outlier = if i % 9 == 0 { 5.0 } else { 1.0 };
        let did = h.window(window(noise * outlier, noise));
        assert_eq!(did, [], "window {i}");
    }
}

#[test]
fn a_machine_file_that_lies_is_noticed_and_the_planner_hears_by_how_much() {
    let mut h = Host::new(Options::default());
    let asked = h.until_asked(&window(4.0, 1.0), 4);
    assert_eq!(asked.rates.len(), 1);
    assert_eq!(asked.rates[0].bound, memory());
    assert!((asked.rates[0].factor - 0.25).abs() < 1e-9);
    let noticed = h.s.decisions().next().unwrap();
    assert!(
        noticed.why.reason.contains("promises too much"),
        "{noticed:?}"
    );
    // Later the same: a neighbour.
    let mut h = Host::new(Options::default());
    for _ in 0..20 {
        h.window(window(1.0, 1.0));
    }
    h.until_asked(&window(2.0, 1.0), 4);
    assert!(
        h.s.decisions()
            .next()
            .unwrap()
            .why
            .reason
            .contains("somebody else uses the memory")
    );
    // And everything slower: the clock.
    let mut h = Host::new(Options::default());
    for _ in 0..20 {
        h.window(window(1.0, 1.0));
    }
    h.until_asked(&window(1.6, 1.6), 4);
    assert!(h.s.decisions().any(|d| d.why.reason.contains("clock")));
}

#[test]
fn an_answer_of_no_use_is_followed_by_a_rest_that_only_workers_and_shapes_end() {
    let asked = |h: &mut Host, w: &Window, most: usize| -> Option<f64> {
        let from = h.now;
        (0..most).find_map(|_| {
            let did = h.window(w.clone());
            let asks = did.iter().any(|a| matches!(a, Action::Propose(_)));
            asks.then_some(h.now - from)
        })
    };
    for (lost, least, most) in [(false, 2.0, 3.5), (true, 0.1, 1.0)] {
        let mut h = Host::new(Options::default());
        h.until_asked(&window(2.0, 1.0), 10);
        // It takes half a second, in which things change again.
        for _ in 0..5 {
            h.window(window(3.0, 1.0));
        }
        h.tell(Observation::Proposed(vec![]));
        let mut w = window(3.0, 1.0);
        w.workers[1] = if lost { 0.1 } else { 1.0 };
        let after = asked(&mut h, &w, 60).unwrap();
        assert!((least..most).contains(&after), "lost {lost}: {after}");
    }
}

/// What would pay and only came too early is asked for again when its time has come, and not after the rest that
/// follows an answer of no use, which would last longer here.
#[test]
fn a_change_that_came_too_early_is_not_put_off_by_a_rest() {
    let mut h = Host::new(Options {
        back_off_s: 4.0,
        ..Options::default()
    });
    h.until_asked(&window(3.0, 1.0), 5);
    h.tell(Observation::Proposed(vec![proposal(1, 0.3)]));
    h.tell(Observation::Ready {
        proposal: 1,
        failed: Some("no memory".into()),
    });
    let due = h.now + 4.0;
    let w = window(6.0, 1.0);
    h.until_asked(&w, 15);
    for _ in 0..15 {
        h.window(w.clone());
    }
    h.tell(Observation::Proposed(vec![proposal(2, 0.3)]));
    assert!(h.now < due, "it came too early");
    assert!(
        h.now + super::REST * 1.5 > due + 2.0,
        "and the rest is longer"
    );
    h.until_asked(&w, 40);
    assert!((due..due + 0.5).contains(&h.now), "{} for {due}", h.now);
}

#[test]
fn lost_cores_are_no_slow_machine_and_come_back() {
    let mut h = Host::new(Options::default());
    let mut all = Vec::new();
    for i in 0..60 {
        let lost = (10..40).contains(&i);
        let mut w = if lost {
            window(1.8, 1.8)
        } else {
            window(1.0, 1.0)
        };
        w.workers[1] = if lost { 0.1 } else { 1.0 };
        // Nothing the planner proposes.
        let did = h.window(w);
        if did.iter().any(|a| matches!(a, Action::Propose(_))) {
            all.extend(h.tell(Observation::Proposed(vec![])));
        }
        all.extend(did);
    }
    let workers: Vec<(u32, Vec<u32>)> = all
        .iter()
        .filter_map(|a| match a {
            Action::Workers { usable, avoid } => Some((*usable, avoid.clone())),
            _ => None,
        })
        .collect();
    // A tenth of a core is not worth a worker.
    assert_eq!(workers, [(2, vec![1]), (2, vec![])]);
    let lost =
        h.s.decisions()
            .find(|d| d.why.choice == "lost its core")
            .unwrap();
    assert!(lost.at < 1.0 + 0.5, "{}", lost.at);
    let mut asked = all.iter().filter_map(|a| match a {
        Action::Propose(o) => Some(o.load.shares.clone()),
        _ => None,
    });
    assert_eq!(asked.next().unwrap(), [1.0, 0.1]);
}

#[test]
fn what_is_faster_is_promoted_and_what_is_not_is_rolled_back() {
    for (with, without, good) in [(0.8, 1.0, true), (1.2, 1.0, false), (1.0, 1.0, false)] {
        let mut h = Host::new(Options::default());
        let w = window(3.0, 1.0);
        h.until_asked(&w, 5);
        let did = h.tell(Observation::Proposed(vec![
            proposal(1, 0.02),
            proposal(2, 0.3),
        ]));
        assert!(
            matches!(did[..], [Action::Note(_), Action::Prepare(2)]),
            "{did:?}"
        );
        let did = h.tell(Observation::Ready {
            proposal: 2,
            failed: None,
        });
        assert!(
            matches!(
                did[..],
                [Action::Try {
                    proposal: 2,
                    every: 4 | 2
                }]
            ),
            "{did:?}"
        );
        let end = h.trial(2, &w, with, without);
        let expected = if good {
            Action::Promote(2)
        } else {
            Action::RollBack(2)
        };
        assert_eq!(end, Some(expected), "{with} {without}");
    }
}

#[test]
fn wrong_outputs_failures_and_what_cannot_be_made_end_a_trial_at_once() {
    let trials = [
        TrialSeen {
            proposal: 2,
            compared: 3,
            differed: 1,
            ..TrialSeen::default()
        },
        TrialSeen {
            proposal: 2,
            failed: 1,
            ..TrialSeen::default()
        },
    ];
    for t in trials {
        let mut h = Host::new(Options::default());
        let mut w = window(3.0, 1.0);
        h.until_asked(&w, 5);
        h.tell(Observation::Proposed(vec![proposal(2, 0.3)]));
        h.tell(Observation::Ready {
            proposal: 2,
            failed: None,
        });
        w.trial = Some(t);
        assert!(h.window(w).contains(&Action::RollBack(2)));
    }
    let mut h = Host::new(Options::default());
    h.until_asked(&window(3.0, 1.0), 5);
    h.tell(Observation::Proposed(vec![proposal(2, 0.3)]));
    let failed = Some("no memory".to_string());
    let did = h.tell(Observation::Ready {
        proposal: 2,
        failed,
    });
    assert!(did.contains(&Action::RollBack(2)));
    assert!(
        h.s.decisions()
            .last()
            .unwrap()
            .why
            .reason
            .contains("no memory")
    );
}

#[test]
fn observing_says_what_it_would_do_and_off_says_nothing() {
    let mut h = Host::new(Options {
        mode: Mode::Observe,
        ..Options::default()
    });
    h.until_asked(&window(3.0, 1.0), 5);
    let did = h.tell(Observation::Proposed(vec![proposal(1, 0.3)]));
    assert!(matches!(did[..], [Action::Note(_)]));
    assert_eq!(passes(&h.s), ["noticed", "noticed", "asked", "trying"]);
    let mut h = Host::new(Options {
        mode: Mode::Off,
        ..Options::default()
    });
    for _ in 0..50 {
        assert_eq!(h.window(window(3.0, 1.0)), []);
    }
}

/// A memory that is fast and slow in turn, and a planner that always has the better plan for now.
#[test]
fn a_load_that_swings_does_not_make_the_plan_swing() {
    for half_period in [4, 7, 12, 25, 60] {
        let mut h = Host::new(Options::default());
        let (mut promoted, mut next) = (Vec::new(), 0);
        let mut tried = None;
        for i in 0..6000 {
            let slow = (i / half_period) % 2 == 1;
            let mut w = window(if slow { 3.0 } else { 1.0 }, 1.0);
            if let Some(id) = tried {
                w.trial = Some(TrialSeen {
                    proposal: id,
                    with: vec![0.8e-3, 0.81e-3, 0.82e-3],
                    without: vec![1e-3, 1.01e-3, 1.02e-3],
                    ..TrialSeen::default()
                });
            }
            let mut todo = h.window(w);
            while let Some(a) = todo.pop() {
                match a {
                    Action::Propose(_) => {
                        next += 1;
                        todo.extend(h.tell(Observation::Proposed(vec![proposal(next, 0.5)])));
                    }
                    Action::Prepare(proposal) => {
                        todo.extend(h.tell(Observation::Ready {
                            proposal,
                            failed: None,
                        }));
                    }
                    Action::Try { proposal, .. } => tried = Some(proposal),
                    Action::Promote(_) => {
                        promoted.push(h.now);
                        tried = None;
                    }
                    Action::RollBack(_) => tried = None,
                    _ => {}
                }
            }
        }
        // Ten minutes; the waits are 0.5, 2, 8, 32, 128 s, and one is forgiven each quiet minute.
        assert!(
            (1..=12).contains(&promoted.len()),
            "every {half_period} windows: {promoted:?}"
        );
        let decisions = h.s.decisions().count();
        assert!(decisions <= h.s.options().history);
        let log = h.log.into_inner();
        let again = replay(&log[..]).unwrap();
        assert_eq!(again.differs_at, None);
        assert_eq!(
            again.decisions[again.decisions.len() - decisions..],
            h.s.decisions().cloned().collect::<Vec<_>>()[..]
        );
    }
}

/// A plan that was tried in vain is tried for longer the next time, but not where it costs many times what it promises.
#[test]
fn a_trial_that_is_slower_by_far_ends_at_once() {
    let seconds = |with: f64| {
        let mut h = Host::new(Options::default());
        let w = window(1.0, 1.0);
        let mut last = 0.0;
        for id in 1..=3 {
            // What was tried has to wait.
            let taken = (0..2000).any(|i| {
                let slow = (i / 25) % 2 == 1;
                let all = h.window(window(if slow { 3.0 } else { 1.0 }, 1.0));
                let asked = all.iter().any(|a| matches!(a, Action::Propose(_)));
                let mut answer = match asked {
                    true => h.tell(Observation::Proposed(vec![proposal(id, 8.0)])),
                    false => vec![],
                };
                answer.retain(|a| matches!(a, Action::Prepare(_)));
                !answer.is_empty()
            });
            assert!(taken, "plan {id}");
            let todo = h.tell(Observation::Ready {
                proposal: id,
                failed: None,
            });
            assert!(todo.iter().any(|a| matches!(a, Action::Try { .. })));
            let begin = h.now;
            let end = h.trial(id, &w, with, 1.0);
            assert!(matches!(end, Some(Action::RollBack(_))), "{end:?}");
            last = h.now - begin;
        }
        last
    };
    // The third lasts 2 s, the wait before it.
    assert!(seconds(1.2) >= 2.0, "{}", seconds(1.2));
    assert!(seconds(20.0) < 1.0, "{}", seconds(20.0));
}

#[test]
fn traffic_shapes_and_queues_are_noticed() {
    let mut h = Host::new(Options::default());
    let mut w = window(1.0, 1.0);
    for _ in 0..20 {
        assert_eq!(h.window(w.clone()), []);
    }
    w.sessions[0].shapes = vec![(9, 18), (7, 2)];
    h.until_asked(&w, 4);
    assert!(passes(&h.s).contains(&"noticed".into()));
    h.tell(Observation::Proposed(vec![]));
    w.sessions[0].arrivals = 100;
    w.sessions[0].shapes = vec![(9, 100)];
    h.until_asked(&w, 12);
    assert!(h.s.decisions().any(|d| d.why.reason.contains("traffic")));
    h.tell(Observation::Proposed(vec![]));
    for i in 0..4 {
        w.sessions[0].queued = 10 + 10 * i;
        w.sessions[0].finished = 20;
        h.window(w.clone());
    }
    assert!(
        h.s.decisions()
            .any(|d| d.why.choice.contains("requests wait"))
    );
}

#[test]
fn a_damaged_log_is_an_error_and_a_cut_one_is_not() {
    let mut h = Host::new(Options::default());
    for _ in 0..6 {
        h.window(window(3.0, 1.0));
    }
    let log = h.log.into_inner();
    let whole = replay(&log[..]).unwrap();
    assert_eq!(whole.records, 6);
    assert!(!whole.decisions.is_empty());
    assert_eq!(replay(&log[..log.len() - 9]).unwrap().records, 5);
    let text = String::from_utf8(log.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let broken = format!("{}\n{}x\n{}\n", lines[0], lines[1], lines[2]);
    assert!(matches!(
        replay(broken.as_bytes()),
        Err(LogError::Line { line: 2, .. })
    ));
    assert!(replay(&b""[..]).is_err());
    // Decisions that were changed by hand are found.
    let other = text.replace("promises too much", "promises nothing");
    assert!(replay(other.as_bytes()).unwrap().differs_at.is_some());
}
