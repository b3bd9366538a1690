//! Plans to look at, to save and to load.
use crate::targets::{Machines, Planning};
use layout::{Arrange, DimBox, Inserted};
use machine::WayTime;
use plan::{Allotment, Decisions, Plan, PlanSegment, Planner, StepWork};
use planner::{Placement, PlanOptions};
use report::{BodyView, HowRun, PlanView, counted};
use serde::Serialize;
use shopfloor::{Error, Launch, Machine, Model, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A step that runs on the host for want of a form elsewhere, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fallback {
    /// Model node (the first, where a step stands for several).
    pub node: String,
    /// Why it is a host step.
    pub reason: String,
}

/// The plan of `session`, which runs on `device`, for sizes by dimension, and what there is to show of it. A dimension
/// that is not asked for has its range, or the size that [`shopfloor::inputs::sizes`] takes.
///
/// # Errors
/// A dimension that the model does not have; what cannot be planned.
pub fn of_sizes(
    session: &Session,
    device: &str,
    asked: &BTreeMap<String, i64>,
) -> Result<(Plan, PlanView), Error> {
    let (mut sizes, _) = shopfloor::inputs::sizes(session.model());
    for (name, &n) in asked {
        match sizes.get_mut(name) {
            Some(size) => *size = n,
            None => {
                let all: Vec<&str> = sizes.keys().map(String::as_str).collect();
                let has = match all.is_empty() {
                    true => "all sizes of the model are numbers".into(),
                    false => format!("its dimensions are {}", all.join(", ")),
                };
                return Err(Error::Usage(format!(
                    "the model has no dimension '{name}' to give a size; {has}"
                )));
            }
        }
    }
    let mut dims = DimBox::new();
    for (name, n) in sizes {
        match (session.model().dims().get(&name), asked.get(&name)) {
            (Some(r), None) => dims.insert(name.as_str(), r.lo, r.hi),
            _ => dims.insert(name.as_str(), n, n),
        }
    }
    let plan = session.plan(&dims)?;
    let mut view = view(session, &plan);
    view.device = Some(device.into());
    Ok((plan, view))
}

/// What there is to show of `plan`; at most as many requests run at once as the session allows.
pub fn view(session: &Session, plan: &Plan) -> PlanView {
    let runtime = session.runtime();
    // Each run has a worker at least.
    let most = runtime.policy().max_running as u64;
    let requests = most.min(u64::from(runtime.engine().workers()));
    let mut view = PlanView::new(plan, Some(session.model().program()), requests)
        .with_bodies(bodies(session, plan));
    view.dims = shopfloor::inputs::dims_text(session.model(), &plan.dims);
    let device = runtime.engine().device();
    match device.request_way(plan) {
        Some(way) => view.with_way(&way, &plan.request_ways(device.machine())),
        None => view,
    }
}

/// Branches and loop bodies of the session's model, planned for the box of `plan`.
pub fn bodies(session: &Session, plan: &Plan) -> Vec<BodyView> {
    let runtime = session.runtime();
    let allotment = runtime.options().allotment;
    let planner = runtime.engine().planner();
    crate::bodies::bodies(session.model().program(), &plan.dims, &|program, dims| {
        planner.bind(program, dims, &allotment)
    })
}

/// As [`Whole::step`], of `plans`, the steps of which are numbered one after the other.
///
/// # Errors
/// There is none.
pub(crate) fn step_of<'p>(plans: &[&'p Plan], text: &str) -> Result<(&'p Plan, usize), Error> {
    let named = plans.iter().flat_map(|p| p.steps());
    let named = named.map(|s| (s.name.as_str(), &*s.nodes));
    let mut number = report::step_number(text, named).map_err(Error::Usage)?;
    for plan in plans {
        let steps = plan.steps().count();
        if number < steps {
            return Ok((plan, number));
        }
        number -= steps;
    }
    Err(Error::Usage(format!("the plan has no step '{text}'")))
}

