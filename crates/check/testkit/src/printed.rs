//! Models planned for targets that need not be here, and the code of every step of their plans.
use emit::{ptx, wgsl};
use kernel::{Target, TargetKind, TileProgram};
use layout::DimBox;
use machine::Machine;
use plan::{Plan, StepWork};
use shopfloor::{Model, ModelOptions, inputs, machines};
use shopfloor_tools::targets::Planning;
use shopfloor_tools::{planview, targets};
use std::path::Path;

/// A target, with a machine that it is planned for.
#[derive(Clone, Debug)]
pub struct On {
    /// The machine.
    pub machine: Machine,
    /// The target.
    pub target: Target,
}

/// One machine for every target but the CPU's: PTX of each architecture, and WGSL.
///
/// # Errors
/// A machine of the catalog does not read.
pub fn everywhere() -> Result<Vec<On>, String> {
    let catalog = ["t4", "a100", "h100"].map(|n| machines::find(n).map_err(|e| e.to_string()));
    let any = wgsl::machine().map_err(|e| e.to_string());
    let all = catalog.into_iter().chain([any]);
    all.map(|m| {
        m.map(|machine| On {
            target: targets::ours(&machine),
            machine,
        })
    })
    .collect()
}

/// The code of a step.
#[derive(Clone, Debug)]
pub struct Code {
    /// The step's name.
    pub step: String,
    /// PTX or WGSL.
    pub text: String,
}

/// What a model's plans come to.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// Code of all steps on the target.
    pub code: Vec<Code>,
    /// Steps with a kernel that are the host's, and copies.
    pub hosts: usize,
}

/// Whether the model at `path` is one that the library takes at all; opened where it is.
///
/// # Errors
/// Why it is not taken.
pub fn opened(path: &Path) -> Result<Model, String> {
    opened_with(path, &ModelOptions::default())
}

/// As [`opened`], read by these options.
///
/// # Errors
/// As [`opened`].
pub fn opened_with(path: &Path, options: &ModelOptions) -> Result<Model, String> {
    Model::open(path, options).map_err(|e| e.to_string())
}

/// Plans `model` for `on`, branches and loop bodies included, and prints every step that is to run there.
///
/// # Errors
/// It has no plan, or a step of the plan has no code.
pub fn printed(model: &Model, on: &On, dims: &DimBox) -> Result<Printed, String> {
    let own = (&on.machine, on.target.clone());
    let whole = planview::whole_with(model, own, &Planning::default(), dims);
    let whole = whole.map_err(|e| e.to_string())?;
    let mut out = Printed::default();
    for p in whole.plans() {
        steps(p, on, &mut out)?;
    }
    Ok(out)
}

fn steps(plan: &Plan, on: &On, out: &mut Printed) -> Result<(), String> {
    // The steps of a launch so far.
    let mut launch: Vec<TileProgram> = vec![];
    for s in plan.blocks().flat_map(|b| b.init.iter().chain(&b.steps)) {
        if !s.joined {
            launch.clear();
        }
        let StepWork::Kernel {
            kernel, schedule, ..
        } = &s.work
        else {
            continue;
        };
        if s.device == 0 {
            out.hosts += 1;
            continue;
        }
        let fail = |e: String| format!("step '{}': {e}", s.name);
        let program = TileProgram::new(kernel.clone(), schedule.clone());
        let program = program.map_err(|e| fail(e.to_string()))?;
        program.fits(&on.target).map_err(|e| fail(e.to_string()))?;
        let text = match (on.target.kind, &on.target.gpu) {
            (TargetKind::Ptx, Some(g)) => ptx::emit(&program, &g.arch).map(|p| p.text),
            _ => {
                let arrays = vec![wgsl::Array::Work; kernel.operands.len()];
                wgsl::emit(&program, &arrays).map(|w| w.text)
            }
        };
        out.code.push(Code {
            step: s.name.clone(),
            text: text.map_err(|e| fail(e.to_string()))?,
        });
        launch.push(program);
        if let (true, Some(g)) = (s.joined, &on.target.gpu) {
            let all: Vec<&TileProgram> = launch.iter().collect();
            let both = ptx::joined(&all, &g.arch);
            out.code.push(Code {
                step: format!("{}, in the launch before it", s.name),
                text: both.map_err(|e| fail(e.to_string()))?.text,
            });
        }
    }
    Ok(())
}

/// Dims of `model` for a request with these inputs, or of 1 where there are none.
pub fn dims(model: &Model, given: &[(String, tensor::Tensor)]) -> DimBox {
    let mut sizes = inputs::sizes(model).0;
    sizes.extend(inputs::sizes_of(model, given));
    inputs::box_of(model, &sizes)
}

/// What a model came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrintOutcome {
    /// So many steps have code.
    Steps(usize),
    /// The library does not take it, whatever the target: why.
    Unknown(String),
}

/// Plans and prints the model at `path` for every target of `all`.
///
/// # Errors
/// Every target that failed, with the reason.
pub fn check(
    path: &Path,
    given: &[(String, tensor::Tensor)],
    all: &[On],
    valid: &mut dyn FnMut(&On, &Code) -> Result<(), String>,
) -> Result<PrintOutcome, String> {
    let model = match opened(path) {
        Ok(m) => m,
        Err(why) => return Ok(PrintOutcome::Unknown(why)),
    };
    let dims = dims(&model, given);
    let (mut wrong, mut count) = (vec![], 0);
    for on in all {
        let done = printed(&model, on, &dims).and_then(|p| {
            for c in &p.code {
                valid(on, c).map_err(|e| format!("step '{}': {e}\n{}", c.step, c.text))?;
            }
            Ok(p.code.len())
        });
        match done {
            Ok(n) => count += n,
            Err(e) => wrong.push(format!("{}: {e}", on.target.name)),
        }
    }
    match wrong.is_empty() {
        true => Ok(PrintOutcome::Steps(count)),
        false => Err(wrong.join("; ")),
    }
}
