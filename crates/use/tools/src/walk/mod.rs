//! A walk: one step of a model followed from the graph to the registers and back, with its own figures.
//!
//! Everything is read off what the rest already knows: the plan with its whys, the tile program, the text
//! emitted for it, the calculators, the emulator's counts, and, where the device is here, a measured run.

mod bill;
mod code;
mod cpu_code;
mod cpu_lanes;
mod emulated;
mod gpu;
mod graph;
pub(crate) mod lanes;
mod narration;
mod place;
mod subject;
mod tiles;
mod waiting;
mod wgsl_lanes;

use crate::planview;
use crate::targets::{Machines, Planning, is_device};
use kernel::TileProgram;
use plan::{Decisions, Plan, Step, StepWork};
use report::StepView;
use report::walk::{Walk, WalkStep};
use shopfloor::{Error, Machine, Model, ModelOptions, SessionBuilder, Tensor, inputs};
use std::path::Path;
use subject::{Measured, Subject};

/// What made a walk.
const TOOL: &str = concat!("shopfloor ", env!("CARGO_PKG_VERSION"));
/// Requests before measuring, and measured.
const REQUESTS: (usize, usize) = (3, 10);
/// Names given beside an error.
const SHOWN: usize = 5;

/// Which step is followed, and where.
#[derive(Clone, Default)]
pub struct WalkOptions {
    /// A device (`cpu`, `cuda`, `wgpu`, `emulated:a100`), where the model is run and measured too, or a
    /// machine as [`shopfloor::machines::find`] names it, which need not be here.
    pub on: String,
    /// The step, by number or name; the costliest when neither this nor a node is given.
    pub step: Option<String>,
    /// A node of the model: the step that it is part of.
    pub node: Option<String>,
    /// Leaves out what takes tools or time: machine code and a measured run.
    pub quick: bool,
    /// What is run on a device, by name; random values where there is nothing.
    pub inputs: Vec<(String, Tensor)>,
    /// How the session is made that is measured on a device; its device is [`WalkOptions::on`].
    pub builder: SessionBuilder,
    /// How a machine that need not be here is planned for.
    pub planning: Planning,
}

fn usage<T>(why: String) -> Result<T, Error> {
    Err(Error::Usage(why))
}

/// The walk through a step of the model at `path`.
///
/// # Errors
/// A model that cannot be read or planned, a machine, step or node that there is not, or a request that
/// fails where it is run.
pub fn walk(
    path: impl AsRef<Path>,
    options: &ModelOptions,
    walk: &WalkOptions,
) -> Result<Walk, Error> {
    let path = path.as_ref();
    if is_device(&walk.on) {
        let builder = walk.builder.clone().with_device(&walk.on);
        let session = builder
            .with_model_options(options.clone())
            .commit_from_file(path)?;
        let named = match walk.inputs.is_empty() {
            true => {
                let (sizes, _) = inputs::sizes(session.model());
                inputs::random_inputs(session.model(), &sizes)?
            }
            false => walk.inputs.clone(),
        };
        let (warmup, active) = if walk.quick { (0, 1) } else { REQUESTS };
        let (profile, _) = shopfloor::profile(&session, &named, warmup, active)?;
        let plans = session.runtime().plans();
        let plans: Vec<&Plan> = plans.iter().map(|p| p.plan()).collect();
        let Some(plan) = plans.first() else {
            return usage(format!(
                "{} has no steps to walk through: nothing of it is computed",
                path.display()
            ));
        };
        let machine = session.runtime().engine().device().machine().clone();
        let machines = match plan.devices.len() {
            0 | 1 => vec![machine],
            _ => vec![shopfloor::machines::find("detected")?, machine],
        };
        let measured = |name: &str| {
            let found = profile.steps.iter().find(|s| s.step.name == name)?;
            Some(Measured {
                device: profile.device.clone(),
                time_us: found.time_us / found.runs.max(1.0),
                workers: found.workers,
                requests: active,
            })
        };
        return through(session.model(), &plans, &machines, walk, &measured);
    }
    let machines = Machines::named(&walk.on)?;
    planned(&Model::open(path, options)?, &machines, walk)
}

