//! `shopfloor plan`: a plan with its decisions; also planning for other commands.
use crate::args::{EngineArgs, Given, KernelsArgs, ModelArgs, Place, ReportArgs, refuse};
use crate::commands::fleet;
use crate::first;
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use shopfloor::{DimBox, Machine, Model, Plan, inputs, machines};
use shopfloor_tools::targets::{Kernels, Machines, is_device};
use shopfloor_tools::{
    pages, planview,
    report::{DivisionView, PlanView},
};

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    #[arg(required_unless_present = "why")]
    pub model: Option<String>,
    /// Print the decisions, grouped by what was decided; with the number or name of a step, what was decided
    /// about it and what else there was
    #[arg(long, value_name = "STEP", num_args = 0..=1, default_missing_value = "")]
    pub why: Option<String>,
    /// Batches to compare over the machines that --on lists (a100,h100,t4), such as 1,8,64, for models that
    /// leave their batch open [default: 1,8,64]
    #[arg(long, value_name = "N,N...", value_delimiter = ',', value_parser = crate::args::whole::<i64>(1..=1 << 20))]
    pub batch: Vec<i64>,
    #[command(flatten)]
    pub bound: ModelArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub whose: KernelsArgs,
    #[command(flatten)]
    pub page: ReportArgs,
    /// Save the plan, for `shopfloor run --plan`
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<String>,
    /// The table as JSON
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// The machines to compare, where there are several or several batches.
fn compared(a: &Args) -> Result<Option<Vec<(String, Machine)>>, Failure> {
    let on = a.engine.on.as_deref().unwrap_or("cpu");
    if let Some(list) = fleet::listed(on)? {
        return Ok(Some(list));
    }
    match (a.batch.is_empty(), on) {
        (true, _) => Ok(None),
        (false, "cpu") => Ok(Some(vec![(on.into(), machines::find("cpu")?)])),
        (false, on) if is_device(on) => Err(Failure::Usage(format!(
            "--batch compares predictions for machines, and '{on}' is a device; name its machine, such as --on a100"
        ))),
        (false, _) => {
            let m = a
                .engine
                .planned_for_one("batches are compared on machines alone")?;
            Ok(Some(vec![(m.short_name(), m)]))
        }
    }
}

/// A plan with what is shown of it.
pub struct Planned {
    /// What counts everything that data gives too.
    pub plan: Plan,
    /// What is to be saved, for any data, where that is another one.
    pub saved: Option<Plan>,
    /// The plan as a table shows it.
    pub view: PlanView,
    /// The machine planned for, the last where there are two.
    pub machine: Machine,
}

/// The plan of `model` for `place`, which `engine` names: a device that is here is asked for it, a machine need not
/// be.
pub fn planned(
    model: &Model,
    (engine, place): (&EngineArgs, Place),
    kernels: Option<Kernels>,
    saving: bool,
) -> Result<Planned, Failure> {
    let (sizes, _) = inputs::sizes(model);
    let dims = inputs::box_of(model, &sizes);
    match place {
        Place::Device if kernels.is_some() => Err(Failure::Usage(
            "--kernels is for predictions: name a machine with --on, such as --on a100; what is here runs our kernels"
                .into(),
        )),
        Place::Device => on_device(model, engine, &dims),
        Place::Machines(m) => for_machines(model, engine, &m, (kernels, saving), &dims),
    }
}

