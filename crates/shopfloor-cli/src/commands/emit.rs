use crate::args::ModelArgs;
use crate::output::{self, Done, Failure};
use shopfloor::emitted::{Language, emitted, sass};
use shopfloor::{Goal, Model, inputs, machines, planview};

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    #[command(flatten)]
    bound: ModelArgs,
    /// GPU to plan and print for, which need not be here: a name or a TOML file
    #[arg(long, value_name = "MACHINE")]
    on: String,
    /// Step, by number or name
    #[arg(long, value_name = "STEP")]
    step: String,
    /// WGSL instead of PTX
    #[arg(long)]
    wgsl: bool,
    /// The machine code too (ptxas and nvdisasm: in the path, or named by PTXAS and NVDISASM)
    #[arg(long, conflicts_with = "wgsl")]
    sass: bool,
}

pub fn run(a: Args) -> Done {
    let model = Model::open(&a.model, &a.bound.options())?;
    let (sizes, _) = inputs::sizes(&model);
    let dims = inputs::box_of(&model, &sizes);
    let machine = machines::find(&a.on)?;
    let plan = planview::plan_for(&model, &machine, None, Goal::Latency, &dims)?;
    let language = match a.wgsl {
        true => Language::Wgsl,
        false => Language::Ptx,
    };
    let e = emitted(&plan, &a.step, &machine, language)?;
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
