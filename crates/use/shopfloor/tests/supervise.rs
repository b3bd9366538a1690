//! The supervisor on a running engine: plans tried beside traffic, promoted, rolled back, written down.
use crate::common;

use shopfloor::status;
use shopfloor::{
    Engine, Outputs, Session, SuperviseOptions, Supervision, Tensor, Tolerance, compare, inputs,
};
use supervisor::supervise::{Decision, Mode, replay};

use plan::{Allotment, Candidate, Change, Goal, Observations, Plan, PlanError, Planner, Serving};
use plan::{PlanSegment, Program, StepWork, VerifiedPlan, Why};
use runtime::{Capture, TrialShare};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../models/digits_cnn/model.onnx")
}

/// What the steps of plans that [`Proposing`] proposes have behind their names.
const AGAIN: &str = " again";

/// Proposes the plan in use under other names, as something that pays.
struct Proposing {
    inner: planner::Planner,
    asked: AtomicUsize,
    /// How many sessions it was asked about at most.
    sessions: AtomicUsize,
    workers: u32,
    /// Whether what it proposes computes something else.
    wrong: bool,
}

impl Planner for Proposing {
    fn bind(&self, p: &Program, d: &layout::DimBox, a: &Allotment) -> Result<Plan, PlanError> {
        self.inner.bind(p, d, a)
    }

    fn bind_like(
        &self,
        p: &Program,
        d: &layout::DimBox,
        a: &Allotment,
        likes: &[&VerifiedPlan],
    ) -> Result<Plan, PlanError> {
        self.inner.bind_like(p, d, a, likes)
    }

    fn propose(&self, _: &Observations, serving: &[Serving]) -> Vec<Candidate> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.sessions.fetch_max(serving.len(), Ordering::SeqCst);
        let new = |s: &&Serving| !s.plan.blocks().any(|b| b.steps[0].name.ends_with(AGAIN));
        serving
            .iter()
            .filter(new)
            .map(|s| Candidate {
                changes: vec![Change {
                    session: s.session,
                    plan: match self.wrong {
                        true => otherwise(again(s.plan)),
                        false => again(s.plan),
                    },
                    allotment: Allotment {
                        workers: vec![self.workers],
                        ..s.allotment.clone()
                    },
                    items: s.items,
                    instances: s.instances,
                }],
                now_s: 2e-3,
                gain_s: 1e-3,
                why: Why {
                    pass: "propose".into(),
                    subject: s.program.name.clone(),
                    choice: "the same once more".into(),
                    alternatives: vec![],
                    reason: "a test wants it".into(),
                },
            })
            .collect()
    }
}

/// The plan with other names of its steps.
fn again(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for s in &mut plan.segments {
        if let PlanSegment::Block(b) = s {
            b.steps.iter_mut().for_each(|s| s.name += AGAIN);
        }
    }
    plan
}

/// The plan with other constants in what it does element by element.
fn otherwise(mut plan: Plan) -> Plan {
    for segment in &mut plan.segments {
        let PlanSegment::Block(b) = segment else {
            continue;
        };
        for step in &mut b.steps {
            let StepWork::Kernel { kernel, .. } = &mut step.work else {
                continue;
            };
            for s in &mut Arc::make_mut(kernel).body {
                let kernel::Stmt::Map { expr, args, .. } = s else {
                    continue;
                };
                for i in expr.insts.iter_mut().filter(|_| !args.is_empty()) {
                    if let expr::Inst::Float { bits, .. } = i {
                        *bits = (f64::from_bits(*bits) + 0.5).to_bits();
                    }
                }
            }
        }
    }
    plan
}

/// An engine whose planner proposes, and on which `fault` is called before every ticket.
fn engine(workers: u32, fault: Arc<cpu::Fault>) -> (Arc<Engine>, Arc<Proposing>) {
    engine_that(workers, fault, false)
}

