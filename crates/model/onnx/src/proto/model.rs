//! `ModelProto`, `GraphProto`, `NodeProto`, `FunctionProto` and `OperatorSetIdProto`.

use tensor::Bytes;

use super::attribute::{Attribute, parse_attribute};
use super::tensor::{SparseTensor, TensorData, parse_sparse_tensor, parse_tensor};
use super::types::{ValueInfo, parse_value_info};
use super::wire::{Cursor, Field};
use super::{parse_entry, set_once};
use crate::error::Error;

/// The oldest IR version that is read: older ones state no operator sets.
pub const MIN_IR_VERSION: i64 = 3;
/// The newest IR version that is read.
pub const MAX_IR_VERSION: i64 = 14;

/// A model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Version of the file format, within [`MIN_IR_VERSION`]..=[`MAX_IR_VERSION`].
    pub ir_version: i64,
    /// Operator sets by domain; at least one, each domain once.
    pub opset_imports: Vec<OpsetImport>,
    /// The program that wrote the file.
    pub producer_name: String,
    /// Its version.
    pub producer_version: String,
    /// The model's own domain.
    pub domain: String,
    /// The model's own version.
    pub model_version: i64,
    /// Its description.
    pub description: String,
    /// The main graph.
    pub graph: Graph,
    /// Functions that nodes may call like operators.
    pub functions: Vec<Function>,
    /// Free-form properties in file order.
    pub metadata: Vec<(String, String)>,
}

/// The version of one operator set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpsetImport {
    /// The set's domain; `ai.onnx` is written as the empty string.
    pub domain: String,
    /// Its version, at least 1.
    pub version: i64,
}

/// A graph: the main one, or one in an attribute.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Graph {
    /// The graph's name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Nodes in file order, which is topological by the standard; not checked here.
    pub nodes: Vec<Node>,
    /// Inputs; those that are also initializers have a default.
    pub inputs: Vec<ValueInfo>,
    /// Outputs.
    pub outputs: Vec<ValueInfo>,
    /// Types stated for values in between.
    pub value_info: Vec<ValueInfo>,
    /// Constant tensors.
    pub initializers: Vec<TensorData>,
    /// Sparse constant tensors, which are not supported where something uses them.
    pub sparse_initializers: Vec<SparseTensor>,
}

/// A node: one call of an operator or function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Node {
    /// The node's name, often empty.
    pub name: String,
    /// Name of the operator or function.
    pub op_type: String,
    /// Its domain; `ai.onnx` is written as the empty string.
    pub domain: String,
    /// Which of several functions of one name is called; mostly empty.
    pub overload: String,
    /// Input values; an empty name is an input left out.
    pub inputs: Vec<String>,
    /// Output values; an empty name is an output not wanted.
    pub outputs: Vec<String>,
    /// Attributes in file order.
    pub attributes: Vec<Attribute>,
}

/// A function of the model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Function {
    /// The function's name.
    pub name: String,
    /// Its domain; `ai.onnx` is written as the empty string.
    pub domain: String,
    /// Which of several functions of one name this is; mostly empty.
    pub overload: String,
    /// Names of the parameters.
    pub inputs: Vec<String>,
    /// Names of the results.
    pub outputs: Vec<String>,
    /// Names of attributes that a caller must give.
    pub attributes: Vec<String>,
    /// Attributes with defaults.
    pub attribute_defaults: Vec<Attribute>,
    /// The body.
    pub nodes: Vec<Node>,
    /// Operator sets of the body; those of the model where empty.
    pub opset_imports: Vec<OpsetImport>,
    /// Types stated for values of the body.
    pub value_info: Vec<ValueInfo>,
}

impl Model {
    /// The version imported for a domain (`""` is ONNX's own).
    pub fn opset(&self, domain: &str) -> Option<i64> {
        let domain = own_domain(domain);
        self.opset_imports
            .iter()
            .find(|set| set.domain == domain)
            .map(|set| set.version)
    }

    /// The function that a node of this domain, name and overload calls.
    pub fn function(&self, domain: &str, name: &str, overload: &str) -> Option<&Function> {
        let domain = own_domain(domain);
        self.functions
            .iter()
            .find(|f| f.domain == domain && f.name == name && f.overload == overload)
    }
}

impl Node {
    /// The attribute called `name`.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes
            .iter()
            .find(|attribute| attribute.name == name)
    }
}

/// Both spellings of ONNX's own domain are one.
fn own_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

fn parse_domain(c: &mut Cursor<'_>, field: Field) -> Result<String, Error> {
    let domain = c.name(field, "domain")?;
    Ok(if own_domain(&domain).is_empty() {
        String::new()
    } else {
        domain
    })
}

