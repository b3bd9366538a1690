//! Inputs of a model: their sizes, random ones, those in files.
use crate::{Error, Model};
use layout::{DType, Dim, DimBox};
use plan::SymbolOrigin;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tensor::Tensor;

/// Names and tensors.
pub type Named = Vec<(String, Tensor)>;

/// What [`crate::Session::run`] takes, of `tensors`.
pub fn borrowed(tensors: &[(String, Tensor)]) -> Vec<(&str, &Tensor)> {
    tensors.iter().map(|(n, t)| (n.as_str(), t)).collect()
}

/// The value that each symbolic dimension of an input has when nobody gives one: the top of its range,
/// else 1. The names of those that were not given are the second part.
pub fn sizes(model: &Model) -> (BTreeMap<String, i64>, Vec<String>) {
    let (mut out, mut assumed) = (BTreeMap::new(), Vec::new());
    for s in &model.program().symbols {
        if !matches!(s.origin, SymbolOrigin::Input { .. }) {
            continue;
        }
        let v = match model.dims().get(&s.name) {
            Some(r) => r.hi,
            None => {
                assumed.push(s.name.to_string());
                1
            }
        };
        out.insert(s.name.to_string(), v);
    }
    (out, assumed)
}

/// The box that a plan for these sizes covers: the ranges asked for, and points elsewhere.
pub fn box_of(model: &Model, sizes: &BTreeMap<String, i64>) -> DimBox {
    let mut out = DimBox::new();
    for (name, &v) in sizes {
        match model.dims().get(name) {
            Some(r) if r.lo <= v && v <= r.hi => out.insert(name.as_str(), r.lo, r.hi),
            _ => out.insert(name.as_str(), v, v),
        }
    }
    out
}

/// The sizes that tensors give to a model's symbolic dimensions.
pub fn sizes_of(model: &Model, inputs: &[(String, Tensor)]) -> BTreeMap<String, i64> {
    let program = model.program();
    let mut out = BTreeMap::new();
    let named: BTreeMap<&str, &Tensor> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    for s in &program.symbols {
        if let SymbolOrigin::Input { input, axis } = s.origin
            && let Some(&v) = program.inputs.get(input as usize)
            && let Some(t) = named.get(program.value(v).name.as_str())
            && let Some(&n) = t.shape().get(axis as usize)
        {
            out.insert(s.name.to_string(), n as i64);
        }
    }
    out
}

/// 64 bits of the counter-based generator splitmix64.
fn bits(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add((i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A tensor of random contents: floats in -1..1; integers 0 or 1, which are valid indices into
/// anything that has two entries; a mask (by its name) and `Bool`s are true.
///
/// # Errors
/// More bytes than can be addressed.
pub fn random_tensor(name: &str, dtype: DType, shape: &[usize]) -> Result<Tensor, Error> {
    let mut t = Tensor::zeros(dtype, shape)?;
    let seed = name.bytes().fold(0x5eed, |h: u64, b| {
        h.wrapping_mul(0x100_0000_01B3) ^ u64::from(b)
    });
    let mask = name.to_lowercase().contains("mask");
    for i in 0..t.len() {
        let z = bits(seed, i as u64);
        if dtype.is_float() {
            let u = (z >> 40) as f64 / (1u64 << 24) as f64;
            t.set_f64(i, if mask { 1.0 } else { 2.0 * u - 1.0 });
        } else {
            t.set_i64(
                i,
                if mask || dtype == DType::Bool {
                    1
                } else {
                    (z >> 63) as i64
                },
            );
        }
    }
    Ok(t)
}

/// Random inputs of a model for given sizes of its symbolic dimensions.
///
/// # Errors
/// A dimension without a size, or one too large.
pub fn random_inputs(model: &Model, sizes: &BTreeMap<String, i64>) -> Result<Named, Error> {
    let program = model.program();
    let mut out = Vec::new();
    for &v in &program.inputs {
        let value = program.value(v);
        let extent = |d: &Dim| {
            d.eval(&|s| sizes.get(s).copied())
                .and_then(|n| usize::try_from(n).ok())
        };
        let shape: Option<Vec<usize>> = value.shape.iter().map(extent).collect();
        let shape = shape.ok_or_else(|| {
            let dims: Vec<String> = value.shape.iter().map(ToString::to_string).collect();
            Error::Usage(format!(
                "input '{0}' has shape [{1}], which is not known; give it with --shape {0}=...",
                value.name,
                dims.join(", ")
            ))
        })?;
        out.push((
            value.name.clone(),
            random_tensor(&value.name, value.dtype, &shape)?,
        ));
    }
    Ok(out)
}

/// Inputs from files: each of `files` is an npz archive whose arrays have inputs' names, or
/// `input=file.npy`.
///
/// # Errors
/// A file that cannot be read, or an input given twice.
pub fn read_inputs(files: &[String]) -> Result<Named, Error> {
    read(files, &mut |_| Some(u64::MAX))
}

/// As [`read_inputs`] of the arrays that are inputs of `model`: others are not unpacked. An input whose shape is
/// known takes no more bytes than that, and all together no more than `memory`.
///
/// # Errors
/// As [`read_inputs`], and inputs that take more.
pub fn read_inputs_of(
    model: &Model,
    files: &[String],
    memory: Option<u64>,
) -> Result<Named, Error> {
    let program = model.program();
    let most: BTreeMap<&str, u64> = program
        .inputs
        .iter()
        .map(|&v| {
            let value = program.value(v);
            let shape: Option<Vec<usize>> = value
                .shape
                .iter()
                .map(|d| d.known().and_then(|n| usize::try_from(n).ok()))
                .collect();
            // What a file holds in wider elements is converted, or refused with its type.
            let bytes = match value.dtype {
                DType::Str | DType::Host => None,
                _ => shape.and_then(|s| Tensor::byte_len(DType::F64, &s).ok()),
            };
            (value.name.as_str(), bytes.map_or(u64::MAX, |b| b as u64))
        })
        .collect();
    let memory = memory.unwrap_or(u64::MAX);
    read(files, &mut |name| most.get(name).map(|m| memory.min(*m)))
}

fn read(files: &[String], wanted: &mut dyn FnMut(&str) -> Option<u64>) -> Result<Named, Error> {
    let mut out: Named = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for f in files {
        let read = match f.split_once('=') {
            Some((name, path)) if !Path::new(f).is_file() => {
                vec![(name.to_string(), data::read_npy(path)?)]
            }
            _ if f.ends_with(".npy") => {
                return Err(Error::Usage(format!(
                    "{f}: say which input the array is for: NAME={f}"
                )));
            }
            _ => {
                // What is no input is named, for whoever runs the model to refuse, and not unpacked.
                let mut others = Vec::new();
                let mut asked = |name: &str| {
                    let most = wanted(name);
                    others.extend(most.is_none().then(|| name.to_string()));
                    most
                };
                let mut read = data::read_npz_of(f, &mut asked)?;
                for name in others {
                    read.push((name, Tensor::zeros(DType::U8, &[0])?));
                }
                read
            }
        };
        for (name, t) in read {
            if !names.insert(name.clone()) {
                return Err(Error::Usage(format!(
                    "input '{name}' is given twice, the second time by {f}; give it once"
                )));
            }
            out.push((name, t));
        }
    }
    Ok(out)
}
