//! Changes that would pay, given what was seen of the machine and its load.
//!
//! First the description of the machine is brought in line with what steps took: which changes of it
//! explain that is asked of [`machine::explain`]. Then every session is planned anew for the machine
//! so corrected, over the workers there are (with the shares of their cores that others leave) and,
//! where requests can be joined, over batches; the division that serves its goal best is held against
//! what it has now, predicted by the same model. For its batch, and for the one in use, kernels are also
//! held against the same work in two steps (`fusion`), pairs of kernels against one, and activations
//! against other layouts of them (`alternatives`), so that a candidate may be a plan of another fusion or layout.
//! Plans keep predictions by the machine's own description, so that whoever measures them goes on comparing
//! with one thing.
use super::Planner;
use super::forecast::{self, StepForecast};
use super::prior::Prior;
use kernel::{Kernel, Schedule, Target};
use layout::DimBox;
use layout::{Arrange, Inserted};
use machine::{Cost, Machine, explain};
use plan::division::{self, Division, Prediction, ladder, on_shares, value};
use plan::{
    Allotment, Alternative, Candidate, Change, Goal, Observations, Plan, Program, Serving,
    StepWork, Why,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Steps that the description is judged by: those that take longest.
const JUDGED: usize = 12;
/// Plans made for one session at most.
const PLANS: usize = 24;
/// Batches that are tried are at most so many times what is in use.
const FURTHER: u32 = 4;
/// Largest batch that is tried.
const LARGEST: u32 = 1024;

/// Share of its time that a plan has to take less to be of another fusion than the program.
const OTHER: f64 = 0.01;

/// What makes another program of one, where that is predicted to pay beside its plan.
type AlternativePrograms = fn(&Planner, &Program, &Plan, &Allotment) -> Option<Program>;

/// A session's way to be run.
struct Way {
    plan: Plan,
    allotment: Allotment,
    prediction: Prediction,
}

impl Planner {
    pub(super) fn proposals(&self, seen: &Observations, serving: &[Serving]) -> Vec<Candidate> {
        let [(told, target)] = self.devices.as_slice() else {
            return self.recut(seen, serving);
        };
        let changes = match seen.load.lost_workers > 0.0 {
            // Times say nothing about the machine while others are on it.
            true => Vec::new(),
            false => corrections((0, told, target), seen, serving),
        };
        let mut believed = told.clone();
        for c in &changes {
            if c.apply(&mut believed).is_err() {
                believed = told.clone();
            }
        }
        let planner = Planner::new(vec![(believed, target.clone())], self.options.clone());
        let texts: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let mut out: Vec<Candidate> = serving
            .iter()
            .filter_map(|s| planner.better(s, seen, (told, target), &texts.join(", ")))
            .collect();
        let share = |c: &Candidate| c.gain_s / c.now_s.max(f64::MIN_POSITIVE);
        out.arrange_by(|a, b| share(b).total_cmp(&share(a)));
        out
    }

    /// What would serve a session better than what it has; `self` plans for the corrected machine.
    fn better(
        &self,
        s: &Serving,
        seen: &Observations,
        (told, target): (&Machine, &Target),
        corrected: &str,
    ) -> Option<Candidate> {
        let machine = &self.devices.first()?.0;
        let shares = &seen.load.shares;
        let all = match shares.len() {
            0 => machine.worker_count(),
            // An engine may have fewer workers than its machine.
            n => machine.worker_count().min(n),
        };
        let all = all.max(1) as u32;
        let goal = s.allotment.goal;
        let own = s.plan.devices.first()?.workers.max(1);
        let now = prediction(s.plan, (machine, target), own, s.items, shares);
        let mut ways: Vec<Way> = Vec::new();
        let items = match (s.batch, goal) {
            (Some(_), Goal::Throughput { .. }) => {
                let mut v = ladder(s.items.saturating_mul(FURTHER).min(LARGEST));
                v.retain(|n| n.saturating_mul(2 * FURTHER) >= s.items);
                v
            }
            _ => vec![s.items],
        };
        // However it is fused and laid, it is the same program.
        let prior = Prior::of_program(s.plan.program_hash.clone());
        let way = |program: &Program, workers: u32, n: u32| -> Option<Way> {
            let allotment = Allotment {
                workers: vec![workers],
                ..s.allotment.clone()
            };
            let plan = self.bind_within(program, &sized(s, n), &allotment, &prior);
            let plan = plan.ok()?;
            let prediction = prediction(&plan, (machine, target), workers, n, shares);
            Some(Way {
                plan,
                allotment,
                prediction,
            })
        };
        for workers in ladder(all) {
            for &n in &items {
                if ways.len() < PLANS {
                    ways.extend(way(s.program, workers, n));
                }
            }
        }
        let choose = |ways: &[Way]| {
            let list: Vec<Prediction> = ways.iter().map(|w| w.prediction).collect();
            division::choose(&s.program.name, &list, &goal, all)
        };
        let first = choose(&ways)?;
        // Where cores were lost the answer is wanted soon. A GPU's candidates take too long for this.
        let hurry = seen.load.lost_workers > 0.0;
        for w in ways.iter_mut().filter(|_| !hurry && target.gpu.is_none()) {
            // With how many workers it pays is not known before.
            if w.prediction.batch == first.batch || w.prediction.batch == s.items {
                self.try_alternatives(s.program, w, &way);
            }
        }
        let best = choose(&ways)?;
        let held = s.instances.max(1).saturating_mul(own).min(all).max(own);
        let was = division::choose(&s.program.name, &[now], &goal, held)?;
        let same = best.batch == s.items && best.workers == own && best.instances == s.instances;
        let at = ways.iter().position(|w| {
            w.prediction.batch == best.batch && w.prediction.workers == best.workers
        })?;
        let mut way = ways.swap_remove(at);
        redescribe(&mut way.plan, (told, target), best.workers);
        if same && schedules(&way.plan) == schedules(s.plan) {
            return None;
        }
        let gain = value(&goal, &best) / value(&goal, &was).max(f64::MIN_POSITIVE);
        if gain <= 1.0 {
            return None;
        }
        Some(Candidate {
            now_s: was.latency_s,
            gain_s: was.latency_s * (1.0 - 1.0 / gain),
            why: why(s, &way.plan, (&best, &was), same, corrected),
            changes: vec![Change {
                session: s.session,
                plan: way.plan,
                allotment: way.allotment,
                items: best.batch,
                instances: best.instances,
            }],
        })
    }
}

impl Planner {
    /// Plans other fusions and layouts of a program for `w`, each change on top of those before it that paid, and
    /// leaves the best there; `way` plans.
    fn try_alternatives(
        &self,
        program: &Program,
        w: &mut Way,
        way: &dyn Fn(&Program, u32, u32) -> Option<Way>,
    ) {
        let (workers, batch) = (w.prediction.workers, w.prediction.batch);
        let changes: [AlternativePrograms; 3] = [Planner::parted, Planner::merged, Planner::relaid];
        let mut changed: Option<Program> = None;
        for change in changes {
            let now = changed.as_ref().unwrap_or(program);
            let Some(p) = change(self, now, &w.plan, &w.allotment) else {
                continue;
            };
            let less = (1.0 - OTHER) * w.prediction.seconds;
            let other = way(&p, workers, batch);
            if let Some(o) = other.filter(|o| o.prediction.seconds < less) {
                *w = o;
                changed = Some(p);
            }
        }
    }
}

fn why(
    s: &Serving,
    plan: &Plan,
    (best, was): (&Division, &Division),
    same: bool,
    corrected: &str,
) -> Why {
    let mut what = match same {
        true => others(s.plan, plan).join(", "),
        false => best.why.choice.clone(),
    };
    let mut reason = best.why.reason.clone();
    let said = [
        (
            Plan::APART,
            "another fusion",
            "what was cut or joined as the model's fusion has it",
        ),
        (
            Plan::RELAID,
            "another layout",
            "activations as the program has them",
        ),
    ];
    for (pass, title, back) in said {
        let of = |p: &Plan| -> Vec<String> {
            let own = p.whys.iter().filter(|w| w.pass == pass);
            own.map(|w| format!("'{}' {}", w.subject, w.choice))
                .collect()
        };
        match (of(s.plan), of(plan)) {
            (was, now) if was == now => {}
            (_, now) if now.is_empty() => what = format!("{what}; {title}: {back}"),
            (_, now) => what = format!("{what}; {title}: {}", now.join("; ")),
        }
    }
    if !corrected.is_empty() {
        reason = format!("{reason}; what steps took is explained by {corrected}");
    }
    let mut alternatives = vec![Alternative {
        what: format!("as it is: {}", was.why.choice),
        predicted_s: was.latency_s,
    }];
    alternatives.extend(best.why.alternatives.iter().cloned());
    Why {
        pass: "propose".into(),
        subject: s.program.name.clone(),
        choice: what,
        alternatives,
        reason,
    }
}

/// In what two plans of the same division differ, for people: steps of the same name that are scheduled
/// otherwise, and constants that are packed in another layout for them.
fn others(was: &Plan, plan: &Plan) -> Vec<String> {
    let steps = |p: &Plan, init: bool| -> BTreeMap<String, (Arc<Kernel>, Arc<Schedule>)> {
        let all = p
            .blocks()
            .flat_map(|b| if init { &b.init } else { &b.steps });
        all.filter_map(|s| match &s.work {
            StepWork::Kernel {
                kernel, schedule, ..
            } => Some((s.name.clone(), (kernel.clone(), schedule.clone()))),
            StepWork::Host { .. } => None,
        })
        .inserted()
    };
    let (before, now) = (steps(was, false), steps(plan, false));
    let differ = |n: &&String| before.get(*n).is_some_and(|b| *b != now[*n]);
    let scheduled = now.keys().filter(differ).count();
    // A step of init that is gone, or does something else, left another layout.
    let (before, now) = (steps(was, true), steps(plan, true));
    let kernel =
        |all: &BTreeMap<String, (Arc<Kernel>, _)>, n: &String| all.get(n).map(|s| s.0.clone());
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).inserted();
    let laid = names
        .iter()
        .filter(|n| kernel(&before, n) != kernel(&now, n))
        .count();
    let mut out = vec![match scheduled {
        0 => "the same schedules".to_string(),
        n => format!("other schedules of {n} steps"),
    }];
    if laid > 0 {
        out.push(format!("{laid} constants in another layout"));
    }
    out
}

