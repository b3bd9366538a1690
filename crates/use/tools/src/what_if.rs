//! What a change of a machine would buy a model, step by step.
use crate::planview;
use crate::targets::Planning;
use kernel::Target;
use layout::Inserted;
use machine::{Change, Cost, WayTime};
use plan::{Decisions, Plan, Step, StepWork};
use planview::Whole;
use report::{AloneView, BodyView, ChangedStep, StepView, WhatIfView, bounds_of, counted, units};
use shopfloor::{Error, Machine, Model, inputs};
use std::collections::BTreeMap;

/// The target for a changed machine: a CTA may have the shared memory that was added.
fn target_for(old: &Machine, new: &Machine, planning: &Planning) -> Result<Target, Error> {
    let mut t = planning.target(new)?;
    let shared = |m: &Machine| m.limits.shared_per_cta.map_or(0, |s| s.value);
    if let Some(gpu) = &mut t.gpu
        && shared(new) > shared(old)
    {
        gpu.limits.shared_bytes = shared(new);
    }
    Ok(t)
}

fn changed(machine: &Machine, changes: &[Change]) -> Result<Machine, Error> {
    let mut new = machine.clone();
    for c in changes {
        c.apply(&mut new).map_err(Error::Usage)?;
    }
    Ok(new)
}

/// What takes a step's time: levels, units, first accesses, fixed costs; seconds each.
fn parts(c: &Cost) -> Vec<(String, f64)> {
    let levels = c.levels.iter().map(|l| (l.name.to_string(), l.seconds));
    let units = c.units.iter().map(|u| (u.name.to_string(), u.seconds));
    let fixed = [
        ("latency".to_string(), c.latency_s),
        ("launch".to_string(), c.launch_s),
    ];
    levels.chain(units).chain(fixed).collect()
}

/// Why a step with the same tiles takes another time, or the same.
fn why(old: &Cost, new: &Cost) -> String {
    let after = parts(new);
    let mut best: Option<(String, f64, f64)> = None;
    for (name, a) in parts(old) {
        let b = after.iter().find(|p| p.0 == name).map_or(0.0, |p| p.1);
        if best
            .as_ref()
            .is_none_or(|x| (a - b).abs() > (x.1 - x.2).abs())
        {
            best = Some((name, a, b));
        }
    }
    let moved = best.filter(|(_, a, b)| (a - b).abs() > 1e-3 * old.time_s.max(1e-12));
    let bound = match old.bound == new.bound {
        true => new.bound.to_string(),
        false => format!("{} -> {}", old.bound, new.bound),
    };
    match moved {
        Some((name, a, b)) => format!(
            "{name} {} -> {}; {bound}",
            units::seconds(a),
            units::seconds(b)
        ),
        None => format!("bound by {bound}: not what changed"),
    }
}

fn tiles(s: &Step) -> String {
    match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => report::schedule_text(kernel, schedule),
        StepWork::Host { .. } => String::new(),
    }
}

/// Every step before and after.
fn steps(old: &Plan, new: &Plan, machine: &Machine, target: &Target) -> Vec<ChangedStep> {
    let by_name: BTreeMap<&str, &Step> = new
        .blocks()
        .flat_map(|b| b.steps.iter().map(|s| (s.name.as_str(), s)))
        .inserted();
    let label = |s: &Step| {
        let v = StepView::new(0, s, &old.dims, &Decisions::default());
        (v.nodes_text(""), v.family)
    };
    let mut out = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for a in old.blocks().flat_map(|b| &b.steps) {
        seen.push(&a.name);
        let (name, family) = label(a);
        let mut row = ChangedStep {
            name,
            family,
            old_s: Some(a.predicted.time_s),
            new_s: None,
            old_bound: a.predicted.bound.to_string(),
            new_bound: String::new(),
            old_tiles_s: None,
            why: "not there any more: another split".into(),
        };
        if let Some(b) = by_name.get(a.name.as_str()) {
            row.new_s = Some(b.predicted.time_s);
            row.new_bound = b.predicted.bound.to_string();
            row.why = why(&a.predicted, &b.predicted);
            let (was, is) = (tiles(a), tiles(b));
            if was != is {
                let kept = planner::predict_again(old, a, machine, target, machine.worker_count());
                row.old_tiles_s = kept.as_ref().map(|c| c.time_s);
                row.why = match kept {
                    Some(c) => format!(
                        "other tiles; with the old ones {}, {}",
                        units::seconds(c.time_s),
                        c.bound
                    ),
                    None => format!("other tiles; {}", row.why),
                };
            }
        }
        out.push(row);
    }
    for b in new.blocks().flat_map(|b| &b.steps) {
        if !seen.contains(&b.name.as_str()) {
            let (name, family) = label(b);
            out.push(ChangedStep {
                name,
                family,
                old_s: None,
                new_s: Some(b.predicted.time_s),
                old_bound: String::new(),
                new_bound: b.predicted.bound.to_string(),
                old_tiles_s: None,
                why: "new: another split".into(),
            });
        }
    }
    out
}

