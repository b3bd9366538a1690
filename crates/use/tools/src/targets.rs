//! Which code of ours a machine is planned with.
use kernel::Target;
use planner::Placement;
use shopfloor::{Error, Goal, Isa, Launch, Machine};
use std::path::Path;

/// Whether `on` names a device that runs rather than a machine that is planned for.
pub fn is_device(on: &str) -> bool {
    on.split('+').all(|part| {
        let kind = part.split(':').next().unwrap_or(part);
        matches!(kind, "cpu" | "wgpu" | "cuda" | "emulated")
    })
}

/// What a plan is for and need not be there.
#[derive(Clone, Debug)]
pub enum Machines {
    /// A machine; host operators of a GPU's plan run on the CPU at hand.
    One(Box<Machine>),
    /// A CPU and a GPU: each step is where the predicted time of all is least, copies included.
    Pair(Box<[Machine; 2]>),
}

impl Machines {
    /// The machine that `on` names ([`shopfloor::machines::find`]), or the two of `cpu+h100`.
    ///
    /// # Errors
    /// There is no such machine, or the two are no CPU with a GPU.
    pub fn named(on: &str) -> Result<Machines, Error> {
        let find = shopfloor::machines::find;
        let Some((host, gpu)) = on.split_once('+').filter(|_| !Path::new(on).exists()) else {
            return Ok(find(on)?.into());
        };
        let both = [find(host)?, find(gpu)?];
        match both[0].is_gpu() || !both[1].is_gpu() {
            false => Ok(Machines::Pair(both.into())),
            true => Err(Error::Usage(format!(
                "'{on}' is no CPU with a GPU; name the CPU first, such as cpu+h100"
            ))),
        }
    }

    /// All that were named, the GPU last.
    pub fn all(&self) -> &[Machine] {
        match self {
            Machines::One(m) => std::slice::from_ref(m),
            Machines::Pair(both) => &both[..],
        }
    }

    /// The machine, of two the GPU.
    pub fn last(&self) -> &Machine {
        match self {
            Machines::One(m) => m,
            Machines::Pair(both) => &both[1],
        }
    }

    /// The machine of each device of a plan: before a GPU the CPU named, else the one at hand.
    ///
    /// # Errors
    /// The CPU at hand cannot be described.
    pub fn devices(&self) -> Result<Vec<Machine>, Error> {
        Ok(match self {
            Machines::One(m) if m.is_gpu() => {
                vec![shopfloor::machines::find("detected")?, (**m).clone()]
            }
            _ => self.all().to_vec(),
        })
    }

    /// The devices of a plan with the code that each runs, and how steps are placed on them.
    ///
    /// # Errors
    /// As [`Machines::devices`] and [`Planning::target`]; another's kernels or an instruction set for two machines.
    pub fn planned(
        &self,
        planning: &Planning,
    ) -> Result<(Vec<(Machine, Target)>, Placement), Error> {
        let two = matches!(self, Machines::Pair(_));
        let only = [
            (planning.isa.is_some(), "--isa"),
            (planning.kernels == Kernels::Vendor, "--kernels vendor"),
        ];
        if let Some((_, option)) = only.iter().find(|o| two && o.0) {
            return Err(Error::Usage(format!(
                "{option} does nothing for a plan cut between two machines; leave it out"
            )));
        }
        let mut devices: Vec<_> = self.devices()?.into_iter().map(|m| (ours(&m), m)).collect();
        if let Some((target, machine)) = devices.last_mut() {
            *target = planning.target(machine)?;
        }
        let devices = devices.into_iter().map(|(t, m)| (m, t)).collect();
        Ok((devices, if two { Placement::Cut } else { Placement::Last }))
    }
}

impl From<Machine> for Machines {
    fn from(m: Machine) -> Machines {
        Machines::One(Box::new(m))
    }
}

/// Whose kernels a machine is planned with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Those that our backends emit.
    #[default]
    Ours,
    /// Those that the vendor's library would launch.
    Vendor,
}

impl Kernels {
    /// As tables label it.
    pub fn label(self) -> &'static str {
        match self {
            Kernels::Ours => "ours",
            Kernels::Vendor => "vendor",
        }
    }

    /// Whether too little was ever compared with what is predicted for these kernels on `machine`: ours on
    /// GPUs have guessed efficiencies, and were measured on one H200 with small models alone.
    pub fn unvalidated(self, machine: &Machine) -> bool {
        self == Kernels::Ours && machine.kind == machine::MachineKind::Gpu
    }
}