/// The box of a session's plan with another batch.
fn sized(s: &Serving, items: u32) -> DimBox {
    let mut dims = s.plan.dims.clone();
    if let Some(sym) = s.batch
        && items != s.items
    {
        let lo = dims.get(sym).map_or(1, |r| r.lo);
        dims.insert(sym.clone(), lo.min(i64::from(items)), i64::from(items));
    }
    dims
}

/// Kernels and schedules of a plan, in order.
fn schedules(p: &Plan) -> Vec<Option<(&Kernel, &Schedule)>> {
    p.blocks()
        .flat_map(|b| &b.steps)
        .map(|s| match &s.work {
            StepWork::Kernel {
                kernel, schedule, ..
            } => Some((&**kernel, &**schedule)),
            StepWork::Host { .. } => None,
        })
        .collect()
}

fn prediction(
    plan: &Plan,
    (machine, target): (&Machine, &Target),
    workers: u32,
    items: u32,
    shares: &[f64],
) -> Prediction {
    let memory = machine.memory();
    let reach = memory.read.at(workers as usize) / memory.read.at(machine.worker_count());
    let (mut seconds, mut memory_s) = (0.0, 0.0);
    let costs = forecast::predict_steps(plan, machine, target, workers as usize);
    let (together, mut first) = (forecast::concurrency(target, workers as usize), 0);
    for block in plan.blocks() {
        seconds += block.elapsed_s(together, |i| costs[first + i].time_s);
        first += block.steps.len();
    }
    for c in &costs {
        let level = c.levels.iter().filter(|l| l.name == memory.name);
        memory_s += level.map(|l| l.seconds).fold(0.0, f64::max) * reach.min(1.0);
    }
    Prediction {
        batch: items.max(1),
        workers,
        seconds: on_shares(seconds, workers, shares, costs.len() as u64),
        memory_s,
    }
}

