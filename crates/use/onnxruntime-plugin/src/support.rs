//! Which nodes are ours: those whose operators and types the importer covers, in groups as large as possible, each of
//! which it has made a model of.
use crate::element;
use crate::graph::{Attribute, Graph, Node};
use crate::groups::groups;
use crate::write::{self, Ports};
use shopfloor::{Model, ModelOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// Times that nodes which a group cannot have are taken out before groups are halved.
const ROUNDS: usize = 24;

/// Operators of ONNX's own that compute nothing, or next to nothing: a group of them alone is not worth a request.
const TRIVIAL: &[&str] = &[
    "Cast",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Range",
    "Reshape",
    "Shape",
    "Size",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// Operators that a build lacks without a feature, which `cfg!` looked at.
const LACKED: &[(bool, &[&str])] = &[
    (cfg!(feature = "fft"), &["DFT", "STFT"]),
    (cfg!(feature = "patterns"), &["RegexFullMatch", "Tokenizer"]),
    (cfg!(feature = "pictures"), &["ImageDecoder"]),
];

/// A file in memory that several hold.
#[derive(Clone, PartialEq)]
pub(crate) struct File(Arc<Vec<u8>>);

impl AsRef<[u8]> for File {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for File {
    fn from(bytes: Vec<u8>) -> File {
        File(Arc::new(bytes))
    }
}

/// A group of nodes and what was made of it.
pub(crate) struct Taken {
    /// Its nodes, in the graph's order.
    pub nodes: Vec<usize>,
    /// Its model as a file.
    pub bytes: File,
    /// Its model.
    pub model: Model,
}

/// The groups of `graph` that are ours.
pub(crate) fn taken(graph: &Graph<'_>, options: &ModelOptions) -> Vec<Taken> {
    if left_alone(graph, options) {
        return vec![];
    }
    let from = sources(graph);
    let mut takes: Vec<bool> = graph
        .nodes
        .iter()
        .map(|n| may(graph, n) && is_told(graph, n))
        .collect();
    let mut made: BTreeMap<Vec<usize>, Taken> = BTreeMap::new();
    for round in 0.. {
        let mut failed = false;
        let mut out = vec![];
        for group in groups(&takes, &from) {
            if !worth(graph, &group) {
                continue;
            }
            if let Some(t) = made.remove(&group) {
                out.push(t);
                continue;
            }
            match made_of(graph, &group, options) {
                Ok(t) => out.push(t),
                Err(wrong) if round < ROUNDS && !wrong.is_empty() => {
                    wrong.iter().for_each(|&n| takes[n] = false);
                    failed = true;
                }
                Err(_) => halves(graph, &group, options, &mut out),
            }
        }
        if !failed {
            return out;
        }
        made.extend(out.into_iter().map(|t| (t.nodes.clone(), t)));
    }
    vec![]
}

/// Whether nothing of a body is taken, because the node whose body it is will be, or will be made others of
/// (SequenceMap): then onnxruntime checks the body again and knows no operators of a plugin there.
fn left_alone(graph: &Graph<'_>, options: &ModelOptions) -> bool {
    let Some(node) = &graph.body_of else {
        return false;
    };
    if !["If", "Loop", "Scan"].contains(&node.operator.as_str()) {
        return true;
    }
    let text = |all: BTreeSet<&str>| all.into_iter().map(ToString::to_string).collect();
    let ports = Ports {
        inputs: text(
            node.reads()
                .filter(|name| !is_constant(graph, name))
                .collect(),
        ),
        outputs: text(node.gives().collect()),
    };
    may(graph, node)
        && ports
            .inputs
            .iter()
            .chain(&ports.outputs)
            .all(|p| is_known(graph, p))
        && write::of_nodes(graph, &[node], &ports, "node")
            .is_some_and(|bytes| Model::from_memory("node", bytes, options).is_ok())
}

/// Takes what it can of the two halves of a group that no single node is wrong with.
fn halves(graph: &Graph<'_>, group: &[usize], options: &ModelOptions, out: &mut Vec<Taken>) {
    let (first, second) = group.split_at(group.len() / 2);
    for half in [first, second]
        .into_iter()
        .filter(|h| h.len() < group.len())
    {
        if !worth(graph, half) {
            continue;
        }
        match made_of(graph, half, options) {
            Ok(t) => out.push(t),
            Err(_) => halves(graph, half, options, out),
        }
    }
}

/// The model of a group, or those of its nodes that are named as wrong.
fn made_of(
    graph: &Graph<'_>,
    group: &[usize],
    options: &ModelOptions,
) -> Result<Taken, Vec<usize>> {
    let ports = ports(graph, group);
    let odd: BTreeSet<&str> = ports
        .inputs
        .iter()
        .chain(&ports.outputs)
        .map(String::as_str)
        .filter(|p| !is_known(graph, p))
        .collect();
    if !odd.is_empty() {
        let has = |&n: &usize| {
            let node = &graph.nodes[n];
            node.reads()
                .chain(node.gives())
                .any(|name| odd.contains(name))
        };
        return Err(group.iter().copied().filter(has).collect());
    }
    let Some(bytes) = write::model(graph, group, &ports, "group").map(File::from) else {
        return Err(vec![]);
    };
    match Model::from_memory("group", bytes.clone(), options) {
        Ok(model) => Ok(Taken {
            nodes: group.to_vec(),
            bytes,
            model,
        }),
        Err(e) => Err(wrong(graph, group, &e)),
    }
}

/// The nodes of a group that an error of import names.
fn wrong(graph: &Graph<'_>, group: &[usize], e: &shopfloor::Error) -> Vec<usize> {
    let nodes: Vec<&Node<'_>> = group.iter().map(|&n| &graph.nodes[n]).collect();
    let names = write::names(&nodes);
    let shopfloor::Error::Model(cause) = e else {
        return vec![];
    };
    let named: BTreeSet<&str> = match cause.downcast_ref::<onnx::ImportError>() {
        Some(onnx::ImportError::Unsupported(all)) => all.iter().map(|n| n.node.as_str()).collect(),
        Some(onnx::ImportError::Node { node, .. }) => BTreeSet::from([node.as_str()]),
        _ => BTreeSet::new(),
    };
    let is = |(_, name): &(&usize, &String)| named.contains(name.as_str());
    group
        .iter()
        .zip(&names)
        .filter(is)
        .map(|(&n, _)| n)
        .collect()
}

/// For each node those that it takes values of.
fn sources(graph: &Graph<'_>) -> Vec<Vec<usize>> {
    let mut made_by: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out = Vec::with_capacity(graph.nodes.len());
    for (at, node) in graph.nodes.iter().enumerate() {
        let all: BTreeSet<usize> = node
            .reads()
            .filter_map(|n| made_by.get(n).copied())
            .collect();
        out.push(all.into_iter().collect());
        made_by.extend(node.gives().map(|name| (name, at)));
    }
    out
}

/// Whether a group is worth a request: it computes something, or nothing else is left of the graph.
fn worth(graph: &Graph<'_>, group: &[usize]) -> bool {
    let trivial = |&n: &usize| {
        let node = &graph.nodes[n];
        node.domain.is_empty() && TRIVIAL.contains(&node.operator.as_str())
    };
    (group.len() == graph.nodes.len() && graph.body_of.is_none()) || !group.iter().all(trivial)
}

/// Whether a node may be ours: its operator is covered, and so are those of its bodies.
fn may(graph: &Graph<'_>, node: &Node<'_>) -> bool {
    let version = graph.opsets.iter().find(|(d, _)| plain(d) == node.domain);
    let version = version.map_or(1, |(_, v)| *v);
    let lacked = |(built, all): &(bool, &[&str])| !built && all.contains(&node.operator.as_str());
    let known = |(_, a): &(String, Attribute<'_>)| !matches!(a, Attribute::Unknown);
    covers(&node.domain, &node.operator, version)
        && !LACKED.iter().any(lacked)
        && node.attributes.iter().all(known)
        && node.bodies().all(|b| b.nodes.iter().all(|n| may(b, n)))
}

/// Whether all constants that a node reads are known.
fn is_told(graph: &Graph<'_>, node: &Node<'_>) -> bool {
    let withheld = |name: &str| graph.values.get(name).is_some_and(|v| v.is_withheld);
    !node.reads().any(withheld)
}

/// Whether a value is a tensor of a type that can go in and out.
fn is_known(graph: &Graph<'_>, name: &str) -> bool {
    let tensor = graph.values.get(name).and_then(|v| v.tensor.as_ref());
    tensor.is_some_and(|t| element::dtype(t.element).is_some())
}

fn is_constant(graph: &Graph<'_>, name: &str) -> bool {
    graph.values.get(name).is_some_and(|v| v.constant.is_some())
}

/// A domain as nodes name it.
fn plain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn covers(domain: &str, operator: &str, version: i64) -> bool {
    type Versions = BTreeMap<(&'static str, &'static str), Vec<(i64, i64)>>;
    static ALL: OnceLock<Versions> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all = Versions::new();
        for (domain, name, first, last) in onnx::covered_versions() {
            all.entry((domain, name)).or_default().push((first, last));
        }
        all
    });
    let found = all
        .iter()
        .find(|((d, n), _)| *d == domain && *n == operator);
    found.is_some_and(|(_, ranges)| ranges.iter().any(|(a, b)| (*a..=*b).contains(&version)))
}

/// Inputs and outputs of a group, sorted: what it takes of others, constants left out, and what others, or who runs the
/// graph, take of it.
pub fn ports(graph: &Graph<'_>, group: &[usize]) -> Ports {
    let inside: BTreeSet<usize> = group.iter().copied().collect();
    let given: BTreeSet<&str> = group.iter().flat_map(|&n| graph.nodes[n].gives()).collect();
    let inputs: BTreeSet<&str> = group
        .iter()
        .flat_map(|&n| graph.nodes[n].reads())
        .filter(|name| !given.contains(name) && !is_constant(graph, name))
        .collect();
    let others = graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(n, _)| !inside.contains(n));
    let mut wanted: BTreeSet<&str> = others.flat_map(|(_, node)| node.reads()).collect();
    wanted.extend(graph.outputs.iter().map(String::as_str));
    let text = |all: Vec<&str>| all.into_iter().map(ToString::to_string).collect();
    Ports {
        inputs: text(inputs.into_iter().collect()),
        outputs: text(given.intersection(&wanted).copied().collect()),
    }
}
