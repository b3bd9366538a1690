use crate::args::{EngineArgs, ModelArgs, tell_assumed};
use crate::commands::plan::planned;
use crate::output::{self, Done};
use shopfloor::{Model, inputs};

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// The annotated model; beside the original where that has external data
    #[arg(long, value_name = "FILE")]
    out: String,
}

pub fn run(a: Args) -> Done {
    let waiting = output::spinner("planning");
    let model = Model::open(&a.model, &a.bound.options())?;
    let (_, assumed) = inputs::sizes(&model);
    let p = planned(&model, &a.engine, None, false)?;
    let nodes = shopfloor::annotate(&model, &p.plan, &p.view, &a.out)?;
    waiting.finish_and_clear();
    tell_assumed(&model, &assumed);
    output::print(&format!(
        "{}: {nodes} nodes of {} say what became of them; a graph viewer shows it as the nodes' metadata\n",
        a.out,
        model.program().name
    ))
}
