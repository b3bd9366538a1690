//! The data of plans: devices, buffers, steps, waits, blocks. The planner writes it, the verifier (`verify`)
//! proves it, devices compile its blocks. Nothing here decides anything.
use crate::{Constraint, HostOp, ValueIx, Why};
use kernel::{Kernel, Mapping, Schedule, TileProgram};
use layout::Inserted;
use layout::{DType, Dim, DimBox, Sym};
use machine::{Cost, Way, Work};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use tensor::WeightId;

/// Index into [`Block::buffers`].
pub type BufferId = u32;
/// Index into [`Block::steps`] (or [`Block::init`], in init's own waits).
pub type StepId = u32;

/// What a plan is to be good at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Shortest time of one request.
    #[default]
    Latency,
    /// Most requests per second, each within the bound.
    Throughput {
        /// Bound in seconds.
        max_latency_s: Option<f64>,
    },
}

/// A device that a plan uses, by what it was planned with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRef {
    /// Machine's name.
    pub machine: String,
    /// Hash of the machine description, hexadecimal.
    pub machine_hash: String,
    /// Target's name.
    pub target: String,
    /// Workers that the plan counts on.
    pub workers: u32,
}

/// What a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BufferKind {
    /// Caller's memory, read only: port of this number.
    Input(u32),
    /// Caller's memory, written: port of this number.
    Output(u32),
    /// A constant in the mapped file.
    Weight(WeightId),
    /// Made by the init segment, kept while the plan lives, shared with plans that make the same.
    Init,
    /// Part of the arena of one request.
    Arena,
    /// State of a stream: entry of [`Block::states`].
    State(u32),
}

/// A piece of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffer {
    /// Name of the value it holds.
    pub name: String,
    /// What it is.
    pub kind: BufferKind,
    /// Index into [`Plan::devices`] of the place it lies in.
    pub place: u32,
    /// Element type.
    pub dtype: DType,
    /// Bytes at the top of the box.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u32,
    /// Offset in the arena (Arena buffers; otherwise 0).
    pub offset: u64,
}

/// An input or output of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Model's name for it.
    pub name: String,
    /// The program's value.
    pub value: ValueIx,
    /// Element type.
    pub dtype: DType,
    /// Extents; memory is dense and row-major.
    pub shape: Vec<Dim>,
    /// Its buffer.
    pub buffer: BufferId,
}

/// State that stays in place between requests of a stream: an input port and an output port share
/// one buffer whose strides are those of the box's top.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateRef {
    /// Input port.
    pub input: u32,
    /// Output port.
    pub output: u32,
    /// Buffer.
    pub buffer: BufferId,
}

/// What must have happened before a step may start; always an earlier step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// All tasks of a step and whatever that step waits for, even where it has no tasks.
    Step(StepId),
    /// Only the tasks that `map` names.
    Tiles {
        /// Step.
        step: StepId,
        /// Which of its tasks each task needs.
        map: TileMap,
    },
}

/// Which tasks of an earlier step a task needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TileMap {
    /// Task `t` needs tasks `t * ratio .. (t + 1) * ratio`.
    Range {
        /// Earlier tasks per task.
        ratio: Dim,
    },
    /// Both steps go through a buffer from its start in blocks of neighbouring tasks. Block `q` of
    /// this step reads elements `q * span - before .. (q + 1) * span + after`; block `b` of the
    /// earlier step makes elements `b * earlier_span .. (b + 1) * earlier_span`.
    Spans {
        /// Tasks of a block.
        tasks: Dim,
        /// Elements by which a block is further than the one before it.
        span: Dim,
        /// Elements read before that.
        before: Dim,
        /// Elements read behind that.
        after: Dim,
        /// Tasks of a block of the earlier step.
        earlier_tasks: Dim,
        /// Elements of a block of the earlier step.
        earlier_span: Dim,
    },
    /// Task `t` of `n` needs tasks `t`, `t + n`, `t + 2 n`, ...: those that make parts of one sum.
    Interleaved,
    /// Task `t` needs tasks `t / size * size ..` and so many: those that make parts of one sum, whose CTAs are a cluster.
    Clusters {
        /// CTAs of a cluster.
        size: u32,
    },
}

impl TileMap {
    /// Every dimension expression, in a fixed order.
    pub fn dims(&self) -> Vec<&Dim> {
        match self {
            TileMap::Interleaved | TileMap::Clusters { .. } => vec![],
            TileMap::Range { ratio } => vec![ratio],
            TileMap::Spans {
                tasks,
                span,
                before,
                after,
                earlier_tasks,
                earlier_span,
            } => vec![tasks, span, before, after, earlier_tasks, earlier_span],
        }
    }

