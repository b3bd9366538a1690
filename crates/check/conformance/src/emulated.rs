//! PTX, run as written on the emulator with all its checks, as a subject of the suite.
use crate::{Failure, Subject};
use emit::ptx::{self, ParamValue, Ptx, TensorParam};
use kernel::{Mapping, Role, TargetKind, TileProgram, work};
use ptx_emulator::{
    Checks, Counters, Finding, Launch, Machine, MemoryKind, PtxError, Report, Unfinished,
    tensor_map::{self, TensorMap},
};
use std::cell::{Cell, RefCell};
use tensor::Tensor;

/// Whether what the emulator reports is a fault of the program. Threads beyond a tile's rim may read shared memory
/// that nobody wrote; what they make of it reaches no result, which comparing results shows.
pub fn is_fault(r: &Report) -> bool {
    r.kind != Finding::UninitialisedShared
}

/// The emulator. Programs go to the architectures in turn.
#[derive(Debug, Default)]
pub struct Emulated {
    /// The only architecture to print for.
    pub arch: Option<&'static str>,
    done: Cell<usize>,
    /// What the program run last was counted to do.
    pub counters: RefCell<Counters>,
}

impl Emulated {
    /// Prints for `arch` alone.
    pub fn on(arch: &'static str) -> Emulated {
        Emulated {
            arch: Some(arch),
            ..Emulated::default()
        }
    }

