//! `shopfloor advise`: what would make a model faster.
use crate::args::{EngineArgs, KernelsArgs, ModelArgs};
use crate::first;
use crate::output::{self, Done};
use crate::progress::Progress;
use shopfloor_tools::advise;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    whose: KernelsArgs,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args) -> Done {
    first::measure(&a.engine)?;
    let machine = a.engine.planned_for_one("advice is about one")?;
    let planning = a.engine.planning(a.whose.kernels)?;
    let waiting = Progress::spinner("planning");
    let (model, view) = advise(&a.model, &a.bound.sized()?, &machine, &planning)?;
    drop(waiting);
    a.bound.tell(&model)?;
    if a.json {
        output::json(&view)
    } else {
        output::page(&view.render(output::style()))
    }
}