    /// The map with its dimensions evaluated by `value`; `None` when one has no sensible value. Of interleaved
    /// tasks, which do not lie side by side, it names all.
    pub fn at(&self, value: &dyn Fn(&Dim) -> Option<i64>) -> Option<TileNeeds> {
        let (tasks, span, before, after, earlier_tasks, earlier_span) = match self {
            TileMap::Interleaved => (1, 0, 0, i64::MAX, 1, 1),
            TileMap::Clusters { size } => (i64::from(*size), i64::from(*size), 0, 0, 1, 1),
            TileMap::Range { ratio } => (1, value(ratio)?, 0, 0, 1, 1),
            TileMap::Spans {
                tasks,
                span,
                before,
                after,
                earlier_tasks,
                earlier_span,
            } => (
                value(tasks)?,
                value(span)?,
                value(before)?,
                value(after)?,
                value(earlier_tasks)?,
                value(earlier_span)?,
            ),
        };
        (tasks >= 1 && earlier_span >= 1).then_some(TileNeeds {
            tasks,
            span,
            before,
            after,
            earlier_tasks,
            earlier_span,
        })
    }

    /// First and end of the tasks of the earlier step, which has `earlier` of them, that task
    /// `task` needs; `value` evaluates dimensions. `None` when one has no sensible value.
    pub fn needs(
        &self,
        task: i64,
        earlier: i64,
        value: &dyn Fn(&Dim) -> Option<i64>,
    ) -> Option<(i64, i64)> {
        self.at(value)?.of(task, earlier)
    }
}

/// A [`TileMap`] with numbers, those of [`TileMap::Spans`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileNeeds {
    tasks: i64,
    span: i64,
    before: i64,
    after: i64,
    earlier_tasks: i64,
    earlier_span: i64,
}

impl TileNeeds {
    /// First and end of the tasks of the earlier step, which has `earlier` of them, that task
    /// `task` needs. `None` when a number is beyond 64 bits.
    pub fn of(&self, task: i64, earlier: i64) -> Option<(i64, i64)> {
        let at = (task / self.tasks).checked_mul(self.span)?;
        let lo = at.checked_sub(self.before)?.max(0) / self.earlier_span;
        let hi = at.checked_add(self.span)?.checked_add(self.after)?;
        let hi = hi.div_euclid(self.earlier_span) + i64::from(hi.rem_euclid(self.earlier_span) > 0);
        let first = lo.checked_mul(self.earlier_tasks)?;
        let end = hi.checked_mul(self.earlier_tasks)?;
        Some((first.clamp(0, earlier), end.clamp(0, earlier)))
    }
}

/// A host step's tensor: dense and row-major.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostArg {
    /// Its buffer.
    pub buffer: BufferId,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<Dim>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepWork {
    /// A tile program, stored as kernel and schedule.
    Kernel {
        /// What.
        kernel: Arc<Kernel>,
        /// How.
        schedule: Arc<Schedule>,
        /// One buffer per operand.
        args: Vec<BufferId>,
    },
    /// A host operator: one task.
    Host {
        /// Operator with its reason.
        op: Arc<HostOp>,
        /// Inputs; `None` for one left out.
        inputs: Vec<Option<HostArg>>,
        /// Outputs.
        outputs: Vec<HostArg>,
    },
}

/// One kernel in a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name for people, unique in its list.
    pub name: String,
    /// What it does.
    pub work: StepWork,
    /// Index into [`Plan::devices`].
    pub device: u32,
    /// Number of tasks (grid points).
    pub tasks: Dim,
    /// What must come before.
    pub waits: Vec<Wait>,
    /// Scratch bytes per worker at the top of the box.
    pub scratch: u64,
    /// Model nodes it stands for.
    pub nodes: Vec<String>,
    /// Work at the top of the box.
    pub cost_work: Work,
    /// Prediction at the top of the box.
    pub predicted: Cost,
    /// Its schedule is that of another box: nobody looked for a better one in this.
    #[serde(default)]
    pub taken: bool,
    /// Where steps are launched it has no launch of its own: of the tasks of the step before it that one of its
    /// tasks needs, the CTA that ends last runs it. The step before may be joined, too. See [`Step::may_join`].
    #[serde(default)]
    pub joined: bool,
}

