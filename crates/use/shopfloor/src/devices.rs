//! Devices that run, as a type and by name, and engines on them.
use crate::{Error, Launch};
use cpu::CpuDevice;
use cpu::isa::Isa;
use device::Device as _;
use machine::Machine;
use runtime::Engine;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A device that runs models. Its text form is what `--on` and [`crate::SessionBuilder::with_device`] take.
///
/// ```
/// use shopfloor::Device;
///
/// assert_eq!("cuda:1".parse::<Device>()?, Device::Cuda { index: 1 });
/// assert_eq!(Device::Emulated { gpu: "t4".into() }.with_cpu().to_string(), "cpu+emulated:t4");
/// # Ok::<(), shopfloor::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// This machine's CPU: `cpu`.
    #[default]
    Cpu,
    /// An NVIDIA GPU through its driver: `cuda:1`; `cuda` is the first.
    Cuda {
        /// Number of the GPU, from 0.
        index: u32,
    },
    /// A GPU through WebGPU: `wgpu`, or `wgpu:NAME`.
    Wgpu {
        /// A part of the adapter's name; the first adapter that has it is taken, any where nothing is said.
        adapter: Option<String>,
    },
    /// An NVIDIA GPU that is emulated: `emulated:a100`, `emulated:h100` or `emulated:t4`.
    Emulated {
        /// Its name, perhaps followed by `,memory=64MiB`, `,sms=4` or `,checks`.
        gpu: String,
    },
    /// The CPU and a GPU, which share a plan out by predicted time, copies between them included: `cpu+cuda:0`.
    CpuAnd(Box<Device>),
}

