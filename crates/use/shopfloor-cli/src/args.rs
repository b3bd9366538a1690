//! Options that commands share.

use crate::output::{Failure, note};
use clap::Args;
use shopfloor::{
    Cache, Dim, DimBox, Goal, Isa, Machine, Model, ModelOptions, Precision, Session,
    SessionBuilder, inputs, machines,
};
use shopfloor_tools::{
    files, pages, planview,
    report::page::{Baseline, PageData},
    targets::Kernels,
};

fn shape(text: &str) -> Result<(String, Vec<Dim>), String> {
    let wrong = || {
        format!(
            "'{text}' should be INPUT=SIZExSIZE..., such as image=1x3x224x224, or INPUT=DIM,DIM,... with names of dimensions, such as mask=1,past+new"
        )
    };
    let (name, list) = text.rsplit_once('=').ok_or_else(wrong)?;
    if name.is_empty() {
        return Err(wrong());
    }
    // A scalar has no sizes.
    if list.is_empty() || list == "scalar" {
        return Ok((name.into(), vec![]));
    }
    let size = |s: &str| s.trim().parse::<u32>().ok().map(|n| Dim::from(n as usize));
    let sizes: Option<Vec<Dim>> = list.split('x').map(size).collect();
    let dims = || {
        list.split(',')
            .map(|d| d.trim().parse::<Dim>().ok())
            .collect()
    };
    Ok((name.into(), sizes.or_else(dims).ok_or_else(wrong)?))
}

fn dim(text: &str) -> Result<(String, i64, i64), String> {
    let wrong = || format!("'{text}' should be NAME=SIZE or NAME=FROM..TO, such as batch=1..8");
    let (name, range) = text.rsplit_once('=').ok_or_else(wrong)?;
    let number = |s: &str| s.trim().parse::<u32>().map(i64::from).map_err(|_| wrong());
    let (lo, hi) = match range.split_once("..") {
        Some((a, b)) => (number(a)?, number(b.trim_start_matches('='))?),
        None => (number(range)?, number(range)?),
    };
    if name.is_empty() || lo > hi {
        return Err(wrong());
    }
    Ok((name.into(), lo, hi))
}

/// An instruction set that this CPU has.
pub fn isa(text: &str) -> Result<Isa, String> {
    let isa = Isa::from_name(text).ok_or_else(|| {
        format!("'{text}' is no instruction set of ours; they are avx512, avx2 and portable")
    })?;
    if !isa.available() {
        return Err(format!(
            "this CPU does not have {text}; leave --isa out or choose another"
        ));
    }
    Ok(isa)
}

/// A goal with its bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct GoalArg {
    pub goal: Goal,
    /// Seconds that the slowest of a hundred requests may take.
    pub bound_s: Option<f64>,
}

fn goal(text: &str) -> Result<GoalArg, String> {
    let wrong = || {
        format!(
            "'{text}' should be latency, throughput, or one of them with a bound, such as throughput:5ms"
        )
    };
    let (name, bound) = match text.split_once(':') {
        Some((n, b)) => (n, Some(b)),
        None => (text, None),
    };
    let bound_s = match bound {
        None => None,
        Some(b) => {
            let (digits, unit) =
                b.split_at(b.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(b.len()));
            let scale = match unit {
                "us" => 1e-6,
                "ms" | "" => 1e-3,
                "s" => 1.0,
                _ => return Err(wrong()),
            };
            let v: f64 = digits.trim().parse().map_err(|_| wrong())?;
            Some(v * scale)
                .filter(|v| v.is_finite() && *v > 0.0)
                .ok_or_else(wrong)?
                .into()
        }
    };
    let goal = match name {
        "latency" => Goal::Latency,
        "throughput" => Goal::Throughput {
            max_latency_s: bound_s,
        },
        _ => return Err(wrong()),
    };
    Ok(GoalArg { goal, bound_s })
}

