//! `shopfloor advise`: what would make a model faster.
use crate::args::{ModelArgs, kernels};
use crate::output::{self, Done};
use shopfloor::machines;
use shopfloor_tools::advise;
use shopfloor_tools::targets::Kernels;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    /// A machine, which need not be here: a name, or a TOML file
    #[arg(long, value_name = "MACHINE")]
    on: String,
    #[command(flatten)]
    bound: ModelArgs,
    /// Whose kernels: ours, or vendor for those of the vendor's library
    #[arg(long, value_name = "WHOSE", value_parser = kernels, default_value = "ours")]
    kernels: Kernels,
    /// Everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(a: Args) -> Done {
    let machine = machines::find(&a.on)?;
    let waiting = output::spinner("planning");
    let (model, view) = advise(&a.model, &a.bound.sized()?, &machine, a.kernels)?;
    waiting.finish_and_clear();
    a.bound.tell(&model);
    if a.json {
        output::json(&view)
    } else {
        output::print(&view.render(output::style()))
    }
}
