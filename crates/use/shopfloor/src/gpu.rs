//! Engines on NVIDIA GPUs, real and emulated.
use crate::{Error, Launch, Machine};
#[cfg(feature = "cuda")]
use plan::Planner;
use runtime::Engine;
use std::sync::Arc;

/// An engine on an NVIDIA GPU, real or emulated.
#[cfg(feature = "cuda")]
pub(crate) fn engine(
    on: &crate::Device,
    (threads, isa): (Option<usize>, Option<crate::Isa>),
    machine: Option<Machine>,
    (streaming, launch, cut): (bool, Option<Launch>, bool),
) -> Result<Arc<Engine>, Error> {
    let options = cuda::CudaOptions {
        streaming,
        launch,
        ..cuda::CudaOptions::default()
    };
    let device = match on {
        crate::Device::Emulated { gpu } => emulated(gpu, machine, options)?,
        crate::Device::Cuda { index } => real(*index, machine, options)?,
        other => return Err(failed(&other.to_string(), "it is no NVIDIA GPU")),
    };
    engine_of(device, threads, isa, cut)
}

/// An engine that runs everything on `device` if that has a form for everything, and over the host and
/// it if not; or, with `cut`, what is faster there on each.
#[cfg(feature = "cuda")]
fn engine_of(
    device: cuda::CudaDevice,
    threads: Option<usize>,
    isa: Option<crate::Isa>,
    cut: bool,
) -> Result<Arc<Engine>, Error> {
    use device::Device;
    let host: Arc<dyn Device> = Arc::new(cpu::CpuDevice::new(cpu::CpuOptions {
        threads,
        isa,
        machine: None,
        ..Default::default()
    })?);
    let of = |d: &dyn Device| (d.machine().clone(), d.target().clone());
    if cut {
        let planner = crate::pair::SplitPlanner::new(&*host, &device, device.machine().clone());
        let device = device.with_host(host);
        return Ok(Engine::new(Arc::new(device), Arc::new(planner)));
    }
    let options = planner::PlanOptions::default();
    let planner = HostAndDevice {
        workers: host.workers() as u32,
        alone: planner::Planner::new(vec![of(&device)], options.clone()),
        beside: planner::Planner::new(vec![of(&*host), of(&device)], options),
    };
    let device = device.with_host(host);
    Ok(Engine::new(Arc::new(device), Arc::new(planner)))
}

/// Plans for a device alone, and where it has no form for something, for the host and it.
#[cfg(feature = "cuda")]
struct HostAndDevice {
    /// The host's.
    workers: u32,
    alone: planner::Planner,
    beside: planner::Planner,
}

#[cfg(feature = "cuda")]
impl HostAndDevice {
    fn both(&self, a: &plan::Allotment) -> plan::Allotment {
        let mut both = a.clone();
        both.workers.insert(0, self.workers);
        both
    }
}

/// The plan for a device alone, `alone`, where the device does something of it, else the one with the host,
/// `beside`: values need not go to a device that has no step.
#[cfg(feature = "cuda")]
fn useful(
    alone: Result<plan::Plan, plan::PlanError>,
    beside: impl FnOnce() -> Result<plan::Plan, plan::PlanError>,
) -> Result<plan::Plan, plan::PlanError> {
    match alone {
        Ok(plan) if plan.runs_kernels() => Ok(plan),
        Ok(plan) => beside().or(Ok(plan)),
        Err(_) => beside(),
    }
}

#[cfg(feature = "cuda")]
impl Planner for HostAndDevice {
    fn bind(
        &self,
        program: &plan::Program,
        dims: &layout::DimBox,
        allotment: &plan::Allotment,
    ) -> Result<plan::Plan, plan::PlanError> {
        let alone = self.alone.bind(program, dims, allotment);
        useful(alone, || {
            self.beside.bind(program, dims, &self.both(allotment))
        })
    }

    fn bind_like(
        &self,
        program: &plan::Program,
        dims: &layout::DimBox,
        allotment: &plan::Allotment,
        likes: &[&plan::VerifiedPlan],
    ) -> Result<plan::Plan, plan::PlanError> {
        let alone = self.alone.bind_like(program, dims, allotment, likes);
        let both = self.both(allotment);
        useful(alone, || self.beside.bind_like(program, dims, &both, likes))
    }