/// How a model is planned for a machine that need not be there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Planning {
    /// Whose kernels.
    pub kernels: Kernels,
    /// Instruction set of a CPU; the widest that it has when not said.
    pub isa: Option<Isa>,
    /// Workers of the CPU: all that it has when not said. A GPU's are its own.
    pub threads: Option<usize>,
    /// What the plan is to be good at.
    pub goal: Goal,
    /// Bytes that the plan may take.
    pub memory: Option<u64>,
    /// How steps reach an NVIDIA GPU, where that was said.
    pub launch: Option<Launch>,
}

impl Planning {
    /// The target of `machine`.
    ///
    /// # Errors
    /// A machine whose vendor's library nothing was compared with, or an instruction set that it has not.
    pub fn target(&self, machine: &Machine) -> Result<Target, Error> {
        let Some(isa) = self.isa else {
            return target(machine, self.kernels);
        };
        let cpu = machine.kind == machine::MachineKind::Cpu;
        match cpu && has(machine, isa) {
            true => Ok(cpu::target(isa)),
            false if !cpu => Err(Error::Usage(format!(
                "{} is a GPU, and --isa {isa} is for CPUs; leave it out",
                machine.name
            ))),
            false => Err(Error::Usage(format!(
                "{} does not have the instruction set {isa}; leave it out or name another",
                machine.name
            ))),
        }
    }
}

/// Whether a CPU has the instruction set.
fn has(machine: &Machine, isa: Isa) -> bool {
    match isa {
        Isa::Avx512 => machine.isa.has("avx512f"),
        Isa::Avx2 => machine.isa.has("avx2"),
        _ => true,
    }
}

/// The target of `machine` for kernels of ours or of the vendor.
///
/// # Errors
/// A machine whose vendor's library nothing was compared with.
pub fn target(machine: &Machine, kernels: Kernels) -> Result<Target, Error> {
    match kernels {
        Kernels::Ours => Ok(ours(machine)),
        Kernels::Vendor => predict::vendor(machine).ok_or_else(|| {
            Error::Usage(format!(
                "there is no vendor target for {}: only GPUs' libraries were compared with; leave --kernels vendor out",
                machine.name
            ))
        }),
    }
}

/// The most workgroup memory that drivers give WebGPU.
const MOST_SHARED: u64 = 32 << 10;

/// The number in `sm_86`.
fn number(arch: &str) -> Option<u32> {
    arch.strip_prefix("sm_")?.parse().ok()
}

/// The PTX architecture whose text `machine` runs: its own, or the newest of ours before it, which newer
/// GPUs run as well; `None` for machines that run no PTX of ours.
pub(crate) fn arch_of(machine: &Machine) -> Option<&'static str> {
    let own = machine.isa.features.iter().find_map(|f| number(f))?;
    emit::ptx::arch_of(own)
}

/// The target for `machine`: our CPU code for its widest instruction set, PTX where it runs that, else
/// WGSL, which any GPU with a driver for WebGPU takes. What a CTA may have is the machine's.
pub fn ours(machine: &Machine) -> Target {
    if machine.kind == machine::MachineKind::Cpu {
        let isa = Isa::ALL.into_iter().find(|i| has(machine, *i));
        return cpu::target(isa.unwrap_or(Isa::Portable));
    }
    let shared = machine.limits.shared_per_cta.map(|s| s.value);
    if let Some(arch) = arch_of(machine) {
        let mut t = emit::ptx::target(arch);
        if let (Some(gpu), Some(shared)) = (&mut t.gpu, shared) {
            gpu.limits.shared_bytes = gpu.limits.shared_bytes.min(shared);
        }
        return t;
    }
    let known = emit::wgsl::Limits::default();
    if machine.isa.name == "wgsl" {
        return emit::wgsl::target(known);
    }
    let local = machine.level("shared").map(|l| l.bytes.value as u64);
    let shared = shared.or(local).unwrap_or(0).min(MOST_SHARED);
    emit::wgsl::target(emit::wgsl::Limits {
        shared_bytes: shared as u32,
        ..known
    })
}
