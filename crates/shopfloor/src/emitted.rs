//! What a planned step is printed as: its tile program, and the text and machine code of a GPU.
use crate::{Error, Machine};
use kernel::{Mapping, TileProgram};
use plan::{Plan, StepWork};
use std::path::Path;
use std::process::Command;

/// A step's texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Step's name.
    pub step: String,
    /// The tile program.
    pub program: String,
    /// What a target takes: PTX or WGSL.
    pub text: String,
    /// The architecture that PTX is for.
    pub arch: &'static str,
}

/// Which text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// For the machine's own architecture.
    Ptx,
    /// For any GPU through WebGPU.
    Wgsl,
}

fn usage(why: String) -> Error {
    Error::Usage(why)
}

/// Texts of the step named or numbered `step` (counted over the blocks of `plan`) for `machine`.
///
/// # Errors
/// There is no such step, it runs on the host, or it has no text for this machine.
pub fn emitted(
    plan: &Plan,
    step: &str,
    machine: &Machine,
    language: Language,
) -> Result<Emitted, Error> {
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
    let StepWork::Kernel {
        kernel, schedule, ..
    } = &found.work
    else {
        return Err(usage(format!(
            "step '{}' runs on the host and has no text",
            found.name
        )));
    };
    let Mapping::Gpu(_) = &schedule.mapping else {
        return Err(usage(format!(
            "step '{}' is planned for the CPU, which runs tile programs as they are; name a GPU with --on",
            found.name
        )));
    };
    let program = TileProgram::new((**kernel).clone(), (**schedule).clone())
        .map_err(|e| usage(e.to_string()))?;
    let arch = emit::ptx::ARCHS
        .into_iter()
        .find(|a| machine.isa.has(a))
        .unwrap_or("sm_80");
    let text = match language {
        Language::Ptx => emit::ptx::emit(&program, arch).map(|p| p.text),
        Language::Wgsl => {
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

/// The machine code of `e`, by the tools named in the environment variables PTXAS and NVDISASM, or
/// those in the search path.
///
/// # Errors
/// A tool is missing or refuses the text; what it says is in the error.
pub fn sass(e: &Emitted, folder: &Path) -> Result<String, Error> {
    let tool = |variable: &str, name: &str| std::env::var(variable).unwrap_or_else(|_| name.into());
    let io = |what: &str, source| Error::Io {
        path: what.into(),
        source,
    };
    let (ptx, cubin) = (folder.join("step.ptx"), folder.join("step.cubin"));
    std::fs::write(&ptx, &e.text).map_err(|s| io(&ptx.display().to_string(), s))?;
    let run = |tool: String, command: &mut Command| -> Result<String, Error> {
        let out = command.output().map_err(|_| {
            usage(format!(
                "'{tool}' cannot be started; scripts/fetch-ptxas.sh fetches ptxas and nvdisasm, PTXAS and NVDISASM say where they are"
            ))
        })?;
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
            false => Err(usage(format!(
                "{tool}: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            ))),
        }
    };
    let ptxas = tool("PTXAS", "ptxas");
    run(
        ptxas.clone(),
        Command::new(&ptxas)
            .args(["--gpu-name", e.arch, "-o"])
            .arg(&cubin)
            .arg(&ptx),
    )?;
    let nvdisasm = tool("NVDISASM", "nvdisasm");
    run(
        nvdisasm.clone(),
        Command::new(&nvdisasm).args(["-c", "-hex"]).arg(&cubin),
    )
}
