//! `shopfloor emit`: the code of a step.
use crate::args::{EngineArgs, ModelArgs};
use crate::output::{self, Done, Failure};
use crate::progress::Progress;
use shopfloor::{Machine, Plan, inputs};
use shopfloor_tools::emitted::{emitted, emulation, kernel_text, machine, sass};
use shopfloor_tools::planview;
use shopfloor_tools::report::units::wrapped;
use shopfloor_tools::targets::Machines;

#[derive(clap::Args)]
pub struct Args {
    /// ONNX file
    model: String,
    /// Step, by number or name
    #[arg(long, value_name = "STEP")]
    step: String,
    /// The step's kernel with its schedule instead, as a text that --kernel takes back
    #[arg(long, conflicts_with = "sass")]
    text: bool,
    /// Write the step's PTX to a file, and print the command that runs it without a GPU
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "sass"])]
    ptx: Option<String>,
    /// The machine code too, by ptxas and nvdisasm (scripts/fetch-ptxas.sh fetches them)
    #[arg(long)]
    sass: bool,
    #[command(flatten)]
    bound: ModelArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

/// The words of a tile program.
const WORDS: &str = "Above: the tile program. space: axes and their extents; read, write: operands and where an element \
lies; grid: extents of one task (chunk: tasks that a worker takes at a time; raster: rows of tasks that are gone through \
side by side, so that they share what a cache holds); mapping: threads of a CTA, its warps as rows x columns, and the \
unit that multiplies; in registers, in shared, in place, where it is used: where a tile is kept.";

/// Writes the step's PTX and says how it is emulated.
fn ptx(plan: &Plan, step: &str, machine: &Machine, file: &str) -> Done {
    let (texts, launch) = emulation(plan, step, machine)?;
    shopfloor::write_file(file, &texts.text)?;
    let arch = texts.arch.unwrap_or_default();
    output::print(&format!(
        "{file} has the PTX of step '{}' for {arch}; this runs it without a GPU:\n\n{}\n\n\
         Its cycles on a GPU by reason: add --on {} --stalls --registers {}\n",
        texts.step,
        launch.command(file),
        machine.short_name(),
        launch.registers
    ))
}

pub fn run(a: Args) -> Done {
    let machines = match a.engine.on.as_deref() {
        Some("wgpu") => {
            a.engine.refuse_of_running()?;
            Machines::from(machine("wgpu")?)
        }
        None if !a.text && a.engine.machine.is_none() => {
            return Err(Failure::Usage(
                "no GPU is named whose code is to be printed; name one with --on, such as --on a100 or --on wgpu"
                    .into(),
            ));
        }
        _ => a.engine.planned_for()?,
    };
    let waiting = Progress::spinner("planning");
    let model = a.bound.open(&a.model)?;
    let (sizes, _) = inputs::sizes(&model);
    let dims = inputs::box_of(&model, &sizes);
    let planning = a.engine.planning(None)?;
    let whole = planview::whole_on(&model, &machines, &planning, &dims)?;
    let machine = machines.last();
    drop(waiting);
    let (plan, step) = whole.step(&a.step)?;
    let step = step.to_string();
    if let Some(file) = &a.ptx {
        return ptx(plan, &step, machine, file);
    }
    if a.text {
        return output::print(&format!("{}\n", kernel_text(plan, &step)?));
    }
    let e = emitted(plan, &step, machine)?;
    let words = wrapped(WORDS, output::style().width.saturating_sub(3));
    let words: Vec<String> = words.iter().map(|l| format!("// {l}")).collect();
    let mut out = format!("{}\n{}\n\n{}", e.program, words.join("\n"), e.text);
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