/// A plan for machines that need not be there, with the branches and loop bodies of its control flow,
/// planned on their own.
#[derive(Debug)]
pub struct Whole {
    /// The plan.
    pub plan: Plan,
    /// Branches and loop bodies.
    pub bodies: Vec<BodyView>,
    /// Sizes that only data gives, as they are taken (`n=1`).
    pub taken: Vec<String>,
    /// The way by which its steps reach an NVIDIA GPU: the one asked for, or the shorter of launching them and
    /// of graphs.
    pub way: Option<WayTime>,
    /// Every way that there is, the shortest first.
    pub ways: Vec<WayTime>,
    /// That way and the precision, in words.
    pub how: HowRun,
}

impl Whole {
    /// The plan and those of branches and loop bodies, in the order of their steps' numbers.
    pub fn plans(&self) -> Vec<&Plan> {
        let bodies = self.bodies.iter().flat_map(BodyView::all);
        let inside = bodies.filter_map(|b| b.plan.as_deref());
        std::iter::once(&self.plan).chain(inside).collect()
    }

    /// The plan that has the step of this number or name, or with a node of this name, and its number there.
    ///
    /// # Errors
    /// There is none.
    pub fn step(&self, text: &str) -> Result<(&Plan, usize), Error> {
        step_of(&self.plans(), text)
    }

    /// Predicted seconds of branches and loop bodies: the costlier branch, a body as often as it runs,
    /// once where that is known only when it runs.
    pub fn bodies_s(&self) -> f64 {
        report::bodies_us(&self.bodies) * 1e-6
    }

    /// Predicted seconds of a request.
    pub fn seconds(&self) -> f64 {
        let way = self.way.as_ref().map(WayTime::with_copies_s);
        way.unwrap_or(self.plan.predicted.time_s) + self.bodies_s()
    }

    /// Bytes that a request needs in the memory of the plan's last device.
    pub fn memory(&self) -> u64 {
        let place = self.plan.devices.len().saturating_sub(1) as u32;
        // Constants of branches and bodies are there all the time, their arenas one after the other.
        let inside = || self.bodies.iter().filter_map(|b| b.memory.as_ref());
        let constants: u64 = inside().map(|m| m.packed + m.weights_in_place).sum();
        let arena = inside().map(|m| m.arena).max().unwrap_or(0);
        let own = report::MemoryView::of(&self.plan, 1).arena;
        report::memory_on(&self.plan, place) + constants + arena.saturating_sub(own)
    }

    /// A sentence where that is more than `machine`, the last device, has.
    pub fn too_large(&self, machine: &Machine) -> Option<String> {
        let (needs, has) = (self.memory() as f64, machine.memory().bytes.value);
        let size = report::units::bytes;
        (needs > has).then(|| {
            format!(
                "a request of {} needs {} of the memory of {}, which has {}",
                self.plan.model,
                size(needs),
                machine.name,
                size(has)
            )
        })
    }

    /// What figures over several machines count of control flow, without any of theirs.
    pub fn counted(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let is = |b: &&BodyView, which: &str| b.which == which;
        let names = |list: Vec<&BodyView>| {
            let names: Vec<&str> = list.iter().map(|b| b.node.as_str()).collect();
            report::units::listed(&names, 3)
        };
        let ifs: Vec<&BodyView> = self.bodies.iter().filter(|b| is(b, "then")).collect();
        if !ifs.is_empty() {
            lines.push(format!("Of {} the costlier branch is counted.", names(ifs)));
        }
        let loops = || self.bodies.iter().filter(|b| is(b, "body"));
        let known: Vec<&BodyView> = loops().filter(|b| b.times.is_some()).collect();
        if !known.is_empty() {
            lines.push(format!(
                "Bodies of {} are counted as often as they run.",
                names(known)
            ));
        }
        let open: Vec<&BodyView> = loops().filter(|b| b.times.is_none()).collect();
        if !open.is_empty() {
            lines.push(format!(
                "Bodies of {} are counted once: how often they run is known only when they do.",
                names(open)
            ));
        }
        lines.extend(self.late());
        lines
    }

