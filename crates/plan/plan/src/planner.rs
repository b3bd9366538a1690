//! The [`Planner`] trait, by which the runtime plans without linking the planner, and what it is told:
//! allotments, observations, proposals.
use crate::{DeviceRef, Goal, Plan, PlanError, Program, VerifiedPlan, Why};
use layout::{DimBox, Sym};
use machine::Bound;
use serde::{Deserialize, Serialize};

/// What a session may use: workers, devices and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Allotment {
    /// Workers per device, in the planner's device order.
    pub workers: Vec<u32>,
    /// Bytes of memory per place; `None`: no limit.
    pub memory: Option<u64>,
    /// Goal.
    pub goal: Goal,
}

/// One step's measured time against its prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Session.
    pub session: u32,
    /// Step's name.
    pub step: String,
    /// Predicted seconds.
    pub predicted_s: f64,
    /// Median measured seconds.
    pub measured_s: f64,
    /// Number of measurements.
    pub count: u64,
}

/// What else the machine is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Requests waiting, per session.
    pub queued: Vec<u32>,
    /// Requests per second, per session.
    pub arrivals: Vec<f64>,
    /// Workers that others keep busy.
    pub lost_workers: f64,
    /// Share of each worker's time that it has for itself; empty: all of it.
    #[serde(default)]
    pub shares: Vec<f64>,
}

/// How fast the machine turned out to be where something bounds a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateSeen {
    /// What bounds the steps that say so.
    pub bound: Bound,
    /// Measured rate over that of the machine's description: 0.25 where the description claims four
    /// times too much.
    pub factor: f64,
}

/// What the runtime has seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observations {
    /// Per step.
    pub steps: Vec<Observation>,
    /// Queues, arrivals and the machine's load.
    pub load: Load,
    /// Devices in use.
    pub devices: Vec<DeviceRef>,
    /// What persistently differs from the machine's description.
    #[serde(default)]
    pub rates: Vec<RateSeen>,
}

/// A session as it is served now, for [`Planner::propose`].
#[derive(Clone, Copy, Debug)]
pub struct Serving<'a> {
    /// Number, as in [`Observation::session`].
    pub session: u32,
    /// Its program.
    pub program: &'a Program,
    /// The plan in use.
    pub plan: &'a Plan,
    /// What it may use, and its goal.
    pub allotment: &'a Allotment,
    /// The symbol of its batch, where requests may be joined.
    pub batch: Option<&'a Sym>,
    /// Items of a run at most.
    pub items: u32,
    /// Runs at once.
    pub instances: u32,
}

/// What one session is to change to.
#[derive(Clone, Debug)]
pub struct Change {
    /// Session.
    pub session: u32,
    /// Its new plan.
    pub plan: Plan,
    /// What that plan may use.
    pub allotment: Allotment,
    /// Items of a run at most.
    pub items: u32,
    /// Runs at once.
    pub instances: u32,
}

/// A proposed change: plans and allotments for any of the sessions at once.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What changes, by session.
    pub changes: Vec<Change>,
    /// Predicted seconds per request now, summed over the sessions, with what was observed taken into
    /// account.
    pub now_s: f64,
    /// Predicted gain in seconds per request (summed over the sessions).
    pub gain_s: f64,
    /// Reason.
    pub why: Why,
}

/// The boundary that lets the runtime plan again without linking the planner.
pub trait Planner: Send + Sync {
    /// Binds `program` to a box of dims within an allotment. Same arguments, same plan, byte for
    /// byte.
    fn bind(
        &self,
        program: &Program,
        dims: &DimBox,
        allotment: &Allotment,
    ) -> Result<Plan, PlanError>;

    /// As [`Planner::bind`], for a program whose plans `likes` are in use, that of the nearest box first:
    /// what they packed is there and is not packed once more in another way unless that pays, and
    /// schedules that are as good in this box are not looked for again.
    fn bind_like(
        &self,
        program: &Program,
        dims: &DimBox,
        allotment: &Allotment,
        likes: &[&VerifiedPlan],
    ) -> Result<Plan, PlanError> {
        let _ = likes;
        self.bind(program, dims, allotment)
    }

    /// What plans follow from besides program, box and allotment, as a text: equal for planners that give
    /// the same plans. Where plans are kept they are kept under it.
    fn setting(&self) -> String {
        String::new()
    }

    /// Proposes changes of what is served that would pay given what was observed, best first.
    fn propose(&self, observations: &Observations, serving: &[Serving]) -> Vec<Candidate>;
}
