//! Modules, launches and the memory they share.

pub(crate) mod cluster;
pub(crate) mod cta;
mod host;
pub(crate) mod later;
mod launch;
pub(crate) mod launch_state;
pub(crate) mod mbarrier;
mod parallel;
pub(crate) mod run;
pub(crate) mod times;
pub(crate) mod warp;
pub(crate) mod warpgroup;

pub use host::{HostOrder, Running, Status};
pub use launch::{Launch, Outcome, Unfinished};
pub(crate) use launch::{Plan, summary};
pub use times::InstructionTimes;

use crate::decode;
use crate::error::PtxError;
use crate::memory::{Kind, Memory};
use crate::parse::ast::{Ast, Imm, Init, Space, Var};
use crate::program::{Kernel, KernelParam};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of module variables.
const MAX_GLOBALS: u64 = 1 << 30;
/// Most bytes of registers and local memory of the CTAs in flight.
const MAX_STATE: u64 = 8 << 30;

/// A module that was loaded: its text, and where its variables lie.
#[derive(Debug, Clone)]
pub struct Module {
    ast: Arc<Ast>,
    globals: HashMap<String, (Space, u64)>,
    sizes: HashMap<String, u64>,
    /// Kernels decoded so far.
    kernels: Arc<Mutex<HashMap<String, Arc<Kernel>>>>,
}

/// What is known of a kernel before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelInfo {
    /// Parameters, in order.
    pub params: Vec<KernelParam>,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Bytes of local memory per thread.
    pub local_bytes: u32,
    /// 32-bit registers that the text names, of which a compiler needs fewer.
    pub registers: u32,
    /// Threads of a CTA at most.
    pub max_threads: u32,
    /// Threads of a CTA along x, y and z, where the text says that there must be so many (`.reqntid`).
    pub required_threads: Option<[u32; 3]>,
    /// Whether its CTAs may depend on each other, or on the host.
    pub communicates: bool,
    /// Whether it waits for the kernels before it (`griddepcontrol.wait`), so that it may be launched while they run.
    pub waits: bool,
}

impl Module {
    /// Names of its kernels, in the order of the text.
    pub fn kernels(&self) -> Vec<&str> {
        let all = self.ast.functions.iter();
        all.filter(|f| f.entry && f.body.is_some())
            .map(|f| f.name.as_str())
            .collect()
    }

    /// The architecture it was written for, such as `sm_80`.
    pub fn target(&self) -> &str {
        &self.ast.target
    }

    /// Address and bytes of a variable in global or constant memory.
    pub fn global(&self, name: &str) -> Option<(u64, u64)> {
        Some((self.globals.get(name)?.1, *self.sizes.get(name)?))
    }

    /// Parameters of a kernel, in order.
    ///
    /// # Errors
    /// When there is no such kernel or its code cannot be run here.
    pub fn params(&self, kernel: &str) -> Result<Vec<KernelParam>, PtxError> {
        Ok(self.decode(kernel)?.params.clone())
    }

    /// What is known of a kernel before it runs.
    ///
    /// # Errors
    /// As [`Module::params`].
    pub fn info(&self, kernel: &str) -> Result<KernelInfo, PtxError> {
        let k = self.decode(kernel)?;
        let all = |t: [u32; 3]| t.iter().fold(1u32, |p, v| p.saturating_mul(*v));
        let bound = k.reqntid.or(k.maxntid).map_or(1024, all);
        Ok(KernelInfo {
            params: k.params.clone(),
            shared_bytes: k.shared_static,
            local_bytes: k.local_bytes,
            registers: k.rows32.saturating_add(k.rows64.saturating_mul(2)),
            max_threads: bound.min(1024),
            required_threads: k.reqntid,
            communicates: k.communicates,
            waits: k.waits,
        })
    }

    /// Static shared memory of a kernel, in bytes.
    ///
    /// # Errors
    /// As [`Module::params`].
    pub fn static_shared(&self, kernel: &str) -> Result<u32, PtxError> {
        Ok(self.decode(kernel)?.shared_static)
    }

    fn decode(&self, kernel: &str) -> Result<Arc<Kernel>, PtxError> {
        let mut known = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(k) = known.get(kernel) {
            return Ok(k.clone());
        }
        let k = Arc::new(decode::decode(&self.ast, kernel, &self.globals)?);
        known.insert(kernel.into(), k.clone());
        Ok(k)
    }

    /// Shared memory that a CTA may have, by architecture.
    fn shared_limit(&self) -> u32 {
        let digits: String = self
            .ast
            .target
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        match digits.parse().unwrap_or(0) {
            0..=69 => 48 << 10,
            70..=74 => 96 << 10,
            75..=79 => 64 << 10,
            80 | 87 => 163 << 10,
            86 | 89 => 99 << 10,
            _ => 227 << 10,
        }
    }
}

/// A device that exists only here.
#[derive(Debug, Default)]
pub struct Machine {
    /// Its memory.
    pub memory: Memory,
}

