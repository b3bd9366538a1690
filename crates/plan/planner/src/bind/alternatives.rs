//! Which kernels are better joined beyond the fusion rule, and which activations better lie otherwise, on
//! this machine and with these workers.
//!
//! As for kernels in two (`fusion`): what is in question is planned by itself, as it is and otherwise, and
//! what gains goes into one program, of which whoever asks makes a plan. Nothing is changed in place.
use super::alike::Alike;
use super::{PlanOptions, Planner};
use crate::merge::{ItemMerge, Joinable, LESS, Paired, join, joinings};
use crate::relayout::{Order, Region, Relayout, regions, relaid, without_copies};
use layout::{Arrange, DimBox, Inserted};
use plan::{Alternative, Fate, Item, ItemWork, Plan, Program, Segment, ValueIx, Why};
use std::collections::{BTreeMap, BTreeSet};

/// Kinds of pairs and regions that are looked at: those that take longest.
const LOOKED: usize = 8;
/// Share of the plan's time that one has to take.
const LONG: f64 = 0.02;
/// How many times fewer candidates are tried of kernels by themselves than for a plan.
const FEWER: usize = 4;

/// Predicted seconds of a plan's steps by name.
fn took(plan: &Plan) -> BTreeMap<&str, f64> {
    let steps = plan.blocks().flat_map(|b| &b.steps);
    steps
        .map(|s| (s.name.as_str(), s.predicted.time_s))
        .inserted()
}

fn seconds(took: &BTreeMap<&str, f64>, items: &[&Item]) -> f64 {
    let of = |i: &&Item| took.get(i.name.as_str()).copied().unwrap_or(0.0);
    items.iter().map(of).sum()
}

/// The pairs of items that can be one, those together whose kernels differ in names alone, with what all of a kind
/// take.
fn pair_kinds(program: &Program, took: &BTreeMap<&str, f64>) -> Vec<(f64, Vec<ItemMerge>)> {
    let mut kinds: Vec<(f64, Vec<ItemMerge>)> = vec![];
    let mut alike = Alike::default();
    for j in joinings(program, Joinable::Readers) {
        let (s, a, b) = j.at;
        let items = program.segments[s].items();
        let (ItemWork::Kernel { kernel: first, .. }, ItemWork::Kernel { kernel: second, .. }) =
            (&items[a].work, &items[b].work)
        else {
            continue;
        };
        let kind = alike.number(&[first, second]);
        if kind == kinds.len() {
            kinds.push((0.0, vec![]));
        }
        kinds[kind].0 += seconds(took, &[&items[a], &items[b]]);
        kinds[kind].1.push(j);
    }
    kinds
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
    pub(super) fn merged(
        &self,
        program: &Program,
        plan: &Plan,
        allotment: &plan::Allotment,
    ) -> Option<Program> {
        if !program.states.is_empty() {
            return None;
        }
        let (quick, took) = (self.quick(), took(plan));
        let mut kinds = pair_kinds(program, &took);
        kinds.retain(|k| k.0 >= LONG * plan.predicted.time_s);
        kinds.arrange_by(|a, b| b.0.total_cmp(&a.0));
        kinds.truncate(LOOKED);
        let mut whys = vec![];
        let mut chosen: Vec<ItemMerge> = vec![];
        let mut part = Paired::default();
        for (_, mut pairs) in kinds {
            part.take(&mut pairs);
            let Some(j) = pairs.first() else { continue };
            let (s, a, b) = j.at;
            let items = program.segments[s].items();
            let two = [items[a].clone(), items[b].clone()];
            let alone = |i: &[Item]| quick.alone(program, i, &[], &plan.dims, allotment);
            let (apart, one) = (alone(&two), alone(std::slice::from_ref(&j.item)));
            let gain = apart
                .zip(one)
                .filter(|(apart, one)| *one < (1.0 - LESS) * apart);
            let Some((apart, one)) = gain else {
                part.release(&pairs);
                continue;
            };
            whys.push(Why {
                pass: Plan::APART.into(),
                subject: items[a].name.clone(),
                choice: match pairs.len() {
                    1 => format!("in one step with '{}'", items[b].name),
                    n => format!("in one step with '{}', as {} others", items[b].name, n - 1),
                },
                alternatives: vec![Alternative {
                    what: "in two steps, as the model's fusion has them".into(),
                    predicted_s: apart,
                }],
                reason: format!("predicted {:.4} ms", 1e3 * one),
            });
            chosen.extend(pairs);
        }
        if chosen.is_empty() {
            return None;
        }
        let list: Vec<&ItemMerge> = chosen.iter().collect();
        let mut out = join(program, &list);
        out.whys.extend(whys);
        Some(out)
    }

    /// `program` with activations in other layouts where that is predicted to take less, with a why for
    /// each region; otherwise as [`Planner::merged`].
    ///
    /// What a kernel between two regions gains may need both of them to lie otherwise, so that there are two
    /// ways to begin: from the program as it is, and from all regions in one order. From either each region
    /// then gets the order that is best for it, one after the other, and the better end counts.
    pub(super) fn relaid(
        &self,
        program: &Program,
        plan: &Plan,
        allotment: &plan::Allotment,
    ) -> Option<Program> {
        if !program.states.is_empty() {
            return None;
        }
        let took = took(plan);
        let mut all: Vec<(f64, Region)> = regions(program)
            .into_iter()
            .map(|r| {
                let items = program.segments[r.segment].items();
                let own: Vec<&Item> = r.items.iter().map(|&i| &items[i]).collect();
                (seconds(&took, &own), r)
            })
            .filter(|r| r.0 >= LONG * plan.predicted.time_s)
            .collect();
        all.arrange_by(|a, b| b.0.total_cmp(&a.0));
        all.truncate(LOOKED);
        let looked = EvaluatedRegions {
            planner: self.quick(),
            program,
            dims: &plan.dims,
            allotment,
            regions: all.into_iter().map(|r| r.1).collect(),
        };
        let mut best = looked.each(ReorderedProgram::of(program));
        if let Some(start) = looked.together() {
            let other = looked.each(start);
            let every: Vec<&Region> = looked.regions.iter().collect();
            let of = |l: &ReorderedProgram| looked.alone(&l.program, &every);
            if of(&other).is_some_and(|o| of(&best).is_none_or(|b| o < b)) {
                best = other;
            }
        }
        looked.named(best)
    }
}

