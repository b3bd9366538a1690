//! Plans over the CPU and one GPU, cut where the predicted time is least.
use device::Device;
use machine::Machine;
use plan::{
    Allotment, Candidate, Observations, Plan, PlanError, Planner, Program, Serving, VerifiedPlan,
};
use planner::{Placement, PlanOptions};

/// The planner of an engine on `cpu+` a GPU.
#[cfg_attr(not(any(feature = "cuda", feature = "webgpu")), allow(dead_code))]
pub(crate) struct SplitPlanner {
    /// The host's.
    workers: u32,
    planner: planner::Planner,
}

#[cfg_attr(not(any(feature = "cuda", feature = "webgpu")), allow(dead_code))]
impl SplitPlanner {
    /// For `host` and `device`, which is planned for as `machine`.
    pub fn new(host: &dyn Device, device: &dyn Device, machine: Machine) -> SplitPlanner {
        let options = PlanOptions {
            placement: Placement::Cut,
            ..PlanOptions::default()
        };
        let host_side = (host.machine().clone(), host.target().clone());
        let both = vec![host_side, (machine, device.target().clone())];
        SplitPlanner {
            workers: host.workers() as u32,
            planner: planner::Planner::new(both, options),
        }
    }

    fn both(&self, a: &Allotment) -> Allotment {
        let mut both = a.clone();
        both.workers.insert(0, self.workers);
        both
    }
}

impl Planner for SplitPlanner {
    fn bind(
        &self,
        program: &Program,
        dims: &layout::DimBox,
        allotment: &Allotment,
    ) -> Result<Plan, PlanError> {
        self.planner.bind(program, dims, &self.both(allotment))
    }

    fn bind_like(
        &self,
        program: &Program,
        dims: &layout::DimBox,
        allotment: &Allotment,
        likes: &[&VerifiedPlan],
    ) -> Result<Plan, PlanError> {
        let both = self.both(allotment);
        self.planner.bind_like(program, dims, &both, likes)
    }

    fn setting(&self) -> String {
        self.planner.setting()
    }

    fn propose(&self, o: &Observations, s: &[Serving]) -> Vec<Candidate> {
        let both: Vec<Allotment> = s.iter().map(|s| self.both(s.allotment)).collect();
        let serving: Vec<Serving> = s
            .iter()
            .zip(&both)
            .map(|(s, allotment)| Serving { allotment, ..*s })
            .collect();
        let mut out = self.planner.propose(o, &serving);
        for c in out.iter_mut().flat_map(|c| &mut c.changes) {
            // The session's own allotment knows of no host.
            c.allotment.workers.remove(0);
        }
        out
    }
}
