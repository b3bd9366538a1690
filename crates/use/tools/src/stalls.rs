//! Where the cycles of a kernel's warps go on a GPU that need not be here: the emulator's clock under the
//! figures of a [`Machine`].
//!
//! [`of_step`] is the one call for a planned step: it prints the step's PTX, runs it on the emulator over
//! buffers of zeros and gives its [`Stalls`] beside the prediction. [`timing`] is for PTX of any origin.
use crate::emitted::{Emitted, emitted};
use emit::ptx::{self, ParamValue, TensorParam};
use kernel::TileProgram;
use layout::Dim;
use machine::{NumType, UnitClass, calc};
use plan::{Block, BufferId, Plan, Step, StepWork};
use ptx_emulator::tensor_map::{self, TensorMap};
use ptx_emulator::{Checks, Launch, Level, MatrixRates, MemoryKind};
use shopfloor::{Error, Machine};

pub use ptx_emulator::{Interval, LineStalls, Reason, Stalls, Timing, WarpStalls, stalls_table};

/// Most bytes of a step's buffers.
const MOST_BYTES: u64 = 4 << 30;

/// The numbers of `machine`, in cycles, for a kernel whose CTAs ask for `block`.
///
/// # Errors
/// A machine that is no NVIDIA GPU or lacks a figure, and CTAs that fit on none of its SMs.
pub fn timing(machine: &Machine, block: calc::Block) -> Result<Timing, Error> {
    let lacks = |what: &str| {
        Error::Usage(format!(
            "{} has no {what}, so that no kernel can be timed on it; name an NVIDIA GPU such as a100",
            machine.name
        ))
    };
    let Some(held) = calc::occupancy(&machine.limits, block) else {
        return Err(lacks("limits of an SM"));
    };
    if held.ctas == 0 {
        return Err(Error::Usage(format!(
            "a CTA of {} threads with {} registers each and {} bytes of shared memory does not fit on an SM of {}",
            block.threads, block.registers, block.shared, machine.name
        )));
    }
    let clock = machine.workers.clock_hz.value;
    let level = |name: &str| -> Option<Level> {
        let l = machine.level(name)?;
        Some(Level {
            bytes: l.bytes.value,
            latency: l.latency_s.value * clock,
            per_sm: l.read.per_worker.value / clock,
            read: l.read.all.value / clock,
            write: l.write.all.value / clock,
        })
    };
    let shared = level("shared").ok_or_else(|| lacks("shared memory"))?;
    let mut l1 = level("L1").unwrap_or(Level {
        bytes: 0.0,
        ..shared
    });
    if machine
        .level("L1")
        .is_some_and(|l| l.same_place_as.is_some())
    {
        // The driver leaves L1 what the CTAs on an SM do not need.
        let needed = held.ctas.saturating_mul(held.shared_per_cta);
        let sizes = machine.limits.shared_carveouts.iter().copied();
        let taken = sizes.filter(|c| *c >= needed).min();
        l1.bytes = (l1.bytes - taken.unwrap_or(held.shared_per_sm) as f64).max(0.0);
    }
    let lanes = |class: UnitClass, dtype: NumType, operations: f64| {
        let unit = machine.unit(class, dtype);
        unit.map_or(0.0, |u| u.per_worker.value / clock / operations)
    };
    let first = |rates: &[f64]| rates.iter().copied().find(|r| *r > 0.0);
    let fma = lanes(UnitClass::Fma, NumType::F32, 2.0);
    let matrix = |dtype: NumType| lanes(UnitClass::Tensor, dtype, 1.0);
    let rates = machine.warp_rates().ok_or_else(|| lacks("f32 units"))?;
    Ok(Timing {
        sms: machine.worker_count() as u32,
        schedulers: machine.limits.register_files.map_or(4, |f| f.value) as u32,
        ctas_per_sm: held.ctas as u32,
        registers: block.registers as u32,
        cta_start: machine.costs.task_s.value * clock,
        fma,
        // A lane multiplies and adds a pair.
        half: lanes(UnitClass::Fma, NumType::F16, 4.0),
        double: lanes(UnitClass::Fma, NumType::F64, 2.0),
        alu: first(&[
            lanes(UnitClass::Simple, NumType::I32, 1.0),
            lanes(UnitClass::Simple, NumType::F32, 1.0),
        ])
        .unwrap_or(fma),
        special: first(&[
            lanes(UnitClass::Transcendental, NumType::F32, 1.0),
            lanes(UnitClass::Divsqrt, NumType::F32, 1.0),
        ])
        .unwrap_or(fma / 4.0),
        // A lane a word of what shared memory gives.
        memory: shared.per_sm / 4.0,
        matrix: MatrixRates {
            half: matrix(NumType::F16),
            bf16: matrix(NumType::Bf16),
            tf32: matrix(NumType::Tf32),
            int8: matrix(NumType::I8),
        },
        dependent: rates.dependent,
        special_latency: rates.special,
        matrix_latency: rates.matrix,
        barrier: rates.barrier,
        shared,
        l1,
        l2: level("L2").ok_or_else(|| lacks("L2"))?,
        device: level("device").ok_or_else(|| lacks("device memory"))?,
    })
}

