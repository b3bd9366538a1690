//! `shopfloor annotate`: a model file with plan figures as node properties.
use crate::args::{EngineArgs, ModelArgs};
use crate::commands::plan::planned;
use crate::first;
use crate::output::{self, Done};
use crate::progress::Progress;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// The annotated model; beside the original where that has external data
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: String,
}

pub fn run(a: Args) -> Done {
    first::measure(&a.engine)?;
    let place = a.engine.place()?;
    let waiting = Progress::spinner("planning");
    let model = a.bound.open(&a.model)?;
    let p = planned(&model, (&a.engine, place), None, false)?;
    let nodes = shopfloor_tools::annotate(&model, &p.plan, &p.view, &a.out)?;
    drop(waiting);
    output::page(&format!(
        "{}: {nodes} nodes of {} say what became of them\n(a graph viewer shows it as metadata of nodes)\n",
        a.out,
        model.program().name
    ))
}
