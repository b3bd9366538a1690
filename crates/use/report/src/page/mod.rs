//! One page that explains a model's run: its data, which has a schema of its own, and the page around it.
//!
//! The data is what [`PageData`] serialises to, documented in `docs/report.md`; a key keeps its meaning
//! within a [`PageData::VERSION`]. The page is a template by hand (HTML, CSS, JavaScript) that carries the
//! data and fetches nothing.

mod baseline;
pub(crate) mod build;
pub(crate) mod html;
mod machine;
mod sentence;

pub(crate) use html::filled;
pub(crate) use sentence::words;

pub use baseline::{AgainstError, AgainstStep, Baseline};
pub use build::PageInput;
pub use machine::{MachineData, MachineLevel, MachineLink, MachineUnit};

use crate::calc::{CeilingView, RoofView};
use crate::{AdviceView, HowRun, MemoryView, Overhead, StepView};
use plan::Goal;
use serde::Serialize;

/// What was measured of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredStep {
    /// How often it ran in one request.
    pub runs: f64,
    /// Most workers that took part.
    pub workers: u32,
    /// Wall time in one request, microseconds: the median over requests.
    pub time_us: f64,
    /// Measured over predicted, less 1.
    pub error: f64,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageStep {
    /// What the plan says; numbers count over all blocks.
    #[serde(flatten)]
    pub view: StepView,
    /// Index into [`PageData::machines`].
    pub device: u32,
    /// Steps that must be done before.
    pub waits: Vec<u32>,
    /// Where its first node is in the model's modules, by its name: `blocks/blocks.0/attn`.
    pub module: String,
    /// What was measured; `None` where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredStep>,
    /// All overlapped at peak without fixed costs, and nothing overlapped: microseconds.
    pub interval_us: (f64, f64),
    /// First access, hand-offs and barriers, microseconds.
    pub latency_us: f64,
    /// Launches, steps and tasks, microseconds.
    pub launch_us: f64,
    /// What each memory level would take alone: name and microseconds.
    pub levels: Vec<(String, f64)>,
    /// What each unit would take alone: name and microseconds.
    pub units: Vec<(String, f64)>,
    /// Bytes loaded and stored at each of the machine's levels, in their order.
    pub traffic: Vec<(f64, f64)>,
    /// Operations by class and input format.
    pub ops_by: Vec<(String, String, f64)>,
    /// Microseconds at the roof; `None` for host steps and copies between devices.
    pub roof_us: Option<f64>,
    /// What the roof is made of.
    pub roof_bound: Option<String>,
    /// Buffers that it reads, as indices into [`PageData::buffers`].
    pub reads: Vec<u32>,
    /// Buffers that it writes.
    pub writes: Vec<u32>,
    /// Decisions about it or its nodes, as indices into [`PageData::whys`].
    pub whys: Vec<u32>,
}

/// A buffer of the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageBuffer {
    /// Name of the value it holds.
    pub name: String,
    /// `input`, `output`, `weight`, `init`, `arena` or `state`.
    pub kind: &'static str,
    /// The plan it belongs to, from 0: each has an arena of its own.
    pub plan: u32,
    /// Index into [`PageData::machines`].
    pub place: u32,
    /// Element type.
    pub dtype: String,
    /// Bytes at the top of the box.
    pub bytes: u64,
    /// Offset in the arena; 0 for what lies elsewhere.
    pub offset: u64,
    /// First step that touches it.
    pub first: Option<u32>,
    /// Last step that touches it.
    pub last: Option<u32>,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageWhy {
    /// Pass that decided.
    pub pass: String,
    /// What it decided about.
    pub subject: String,
    /// What was chosen.
    pub choice: String,
    /// The reason.
    pub reason: String,
    /// What else there was: text and predicted microseconds.
    pub alternatives: Vec<(String, f64)>,
}

/// What was measured of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeasuredRun {
    /// Requests before measuring.
    pub warmup: usize,
    /// Requests measured.
    pub active: usize,
    /// Median time of a request, microseconds.
    pub request_us: f64,
    /// Sum of the steps' medians, microseconds.
    pub steps_us: f64,
    /// What requests take beside their steps, and why the slowest did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
}

/// Steps that run once at load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PageInit {
    /// How many.
    pub steps: usize,
    /// Predicted microseconds of all.
    pub predicted_us: f64,
}

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// `worker`, or `device` for a queue by the device's own clock.
    pub kind: &'static str,
}