/// As [`engine`]; with `wrong` what it proposes computes something else.
fn engine_that(workers: u32, fault: Arc<cpu::Fault>, wrong: bool) -> (Arc<Engine>, Arc<Proposing>) {
    let device = cpu::CpuDevice::new(cpu::CpuOptions {
        threads: Some(2),
        fault: Some(fault),
        ..Default::default()
    })
    .unwrap();
    let planner = Arc::new(Proposing {
        inner: planner::Planner::new(
            vec![(
                device::Device::machine(&device).clone(),
                device::Device::target(&device).clone(),
            )],
            planner::PlanOptions::default(),
        ),
        asked: AtomicUsize::new(0),
        sessions: AtomicUsize::new(0),
        workers,
        wrong,
    });
    (Engine::new(Arc::new(device), planner.clone()), planner)
}

/// Steps take 300 us more unless they are those of a plan that was proposed.
fn slow_at_first() -> Arc<cpu::Fault> {
    Arc::new(|step: &str| {
        if !step.ends_with(AGAIN) {
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(())
    })
}

fn named(s: &Session, seed: u64) -> Vec<(String, Tensor)> {
    let mut named = inputs::random_inputs(s.model(), &inputs::sizes(s.model()).0).unwrap();
    let t = &mut named[0].1;
    for i in 0..t.len() {
        let v = t.get_f64(i);
        t.set_f64(i, v * (1.0 + (seed % 31) as f64 / 16.0));
    }
    named
}

fn same(got: Outputs, want: Outputs) {
    let t = Tolerance {
        rtol: 1e-5,
        atol: 1e-7,
    };
    let c = compare(&got.into_vec(), &want.into_vec(), t);
    assert!(c.agrees, "{:?}", c.complaint());
}

/// A file in memory.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, b: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(b);
        Ok(b.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn passes(all: &[Decision]) -> Vec<&str> {
    all.iter().map(|d| d.why.pass.as_str()).collect()
}

/// Whether a plan of the session is one that [`Proposing`] proposed.
fn has_proposed(s: &Session) -> bool {
    let plans = s.runtime().plans();
    let steps = plans.iter().flat_map(|p| p.plan().blocks());
    let mut steps = steps.flat_map(|b| &b.steps);
    steps.any(|s| s.name.ends_with(AGAIN))
}

/// Two callers of `s` until `done`, every answer checked.
fn traffic(s: &Session, done: &(dyn Fn() -> bool + Sync)) {
    let lone = Session::builder()
        .with_threads(1)
        .commit_from_file(file())
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        for c in 0..2u64 {
            let (s, lone) = (&s, &lone);
            scope.spawn(move || {
                let x = named(s, c);
                let given = inputs::borrowed(&x);
                let want = lone.run(&given).unwrap();
                let want = want.into_vec();
                let t = Tolerance {
                    rtol: 1e-5,
                    atol: 1e-7,
                };
                while !done() {
                    let got = s.run(&given).unwrap().into_vec();
                    let c = compare(&got, &want, t);
                    assert!(c.agrees, "{:?}", c.complaint());
                    assert!(Instant::now() < until, "it takes too long");
                }
            });
        }
    });
}

