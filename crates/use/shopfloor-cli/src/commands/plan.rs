//! `shopfloor plan`: a plan with its decisions; also planning for other commands.
use crate::args::{EngineArgs, ModelArgs, ReportArgs, is_device, kernels};
use crate::commands::fleet;
use crate::output::{self, Done, Failure};
use shopfloor::{Machine, Model, Plan, inputs, machines};
use shopfloor_tools::targets::{Kernels, target};
use shopfloor_tools::{
    pages, planview,
    report::{DivisionView, PlanView},
};

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    pub model: String,
    #[command(flatten)]
    pub bound: ModelArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Batches to compare, such as 1,8,64, over the machines that --on names (a100,h100,t4); for models
    /// that leave their batch open [default: 1,8,64 when --on names several machines]
    #[arg(long, value_name = "N,N...", value_delimiter = ',', value_parser = clap::value_parser!(i64).range(1..=1 << 20))]
    pub batch: Vec<i64>,
    /// Whose kernels, on a machine that need not be here: ours, or vendor for those of the vendor's
    /// library [default: ours; both when --on names several machines]
    #[arg(long, value_name = "WHOSE", value_parser = kernels)]
    pub kernels: Option<Kernels>,
    #[command(flatten)]
    pub page: ReportArgs,
    /// Save the plan, for `shopfloor run --plan`
    #[arg(long, value_name = "FILE")]
    pub out: Option<String>,
    /// Print the reasons, those for what was not done included
    #[arg(long)]
    pub why: bool,
    /// The table as JSON
    #[arg(long)]
    pub json: bool,
}

/// The machines to compare, where there are several or several batches.
fn compared(a: &Args) -> Result<Option<Vec<Machine>>, Failure> {
    let on = a.engine.on.as_deref().unwrap_or("present");
    if let Some(list) = fleet::listed(on)? {
        return Ok(Some(list));
    }
    match (a.batch.is_empty(), on) {
        (true, _) => Ok(None),
        (false, "cpu") => Ok(Some(vec![machines::find("present")?])),
        (false, on) if is_device(on) || on.contains('+') => Err(Failure::Usage(format!(
            "--batch compares predictions for machines, and '{on}' is a device; name its machine, such as --on a100"
        ))),
        (false, on) => Ok(Some(vec![machines::find(on)?])),
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

/// The plan of `model` for what `engine` names: a device that is here is asked for it, any other name is a
/// machine that need not be.
pub fn planned(
    model: &Model,
    engine: &EngineArgs,
    kernels: Option<Kernels>,
    saving: bool,
) -> Result<Planned, Failure> {
    let (sizes, _) = inputs::sizes(model);
    let dims = inputs::box_of(model, &sizes);
    let goal = engine.goal().goal;
    // A device that is here is asked for its plan; any other name is a machine that need not be.
    let elsewhere = engine.on.as_deref().filter(|n| !is_device(n));
    if elsewhere.is_some() && engine.machine.is_some() {
        return Err(Failure::Usage(
            "--on MACHINE and --machine both name a machine; give one".into(),
        ));
    }
    Ok(match elsewhere {
        Some(name) => {
            let threads = engine.threads.map(|t| t as usize);
            let kernels = kernels.unwrap_or_default();
            // What is saved is for any data; what is shown counts what data gives as well.
            let saved;
            let (machine, whole) = match name.split_once('+') {
                None => {
                    let machine = machines::find(name)?;
                    let on = || Ok::<_, Failure>((&machine, target(&machine, kernels)?));
                    let whole = planview::whole_with(model, on()?, threads, goal, &dims)?;
                    saved = match saving {
                        true => Some(planview::plan_with(model, on()?, threads, goal, &dims)?),
                        false => None,
                    };
                    (machine, whole)
                }
                Some(_) if kernels == Kernels::Vendor => {
                    return Err(Failure::Usage(
                        "--kernels vendor is for one machine; a plan cut between two runs our kernels"
                            .into(),
                    ));
                }
                Some((host, gpu)) => {
                    let host = machines::find(if host == "cpu" { "present" } else { host })?;
                    let gpu = machines::find(gpu)?;
                    let whole = planview::whole_cut(model, &host, &gpu, threads, goal, &dims)?;
                    saved = match saving {
                        true => Some(planview::plan_cut(
                            model, &host, &gpu, threads, goal, &dims,
                        )?),
                        false => None,
                    };
                    (gpu, whole)
                }
            };
            if kernels == Kernels::Vendor && saving {
                return Err(Failure::Usage(
                    "a plan of the vendor's kernels is a prediction and cannot be run; leave --out or --kernels vendor out"
                        .into(),
                ));
            }
            let mut view = PlanView::new(&whole.plan, Some(model.program()), 1);
            view.kernels = Some(kernels.label().into());
            view.unvalidated = kernels.unvalidated(&machine);
            if machine.hash_hex() != machines::find("present")?.hash_hex() {
                view.note = Some(format!(
                    "a prediction for {}, a machine that is not here: nothing of it was measured",
                    machine.name
                ));
            }
            Planned {
                saved,
                plan: whole.plan,
                view: view.with_bodies(whole.bodies),
                machine,
            }
        }
        None if kernels.is_some() => {
            return Err(Failure::Usage(
                "--kernels is for predictions: name a machine with --on, such as --on a100; what is here runs our kernels"
                    .into(),
            ));
        }
        None => {
            let builder = engine.builder()?;
            let own = builder.engine()?;
            // Said where it was asked for: it takes a plan for each way.
            let division = match engine.goal.is_some() {
                true => shopfloor::divide(&own, model, goal, None)?,
                false => None,
            };
            let mut builder = builder.with_engine(own);
            if let Some(d) = &division {
                builder = builder.with_workers(d.workers);
            }
            let session = builder.commit(model.clone())?;
            let plan = session.plan(&dims)?;
            let mut view = planview::view(&session, &plan);
            view.division = division.map(|d| DivisionView {
                choice: d.why.choice,
                throughput_per_s: d.throughput,
                latency_ms: 1e3 * d.latency_s,
                reason: d.why.reason,
                others: d.why.alternatives.into_iter().map(|o| o.what).collect(),
            });
            let machine = session.runtime().engine().device().machine().clone();
            Planned {
                saved: None,
                plan,
                view,
                machine,
            }
        }
    })
}

pub fn run(a: Args) -> Done {
    let other = a.page.other()?;
    if let Some(list) = compared(&a)? {
        if a.page.report.is_some() {
            return Err(Failure::Usage(
                "--report is about one machine; name one with --on, and compare two with --against"
                    .into(),
            ));
        }
        return fleet::run(&a, list);
    }
    let waiting = output::spinner("planning");
    let model = a.bound.open(&a.model)?;
    let Planned {
        plan,
        saved,
        view,
        machine,
    } = planned(&model, &a.engine, a.kernels, a.out.is_some())?;
    a.page.write(other, || {
        let kernels = a.kernels.unwrap_or_default();
        Ok(pages::of_plan(&model, &plan, &view, &machine, kernels))
    })?;
    let plan = saved.unwrap_or(plan);
    waiting.finish_and_clear();
    if let Some(path) = &a.out {
        planview::save(&plan, path)?;
    }
    if a.json {
        output::json(&view)
    } else {
        output::print(&view.render(output::style(), a.why))
    }
}
