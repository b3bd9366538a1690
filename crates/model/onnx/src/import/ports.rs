//! Inputs, outputs and metadata of a model as its file states them.
use crate::proto::{DataType, Dimension, Model, Type, ValueInfo};
use graph::Graph;
use layout::{DType, Inserted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An input or output as the model's file states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Name.
    pub name: String,
    /// Type as ONNX spells it: `tensor(float)`, `seq(tensor(int64))`, `map(int64,tensor(float))`,
    /// `optional(tensor(float))`.
    pub kind: String,
    /// Element type, for a tensor of one that is known here.
    pub dtype: Option<DType>,
    /// Dimensions, for a tensor whose rank is stated or follows from the rest of the model.
    pub dims: Option<Vec<PortDim>>,
}

/// A dimension of a [`Port`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortDim {
    /// A number.
    Size(i64),
    /// A symbol by its name in the file.
    Symbol(String),
    /// Not stated.
    Open,
}

/// What a model's file says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Name of the graph.
    pub graph_name: String,
    /// Description of the graph.
    pub graph_description: String,
    /// Domain of the model.
    pub domain: String,
    /// Description of the model.
    pub description: String,
    /// Version of the model.
    pub version: i64,
    /// What else its makers noted, by key.
    pub custom: BTreeMap<String, String>,
}

/// The metadata of `model`.
pub(super) fn metadata(model: &Model) -> Metadata {
    Metadata {
        graph_name: model.graph.name.clone(),
        graph_description: model.graph.description.clone(),
        domain: model.domain.clone(),
        description: model.description.clone(),
        version: model.model_version,
        custom: model.metadata.iter().cloned().inserted(),
    }
}

/// Inputs and outputs as the file states them. Sizes that an output does not state are those that `made`,
/// the graph that was made of the model, has as numbers.
pub(super) fn ports(model: &Model, made: Option<&Graph>) -> (Vec<Port>, Vec<Port>) {
    let inputs = model.graph.inputs.iter().map(port).collect();
    let output = |(i, info): (usize, &ValueInfo)| {
        let mut port = port(info);
        if let Some(value) = made.and_then(|g| Some(g.value(*g.outputs.get(i)?)))
            && port.dtype.is_some_and(|d| !d.is_held())
        {
            let dims = port
                .dims
                .get_or_insert_with(|| vec![PortDim::Open; value.shape.len()]);
            for (dim, found) in dims.iter_mut().zip(&value.shape) {
                if let (PortDim::Open, Some(n)) = (&*dim, found.known()) {
                    *dim = PortDim::Size(n);
                }
            }
        }
        port
    };
    let outputs = model.graph.outputs.iter().enumerate().map(output);
    (inputs, outputs.collect())
}

fn port(info: &ValueInfo) -> Port {
    let ty = info.ty.as_ref();
    let (dtype, dims) = match ty {
        Some(Type::Tensor(t)) => {
            let dim = |d: &Dimension| match d {
                Dimension::Value(n) => PortDim::Size(*n),
                Dimension::Param(name) => PortDim::Symbol(name.clone()),
                Dimension::Unknown => PortDim::Open,
            };
            let dims = t.shape.as_ref();
            let dims = dims.map(|s| s.iter().map(dim).collect());
            (super::types::dtype_of(t.dtype).ok(), dims)
        }
        _ => (None, None),
    };
    Port {
        name: info.name.clone(),
        kind: ty.map_or_else(String::new, spelled),
        dtype,
        dims,
    }
}

/// A type as ONNX spells it.
fn spelled(ty: &Type) -> String {
    match ty {
        Type::Unspecified => String::new(),
        Type::Tensor(t) => format!("tensor({})", element(t.dtype)),
        Type::SparseTensor(t) => format!("sparse_tensor({})", element(t.dtype)),
        Type::Sequence(of) => format!("seq({})", spelled(of)),
        Type::Optional(of) => format!("optional({})", spelled(of)),
        Type::Map { key, value } => format!("map({},{})", element(*key), spelled(value)),
        Type::Opaque { domain, name } => format!("opaque({domain},{name})"),
    }
}

fn element(code: i32) -> String {
    match DataType::from_code(code) {
        Some(t) => t.name().to_lowercase(),
        None => "undefined".into(),
    }
}