/// Parses a whole file, called `name` in messages.
pub(crate) fn parse_model(bytes: &Bytes, name: &str) -> Result<Model, Error> {
    let refuse = |field: &str, problem: String| Error::Model {
        file: name.to_string(),
        field: field.to_string(),
        problem,
    };
    if bytes.is_empty() {
        return Err(refuse(
            "file",
            "is empty; download or export the model again".to_string(),
        ));
    }
    let mut c = Cursor::new(bytes, name, "ModelProto");
    let (mut ir_version, mut graph, mut opset_imports) = (None, None, Vec::new());
    let (mut producer_name, mut producer_version) = (String::new(), String::new());
    let (mut domain, mut model_version, mut description) = (String::new(), 0, String::new());
    let (mut functions, mut metadata) = (Vec::new(), Vec::new());
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => ir_version = Some(c.i64(f, "ir_version")?),
            2 => producer_name = c.name(f, "producer_name")?,
            3 => producer_version = c.name(f, "producer_version")?,
            4 => domain = c.name(f, "domain")?,
            5 => model_version = c.i64(f, "model_version")?,
            6 => description = c.prose(f, "doc_string")?,
            7 => {
                let value = parse_graph(&mut c, f, "graph")?;
                set_once(&mut graph, &c, "graph", value)?;
            }
            8 => parse_opset(&mut c, f, &mut opset_imports)?,
            14 => metadata.push(parse_entry(&mut c, f, "metadata_props")?),
            25 => functions.push(parse_function(&mut c, f)?),
            _ => c.skip(f)?,
        }
    }
    let ir_version = ir_version.ok_or_else(|| {
        refuse(
            "ir_version",
            "is missing; this is no ONNX model, check the path".to_string(),
        )
    })?;
    if !(MIN_IR_VERSION..=MAX_IR_VERSION).contains(&ir_version) {
        let what = if ir_version < MIN_IR_VERSION {
            "is older"
        } else {
            "is newer"
        };
        let problem = format!(
            "{ir_version} {what} than this reader takes ({MIN_IR_VERSION} to {MAX_IR_VERSION}); export the model again with another version of ONNX"
        );
        return Err(refuse("ir_version", problem));
    }
    let graph = graph.ok_or_else(|| {
        refuse(
            "graph",
            "is missing; this is no ONNX model, check the path".to_string(),
        )
    })?;
    if opset_imports.is_empty() {
        let problem = "is missing, so the operators' versions are unknown; export the model again";
        return Err(refuse("opset_import", problem.to_string()));
    }
    Ok(Model {
        ir_version,
        opset_imports,
        producer_name,
        producer_version,
        domain,
        model_version,
        description,
        graph,
        functions,
        metadata,
    })
}

fn parse_opset(
    parent: &mut Cursor<'_>,
    field: Field,
    out: &mut Vec<OpsetImport>,
) -> Result<(), Error> {
    let mut c = parent.message(field, "opset_import", "OperatorSetIdProto")?;
    let mut set = OpsetImport {
        domain: String::new(),
        version: 0,
    };
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => set.domain = parse_domain(&mut c, f)?,
            2 => set.version = c.i64(f, "version")?,
            _ => c.skip(f)?,
        }
    }
    if set.version < 1 {
        let problem = format!("{} is no version for domain '{}'", set.version, set.domain);
        return Err(c.error("version", problem));
    }
    match out.iter().find(|other| other.domain == set.domain) {
        None => out.push(set),
        Some(other) if other.version == set.version => {}
        Some(other) => {
            let (a, b) = (other.version, set.version);
            let problem = format!("domain '{}' has versions {a} and {b}", set.domain);
            return Err(c.error("version", problem));
        }
    }
    Ok(())
}

pub(super) fn parse_graph(
    parent: &mut Cursor<'_>,
    field: Field,
    name: &str,
) -> Result<Graph, Error> {
    let mut c = parent.message(field, name, "GraphProto")?;
    let mut graph = Graph::default();
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => graph.nodes.push(parse_node(&mut c, f)?),
            2 => graph.name = c.name(f, "name")?,
            10 => graph.description = c.prose(f, "doc_string")?,
            5 => graph
                .initializers
                .push(parse_tensor(&mut c, f, "initializer")?),
            11 => graph.inputs.push(parse_value_info(&mut c, f, "input")?),
            12 => graph.outputs.push(parse_value_info(&mut c, f, "output")?),
            13 => graph
                .value_info
                .push(parse_value_info(&mut c, f, "value_info")?),
            15 => {
                let sparse = parse_sparse_tensor(&mut c, f, "sparse_initializer")?;
                graph.sparse_initializers.push(sparse);
            }
            _ => c.skip(f)?,
        }
    }
    Ok(graph)
}

fn parse_node(parent: &mut Cursor<'_>, field: Field) -> Result<Node, Error> {
    let mut c = parent.message(field, "node", "NodeProto")?;
    let mut node = Node::default();
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => node.inputs.push(c.name(f, "input")?),
            2 => node.outputs.push(c.name(f, "output")?),
            3 => node.name = c.name(f, "name")?,
            4 => node.op_type = c.name(f, "op_type")?,
            5 => node
                .attributes
                .push(parse_attribute(&mut c, f, "attribute")?),
            7 => node.domain = parse_domain(&mut c, f)?,
            8 => node.overload = c.name(f, "overload")?,
            _ => c.skip(f)?,
        }
    }
    Ok(node)
}

fn parse_function(parent: &mut Cursor<'_>, field: Field) -> Result<Function, Error> {
    let mut c = parent.message(field, "functions", "FunctionProto")?;
    let mut function = Function::default();
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => function.name = c.name(f, "name")?,
            4 => function.inputs.push(c.name(f, "input")?),
            5 => function.outputs.push(c.name(f, "output")?),
            6 => function.attributes.push(c.name(f, "attribute")?),
            7 => function.nodes.push(parse_node(&mut c, f)?),
            9 => parse_opset(&mut c, f, &mut function.opset_imports)?,
            10 => function.domain = parse_domain(&mut c, f)?,
            11 => {
                let attribute = parse_attribute(&mut c, f, "attribute_proto")?;
                function.attribute_defaults.push(attribute);
            }
            12 => function
                .value_info
                .push(parse_value_info(&mut c, f, "value_info")?),
            13 => function.overload = c.name(f, "overload")?,
            _ => c.skip(f)?,
        }
    }
    Ok(function)
}