    fn setting(&self) -> String {
        format!("alone, or\n{}", self.beside.setting())
    }

    fn propose(&self, o: &plan::Observations, s: &[plan::Serving]) -> Vec<plan::Candidate> {
        self.alone.propose(o, s)
    }
}

#[cfg(feature = "cuda")]
fn failed(device: &str, why: impl std::fmt::Display) -> Error {
    Error::Usage(format!("device '{device}': {why}"))
}

/// The emulated GPU that `text` names (`a100`, perhaps with `,memory=64MiB`, `,sms=4` or `,checks`),
/// planned for as the catalog describes the real one, with so many SMs where that is said. Bounds and alignment are
/// checked in any case, with `checks` also races and what was never written, which takes twice as long.
#[cfg(feature = "cuda")]
fn emulated(
    text: &str,
    machine: Option<Machine>,
    mut options: cuda::CudaOptions,
) -> Result<cuda::CudaDevice, Error> {
    use cuda_emulated::{Checks, EmulatedDriver, EmulatedGpu};
    let on = format!("emulated:{text}");
    // A task takes its time here.
    options.watchdog = std::time::Duration::from_secs(300);
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default();
    let gpu = EmulatedGpu::named(name).map_err(|e| failed(&on, e))?;
    let mut gpu = gpu.with_checks(Checks::none());
    let mut fewer = None;
    for part in parts {
        let (what, value) = part.split_once('=').unwrap_or((part, ""));
        gpu = match (what, value.parse::<u32>().ok(), bytes(value)) {
            ("checks", ..) => gpu.with_checks(Checks::default()),
            ("sms", Some(n), _) => {
                fewer = Some(part);
                gpu.with_sms(n)
            }
            ("memory", _, Some(n)) => gpu.with_memory(n),
            _ => {
                let why = format!("'{part}' is none of memory=SIZE, sms=N, checks");
                return Err(failed(&on, why));
            }
        };
    }
    let machine = match machine {
        Some(m) => m,
        None => {
            let mut like = crate::machines::find(name)?;
            if let Some(change) = fewer {
                let change = change
                    .parse()
                    .and_then(|c: machine::Change| c.apply(&mut like));
                change.map_err(|why| failed(&on, why))?;
            }
            like
        }
    };
    let driver = EmulatedDriver::new(vec![gpu]);
    Ok(cuda::CudaDevice::open(&on, &driver, 0, machine, options)?)
}

/// A size such as 512, 64KiB, 3MiB or 80GiB.
#[cfg(feature = "cuda")]
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// GPU number `ordinal` of this machine's driver, planned for as the catalog describes it, or as the nearest of the
/// catalog with its own size.
#[cfg(feature = "cuda")]
fn real(
    ordinal: u32,
    machine: Option<Machine>,
    options: cuda::CudaOptions,
) -> Result<cuda::CudaDevice, Error> {
    use cuda::Driver;
    let on = format!("cuda:{ordinal}");
    let absent = |why: &dyn std::fmt::Display| Error::Other(format!("device '{on}': {why}").into());
    let driver = cuda::Nvidia::load().map_err(|e| absent(&e))?;
    let all = driver.devices().map_err(|e| absent(&e))?;
    let known = all.get(ordinal as usize);
    let machine = match (machine, known) {
        (Some(m), _) => m,
        (None, Some(info)) => described(info)?,
        // Opening it says how many there are.
        (None, None) => crate::machines::find("a100")?,
    };
    Ok(cuda::CudaDevice::open(
        &on, &driver, ordinal, machine, options,
    )?)
}

#[cfg(feature = "cuda")]
fn described(info: &cuda::DeviceInfo) -> Result<Machine, Error> {
    if let Ok(m) = crate::machines::find(&info.name) {
        return Ok(m);
    }
    let like = match info.compute.major {
        ..=7 => "t4",
        8 => "a100",
        _ => "h100",
    };
    let like = crate::machines::find(like)?;
    Ok(cuda::CudaDevice::described(info, like))
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn engine(
    on: &crate::Device,
    _: (Option<usize>, Option<crate::Isa>),
    _: Option<Machine>,
    _: (bool, Option<Launch>, bool),
) -> Result<Arc<Engine>, Error> {
    Err(Error::Usage(format!(
        "this build has no '{on}'; build it with `--features cuda`"
    )))
}