/// A step's cycles.
#[derive(Clone, Debug)]
pub struct StepStalls {
    /// Its texts, whose lines the stalls name.
    pub emitted: Emitted,
    /// Where the cycles went.
    pub stalls: Stalls,
    /// The numbers that they were counted under: those of a slice of the GPU where not all CTAs were run.
    pub timing: Timing,
    /// CTAs that were run, from the first on, and CTAs of the step.
    pub ctas: (u64, u64),
    /// SMs that they were run on, and SMs of the GPU.
    pub sms: (u64, u64),
    /// Seconds of the whole step by these cycles, without launching it.
    pub seconds: f64,
    /// Seconds that the plan predicts for it, without launching it.
    pub predicted_s: f64,
}

/// Seconds that `step` is predicted to take once its launch is done: from the first CTA's start on.
fn predicted_s(step: &Step, machine: &Machine) -> f64 {
    let (w, c) = (&step.cost_work, &machine.costs);
    step.predicted.time_s - w.launches as f64 * c.launch_s.value - w.steps as f64 * c.step_s.value
}

fn refused(step: &str, e: &ptx_emulator::PtxError) -> Error {
    Error::Other(format!("step '{step}': {e}").into())
}

/// SMs that `ctas` of a step's CTAs are run on: as many as they fill twice, or the GPU where they are all.
fn sms_for((ctas, all): (u64, u64), whole: &Timing) -> u64 {
    let total = u64::from(whole.sms);
    match ctas < all {
        true => (ctas / (2 * u64::from(whole.ctas_per_sm))).clamp(1, total),
        false => total,
    }
}

/// Zeros for the operands of a step.
fn buffers(
    emulator: &mut ptx_emulator::Machine,
    block: &Block,
    args: &[BufferId],
    step: &str,
) -> Result<Vec<u64>, Error> {
    let mut buffers = Vec::new();
    let mut bytes = 0u64;
    for a in args {
        let own = block.buffers.get(*a as usize).map_or(0, |b| b.bytes);
        let own = own.next_multiple_of(256).max(256);
        bytes = bytes.saturating_add(own);
        if bytes > MOST_BYTES {
            return Err(Error::Usage(format!(
                "the buffers of step '{}' take more than {MOST_BYTES} bytes; give smaller sizes",
                step
            )));
        }
        buffers.push(
            emulator
                .memory
                .allocate(own, MemoryKind::Device)
                .map_err(|e| refused(step, &e))?,
        );
    }
    Ok(buffers)
}

/// The tasks and the launch of a whole step where dimensions are what `top` says.
fn shape(
    step: &Step,
    printed: &ptx::Ptx,
    top: &dyn Fn(&str) -> Option<i64>,
) -> Result<(u64, ptx::Shape), Error> {
    let usage = |why: String| Error::Usage(why);
    let all = step.tasks.eval(top).and_then(|t| u64::try_from(t).ok());
    let all = all.ok_or_else(|| {
        usage(format!(
            "the number of tasks of step '{}' is only known from data",
            step.name
        ))
    })?;
    let unlaunched = || {
        usage(format!(
            "the launch of step '{}' is only known from data",
            step.name
        ))
    };
    let shape = printed
        .shape(all, &|d| d.eval(top))
        .ok_or_else(unlaunched)?;
    Ok((all, shape))
}

/// What an emulated kernel is told of the tensor in the buffer at `at`, whose dimensions have these values.
///
/// # Errors
/// A dimension has none, or no driver takes such a tensor.
pub(crate) fn tensor_map(
    t: &TensorParam,
    at: u64,
    value: impl Fn(&Dim) -> Option<i64>,
) -> Result<[u8; tensor_map::BYTES], String> {
    let t = t.layout(value).ok_or("a tensor's size is unknown")?;
    let (kind, sizes) = (
        (t.data_type(), at + t.offset),
        (&t.extents[..], &t.strides[..]),
    );
    let map = TensorMap::tiled(kind, sizes, (&t.boxes, &t.steps), t.swizzle_bytes);
    let bytes = map.and_then(|m| tensor_map::encode(&m));
    bytes.map_err(|e| e.to_string())
}