/// Steps between control flow, with their memory: the part of a plan that runs without asking
/// anybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Symbols that parameters may use, in the order in which a request gives their values.
    pub symbols: Vec<Sym>,
    /// Dimensions that must be equal for this block to be run: checked for every request, and
    /// taken for granted by the verifier.
    #[serde(default)]
    pub constraints: Vec<Constraint>,
    /// Buffers.
    pub buffers: Vec<Buffer>,
    /// Inputs.
    pub inputs: Vec<Port>,
    /// Outputs.
    pub outputs: Vec<Port>,
    /// Aliased state.
    pub states: Vec<StateRef>,
    /// Run once at load; writes Init buffers only.
    pub init: Vec<Step>,
    /// Run for every request, in plan order.
    pub steps: Vec<Step>,
    /// Bytes of one request's arena on the first device.
    pub arena_bytes: u64,
    /// Bytes of one request's arenas on the other devices, from device 1 on; missing ones are empty.
    #[serde(default)]
    pub far_arenas: Vec<u64>,
    /// Scratch bytes per worker.
    pub scratch_bytes: u64,
    /// Sum over the steps, within the time that they take together ([`Block::elapsed_s`]).
    pub predicted: Cost,
}

impl Step {
    /// Whether it may be [`Step::joined`] as step number `at`, behind `before`: both are kernels of one GPU whose code
    /// is printed, without clusters, and it has one task in all of the box `dims`, which waits for some step and runs when all of `before` is
    /// over, or needs some of that step's tasks each that lie [interleaved](TileMap::Interleaved); or it adds what the
    /// CTAs of a [cluster](TileMap::Clusters) keep of that step, with which its launch begins.
    pub fn may_join(&self, before: &Step, at: usize, dims: &DimBox) -> bool {
        let one = || {
            let range = dims.bounds(&self.tasks);
            range.is_some_and(|r| (r.lo, r.hi) == (1, 1))
        };
        let printed = |s: &Step| match &s.work {
            StepWork::Kernel { schedule, .. } => {
                matches!(&schedule.mapping, Mapping::Gpu(g) if g.code.is_none() && g.cluster == 1)
            }
            StepWork::Host { .. } => false,
        };
        let needs = |w: &Wait| match w {
            Wait::Step(_) => one(),
            Wait::Tiles { step, map } => *step as usize + 1 == at && *map == TileMap::Interleaved,
        };
        let cluster = |w: &Wait| match w {
            Wait::Tiles { step, map } => {
                *step as usize + 1 == at && matches!(map, TileMap::Clusters { .. })
            }
            Wait::Step(_) => false,
        };
        if self.device == before.device && !before.joined && self.waits.iter().any(cluster) {
            return true;
        }
        let adds = |s: &Step| match &s.work {
            StepWork::Kernel { schedule, .. } => s.joined && schedule.adds_parts(),
            StepWork::Host { .. } => false,
        };
        self.device == before.device
            && printed(self)
            && (printed(before) || adds(before))
            && self.waits.iter().any(needs)
    }

    /// Buffers that a kernel has as operands, or that a host step reads.
    pub fn uses(&self) -> Vec<BufferId> {
        match &self.work {
            StepWork::Kernel { args, .. } => args.clone(),
            StepWork::Host { inputs, .. } => inputs.iter().flatten().map(|a| a.buffer).collect(),
        }
    }
}

impl Block {
    /// Sizes of the block's symbols at the upper end of `dims`, which init is run for; 1 without a range.
    pub fn largest_sizes(&self, dims: &DimBox) -> Vec<i64> {
        let symbols = self.symbols.iter();
        symbols.map(|s| dims.get(s).map_or(1, |r| r.hi)).collect()
    }

    /// Bytes of one request's arena on device `place`.
    pub fn arena(&self, place: u32) -> u64 {
        match place.checked_sub(1) {
            None => self.arena_bytes,
            Some(i) => self.far_arenas.get(i as usize).copied().unwrap_or(0),
        }
    }

    /// Bytes of results of init that steps of requests use, or that are outputs. What only init itself reads goes
    /// when it has run.
    pub fn packed_bytes(&self) -> u64 {
        let outputs = self.outputs.iter().map(|o| o.buffer);
        let used: BTreeSet<BufferId> = self
            .steps
            .iter()
            .flat_map(Step::uses)
            .chain(outputs)
            .inserted();
        let buffers = used.iter().filter_map(|&b| self.buffers.get(b as usize));
        let made = buffers.filter(|b| b.kind == BufferKind::Init);
        made.fold(0, |sum, b| sum.saturating_add(b.bytes))
    }

    /// Whether `step`, one of this block's, copies between the memories of two places.
    pub fn is_transfer(&self, step: &Step) -> bool {
        match &step.work {
            StepWork::Kernel { args, .. } => {
                let place = |&b: &BufferId| self.buffers.get(b as usize).map(|b| b.place);
                args.first().map(place) != args.last().map(place)
            }
            StepWork::Host { .. } => false,
        }
    }
}

