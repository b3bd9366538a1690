//! `shopfloor walk`: one step from graph to lanes.
use crate::args::{EngineArgs, Given, ModelArgs, OF_MODEL, refuse};
use crate::first;
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use shopfloor_tools::report::units::wrapped;
use shopfloor_tools::targets::is_device;
use shopfloor_tools::walk::{WalkOptions, save, tour, walk};

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: Option<String>,
    /// Walk through the bundled two-layer model instead [default for --on: a100]
    #[arg(long, conflicts_with = "model")]
    tour: bool,
    /// Step, by number or name [default: the kernel that takes longest]
    #[arg(long, value_name = "STEP", conflicts_with = "node")]
    step: Option<String>,
    /// Node of the model, by name or a part of it: the step that it is in
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
    /// Write the page, for a browser; the data alone to a name that ends in .json
    /// [default: walk.html, without --text and --json]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: Option<String>,
    /// Tell the walk here
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    text: bool,
    /// With --text: tell it as a warehouse and factory too
    #[arg(long, requires = "text", help_heading = "Output")]
    analogy: bool,
    /// Print the data
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub fn run(a: Args, given: &Given) -> Done {
    if a.tour {
        given.without(&OF_MODEL[1..], "walk --tour, whose model is bundled")?;
    } else if a.model.is_none() {
        return Err(Failure::Usage(
            "there is nothing to walk through: give an ONNX file, or --tour for the bundled model"
                .into(),
        ));
    }
    let on = match (&a.engine.on, a.tour) {
        (Some(on), _) => on.clone(),
        (None, true) => "a100".into(),
        (None, false) => "cpu".into(),
    };
    let here = is_device(&on);
    if !here {
        a.engine.planned_for()?;
    }
    refuse(
        &[(here && a.engine.isa.is_some() && on != "cpu", "--isa")],
        &on,
    )?;
    first::measure(&a.engine)?;
    let mut options = WalkOptions {
        inputs: vec![],
        builder: match here {
            true => a.engine.builder()?,
            false => Default::default(),
        },
        planning: a.engine.planning(None)?,
        on,
        step: a.step,
        node: a.node,
        quick: false,
    };
    let waiting = Progress::spinner("following a step");
    let made = match &a.model {
        Some(model) if !a.tour => {
            let opened = a.bound.open(model)?;
            if here {
                options.inputs =
                    shopfloor_tools::read_inputs_of(&opened, &a.bound.inputs, a.engine.memory)?;
            }
            walk(model, &a.bound.sized()?, &options)?
        }
        _ => tour(&options)?,
    };
    drop(waiting);
    let out = match (a.text || a.json, a.out) {
        (_, Some(out)) => Some(out),
        (false, None) => Some("walk.html".into()),
        (true, None) => None,
    };
    if let Some(out) = &out {
        save(&made, out)?;
    }
    if a.json {
        return output::json(&made);
    }
    if a.text {
        return output::page(&made.told(output::style(), a.analogy));
    }
    let out = out.ok_or_else(|| Failure::Usage("name a file with --out".into()))?;
    let said = format!(
        "{out} follows step {} ({}, {}) of {} on {} through {} scenes; open it in a browser",
        made.step.number,
        made.step.name,
        made.step.chosen,
        made.model,
        made.machine,
        made.scenes.len()
    );
    let lines = wrapped(&said, output::style().width);
    output::print(&format!("{}\n", lines.join("\n")))
}
