//! Which kernels are better joined beyond the fusion rule, and which activations better lie otherwise, on
//! this machine and with these workers.
//!
//! As for kernels in two (`fusion`): what is in question is planned by itself, as it is and otherwise, and
//! what gains goes into one program, of which whoever asks makes a plan. Nothing is changed in place.
use super::{PlanOptions, Planner};
use crate::join::{Joining, join, joinings};
use crate::relay::{Order, regions, relaid};
use plan::{Alternative, Item, Plan, Program, Why};
use std::collections::{BTreeMap, BTreeSet};

/// Pairs and regions that are looked at: those that take longest.
const LOOKED: usize = 8;
/// Share of the plan's time that one has to take.
const LONG: f64 = 0.02;
/// How many times fewer candidates are tried of kernels by themselves than for a plan.
const FEWER: usize = 4;
/// Share of its time that it has to take less.
const LESS: f64 = 0.03;

/// Predicted seconds of a plan's steps by name.
fn took(plan: &Plan) -> BTreeMap<&str, f64> {
    let steps = plan.blocks().flat_map(|b| &b.steps);
    steps
        .map(|s| (s.name.as_str(), s.predicted.time_s))
        .collect()
}

fn seconds(took: &BTreeMap<&str, f64>, items: &[&Item]) -> f64 {
    let of = |i: &&Item| took.get(i.name.as_str()).copied().unwrap_or(0.0);
    items.iter().map(of).sum()
}

impl Planner {
    /// The same planner for questions about a few kernels.
    fn quick(&self) -> Planner {
        Planner {
            options: PlanOptions {
                effort: self.options.effort / FEWER,
                ..self.options.clone()
            },
            ..self.clone()
        }
    }

    /// `program` with pairs of kernels as one where that is predicted to take less, with a why for each;
    /// `plan` is its plan as it is, with `allotment`. `None` where nothing gains, and for programs with
    /// state, whose places rely on their kernels.
    pub(super) fn joined(
        &self,
        program: &Program,
        plan: &Plan,
        allotment: &plan::Allotment,
    ) -> Option<Program> {
        if !program.states.is_empty() {
            return None;
        }
        let (quick, took) = (self.quick(), took(plan));
        let mut pairs: Vec<(f64, Joining)> = vec![];
        for j in joinings(program) {
            let items = program.segments[j.at.0].items();
            let all = seconds(&took, &[&items[j.at.1], &items[j.at.2]]);
            if all >= LONG * plan.predicted.time_s {
                pairs.push((all, j));
            }
        }
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        pairs.truncate(LOOKED);
        let mut whys = vec![];
        let mut chosen: Vec<Joining> = vec![];
        let mut part: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (_, j) in pairs {
            let (s, a, b) = j.at;
            if part.contains(&(s, a)) || part.contains(&(s, b)) {
                continue;
            }
            let items = program.segments[s].items();
            let two = [items[a].clone(), items[b].clone()];
            let alone = |i: &[Item]| quick.alone(program, i, &[], &plan.dims, allotment);
            let (Some(apart), Some(one)) = (alone(&two), alone(std::slice::from_ref(&j.item)))
            else {
                continue;
            };
            if one >= (1.0 - LESS) * apart {
                continue;
            }
            whys.push(Why {
                pass: Plan::APART.into(),
                subject: items[a].name.clone(),
                choice: format!("in one step with '{}'", items[b].name),
                alternatives: vec![Alternative {
                    what: "in two steps, as the model's fusion has them".into(),
                    predicted_s: apart,
                }],
                reason: format!("predicted {:.4} ms", 1e3 * one),
            });
            part.extend([(s, a), (s, b)]);
            chosen.push(j);
        }
        if chosen.is_empty() {
            return None;
        }
        let list: Vec<&Joining> = chosen.iter().collect();
        let mut out = join(program, &list);
        out.whys.extend(whys);
        Some(out)
    }

    /// `program` with activations in other layouts where that is predicted to take less, with a why for
    /// each region; otherwise as [`Planner::joined`].
    pub(super) fn relaid(
        &self,
        program: &Program,
        plan: &Plan,
        allotment: &plan::Allotment,
    ) -> Option<Program> {
        if !program.states.is_empty() {
            return None;
        }
        let (quick, took) = (self.quick(), took(plan));
        let lanes = self.devices.first().map_or(1, |d| d.1.vector_bytes) / 4;
        let orders = [
            Order::SecondInner,
            Order::InnerForward,
            Order::InnerBlocked(lanes.into()),
            Order::SecondBlocked(lanes.into()),
        ];
        let mut all: Vec<_> = regions(program)
            .into_iter()
            .map(|r| {
                let items = program.segments[r.segment].items();
                let own: Vec<&Item> = r.items.iter().map(|&i| &items[i]).collect();
                (seconds(&took, &own), r)
            })
            .filter(|r| r.0 >= LONG * plan.predicted.time_s)
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.truncate(LOOKED);
        let mut now: Option<Program> = None;
        for (_, r) in all {
            let base = now.as_ref().unwrap_or(program);
            let own = |p: &Program| -> Vec<Item> {
                let items = p.segments[r.segment].items();
                r.items.iter().map(|&i| items[i].clone()).collect()
            };
            let alone = |p: &Program| quick.alone(p, &own(p), &[], &plan.dims, allotment);
            let Some(was) = alone(base) else { continue };
            let mut best: Option<(f64, Program, String)> = None;
            for how in orders {
                let Some((p, said)) = relaid(base, &r, how) else {
                    continue;
                };
                if let Some(s) = alone(&p).filter(|s| *s < (1.0 - LESS) * was)
                    && best.as_ref().is_none_or(|b| s < b.0)
                {
                    best = Some((s, p, said));
                }
            }
            let Some((s, mut p, said)) = best else {
                continue;
            };
            let name = |v: u32| p.values[v as usize].name.clone();
            let choice = match r.values.len() {
                1 => said,
                n => format!("{said}, with {} others", n - 1),
            };
            let why = Why {
                pass: Plan::RELAID.into(),
                subject: name(r.values[0]),
                choice,
                alternatives: vec![Alternative {
                    what: "in the layout that the program gave it".into(),
                    predicted_s: was,
                }],
                reason: format!("what touches it is predicted {:.4} ms", 1e3 * s),
            };
            p.whys.push(why);
            now = Some(p);
        }
        now
    }
}
