//! The zoo's JSON descriptions.

use super::error::ZooError;
use layout::DType;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// `model.json`, as far as tests need it.
#[derive(Clone, Debug, Deserialize)]
pub struct Meta {
    /// Name of the model.
    pub name: String,
    /// Parameters (weights) of the model.
    pub parameters: u64,
    /// FLOP of matrix products and convolutions of the main graph, multiply and add counted as two.
    pub flops: u64,
    /// Inputs by name.
    pub inputs: BTreeMap<String, InputMeta>,
    /// Values that the symbolic dims have with these inputs.
    #[serde(default)]
    pub dynamic_dims: BTreeMap<String, serde_json::Value>,
    /// Outputs by name.
    pub output: BTreeMap<String, OutputMeta>,
    /// Bound on the metric of [`crate::compare::difference`].
    pub tolerance: f64,
    /// Bound for an engine that evaluates 4-bit weights in f32.
    pub tolerance_exact_arithmetic: Option<f64>,
    /// Operators with their number of nodes, subgraphs included.
    pub ops: BTreeMap<String, u64>,
    /// Number of nodes.
    pub nodes: u64,
    /// True for models of more than 2 GB.
    #[serde(default)]
    pub large: bool,
    /// What a trained model says about its samples.
    #[serde(default)]
    pub answer: serde_json::Value,
}

/// Type and shape of an input.
#[derive(Clone, Debug, Deserialize)]
pub struct InputMeta {
    /// Element type as numpy calls it.
    pub dtype: String,
    /// Extents.
    pub shape: Vec<usize>,
}

/// Type and shape of an output.
#[derive(Clone, Debug, Deserialize)]
pub struct OutputMeta {
    /// Element type as numpy calls it.
    pub dtype: String,
    /// Extents of the whole output.
    pub shape: Vec<usize>,
    /// Where set, only every `stride`-th element is stored.
    pub stride: Option<usize>,
}

/// An entry of `inputs.json`.
#[derive(Debug, Deserialize)]
pub(super) struct GeneratedInput {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    pub(super) seed: u64,
    pub(super) lo: f64,
    pub(super) hi: f64,
}

/// `weights.json`.
#[derive(Debug, Deserialize)]
pub(super) struct Weights {
    pub(super) size: u64,
    /// Of `weights.bin`; where nobody said it, anything is.
    pub(super) sha256: Option<String>,
    pub(super) tensors: Vec<GeneratedWeight>,
}

/// A tensor of `weights.json`.
#[derive(Debug, Deserialize)]
pub(super) struct GeneratedWeight {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) seed: u64,
    pub(super) lo: f64,
    pub(super) hi: f64,
}

/// Reads the JSON file at `path`.
pub(super) fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, ZooError> {
    let text = std::fs::read(path).map_err(|source| ZooError::Io {
        path: path.to_path_buf(),
        source,
    })?;
    serde_json::from_slice(&text).map_err(|e| ZooError::Format {
        path: path.to_path_buf(),
        reason: e.to_string(),
    })
}

/// Element type that numpy calls `name`.
pub(super) fn dtype_named(name: &str) -> Result<DType, String> {
    Ok(match name {
        "float32" => DType::F32,
        "float64" => DType::F64,
        "float16" => DType::F16,
        "bfloat16" => DType::BF16,
        "int8" => DType::I8,
        "uint8" => DType::U8,
        "int16" => DType::I16,
        "uint16" => DType::U16,
        "int32" => DType::I32,
        "uint32" => DType::U32,
        "int64" => DType::I64,
        "uint64" => DType::U64,
        "bool" => DType::Bool,
        "int4" => DType::I4,
        "uint4" => DType::U4,
        _ => return Err(format!("element type {name:?} is unknown")),
    })
}