/// The regions of a program that are looked at, and what their kernels by themselves are planned with.
struct EvaluatedRegions<'a> {
    planner: Planner,
    program: &'a Program,
    dims: &'a DimBox,
    allotment: &'a plan::Allotment,
    regions: Vec<Region>,
}

/// The program with some of the regions in other orders, by their numbers.
#[derive(Clone)]
struct ReorderedProgram {
    program: Program,
    regions: BTreeMap<usize, RegionLayout>,
}

impl ReorderedProgram {
    fn of(program: &Program) -> ReorderedProgram {
        ReorderedProgram {
            program: program.clone(),
            regions: BTreeMap::new(),
        }
    }
}

/// A region's other layout, and what the steps that it was looked at with were predicted to take before and
/// take with it.
#[derive(Clone)]
struct RegionLayout {
    said: String,
    was: f64,
    now: f64,
}

impl EvaluatedRegions<'_> {
    fn orders(&self) -> [Order; 6] {
        let target = self.planner.devices.first();
        Order::all(target.map_or(1, |d| i64::from(d.1.vector_bytes / 4)))
    }

    /// Predicted seconds of what touches these regions, by itself.
    fn alone(&self, p: &Program, of: &[&Region]) -> Option<f64> {
        let at: BTreeSet<(usize, usize)> = of
            .iter()
            .flat_map(|r| r.items.iter().map(|&i| (r.segment, i)))
            .inserted();
        let own = at.iter().map(|&(s, i)| p.segments[s].items()[i].clone());
        let own: Vec<Item> = own.collect();
        let own = without_copies(p, &own, &self.moved(p, of)).0;
        self.planner.alone(p, &own, &[], self.dims, self.allotment)
    }

    /// The values of these regions that do not lie in `p` as in the program.
    fn moved(&self, p: &Program, of: &[&Region]) -> BTreeSet<ValueIx> {
        let all = of.iter().flat_map(|r| &r.values).copied();
        all.filter(|&v| p.value(v).layout != self.program.value(v).layout)
            .inserted()
    }

    /// All regions that can be in the one order that gains most, where that is several and gains.
    fn together(&self) -> Option<ReorderedProgram> {
        let mut best: Option<(f64, ReorderedProgram)> = None;
        for how in self.orders() {
            let mut p = self.program.clone();
            let mut with = vec![];
            for (i, r) in self.regions.iter().enumerate() {
                plan::pause();
                if let Some(mut other) = relaid(&p, r, how) {
                    other.swap(&mut p);
                    with.push((i, other.said));
                }
            }
            let own: Vec<&Region> = with.iter().map(|w| &self.regions[w.0]).collect();
            if own.len() < 2 {
                continue;
            }
            let (Some(was), Some(now)) = (self.alone(self.program, &own), self.alone(&p, &own))
            else {
                continue;
            };
            // Of the whole, however many regions can be in an order.
            let gains = now - was;
            if now < (1.0 - LESS) * was && best.as_ref().is_none_or(|b| gains < b.0) {
                let laid = |(i, said)| (i, RegionLayout { said, was, now });
                let regions = with.into_iter().map(laid).inserted();
                best = Some((
                    gains,
                    ReorderedProgram {
                        program: p,
                        regions,
                    },
                ));
            }
        }
        Some(best?.1)
    }

    /// Each region in the order that is best for it, as the others lie.
    fn each(&self, from: ReorderedProgram) -> ReorderedProgram {
        let mut now = from;
        for (i, r) in self.regions.iter().enumerate() {
            let Some(was) = self.alone(&now.program, &[r]) else {
                continue;
            };
            let mut best: Option<(f64, Relayout)> = None;
            for how in self.orders() {
                plan::pause();
                let Some(mut other) = relaid(&now.program, r, how) else {
                    continue;
                };
                other.swap(&mut now.program);
                let seconds = self.alone(&now.program, &[r]);
                other.swap(&mut now.program);
                if let Some(s) = seconds.filter(|s| *s < (1.0 - LESS) * was)
                    && best.as_ref().is_none_or(|b| s < b.0)
                {
                    best = Some((s, other));
                }
            }
            if let Some((s, mut other)) = best {
                other.swap(&mut now.program);
                let said = other.said;
                now.regions.insert(i, RegionLayout { said, was, now: s });
            }
        }
        now
    }

    /// The program of it, with its whys and without steps that only copy; `None` where all is as it was.
    fn named(&self, l: ReorderedProgram) -> Option<Program> {
        let (mut p, mut laid) = (l.program, l.regions);
        laid.retain(|&i, _| !self.moved(&p, &[&self.regions[i]]).is_empty());
        if laid.is_empty() {
            return None;
        }
        let of: Vec<&Region> = laid.keys().map(|&i| &self.regions[i]).collect();
        for (r, l) in of.iter().zip(laid.values()) {
            p.whys.push(l.why(&p, r));
        }
        let moved = self.moved(&p, &of);
        let places: BTreeSet<usize> = of.iter().map(|r| r.segment).inserted();
        for s in places {
            let (items, gone) = without_copies(&p, p.segments[s].items(), &moved);
            if let Segment::Straight(own) = &mut p.segments[s] {
                *own = items;
            }
            for f in &mut p.fates {
                if let Fate::Items(names) = &mut f.fate {
                    let were = names.len();
                    names.retain(|n| !gone.contains(n));
                    if names.is_empty() && were > 0 {
                        f.fate = Fate::View;
                    }
                }
            }
        }
        Some(p)
    }
}

impl RegionLayout {
    fn why(&self, p: &Program, r: &Region) -> Why {
        let choice = match r.values.len() {
            1 => self.said.clone(),
            n => format!("{}, with {} others", self.said, n - 1),
        };
        Why {
            pass: Plan::RELAID.into(),
            subject: p.value(r.values[0]).name.clone(),
            choice,
            alternatives: vec![Alternative {
                what: "in the layout that the program gave it".into(),
                predicted_s: self.was,
            }],
            reason: format!("what touches it is predicted {:.4} ms", 1e3 * self.now),
        }
    }
}
