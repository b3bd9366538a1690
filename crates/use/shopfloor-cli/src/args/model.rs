//! Which model, and with what sizes.

use crate::output::{Done, Failure, note};
use clap::Args;
use shopfloor::{Dim, DimBox, Model, ModelOptions, Precision, inputs};
use shopfloor_tools::{files, operators, report::units};
use std::path::Path;

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
    let wrong = || {
        format!(
            "'{text}' should be NAME=SIZE or NAME=FROM..TO, such as batch=1..8, with sizes from 0 to {}",
            u32::MAX
        )
    };
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

/// Refuses a name that `option` gives twice: one of the two would do nothing.
fn once<N: Ord + std::fmt::Display>(
    option: &str,
    names: impl Iterator<Item = N>,
) -> Result<(), Failure> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if seen.contains(&name) {
            return Err(Failure::Usage(format!(
                "{option} gives '{name}' twice; give it once"
            )));
        }
        seen.insert(name);
    }
    Ok(())
}

/// A kernel for the nodes of an operator.
#[derive(Clone, Debug)]
pub struct UserKernel {
    domain: String,
    name: String,
    file: String,
}

fn kernel(arg: &str) -> Result<UserKernel, String> {
    let parts = arg.split_once('=');
    let parts = parts.and_then(|(op, file)| Some((op.rsplit_once(':')?, file)));
    match parts {
        Some(((domain, name), file)) if !name.is_empty() && !file.is_empty() => Ok(UserKernel {
            domain: domain.into(),
            name: name.into(),
            file: file.into(),
        }),
        _ => Err(format!(
            "'{arg}' should be DOMAIN:OP=FILE, such as my.co:Clip2=clip.kernel"
        )),
    }
}

/// What a model is bound to.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelArgs {
    /// Inputs: an npz file with the inputs' names, or INPUT=FILE.npy; repeatable. A command that runs nothing
    /// takes their sizes [default: random]
    #[arg(long, value_name = "FILE")]
    pub inputs: Vec<String>,
    /// Size or range of a symbolic dimension, such as batch=4 or batch=1..8; repeatable
    #[arg(long, value_name = "NAME=RANGE", value_parser = dim)]
    pub dim: Vec<(String, i64, i64)>,
    /// Shape of an input, such as image=1x3x224x224, or mask=1,past+new with names; repeatable
    #[arg(long, value_name = "INPUT=SIZES", value_parser = shape)]
    pub shape: Vec<(String, Vec<Dim>)>,
    /// State of a stream: what OUTPUT gives is what INPUT takes in the next request; auto finds pairs by
    /// their names; repeatable
    #[arg(long, value_name = "INPUT=OUTPUT", value_parser = state)]
    pub state: Vec<StateArg>,
    #[command(flatten)]
    pub graph: GraphArgs,
}

/// How a model's graph is read.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct GraphArgs {
    /// Take every dimension of every input as a symbol, also where the model has a number for it
    #[arg(long)]
    pub open_dims: bool,
    /// How exactly f32 products are computed, the most exact first: exact (multiply-adds), f32 (as exact, also on
    /// matrix units), bf16x3, tf32 or bf16; what the device lacks is computed more exactly
    #[arg(long, value_name = "HOW", default_value = "f32")]
    pub precision: Precision,
    /// Kernel of your own for the nodes of an operator, as text, such as my.co:Clip2=clip.kernel
    /// (docs/custom-kernels.md); repeatable
    #[arg(long, value_name = "DOMAIN:OP=FILE", value_parser = kernel)]
    pub kernel: Vec<UserKernel>,
    /// Most graph rewrites to do, to find a bad one by bisection
    #[arg(long, value_name = "N", value_parser = super::whole::<usize>(0..))]
    pub fuel: Option<usize>,
}

impl GraphArgs {
    /// These arguments for another process.
    fn to_arguments(&self) -> Vec<String> {
        let mut out = Vec::new();
        for k in &self.kernel {
            let (domain, name, file) = (&k.domain, &k.name, &k.file);
            out.extend(["--kernel".into(), format!("{domain}:{name}={file}")]);
        }
        if self.open_dims {
            out.push("--open-dims".into());
        }
        if self.precision != Precision::default() {
            out.extend(["--precision".into(), self.precision.to_string()]);
        }
        if let Some(n) = self.fuel {
            out.extend(["--fuel".into(), n.to_string()]);
        }
        out
    }

    /// Refuses kernels for operators that no node of the model at `path` has.
    fn check(&self, path: &Path) -> Done {
        if self.kernel.is_empty() {
            return Ok(());
        }
        let has = operators(path)?;
        let lacking = self.kernel.iter().find(|k| {
            let operator = match k.domain.as_str() {
                "" | "ai.onnx" => k.name.clone(),
                domain => format!("{domain}::{}", k.name),
            };
            !has.contains(&operator)
        });
        lacking.map_or(Ok(()), |k| {
            Err(Failure::Usage(format!(
                "--kernel {}:{} does nothing for {}, which has no such node; its operators are {}",
                k.domain,
                k.name,
                path.display(),
                units::listed(&has, units::ASSUMED)
            )))
        })
    }

