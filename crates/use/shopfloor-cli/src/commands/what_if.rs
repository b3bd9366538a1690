//! `shopfloor what-if`: a model on a changed machine.
use crate::args::{EngineArgs, KernelsArgs, ModelArgs};
use crate::first;
use crate::output::{self, Done};
use crate::progress::Progress;
use shopfloor::Change;
use shopfloor_tools::what_if;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    /// What to change: l2=2x, bandwidth=1.5x, memory=141GB, tensor=2x, sms=132, cores=2x,
    /// launch=2us, clock=+10%; repeatable
    #[arg(long = "set", value_name = "NAME=CHANGE", required = true)]
    set: Vec<Change>,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    whose: KernelsArgs,
    /// List every step, in plan order, not only those that change most
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args) -> Done {
    first::measure(&a.engine)?;
    let machine = a.engine.planned_for_one("what-if changes one")?;
    let planning = a.engine.planning(a.whose.kernels)?;
    let waiting = Progress::spinner("planning");
    let model = a.bound.open(&a.model)?;
    let view = what_if(&model, &machine, &a.set, &planning)?;
    drop(waiting);
    if a.json {
        output::json(&view)
    } else {
        output::page(&view.render(output::style(), a.all))
    }
}
