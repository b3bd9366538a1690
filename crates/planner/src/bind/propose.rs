//! Changes that would pay, given what was seen of the machine and its load.
//!
//! First the description of the machine is brought in line with what steps took: which changes of it
//! explain that is asked of [`machine::explain`]. Then every session is planned anew for the machine
//! so corrected, over the workers there are (with the shares of their cores that others leave) and,
//! where requests can be joined, over batches; the division that serves its goal best is held against
//! what it has now, predicted by the same model. Plans keep predictions by the machine's own
//! description, so that whoever measures them goes on comparing with one thing.
use super::Planner;
use super::again::{self, Again};
use kernel::Target;
use layout::DimBox;
use machine::{Cost, Machine, explain};
use plan::{
    Allotment, Alternative, Candidate, Change, Goal, Observations, Plan, Planner as _, Serving,
    StepWork, Why,
};
use supervisor::division::{self, Division, Prediction, ladder, on_shares, value};

/// Steps that the description is judged by: those that take longest.
const JUDGED: usize = 12;
/// Plans made for one session at most.
const PLANS: usize = 24;
/// Batches that are tried are at most so many times what is in use.
const FURTHER: u32 = 4;
/// Largest batch that is tried.
const LARGEST: u32 = 1024;

/// A session's way to be run.
struct Way {
    plan: Plan,
    allotment: Allotment,
    prediction: Prediction,
}

impl Planner {
    pub(super) fn proposals(&self, seen: &Observations, serving: &[Serving]) -> Vec<Candidate> {
        // Over several devices every placement would have to be weighed; such plans stay as they are.
        let [(told, target)] = self.devices.as_slice() else {
            return Vec::new();
        };
        let changes = match seen.load.lost_workers > 0.0 {
            // Times say nothing about the machine while others are on it.
            true => Vec::new(),
            false => corrections(told, target, seen, serving),
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
        out.sort_by(|a, b| share(b).total_cmp(&share(a)));
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
        for workers in ladder(all) {
            for &n in &items {
                if ways.len() >= PLANS {
                    break;
                }
                let allotment = Allotment {
                    workers: vec![workers],
                    ..s.allotment.clone()
                };
                let dims = sized(s, n);
                let Ok(mut plan) = self.bind(s.program, &dims, &allotment) else {
                    continue;
                };
                let prediction = prediction(&plan, (machine, target), workers, n, shares);
                redescribe(&mut plan, (told, target), workers);
                ways.push(Way {
                    plan,
                    allotment,
                    prediction,
                });
            }
        }
        let list: Vec<Prediction> = ways.iter().map(|w| w.prediction).collect();
        let best = division::choose(&s.program.name, &list, &goal, all)?;
        let held = s.instances.max(1).saturating_mul(own).min(all).max(own);
        let was = division::choose(&s.program.name, &[now], &goal, held)?;
        let same = best.batch == s.items && best.workers == own && best.instances == s.instances;
        let at = ways.iter().position(|w| {
            w.prediction.batch == best.batch && w.prediction.workers == best.workers
        })?;
        let way = ways.swap_remove(at);
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
            why: why(s, &best, &was, same, corrected),
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

fn why(s: &Serving, best: &Division, was: &Division, same: bool, corrected: &str) -> Why {
    let what = match same {
        true => "other schedules".to_string(),
        false => best.why.choice.clone(),
    };
    let mut reason = best.why.reason.clone();
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
fn schedules(p: &Plan) -> Vec<Option<(&kernel::Kernel, &kernel::Schedule)>> {
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
    let costs = again::predict_steps(plan, machine, target, workers as usize);
    for c in &costs {
        seconds += c.time_s;
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
    let mut costs = again::predict_steps(plan, machine, target, workers as usize).into_iter();
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
            sum = sum.then(&step.predicted);
        }
        block.predicted = sum;
        whole = whole.then(&block.predicted);
    }
    plan.predicted = whole;
}

/// What is wrong with the machine's description, from what the longest steps took.
fn corrections(
    told: &Machine,
    target: &Target,
    seen: &Observations,
    serving: &[Serving],
) -> Vec<machine::Change> {
    let mut steps: Vec<(Again, &DimBox, usize, f64)> = Vec::new();
    for s in serving {
        let workers = s.plan.devices.first().map_or(1, |d| d.workers.max(1)) as usize;
        for block in s.plan.blocks() {
            let again = again::steps(s.plan, block);
            for (step, a) in block.steps.iter().zip(again) {
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
    steps.sort_by(|a, b| b.3.total_cmp(&a.3));
    steps.truncate(JUDGED);
    let measured: Vec<f64> = steps.iter().map(|s| s.3).collect();
    explain(told, &measured, &|m, i| {
        let (a, dims, workers, _) = &steps[i];
        Some(a.cost(m, target, dims, *workers)?.time_s)
    })
}
