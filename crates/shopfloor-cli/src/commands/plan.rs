use crate::args::{EngineArgs, ModelArgs, is_device, tell_assumed};
use crate::output::{self, Done, Failure};
use shopfloor::{Model, inputs, machines, planview, report::PlanView};

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Save the plan, for `shopfloor run --plan`
    #[arg(long, value_name = "FILE")]
    out: Option<String>,
    /// Print the reasons, those for what was not done included
    #[arg(long)]
    why: bool,
    /// The table as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(a: Args) -> Done {
    let waiting = output::spinner("planning");
    let model = Model::open(&a.model, &a.bound.options())?;
    let (sizes, assumed) = inputs::sizes(&model);
    let dims = inputs::box_of(&model, &sizes);
    let goal = a.engine.goal().goal;
    // A device that is here is asked for its plan; any other name is a machine that need not be.
    let elsewhere = a.engine.on.as_deref().filter(|n| !is_device(n));
    if elsewhere.is_some() && a.engine.machine.is_some() {
        return Err(Failure::Usage(
            "--on MACHINE and --machine both name a machine; give one".into(),
        ));
    }
    let (plan, view) = match elsewhere {
        Some(name) => {
            let threads = a.engine.threads.map(|t| t as usize);
            let (machine, plan) = match name.split_once('+') {
                None => {
                    let machine = machines::find(name)?;
                    let plan = planview::plan_for(&model, &machine, threads, goal, &dims)?;
                    (machine, plan)
                }
                Some((host, gpu)) => {
                    let host = machines::find(if host == "cpu" { "present" } else { host })?;
                    let gpu = machines::find(gpu)?;
                    let plan = planview::plan_cut(&model, &host, &gpu, threads, goal, &dims)?;
                    (gpu, plan)
                }
            };
            let mut view = PlanView::new(&plan, Some(model.program()), 1);
            if machine.hash_hex() != machines::find("present")?.hash_hex() {
                view.note = Some(format!(
                    "a prediction for {}, a machine that is not here: nothing of it was measured",
                    machine.name
                ));
            }
            (plan, view)
        }
        None => {
            let session = a.engine.builder()?.commit(model.clone())?;
            let plan = session.plan(&dims)?;
            let view = planview::view(&session, &plan);
            (plan, view)
        }
    };
    waiting.finish_and_clear();
    tell_assumed(&model, &assumed);
    if let Some(path) = &a.out {
        planview::save(&plan, path)?;
    }
    if a.json {
        output::json(&view)
    } else {
        output::print(&view.render(output::style(), a.why))
    }
}
