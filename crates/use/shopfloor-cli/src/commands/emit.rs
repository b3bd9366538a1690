//! `shopfloor emit`: the code of a step.
use crate::args::ModelArgs;
use crate::output::{self, Done, Failure};
use shopfloor::{Goal, inputs};
use shopfloor_tools::emitted::{emitted, kernel_text, machine, sass};
use shopfloor_tools::planview;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    #[command(flatten)]
    bound: ModelArgs,
    /// GPU to plan and print for, which need not be here: a name such as a100, a TOML file, or wgpu
    /// for WGSL
    #[arg(long, value_name = "MACHINE")]
    on: String,
    /// Step, by number or name
    #[arg(long, value_name = "STEP")]
    step: String,
    /// The step's kernel with its schedule instead, as a text that --kernel takes back
    #[arg(long, conflicts_with = "sass")]
    text: bool,
    /// The machine code too, by ptxas and nvdisasm (scripts/fetch-ptxas.sh fetches them)
    #[arg(long)]
    sass: bool,
}

pub fn run(a: Args) -> Done {
    let model = a.bound.open(&a.model)?;
    let (sizes, _) = inputs::sizes(&model);
    let dims = inputs::box_of(&model, &sizes);
    let machine = machine(&a.on)?;
    let plan = planview::plan_for(&model, &machine, None, Goal::Latency, &dims)?;
    if a.text {
        return output::print(&format!("{}\n", kernel_text(&plan, &a.step)?));
    }
    let e = emitted(&plan, &a.step, &machine)?;
    let mut out = format!("{}\n{}", e.program, e.text);
    if a.sass {
        let folder = std::env::temp_dir().join(format!("shopfloor-emit-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(Failure::Write)?;
        let code = sass(&e, &folder);
        // What is left behind there hurts nobody.
        let _ = std::fs::remove_dir_all(&folder);
        out += &format!("\n{}", code?);
    }
    output::print(&out)
}
