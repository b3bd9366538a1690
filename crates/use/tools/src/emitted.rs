//! What a planned step is printed as: its tile program, and the text and machine code of a GPU.
use kernel::{Given, Kernel, Mapping, Schedule, TileProgram};
use plan::{Plan, StepWork};
use shopfloor::{Error, Machine};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A step's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Step's name.
    pub step: String,
    /// The tile program.
    pub program: String,
    /// What a target takes: PTX or WGSL.
    pub text: String,
    /// The architecture that PTX is for; `None` for WGSL.
    pub arch: Option<&'static str>,
}

fn usage(why: String) -> Error {
    Error::Usage(why)
}

/// The machine that `on` names: as [`shopfloor::machines::find`], or `wgpu` for any GPU through WebGPU.
///
/// # Errors
/// There is no such machine.
pub fn machine(on: &str) -> Result<Machine, Error> {
    match on {
        "wgpu" => Ok(emit::wgsl::machine()?),
        _ => shopfloor::machines::find(on),
    }
}

/// A step with a kernel, by number or name.
fn find<'p>(
    plan: &'p Plan,
    step: &str,
) -> Result<(&'p plan::Step, &'p Arc<Kernel>, &'p Arc<Schedule>), Error> {
    let steps: Vec<&plan::Step> = plan.blocks().flat_map(|b| &b.steps).collect();
    let number = step.parse::<usize>().ok();
    let found = steps
        .iter()
        .enumerate()
        .find(|(i, s)| s.name == step || number == Some(*i));
    let (_, found) = found.ok_or_else(|| {
        usage(format!(
            "the plan has no step '{step}'; it has {} steps, `shopfloor plan` lists them",
            steps.len()
        ))
    })?;
    match &found.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => Ok((found, kernel, schedule)),
        StepWork::Host { .. } => Err(usage(format!(
            "step '{}' runs on the host and has no text",
            found.name
        ))),
    }
}

/// The kernel of step `step`, by number or name, with its schedule: a text that [`shopfloor::Model::from_kernel`]
/// and `--kernel` read back, to be changed and given in place of what the planner chose.
///
/// # Errors
/// There is no such step, or it runs on the host.
pub fn kernel_text(plan: &Plan, step: &str) -> Result<String, Error> {
    let (_, kernel, schedule) = find(plan, step)?;
    let mut schedule = Schedule::clone(schedule);
    let mut given = Given::default();
    if let Mapping::Gpu(g) = &mut schedule.mapping {
        given.code = g.code.take();
    }
    given.schedules.push(schedule);
    Ok(given.to_text(kernel))
}

/// Texts of the step named or numbered `step` (counted over the blocks of `plan`) for `machine`.
///
/// # Errors
/// There is no such step, it runs on the host, or it has no text for this machine.
pub fn emitted(plan: &Plan, step: &str, machine: &Machine) -> Result<Emitted, Error> {
    let (found, kernel, schedule) = find(plan, step)?;
    let Mapping::Gpu(_) = &schedule.mapping else {
        return Err(usage(format!(
            "step '{}' is planned for the CPU, which runs tile programs as they are; name a GPU with --on",
            found.name
        )));
    };
    let program =
        TileProgram::new(kernel.clone(), schedule.clone()).map_err(|e| usage(e.to_string()))?;
    let arch = crate::targets::arch_of(machine);
    let text = match arch {
        Some(arch) => emit::ptx::emit(&program, arch).map(|p| p.text),
        None => {
            let arrays = vec![emit::wgsl::Array::Work; kernel.operands.len()];
            emit::wgsl::emit(&program, &arrays).map(|w| w.text)
        }
    };
    Ok(Emitted {
        step: found.name.clone(),
        program: program.to_string(),
        text: text.map_err(|e| usage(e.to_string()))?,
        arch,
    })
}

/// The program `name` (ptxas or nvdisasm): named by the environment variable `variable`, in the folder
/// that scripts/fetch-ptxas.sh keeps, or in the search path.
fn tool(variable: &str, name: &str) -> PathBuf {
    if let Some(p) = std::env::var_os(variable) {
        return p.into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let mut kept: Vec<PathBuf> = cache
        .and_then(|c| std::fs::read_dir(c.join("shopfloor")).ok())
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| {
            let file = e.file_name();
            let version = file.to_str().and_then(|f| f.strip_prefix(name));
            version.is_some_and(|v| v.starts_with('-'))
        })
        .map(|e| e.path().join(name))
        .filter(|p| p.is_file())
        .collect();
    kept.sort();
    kept.pop().unwrap_or_else(|| name.into())
}

/// The machine code of `e`, made in `folder` by ptxas and shown by nvdisasm.
///
/// # Errors
/// `e` is no PTX, a tool is missing, or one refuses the text; what it says is in the error.
pub fn sass(e: &Emitted, folder: &Path) -> Result<String, Error> {
    let Some(arch) = e.arch else {
        return Err(usage(
            "machine code is made of PTX only; name an NVIDIA GPU with --on, or leave --sass out"
                .into(),
        ));
    };
    let (ptx, cubin) = (folder.join("step.ptx"), folder.join("step.cubin"));
    shopfloor::write_file(&ptx, &e.text)?;
    let run = |variable: &str, name: &str, args: &[&OsStr]| -> Result<String, Error> {
        let path = tool(variable, name);
        let out = Command::new(&path).args(args).output().map_err(|_| {
            usage(format!(
                "'{}' cannot be started; `scripts/fetch-ptxas.sh {name}` fetches it, and {variable} says where else it is",
                path.display()
            ))
        })?;
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
            false => Err(usage(format!(
                "{name}: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            ))),
        }
    };
    run(
        "PTXAS",
        "ptxas",
        &[
            "--gpu-name".as_ref(),
            arch.as_ref(),
            "-o".as_ref(),
            cubin.as_os_str(),
            ptx.as_os_str(),
        ],
    )?;
    run("NVDISASM", "nvdisasm", &["-c".as_ref(), cubin.as_os_str()])
}
