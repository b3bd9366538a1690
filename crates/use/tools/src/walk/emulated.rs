//! The step's PTX run on the emulator, for what its lanes ask of memory.
//!
//! One CTA is run, on zeros: where lanes' addresses lie follows from the schedule, and from data only where
//! an operand is gathered.
use super::Subject;
use super::code::Code;
use crate::stalls::tensor_map;
use emit::ptx::ParamValue;
use ptx_emulator::{Checks, Class, Finding, Launch, Machine, MemoryKind, Outcome};

/// Instructions of warps at most.
const STEPS: u64 = 4_000_000;
/// Bytes of operands at most.
const BYTES: u64 = 512 << 20;

/// What came of it.
pub(super) struct Counted {
    pub outcome: Outcome,
    /// Whether the CTA came to its end.
    pub whole: bool,
}

impl Counted {
    /// Instructions of a class that the CTA's warps issued.
    pub fn issued(&self, class: Class) -> u64 {
        let all = &self.outcome.counters.classes;
        all.iter().find(|c| c.0 == class).map_or(0, |c| c.1)
    }
}

/// Runs one CTA of the step, where its code is PTX.
///
/// # Errors
/// Why nothing was counted.
pub(super) fn run(s: &Subject, code: &Code) -> Result<Counted, String> {
    let Code::Ptx { ptx, .. } = code else {
        return Err(
            "lanes are counted by an emulator that runs PTX, and the code of this step is none"
                .into(),
        );
    };
    let program = s.program.as_ref().ok_or("a host step has no lanes")?;
    let mut m = Machine::new();
    let say = |e: ptx_emulator::PtxError| e.to_string();
    let module = m.load(&ptx.text).map_err(say)?;
    let sizes: Vec<u64> = program
        .kernel()
        .operands
        .iter()
        .map(|o| {
            let n = usize::try_from(s.top(&o.elements)).unwrap_or(0);
            let own = o.dtype.bytes_for(n).unwrap_or(usize::MAX) as u64;
            // Elements may lie apart: the buffer's own size holds them all.
            own.max(buffer_bytes(s, program.kernel(), o))
        })
        .collect();
    let total = sizes.iter().fold(0u64, |a, b| a.saturating_add(*b));
    if total > BYTES {
        return Err(format!(
            "its operands take {}, more than is emulated",
            report::units::bytes(total as f64)
        ));
    }
    let mut at = Vec::new();
    for bytes in sizes {
        let bytes = bytes.next_multiple_of(4).max(4);
        at.push(m.memory.allocate(bytes, MemoryKind::Device).map_err(say)?);
    }
    let fault = m.memory.allocate(4, MemoryKind::Device).map_err(say)?;
    let mut l = Launch::new(ptx.entry.as_str());
    let shape = ptx
        .shape(1, &|d| Some(s.top(d)))
        .ok_or("its launch has no size")?;
    l.block = shape.threads;
    l.shared = shape.shared_bytes;
    l.checks = Checks::none();
    l.step_limit = STEPS;
    l.requests = true;
    for p in &ptx.params {
        if let ParamValue::Tensor(t) = &p.value {
            let at = at.get(t.operand as usize).copied().unwrap_or(fault);
            l = l.tensor_map(tensor_map(t, at, |d| Some(s.top(d)))?);
            continue;
        }
        l = l.u64(match &p.value {
            ParamValue::Operand(o) => at.get(*o as usize).copied().unwrap_or(fault),
            ParamValue::Dim(d) => s.top(d) as u64,
            // One task is looked at.
            ParamValue::Tasks(_) => 1,
            ParamValue::Fault | ParamValue::Tensor(_) => fault,
        });
    }
    let outcome = m.run(&module, &l).map_err(say)?;
    let cut = |f: &Finding| *f == Finding::StepLimit;
    if let Some(r) = outcome.reports.iter().find(|r| !cut(&r.kind)) {
        return Err(format!("the emulator stopped: {}", r.message));
    }
    let whole = outcome.reports.is_empty();
    Ok(Counted { outcome, whole })
}

/// Bytes of the buffer that an operand lies in.
fn buffer_bytes(s: &Subject, k: &kernel::Kernel, o: &kernel::Operand) -> u64 {
    let plan::StepWork::Kernel { args, .. } = &s.step.work else {
        return 0;
    };
    let i = k.operands.iter().position(|x| std::ptr::eq(x, o));
    let b = i.and_then(|i| args.get(i)).map(|&b| b as usize);
    b.and_then(|b| s.block.buffers.get(b))
        .map_or(0, |b| b.bytes)
}