/// Gives a plan's steps the predictions of the machine's own description.
fn redescribe(plan: &mut Plan, (machine, target): (&Machine, &Target), workers: u32) {
    let costs = forecast::predict_steps(plan, machine, target, workers as usize);
    described(plan, costs, forecast::concurrency(target, workers as usize));
}

/// Gives a plan's steps these predictions, in order; `concurrency` workers may be at different steps.
pub(super) fn described(plan: &mut Plan, costs: Vec<Cost>, concurrency: u32) {
    let mut costs = costs.into_iter();
    let mut whole = Cost::zero();
    for segment in &mut plan.segments {
        let plan::PlanSegment::Block(block) = segment else {
            continue;
        };
        let mut sum = Cost::zero();
        for step in &mut block.steps {
            if let Some(c) = costs.next() {
                step.predicted = c;
            }
            sum.add(&step.predicted);
        }
        sum.within(block.elapsed_s(concurrency, |i| block.steps[i].predicted.time_s));
        block.predicted = sum;
        whole.add(&block.predicted);
    }
    plan.predicted = whole;
}

/// What is wrong with the description of device `place`, from what the longest steps took there.
pub(super) fn corrections(
    (place, told, target): (u32, &Machine, &Target),
    seen: &Observations,
    serving: &[Serving],
) -> Vec<machine::Change> {
    let mut steps: Vec<(StepForecast, &DimBox, usize, f64)> = Vec::new();
    for s in serving {
        let device = s.plan.devices.get(place as usize);
        let workers = device.map_or(1, |d| d.workers.max(1)) as usize;
        for block in s.plan.blocks() {
            let again = forecast::steps(s.plan, block);
            for (step, a) in block.steps.iter().zip(again) {
                if step.device != place || block.is_transfer(step) {
                    continue;
                }
                let own = |o: &&plan::Observation| o.session == s.session && o.step == step.name;
                let (Some(o), Some(a)) = (seen.steps.iter().find(own), a) else {
                    continue;
                };
                // What was measured is of requests anywhere in the box: as a ratio, at its top.
                let Some(c) = a.cost(told, target, &s.plan.dims, workers) else {
                    continue;
                };
                let measured = c.time_s * o.measured_s / o.predicted_s.max(f64::MIN_POSITIVE);
                steps.push((a, &s.plan.dims, workers, measured));
            }
        }
    }
    steps.arrange_by(|a, b| b.3.total_cmp(&a.3));
    steps.truncate(JUDGED);
    let measured: Vec<f64> = steps.iter().map(|s| s.3).collect();
    explain(told, &measured, &|m, i| {
        plan::pause();
        let (a, dims, workers, _) = &steps[i];
        Some(a.cost(m, target, dims, *workers)?.time_s)
    })
}
