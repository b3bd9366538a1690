//! What scenes draw: data only, no shapes.

use serde::Serialize;

/// A node of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeBox {
    /// Name.
    pub name: String,
    /// Operator.
    pub op: String,
}

/// A tensor that the step reads or writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueBox {
    /// Name.
    pub name: String,
    /// `input`, `output`, `weight`, `init`, `arena` or `state`.
    pub kind: &'static str,
    /// Element type.
    pub dtype: String,
    /// Bytes.
    pub bytes: u64,
    /// Whether the step writes it.
    pub written: bool,
}

/// A decision of the planner about fusing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Node or step decided about.
    pub subject: String,
    /// What was decided.
    pub choice: String,
    /// Whether it joined something.
    pub fused: bool,
    /// The reason.
    pub reason: String,
}

/// A bar with its length: a time in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// What it is.
    pub name: String,
    /// Microseconds.
    pub us: f64,
    /// What kind it is: a role that a caption can light.
    pub role: &'static str,
}

/// A line of code and what it does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodeLine {
    /// Its number in the whole text.
    pub number: u32,
    /// The line.
    pub text: String,
    /// A role that a caption can light: `load`, `stage`, `store`, `math`, `barrier`, `loop`, ...; empty
    /// for none.
    pub role: &'static str,
}

/// A text of code.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pane {
    /// `tile program`, `PTX`, `SASS`, `WGSL`, `x86-64`, `calls`.
    pub language: String,
    /// Lines shown.
    pub lines: Vec<CodeLine>,
    /// Lines of the whole text.
    pub of: u32,
}

/// A place of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaceBox {
    /// Whose memory it is, by machine.
    pub name: String,
    /// Bytes of the arena of one request there.
    pub arena: u64,
    /// Bytes that there are.
    pub capacity: f64,
}

/// A buffer in its place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryBlock {
    /// Name of the value it holds.
    pub name: String,
    /// As [`ValueBox::kind`].
    pub kind: &'static str,
    /// Index into the places.
    pub place: u32,
    /// Offset in the arena; 0 for what lies elsewhere.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// `read`, `write`, or empty for others' that live while the step runs.
    pub role: &'static str,
}

/// An axis that the grid cuts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GridAxis {
    /// Name.
    pub name: String,
    /// Positions.
    pub extent: i64,
    /// Positions of a piece.
    pub tile: i64,
    /// Pieces.
    pub pieces: i64,
}

/// Cycles of warps by what they did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallRow {
    /// What a warp did or waited for.
    pub reason: String,
    /// Cycles of all warps together.
    pub cycles: f64,
}

/// What one warp of a scheduler did, from the start on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WarpRow {
    /// Number of its CTA.
    pub cta: u32,
    /// Its number in the CTA.
    pub warp: u32,
    /// First cycle, cycle after the last, and the reason as an index into the rows.
    pub stretches: Vec<(u64, u64, u32)>,
}

/// One request of a warp to memory, lane by lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneRequest {
    /// `global` or `shared` memory of a GPU, or `cache`: a CPU's.
    pub space: &'static str,
    /// What the line does: `load`, `stage` or `store`.
    pub role: &'static str,
    /// What captions light it by.
    pub lit: &'static str,
    /// Line of the emitted text, or statement of the tile program.
    pub line: u32,
    /// The line.
    pub text: String,
    /// CTA that made it, or task.
    pub cta: [u32; 3],
    /// Warp of the CTA.
    pub warp: u32,
    /// Bytes of what is moved at once: a sector, a cache line; a bank's width in shared memory.
    pub unit: u32,
    /// How lanes lie: `contiguous`, `strided`, `in rows`, `one element`, `scattered`, or `by data`.
    pub way: &'static str,
    /// Bytes from lane to lane, where that is the same for all.
    pub stride: Option<i64>,
    /// Of the vectors that cover a tile, those that leave lanes out; null where lanes are no vector's.
    pub partial: Option<u64>,
    /// Bytes of a lane.
    pub bytes: u32,
    /// Where each lane's bytes begin, from the first line that is touched (128 bytes on a GPU) or from
    /// the start of shared memory; null for lanes that take no part.
    pub lanes: Vec<Option<u64>>,
    /// Sectors or cache lines touched, or passes over the banks (shared).
    pub moved: u64,
    /// The fewest that as many bytes need.
    pub ideal: u64,
    /// How often warps issued the line in what was emulated, or subgroups any that asks the same of its
    /// operand; on a CPU vectors that cover the tile.
    pub issued: u64,
}