impl Device {
    /// The CPU and this GPU.
    #[must_use]
    pub fn with_cpu(self) -> Device {
        match self {
            Device::Cpu | Device::CpuAnd(_) => self,
            gpu => Device::CpuAnd(Box::new(gpu)),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda { index } => write!(f, "cuda:{index}"),
            Device::Wgpu { adapter: None } => f.write_str("wgpu"),
            Device::Wgpu { adapter: Some(a) } => write!(f, "wgpu:{a}"),
            Device::Emulated { gpu } => write!(f, "emulated:{gpu}"),
            Device::CpuAnd(gpu) => write!(f, "cpu+{gpu}"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(on: &str) -> Result<Device, Error> {
        let parts: Vec<&str> = on.split('+').collect();
        match parts[..] {
            [one] => alone(one),
            ["cpu", gpu] | [gpu, "cpu"] if gpu != "cpu" => Ok(alone(gpu)?.with_cpu()),
            _ => Err(Error::Usage(format!(
                "'{on}' is no pair of devices; give the CPU and one GPU, such as cpu+cuda or cpu+wgpu"
            ))),
        }
    }
}

/// One device by its name.
fn alone(on: &str) -> Result<Device, Error> {
    let (kind, which) = match on.split_once(':') {
        Some((k, w)) => (k, Some(w)),
        None => (on, None),
    };
    match (kind, which) {
        ("cpu", None) => Ok(Device::Cpu),
        ("wgpu", which) => Ok(Device::Wgpu {
            adapter: which.map(Into::into),
        }),
        ("cuda", None) => Ok(Device::Cuda { index: 0 }),
        ("cuda", Some(n)) => match n.parse() {
            Ok(index) => Ok(Device::Cuda { index }),
            Err(_) => Err(Error::Usage(format!(
                "device '{on}': give the GPU's number, such as cuda:0"
            ))),
        },
        ("emulated", which) => Ok(Device::Emulated {
            gpu: which.unwrap_or("a100").into(),
        }),
        // Whether a machine has this name is not looked up: programs that only run would hold the whole catalog.
        _ => Err(Error::Usage(format!(
            "there is no device '{on}'; use cpu, wgpu, wgpu:ADAPTER, cuda, cuda:N, emulated:a100, or two such as cpu+cuda; a machine such as h100 is planned for and does not run"
        ))),
    }
}

/// An engine on this machine's CPU.
///
/// `threads`: workers, the calling thread included (default: the cores this process may use);
/// `isa`: instruction set (default: the best there is); `machine`: description to plan for
/// (default: the present one, calibrated if a calibration is stored).
///
/// # Errors
/// The instruction set is not there, or threads cannot be started.
pub fn default_engine(
    threads: Option<usize>,
    isa: Option<Isa>,
    machine: Option<Machine>,
) -> Result<Arc<Engine>, Error> {
    let device = CpuDevice::new(cpu::CpuOptions {
        threads,
        isa,
        machine,
        ..Default::default()
    })?;
    let planner = planner::Planner::new(
        vec![(device.machine().clone(), device.target().clone())],
        planner::PlanOptions::default(),
    );
    Ok(Engine::new(Arc::new(device), Arc::new(planner)))
}

/// An engine on the device named `on`: a [`Device`] in its text form, such as `cpu`, `cuda:0` or `cpu+wgpu`. The
/// other arguments are as for [`default_engine`] and matter to a CPU only, but for `machine`.
///
/// # Errors
/// No such device, or one that this build leaves out.
pub fn engine_on(
    on: &str,
    threads: Option<usize>,
    isa: Option<Isa>,
    machine: Option<Machine>,
) -> Result<Arc<Engine>, Error> {
    engine_for(on, (threads, isa), machine, true, None)
}

/// [`engine_on`], streaming weights to GPUs that they do not fit or not, and launching steps as `launch` says,
/// if it does.
pub(crate) fn engine_for(
    on: &str,
    (threads, isa): (Option<usize>, Option<Isa>),
    machine: Option<Machine>,
    streaming: bool,
    launch: Option<Launch>,
) -> Result<Arc<Engine>, Error> {
    let (device, cut) = match on.parse()? {
        Device::CpuAnd(gpu) => (*gpu, true),
        device => (device, false),
    };
    if let (Some(launch), Device::Cpu | Device::Wgpu { .. }) = (launch, &device)
        && launch != Launch::Steps
    {
        return Err(Error::Usage(format!(
            "'{device}' cannot launch by {launch}; launch its steps, or name an NVIDIA GPU such as cuda or emulated:a100"
        )));
    }
    match &device {
        Device::Wgpu { adapter } => webgpu_engine(adapter.as_deref(), (threads, isa), machine, cut),
        Device::Cuda { .. } | Device::Emulated { .. } => {
            let how = (streaming, launch, cut);
            crate::gpu::engine(&device, (threads, isa), machine, how)
        }
        _ => default_engine(threads, isa, machine),
    }
}

#[cfg(feature = "webgpu")]
fn webgpu_engine(
    adapter: Option<&str>,
    (threads, isa): (Option<usize>, Option<Isa>),
    machine: Option<Machine>,
    cut: bool,
) -> Result<Arc<Engine>, Error> {
    let host: Arc<dyn device::Device> = Arc::new(CpuDevice::new(cpu::CpuOptions {
        threads,
        isa,
        machine: None,
        ..Default::default()
    })?);
    let device = webgpu::WebGpuDevice::open(adapter)?.with_host(host.clone());
    let machine = machine.unwrap_or_else(|| device.machine().clone());
    if cut {
        let planner = crate::pair::SplitPlanner::new(&*host, &device, machine);
        return Ok(Engine::new(Arc::new(device), Arc::new(planner)));
    }
    // What the GPU has no form for runs on the host, with copies between.
    let planner = planner::Planner::new(
        vec![
            (host.machine().clone(), host.target().clone()),
            (machine, device.target().clone()),
        ],
        planner::PlanOptions::default(),
    );
    Ok(Engine::new(Arc::new(device), Arc::new(planner)))
}

#[cfg(not(feature = "webgpu"))]
fn webgpu_engine(
    _: Option<&str>,
    _: (Option<usize>, Option<Isa>),
    _: Option<Machine>,
    _: bool,
) -> Result<Arc<Engine>, Error> {
    Err(Error::Usage(
        "this build has no wgpu; build it with `--features webgpu`".into(),
    ))
}