/// A stretch of time: lane, step (-1 for one that the page does not have), begin and length in
/// microseconds, tasks, and what it was (`kernel`, `to device`, `from device`, `wait`).
pub type LaneSpan = (u32, i64, f64, f64, u32, &'static str);

/// What ran when in the last request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageTimeline {
    /// Microseconds from the request's start to its end.
    pub total_us: f64,
    /// Rows.
    pub lanes: Vec<Lane>,
    /// Stretches, by lane and begin; neighbours of one step in one lane are joined.
    pub spans: Vec<LaneSpan>,
}

/// The roofs of the machine that the last device is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageRoofs {
    /// Horizontal ones.
    pub ceilings: Vec<CeilingView>,
    /// Slanted ones.
    pub roofs: Vec<RoofView>,
}

/// What became of the model's nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageNodes {
    /// Nodes.
    pub total: usize,
    /// Part of steps.
    pub in_steps: usize,
    /// Views that cost nothing.
    pub views: usize,
    /// Done at import or load.
    pub folded: usize,
    /// Not needed.
    pub dead: usize,
    /// Part of control flow.
    pub control: usize,
    /// Each node: name, operator, fate, numbers of its steps.
    pub nodes: Vec<(String, String, &'static str, Vec<u32>)>,
}

/// Everything that the page shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageData {
    /// [`PageData::SCHEMA`].
    pub schema: &'static str,
    /// [`PageData::VERSION`].
    pub version: u32,
    /// What made it.
    pub tool: String,
    /// The model and what bounds it, in words.
    pub sentence: String,
    /// Model.
    pub model: String,
    /// Dims or box of dims; empty when there are none.
    pub dims: String,
    /// Device that it ran on; `None` for a plan.
    pub device: Option<String>,
    /// How steps reach the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Machine planned for: the last device's.
    pub machine: String,
    /// Target.
    pub target: String,
    /// Workers.
    pub threads: u32,
    /// Goal of the plan.
    pub goal: Goal,
    /// What a reader must know about the figures.
    pub note: Option<String>,
    /// Predicted time of a request, microseconds.
    pub predicted_us: f64,
    /// Where the prediction may lie, microseconds.
    pub interval_us: (f64, f64),
    /// What was measured; `None` for a plan.
    pub measured: Option<MeasuredRun>,
    /// Contraction FLOP of a request.
    pub flop: f64,
    /// Shares of the steps' time by what bounds them, the largest first.
    pub bounds: Vec<(String, f64)>,
    /// The plan's devices.
    pub machines: Vec<MachineData>,
    /// What the kinds of its steps are, in a sentence.
    pub kinds: String,
    /// Steps in plan order: a step's number is its index.
    pub steps: Vec<PageStep>,
    /// Control flow and late parts: number of the step that follows, and what stands there.
    pub control: Vec<(u32, String)>,
    /// Steps that run once at load.
    pub init: PageInit,
    /// Buffers.
    pub buffers: Vec<PageBuffer>,
    /// Memory in all.
    pub memory: MemoryView,
    /// What ran when; `None` for a plan.
    pub timeline: Option<PageTimeline>,
    /// Roofs.
    pub roofline: PageRoofs,
    /// Decisions that concern steps.
    pub whys: Vec<PageWhy>,
    /// What would help, where that was asked.
    pub advice: Option<AdviceView>,
    /// What became of every node.
    pub accounting: PageNodes,
    /// What it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Baseline>,
}

impl PageData {
    /// Name of the schema.
    pub const SCHEMA: &str = "shopfloor-report";
    /// Version of the schema: it grows when a key changes its meaning or goes.
    pub const VERSION: u32 = 1;

    /// Compared with another run or machine.
    #[must_use]
    pub fn with_against(mut self, other: Baseline) -> PageData {
        self.against = Some(other);
        self
    }

    /// Microseconds of a step in one request: measured, or predicted where nothing was measured.
    pub fn step_us(&self, step: &PageStep) -> f64 {
        match (&step.measured, &self.measured) {
            (Some(m), _) => m.time_us,
            (None, Some(_)) => 0.0,
            (None, None) => step.view.predicted_us,
        }
    }

    /// As JSON.
    ///
    /// # Errors
    /// None that these types can cause.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// The page.
    ///
    /// # Errors
    /// As [`PageData::json`].
    pub fn html(&self) -> Result<String, serde_json::Error> {
        Ok(html::page(&self.model, &self.json()?))
    }
}
