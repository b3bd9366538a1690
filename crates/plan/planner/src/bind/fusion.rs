//! Which kernels of a program are better apart, on this machine and with these workers.
//!
//! Every kind of kernel that takes long is planned by itself, whole and in each of its partings, as a
//! program that holds nothing else; what gains is put into one program, of which whoever asks makes a
//! plan.
use super::alike::Alike;
use super::prior::Prior;
use super::{MemorySaving, PlanOptions, Planner};
use crate::merge::LESS;
use crate::split::{ItemSplit, apart, partings};
use kernel::Kernel;
use layout::{Arrange, Inserted};
use layout::{Dim, DimBox, Layout};
use plan::{
    Allotment, Alternative, Item, ItemWork, Plan, Program, ProgramValue, Segment, ValueIx,
    ValueOrigin, Why,
};
use std::collections::{BTreeMap, BTreeSet};

/// Kinds of kernels that are looked at: those that take longest.
const KINDS: usize = 8;
/// Share of the plan's time that a kind has to take.
const LONG: f64 = 0.02;
/// How many times fewer candidates are tried of kernels by themselves than for a plan.
const FEWER: usize = 4;

/// A kind of kernel with the items that are of it, by (segment, item).
struct Kind<'a> {
    kernel: &'a Kernel,
    items: Vec<(usize, usize, &'a Item)>,
    seconds: f64,
}

impl Planner {
    /// `program` with kernels in two where that is predicted to take less, with a why for each kind of
    /// them; `plan` is its plan as it is, with `allotment`. `None` where nothing gains, and for programs
    /// with state, whose places rely on their kernels.
    pub(super) fn parted(
        &self,
        program: &Program,
        plan: &Plan,
        allotment: &Allotment,
    ) -> Option<Program> {
        if !program.states.is_empty() {
            return None;
        }
        // What a few candidates say of either side decides; the plan of what gains has them all.
        let quick = Planner {
            options: PlanOptions {
                effort: self.options.effort / FEWER,
                ..self.options.clone()
            },
            ..self.clone()
        };
        let mut whys: Vec<Why> = Vec::new();
        let mut chosen: Vec<(usize, usize, ItemSplit)> = Vec::new();
        for kind in kinds(program, plan) {
            let &(_, _, item) = kind.items.first()?;
            let Some(whole) = quick.alone(
                program,
                std::slice::from_ref(item),
                &[],
                &plan.dims,
                allotment,
            ) else {
                continue;
            };
            let mut best: Option<(f64, ItemSplit)> = None;
            for p in partings(kind.kernel) {
                let between = program.values.len() as ValueIx;
                let Some(items) = p.items(item, between) else {
                    continue;
                };
                let seconds = quick.alone(program, &items, &[p.value(item)], &plan.dims, allotment);
                if let Some(s) = seconds.filter(|s| *s < (1.0 - LESS) * whole)
                    && best.as_ref().is_none_or(|b| s < b.0)
                {
                    best = Some((s, p));
                }
            }
            let Some((seconds, p)) = best else { continue };
            whys.push(Why {
                pass: Plan::APART.into(),
                subject: item.name.clone(),
                choice: match kind.items.len() {
                    1 => format!("in two steps, {}", p.what()),
                    n => format!("in two steps, {}, as {} others", p.what(), n - 1),
                },
                alternatives: vec![Alternative {
                    what: "in one step, as the model's fusion has it".into(),
                    predicted_s: whole,
                }],
                reason: format!("predicted {:.4} ms", 1e3 * seconds),
            });
            let all = kind.items.iter().map(|&(s, i, _)| (s, i, p.clone()));
            chosen.extend(all);
        }
        if chosen.is_empty() {
            return None;
        }
        let list: Vec<(usize, usize, &ItemSplit)> =
            chosen.iter().map(|c| (c.0, c.1, &c.2)).collect();
        let mut out = apart(program, &list);
        out.whys.extend(whys);
        Some(out)
    }

