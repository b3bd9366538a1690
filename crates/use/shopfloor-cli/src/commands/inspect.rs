//! `shopfloor inspect`: what a model consists of.
use crate::args::{Given, ModelArgs};
use crate::output::{self, Done, Failure};
use crate::progress::Progress;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    #[command(flatten)]
    bound: ModelArgs,
    /// List every node and kernel, not only the 10 with most operations and the 20 with most bytes
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// Everything as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args, given: &Given) -> Done {
    given.without(&["--precision"], "inspect, which plans nothing")?;
    let waiting = Progress::spinner("reading");
    a.bound.check_file(&a.model)?;
    let found = shopfloor_tools::inspect(&a.model, &a.bound.sized()?)?;
    drop(waiting);
    if a.json {
        output::json(&found)?;
    } else {
        output::page(&found.render(output::style(), a.all))?;
    }
    match found.unsupported.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::Unsupported(format!(
            "{}: node '{}' ({} of opset {}) is not supported: {}",
            a.model, one.node, one.operator, one.opset, one.remedy
        ))),
        many => Err(Failure::Unsupported(format!(
            "{}: {} nodes are not supported, the first being '{}' ({} of opset {}): {}",
            a.model,
            many.len(),
            many[0].node,
            many[0].operator,
            many[0].opset,
            many[0].remedy
        ))),
    }
}