/// A time such as `10us`, `1.5ms`, `2s`; a plain number is seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("'{text}' should be a time with its unit, such as 10us, 1.5ms or 2s");
    // An exponent (1e-5) has a letter too; the unit is the run of letters at the end.
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let scale = match &text[digits.len()..] {
        "s" | "" => 1.0,
        "ms" => 1e-3,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
        "ns" => 1e-9,
        _ => return Err(wrong()),
    };
    let v: f64 = digits.trim().parse().map_err(|_| wrong())?;
    if (0.0..=1e9).contains(&v) {
        Ok(v * scale)
    } else {
        Err(wrong())
    }
}

/// A size such as `48KiB` or `2GB`; a plain number is bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("'{text}' should be a number of bytes with a unit or none, such as 512MiB or 2GB")
    };
    let at = text.find(|c: char| c.is_ascii_alphabetic());
    let (digits, unit) = text.split_at(at.unwrap_or(text.len()));
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" | "k" => 1_000,
        "mb" | "m" => 1_000_000,
        "gb" | "g" => 1_000_000_000,
        "kib" | "ki" => 1 << 10,
        "mib" | "mi" => 1 << 20,
        "gib" | "gi" => 1 << 30,
        _ => return Err(wrong()),
    };
    let v: f64 = digits.trim().parse().map_err(|_| wrong())?;
    let v = v * scale as f64;
    if v >= 0.0 && v < (1u64 << 60) as f64 {
        Ok(v as u64)
    } else {
        Err(wrong())
    }
}

/// Whose kernels a machine is planned with.
pub fn kernels(text: &str) -> Result<Kernels, String> {
    match text {
        "ours" => Ok(Kernels::Ours),
        "vendor" => Ok(Kernels::Vendor),
        _ => Err(format!("'{text}' is neither ours nor vendor")),
    }
}

/// State to carry from request to request.
#[derive(Clone, Debug)]
pub enum StateArg {
    /// The pairs whose names exporters give to state.
    Auto,
    /// An input and the output that carries it on.
    Pair(String, String),
}

fn state(text: &str) -> Result<StateArg, String> {
    match text.rsplit_once('=') {
        None if text == "auto" => Ok(StateArg::Auto),
        Some((i, o)) if !i.is_empty() && !o.is_empty() => Ok(StateArg::Pair(i.into(), o.into())),
        _ => Err(format!(
            "'{text}' should be INPUT=OUTPUT, such as past=present, or auto"
        )),
    }
}

/// A kernel for the nodes of an operator.
#[derive(Clone, Debug)]
pub struct UserKernel {
    domain: String,
    name: String,
    file: String,
    text: String,
}

fn kernel(arg: &str) -> Result<UserKernel, String> {
    let parts = arg.split_once('=');
    let parts = parts.and_then(|(op, file)| Some((op.rsplit_once(':')?, file)));
    match parts {
        Some(((domain, name), file)) if !name.is_empty() && !file.is_empty() => Ok(UserKernel {
            domain: domain.into(),
            name: name.into(),
            file: file.into(),
            text: shopfloor::read_text(file, files::WRITTEN).map_err(|e| e.to_string())?,
        }),
        _ => Err(format!(
            "'{arg}' should be DOMAIN:OP=FILE, such as my.co:Clip2=clip.kernel"
        )),
    }
}