    /// For the library.
    ///
    /// # Errors
    /// A kernel's file cannot be read.
    pub fn options(&self) -> Result<ModelOptions, Failure> {
        let mut options = ModelOptions {
            fuel: self.fuel,
            precision: self.precision,
            open_dims: self.open_dims,
            ..ModelOptions::default()
        };
        let operator = |k: &UserKernel| format!("{}:{}", k.domain, k.name);
        once("--kernel", self.kernel.iter().map(operator))?;
        for k in &self.kernel {
            let text = shopfloor::read_text(&k.file, files::WRITTEN)?;
            options = options.with_kernel(&k.domain, &k.name, &text);
        }
        Ok(options)
    }
}

impl ModelArgs {
    /// These arguments for another process.
    pub fn to_arguments(&self) -> Vec<String> {
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
        out.extend(self.graph.to_arguments());
        out
    }

    /// The model at `path` for a command that runs nothing, with the sizes that `--inputs` has; says
    /// which dims nobody gave.
    pub fn open(&self, path: &str) -> Result<Model, Failure> {
        let model = Model::open(path, &self.sized()?)?;
        self.tell(&model)?;
        Ok(model)
    }

    /// Says which dims of the model nobody gave.
    ///
    /// # Errors
    /// As [`ModelArgs::check`].
    pub fn tell(&self, model: &Model) -> Done {
        self.check(model)?;
        tell_assumed(&model.program().name, &inputs::sizes(model).1);
        Ok(())
    }

    /// Says which sizes requests have where a range was given and no file tells.
    pub fn tell_sizes(&self) {
        if !self.inputs.is_empty() {
            return;
        }
        for (name, lo, hi) in self.dim.iter().filter(|d| d.1 < d.2) {
            note(&format!(
                "requests have {name}={hi}, the largest of {lo}..{hi} that the plan covers"
            ));
        }
    }

    /// Whether state is looked for by names.
    fn finds_states(&self) -> bool {
        self.state.iter().any(|s| matches!(s, StateArg::Auto))
    }

    /// Refuses what does nothing for the model: kernels for operators that it has not, and `--state auto` where no
    /// names say so.
    pub fn check(&self, model: &Model) -> Done {
        self.graph.check(model.path())?;
        match self.finds_states() && model.program().states.is_empty() {
            false => Ok(()),
            true => Err(Failure::Usage(format!(
                "--state auto does nothing for {}, which has no input and output whose names say that they carry state, such as past and present, and whose sizes follow each other; give what grows a range, such as --dim past=0..1024, name them as INPUT=OUTPUT, or leave it out",
                model.program().name
            ))),
        }
    }

    /// As [`ModelArgs::check`] of the model at `path`, which a command opens elsewhere.
    pub fn check_file(&self, path: &str) -> Done {
        match self.finds_states() {
            true => self.check(&Model::open(path, &self.sized()?)?),
            false => self.graph.check(path.as_ref()),
        }
    }

    /// [`ModelArgs::options`] with the shapes of the tensors that `--inputs` names.
    pub fn sized(&self) -> Result<ModelOptions, Failure> {
        let mut options = self.options()?;
        for (name, t) in shopfloor_tools::read_inputs(&self.inputs)? {
            let shape = || t.shape().iter().map(|&n| Dim::from(n)).collect();
            options.shapes.entry(name).or_insert_with(shape);
        }
        Ok(options)
    }

    /// For the library.
    ///
    /// # Errors
    /// As [`GraphArgs::options`].
    pub fn options(&self) -> Result<ModelOptions, Failure> {
        if self.finds_states() && self.state.len() > 1 {
            return Err(Failure::Usage(
                "--state auto looks for pairs where none is given; give auto or the pairs".into(),
            ));
        }
        once("--dim", self.dim.iter().map(|d| &d.0))?;
        once("--shape", self.shape.iter().map(|s| &s.0))?;
        let mut dims = DimBox::new();
        for (name, lo, hi) in &self.dim {
            dims.insert(name.as_str(), *lo, *hi);
        }
        Ok(ModelOptions {
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
            find_states: self.finds_states(),
            ..self.graph.options()?
        })
    }
}

/// Says which dims were not given and are taken as 1.
pub fn tell_assumed(model: &str, assumed: &[String]) {
    if !assumed.is_empty() {
        let are = if assumed.len() == 1 { "is" } else { "are" };
        note(&format!(
            "{} of {} {are} not given and taken as 1; choose with --dim {}=N",
            units::listed(assumed, units::ASSUMED),
            model,
            assumed[0]
        ));
    }
}