    /// Predicted seconds of `items` of `program`, with `more` values behind its own, by themselves.
    pub(super) fn alone(
        &self,
        program: &Program,
        items: &[Item],
        more: &[plan::ProgramValue],
        dims: &DimBox,
        allotment: &Allotment,
    ) -> Option<f64> {
        plan::pause();
        let own = program.values.len() as ValueIx;
        // What they need that is computed once.
        let mut needed: BTreeSet<ValueIx> = items.iter().flat_map(Item::reads).inserted();
        let mut init: Vec<Item> = Vec::new();
        for i in program.init.iter().rev() {
            if i.writes().iter().any(|v| needed.contains(v)) {
                needed.extend(i.reads());
                init.push(i.clone());
            }
        }
        init.reverse();
        needed.extend(items.iter().flat_map(Item::writes));
        let each = program.values.iter().enumerate();
        let each = each.map(|(v, value)| match needed.contains(&(v as ValueIx)) {
            true => value.clone(),
            false => size_of(value),
        });
        let mut values: Vec<ProgramValue> = each.collect();
        values.extend(more.iter().cloned());
        let written = items.iter().flat_map(Item::writes).filter(|v| *v < own);
        let made = written.filter(|v| values[*v as usize].origin == ValueOrigin::Made);
        let made: Vec<ValueIx> = made.collect();
        let outputs = made
            .iter()
            .map(|&v| (values[v as usize].name.clone(), v))
            .collect();
        let by_itself = Program {
            name: program.name.clone(),
            symbols: program.symbols.clone(),
            values,
            inputs: program.inputs.clone(),
            outputs,
            init,
            segments: vec![Segment::Straight(items.to_vec())],
            states: vec![],
            // They are as the rest of the program takes them, in whatever layout.
            passed: made,
            constraints: program.constraints.clone(),
            batches: vec![],
            savings: vec![],
            precision: program.precision,
            fates: vec![],
            whys: vec![],
            weights: program.weights.clone(),
        };
        // Nobody asks what its plan is for.
        let prior = Prior::of_program(String::new());
        let plan = self.bind_as(
            &by_itself,
            dims,
            allotment,
            MemorySaving::None,
            (None, &prior),
        );
        Some(plan.ok()?.predicted.time_s)
    }
}

/// A value that nobody touches: of it counts how large it is.
fn size_of(value: &ProgramValue) -> ProgramValue {
    ProgramValue {
        name: String::new(),
        dtype: value.dtype,
        shape: vec![],
        layout: Layout {
            offset: Dim::ZERO,
            modes: vec![],
        },
        storage: value.storage.clone(),
        origin: value.origin,
    }
}

/// The kinds of kernels that take long, those that take longest first.
fn kinds<'a>(program: &'a Program, plan: &Plan) -> Vec<Kind<'a>> {
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let took: BTreeMap<&str, f64> = steps
        .map(|s| (s.name.as_str(), s.predicted.time_s))
        .inserted();
    let mut out: Vec<Kind> = Vec::new();
    let mut alike = Alike::default();
    for (s, segment) in program.segments.iter().enumerate() {
        for (i, item) in segment.items().iter().enumerate() {
            let (ItemWork::Kernel { kernel, .. }, Some(&seconds)) =
                (&item.work, took.get(item.name.as_str()))
            else {
                continue;
            };
            let number = alike.number(&[kernel]);
            if number == out.len() {
                out.push(Kind {
                    kernel,
                    items: vec![],
                    seconds: 0.0,
                });
            }
            out[number].items.push((s, i, item));
            out[number].seconds += seconds;
        }
    }
    let least = LONG * plan.predicted.time_s;
    out.retain(|k| k.seconds >= least);
    out.arrange_by(|a, b| b.seconds.total_cmp(&a.seconds));
    out.truncate(KINDS);
    out
}