/// What a model is bound to.
#[derive(Args, Clone, Debug)]
pub struct ModelArgs {
    /// Inputs: an npz file whose arrays have the inputs' names, or INPUT=FILE.npy; repeatable. Commands
    /// that run nothing take the inputs' sizes from them. Random ones when not given (integers are 0
    /// or 1)
    #[arg(long, value_name = "FILE")]
    pub inputs: Vec<String>,
    /// Shape of an input, such as image=1x3x224x224, or mask=1,past+new with names; repeatable
    #[arg(long, value_name = "INPUT=SIZES", value_parser = shape)]
    pub shape: Vec<(String, Vec<Dim>)>,
    /// Size or range of a symbolic dimension, such as batch=4 or batch=1..8; repeatable
    #[arg(long, value_name = "NAME=RANGE", value_parser = dim)]
    pub dim: Vec<(String, i64, i64)>,
    /// Take every dimension of every input as a symbol, also where the model has a number for it
    #[arg(long)]
    pub open_dims: bool,
    /// State: what OUTPUT gives is what INPUT takes in the next request of a stream; repeatable. `auto`
    /// finds the pairs by the names that exporters give (past_key_values.0.key and present.0.key)
    #[arg(long, value_name = "INPUT=OUTPUT", value_parser = state)]
    pub state: Vec<StateArg>,
    /// Kernel of one's own for the nodes of an operator, as text, such as my.co:Clip2=clip.kernel
    /// (docs/custom-kernels.md); repeatable
    #[arg(long, value_name = "DOMAIN:OP=FILE", value_parser = kernel)]
    pub kernel: Vec<UserKernel>,
    /// Most graph rewrites to do, to find a bad one by bisection
    #[arg(long, value_name = "N")]
    pub fuel: Option<usize>,
    /// In what type f32 products are computed: f32, or bf16 where speed matters more than the last
    /// digits
    #[arg(long, value_name = "TYPE", value_parser = precision, default_value = "f32")]
    pub precision: Precision,
}

fn precision(text: &str) -> Result<Precision, String> {
    match text {
        "f32" => Ok(Precision::F32),
        "bf16" => Ok(Precision::Bf16),
        _ => Err(format!("'{text}' is no precision; it is f32 or bf16")),
    }
}

impl ModelArgs {
    /// These arguments for another process.
    pub fn again(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (input, dims) in &self.shape {
            let sizes: Vec<String> = dims.iter().map(ToString::to_string).collect();
            let sizes = match sizes.is_empty() {
                true => "scalar".into(),
                false => sizes.join(","),
            };
            out.extend(["--shape".into(), format!("{input}={sizes}")]);
        }
        for (name, lo, hi) in &self.dim {
            out.extend(["--dim".into(), format!("{name}={lo}..{hi}")]);
        }
        for s in &self.state {
            out.push("--state".into());
            out.push(match s {
                StateArg::Auto => "auto".into(),
                StateArg::Pair(input, output) => format!("{input}={output}"),
            });
        }
        for k in &self.kernel {
            let (domain, name, file) = (&k.domain, &k.name, &k.file);
            out.extend(["--kernel".into(), format!("{domain}:{name}={file}")]);
        }
        if self.open_dims {
            out.push("--open-dims".into());
        }
        if let Some(n) = self.fuel {
            out.extend(["--fuel".into(), n.to_string()]);
        }
        out
    }

    /// The model at `path` for a command that runs nothing, with the sizes that `--inputs` has; says
    /// which dims nobody gave.
    pub fn open(&self, path: &str) -> Result<Model, Failure> {
        let model = Model::open(path, &self.sized()?)?;
        self.tell(&model);
        Ok(model)
    }

    /// Says which dims of the model nobody gave.
    pub fn tell(&self, model: &Model) {
        tell_assumed(model, &inputs::sizes(model).1);
    }

    /// [`ModelArgs::options`] with the shapes of the tensors that `--inputs` names.
    pub fn sized(&self) -> Result<ModelOptions, Failure> {
        let mut options = self.options();
        for (name, t) in shopfloor_tools::read_inputs(&self.inputs)? {
            let shape = || t.shape().iter().map(|&n| Dim::from(n)).collect();
            options.shapes.entry(name).or_insert_with(shape);
        }
        Ok(options)
    }