/// The plan for machines that need not be here.
fn for_machines(
    model: &Model,
    engine: &EngineArgs,
    machines: &Machines,
    (kernels, saving): (Option<Kernels>, bool),
    dims: &DimBox,
) -> Result<Planned, Failure> {
    let planning = engine.planning(kernels)?;
    let vendor = planning.kernels == Kernels::Vendor;
    refuse(
        &[(vendor && saving, "--out")],
        "a plan of the vendor's kernels, which cannot be run",
    )?;
    // What is saved is for any data; what is shown counts what data gives as well.
    let whole = planview::whole_on(model, machines, &planning, dims)?;
    let save = || planview::plan_on(model, machines, &planning, dims);
    let saved = saving.then(save).transpose()?;
    let machine = machines.last().clone();
    let mut view = PlanView::new(&whole.plan, Some(model.program()), 1);
    view.dims = shopfloor::inputs::dims_text(model, &whole.plan.dims);
    view.kernels = Some(planning.kernels.label().into());
    view.unvalidated = planning.kernels.unvalidated(&machine);
    let here = machines::find("cpu")?;
    if machine.hash_hex() != here.hash_hex() {
        let what = match machine.identity() == here.identity() {
            true => "this machine as it is described there, not as it was measured",
            false => "a machine that is not here: nothing of it was measured",
        };
        view.note = Some(format!("a prediction for {}, {what}", machine.name));
    }
    if let Some(why) = whole.too_large(&machine) {
        let before = view.note.map_or(String::new(), |n| format!("{n}; "));
        view.note = Some(format!("{before}{why}: it is predicted as if it fitted"));
    }
    if let Some(way) = &whole.way {
        view = view.with_way(way, &whole.ways);
    }
    Ok(Planned {
        saved,
        plan: whole.plan,
        view: view.with_bodies(whole.bodies),
        machine,
    })
}

/// The plan of a device that is here.
fn on_device(model: &Model, engine: &EngineArgs, dims: &DimBox) -> Result<Planned, Failure> {
    let builder = engine.builder()?;
    let own = builder.engine()?;
    // Said where it was asked for: it takes a plan for each way.
    let division = match engine.goal.is_some() {
        true => shopfloor::divide(&own, model, engine.goal().goal, None)?,
        false => None,
    };
    let mut builder = builder.with_engine(own);
    if let Some(d) = &division {
        builder = builder.with_workers(d.workers);
    }
    let session = builder.commit(model.clone())?;
    let plan = session.plan(dims)?;
    let machine = session.runtime().engine().device().machine().clone();
    planview::refused(&plan, &machine)?;
    let mut view = planview::view(&session, &plan);
    view.device = Some(engine.on.clone().unwrap_or_else(|| "cpu".into()));
    view.division = division.map(|d| DivisionView {
        choice: d.why.choice,
        throughput_per_s: d.throughput,
        latency_ms: 1e3 * d.latency_s,
        reason: d.why.reason,
        others: d.why.alternatives.into_iter().map(|o| o.what).collect(),
    });
    Ok(Planned {
        saved: None,
        plan,
        view,
        machine,
    })
}

/// The model, and the step that `--why` names. A model that stands behind `--why` is no step.
fn asked(a: &Args) -> Result<(String, Option<String>), Failure> {
    let step = a.why.clone().filter(|s| !s.is_empty());
    match (&a.model, step) {
        (Some(model), step) => Ok((model.clone(), step)),
        (None, Some(model)) => Ok((model, None)),
        (None, None) => Err(Failure::Usage(
            "no model is given; name an ONNX file".into(),
        )),
    }
}

/// Explains one step.
fn explain(view: &PlanView, step: &str, json: bool) -> Done {
    let found = view.step(step).map_err(Failure::Usage)?;
    match json {
        true => output::json(&serde_json::json!({ "step": found, "whys": view.whys_of(found) })),
        false => output::page(&view.explained(found, output::style())),
    }
}

pub fn run(a: Args, given: &Given) -> Done {
    let baseline = a.page.baseline()?;
    first::measure(&a.engine)?;
    let (path, step) = asked(&a)?;
    if let Some(list) = compared(&a)? {
        return fleet::run(&a, &path, list, given);
    }
    // Before the model is read: a machine that is not there is said at once.
    let place = a.engine.place()?;
    let waiting = Progress::spinner("planning");
    let model = a.bound.open(&path)?;
    let Planned {
        plan,
        saved,
        view,
        machine,
    } = planned(&model, (&a.engine, place), a.whose.kernels, a.out.is_some())?;
    a.page.write(baseline, || {
        let kernels = a.whose.kernels.unwrap_or_default();
        Ok(pages::of_plan(&model, &plan, &view, &machine, kernels))
    })?;
    let plan = saved.unwrap_or(plan);
    drop(waiting);
    if let Some(file) = &a.out {
        planview::save(&plan, file)?;
    }
    match step {
        Some(step) => explain(&view, &step, a.json),
        None if a.json => output::json(&view),
        None => output::page(&view.render(output::style(), a.why.is_some())),
    }
}
