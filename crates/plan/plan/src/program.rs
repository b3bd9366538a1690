//! The data of programs: a model as fused kernels with symbolic dims, before schedules. The planner makes one
//! per model and binds it to plans; control flow is segments of it.
use crate::{MadeOnce, PlanError, Why};
use kernel::{Given, Kernel};
use layout::{Arrange, DType, Dim, Layout, Sym};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tensor::{Attr, Attrs, WeightId, WeightStore};

/// Index into [`Program::values`].
pub type ValueIx = u32;

/// Where a program's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueOrigin {
    /// Input of this number.
    Input(u32),
    /// Constant of the weight store.
    Weight(WeightId),
    /// Written by an item of the init segment.
    Init,
    /// Written by an item or control segment.
    Made,
}

/// A tensor that exists in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramValue {
    /// Name, unique in the program.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Logical extents.
    pub shape: Vec<Dim>,
    /// Placement of the elements: strides in elements (bits per position: 1), offset 0. Inputs,
    /// outputs, weights and operands of host items are row-major.
    pub layout: Layout,
    /// Number of elements of storage, padding of blocked layouts included.
    pub storage: Dim,
    /// Origin.
    pub origin: ValueOrigin,
}

/// How a symbol gets its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymbolOrigin {
    /// Extent of a dimension of an input.
    Input {
        /// Which input.
        input: u32,
        /// Which dimension.
        axis: u32,
    },
    /// Extent of a dimension of a value that exists once its segment has run.
    Late {
        /// Which value.
        value: ValueIx,
        /// Which dimension.
        axis: u32,
    },
    /// Given by the enclosing program (branch and loop bodies).
    Outer,
}

/// A symbolic dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSymbol {
    /// Name.
    pub name: Sym,
    /// Where it is read.
    pub origin: SymbolOrigin,
}

/// A rare operator run by `hostops`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostOp {
    /// Name in the `hostops` table.
    pub name: String,
    /// Attributes; a core op's own specification stands in `spec` as JSON text.
    pub attrs: Attrs,
    /// Why it is a host step.
    pub reason: String,
    /// What devices made of it.
    #[serde(skip)]
    pub made: MadeOnce,
}

/// What an item does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemWork {
    /// A kernel.
    Kernel {
        /// What is computed.
        kernel: Arc<Kernel>,
        /// One value per operand.
        args: Vec<ValueIx>,
    },
    /// A host operator.
    Host {
        /// Operator.
        op: Arc<HostOp>,
        /// Inputs; `None` for one left out.
        inputs: Vec<Option<ValueIx>>,
        /// Outputs.
        outputs: Vec<ValueIx>,
    },
}

/// One step-to-be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Name for people.
    pub name: String,
    /// What it does.
    pub work: ItemWork,
    /// Model nodes it stands for.
    pub nodes: Vec<String>,
    /// How its kernel is to run, where whoever wrote the kernel says so.
    #[serde(default)]
    pub given: Option<Arc<Given>>,
}

/// A part of a program between control flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Segment {
    /// Items in order.
    Straight(Vec<Item>),
    /// A branch on a Bool scalar.
    If {
        /// Model node.
        node: String,
        /// Condition.
        cond: ValueIx,
        /// What both branches' inputs are fed with.
        captures: Vec<ValueIx>,
        /// Taken when true.
        #[serde(deserialize_with = "layout::nested")]
        then_branch: Box<Program>,
        /// Taken when false.
        #[serde(deserialize_with = "layout::nested")]
        else_branch: Box<Program>,
        /// Values defined.
        outputs: Vec<ValueIx>,
    },
    /// A loop, as the graph's `Loop` op.
    Loop {
        /// Model node.
        node: String,
        /// Trip count, if given.
        trip: Option<ValueIx>,
        /// Initial condition, if given.
        cond: Option<ValueIx>,
        /// Initial carried values.
        carried: Vec<ValueIx>,
        /// Captured values.
        captures: Vec<ValueIx>,
        /// Body: inputs iteration, condition, carried, captures; outputs condition, carried, scans.
        #[serde(deserialize_with = "layout::nested")]
        body: Box<Program>,
        /// Values defined: final carried, then stacked scans.
        outputs: Vec<ValueIx>,
    },
    /// One host operator whose outputs have sizes known only when it has run.
    Late(Item),
}