impl Machine {
    /// A machine with empty memory.
    pub fn new() -> Machine {
        Machine::default()
    }

    /// Reads PTX text and lays its variables out in memory.
    ///
    /// # Errors
    /// Names the line and what was not understood. Bodies are only looked at when a kernel is
    /// asked for.
    pub fn load(&mut self, source: &str) -> Result<Module, PtxError> {
        let ast = crate::parse::parse(source)?;
        let mut m = Module {
            ast: Arc::new(ast),
            globals: HashMap::new(),
            sizes: HashMap::new(),
            kernels: Arc::default(),
        };
        let ast = m.ast.clone();
        let outside = |v: &&Var| matches!(v.space, Space::Global | Space::Const);
        let total: u64 = ast.vars.iter().filter(outside).map(|v| v.bytes).sum();
        if total > MAX_GLOBALS {
            return Err(PtxError::Memory(format!(
                "the module's variables take {total} bytes; {MAX_GLOBALS} are the most"
            )));
        }
        for v in ast.vars.iter().filter(outside) {
            if v.external {
                return crate::error::unsupported(
                    v.line,
                    format!("variable '{}' of another module", v.name),
                );
            }
            let kind = match v.space {
                Space::Const => Kind::Const,
                _ => Kind::Device,
            };
            let at = self.memory.allocate(v.bytes, kind)?;
            m.globals.insert(v.name.clone(), (v.space, at));
            m.sizes.insert(v.name.clone(), v.bytes);
        }
        for v in ast.vars.iter().filter(outside) {
            let at = m.globals[&v.name].1;
            // Variables begin as zeros.
            let mut bytes = vec![0; v.bytes as usize];
            if let Some(init) = &v.init {
                initialise(v, init, &m.globals, &mut bytes)?;
            }
            self.memory.write(at, &bytes)?;
        }
        Ok(m)
    }

    /// Gives back the memory of a module's variables; no launch of it may be running.
    ///
    /// # Errors
    /// It was unloaded before.
    pub fn unload(&mut self, module: &Module) -> Result<(), PtxError> {
        for (_, at) in module.globals.values() {
            self.memory.free(*at)?;
        }
        Ok(())
    }

    /// Runs a launch to its end.
    ///
    /// Kernels whose CTAs do not communicate run on several threads, each CTA by itself; the
    /// others, and any in which something is found wrong, run interleaved on one, so that the same
    /// seed always gives the same reports.
    ///
    /// # Errors
    /// When it cannot start. What goes wrong on the way is in the outcome.
    pub fn run(&self, module: &Module, launch: &Launch) -> Result<Outcome, PtxError> {
        let plan = self.begin(module, launch)?;
        if let Some(outcome) = parallel::run(&self.memory, &plan, launch) {
            return Ok(outcome);
        }
        let mut running = Running::new(plan, launch);
        running.finish(&self.memory);
        Ok(running.outcome())
    }

    /// Begins a launch that goes on only when asked to, so that the host can use the same memory
    /// in between.
    ///
    /// # Errors
    /// When it cannot start.
    pub fn start(&self, module: &Module, launch: &Launch) -> Result<Running, PtxError> {
        Ok(Running::new(self.begin(module, launch)?, launch))
    }

    /// Whether a launch can start.
    ///
    /// # Errors
    /// When it cannot.
    pub fn check(&self, module: &Module, launch: &Launch) -> Result<(), PtxError> {
        self.prepare(module, launch).map(|_| ())
    }

    /// A launch that begins, with a mark of its own on what it writes.
    fn begin(&self, module: &Module, launch: &Launch) -> Result<Plan, PtxError> {
        let plan = self.prepare(module, launch)?;
        Ok(Plan {
            mark: self.memory.begin_launch(),
            ..plan
        })
    }