/// The walk through a step of `model` as it is planned for `machines`, which need not be here: nothing runs,
/// and [`WalkOptions::on`] does not matter.
///
/// # Errors
/// A model that cannot be planned, a step or node that there is not.
pub fn planned(model: &Model, machines: &Machines, walk: &WalkOptions) -> Result<Walk, Error> {
    let (sizes, _) = inputs::sizes(model);
    let dims = inputs::box_of(model, &sizes);
    let whole = planview::whole_on(model, machines, &walk.planning, &dims)?;
    through(model, &whole.plans(), &machines.devices()?, walk, &|_| None)
}

/// The bundled two-layer model.
const TOUR: &[u8] = include_bytes!("two_layers.onnx");
/// Rows that fill a GPU with more than one wave.
const TOUR_ROWS: i64 = 16_384;

/// The walk through the bundled two-layer model, for a newcomer.
///
/// # Errors
/// As [`walk`].
pub fn tour(options: &WalkOptions) -> Result<Walk, Error> {
    let folder = std::env::temp_dir().join(format!("shopfloor-tour-{}", std::process::id()));
    let io = |source| Error::Io {
        path: folder.display().to_string(),
        source,
    };
    std::fs::create_dir_all(&folder).map_err(io)?;
    let path = folder.join("two_layers.onnx");
    let made = files::write(&path, TOUR).map_err(io).and_then(|()| {
        let mut bound = ModelOptions::default();
        bound.dims.insert("rows", TOUR_ROWS, TOUR_ROWS);
        walk(&path, &bound, options)
    });
    // What is left behind there hurts nobody.
    let _ = std::fs::remove_dir_all(&folder);
    made
}

/// Writes a walk: its page, or to a name that ends in `.json` its data alone.
///
/// # Errors
/// A file that cannot be written.
pub fn save(walk: &Walk, path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    let io = |source| Error::Io {
        path: path.display().to_string(),
        source,
    };
    let json = path.extension().is_some_and(|e| e == "json");
    let text = if json { walk.json() } else { walk.html() };
    let text = text.map_err(|e| io(std::io::Error::other(e)))?;
    shopfloor::write_file(path, text)
}

/// The number of the step that is followed, counted over all plans, and why it is that one.
fn chosen(plans: &[&Plan], options: &WalkOptions) -> Result<(usize, &'static str), Error> {
    let steps: Vec<&Step> = plans.iter().flat_map(|p| p.steps()).collect();
    let few = |names: Vec<&str>| report::units::listed(&names, SHOWN);
    match (&options.step, &options.node) {
        (Some(_), Some(_)) => usage("both a step and a node are named; name one of them".into()),
        (Some(step), None) => {
            let named = steps.iter().map(|s| (s.name.as_str(), &*s.nodes));
            let found = report::step_number(step, named).map_err(Error::Usage)?;
            Ok((found, "the step asked for"))
        }
        (None, Some(node)) => {
            let has = |exact: bool| {
                (0..steps.len()).find(|i| {
                    let mut all = steps[*i].nodes.iter();
                    all.any(|n| {
                        if exact {
                            n == node
                        } else {
                            n.contains(node.as_str())
                        }
                    })
                })
            };
            if let Some(i) = has(true).or_else(|| has(false)) {
                return Ok((i, "the step of the node asked for"));
            }
            let names = steps.iter().flat_map(|s| &s.nodes);
            usage(format!(
                "no step has a node '{node}' in it; there are {}",
                few(names.map(String::as_str).collect())
            ))
        }
        (None, None) => {
            let devices = plans.first().map_or(0, |p| p.devices.len());
            let last = devices.saturating_sub(1) as u32;
            let time = |i: &usize| steps[*i].predicted.time_s;
            let most = |on: &dyn Fn(&Step) -> bool| {
                let all = (0..steps.len()).filter(|i| on(steps[*i]));
                all.max_by(|a, b| time(a).total_cmp(&time(b)).then(b.cmp(a)))
            };
            // Copies between devices and what the host does are not what the machine was named for.
            let own = most(&|s| s.device == last && !s.nodes.is_empty());
            match own.or_else(|| most(&|_| true)) {
                Some(i) => Ok((i, "the kernel that takes longest")),
                None => usage(
                    "the plan has no steps to walk through: nothing of the model is computed"
                        .into(),
                ),
            }
        }
    }
}