/// An input and the output that carries on its state (KV cache, recurrent state).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatePair {
    /// Input number.
    pub input: u32,
    /// Output number.
    pub output: u32,
}

/// What became of a node of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeFate {
    /// Node's name.
    pub node: String,
    /// Operator type.
    pub op_type: String,
    /// Its fate.
    pub fate: Fate,
}

/// What became of a node that is in no item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Part of one or more items (their names).
    Items(Vec<String>),
    /// A view folded into its readers.
    View,
    /// Shape arithmetic or a constant done at import or load.
    Folded,
    /// Its result is not needed.
    Dead,
    /// Part of a control segment.
    Control,
}

/// Name and size of a constant, so that a plan can be checked against a weight store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightInfo {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
}

/// Two extents that must be equal when the model runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraint {
    /// Model node that needs it.
    pub node: String,
    /// One extent.
    pub left: Dim,
    /// The other.
    pub right: Dim,
}

/// A symbol along which every output has items: the candidates for joining requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// The symbol.
    pub symbol: Sym,
    /// Where items may influence each other; `None`: it is proved that they do not.
    pub crosses: Option<String>,
}

/// Bytes that fusion saves, or would have saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saving {
    /// Subject of the `fuse` decision.
    pub node: String,
    /// Choice of the `fuse` decision.
    pub choice: String,
    /// Whether it was fused.
    pub fused: bool,
    /// Bytes that are not moved.
    pub bytes: Dim,
}

/// A model as fused kernels: symbolic dims, no schedule, bound many times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// Model's name.
    pub name: String,
    /// Symbols.
    pub symbols: Vec<ProgramSymbol>,
    /// Values.
    pub values: Vec<ProgramValue>,
    /// Inputs in the model's order.
    pub inputs: Vec<ValueIx>,
    /// Outputs in the model's order, each with the model's name for it.
    pub outputs: Vec<(String, ValueIx)>,
    /// Items that depend on weights alone, run once at load.
    pub init: Vec<Item>,
    /// The rest.
    pub segments: Vec<Segment>,
    /// Declared state.
    pub states: Vec<StatePair>,
    /// Outputs that go on to other parts of the same model as they lie; others are row-major.
    #[serde(default)]
    pub passed: Vec<ValueIx>,
    /// Extents that the model takes to be equal and that no rule could prove equal: checked for
    /// every request.
    #[serde(default)]
    pub constraints: Vec<Constraint>,
    /// Along what requests may be joined, and along what not.
    #[serde(default)]
    pub batches: Vec<Batch>,
    /// What fusion saves, for the decisions in `whys`.
    #[serde(default)]
    pub savings: Vec<Saving>,
    /// How exactly products of f32 are computed.
    #[serde(default)]
    pub precision: crate::Precision,
    /// What became of every node of the model.
    pub fates: Vec<NodeFate>,
    /// Decisions so far (fusion and layouts).
    pub whys: Vec<Why>,
    /// Constants, shared with bodies.
    #[serde(skip)]
    pub weights: Arc<WeightStore>,
}

/// Why a program cannot run: it stands for one that could not be made for all sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub why: String,
    /// Where it stands for what a request takes and the program is not made for: the node, and what is taken there
    /// (for a branch 1 where its condition holds, for a loop its rounds).
    pub taken: Option<(String, i64)>,
    /// The value that holds what is taken there, where the request says it.
    pub by: Option<ValueIx>,
}

/// Name of the host operator that stands for what could not be lowered for all sizes: attributes
/// `why` and, for what a request takes, `node` and `taken`.
pub const REFUSE: &str = "Refuse";