    /// What is left out or taken for granted, if anything.
    fn late(&self) -> Vec<String> {
        let mut out = Vec::new();
        if self
            .plan
            .segments
            .iter()
            .any(|s| matches!(s, PlanSegment::Deferred { .. }))
        {
            out.push(
                "What is planned only when the data has given its sizes is not in these figures."
                    .into(),
            );
        }
        let inside = counted(&self.bodies).into_iter();
        let inside: Vec<&BodyView> = inside.map(|(b, _)| b).collect();
        let mut taken: Vec<&str> = self.taken.iter().map(String::as_str).collect();
        taken.extend(inside.iter().flat_map(|b| &b.taken).map(String::as_str));
        taken.arrange();
        taken.dedup();
        if !taken.is_empty() {
            out.push(format!(
                "Sizes that only data gives are taken as {}.",
                taken.join(", ")
            ));
        }
        for b in inside.iter().filter(|b| b.predicted_us.is_none()) {
            out.push(format!(
                "{} ({}) is not in these figures: {}.",
                b.node,
                b.which,
                b.why
                    .as_deref()
                    .unwrap_or("its sizes are known only when it runs")
                    .trim_end_matches('.')
            ));
        }
        out
    }

    /// What the figures count of control flow, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let lines = report::bodies_text(&self.bodies);
        let mut lines: Vec<String> = lines.iter().map(|l| format!("{l}.")).collect();
        lines.extend(self.late());
        lines
    }
}

/// The plan of `model` for `machine` with `target`, as [`plan_with`], and its control flow.
///
/// # Errors
/// As [`plan_for`].
pub fn whole_with(
    model: &Model,
    (machine, target): (&Machine, kernel::Target),
    planning: &Planning,
    dims: &DimBox,
) -> Result<Whole, Error> {
    let devices = devices(machine, target)?;
    plan_over(model, devices, planning, dims, true)
}

/// The plan of `model` for `machines` and its control flow.
///
/// # Errors
/// As [`plan_for`] and [`Machines::planned`].
pub fn whole_on(
    model: &Model,
    machines: &Machines,
    planning: &Planning,
    dims: &DimBox,
) -> Result<Whole, Error> {
    plan_over(model, machines.planned(planning)?, planning, dims, true)
}

/// The plan of `model` for a machine that need not be there. A GPU runs every kernel that its target
/// has schedules for; host operators and what is left run on the CPU at hand, with copies between.
///
/// # Errors
/// Dims without a range, or sizes that do not fit.
pub fn plan_for(
    model: &Model,
    machine: &Machine,
    planning: &Planning,
    dims: &DimBox,
) -> Result<Plan, Error> {
    let target = planning.target(machine)?;
    plan_with(model, (machine, target), planning, dims)
}

/// [`plan_for`] with another target than ours: the vendor's, or ours with something changed.
///
/// # Errors
/// As [`plan_for`].
pub fn plan_with(
    model: &Model,
    (machine, target): (&Machine, kernel::Target),
    planning: &Planning,
    dims: &DimBox,
) -> Result<Plan, Error> {
    let devices = devices(machine, target)?;
    let whole = plan_over(model, devices, planning, dims, false)?;
    Ok(whole.plan)
}

/// `machine` with another target than ours, and before a GPU the CPU at hand.
fn devices(
    machine: &Machine,
    target: kernel::Target,
) -> Result<(Vec<(Machine, kernel::Target)>, Placement), Error> {
    let own = Machines::from(machine.clone());
    let (mut devices, placement) = own.planned(&Planning::default())?;
    if let Some(last) = devices.last_mut() {
        last.1 = target;
    }
    Ok((devices, placement))
}

/// The plan of `model` for `machines`.
///
/// # Errors
/// As [`plan_for`] and [`Machines::planned`].
pub fn plan_on(
    model: &Model,
    machines: &Machines,
    planning: &Planning,
    dims: &DimBox,
) -> Result<Plan, Error> {
    Ok(plan_over(model, machines.planned(planning)?, planning, dims, false)?.plan)
}

/// Whether `machine` runs `plan` by the way that it was made for.
///
/// # Errors
/// It does not; the step that prevents it is named.
pub fn refused(plan: &Plan, machine: &Machine) -> Result<(), Error> {
    let why = plan.launch.and_then(|way| plan.why_not(machine, way));
    why.map_or(Ok(()), |why| Err(Error::Usage(why)))
}

