//! A graph of onnxruntime's as plain data: what `read` reads, `support` chooses from and
//! [`crate::write`] writes down as an ONNX model. Constants and names of values stay onnxruntime's and are borrowed.
use std::collections::BTreeMap;

/// A graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph<'a> {
    /// Version of the format that its file had.
    pub ir: i64,
    /// Operator sets: domain, empty for ONNX's own, and version.
    pub opsets: Vec<(String, i64)>,
    /// Names of its inputs, in order.
    pub inputs: Vec<String>,
    /// Names of its outputs, in order.
    pub outputs: Vec<String>,
    /// Names of constants that are its own, and no outer graph's.
    pub constants: Vec<String>,
    /// Its nodes, each after those whose outputs it takes.
    pub nodes: Vec<Node<'a>>,
    /// What is known of each value, by name.
    pub values: BTreeMap<String, Value<'a>>,
    /// The node whose body it is, where it is one's.
    pub body_of: Option<Box<Node<'a>>>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node<'a> {
    /// Its name; empty where it has none.
    pub name: String,
    /// Operator.
    pub operator: String,
    /// Domain of the operator; empty for ONNX's own.
    pub domain: String,
    /// Names of its inputs; empty for one that is left out.
    pub inputs: Vec<String>,
    /// Names of its outputs; empty for one that is left out.
    pub outputs: Vec<String>,
    /// Attributes by name, in onnxruntime's order.
    pub attributes: Vec<(String, Attribute<'a>)>,
    /// Names of outer values that its bodies use.
    pub captured: Vec<String>,
}

impl<'a> Node<'a> {
    /// What errors call it: its name, or that of its first output.
    pub fn label(&self) -> &str {
        let output = self.outputs.iter().find(|o| !o.is_empty());
        match self.name.is_empty() {
            false => &self.name,
            true => output.map_or("", String::as_str),
        }
    }

    /// Its bodies.
    pub fn bodies(&self) -> impl Iterator<Item = &Graph<'a>> {
        self.attributes.iter().filter_map(|(_, a)| match a {
            Attribute::Graph(g) => Some(&**g),
            _ => None,
        })
    }

    /// Names of all values that it reads.
    pub fn reads(&self) -> impl Iterator<Item = &str> {
        let all = self.inputs.iter().chain(&self.captured);
        all.map(String::as_str).filter(|n| !n.is_empty())
    }

    /// Names of all values that it gives.
    pub fn gives(&self) -> impl Iterator<Item = &str> {
        let all = self.outputs.iter().map(String::as_str);
        all.filter(|n| !n.is_empty())
    }
}

/// What is known of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value<'a> {
    /// Its type, where it is a tensor of a known one.
    pub tensor: Option<TensorType>,
    /// Its contents, where they never change.
    pub constant: Option<Constant<'a>>,
    /// Whether they never change and onnxruntime does not tell them: it does not everywhere for an outer graph's.
    pub is_withheld: bool,
}

/// Type of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    /// Type of its elements, by ONNX's number.
    pub element: i32,
    /// Its dimensions; none where not even their number is known.
    pub shape: Option<Vec<Extent>>,
}

/// A dimension.
#[derive(Clone, Debug, PartialEq)]
pub enum Extent {
    /// Its size.
    Size(i64),
    /// Its name.
    Symbol(String),
    /// Nothing is known of it.
    Open,
}

/// A tensor whose contents never change.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant<'a> {
    /// Type of its elements, by ONNX's number.
    pub element: i32,
    /// Its dimensions.
    pub shape: Vec<i64>,
    /// Its elements.
    pub data: Data<'a>,
}

/// Elements of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum Data<'a> {
    /// As they lie in onnxruntime's memory.
    Bytes(&'a [u8]),
    /// Copied, where onnxruntime keeps none.
    Owned(Vec<u8>),
    /// Texts.
    Text(Vec<Vec<u8>>),
}

impl Data<'_> {
    /// Elements as bytes; none for texts.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Data::Bytes(b) => Some(b),
            Data::Owned(b) => Some(b),
            Data::Text(_) => None,
        }
    }
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute<'a> {
    /// An integer.
    Int(i64),
    /// Integers.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// Numbers.
    Floats(Vec<f32>),
    /// Text.
    Text(Vec<u8>),
    /// Texts.
    Texts(Vec<Vec<u8>>),
    /// A tensor.
    Tensor(Constant<'a>),
    /// A body.
    Graph(Box<Graph<'a>>),
    /// What onnxruntime has no functions for; its node is left to it.
    Unknown,
}