#[test]
fn a_plan_takes_turns_with_another_and_then_their_place() {
    let fail = Arc::new(AtomicBool::new(false));
    let fails = fail.clone();
    let (e, _) = engine(
        2,
        Arc::new(move |_: &str| {
            // Of shorter runs only some are looked at.
            std::thread::sleep(Duration::from_micros(50));
            match fails.swap(false, Ordering::SeqCst) {
                true => Err("on purpose".into()),
                false => Ok(()),
            }
        }),
    );
    let s = Session::builder()
        .with_engine(e)
        .commit_from_file(file())
        .unwrap();
    let x = named(&s, 1);
    let given = inputs::borrowed(&x);
    let want = || s.run(&given).unwrap();
    want();
    let served = s.runtime().handle().clone();
    served.watch(true);
    served.time_steps(1);
    want();
    served.keep(Capture::Any);
    want();
    let seen = served.look();
    assert_eq!(
        (seen.arrivals, seen.runs.len(), seen.timed.len()),
        (2, 1, 1)
    );
    assert_eq!(seen.shapes.len(), 1);
    assert!(seen.runs[0].steady && seen.runs[0].with.is_none());
    let kept = seen.kept.unwrap();
    let plan = &seen.runs[0].plan;
    let walls = seen.timed[0].timeline.step_wall_ns();
    assert_eq!(
        walls.len(),
        plan.plan().blocks().flat_map(|b| &b.steps).count()
    );
    let prepared = served.prepare(again(plan.plan())).unwrap();
    let other = served.run_beside(Some(&prepared), &kept.inputs).unwrap();
    assert_eq!(other[0].bytes(), kept.outputs[0].bytes());
    let own = served.run_beside(None, &kept.inputs).unwrap();
    assert_eq!(own[0].bytes(), kept.outputs[0].bytes());
    served.try_plan(&prepared, TrialShare::Every(2));
    // The first is the new plan's, and what fails with it is not the request's fault.
    fail.store(true, Ordering::SeqCst);
    for _ in 0..8 {
        same(want(), want());
    }
    let seen = served.look();
    let with = |v| seen.runs.iter().filter(|r| r.with == Some(v)).count();
    assert_eq!((with(true), with(false), seen.failed), (7, 8, 1));
    for r in seen.runs.iter().filter(|r| r.with.is_some()) {
        let new = Arc::ptr_eq(&r.plan, prepared.plan());
        assert_eq!(r.with, Some(new));
    }
    served.end_trial();
    served.try_plan(&prepared, TrialShare::Windows);
    want();
    served.turn(true);
    want();
    let seen = served.look();
    let with: Vec<_> = seen.runs.iter().map(|r| r.with).collect();
    assert_eq!(with, [Some(false), Some(true)]);
    served.promote(prepared.clone());
    want();
    let seen = served.look();
    assert!(Arc::ptr_eq(&seen.runs[0].plan, prepared.plan()));
    assert!(Arc::ptr_eq(
        &s.runtime().current_plan().unwrap(),
        prepared.plan()
    ));
    // Sizes that it does not cover have their own plan, and come back to it.
    let sizes = [("batch".to_string(), 3)].into_iter().collect();
    let three = inputs::random_inputs(s.model(), &sizes).unwrap();
    s.run(&inputs::borrowed(&three)).unwrap();
    want();
    let seen = served.look();
    assert!(Arc::ptr_eq(&seen.runs[1].plan, prepared.plan()));
    assert!(!Arc::ptr_eq(&seen.runs[0].plan, prepared.plan()));
    // Nothing is kept of what nobody watches.
    served.watch(false);
    want();
    assert_eq!(served.look().arrivals, 0);
}

#[test]
fn what_pays_is_promoted_beside_traffic_and_the_log_replays() {
    let (e, planner) = engine(2, slow_at_first());
    let s = Session::builder()
        .with_engine(e.clone())
        .commit_from_file(file())
        .unwrap();
    let log = Shared::default();
    let heard = Arc::new(Mutex::new(Vec::<Decision>::new()));
    let hears = heard.clone();
    let supervision = Supervision::start(
        &e,
        SuperviseOptions {
            window: Duration::from_millis(20),
            log: Some(Box::new(log.clone())),
            hear: Some(Box::new(move |d| hears.lock().unwrap().push(d.clone()))),
            ..SuperviseOptions::of(Mode::On)
        },
    )
    .unwrap();
    assert!(Supervision::start(&e, SuperviseOptions::default()).is_err());
    traffic(&s, &|| passes(&e.decisions()).contains(&"promoted"));
    let spent = supervision.finish().unwrap();
    assert!(spent.windows > 0 && planner.asked.load(Ordering::SeqCst) > 0);
    let plan = s.runtime().current_plan().unwrap();
    let block = plan.plan().blocks().next().unwrap();
    assert!(block.steps[0].name.ends_with(AGAIN));
    let heard = heard.lock().unwrap();
    assert!(passes(&heard).contains(&"trying") && passes(&heard).contains(&"promoted"));
    assert!(!passes(&heard).contains(&"rolled back"), "{heard:#?}");
    assert_eq!(e.supervision(), None);
    let text = log.0.lock().unwrap().clone();
    let r = replay(text.as_slice()).unwrap();
    assert_eq!(r.differs_at, None);
    assert_eq!(r.decisions, *heard);
    let shown = status::Status::of(&e, 1.0);
    assert!(shown.decisions.iter().any(|d| d.why.pass == "promoted"));
}

