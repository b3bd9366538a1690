//! Plans to look at, to save and to load.
use crate::{Error, Machine, Model, Session};
use layout::DimBox;
use plan::{Allotment, Goal, Plan, Planner, StepWork};
use report::PlanView;
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
    PlanView::new(
        plan,
        Some(session.model().program()),
        session.runtime().options().max_running as u64,
    )
}

/// The plan of `model` for a machine that need not be there. CPUs only: what a GPU runs is planned
/// when its backend is.
///
/// # Errors
/// A GPU, dims without a range, or sizes that do not fit.
pub fn plan_for(
    model: &Model,
    machine: &Machine,
    threads: Option<usize>,
    goal: Goal,
    dims: &DimBox,
) -> Result<Plan, Error> {
    if machine.kind != machine::MachineKind::Cpu {
        return Err(Error::Usage(format!(
            "machine '{}' is a GPU, and there is no backend for whole models on it yet; name a CPU (`shopfloor machines list`)",
            machine.name
        )));
    }
    let isa = cpu::isa::Isa::ALL.into_iter().find(|i| match i {
        cpu::isa::Isa::Avx512 => machine.isa.has("avx512f"),
        cpu::isa::Isa::Avx2 => machine.isa.has("avx2"),
        _ => true,
    });
    let target = cpu::target(isa.unwrap_or(cpu::isa::Isa::Portable));
    let planner = planner::Planner::new(
        vec![(machine.clone(), target)],
        planner::PlanOptions::default(),
    );
    let workers = threads.unwrap_or_else(|| machine.worker_count()) as u32;
    Ok(planner.bind(
        model.program(),
        dims,
        &Allotment {
            workers: vec![workers],
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