/// A tile within the one before it: a piece of the result and how deep its sums go at a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TileBox {
    /// What works on it.
    pub name: String,
    /// Rows.
    pub m: i64,
    /// Columns.
    pub n: i64,
    /// Terms of a sum.
    pub k: i64,
}

/// What crossed a level of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// The level.
    pub level: String,
    /// Bytes of one instance of it.
    pub capacity: f64,
    /// Bytes loaded from it.
    pub loaded: f64,
    /// Bytes stored to it.
    pub stored: f64,
    /// Microseconds that alone would take.
    pub us: f64,
}

/// What a scene draws.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Picture {
    /// Nothing.
    None,
    /// The model's nodes that became this step, and the tensors around it.
    Nodes {
        /// Nodes, in the model's order.
        nodes: Vec<NodeBox>,
        /// Tensors.
        values: Vec<ValueBox>,
        /// What was fused and what was not.
        decisions: Vec<Decision>,
    },
    /// Times beside each other: schedules, ways of launching.
    Bars {
        /// What they are.
        title: String,
        /// Bars.
        bars: Vec<Bar>,
        /// Another group of bars on a scale of its own.
        more: Vec<Bar>,
        /// What those are.
        more_title: String,
    },
    /// Texts beside each other.
    Code {
        /// Texts.
        panes: Vec<Pane>,
        /// What is missing and why; empty for nothing.
        note: String,
    },
    /// Buffers in their places.
    Memory {
        /// Places.
        places: Vec<PlaceBox>,
        /// Buffers.
        blocks: Vec<MemoryBlock>,
    },
    /// Tasks onto workers, round by round.
    Waves {
        /// SMs or threads.
        workers: u64,
        /// Tasks that one of them holds at once.
        per_worker: u64,
        /// Tasks.
        tasks: u64,
        /// Rounds.
        waves: u64,
        /// Axes of the grid.
        axes: Vec<GridAxis>,
        /// What workers are called.
        worker: &'static str,
        /// What tasks are called.
        task: &'static str,
    },
    /// Warps that an SM holds, and what limits them.
    Warps {
        /// Warps that it could hold.
        slots: u64,
        /// CTAs that it holds.
        ctas: u64,
        /// Warps of a CTA.
        warps: u64,
        /// CTAs that each limit alone would allow.
        limits: Vec<(String, u64)>,
        /// Those that limit.
        limiters: Vec<String>,
    },
    /// What warps did while time went by.
    Stalls {
        /// Cycles by reason, issuing first.
        rows: Vec<StallRow>,
        /// Cycles from the first to the last.
        cycles: f64,
        /// Warps.
        warps: u64,
        /// Warps of one scheduler, from the start on.
        scheduler: Vec<WarpRow>,
    },
    /// Latency that must be hidden, and bytes under way that hide it.
    Hiding {
        /// Level, bytes that must be under way for one worker, bytes that its warps have under way.
        levels: Vec<(String, f64, f64)>,
    },
    /// Lanes onto sectors and banks.
    Lanes {
        /// Requests.
        requests: Vec<LaneRequest>,
    },
    /// Tiles within tiles.
    Tiles {
        /// From the whole product to one instruction.
        tiles: Vec<TileBox>,
        /// The instruction.
        instruction: String,
    },
    /// Bytes through the levels, the nearest first.
    Levels {
        /// Levels.
        levels: Vec<Traffic>,
    },
    /// Where the time goes.
    Bill {
        /// Parts of the prediction, in the order in which they add up.
        parts: Vec<Bar>,
        /// What each level and unit would take alone.
        alone: Vec<Bar>,
        /// Predicted, microseconds.
        predicted_us: f64,
        /// Measured, microseconds.
        measured_us: Option<f64>,
    },
}