/// A plan that is faster and computes something else is never a caller's: its outputs are compared with those
/// of a live request before it is tried.
#[test]
fn a_plan_with_other_outputs_is_rolled_back() {
    let (e, _) = engine_that(2, slow_at_first(), true);
    let s = Session::builder()
        .with_engine(e.clone())
        .commit_from_file(file())
        .unwrap();
    let window = Duration::from_millis(20);
    let on = SuperviseOptions {
        window,
        ..SuperviseOptions::of(Mode::On)
    };
    let supervision = Supervision::start(&e, on).unwrap();
    traffic(&s, &|| passes(&e.decisions()).contains(&"rolled back"));
    supervision.finish().unwrap();
    let all = e.decisions();
    assert!(!passes(&all).contains(&"promoted"), "{all:#?}");
    let why = all.iter().find(|d| d.why.pass == "rolled back").unwrap();
    println!("{}", why.why.reason);
    assert!(!has_proposed(&s));
    // Every decision stands in the engine's timeline, with its reason.
    let t = e.timeline();
    let said: Vec<&Why> = t.marks.iter().map(|m| &m.why).collect();
    let made: Vec<&Why> = all.iter().map(|d| &d.why).collect();
    assert_eq!(said, made);
    assert!(t.marks.windows(2).all(|w| w[0].at_ns <= w[1].at_ns));
    assert!(t.marks.iter().all(|m| m.at_ns <= t.total_ns));
    assert!(!t.steps.is_empty());
    assert!(
        t.steps
            .iter()
            .all(|n| n.starts_with(&s.model().program().name))
    );
}

/// A planner that hears nothing of who else uses the cores: other tests do.
struct Alone(planner::Planner);

impl Planner for Alone {
    fn bind(&self, p: &Program, d: &layout::DimBox, a: &Allotment) -> Result<Plan, PlanError> {
        self.0.bind(p, d, a)
    }

    fn propose(&self, seen: &Observations, serving: &[Serving]) -> Vec<Candidate> {
        let alone = Observations {
            load: Default::default(),
            ..seen.clone()
        };
        self.0.propose(&alone, serving)
    }
}

