//! Plans that cover ranges of every symbolic dimension are verified, for every model of the zoo.
//! No weights are needed: a sparse file stands in for them.
use crate::common;

use common::hollow;
use plan::{Allotment, Planner as _, SymbolOrigin};
use shopfloor::{DimBox, Model, ModelOptions};
use shopfloor_tools::targets::Planning;
use std::path::Path;
use testing::Share;
use testkit::cores::on_all_cores;
use testkit::zoo::{self, ZooModel};

/// Half to `factor` times the size that the reference was made with, for every symbol of an input.
fn ranges(model: &Model, zoo: &ZooModel, factor: i64) -> DimBox {
    let mut out = DimBox::new();
    for s in &model.program().symbols {
        let SymbolOrigin::Input { input, axis } = s.origin else {
            continue;
        };
        let value = model
            .program()
            .value(model.program().inputs[input as usize]);
        let shape = zoo.meta().inputs.get(&value.name).map(|i| i.shape.clone());
        let n = shape
            .and_then(|s| s.get(axis as usize).copied())
            .unwrap_or(1) as i64;
        out.insert(s.name.clone(), (n / 2).max(1), n * factor);
    }
    out
}

fn planned(name: &str, factor: i64, dir: &Path) -> Result<Option<usize>, String> {
    let zoo = zoo::find(name).ok_or("missing")?;
    let path = hollow(&zoo, dir);
    let model = match Model::open(&path, &ModelOptions::default()) {
        Err(e) if e.is_unsupported() => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    let dims = ranges(&model, &zoo, factor);
    let machine = shopfloor::machines::find("zen4-2core").map_err(|e| e.to_string())?;
    let target = cpu::target(cpu::isa::Isa::Avx512);
    let planner = planner::Planner::new(vec![(machine, target)], planner::PlanOptions::default());
    let allotment = Allotment {
        workers: vec![2],
        ..Allotment::default()
    };
    let plan = planner
        .bind(model.program(), &dims, &allotment)
        .map_err(|e| e.to_string())?;
    let steps = plan.blocks().map(|b| b.steps.len()).sum();
    plan.verify().map_err(|e| e.to_string())?;
    Ok(Some(steps))
}

/// The models of this run's share; those that `SHOPFLOOR_ONLY` names are all in it.
fn shared_out() -> Vec<String> {
    let share = match std::env::var_os("SHOPFLOOR_ONLY") {
        Some(_) => Share::ALL,
        None => Share::of_run(16),
    };
    eprintln!("{share}");
    zoo::names().into_iter().filter(|n| share.has(n)).collect()
}

#[test]
fn ranges_of_every_dim_are_planned_and_verified() {
    let dir = tempfile::tempdir().expect("folder");
    let only = std::env::var("SHOPFLOOR_ONLY").ok();
    let mut failed = Vec::new();
    for name in shared_out() {
        if only
            .as_ref()
            .is_some_and(|o| !o.split(',').any(|o| o == name))
        {
            continue;
        }
        let zoo = zoo::find(&name).expect("model");
        if zoo.meta().large && only.is_none() {
            continue;
        }
        let start = std::time::Instant::now();
        for factor in [2, 9] {
            match planned(&name, factor, dir.path()) {
                Ok(Some(steps)) => eprintln!(
                    "{name} times {factor}: {steps} steps, {:.1} s",
                    start.elapsed().as_secs_f64()
                ),
                Ok(None) => eprintln!("left out (operators that are not covered): {name}"),
                Err(e) => {
                    eprintln!("{name}: FAILED {e}");
                    failed.push(format!("{name} times {factor}: {e}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "refused:\n{}", failed.join("\n"));
}

/// The plan of a model for a machine that is not here, at the sizes of its reference.
fn planned_on(name: &str, machine: &str, dir: &Path) -> Result<Option<usize>, String> {
    let zoo = zoo::find(name).ok_or("missing")?;
    let path = hollow(&zoo, dir);
    let model = match Model::open(&path, &ModelOptions::default()) {
        Err(e) if e.is_unsupported() => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    let mut dims = DimBox::new();
    for (s, r) in ranges(&model, &zoo, 1).iter() {
        dims.insert(s.clone(), r.hi, r.hi);
    }
    let machine = shopfloor::machines::find(machine).map_err(|e| e.to_string())?;
    let plan = shopfloor_tools::planview::plan_for(&model, &machine, &Planning::default(), &dims)
        .map_err(|e| e.to_string())?;
    let steps: Vec<&plan::Step> = plan.blocks().flat_map(|b| &b.steps).collect();
    let targets = emit::ptx::ARCHS.map(emit::ptx::target);
    // Where there is anything to run, all but host steps, copies and what the target lacks run on the GPU.
    for s in &steps {
        let kernel = match &s.work {
            plan::StepWork::Kernel { kernel, .. } => kernel,
            plan::StepWork::Host { .. } => continue,
        };
        let copy = s.name.starts_with("copy ");
        let lacked = targets.iter().any(|t| t.lacking(kernel).is_some());
        if s.device == 0 && !copy && !lacked {
            return Err(format!(
                "'{}' ({:?}) runs on the host",
                s.name, kernel.family
            ));
        }
        if s.predicted.time_s <= 0.0 || s.cost_work.unique_bytes() <= 0.0 {
            return Err(format!("'{}' has no prediction", s.name));
        }
    }
    copied_once(&plan)?;
    let n = steps.len();
    eprintln!(
        "{name} on {}: {n} steps, {:.3} ms",
        machine.name,
        plan.predicted.time_s * 1e3
    );
    plan.verify().map_err(|e| e.to_string())?;
    Ok(Some(n))
}

/// No copy brings a value to a place where an earlier one of the same block has brought all of it: what is an
/// output and a later step's input, as the caches of a decoder are, crosses once. A value that is written
/// again between the two is another one.
fn copied_once(plan: &plan::Plan) -> Result<(), String> {
    for b in plan.blocks() {
        let place = |id: plan::BufferId| b.buffers[id as usize].place;
        let mut brought = std::collections::BTreeSet::new();
        for s in &b.steps {
            let plan::StepWork::Kernel { args, kernel, .. } = &s.work else {
                continue;
            };
            let writes = |i: usize| kernel.operands[i].role != kernel::Role::Read;
            for (_, &to) in args.iter().enumerate().filter(|(i, _)| writes(*i)) {
                brought.retain(|&(from, _, _)| from != to);
            }
            let (Some(&from), Some(&to)) = (args.first(), args.last()) else {
                continue;
            };
            let bytes = b.buffers[from as usize].bytes;
            let whole = b.buffers[to as usize].bytes == bytes;
            if b.is_transfer(s) && whole && !brought.insert((from, place(to), bytes)) {
                return Err(format!("'{}' brings what is there already", s.name));
            }
        }
    }
    Ok(())
}

#[test]
fn every_model_is_planned_for_gpus() {
    if !testing::turn("every_model_is_planned_for_gpus") {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let only = std::env::var("SHOPFLOOR_ONLY").ok();
    let asked = |name: &String| {
        let listed = only
            .as_ref()
            .is_none_or(|o| o.split(',').any(|o| o == name));
        listed && !zoo::find(name).expect("model").meta().large
    };
    let names: Vec<String> = shared_out().into_iter().filter(asked).collect();
    // A model that is named is planned for all of them.
    let share = if only.is_some() {
        Share::ALL
    } else {
        Share::of_run(9)
    };
    let machines: Vec<&str> = (0..)
        .zip(["a100", "h100", "h200"])
        .filter(|(case, _)| share.picks(*case))
        .map(|(_, machine)| machine)
        .collect();
    let all = on_all_cores(&names, |name| {
        let on = machines.iter().filter_map(|machine| {
            let e = planned_on(name, machine, dir.path()).err()?;
            Some(format!("{name} on {machine}: {e}"))
        });
        on.collect::<Vec<_>>()
    });
    let failed: Vec<String> = all.into_iter().flatten().collect();
    assert!(failed.is_empty(), "refused:\n{}", failed.join("\n"));
}

/// Arena bytes and the largest sum of bytes that live at once, over the blocks of a plan.
fn arenas(plan: &plan::Plan) -> (u64, u64) {
    let (mut arena, mut alive) = (0, 0);
    for b in plan.blocks() {
        let mut life: Vec<Option<(usize, usize)>> = vec![None; b.buffers.len()];
        for (i, s) in b.steps.iter().enumerate() {
            let used: Vec<u32> = match &s.work {
                plan::StepWork::Kernel { args, .. } => args.clone(),
                plan::StepWork::Host {
                    inputs, outputs, ..
                } => {
                    let all = inputs.iter().flatten().chain(outputs);
                    all.map(|a| a.buffer).collect()
                }
            };
            for u in used {
                let l = life[u as usize].get_or_insert((i, i));
                l.1 = i;
            }
        }
        let at = |i: usize| -> u64 {
            let lives = |l: &Option<(usize, usize)>| l.is_some_and(|l| l.0 <= i && i <= l.1);
            b.buffers
                .iter()
                .zip(&life)
                .filter(|(x, l)| x.kind == plan::BufferKind::Arena && lives(l))
                .map(|(x, _)| x.bytes.next_multiple_of(64))
                .sum()
        };
        arena += b.arena_bytes;
        alive += (0..b.steps.len()).map(at).max().unwrap_or(0);
    }
    (arena, alive)
}

#[test]
fn arenas_are_little_more_than_what_lives_at_once() {
    if !testing::turn("arenas_are_little_more_than_what_lives_at_once") {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let (mut tight, mut all, mut loose) = (0, 0, Vec::new());
    for name in zoo::names() {
        let zoo = zoo::find(&name).expect("model");
        let path = match zoo.meta().large {
            true => continue,
            false => hollow(&zoo, dir.path()),
        };
        let Ok(model) = Model::open(&path, &ModelOptions::default()) else {
            continue;
        };
        let mut dims = DimBox::new();
        for (s, r) in ranges(&model, &zoo, 1).iter() {
            dims.insert(s.clone(), r.hi, r.hi);
        }
        let machine = shopfloor::machines::find("zen4-2core").expect("machine");
        let target = cpu::target(cpu::isa::Isa::Avx512);
        let planner =
            planner::Planner::new(vec![(machine, target)], planner::PlanOptions::default());
        let plan = planner
            .bind(model.program(), &dims, &Allotment::default())
            .expect("plan");
        let (arena, alive) = arenas(&plan);
        all += 1;
        if arena as f64 <= 1.05 * alive as f64 {
            tight += 1;
        } else {
            loose.push(format!("{name} {:.3}", arena as f64 / alive as f64));
        }
    }
    eprintln!(
        "{tight} of {all} arenas within 1.05; beyond: {}",
        loose.join(", ")
    );
    // Nine in ten of the zoo; of the few bundled models alone, no more than one may be beyond.
    if zoo::shared().is_none() {
        testing::skip("zoo: arenas", "there is no ../shared/zoo");
        assert!(all > 0 && tight + 1 >= all, "{}", loose.join(", "));
        return;
    }
    assert!(tight * 10 >= all * 9, "{}", loose.join(", "));
}
