//! Writes nodes of a graph down as an ONNX model, the bytes of a `ModelProto`.
use crate::graph::{Attribute, Constant, Data, Extent, Graph, Node, TensorType};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Inputs and outputs of a group of nodes, in the order in which its node takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Names of what it takes, constants left out.
    pub inputs: Vec<String>,
    /// Names of what others take of what it gives.
    pub outputs: Vec<String>,
}

/// The model of the nodes `of` of `graph`, in that order, with these ports; called `name`. None where there is no
/// memory for it.
pub fn model(graph: &Graph<'_>, of: &[usize], ports: &Ports, name: &str) -> Option<Vec<u8>> {
    let nodes: Vec<&Node<'_>> = of.iter().filter_map(|&n| graph.nodes.get(n)).collect();
    of_nodes(graph, &nodes, ports, name)
}

/// As [`model`], of nodes that need not be the graph's.
pub fn of_nodes(
    graph: &Graph<'_>,
    nodes: &[&Node<'_>],
    ports: &Ports,
    name: &str,
) -> Option<Vec<u8>> {
    let mut out = Message::default();
    out.int(1, graph.ir);
    out.text(2, "onnxruntime");
    for (domain, version) in &graph.opsets {
        let mut set = Message::default();
        set.text(1, domain);
        set.int(2, *version);
        out.message(8, set);
    }
    let used: BTreeSet<&str> = nodes.iter().flat_map(|n| n.reads()).collect();
    let used = used
        .into_iter()
        .chain(ports.outputs.iter().map(String::as_str));
    let constants: BTreeSet<&str> = used.collect();
    out.message(7, body(graph, nodes, &constants, ports, name));
    out.into_bytes()
}

/// The `GraphProto` of some nodes, with those constants that are named.
fn body<'a>(
    graph: &'a Graph<'_>,
    nodes: &[&'a Node<'_>],
    constants: &BTreeSet<&str>,
    ports: &Ports,
    name: &str,
) -> Message<'a> {
    let mut out = Message::default();
    let names = names(nodes);
    for (node, name) in nodes.iter().zip(&names) {
        out.message(1, node_of(node, name));
    }
    out.text(2, name);
    for &name in constants {
        if let Some(c) = graph.values.get(name).and_then(|v| v.constant.as_ref()) {
            out.message(5, tensor(c, name));
        }
    }
    let typed = |name: &str| graph.values.get(name).and_then(|v| v.tensor.as_ref());
    for name in &ports.inputs {
        out.message(11, value(name, typed(name), true));
    }
    for name in &ports.outputs {
        // What onnxruntime derived of shapes is left out: it is derived again.
        out.message(12, value(name, typed(name), false));
    }
    out
}

/// Names under which errors speak of the nodes: each one's own, numbered where several have the same.
pub fn names(nodes: &[&Node<'_>]) -> Vec<String> {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for n in nodes {
        *seen.entry(n.label()).or_default() += 1;
    }
    let named = |(i, n): (usize, &&Node<'_>)| match seen.get(n.label()) {
        Some(1) if !n.label().is_empty() => n.label().to_string(),
        _ => format!("{}#{i}", n.label()),
    };
    nodes.iter().enumerate().map(named).collect()
}

fn node_of<'a>(node: &'a Node<'_>, name: &str) -> Message<'a> {
    let mut out = Message::default();
    // An input or output that is left out at the end is not written.
    let written = |all: &[String]| {
        all.iter()
            .rposition(|n| !n.is_empty())
            .map_or(0, |at| at + 1)
    };
    for i in &node.inputs[..written(&node.inputs)] {
        out.text(1, i);
    }
    for o in &node.outputs[..written(&node.outputs)] {
        out.text(2, o);
    }
    out.text(3, name);
    out.text(4, &node.operator);
    for (name, value) in &node.attributes {
        out.message(5, attribute(name, value));
    }
    out.text(7, &node.domain);
    out
}