/// What is counted of each branch and loop body before and after, one row each.
fn inside(old: &Whole, new: &Whole) -> Vec<ChangedStep> {
    let bound = |b: &BodyView| {
        let most = b.bounds_us.iter().max_by(|x, y| x.1.total_cmp(y.1));
        most.map_or(String::new(), |m| m.0.clone())
    };
    let seconds = |b: &BodyView, n: f64| b.predicted_us.map(|us| us * n * 1e-6);
    let after = counted(&new.bodies);
    let each = counted(&old.bodies).into_iter().zip(after);
    each.map(|((a, n), (b, m))| ChangedStep {
        name: a.node.clone(),
        family: "control".into(),
        old_s: seconds(a, n),
        new_s: seconds(b, m),
        old_bound: bound(a),
        new_bound: bound(b),
        old_tiles_s: None,
        why: match (a.which.as_str(), a.times) {
            ("body", Some(n)) => format!("the body, {}", units::plural(n, "time")),
            ("body", None) => "the body, counted once".into(),
            (was, _) if was == b.which => format!("{was} is the costlier branch"),
            (was, _) => format!("{was} was the costlier branch, now it is {}", b.which),
        },
    })
    .collect()
}

/// What lies between steps by the way that they reach a GPU, before and after: each step's own time holds a
/// launch, and copies go one after the other.
fn between(old: &Whole, new: &Whole) -> Option<ChangedStep> {
    let (was, is) = (old.way?, new.way?);
    let seconds = |w: &Whole, way: &WayTime| {
        let steps = w.plan.blocks().flat_map(|b| &b.steps);
        way.with_copies_s() - steps.map(|s| s.predicted.time_s).sum::<f64>()
    };
    Some(ChangedStep {
        name: "from step to step, and copies".into(),
        family: "launch".into(),
        old_s: Some(seconds(old, &was)),
        new_s: Some(seconds(new, &is)),
        old_bound: was.way.to_string(),
        new_bound: is.way.to_string(),
        old_tiles_s: None,
        why: match was.way == is.way {
            true => format!("by {}: steps above hold a launch each", is.way),
            false => format!("by {} now, before by {}", is.way, was.way),
        },
    })
}

