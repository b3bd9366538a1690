//! The data of a graph: values, nodes, symbols, assumptions. Import builds it, rewrites change it, the planner
//! reads it. Ops are in `ops`, rules in `verify`.
use crate::Op;
use layout::{DType, Dim, Sym};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tensor::{WeightId, WeightStore};

/// Index of a value in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueId(pub u32);

/// Index of a node in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueSource {
    /// The graph's input of this number.
    Input(u32),
    /// A constant of the weight store.
    Weight(WeightId),
    /// Output `1` of node `0`.
    Node(NodeId, u32),
}

/// A tensor in SSA form: written once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Name in the model, or a derived one; unique in the graph.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<Dim>,
    /// Origin.
    pub source: ValueSource,
    /// Contents as dimension expressions in row-major order, when known: integer (and Bool: 0 or
    /// 1) tensors of at most [`Value::MAX_INTS`] elements.
    pub ints: Option<Vec<Dim>>,
}

impl Value {
    /// Longest tensor whose contents are followed symbolically.
    pub const MAX_INTS: usize = 4096;

    /// Number of elements.
    pub fn size(&self) -> Dim {
        Dim::product(&self.shape)
    }
}

/// The model's node that a core node came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// Node's name in the model (its first output's name where it has none), unique in the model.
    pub name: String,
    /// Operator type as in the model.
    pub op_type: String,
}

/// A core op applied to values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// What it does.
    pub op: Op,
    /// What it reads.
    pub inputs: Vec<ValueId>,
    /// What it defines.
    pub outputs: Vec<ValueId>,
    /// Model nodes it stands for.
    pub origins: Vec<Origin>,
}

/// How a symbol gets its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SymbolSource {
    /// Extent of an input's dimension.
    Input {
        /// Which input.
        input: u32,
        /// Which dimension.
        axis: u32,
    },
    /// Extent of a computed value's dimension, known only when its node has run (control flow,
    /// sizes that depend on data).
    Late {
        /// Which value.
        value: ValueId,
        /// Which dimension.
        axis: u32,
    },
}

/// A named dimension of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbol {
    /// Name.
    pub name: Sym,
    /// Where its value is read.
    pub source: SymbolSource,
}

/// Two extents that the graph is built on being equal though its symbols do not say so: a choice
/// between symbols, a bound that needs no clamping (as a minimum or maximum). Whoever runs the
/// graph checks it before anything of the graph runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assumption {
    /// The model's node that relies on it.
    pub node: String,
    /// An extent.
    pub left: Dim,
    /// What it must be equal to.
    pub right: Dim,
}

/// A model as core ops: indices, SSA, nodes in an order in which every value is defined before use.
/// A branch's or loop's body is a graph of its own that sees outer values only through its inputs;
/// weights are shared by all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Graph {
    /// Name for people.
    pub name: String,
    /// All values.
    pub values: Vec<Value>,
    /// All nodes, in topological order.
    pub nodes: Vec<Node>,
    /// Inputs in the model's order.
    pub inputs: Vec<ValueId>,
    /// Outputs in the model's order.
    pub outputs: Vec<ValueId>,
    /// Symbols; a body's symbols that it does not define itself belong to the outer graph.
    pub symbols: Vec<Symbol>,
    /// What must hold of the symbols for the graph to be the model; a body's own hold in it alone.
    pub assumptions: Vec<Assumption>,
    /// Constants, shared with all bodies.
    #[serde(skip)]
    pub weights: Arc<WeightStore>,
}

impl PartialEq for Graph {
    /// Equality of structure; the bytes of constants are not compared.
    fn eq(&self, o: &Graph) -> bool {
        self.name == o.name
            && self.values == o.values
            && self.nodes == o.nodes
            && self.inputs == o.inputs
            && self.outputs == o.outputs
            && self.symbols == o.symbols
            && self.assumptions == o.assumptions
    }
}

impl Graph {
    /// The value `id`. Ids come from the same graph.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// The node `id`.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The node that defines `id`, unless it is an input or a weight.
    pub fn producer(&self, id: ValueId) -> Option<&Node> {
        match self.value(id).source {
            ValueSource::Node(n, _) => Some(self.node(n)),
            _ => None,
        }
    }

    /// For every value the nodes that read it, in order.
    pub fn readers(&self) -> Vec<Vec<NodeId>> {
        let mut r = vec![Vec::new(); self.values.len()];
        for (n, node) in self.nodes.iter().enumerate() {
            for i in &node.inputs {
                let list: &mut Vec<NodeId> = &mut r[i.0 as usize];
                if list.last() != Some(&NodeId(n as u32)) {
                    list.push(NodeId(n as u32));
                }
            }
        }
        r
    }
}
