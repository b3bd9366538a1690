//! The supervisor's data: options, observations, proposals, actions.
use crate::admission::SessionId;
use machine::Bound;
use plan::{Observations, Why};
use serde::{Deserialize, Serialize};

/// Number of a proposal, given by whoever asked the planner; never used twice.
pub type ProposalId = u64;

/// How far the supervisor may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It does nothing: the plan stays as it is.
    Off,
    /// It says what it notices and what it would try.
    Observe,
    /// It changes what pays.
    #[default]
    On,
}

/// What it decides by. The defaults are meant for windows of 100 ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How far it may go.
    pub mode: Mode,
    /// Windows in a row that must agree before anything is taken for a change.
    pub persist: usize,
    /// Share by which measured times must differ from what they were before it is a change.
    pub deviation: f64,
    /// Predicted gain below which nothing is tried, as a share of the time now.
    pub threshold: f64,
    /// Samples of each side before a trial may be decided.
    pub least_samples: usize,
    /// Samples of each side after which a trial that shows nothing is given up.
    pub most_samples: usize,
    /// Standard deviations of the rank test that decide.
    pub sure: f64,
    /// Seconds after which a trial is given up.
    pub trial_s: f64,
    /// Seconds until something that did not work, or was changed, may be tried again; each further
    /// time waits four times as long.
    pub back_off_s: f64,
    /// Longest such wait, seconds.
    pub max_back_off_s: f64,
    /// Seconds without a change after which one is forgiven.
    pub forgive_s: f64,
    /// Decisions that are kept.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            mode: Mode::On,
            persist: 3,
            deviation: 0.1,
            threshold: 0.05,
            least_samples: 8,
            most_samples: 200,
            sure: 3.0,
            trial_s: 10.0,
            back_off_s: 0.5,
            max_back_off_s: 600.0,
            forgive_s: 60.0,
            history: 256,
        }
    }
}

/// Something that the supervisor is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// What happened since the last window.
    Window(Box<Window>),
    /// The planner's answer to [`Action::Propose`].
    Proposed(Vec<Proposal>),
    /// What was to be prepared is bound, verified and compiled, or why it could not be.
    Ready {
        /// Proposal.
        proposal: ProposalId,
        /// Why not; `None`: it is there.
        failed: Option<String>,
    },
}

/// One window of time, about 100 ms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Window {
    /// Per session.
    pub sessions: Vec<SessionSeen>,
    /// Per step that ran.
    pub steps: Vec<StepSeen>,
    /// Share of the time that each worker had its core when it wanted it: 1 where it is alone. Empty
    /// where nobody can say.
    pub workers: Vec<f64>,
    /// The running trial.
    pub trial: Option<TrialSeen>,
}

/// A session in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionSeen {
    /// Session.
    pub session: SessionId,
    /// What people call it; nothing for its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Seconds that the window lasted, for rates.
    pub seconds: f64,
    /// Requests that came.
    pub arrivals: u64,
    /// Requests that were done.
    pub finished: u64,
    /// Requests that wait at its end.
    pub queued: u64,
    /// Median seconds of a run, from its start to its end; 0 without one.
    pub run_s: f64,
    /// Predicted seconds of the same runs.
    pub predicted_s: f64,
    /// Shapes of the requests that came, by the same number as in a request, with how many.
    pub shapes: Vec<(u64, u64)>,
    /// Requests whose dims no plan covered when they came.
    pub outside: u64,
}

/// A step in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepSeen {
    /// Session.
    pub session: SessionId,
    /// Step's name.
    pub step: String,
    /// What is predicted to bound it.
    pub bound: Bound,
    /// Seconds that the machine description predicts, without any correction that the planner has made
    /// since.
    pub predicted_s: f64,
    /// Median measured seconds.
    pub measured_s: f64,
    /// Measurements.
    pub count: u64,
}

/// A trial in a window. Seconds are what [`Proposal::compare`] says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrialSeen {
    /// Proposal.
    pub proposal: ProposalId,
    /// Of requests that ran with it, in order.
    pub with: Vec<f64>,
    /// Of requests that ran without it.
    pub without: Vec<f64>,
    /// Requests whose outputs were compared.
    pub compared: u64,
    /// Of these, those whose outputs were not within tolerance.
    pub differed: u64,
    /// Requests that failed with it.
    pub failed: u64,
}

/// What a trial compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compare {
    /// Seconds from a run's start to its end.
    #[default]
    RunSeconds,
    /// Worker seconds of a run for each of its items: what a change of batch, instances or workers
    /// saves where requests queue.
    WorkerSecondsPerItem,
}

/// A change that the planner has proposed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// Number.
    pub id: ProposalId,
    /// What it changes, equal for proposals that change the same thing to and fro: a session's
    /// division, a session's schedules.
    pub subject: String,
    /// Sessions whose requests it touches.
    pub sessions: Vec<SessionId>,
    /// Predicted time now over predicted time then, less 1.
    pub gain: f64,
    /// What a trial compares.
    #[serde(default)]
    pub compare: Compare,
    /// The planner's reason.
    pub why: Why,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// So many workers are worth granting; those in `avoid` only when no other is free.
    Workers {
        /// Workers to share out.
        usable: u32,
        /// Workers whose cores others use.
        avoid: Vec<u32>,
    },
    /// Ask the planner what would pay, and say [`Observation::Proposed`], also when nothing would.
    Propose(Box<Observations>),
    /// Bind, verify and compile a proposal beside the traffic, and say [`Observation::Ready`].
    Prepare(ProposalId),
    /// Let every `every`-th request of the proposal's sessions run with it, and report
    /// [`Window::trial`].
    Try {
        /// Proposal.
        proposal: ProposalId,
        /// One of so many requests; at least 2.
        every: u32,
    },
    /// Every request runs with it from now on.
    Promote(ProposalId),
    /// No request runs with it any more.
    RollBack(ProposalId),
    /// A decision, for the log, the timeline and people.
    Note(Decision),
}

/// A decision of the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When, in the caller's seconds.
    pub at: f64,
    /// What and why; its pass is `noticed`, `asked`, `trying`, `promoted`, `rolled back`, `not tried`
    /// or `workers`.
    pub why: Why,
}