/// Whether requests of `session`, which has compiled a plan, reach its device by the way `asked` for.
///
/// # Errors
/// They do not, and it is not for want of memory; the step that prevents it is named.
pub fn took(session: &Session, asked: Launch) -> Result<(), Error> {
    let runtime = session.runtime();
    if runtime.launched().contains(&asked) {
        return Ok(());
    }
    let machine = runtime.engine().device().machine().clone();
    let plans = runtime.plans();
    let why = plans.iter().find_map(|p| p.plan().why_not(&machine, asked));
    why.map_or(Ok(()), |why| Err(Error::Usage(why)))
}

/// The plan of `model` over `devices`, the threads of `planning` being the first's; `inside` says whether
/// control flow is planned as well.
fn plan_over(
    model: &Model,
    (devices, placement): (Vec<(Machine, kernel::Target)>, Placement),
    planning: &Planning,
    dims: &DimBox,
    inside: bool,
) -> Result<Whole, Error> {
    let last = devices.last().map(|(machine, _)| machine.clone());
    let workers = devices
        .iter()
        .enumerate()
        .map(|(i, (m, _))| match i {
            0 => planning.threads.unwrap_or_else(|| m.worker_count()) as u32,
            _ => m.worker_count() as u32,
        })
        .collect();
    let options = PlanOptions {
        placement,
        ..PlanOptions::default()
    };
    let planner = planner::Planner::new(devices, options);
    let allotment = Allotment {
        workers,
        memory: planning.memory,
        goal: planning.goal,
    };
    // What cannot be planned before there is data is predicted with sizes of what it may be.
    let (late, taken) = match inside {
        true => crate::bodies::with_late(model.program(), dims.clone(), 0),
        false => (dims.clone(), vec![]),
    };
    let bound = planner.bind(model.program(), &late, &allotment);
    let (mut plan, taken) = match bound {
        Err(_) if late != *dims => (planner.bind(model.program(), dims, &allotment)?, vec![]),
        other => (other?, taken),
    };
    let bodies = match inside {
        true => crate::bodies::bodies(model.program(), &plan.dims, &|program, dims| {
            planner.bind(program, dims, &allotment)
        }),
        false => vec![],
    };
    plan.launch = planning.launch;
    let (way, ways) = match &last {
        Some(m) => {
            refused(&plan, m)?;
            (plan.request_way(m, None), plan.request_ways(m))
        }
        None => (None, vec![]),
    };
    let by: BTreeSet<_> = way.iter().map(|t| t.way).inserted();
    let inside = bodies.iter().flat_map(BodyView::all);
    let inside: Vec<&Plan> = inside.filter_map(|b| b.plan.as_deref()).collect();
    Ok(Whole {
        how: HowRun::of((&plan, &inside), Some(model.program()), &by),
        way,
        ways,
        plan,
        bodies,
        taken,
    })
}

/// What runs where in a request, counted over every plan that the session has made, with sizes at the
/// top of each plan's box.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// Steps by device, copies between devices left out.
    pub steps_by_device: BTreeMap<String, usize>,
    /// Floating-point operations by device.
    pub flop_by_device: BTreeMap<String, f64>,
    /// Bytes copied between devices' memories.
    pub bytes_moved: u64,
}

/// Names of the devices of `plan`, the first being the host where there are several.
fn device_names(session: &Session, plan: &Plan) -> Vec<String> {
    let own = session.runtime().engine().device().name().to_string();
    match plan.devices.len() {
        0 | 1 => vec![own],
        n => {
            let mut names = vec!["cpu".to_string()];
            names.extend((1..n).map(|_| own.clone()));
            names
        }
    }
}

