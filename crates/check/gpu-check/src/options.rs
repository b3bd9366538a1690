//! The command line.
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What `--help` prints.
pub const USAGE: &str = "\
gpu-check [--on DEVICE] [--out DIR] [--seconds N] [--parts A,B] [--models A,B] [--models-in DIR]
    runs everything that this library claims of GPUs on this one, and writes what it finds

  --on DEVICE      cuda, cuda:N, or emulated:a100, emulated:h100, emulated:t4 [default: cuda:0]
  --out DIR        where bench/gpu/NAME.md and machines/measured/NAME.toml go [default: gpu-check-out]
  --seconds N      how long all of it may take [default: 450]
  --parts A,B      calibrate, models, resident, products, kernels, torch,
                   conformance, wgsl [default: all]
  --models A,B     models to run [default: all that are there]
  --models-in DIR  folder of model folders [default: models beside this program]

gpu-check pack DIR [--commit TEXT]
    copies this program and its models into DIR";

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device as [`shopfloor::engine_on`] names it.
    pub on: String,
    /// Where results go.
    pub out: PathBuf,
    /// Seconds for all parts together, or for the one.
    pub seconds: f64,
    /// The parts asked for; empty for all.
    pub parts: Vec<String>,
    /// The models asked for; empty for all.
    pub models: Vec<String>,
    /// The folder of model folders, if it was said.
    pub models_in: Option<PathBuf>,
    /// The part that this process is to run.
    pub part: Option<String>,
    /// Items that an earlier process of the part has done, or was ended at.
    pub past: u64,
    /// A machine description to plan for.
    pub machine: Option<PathBuf>,
    /// Operations for PyTorch, a file of keys.
    pub operations: Option<PathBuf>,
    /// When this process began.
    pub began: Instant,
}

fn list(text: &str) -> Vec<String> {
    let parts = text.split(',').map(str::trim).filter(|s| !s.is_empty());
    parts.map(String::from).collect()
}

impl Options {
    /// Reads the command line; `None` asks for help.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn read(args: &[String], known: &[&str]) -> Result<Option<Options>, String> {
        let mut o = Options {
            on: "cuda:0".into(),
            out: "gpu-check-out".into(),
            seconds: 450.0,
            parts: vec![],
            models: vec![],
            models_in: None,
            part: None,
            past: 0,
            machine: None,
            operations: None,
            began: Instant::now(),
        };
        let mut args = args.iter();
        while let Some(a) = args.next() {
            if matches!(a.as_str(), "-h" | "--help") {
                return Ok(None);
            }
            let value = args
                .next()
                .ok_or(format!("{a} needs a value; see --help"))?;
            match a.as_str() {
                "--on" => o.on = value.clone(),
                "--out" => o.out = value.into(),
                "--seconds" => {
                    let v = value.parse().ok();
                    let v = v.filter(|v: &f64| *v >= 1.0 && *v <= 86400.0);
                    o.seconds = v.ok_or(format!(
                        "--seconds takes a number from 1 to 86400, not '{value}'"
                    ))?;
                }
                "--parts" => o.parts = list(value),
                "--models" => o.models = list(value),
                "--models-in" => o.models_in = Some(value.into()),
                "--part" => o.part = Some(value.clone()),
                "--past" => o.past = value.parse().map_err(|_| "--past takes a number")?,
                "--machine" => o.machine = Some(value.into()),
                "--operations" => o.operations = Some(value.into()),
                _ => return Err(format!("there is no option '{a}'; see --help")),
            }
        }
        if !o.on.starts_with("cuda") && !o.emulated() {
            return Err(format!(
                "--on takes cuda, cuda:N or emulated:a100, not '{}'",
                o.on
            ));
        }
        match o.parts.iter().find(|p| !known.contains(&p.as_str())) {
            Some(p) => Err(format!(
                "there is no part '{p}'; there are {}",
                known.join(", ")
            )),
            None => Ok(Some(o)),
        }
    }

    /// Whether the GPU is emulated.
    pub fn emulated(&self) -> bool {
        self.on.starts_with("emulated")
    }

    /// The device that keeps a kernel. An emulated one has few SMs, if it was not said how many: all
    /// registers of all workers are there for as long as it stays.
    pub fn resident(&self) -> String {
        match self.on.as_str() {
            on if self.emulated() && !on.contains("sms=") => {
                let name = if on.contains(':') { "" } else { ":a100" };
                format!("{on}{name},sms=4")
            }
            on => on.into(),
        }
    }

    /// Time that is left to this process.
    pub fn rest(&self) -> Duration {
        let all = Duration::from_secs_f64(self.seconds);
        all.saturating_sub(self.began.elapsed())
    }

    /// The share `share` of its time from now on.
    pub fn part_of(&self, share: f64) -> Duration {
        Duration::from_secs_f64(self.rest().as_secs_f64() * share)
    }

    /// The folder of model folders beside this program, or the one that was said.
    pub fn models_folder(&self) -> Option<PathBuf> {
        if let Some(f) = &self.models_in {
            return Some(f.clone());
        }
        let here = std::env::current_exe().ok()?;
        let beside = here.parent().map(|p| p.join("models"));
        beside.filter(|f: &PathBuf| Path::is_dir(f))
    }
}
