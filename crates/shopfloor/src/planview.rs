//! Plans to look at, to save and to load.
use crate::{Error, Machine, Model, Session};
use layout::DimBox;
use plan::{Allotment, Goal, Plan, Planner, StepWork};
use report::{BodyView, PlanView};
use serde::Serialize;
use std::path::Path;

/// A step that no kernel family of ours covers, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fallback {
    /// Model node (the first, where a step stands for several).
    pub node: String,
    /// Why it is a host step.
    pub reason: String,
}

/// What there is to show of `plan`; at most as many requests run at once as the session allows.
pub fn view(session: &Session, plan: &Plan) -> PlanView {
    let requests = session.runtime().options().max_running as u64;
    PlanView::new(plan, Some(session.model().program()), requests)
        .with_bodies(bodies(session, plan))
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

/// The target for `machine`: our CPU code for its widest instruction set, or PTX.
///
/// # Errors
/// A GPU that no code is printed for.
fn target_of(machine: &Machine) -> Result<kernel::Target, Error> {
    if machine.kind == machine::MachineKind::Cpu {
        let isa = cpu::isa::Isa::ALL.into_iter().find(|i| match i {
            cpu::isa::Isa::Avx512 => machine.isa.has("avx512f"),
            cpu::isa::Isa::Avx2 => machine.isa.has("avx2"),
            _ => true,
        });
        return Ok(cpu::target(isa.unwrap_or(cpu::isa::Isa::Portable)));
    }
    let arch = emit::ptx::ARCHS.into_iter().find(|a| machine.isa.has(a));
    arch.map(emit::ptx::target).ok_or_else(|| {
        Error::Usage(format!(
            "machine '{}' is a GPU that no code is printed for; its description must name one of {} in isa.features",
            machine.name,
            emit::ptx::ARCHS.join(", ")
        ))
    })
}

/// The plan of `model` for a machine that need not be there. A GPU runs every kernel that its target
/// has schedules for; host operators and what is left run on the CPU at hand, with copies between.
///
/// # Errors
/// A machine that no target fits, dims without a range, or sizes that do not fit.
pub fn plan_for(
    model: &Model,
    machine: &Machine,
    threads: Option<usize>,
    goal: Goal,
    dims: &DimBox,
) -> Result<Plan, Error> {
    let own = (machine.clone(), target_of(machine)?);
    let devices = match machine.kind {
        machine::MachineKind::Cpu => vec![own],
        machine::MachineKind::Gpu => {
            let host = crate::machines::find("detected")?;
            let target = target_of(&host)?;
            vec![(host, target), own]
        }
    };
    let workers = devices
        .iter()
        .enumerate()
        .map(|(i, (m, _))| match i {
            0 => threads.unwrap_or_else(|| m.worker_count()) as u32,
            _ => m.worker_count() as u32,
        })
        .collect();
    let planner = planner::Planner::new(devices, planner::PlanOptions::default());
    Ok(planner.bind(
        model.program(),
        dims,
        &Allotment {
            workers,
            memory: None,
            goal,
        },
    )?)
}

/// Host steps of every plan that the session has made, each node once.
pub fn fallbacks(session: &Session) -> Vec<Fallback> {
    let mut out: Vec<Fallback> = Vec::new();
    for plan in session.runtime().plans() {
        for step in plan.plan().blocks().flat_map(|b| &b.steps) {
            if let StepWork::Host { op, .. } = &step.work {
                let node = step.nodes.first().unwrap_or(&step.name).clone();
                if !out.iter().any(|f| f.node == node) {
                    out.push(Fallback {
                        node,
                        reason: op.reason.clone(),
                    });
                }
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
    let path = path.as_ref();
    let io = |source| Error::Io {
        path: path.display().to_string(),
        source,
    };
    let text = plan.to_json()?;
    std::fs::write(path, text).map_err(io)
}

/// Reads the plan at `path`; it is verified when a session takes it ([`Session::swap_plan`]).
///
/// # Errors
/// A file that cannot be read or is no plan.
pub fn load(path: impl AsRef<Path>) -> Result<Plan, Error> {
    let path = path.as_ref();
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
        path: path.display().to_string(),
        source,
    })?;
    Plan::from_json(&text).map_err(|e| Error::PlanFile {
        path: path.display().to_string(),
        source: e,
    })
}