impl Program {
    /// Puts a block without items in front where control flow comes first and takes what is made once of
    /// constants: such values reach control flow from the block before it.
    pub fn lead_in(&mut self) {
        let made_once = |v: ValueIx| self.value(v).origin == ValueOrigin::Init;
        let straight = |s: &Segment| matches!(s, Segment::Straight(_));
        let first = self.segments.iter().position(straight);
        let taken = (0..first.unwrap_or(self.segments.len()))
            .any(|s| self.segment_reads(s).into_iter().any(made_once));
        if taken {
            self.segments.insert(0, Segment::Straight(Vec::new()));
        }
    }

    /// Why it cannot run, where it stands for a program that could not be made.
    pub fn refusal(&self) -> Option<Refusal> {
        let mut items = self.segments.iter().flat_map(Segment::items);
        let (attrs, inputs) = items.find_map(|i| match &i.work {
            ItemWork::Host { op, inputs, .. } if op.name == REFUSE => Some((&op.attrs, inputs)),
            _ => None,
        })?;
        let text = |name: &str| match attrs.get(name) {
            Some(Attr::Str(s)) => Some(s.clone()),
            _ => None,
        };
        let taken = match attrs.get("taken") {
            Some(Attr::Int(n)) => Some(*n),
            _ => None,
        };
        Some(Refusal {
            why: text("why").unwrap_or_default(),
            taken: text("node").zip(taken),
            by: inputs.get(1).copied().flatten(),
        })
    }

    /// What the program computes as a hash, hexadecimal: all but its name, its weights and what is said of it.
    ///
    /// # Errors
    /// [`PlanError::File`] for a program that has no text form.
    pub fn hash(&self) -> Result<String, PlanError> {
        let parts = (
            (&self.symbols, &self.values, &self.inputs, &self.outputs),
            (&self.init, &self.segments, &self.states),
            (&self.passed, &self.constraints),
        );
        let text = crate::json::compact(&parts).map_err(|e| PlanError::File(e.to_string()))?;
        let mut h = blake3::Hasher::new();
        h.update(text.as_bytes());
        if self.precision != crate::Precision::default() {
            h.update(self.precision.name().as_bytes());
        }
        Ok(h.finalize().to_hex().to_string())
    }

    /// The value `ix`.
    pub fn value(&self, ix: ValueIx) -> &ProgramValue {
        &self.values[ix as usize]
    }

    /// Every value that segment `s` reads, control flow's captures included.
    pub fn segment_reads(&self, s: usize) -> Vec<ValueIx> {
        let mut out = Vec::new();
        match self.segments.get(s) {
            Some(Segment::If { cond, captures, .. }) => {
                out.push(*cond);
                out.extend(captures);
            }
            Some(Segment::Loop {
                trip,
                cond,
                carried,
                captures,
                ..
            }) => {
                out.extend(trip.iter().chain(cond).chain(carried).chain(captures));
            }
            Some(s) => s.items().iter().for_each(|i| out.extend(i.reads())),
            None => {}
        }
        out.arrange();
        out.dedup();
        out
    }

    /// Every value that segment `s` defines.
    pub fn segment_writes(&self, s: usize) -> Vec<ValueIx> {
        match self.segments.get(s) {
            Some(Segment::If { outputs, .. } | Segment::Loop { outputs, .. }) => outputs.clone(),
            Some(s) => s.items().iter().flat_map(Item::writes).collect(),
            None => Vec::new(),
        }
    }
}

impl Item {
    /// Values that it reads.
    pub fn reads(&self) -> Vec<ValueIx> {
        match &self.work {
            ItemWork::Kernel { kernel, args } => with_role(kernel, args, kernel::Role::Read),
            ItemWork::Host { inputs, .. } => inputs.iter().flatten().copied().collect(),
        }
    }

    /// Values that it writes.
    pub fn writes(&self) -> Vec<ValueIx> {
        match &self.work {
            ItemWork::Kernel { kernel, args } => with_role(kernel, args, kernel::Role::Write),
            ItemWork::Host { outputs, .. } => outputs.clone(),
        }
    }
}

fn with_role(kernel: &Kernel, args: &[ValueIx], role: kernel::Role) -> Vec<ValueIx> {
    let operands = kernel.operands.iter().zip(args);
    operands
        .filter(|(o, _)| o.role == role)
        .map(|(_, &v)| v)
        .collect()
}
