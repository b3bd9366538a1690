//! What a planned step is printed as: its tile program, and the text and machine code of a GPU.
use emit::ptx::{ParamValue, TensorLayout};
use kernel::{Given, Kernel, Mapping, Role, Schedule, TileProgram};
use layout::{Arrange, DType, Dim};
use plan::{Block, Plan, StepWork};
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

/// A step with a kernel, by number, name or node.
fn find<'p>(
    plan: &'p Plan,
    step: &str,
) -> Result<(&'p plan::Step, &'p Arc<Kernel>, &'p Arc<Schedule>), Error> {
    let steps: Vec<&plan::Step> = plan.steps().collect();
    let named = steps.iter().map(|s| (s.name.as_str(), &*s.nodes));
    let found = steps[report::step_number(step, named).map_err(usage)?];
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
            "step '{}' has no GPU's text: a CPU runs it, tile programs as they are, or it copies between the two; name a GPU with --on, or another step with --step",
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

/// How a step's PTX is launched, in the words of `shopfloor emulate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulation {
    /// Name of the entry.
    pub entry: String,
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a CTA along x, y and z.
    pub threads: [u32; 3],
    /// Dynamic shared memory of a CTA, in bytes.
    pub shared_bytes: u32,
    /// Registers of a thread that an assembler is expected to take.
    pub registers: u32,
    /// Arguments in order: random floats and zeros for what is read, space for what is written.
    pub args: Vec<String>,
}

impl Emulation {
    /// The command that emulates it from `file`, in lines that a shell joins.
    pub fn command(&self, file: &str) -> String {
        let three = |v: [u32; 3]| match v {
            [x, 1, 1] => x.to_string(),
            [x, y, z] => format!("{x},{y},{z}"),
        };
        let file = match file.contains(|c: char| !(c.is_alphanumeric() || "/._-+".contains(c))) {
            true => format!("'{}'", file.replace('\'', "'\\''")),
            false => file.into(),
        };
        let mut out = format!(
            "shopfloor emulate {file} --kernel {} --grid {} --block {} --shared {}",
            self.entry,
            three(self.grid),
            three(self.threads),
            self.shared_bytes
        );
        for arg in &self.args {
            out += &format!(" \\\n  --arg {arg}");
        }
        out
    }
}

/// An element type by the emulator's name for it, and the bytes of one; types that it has no name for are
/// bytes there.
fn emulated_type(t: DType) -> (&'static str, u64) {
    match t {
        DType::F32 => ("f32", 4),
        DType::F64 => ("f64", 8),
        DType::F16 => ("f16", 2),
        DType::BF16 => ("bf16", 2),
        DType::I8 => ("s8", 1),
        DType::I16 => ("s16", 2),
        DType::U16 => ("u16", 2),
        DType::I32 => ("s32", 4),
        DType::U32 => ("u32", 4),
        DType::I64 => ("s64", 8),
        DType::U64 => ("u64", 8),
        _ => ("u8", 1),
    }
}

/// The texts of step `step` for the NVIDIA GPU `machine`, and how `shopfloor emulate` runs its PTX with sizes
/// at the top of the plan's box.
///
/// # Errors
/// As [`emitted`]; a machine that runs no PTX; sizes that only data gives.
pub fn emulation(
    plan: &Plan,
    step: &str,
    machine: &Machine,
) -> Result<(Emitted, Emulation), Error> {
    let (found, kernel, schedule) = find(plan, step)?;
    let texts = emitted(plan, step, machine)?;
    let Some(arch) = texts.arch else {
        return Err(usage(format!(
            "{} runs no PTX of ours; name an NVIDIA GPU such as a100",
            machine.name
        )));
    };
    let program =
        TileProgram::new(kernel.clone(), schedule.clone()).map_err(|e| usage(e.to_string()))?;
    let ptx = emit::ptx::emit(&program, arch).map_err(|e| usage(e.to_string()))?;
    let top = |d: &Dim| plan.dims.at_top(d).or(d.known());
    let unknown = |what: &str| {
        usage(format!(
            "{what} of step '{}' is only known from data, so it cannot be emulated alone; choose another step",
            found.name
        ))
    };
    let tasks = top(&found.tasks).and_then(|n| u64::try_from(n).ok());
    let shape = tasks.and_then(|n| ptx.shape(n, &top));
    let shape = shape.ok_or_else(|| unknown("the launch"))?;
    let block = plan
        .blocks()
        .find(|b| b.steps.iter().any(|s| std::ptr::eq(s, found)));
    let mut args = Vec::new();
    for p in &ptx.params {
        args.push(match &p.value {
            ParamValue::Operand(o) => {
                let bytes =
                    operand_bytes(block, found, *o as usize).ok_or_else(|| unknown("a buffer"))?;
                let operand = &kernel.operands[*o as usize];
                let (ty, size) = emulated_type(operand.dtype);
                let count = bytes / size;
                match (operand.role == Role::Write, ty) {
                    (true, _) => format!("out:{ty}:{count}"),
                    (false, "f32" | "f64" | "f16" | "bf16") => {
                        format!("buf:{ty}:{count}=random:{}", o + 1)
                    }
                    // Integers may be positions: zero is one of every tensor.
                    (false, _) => format!("buf:{ty}:{count}=zeros"),
                }
            }
            ParamValue::Dim(d) | ParamValue::Tasks(d) => {
                format!("s64:{}", top(d).ok_or_else(|| unknown(&format!("'{d}'")))?)
            }
            ParamValue::Fault => "buf:u32:1=zeros".into(),
            ParamValue::Tensor(t) => {
                let layout = t.layout(top);
                tensor_argument(t.operand, &layout.ok_or_else(|| unknown("a tensor"))?)
            }
        });
    }
    let emulation = Emulation {
        entry: ptx.entry,
        grid: shape.grid,
        threads: shape.threads,
        shared_bytes: shape.shared_bytes,
        registers: ptx.registers_estimate,
        args,
    };
    Ok((texts, emulation))
}

/// The operand of this number as a tensor, as `shopfloor emulate` reads it.
fn tensor_argument(operand: u16, t: &TensorLayout) -> String {
    fn list<T: ToString>(numbers: &[T]) -> String {
        let texts: Vec<String> = numbers.iter().map(T::to_string).collect();
        texts.join(",")
    }
    format!(
        "tensor:{operand}+{}:{}/{}/{}/{}/{}/{}",
        t.offset,
        t.data_type(),
        list(&t.extents),
        list(&t.strides),
        list(&t.boxes),
        list(&t.steps),
        t.swizzle_bytes
    )
}

/// Bytes of the buffer that a step has for an operand.
fn operand_bytes(block: Option<&Block>, step: &plan::Step, operand: usize) -> Option<u64> {
    let StepWork::Kernel { args, .. } = &step.work else {
        return None;
    };
    let buffer = block?.buffers.get(*args.get(operand)? as usize)?;
    Some(buffer.bytes)
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
    kept.arrange();
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
