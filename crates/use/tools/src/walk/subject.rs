//! The step that a walk is about.

use kernel::{Mapping, TileProgram};
use machine::MachineKind;
use plan::{Block, NodeFate, Plan, Step};
use report::StepView;
use shopfloor::Machine;

/// What was measured of the step.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) device: String,
    pub(super) time_us: f64,
    pub(super) workers: u32,
    pub(super) requests: usize,
}

/// The step with all that scenes are made of.
pub(super) struct Subject<'a> {
    pub(super) plan: &'a Plan,
    pub(super) block: &'a Block,
    pub(super) step: &'a Step,
    pub(super) view: StepView,
    pub(super) number: u32,
    pub(super) of: u32,
    /// The machine of the step.
    pub(super) machine: &'a Machine,
    /// Machines of the plan's devices.
    pub(super) machines: &'a [Machine],
    /// The tile program; `None` for a host step.
    pub(super) program: Option<TileProgram>,
    pub(super) fates: &'a [NodeFate],
    pub(super) measured: Option<Measured>,
    pub(super) quick: bool,
}

impl Subject<'_> {
    /// The value of a dim at the top of the plan's box.
    pub(super) fn top(&self, d: &layout::Dim) -> i64 {
        let lookup = |s: &str| self.plan.dims.get(s).map(|r| r.hi);
        d.eval(&lookup).or(d.known()).unwrap_or(1)
    }

    /// The seconds of all of the plan's steps.
    pub(super) fn all_s(&self) -> f64 {
        let steps = self.plan.blocks().flat_map(|b| &b.steps);
        steps.map(|s| s.predicted.time_s).sum()
    }

    pub(super) fn gpu(&self) -> Option<&kernel::GpuMapping> {
        match &self.program.as_ref()?.schedule().mapping {
            Mapping::Gpu(g) => Some(g),
            Mapping::Cpu(_) => None,
        }
    }

    pub(super) fn is_gpu(&self) -> bool {
        self.machine.kind == MachineKind::Gpu
    }
}