/// A session on `model`, planned for a Zen 5 of which `told` is changed, of which steps that are not `fast`
/// take 300 us more, beside traffic until another plan that has to do with `what` was tried and is promoted, or, where no
/// step is slowed, is left again: the plan that it began with, the one that was promoted, and what was said when it
/// was tried.
fn tried(
    model: &[u8],
    told: &[&str],
    fast: Option<fn(&str) -> bool>,
    what: &str,
) -> (Arc<VerifiedPlan>, Option<Arc<VerifiedPlan>>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model).unwrap();
    let slow = move |step: &str| {
        if fast.is_some_and(|fast| !fast(step)) {
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(())
    };
    let mut machine = shopfloor::machines::find("zen5-2core").unwrap();
    for t in told {
        let change: machine::Change = t.parse().unwrap();
        change.apply(&mut machine).unwrap();
    }
    let device = cpu::CpuDevice::new(cpu::CpuOptions {
        threads: Some(2),
        fault: Some(Arc::new(slow)),
        machine: Some(machine),
        ..Default::default()
    })
    .unwrap();
    let own = (
        device::Device::machine(&device).clone(),
        device::Device::target(&device).clone(),
    );
    let planner = planner::Planner::new(vec![own], planner::PlanOptions::default());
    let e = Engine::new(Arc::new(device), Arc::new(Alone(planner)));
    let s = Session::builder()
        .with_engine(e.clone())
        .commit_from_file(&path)
        .unwrap();
    let x = named(&s, 5);
    let given = inputs::borrowed(&x);
    let want = s.run(&given).unwrap().into_vec();
    let first = s.runtime().plans().swap_remove(0);
    let window = Duration::from_millis(20);
    let on = SuperviseOptions {
        window,
        ..SuperviseOptions::of(Mode::On)
    };
    let supervision = Supervision::start(&e, on).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let tolerance = Tolerance {
        rtol: 1e-4,
        atol: 1e-6,
    };
    let check = || {
        let got = s.run(&given).unwrap().into_vec();
        let c = compare(&got, &want, tolerance);
        assert!(c.agrees, "{:?}", c.complaint());
    };
    let said = |pass: &str| {
        let all = e.decisions();
        let own = |d: &&Decision| d.why.pass == pass && d.why.choice.contains(what);
        all.iter().rfind(own).map(|d| d.why.choice.clone())
    };
    let left = || {
        let all = e.decisions();
        fast.is_none()
            && said("trying").is_some()
            && all.iter().any(|d| d.why.choice == "as it was")
    };
    while said("promoted").is_none() && !left() {
        check();
        assert!(Instant::now() < until, "{:#?}", e.decisions());
    }
    supervision.finish().unwrap();
    check();
    let tried = said("trying").unwrap();
    if said("promoted").is_none() {
        return (first, None, tried);
    }
    let plan = s.runtime().current_plan().unwrap();
    assert!(plan.plan().is_apart(), "{:#?}", e.decisions());
    let t = e.timeline();
    assert!(t.marks.iter().any(|m| m.why.pass == "promoted"));
    (first, Some(plan), tried)
}

/// One kernel takes far longer than the machine's description has it; in two steps, by the planner's own
/// proposal, it does not.
#[test]
fn another_fusion_is_tried_and_promoted_beside_traffic() {
    let fast = |s: &str| s.ends_with("of 2)");
    tried(&common::sums(60_000), &[], Some(fast), "another fusion");
}

/// Steps take far longer to begin than the machine's description has it: what the fusion rule keeps apart
/// goes in one, by the planner's own proposal.
#[test]
fn kernels_are_joined_beyond_the_rule_and_promoted_beside_traffic() {
    let fast = |s: &str| s.contains(" + ");
    let (_, plan, _) = tried(&common::spread(64, 96), &[], Some(fast), "in one step with");
    let plan = plan.unwrap();
    assert_eq!(plan.plan().blocks().next().unwrap().steps.len(), 1);
}

/// Where the kernel of the step named so writes.
fn writes(plan: &VerifiedPlan, name: &str) -> kernel::Access {
    let mut steps = plan.plan().blocks().flat_map(|b| &b.steps);
    let step = steps.find(|s| s.name == name).unwrap();
    let StepWork::Kernel { kernel, .. } = &step.work else {
        panic!("a host step");
    };
    let mut own = kernel.operands.iter();
    let own = own.find(|o| o.role == kernel::Role::Write).unwrap();
    own.access.clone()
}

/// The two channels that a convolution makes, a pool and a product read lie side by side, which is slow; by the
/// planner's own proposal they lie otherwise. The description promises a clock that no machine has, so that
/// there is something to ask about. No step is slowed on purpose: whether the layout wins is for this machine and this
/// build to say, and it is promoted or left again.
#[test]
fn another_layout_is_tried_beside_traffic() {
    if !testing::turn("another_layout_is_tried_beside_traffic") {
        return;
    }
    let model = common::pooled(16, 2, 64);
    let (first, plan, tried) = tried(&model, &["clock=4x"], None, "another layout: 'a' ");
    assert!(tried.contains("in the order"), "{tried}");
    let Some(plan) = plan else { return };
    let laid = |p: &VerifiedPlan| -> Vec<String> {
        let own = p.plan().whys.iter().filter(|w| w.pass == Plan::RELAID);
        own.map(|w| w.subject.clone()).collect()
    };
    assert!(
        laid(&first).is_empty() && laid(&plan).contains(&"a".to_string()),
        "{tried}"
    );
    // The convolution's values and the pool's go together.
    for step in ["a", "p"] {
        assert_ne!(writes(&plan, step), writes(&first, step), "{tried}");
    }
}