/// An `AttributeProto`.
fn attribute<'a>(name: &str, value: &'a Attribute<'_>) -> Message<'a> {
    let mut out = Message::default();
    out.text(1, name);
    let kind = match value {
        Attribute::Float(f) => {
            out.float(2, *f);
            1
        }
        Attribute::Int(i) => {
            out.int(3, *i);
            2
        }
        Attribute::Text(t) => {
            out.bytes(4, t);
            3
        }
        Attribute::Tensor(t) => {
            out.message(5, tensor(t, ""));
            4
        }
        Attribute::Graph(g) => {
            let nodes: Vec<&Node<'_>> = g.nodes.iter().collect();
            let ports = Ports {
                inputs: g.inputs.clone(),
                outputs: g.outputs.clone(),
            };
            // What lies outside is seen from within.
            let constants = g.constants.iter().map(String::as_str).collect();
            out.message(6, body(g, &nodes, &constants, &ports, name));
            5
        }
        Attribute::Floats(all) => {
            all.iter().for_each(|f| out.float(7, *f));
            6
        }
        Attribute::Ints(all) => {
            all.iter().for_each(|i| out.int(8, *i));
            7
        }
        Attribute::Texts(all) => {
            all.iter().for_each(|t| out.bytes(9, t));
            8
        }
        Attribute::Unknown => 0,
    };
    out.int(20, kind);
    out
}

/// A `TensorProto`.
fn tensor<'a>(of: &'a Constant<'_>, name: &str) -> Message<'a> {
    let mut out = Message::default();
    of.shape.iter().for_each(|&d| out.int(1, d));
    out.int(2, i64::from(of.element));
    match &of.data {
        Data::Text(all) => all.iter().for_each(|t| out.bytes(6, t)),
        Data::Bytes(b) => out.bytes(9, b),
        Data::Owned(b) => out.bytes(9, b),
    }
    if !name.is_empty() {
        out.text(8, name);
    }
    out
}

/// A `ValueInfoProto`.
fn value<'a>(name: &str, of: Option<&TensorType>, with_shape: bool) -> Message<'a> {
    let mut out = Message::default();
    out.text(1, name);
    if let Some(t) = of {
        let mut tensor = Message::default();
        tensor.int(1, i64::from(t.element));
        if let (Some(dims), true) = (&t.shape, with_shape) {
            let mut shape = Message::default();
            for d in dims {
                let mut dim = Message::default();
                match d {
                    Extent::Size(n) => dim.int(1, *n),
                    Extent::Symbol(s) => dim.text(2, s),
                    Extent::Open => {}
                }
                shape.message(1, dim);
            }
            tensor.message(2, shape);
        }
        let mut kind = Message::default();
        kind.message(1, tensor);
        out.message(2, kind);
    }
    out
}

/// A message of protobuf, in pieces: what is large is not copied before the whole is put together.
#[derive(Default)]
struct Message<'a> {
    pieces: Vec<Cow<'a, [u8]>>,
    len: usize,
}

/// Bytes that are copied at once.
const SMALL: usize = 4096;

impl<'a> Message<'a> {
    fn push(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        match self.pieces.last_mut() {
            Some(Cow::Owned(last)) => last.extend_from_slice(bytes),
            _ => self.pieces.push(Cow::Owned(bytes.to_vec())),
        }
    }

    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.push(&[v as u8 | 0x80]);
            v >>= 7;
        }
        self.push(&[v as u8]);
    }

    fn key(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn int(&mut self, field: u64, v: i64) {
        self.key(field, 0);
        self.varint(v as u64);
    }

    fn float(&mut self, field: u64, v: f32) {
        self.key(field, 5);
        self.push(&v.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, v: &'a [u8]) {
        self.key(field, 2);
        self.varint(v.len() as u64);
        if v.len() <= SMALL {
            return self.push(v);
        }
        self.len += v.len();
        self.pieces.push(Cow::Borrowed(v));
    }

    fn text(&mut self, field: u64, v: &str) {
        self.key(field, 2);
        self.varint(v.len() as u64);
        self.push(v.as_bytes());
    }

    fn message(&mut self, field: u64, v: Message<'a>) {
        self.key(field, 2);
        self.varint(v.len as u64);
        for piece in v.pieces {
            match piece {
                Cow::Owned(b) => self.push(&b),
                Cow::Borrowed(b) => {
                    self.len += b.len();
                    self.pieces.push(Cow::Borrowed(b));
                }
            }
        }
    }

    /// The whole; none where there is no memory for it.
    fn into_bytes(self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        out.try_reserve_exact(self.len).ok()?;
        self.pieces.iter().for_each(|p| out.extend_from_slice(p));
        Some(out)
    }
}
