//! `shopfloor roofline`: a machine's roofs and a computation under them.
use crate::args::{ModelArgs, kernels};
use crate::output::{self, Done, Failure, note};
use shopfloor::machines;
use shopfloor_tools::roofline;
use shopfloor_tools::targets::Kernels;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// A machine, which need not be here: a name, or a TOML file
    #[arg(long, value_name = "MACHINE")]
    on: String,
    /// ONNX file: every step of its plan is a point
    model: Option<String>,
    /// An operator: matmul:4096x4096x4096:f16, map:1000000:f32:2in (the sum of two vectors),
    /// map:1000000:f32:gelu or conv:1,64,56,56,64,3,3,1,1
    #[arg(long, value_name = "OP", conflicts_with = "model")]
    op: Option<String>,
    #[command(flatten)]
    bound: ModelArgs,
    /// Whose kernels a model is planned with: ours, or vendor for those of the vendor's library
    #[arg(long, value_name = "WHOSE", value_parser = kernels, default_value = "ours", conflicts_with = "op")]
    kernels: Kernels,
    /// Write the plot to an SVG file too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// List every step of a model, in plan order, not only the slowest
    #[arg(long)]
    all: bool,
    /// Everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(a: Args) -> Done {
    let machine = machines::find(&a.on)?;
    let view = match (&a.op, &a.model) {
        (Some(op), _) => roofline::of_op(&machine, op)?,
        (None, Some(path)) => {
            let waiting = output::spinner("planning");
            let model = a.bound.open(path)?;
            let view = roofline::of_model(&machine, &model, a.kernels)?;
            waiting.finish_and_clear();
            view
        }
        (None, None) => {
            return Err(Failure::Usage(
                "nothing to look at: give an ONNX file, or an operator with --op matmul:4096x4096x4096:f16".into(),
            ));
        }
    };
    if let Some(path) = &a.svg {
        roofline::save_svg(&view, path)?;
        note(&format!("the plot is in {}", path.display()));
    }
    if a.json {
        output::json(&view)
    } else {
        output::print(&view.render(output::style(), a.all))
    }
}