#[test]
fn another_number_of_workers_takes_turns_by_windows() {
    let (e, _) = engine(1, slow_at_first());
    let s = Session::builder()
        .with_engine(e.clone())
        .with_workers(2)
        .commit_from_file(file())
        .unwrap();
    let _supervision = Supervision::start(
        &e,
        SuperviseOptions {
            window: Duration::from_millis(20),
            ..SuperviseOptions::of(Mode::On)
        },
    )
    .unwrap();
    traffic(&s, &|| passes(&e.decisions()).contains(&"promoted"));
    assert_eq!(s.runtime().policy().workers, 1);
    assert_eq!(s.runtime().options().allotment.workers, [1]);
    let shown = status::Status::of(&e, 1.0).render(None, Default::default());
    assert!(
        shown.contains("supervisor, which changes what pays"),
        "{shown}"
    );
    assert!(shown.lines().all(|l| l.chars().count() <= 100), "{shown}");
}

#[test]
fn observing_changes_nothing_and_pinned_sessions_are_left_alone() {
    let (e, planner) = engine(2, slow_at_first());
    let s = Session::builder()
        .with_engine(e.clone())
        .deterministic()
        .commit_from_file(file())
        .unwrap();
    let window = Duration::from_millis(20);
    let on = SuperviseOptions {
        window,
        ..SuperviseOptions::of(Mode::On)
    };
    let supervision = Supervision::start(&e, on).unwrap();
    traffic(&s, &|| planner.asked.load(Ordering::SeqCst) > 0);
    supervision.finish().unwrap();
    assert_eq!(planner.sessions.load(Ordering::SeqCst), 0);
    let free = Session::builder()
        .with_engine(e.clone())
        .commit_from_file(file())
        .unwrap();
    let look = SuperviseOptions {
        window,
        ..SuperviseOptions::of(Mode::Observe)
    };
    let supervision = Supervision::start(&e, look).unwrap();
    assert_eq!(e.supervision(), Some(Mode::Observe));
    traffic(&free, &|| passes(&e.decisions()).contains(&"trying"));
    supervision.finish().unwrap();
    assert!(!passes(&e.decisions()).contains(&"promoted"));
    assert!(!has_proposed(&free));
}

#[test]
fn an_engine_is_let_go_of_and_looking_costs_little() {
    let s = Session::builder()
        .with_threads(2)
        .with_supervision(Mode::On)
        .with_goal(Goal::Latency)
        .commit_from_file(file())
        .unwrap();
    let e = s.runtime().engine().clone();
    assert_eq!(e.supervision(), Some(Mode::On));
    let weak = Arc::downgrade(&e);
    drop((s, e));
    let until = Instant::now() + Duration::from_secs(20);
    while weak.strong_count() > 0 {
        assert!(Instant::now() < until, "the supervisor keeps its engine");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Time of a processor, not of the clock: other tests run beside this one.
    let (e, _) = engine(2, Arc::new(|_: &str| Ok(())));
    let s = Session::builder()
        .with_engine(e.clone())
        .commit_from_file(file())
        .unwrap();
    let x = named(&s, 3);
    let supervision = Supervision::start(&e, SuperviseOptions::of(Mode::Observe)).unwrap();
    for _ in 0..10 {
        s.run(&inputs::borrowed(&x)).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let spent = supervision.finish().unwrap();
    assert!(spent.windows >= 3, "{spent:?}");
    assert!(spent.loop_s < 0.02 * spent.seconds, "{spent:?}");
}
