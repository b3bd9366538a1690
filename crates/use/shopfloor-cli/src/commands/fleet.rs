//! `shopfloor plan` over several machines, or several batches.
use super::plan::Args;
use crate::args::{Given, OF_MODEL, tell_assumed};
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use shopfloor::{Machine, Model, inputs, machines};
use shopfloor_tools::targets::is_device;
use shopfloor_tools::{batches, fleet};

/// The machines that `on` lists, with the names that tables call them by; `None` when it names one, or a
/// device.
pub fn listed(on: &str) -> Result<Option<Vec<(String, Machine)>>, Failure> {
    if is_device(on) && !on.contains(',') || on.starts_with("emulated") {
        return Ok(None);
    }
    // A name may hold a comma of its own.
    if !on.contains(',') || machines::find(on).is_ok() {
        return Ok(None);
    }
    let parts = on.split(',').map(str::trim).filter(|p| !p.is_empty());
    let all = parts.map(|p| {
        let m = machines::find(p)?;
        let own = matches!(p, "cpu" | "detected");
        Ok::<_, Failure>((if own { p.into() } else { m.short_name() }, m))
    });
    let all = all.collect::<Result<Vec<_>, _>>()?;
    match all.is_empty() {
        true => Err(Failure::Usage(format!(
            "'{on}' names no machine; give names with commas between, such as --on a100,h100"
        ))),
        false => Ok(Some(all)),
    }
}

/// What does something for several machines.
const OF_SEVERAL: &[&str] = &[
    "--on",
    "--launch",
    "--threads",
    "--goal",
    "--max-latency",
    "--memory",
    "--kernels",
    "--batch",
    "--json",
];

pub fn run(a: &Args, path: &str, list: Vec<(String, Machine)>, given: &Given) -> Done {
    given.only(
        &[OF_MODEL, OF_SEVERAL].concat(),
        "a comparison of machines or batches (one machine and no --batch: a plan)",
    )?;
    let planning = a.engine.planning(None)?;
    for (_, machine) in &list {
        a.engine.tell_threads(std::slice::from_ref(machine))?;
    }
    let (names, list): (Vec<String>, Vec<Machine>) = list.into_iter().unzip();
    let bar = Progress::bar("planning");
    let model = Model::open(path, &a.bound.sized()?)?;
    let batches = batches(&model, &a.batch)?;
    let mut view = fleet(
        &model,
        &list,
        &batches,
        (&planning, a.whose.kernels),
        &|done, name| {
            bar.done(done);
            bar.now(format!("planning for {name}"));
        },
    );
    drop(bar);
    for row in &mut view.rows {
        let at = list.iter().position(|m| m.name == row.machine);
        if let Some(name) = at.and_then(|at| names.get(at)) {
            row.name.clone_from(name);
        }
    }
    let mut assumed = inputs::sizes(&model).1;
    assumed.retain(|n| Some(n) != view.batch.as_ref());
    tell_assumed(&model.program().name, &assumed);
    if a.json {
        output::json(&view)?;
    } else {
        output::page(&view.render(output::style()))?;
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
