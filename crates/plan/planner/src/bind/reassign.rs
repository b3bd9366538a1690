//! Changes of which device runs what, for plans cut between two.
//!
//! The description of each device is brought in line with what steps took there, that of the link between
//! their memories with what copies took. The cut for the devices so corrected is held against the plan in
//! use, predicted by the same descriptions: a step may go to the other device, or all of them.
use super::Planner;
use super::forecast::{self, StepForecast};
use super::placement::Placement;
use super::places::transfer_cost;
use super::propose::{corrections, described};
use kernel::Target;
use layout::{Arrange, Inserted};
use machine::{Change, Cost, Machine};
use plan::{
    Alternative, Block, BufferId, Candidate, Observations, Plan, Planner as _, Serving, Step,
    StepWork, Why,
};
use std::collections::BTreeMap;

/// Factors that are tried on the link's bandwidth and latency: a link may be of another generation, with
/// fewer lanes, or a description off by units.
const ROAD: [f64; 12] = [
    1.0 / 128.0,
    1.0 / 64.0,
    1.0 / 32.0,
    1.0 / 16.0,
    0.125,
    0.25,
    0.5,
    2.0,
    8.0,
    32.0,
    64.0,
    128.0,
];

impl Planner {
    /// Candidates of other cuts; none unless there are two devices and plans are cut between them.
    pub(super) fn recut(&self, seen: &Observations, serving: &[Serving]) -> Vec<Candidate> {
        if self.devices.len() != 2 || self.options.placement != Placement::Cut {
            return Vec::new();
        }
        let mut believed = self.devices.clone();
        let mut texts: Vec<String> = Vec::new();
        for (d, (machine, target)) in self.devices.iter().enumerate() {
            // Times say nothing about the host while others are on it.
            let mut changes = match d == 0 && seen.load.lost_workers > 0.0 {
                true => Vec::new(),
                false => corrections((d as u32, machine, target), seen, serving),
            };
            if d > 0 {
                changes.extend(self.transfer(seen, serving));
            }
            let mut m = machine.clone();
            for c in &changes {
                if c.apply(&mut m).is_ok() {
                    texts.push(format!("{c} of {}", machine.name));
                }
            }
            believed[d].0 = m;
        }
        let planner = Planner::new(believed, self.options.clone());
        let mut out: Vec<Candidate> = serving
            .iter()
            .filter_map(|s| planner.cut_anew(s, &self.devices, &texts.join(", ")))
            .collect();
        let share = |c: &Candidate| c.gain_s / c.now_s.max(f64::MIN_POSITIVE);
        out.arrange_by(|a, b| share(b).total_cmp(&share(a)));
        out
    }

    /// The cut for these devices, where it serves better than the plan in use; `told` are the descriptions
    /// that plans keep predictions by.
    fn cut_anew(
        &self,
        s: &Serving,
        told: &[(Machine, Target)],
        corrected: &str,
    ) -> Option<Candidate> {
        let mut plan = self.bind(s.program, &s.plan.dims, s.allotment).ok()?;
        let sum = |p: &Plan| -> f64 {
            predict_over(p, &self.devices)
                .iter()
                .map(|c| c.time_s)
                .sum()
        };
        let (now_s, then_s) = (sum(s.plan), sum(&plan));
        let choice = moved(s.plan, &plan)?;
        if then_s >= now_s || !then_s.is_finite() {
            return None;
        }
        let mut alternatives = vec![Alternative {
            what: "as it is".into(),
            predicted_s: now_s,
        }];
        let whole = |w: &&Why| w.pass == "cut" && w.subject == s.program.name;
        alternatives.extend(
            plan.whys
                .iter()
                .filter(whole)
                .flat_map(|w| w.alternatives.clone()),
        );
        let mut reason = format!(
            "predicted {:.3} ms instead of {:.3} ms, copies included",
            1e3 * then_s,
            1e3 * now_s
        );
        if !corrected.is_empty() {
            reason = format!("{reason}; what steps and copies took is explained by {corrected}");
        }
        let costs = predict_over(&plan, told);
        described(&mut plan, costs, 1);
        Some(Candidate {
            now_s,
            gain_s: now_s - then_s,
            why: Why {
                pass: "propose".into(),
                subject: s.program.name.clone(),
                choice,
                alternatives,
                reason,
            },
            changes: vec![plan::Change {
                session: s.session,
                plan,
                allotment: s.allotment.clone(),
                items: s.items,
                instances: s.instances,
            }],
        })
    }