/// The plan of `model` on `machine` as it is and with `changes`, compared step by step, and with each
/// change alone. Everything is planned anew; nothing is scaled.
///
/// # Errors
/// No changes, a change of something that the machine has not, or what planning gives.
pub fn what_if(
    model: &Model,
    machine: &Machine,
    changes: &[Change],
    planning: &Planning,
) -> Result<WhatIfView, Error> {
    if changes.is_empty() {
        return Err(Error::Usage(format!(
            "nothing is changed: give --set l2=2x or the like; what can be set is {}",
            machine::CHANGES
        )));
    }
    let dims = inputs::box_of(model, &inputs::sizes(model).0);
    let plan_on = |m: &Machine, t: Target| planview::whole_with(model, (m, t), planning, &dims);
    let new_machine = changed(machine, changes)?;
    let t = planning.target(machine)?;
    let new_target = target_for(machine, &new_machine, planning)?;
    let old = plan_on(machine, t.clone())?;
    let new = plan_on(&new_machine, new_target.clone())?;
    let too_large = new.too_large(&new_machine);
    let bytes = |m: &Machine| m.memory().bytes.value;
    if let Some(why) = &too_large
        && bytes(&new_machine) != bytes(machine)
    {
        return Err(Error::Usage(format!(
            "{why} with these changes; give it more, or leave the memory as it is"
        )));
    }
    let mut alone = Vec::new();
    if changes.len() > 1 {
        for c in changes {
            let m = changed(machine, std::slice::from_ref(c))?;
            let t = target_for(machine, &m, planning)?;
            alone.push(AloneView {
                change: c.to_string(),
                new_s: plan_on(&m, t)?.seconds(),
            });
        }
    }
    let mut view = WhatIfView {
        model: model.program().name.clone(),
        dims: inputs::dims_text(model, &dims),
        machine: machine.name.clone(),
        how: new.how.clone(),
        kernels: planning.kernels.label().into(),
        unvalidated: planning.kernels.unvalidated(machine),
        target: t.name,
        changes: changes.iter().map(ToString::to_string).collect(),
        old_s: old.seconds(),
        new_s: new.seconds(),
        alone,
        old_bounds: bounds_of(&old.plan, &old.bodies),
        new_bounds: bounds_of(&new.plan, &new.bodies),
        steps: steps(&old.plan, &new.plan, &new_machine, &new_target),
        explanation: vec![],
    };
    view.steps.extend(inside(&old, &new));
    view.explanation = explained(&view);
    view.steps.extend(between(&old, &new));
    view.explanation.extend(old.counted());
    view.explanation
        .extend(too_large.map(|why| format!("{why}: it is predicted as if it fitted.")));
    Ok(view)
}

fn explained(v: &WhatIfView) -> Vec<String> {
    let mut out = Vec::new();
    let idle = v.steps.iter().filter(|s| !s.changes());
    // The request takes less than its steps where one launch stands for those that each of them holds.
    let all: f64 = v.steps.iter().filter_map(|s| s.old_s).sum();
    let (mut n, mut s) = (0, 0.0);
    for step in idle {
        n += 1;
        s += step.old_s.unwrap_or(0.0);
    }
    if n > 0 {
        out.push(format!(
            "{} of {}, {} of the time of all, take as long as before: something else bounds them.",
            n,
            units::plural(v.steps.len() as u64, "step"),
            units::percent(s / all.max(f64::MIN_POSITIVE))
        ));
    }
    let others = v.steps.iter().filter(|s| s.old_tiles_s.is_some()).count();
    if others > 0 {
        let kept: f64 = v
            .steps
            .iter()
            .map(|s| s.old_tiles_s.or(s.new_s).unwrap_or(0.0))
            .sum();
        out.push(format!(
            "{} get other tiles on the changed machine; with those that they had the request would take {}.",
            units::plural(others as u64, "step"),
            units::seconds(kept)
        ));
    }
    let slower = v
        .steps
        .iter()
        .filter(|s| s.gain_s() < -1e-3 * s.old_s.unwrap_or(0.0))
        .count();
    if slower > 0 {
        out.push(format!(
            "{} take longer, new ones among them: tiles are chosen for steps, and a split adds one.",
            units::plural(slower as u64, "step")
        ));
    }
    if let (Some(a), Some(b)) = (v.old_bounds.first(), v.new_bounds.first()) {
        out.push(match a.0 == b.0 {
            true => format!(
                "{} was what most of the time went to and still is ({} to {}).",
                a.0,
                units::percent(a.1),
                units::percent(b.1)
            ),
            false => format!(
                "{} was what most of the time went to ({}); now it is {} ({}): more of the same would gain less.",
                a.0,
                units::percent(a.1),
                b.0,
                units::percent(b.1)
            ),
        });
    }
    out
}