    /// For the library.
    pub fn options(&self) -> ModelOptions {
        let mut dims = DimBox::new();
        for (name, lo, hi) in &self.dim {
            dims.insert(name.as_str(), *lo, *hi);
        }
        let options = ModelOptions {
            shapes: self.shape.iter().cloned().collect(),
            dims,
            states: self
                .state
                .iter()
                .filter_map(|s| match s {
                    StateArg::Auto => None,
                    StateArg::Pair(i, o) => Some((i.clone(), o.clone())),
                })
                .collect(),
            find_states: self.state.iter().any(|s| matches!(s, StateArg::Auto)),
            fuel: self.fuel,
            precision: self.precision,
            open_dims: self.open_dims,
            ..ModelOptions::default()
        };
        let each = self.kernel.iter();
        each.fold(options, |o, k| o.with_kernel(&k.domain, &k.name, &k.text))
    }
}

/// What it runs on.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// Device to run on: cpu; wgpu or wgpu:ADAPTER for a GPU through WebGPU; cuda or cuda:N for an
    /// NVIDIA GPU; emulated:a100, emulated:h100 or emulated:t4 for one that is emulated; cpu+cuda (or
    /// another GPU) for both, each step where the predicted time of all is least; `plan` also takes
    /// machines that need not be here, such as h100, cpu+h100 or a TOML file [default: cpu]
    #[arg(long = "on", value_name = "DEVICE")]
    pub on: Option<String>,
    /// Workers, the calling thread included [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// Instruction set: avx512, avx2 or portable [default: the best there is]
    #[arg(long, value_parser = isa)]
    pub isa: Option<Isa>,
    /// Machine to plan for: a name, a TOML file, `detected` or `present` [default: present]
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// What the plan is to be good at: latency or throughput, with a bound such as throughput:5ms
    #[arg(long, value_parser = goal)]
    pub goal: Option<GoalArg>,
    /// Time that 99 of 100 requests may take, such as 50ms: the bound of --goal
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "goal")]
    pub max_latency: Option<f64>,
    /// Memory that a plan may take, such as 512MiB: packed weights, arena and scratch
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Refuse a model whose weights a GPU has no room for, rather than stream them from the host
    #[arg(long)]
    pub no_streaming: bool,
}

/// Whether `on` names a device rather than a machine.
pub fn is_device(on: &str) -> bool {
    on.split('+').all(|part| {
        let kind = part.split(':').next().unwrap_or(part);
        matches!(kind, "cpu" | "wgpu" | "cuda" | "emulated")
    })
}

/// A page about it.
#[derive(Args, Clone, Debug)]
pub struct ReportArgs {
    /// Write a page that explains everything, for a browser; its data alone to a name that ends in .json
    #[arg(long, value_name = "FILE")]
    pub report: Option<String>,
    /// Show in the page what is different from another report (.html or .json), or from what
    /// `profile --json` or `plan --json` printed
    #[arg(long, value_name = "FILE", requires = "report")]
    pub against: Option<String>,
}

impl ReportArgs {
    /// What to compare with, read before anything takes time.
    pub fn other(&self) -> Result<Option<Baseline>, Failure> {
        Ok(self
            .against
            .as_deref()
            .map(pages::read_against)
            .transpose()?)
    }

    /// Writes the page that `make` makes, if one was asked for.
    pub fn write(
        &self,
        other: Option<Baseline>,
        make: impl FnOnce() -> Result<PageData, shopfloor::Error>,
    ) -> Result<(), Failure> {
        let Some(path) = &self.report else {
            return Ok(());
        };
        let mut page = make()?;
        if let Some(other) = other {
            page = page.with_against(other);
        }
        Ok(pages::save(&page, path)?)
    }
}

/// What is kept between processes.
#[derive(Args, Clone, Debug)]
pub struct CacheArgs {
    /// Folder to keep plans and packed weights in [default: shopfloor in the user's cache folder]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<std::path::PathBuf>,
    /// Keep nothing, and use nothing that was kept
    #[arg(long, conflicts_with = "cache")]
    pub no_cache: bool,
    /// What the cache may take in all, such as 500MiB; what was not used for longest goes first
    /// [default: 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes, conflicts_with = "no_cache")]
    pub cache_limit: Option<u64>,
}