    /// What is wrong with the description of the link to the second device, from what copies took.
    fn transfer(&self, seen: &Observations, serving: &[Serving]) -> Vec<Change> {
        let [(host, _), (far, _)] = self.devices.as_slice() else {
            return Vec::new();
        };
        let Some(link) = far.links.iter().find(|l| l.to == "host") else {
            return Vec::new();
        };
        // Bytes, the way, and what the copy took over what it was predicted to take.
        let mut copies: Vec<(f64, (u32, u32), f64)> = Vec::new();
        for s in serving {
            for block in s.plan.blocks() {
                for step in block.steps.iter().filter(|t| block.is_transfer(t)) {
                    let own =
                        |o: &&plan::Observation| o.session == s.session && o.step == step.name;
                    if let (Some(o), Some((bytes, way))) =
                        (seen.steps.iter().find(own), copied(block, step))
                    {
                        copies.push((bytes, way, o.measured_s));
                    }
                }
            }
        }
        let knobs: [(String, &[f64]); 2] = [
            (link.name.clone(), &ROAD),
            (format!("{}.latency", link.name), &ROAD),
        ];
        let took: Vec<f64> = copies.iter().map(|c| c.2).collect();
        machine::explain_by(far, knobs.into(), &took, &|m, i| {
            let (bytes, (a, b), _) = copies[i];
            let on = |p: u32| (p, if p == 0 { host } else { m });
            Some(transfer_cost(on(a), on(b), bytes).time_s)
        })
    }
}

/// Bytes that a copy between two places moves, and from where to where.
fn copied(block: &Block, step: &Step) -> Option<(f64, (u32, u32))> {
    let StepWork::Kernel { args, .. } = &step.work else {
        return None;
    };
    let buffer = |b: Option<&BufferId>| block.buffers.get(*b? as usize);
    let (from, to) = (buffer(args.first())?, buffer(args.last())?);
    Some((to.bytes as f64, (from.place, to.place)))
}

/// What the cost model says of every step of `plan`, each on its device of `devices`; host steps keep what
/// they were predicted to take.
pub fn predict_over(plan: &Plan, devices: &[(Machine, Target)]) -> Vec<Cost> {
    let mut out = Vec::new();
    for block in plan.blocks() {
        for (step, again) in block.steps.iter().zip(forecast::steps(plan, block)) {
            let cost = match copied(block, step).filter(|_| block.is_transfer(step)) {
                Some((bytes, (a, b))) => {
                    let on = |p: u32| devices.get(p as usize).map(|d| (p, &d.0));
                    on(a).zip(on(b)).map(|(a, b)| transfer_cost(a, b, bytes))
                }
                None => kernel(plan, step, again, devices),
            };
            out.push(cost.unwrap_or_else(|| step.predicted.clone()));
        }
    }
    out
}

fn kernel(
    plan: &Plan,
    step: &Step,
    again: Option<StepForecast>,
    devices: &[(Machine, Target)],
) -> Option<Cost> {
    let (machine, target) = devices.get(step.device as usize)?;
    let own = plan.devices.get(step.device as usize)?;
    again?.cost(machine, target, &plan.dims, own.workers.max(1) as usize)
}

/// In what the second plan differs from the first, for people; `None` where it does not.
fn moved(was: &Plan, plan: &Plan) -> Option<String> {
    let places = |p: &Plan| -> BTreeMap<String, u32> {
        let all = p.blocks().flat_map(|b| {
            let own = b.steps.iter().filter(|s| !b.is_transfer(s));
            own.map(|s| (s.name.clone(), s.device))
        });
        all.inserted()
    };
    let (before, now) = (places(was), places(plan));
    let name = |d: u32| plan.devices.get(d as usize).map_or("?", |d| &d.machine);
    let went = |to: u32| {
        let gone = |n: &String, d: u32| d == to && before.get(n).is_some_and(|b| *b != d);
        now.iter().filter(|(n, d)| gone(n, **d)).count()
    };
    let each: Vec<String> = [0, 1]
        .into_iter()
        .filter(|&d| went(d) > 0)
        .map(|d| format!("{} steps to {}", went(d), name(d)))
        .collect();
    let mut on = now.values();
    let first = on.next().copied();
    match (each.is_empty(), first) {
        (true, _) if was.segments == plan.segments => None,
        (true, _) => Some("other schedules".into()),
        (false, Some(d)) if on.all(|o| *o == d) => {
            Some(format!("another device: everything on {}", name(d)))
        }
        (false, _) => Some(format!("another cut between devices: {}", each.join(", "))),
    }
}