/// A part of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanSegment {
    /// Steps.
    Block(Box<Block>),
    /// Segment `segment` of the program is control flow or a host operator with late sizes; its
    /// bodies are bound when their dims are known.
    Control {
        /// Index into the program's segments.
        segment: u32,
    },
    /// The program from segment `segment` on is bound when its late dims are known.
    Deferred {
        /// Index into the program's segments.
        segment: u32,
    },
}

/// A program bound to a box of dims and to devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this format.
    pub version: u32,
    /// Model's name.
    pub model: String,
    /// Hash of the program (structure, not weights), hexadecimal: a loaded plan must match it.
    pub program_hash: String,
    /// Devices.
    pub devices: Vec<DeviceRef>,
    /// Box of dims.
    pub dims: DimBox,
    /// Goal.
    pub goal: Goal,
    /// How its steps are to reach an NVIDIA GPU, where that was asked for.
    #[serde(default)]
    pub launch: Option<Way>,
    /// Parts, in order.
    pub segments: Vec<PlanSegment>,
    /// Prediction at the top of the box.
    pub predicted: Cost,
    /// Decisions.
    pub whys: Vec<Why>,
}

impl Plan {
    /// Version of the format that this crate writes and reads.
    pub const VERSION: u32 = 1;
    /// The pass of a why that says that schedules were taken from the plan of a near box.
    pub const LIKE: &str = "like";

    /// Whether schedules were taken from the plan of a near box: nobody looked for better ones.
    pub fn is_like(&self) -> bool {
        self.whys.iter().any(|w| w.pass == Plan::LIKE)
    }

    /// The pass of a why that says which kernels of the program are in two steps here, or in one with
    /// another.
    pub const APART: &str = "apart";
    /// The pass of a why that says which values of the program lie in another layout here.
    pub const RELAID: &str = "relaid";

    /// Whether it is of another fusion of its program, or of other layouts of its values: its kernels are
    /// others.
    pub fn is_apart(&self) -> bool {
        let own = |w: &Why| w.pass == Plan::APART || w.pass == Plan::RELAID;
        self.whys.iter().any(own)
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.segments.iter().filter_map(|s| match s {
            PlanSegment::Block(b) => Some(&**b),
            _ => None,
        })
    }

    /// Steps of all blocks, in the order of their numbers.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.blocks().flat_map(|b| &b.steps)
    }
}

/// Tile programs of a block's init steps and of its steps.
pub(crate) type BlockPrograms = (Vec<Option<TileProgram>>, Vec<Option<TileProgram>>);

/// A plan of sound tile programs, and of parts that name parts which are there. What its steps touch, and
/// in which order, is not proved: nothing may run it, but a backend may compile it meanwhile.
#[derive(Debug)]
pub struct TiledPlan {
    pub(crate) plan: Plan,
    /// Per block: programs of init, then of steps (`None` for host steps).
    pub(crate) programs: Vec<BlockPrograms>,
    /// Whether a schedule of it was searched for. Kept beside the plan although the steps say so: who plans
    /// another box asks every plan there is, and walking their steps waits for memory.
    pub(crate) searched: bool,
}

impl TiledPlan {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Tile programs of the init steps of block `block` (counting blocks only).
    pub fn init_programs(&self, block: usize) -> &[Option<TileProgram>] {
        &self.programs[block].0
    }

    /// Tile programs of the steps of block `block` (counting blocks only).
    pub fn step_programs(&self, block: usize) -> &[Option<TileProgram>] {
        &self.programs[block].1
    }
}

/// A plan whose rules were checked, with its tile programs.
#[derive(Clone, Debug)]
pub struct VerifiedPlan {
    pub(crate) tiled: Arc<TiledPlan>,
}

impl VerifiedPlan {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.tiled.plan
    }

    /// What was proved.
    pub fn tiled(&self) -> &Arc<TiledPlan> {
        &self.tiled
    }

    /// Whether the schedule of some step was looked for, and not taken from another box.
    pub fn searched(&self) -> bool {
        self.tiled.searched
    }

    /// Tile programs of the init steps of block `block` (counting blocks only).
    pub fn init_programs(&self, block: usize) -> &[Option<TileProgram>] {
        self.tiled.init_programs(block)
    }

    /// Tile programs of the steps of block `block` (counting blocks only).
    pub fn step_programs(&self, block: usize) -> &[Option<TileProgram>] {
        self.tiled.step_programs(block)
    }
}