impl CacheArgs {
    /// `builder` with the cache asked for.
    pub fn apply(&self, builder: SessionBuilder) -> SessionBuilder {
        let cache = match &self.cache {
            Some(folder) => Some(Cache::new(folder)),
            None => Cache::of_user(),
        };
        match (cache.filter(|_| !self.no_cache), self.cache_limit) {
            (Some(c), Some(n)) => builder.with_cache(c.with_limit(n)),
            (Some(c), None) => builder.with_cache(c),
            (None, _) => builder,
        }
    }
}

impl EngineArgs {
    /// These arguments for another process.
    pub fn again(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(d) = &self.on {
            out.extend(["--on".into(), d.clone()]);
        }
        if let Some(n) = self.threads {
            out.extend(["--threads".into(), n.to_string()]);
        }
        if let Some(i) = self.isa {
            out.extend(["--isa".into(), i.to_string()]);
        }
        if let Some(m) = &self.machine {
            out.extend(["--machine".into(), m.clone()]);
        }
        if let Some(n) = self.memory {
            out.extend(["--memory".into(), n.to_string()]);
        }
        if self.no_streaming {
            out.push("--no-streaming".into());
        }
        out
    }

    /// The machine asked for.
    pub fn machine(&self) -> Result<Option<Machine>, Failure> {
        Ok(self.machine.as_deref().map(machines::find).transpose()?)
    }

    /// The goal asked for.
    pub fn goal(&self) -> GoalArg {
        let mut g = self.goal.unwrap_or_default();
        if let Some(s) = self.max_latency {
            g.bound_s = Some(s);
            if let Goal::Throughput { max_latency_s } = &mut g.goal {
                *max_latency_s = Some(s);
            }
        }
        g
    }

    /// A session on the device asked for.
    pub fn builder(&self) -> Result<SessionBuilder, Failure> {
        let mut b = Session::builder().with_goal(self.goal().goal);
        if let Some(d) = &self.on {
            b = b.with_device(d);
        }
        if let Some(t) = self.threads {
            b = b.with_threads(t as usize);
        }
        if let Some(m) = self.memory {
            b = b.with_memory_limit(m);
        }
        if let Some(i) = self.isa {
            b = b.with_isa(i);
        }
        if let Some(m) = self.machine()? {
            b = b.with_machine(m);
        }
        if self.no_streaming {
            b = b.without_streaming();
        }
        Ok(b)
    }
}

/// Says why nothing is kept for the next load, where that is so.
pub fn tell_cache(session: &Session) {
    if let Some(why) = session.cache_problem() {
        note(why);
    }
}

/// Says where predictions could be closer, since nobody measured the CPU that they are for.
pub fn tell_machine(session: &Session) {
    let engine = session.runtime().engine();
    let machine = engine.device().machine();
    if machines::is_assumed(machine) {
        note(&format!(
            "the rates of {} are assumed; `shopfloor machines calibrate` measures them once, and predictions get closer",
            machine.name
        ));
    }
}

/// A saved plan.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Run by this saved plan (`shopfloor plan --out`)
    #[arg(long, value_name = "FILE")]
    pub plan: Option<String>,
    /// Take the plan of --plan although it was changed after it was saved: its rules are checked, and that
    /// it is of this model, but not that it computes what the model does
    #[arg(long, requires = "plan")]
    pub plan_unchecked: bool,
}

impl PlanArgs {
    /// Loads the plan, if there is one, and makes it the session's, verified.
    pub fn apply(&self, session: &Session) -> Result<(), Failure> {
        if let Some(path) = &self.plan {
            let plan = match self.plan_unchecked {
                true => planview::load_unchecked(path)?,
                false => planview::load(path)?,
            };
            session.swap_plan(plan)?;
        }
        Ok(())
    }
}

/// Says which dims were not given and are taken as 1.
pub fn tell_assumed(model: &Model, assumed: &[String]) {
    if !assumed.is_empty() {
        note(&format!(
            "dimension {} of {} not given and taken as 1; choose with --dim {}=N",
            assumed.join(", "),
            model.program().name,
            assumed[0]
        ));
    }
}
