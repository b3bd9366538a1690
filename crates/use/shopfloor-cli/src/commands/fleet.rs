//! `shopfloor plan` over several machines, or several batches.
use super::plan::Args;
use crate::args::{is_device, tell_assumed};
use crate::output::{self, Done, Failure};
use shopfloor::{Machine, Model, inputs, machines};
use shopfloor_tools::{batches, fleet};

/// The machines that `on` lists; `None` when it names one, or a device.
pub fn listed(on: &str) -> Result<Option<Vec<Machine>>, Failure> {
    if is_device(on) && !on.contains(',') || on.starts_with("emulated") {
        return Ok(None);
    }
    // A name may hold a comma of its own.
    if !on.contains(',') || machines::find(on).is_ok() {
        return Ok(None);
    }
    let parts = on.split(',').map(str::trim).filter(|p| !p.is_empty());
    let all = parts.map(|p| machines::find(if p == "cpu" { "present" } else { p }));
    let all = all.collect::<Result<Vec<_>, _>>()?;
    match all.is_empty() {
        true => Err(Failure::Usage(format!(
            "'{on}' names no machine; give names with commas between, such as --on a100,h100"
        ))),
        false => Ok(Some(all)),
    }
}

pub fn run(a: &Args, list: Vec<Machine>) -> Done {
    for (given, option) in [
        (a.out.is_some(), "--out"),
        (a.why, "--why"),
        (a.engine.machine.is_some(), "--machine"),
        (a.engine.threads.is_some(), "--threads"),
        (a.engine.memory.is_some(), "--memory"),
    ] {
        if given {
            return Err(Failure::Usage(format!(
                "{option} is for the plan of one machine; leave it out, or name one machine with --on and no --batch"
            )));
        }
    }
    let bar = output::bar("planning");
    let model = Model::open(&a.model, &a.bound.sized()?)?;
    let batches = batches(&model, &a.batch)?;
    let view = fleet(
        &model,
        &list,
        &batches,
        (a.engine.goal().goal, a.kernels),
        &|done, name| {
            bar.set_position((done * 1000.0) as u64);
            bar.set_message(format!("planning for {name}"));
        },
    );
    bar.finish_and_clear();
    let mut assumed = inputs::sizes(&model).1;
    assumed.retain(|n| Some(n) != view.batch.as_ref());
    tell_assumed(&model, &assumed);
    if a.json {
        output::json(&view)?;
    } else {
        output::print(&view.render(output::style()))?;
    }
    // Nowhere at all: the reasons were printed.
    match view.rows.iter().all(|r| r.points.is_empty()) {
        true => Err(Failure::Found(format!(
            "{} cannot be planned for any of these machines; the reasons are above",
            view.model
        ))),
        false => Ok(()),
    }
}