fn through(
    model: &Model,
    plans: &[&Plan],
    machines: &[Machine],
    options: &WalkOptions,
    measured: &dyn Fn(&str) -> Option<Measured>,
) -> Result<Walk, Error> {
    let (number, why) = chosen(plans, options)?;
    let blocks = plans.iter().flat_map(|p| p.blocks().map(move |b| (*p, b)));
    let mut all = blocks.flat_map(|(p, b)| b.steps.iter().map(move |s| (p, b, s)));
    let of = plans.iter().map(|p| p.steps().count()).sum::<usize>();
    let Some((plan, block, step)) = all.nth(number) else {
        return usage(format!("the plan has no step {number}"));
    };
    let program = match &step.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => Some(TileProgram::new(kernel.clone(), schedule.clone())?),
        StepWork::Host { .. } => None,
    };
    let last = machines.len().saturating_sub(1);
    let s = Subject {
        plan,
        block,
        step,
        view: StepView::new(number as u32, step, &plan.dims, &Decisions::of(&plan.whys)),
        number: number as u32,
        of: of as u32,
        machine: &machines[(step.device as usize).min(last)],
        machines,
        program,
        fates: &model.program().fates,
        measured: measured(&step.name),
        quick: options.quick,
    };
    let mut scenes = vec![graph::node(&s), graph::choice(&s)];
    let emitted = code::emitted(&s);
    let counted = emulated::run(&s, &emitted);
    scenes.extend(graph::program(&s));
    scenes.extend(code::scene(&s, &emitted));
    scenes.push(place::launch(&s));
    scenes.push(place::memory(&s));
    scenes.extend(place::grid(&s));
    scenes.extend(gpu::warps(&s, &emitted));
    scenes.extend(waiting::scene(&s, &counted));
    scenes.extend(gpu::lanes(&s, &counted));
    scenes.extend(cpu_lanes::scene(&s));
    scenes.extend(tiles::scene(&s, &counted));
    scenes.extend(bill::levels(&s));
    scenes.push(bill::bill(&s));
    let device = plan.devices.get(step.device as usize);
    let unvalidated = crate::targets::Kernels::Ours.unvalidated(s.machine);
    let note = match (&s.measured, unvalidated) {
        (Some(m), _) => format!("Measured figures are medians of {} requests.", m.requests),
        (None, true) => "Every time is predicted; of our kernels on GPUs only an H200's were compared with measurements, as they were in November 2026 (bench/gpu/h200.md).".into(),
        (None, false) => "Every time is predicted.".into(),
    };
    Ok(Walk {
        schema: Walk::SCHEMA,
        version: Walk::VERSION,
        tool: TOOL.into(),
        model: model.program().name.clone(),
        dims: shopfloor::inputs::dims_text(model, &plan.dims),
        machine: s.machine.name.clone(),
        kind: s.machine.kind,
        target: device.map_or_else(String::new, |d| d.target.clone()),
        device: s.measured.as_ref().map(|m| m.device.clone()),
        note,
        step: WalkStep {
            number: s.number,
            of: s.of,
            name: step.name.clone(),
            nodes: step.nodes.clone(),
            family: s.view.family.clone(),
            shapes: s.view.shapes.clone(),
            schedule: s.view.schedule.clone(),
            chosen: why,
        },
        scenes,
    })
}