/// What runs where.
pub fn shares(session: &Session) -> Shares {
    let mut out = Shares::default();
    for plan in session.runtime().plans() {
        let plan = plan.plan();
        let names = device_names(session, plan);
        // A device that runs a plan alone is given the request's values, and runs host operators on
        // copies of theirs.
        let alone = plan.devices.len() < 2 && session.runtime().engine().device().place().is_some();
        for block in plan.blocks() {
            let size = |b: u32| block.buffers[b as usize].bytes;
            if alone {
                let ports = block.inputs.iter().chain(&block.outputs);
                out.bytes_moved += ports.map(|p| size(p.buffer)).sum::<u64>();
            }
            for step in &block.steps {
                if let (
                    true,
                    StepWork::Host {
                        inputs, outputs, ..
                    },
                ) = (alone, &step.work)
                {
                    let all = inputs.iter().flatten().chain(outputs);
                    out.bytes_moved += all.map(|a| size(a.buffer)).sum::<u64>();
                    *out.steps_by_device.entry("cpu".into()).or_default() += 1;
                    continue;
                }
                if block.is_transfer(step) {
                    if let StepWork::Kernel { kernel, args, .. } = &step.work {
                        let size = kernel.operands.first().and_then(|o| {
                            let n = plan.dims.at_top(&o.elements)?;
                            o.dtype.bytes_for(usize::try_from(n).ok()?)
                        });
                        let most = args.first().map(|&b| block.buffers[b as usize].bytes);
                        out.bytes_moved += size.map_or(most.unwrap_or(0), |n| n as u64);
                    }
                    continue;
                }
                let name = names.get(step.device as usize).cloned();
                let name = name.unwrap_or_else(|| format!("device {}", step.device));
                *out.steps_by_device.entry(name.clone()).or_default() += 1;
                *out.flop_by_device.entry(name).or_default() += step.cost_work.flop();
            }
        }
    }
    if session.runtime().engine().device().machine().is_unified() {
        // What one side made, the other reads where it lies.
        out.bytes_moved = 0;
    }
    out
}

/// Steps of `plan` that are not where the rest is: host operators, and on a GPU kernels that it has no
/// form for.
pub fn fallbacks_of(plan: &Plan) -> Vec<Fallback> {
    let decisions = Decisions::of(&plan.whys);
    let mut out: Vec<Fallback> = Vec::new();
    let mut known = BTreeSet::new();
    for (block, step) in plan
        .blocks()
        .flat_map(|b| b.steps.iter().map(move |s| (b, s)))
    {
        let reason = match &step.work {
            StepWork::Host { op, .. } => op.reason.clone(),
            StepWork::Kernel { .. }
                if plan.devices.len() > 1
                    && step.device == 0
                    && !step.nodes.is_empty()
                    && !block.is_transfer(step) =>
            {
                let of = |pass: &str| decisions.last(pass, &step.name);
                match (of("place"), of("cut")) {
                    (Some(w), _) => w.reason.clone(),
                    // It has a form on both, and the host's is the better one.
                    (None, Some(_)) => continue,
                    (None, None) => "planned for the host".into(),
                }
            }
            StepWork::Kernel { .. } => continue,
        };
        let node = step.nodes.first().unwrap_or(&step.name).clone();
        if known.insert(node.clone()) {
            out.push(Fallback { node, reason });
        }
    }
    out
}

/// [`fallbacks_of`] every plan that the session has made, each node once.
pub fn fallbacks(session: &Session) -> Vec<Fallback> {
    let mut out: Vec<Fallback> = Vec::new();
    let mut known = BTreeSet::new();
    for plan in session.runtime().plans() {
        for f in fallbacks_of(plan.plan()) {
            if known.insert(f.node.clone()) {
                out.push(f);
            }
        }
    }
    out
}

/// Writes `plan` to `path`; the same plan gives the same bytes.
///
/// # Errors
/// A file that cannot be written.
pub fn save(plan: &Plan, path: impl AsRef<Path>) -> Result<(), Error> {
    shopfloor::write_file(path, plan.to_json()?)
}

/// Reads the plan at `path`; it is verified, and compared with the model, when a session takes it
/// ([`Session::swap_plan`]).
///
/// # Errors
/// A file that cannot be read, is no plan, or was changed after it was saved.
pub fn load(path: impl AsRef<Path>) -> Result<Plan, Error> {
    read(path.as_ref(), Plan::from_json)
}

/// As [`load`] for a plan that was changed on purpose: its checksum is not compared.
///
/// # Errors
/// A file that cannot be read or is no plan.
pub fn load_unchecked(path: impl AsRef<Path>) -> Result<Plan, Error> {
    read(path.as_ref(), Plan::from_json_unchecked)
}

fn read(path: &Path, parse: fn(&str) -> Result<Plan, plan::PlanError>) -> Result<Plan, Error> {
    let text = shopfloor::read_text(path, files::MADE)?;
    parse(&text).map_err(|e| Error::PlanFile {
        path: path.display().to_string(),
        source: e.into(),
    })
}
