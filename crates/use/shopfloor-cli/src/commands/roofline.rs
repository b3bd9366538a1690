//! `shopfloor roofline`: a machine's roofs and a computation under them.
use crate::args::{EngineArgs, Given, KernelsArgs, ModelArgs};
use crate::first;
use crate::output::{self, Done, Failure, note};
use crate::progress::Progress;
use shopfloor_tools::roofline;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file: every step of its plan is a point
    model: Option<String>,
    /// An operator: matmul:4096x4096x4096:f16, map:1000000:f32:2in (the sum of two vectors),
    /// map:1000000:f32:gelu or conv:1,64,56,56,64,3,3,1,1
    #[arg(long, value_name = "OP", conflicts_with = "model")]
    op: Option<String>,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    whose: KernelsArgs,
    /// Write the plot to an SVG file too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// List every step of a model, in plan order, not only the slowest
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// What does something for an operator.
const OF_OP: &[&str] = &[
    "--op",
    "--on",
    "--machine",
    "--threads",
    "--isa",
    "--goal",
    "--max-latency",
    "--memory",
    "--svg",
    "--json",
];

pub fn run(a: Args, given: &Given) -> Done {
    if a.op.is_some() {
        given.only(OF_OP, "roofline --op")?;
    }
    first::measure(&a.engine)?;
    let machine = a.engine.planned_for_one("roofs are those of one")?;
    let planning = a.engine.planning(a.whose.kernels)?;
    let waiting = Progress::spinner("planning");
    let view = match (&a.op, &a.model) {
        (Some(op), _) => roofline::of_op(&machine, op, &planning)?,
        (None, Some(path)) => {
            let model = a.bound.open(path)?;
            roofline::of_model(&machine, &model, &planning)?
        }
        (None, None) => {
            return Err(Failure::Usage(
                "nothing to look at: give an ONNX file, or an operator with --op matmul:4096x4096x4096:f16".into(),
            ));
        }
    };
    drop(waiting);
    if let (Some(isa), false) = (a.engine.isa, machine.is_gpu()) {
        note(&format!(
            "the kernels are those of {isa}, and the roofs those of {}: what its widest instructions reach",
            machine.name
        ));
    }
    if let Some(path) = &a.svg {
        roofline::save_svg(&view, path)?;
        note(&format!("the plot is in {}", path.display()));
    }
    if a.json {
        output::json(&view)
    } else {
        output::page(&view.render(output::style(), a.all))
    }
}