    pub(crate) fn prepare(&self, module: &Module, l: &Launch) -> Result<Plan, PtxError> {
        let kernel = module.decode(&l.kernel)?;
        let bad = |what: String| {
            Err(PtxError::Launch {
                kernel: l.kernel.clone(),
                what,
            })
        };
        let threads = l.block.iter().map(|v| u64::from(*v)).product::<u64>();
        let ctas = l
            .grid
            .iter()
            .try_fold(1u64, |p, v| p.checked_mul(u64::from(*v)));
        if threads == 0 || threads > 1024 || l.block[2] > 64 {
            return bad(format!(
                "a CTA has {threads} threads; 1 to 1024 are possible"
            ));
        }
        let padded = threads.next_multiple_of(32);
        let Some(ctas) = ctas.filter(|c| *c > 0 && c * padded < 1 << 31) else {
            return bad(format!(
                "a grid of {}x{}x{} is empty or has more than 2^31 threads",
                l.grid[0], l.grid[1], l.grid[2]
            ));
        };
        if let Some(r) = kernel.reqntid
            && r != l.block
        {
            return bad(format!(
                "its CTAs must have {}x{}x{} threads",
                r[0], r[1], r[2]
            ));
        }
        if let Some(m) = kernel.maxntid {
            let most = m.iter().map(|v| u64::from(*v)).product::<u64>();
            if threads > most {
                return bad(format!("its CTAs may have at most {most} threads"));
            }
        }
        let dims = l.cluster.or(kernel.cluster).unwrap_or([1; 3]);
        if let Some(what) = wrong_cluster(&kernel, l, dims) {
            return bad(what);
        }
        let shared = u64::from(kernel.shared_static) + u64::from(l.shared);
        let limit = l.shared_limit.unwrap_or_else(|| module.shared_limit());
        if shared > u64::from(limit) {
            return bad(format!(
                "{shared} bytes of shared memory for a CTA; {} has {limit}",
                match l.shared_limit {
                    Some(_) => "the device",
                    None => module.target(),
                }
            ));
        }
        let warp = u64::from(kernel.rows32) * 132
            + u64::from(kernel.rows64) * 260
            + u64::from(kernel.local_bytes) * 40;
        let state = warp * (padded / 32) * (l.resident as u64).clamp(1, ctas);
        if state > MAX_STATE {
            return bad(format!(
                "registers and local memory of the CTAs in flight take {state} bytes here, \
                 {MAX_STATE} are the most; let fewer be in flight"
            ));
        }
        if kernel.params.len() != l.args.len() {
            let each = |p: &KernelParam| format!("{} of {} bytes", p.name, p.bytes);
            let all: Vec<String> = kernel.params.iter().map(each).collect();
            return bad(format!(
                "it takes {} parameters, {} were given; it has {}",
                kernel.params.len(),
                l.args.len(),
                match all.is_empty() {
                    true => "none".into(),
                    false => all.join(", "),
                }
            ));
        }
        let mut params = vec![0; kernel.param_bytes as usize];
        for (p, a) in kernel.params.iter().zip(&l.args) {
            if p.bytes as usize != a.len() {
                return bad(format!(
                    "parameter {} has {} bytes, {} were given",
                    p.name,
                    p.bytes,
                    a.len()
                ));
            }
            let at = p.offset as usize;
            params[at..at + a.len()].copy_from_slice(a);
        }
        Ok(Plan {
            kernel,
            params,
            shared: shared as u32,
            ctas: ctas as u32,
            threads: threads as u32,
            clusters: cluster::Clusters { grid: l.grid, dims },
            mark: 0,
        })
    }
}

/// Why a grid does not go into such clusters.
fn wrong_cluster(k: &Kernel, l: &Launch, dims: [u32; 3]) -> Option<String> {
    let [x, y, z] = dims;
    let size = dims.iter().fold(1u32, |p, v| p.saturating_mul(*v));
    if k.cluster.is_some_and(|own| own != dims) {
        let own = k.cluster.unwrap_or(dims);
        return Some(format!(
            "its clusters have {}x{}x{} CTAs",
            own[0], own[1], own[2]
        ));
    }
    if size == 0 || size > cluster::MOST {
        return Some(format!(
            "clusters of {x}x{y}x{z} CTAs; 1 to {} CTAs are possible",
            cluster::MOST
        ));
    }
    if l.grid.iter().zip(dims).any(|(g, c)| g % c != 0) {
        return Some(format!(
            "a grid of {}x{}x{} does not go into clusters of {x}x{y}x{z}",
            l.grid[0], l.grid[1], l.grid[2]
        ));
    }
    None
}

fn initialise(
    v: &Var,
    init: &Init,
    globals: &HashMap<String, (Space, u64)>,
    bytes: &mut [u8],
) -> Result<(), PtxError> {
    // Nested lists are rows, which are filled up with zeros only at their end; text from compilers
    // gives them whole.
    let mut at = 0usize;
    let mut open = vec![init];
    let size = v.ty.bytes() as usize;
    while let Some(i) = open.pop() {
        let value = match i {
            Init::List(l) => {
                open.extend(l.iter().rev());
                continue;
            }
            Init::Value(Imm::Int(n)) if v.ty == crate::parse::ast::Ty::F32 => {
                u64::from((*n as i64 as f32).to_bits())
            }
            Init::Value(Imm::Int(n)) => *n,
            Init::Value(Imm::F32(n)) if size == 8 => f64::from(f32::from_bits(*n)).to_bits(),
            Init::Value(Imm::F32(n)) => u64::from(*n),
            Init::Value(Imm::F64(n)) if size == 4 => {
                u64::from((f64::from_bits(*n) as f32).to_bits())
            }
            Init::Value(Imm::F64(n)) => *n,
            Init::Address(name, by) => match globals.get(name) {
                Some((_, a)) => a.wrapping_add_signed(*by),
                None => {
                    return crate::error::text(v.line, format!("'{name}' is no variable"));
                }
            },
        };
        let Some(slot) = bytes.get_mut(at..at + size) else {
            return crate::error::text(v.line, format!("'{}' has too many values", v.name));
        };
        slot.copy_from_slice(&value.to_le_bytes()[..size]);
        at += size;
    }
    Ok(())
}
