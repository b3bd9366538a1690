//! The GPU under test, by every way that leads to it.
use crate::options::Options;
use cuda::{Context, CudaDevice, CudaOptions, DeviceInfo, Driver, Nvidia};
use cuda_emulated::{Checks, EmulatedDriver, EmulatedGpu};
use machine::Machine;
use runtime::Engine;
use shopfloor::{Launch, Session};
use std::sync::Arc;

/// A driver with the GPU's number.
pub struct Gpu {
    driver: Box<dyn Driver>,
    ordinal: u32,
    on: String,
}

/// An emulated GPU by name, perhaps with fewer SMs; its checks are off, as for speed.
fn emulated(text: &str) -> Result<EmulatedGpu, String> {
    let mut parts = text.split(',');
    let gpu = EmulatedGpu::named(parts.next().unwrap_or_default()).map_err(|e| e.to_string())?;
    let mut gpu = gpu.with_checks(Checks::none());
    for p in parts {
        match p.strip_prefix("sms=").and_then(|n| n.parse().ok()) {
            Some(n) => gpu = gpu.with_sms(n),
            None => return Err(format!("'{p}' is no property of an emulated GPU: sms=N is")),
        }
    }
    Ok(gpu)
}

impl Gpu {
    /// Opens the driver behind `--on`.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn open(o: &Options) -> Result<Gpu, String> {
        let (kind, which) = o.on.split_once(':').unwrap_or((&o.on, ""));
        let (driver, ordinal): (Box<dyn Driver>, u32) = match kind {
            "emulated" => {
                let gpu = emulated(if which.is_empty() { "a100" } else { which })?;
                (Box::new(EmulatedDriver::new(vec![gpu])), 0)
            }
            _ => {
                let n = match which {
                    "" => 0,
                    w => w.parse().map_err(|_| format!("'{w}' is no GPU's number"))?,
                };
                (Box::new(Nvidia::load().map_err(|e| e.to_string())?), n)
            }
        };
        let count = driver.devices().map_err(|e| e.to_string())?.len();
        if ordinal as usize >= count {
            return Err(match count {
                0 => "the NVIDIA driver is there, but it shows no GPU; make one visible to this process (CUDA_VISIBLE_DEVICES, a container's --gpus)".into(),
                n => format!("there is no GPU {ordinal}: the driver shows {n}, numbered from 0"),
            });
        }
        Ok(Gpu {
            driver,
            ordinal,
            on: o.on.clone(),
        })
    }

    /// The driver's version.
    pub fn version(&self) -> u32 {
        self.driver.version()
    }

    /// The GPU itself.
    ///
    /// # Errors
    /// The driver fails.
    pub fn context(&self) -> Result<Arc<dyn Context>, String> {
        self.driver.open(self.ordinal).map_err(|e| e.to_string())
    }

    /// What the driver says of it.
    ///
    /// # Errors
    /// The driver fails.
    pub fn info(&self) -> Result<DeviceInfo, String> {
        let all = self.driver.devices().map_err(|e| e.to_string())?;
        let own = all.into_iter().nth(self.ordinal as usize);
        own.ok_or_else(|| "the GPU is gone".into())
    }

    /// As a device for plans that `machine` describes.
    ///
    /// # Errors
    /// The driver fails.
    pub fn device(&self, machine: Machine) -> Result<CudaDevice, String> {
        let options = CudaOptions::default();
        CudaDevice::open(&self.on, &*self.driver, self.ordinal, machine, options)
            .map_err(|e| e.to_string())
    }
}

/// An engine whose steps are launched by `launch`, planned for the machine of the options where they give one.
///
/// # Errors
/// As [`shopfloor::engine_on`].
pub fn engine(o: &Options, launch: Launch) -> Result<Arc<Engine>, String> {
    let on = match launch {
        Launch::Steps | Launch::Graph => o.on.clone(),
        Launch::Resident => o.resident(),
    };
    let mut builder = Session::builder().with_device(&on).with_launch(launch);
    if let Some(f) = &o.machine {
        builder = builder.with_machine(Machine::from_file(f).map_err(|e| e.to_string())?);
    }
    builder.engine().map_err(|e| e.to_string())
}

/// Whether the driver still does what this process asks of the GPU.
pub fn sound(o: &Options) -> bool {
    let context = Gpu::open(o).and_then(|g| g.context());
    context.is_ok_and(|c| c.memory().is_ok())
}

/// The description that plans for the GPU are made with when none is given.
///
/// # Errors
/// As [`shopfloor::engine_on`].
pub fn described(o: &Options) -> Result<Machine, String> {
    Ok(engine(o, Launch::Steps)?.device().machine().clone())
}

/// A name for files: `h100-80gb-hbm3` of `NVIDIA H100 80GB HBM3`.
pub fn file_name(name: &str, emulated: bool) -> String {
    let name = name.to_lowercase();
    let name = name.trim_start_matches("nvidia ").replace("(emulated)", "");
    let mut out = String::from(if emulated { "emulated-" } else { "" });
    for c in name.trim().chars() {
        match c {
            'a'..='z' | '0'..='9' => out.push(c),
            _ if out.ends_with('-') => {}
            _ => out.push('-'),
        }
    }
    out.trim_end_matches('-').into()
}