/// `launch` with a parameter's value where so many tasks are walked, as many for each CTA as if all CTAs were there.
///
/// # Errors
/// A dimension is only known from data.
fn with_argument(
    launch: Launch,
    value: &ParamValue,
    (buffers, fault): (&[u64], u64),
    tasks: u64,
    top: &dyn Fn(&str) -> Option<i64>,
) -> Result<Launch, String> {
    let at = |o: u16| buffers.get(o as usize).copied().unwrap_or(fault);
    Ok(match value {
        ParamValue::Operand(o) => launch.u64(at(*o)),
        ParamValue::Dim(d) => {
            let value = d.eval(top);
            launch.u64(value.ok_or_else(|| format!("'{d}' is only known from data"))? as u64)
        }
        ParamValue::Tensor(t) => launch.tensor_map(tensor_map(t, at(t.operand), |d| d.eval(top))?),
        ParamValue::Tasks(_) => launch.u64(tasks),
        ParamValue::Fault => launch.u64(fault),
    })
}

/// Runs the step named or numbered `step` of `plan` on the emulator under the figures of `machine`, over
/// buffers of zeros. Where it has more than `most_ctas` CTAs, the first of them run on as many SMs as they
/// fill twice, with those SMs' share of L2 and device memory: steps of millions of instructions are seen in
/// a second or two with 64 of them.
///
/// # Errors
/// There is no such step, it has no PTX for this machine, or its buffers take more than 4 GiB.
pub fn of_step(
    plan: &Plan,
    step: &str,
    machine: &Machine,
    most_ctas: u64,
) -> Result<StepStalls, Error> {
    let usage = |why: String| Error::Usage(why);
    let text = emitted(plan, step, machine)?;
    let Some(arch) = text.arch else {
        return Err(usage(format!(
            "step '{step}' has no PTX for {}; name an NVIDIA GPU such as a100",
            machine.name
        )));
    };
    let at = plan
        .blocks()
        .find_map(|b| Some((b, b.steps.iter().find(|s| s.name == text.step)?)));
    let Some((
        block,
        found @ Step {
            work:
                StepWork::Kernel {
                    kernel,
                    schedule,
                    args,
                },
            ..
        },
    )) = at
    else {
        return Err(usage(format!("step '{step}' has no kernel")));
    };
    let program =
        TileProgram::new(kernel.clone(), schedule.clone()).map_err(|e| usage(e.to_string()))?;
    let printed = ptx::emit(&program, arch).map_err(|e| usage(e.to_string()))?;
    let refused = |e: ptx_emulator::PtxError| refused(&text.step, &e);
    let mut emulator = ptx_emulator::Machine::new();
    let module = emulator.load(&text.text).map_err(refused)?;
    let buffers = buffers(&mut emulator, block, args, &text.step)?;
    let fault = emulator
        .memory
        .allocate(4, MemoryKind::Device)
        .map_err(refused)?;
    let top = |s: &str| plan.dims.get(s).map(|r| r.hi);
    let (walked, shape) = shape(found, &printed, &top)?;
    let product = |n: [u32; 3]| n.iter().fold(1u64, |p, &n| p.saturating_mul(n.into()));
    let all = product(shape.grid);
    if printed.own.is_some() && all > most_ctas {
        return Err(usage(format!(
            "step '{}' launches {all} CTAs of its own PTX, of which {most_ctas} at most are emulated; give smaller sizes",
            text.step
        )));
    }
    let asked = calc::Block {
        threads: product(shape.threads),
        registers: u64::from(printed.registers_estimate),
        shared: u64::from(shape.shared_bytes),
    };
    let whole = timing(machine, asked)?;
    // Whole clusters, of which all CTAs are some.
    let ctas = all.min(most_ctas.max(1));
    let ctas = ctas.next_multiple_of(printed.cluster.into());
    let total = u64::from(whole.sms);
    let sms = sms_for((ctas, all), &whole);
    let slice = machine.slice(sms);
    let t = timing(&slice, asked)?;
    let mut launch = Launch {
        grid: match printed.own {
            Some(_) => shape.grid,
            None => [ctas.min(u64::from(u32::MAX)) as u32, 1, 1],
        },
        block: shape.threads,
        shared: shape.shared_bytes,
        shared_limit: Some(u32::MAX),
        checks: Checks::none(),
        ..Launch::new(printed.entry.as_str())
    };
    let tasks = walked.div_ceil(all.max(1)).saturating_mul(ctas);
    for p in &printed.params {
        let own = with_argument(launch, &p.value, (&buffers, fault), tasks, &top);
        launch = own.map_err(|why| usage(format!("step '{}': {why}", text.step)))?;
    }
    let (_, stalls) = emulator.time(&module, &launch, &t).map_err(refused)?;
    let clock = machine.workers.clock_hz.value;
    let share = (all as f64 / ctas as f64) * (sms as f64 / total as f64);
    Ok(StepStalls {
        seconds: stalls.cycles as f64 / clock * share,
        predicted_s: predicted_s(found, machine),
        emitted: text,
        stalls,
        timing: t,
        ctas: (ctas, all),
        sms: (sms, total),
    })
}
