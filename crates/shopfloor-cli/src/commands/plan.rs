use crate::args::{EngineArgs, ModelArgs, tell_assumed};
use crate::output::{self, Done};
use shopfloor::{Model, inputs, machines, planview, report::PlanView};

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Plan for this machine, which need not be here: a name or a TOML file
    #[arg(long, value_name = "MACHINE", conflicts_with = "machine")]
    on: Option<String>,
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
    let (plan, view) = match &a.on {
        Some(name) => {
            let threads = a.engine.threads.map(|t| t as usize);
            let machine = machines::find(name)?;
            let plan = planview::plan_for(&model, &machine, threads, goal, &dims)?;
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
