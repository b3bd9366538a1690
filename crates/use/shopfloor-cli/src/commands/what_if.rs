//! `shopfloor what-if`: a model on a changed machine.
use crate::args::{ModelArgs, kernels};
use crate::output::{self, Done};
use shopfloor::{Change, machines};
use shopfloor_tools::targets::Kernels;
use shopfloor_tools::what_if;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    /// A machine, which need not be here: a name, or a TOML file
    #[arg(long, value_name = "MACHINE")]
    on: String,
    /// What to change: l2=2x, bandwidth=1.5x, memory=141GB, tensor=2x, sms=132, launch=2us, clock=+10%;
    /// repeatable
    #[arg(long = "set", value_name = "NAME=CHANGE", required = true)]
    set: Vec<Change>,
    #[command(flatten)]
    bound: ModelArgs,
    /// Whose kernels: ours, or vendor for those of the vendor's library
    #[arg(long, value_name = "WHOSE", value_parser = kernels, default_value = "ours")]
    kernels: Kernels,
    /// List every step, in plan order, not only those that change most
    #[arg(long)]
    all: bool,
    /// Everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(a: Args) -> Done {
    let machine = machines::find(&a.on)?;
    let waiting = output::spinner("planning");
    let model = a.bound.open(&a.model)?;
    let view = what_if(&model, &machine, &a.set, a.kernels)?;
    waiting.finish_and_clear();
    if a.json {
        output::json(&view)
    } else {
        output::print(&view.render(output::style(), a.all))
    }
}