    /// Runs `text`, printed from `program`.
    ///
    /// # Errors
    /// What the emulator found wrong.
    pub fn launch(
        &self,
        program: &TileProgram,
        text: &Ptx,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, String> {
        self.launch_steps(&[program], text, symbols, buffers)
    }

    /// Runs `text`, printed from the programs of several steps with as many tasks, whose operands follow each other.
    ///
    /// # Errors
    /// What the emulator found wrong.
    pub fn launch_steps(
        &self,
        programs: &[&TileProgram],
        text: &Ptx,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, String> {
        let say = |e: ptx_emulator::PtxError| format!("{e}\n{}", text.text);
        let lookup = |s: &str| symbols.iter().find(|x| x.0 == s).map(|x| x.1);
        let first = programs.first().ok_or("there is no step")?;
        let operands = programs.iter().flat_map(|p| &p.kernel().operands);
        let mut m = Machine::new();
        let module = m.load(&text.text).map_err(say)?;
        let mut at = vec![];
        for b in buffers {
            // A device gives memory out in pieces of 256 bytes; whole words are reached here.
            let bytes = (b.bytes().len() as u64).next_multiple_of(4).max(4);
            let a = m.memory.allocate(bytes, MemoryKind::Device).map_err(say)?;
            m.memory.write(a, &vec![0; bytes as usize]).map_err(say)?;
            m.memory.write(a, b.bytes()).map_err(say)?;
            at.push(a);
        }
        let fault = m.memory.allocate(4, MemoryKind::Device).map_err(say)?;
        m.memory.write(fault, &[0; 4]).map_err(say)?;
        let tasks = work::tasks(first.kernel(), first.schedule())
            .eval(&lookup)
            .ok_or("the number of tasks has no value")?;
        let mut l = Launch::new(text.entry.as_str());
        let ctas = text.ctas(u64::try_from(tasks).unwrap_or(0));
        l.grid = [u32::try_from(ctas).map_err(|e| e.to_string())?, 1, 1];
        l.block = [text.threads, 1, 1];
        l.shared = text.shared_bytes;
        l.seed = self.done.get() as u64;
        l.checks = Checks::default();
        for p in &text.params {
            if let ParamValue::Tensor(t) = &p.value {
                let map = described(t, at[t.operand as usize], &lookup);
                l = l.tensor_map(map?);
                continue;
            }
            l = l.u64(match &p.value {
                ParamValue::Operand(o) => at[*o as usize],
                ParamValue::Dim(d) | ParamValue::Tasks(d) => {
                    d.eval(&lookup)
                        .ok_or_else(|| format!("'{d}' has no value"))? as u64
                }
                ParamValue::Fault | ParamValue::Tensor(_) => fault,
            });
        }
        if text.early {
            l.unfinished = written_before(&mut m, (programs, fault), buffers, &at).map_err(say)?;
        }
        if tasks > 0 {
            let out = m.run(&module, &l).map_err(say)?;
            let lines: Vec<&str> = text.text.lines().collect();
            let wrong = out.reports.iter().filter(|r| is_fault(r));
            let told: Vec<String> = wrong
                .take(4)
                .map(|r| {
                    let line = lines.get((r.line as usize).saturating_sub(1));
                    format!("{r}\n    {}", line.unwrap_or(&""))
                })
                .collect();
            if !told.is_empty() {
                return Err(format!("{}\n{}", told.join("\n"), text.text));
            }
            *self.counters.borrow_mut() = out.counters;
        }
        let code = m.memory.read(fault, 4).map_err(say)?;
        if code != [0; 4] {
            return Err(format!("fault {code:?}"));
        }
        let mut out = vec![];
        for ((o, b), a) in operands.zip(buffers).zip(at) {
            if o.role == Role::Write {
                let bytes = m.memory.read(a, b.bytes().len()).map_err(say)?;
                out.push(
                    Tensor::from_bytes(b.dtype(), b.shape(), bytes).map_err(|e| e.to_string())?,
                );
            }
        }
        Ok(out)
    }
}

/// What kernels are told of the tensor in the buffer at `at`.
fn described(
    t: &TensorParam,
    at: u64,
    lookup: &dyn Fn(&str) -> Option<i64>,
) -> Result<[u8; tensor_map::BYTES], String> {
    let t = t.layout(|d| d.eval(lookup)).ok_or("a tensor has no size")?;
    let (kind, sizes) = (
        (t.data_type(), at + t.offset),
        (&t.extents[..], &t.strides[..]),
    );
    let map = TensorMap::tiled(kind, sizes, (&t.boxes, &t.steps), t.swizzle_bytes);
    let bytes = map.and_then(|m| tensor_map::encode(&m));
    bytes.map_err(|e| e.to_string())
}

/// A kernel that writes words as they are.
const REWRITE: &str = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry rewrite(.param .u64 at, .param .u32 words)
{
\t.reg .b64 %at, %by;
\t.reg .b32 %i, %n, %v, %t;
\t.reg .pred %p;
\tld.param.u64 %at, [at];
\tld.param.u32 %n, [words];
\tcvta.to.global.u64 %at, %at;
\tmov.u32 %i, %ctaid.x;
\tmov.u32 %t, %tid.x;
\tmad.lo.u32 %i, %i, 32, %t;
\tsetp.ge.u32 %p, %i, %n;
\t@%p bra $end;
\tmul.wide.u32 %by, %i, 4;
\tadd.u64 %at, %at, %by;
\tld.global.u32 %v, [%at];
\tst.global.u32 [%at], %v;
$end:
\tret;
}
";

/// What is under way where kernels before wrote everything that a program touches and that is no constant, faults included.
fn written_before(
    m: &mut Machine,
    (programs, fault): (&[&TileProgram], u64),
    buffers: &[Tensor],
    at: &[u64],
) -> Result<Unfinished, PtxError> {
    let (mut constants, mut before) = (vec![], 0);
    for p in programs {
        if let Mapping::Gpu(g) = &p.schedule().mapping {
            constants.extend(g.constants.iter().map(|&c| before + usize::from(c)));
        }
        before += p.kernel().operands.len();
    }
    let module = m.load(REWRITE)?;
    let own = at.iter().zip(buffers).enumerate();
    let own = own.filter(|(n, _)| !constants.contains(n));
    let mut list: Vec<(u64, usize)> = own
        .map(|(_, (&a, b))| (a, b.bytes().len().div_ceil(4).max(1)))
        .collect();
    list.push((fault, 1));
    let mut all = Unfinished::default();
    for (a, words) in list {
        let mut l = Launch::new("rewrite").u64(a).u32(words as u32);
        l.grid = [words.div_ceil(32) as u32, 1, 1];
        all = all.and(m.run(&module, &l)?.unfinished);
    }
    Ok(all)
}

/// An architecture for program number `n`: one that has its matrix instruction.
pub fn arch(program: &TileProgram, n: usize) -> &'static str {
    let groups = match &program.schedule().mapping {
        Mapping::Gpu(g) => g.fragment.is_some_and(|f| f.warps() > 1),
        Mapping::Cpu(_) => false,
    };
    match groups {
        true => "sm_90a",
        false => ptx::ARCHS[n % ptx::ARCHS.len()],
    }
}

impl Subject for Emulated {
    fn name(&self) -> String {
        format!("emulated {}", self.arch.unwrap_or("PTX"))
    }

    fn kind(&self) -> TargetKind {
        TargetKind::Ptx
    }

    fn run(
        &self,
        program: &TileProgram,
        symbols: &[(&str, i64)],
        buffers: &[Tensor],
    ) -> Result<Vec<Tensor>, Failure> {
        let n = self.done.get();
        self.done.set(n + 1);
        let arch = self.arch.unwrap_or_else(|| arch(program, n));
        let text = ptx::emit(program, arch).map_err(|e| Failure::Refused(e.to_string()))?;
        self.launch(program, &text, symbols, buffers)
            .map_err(Failure::Broken)
    }
}
