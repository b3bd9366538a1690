//! Inputs of a model: their sizes, random ones, those in files.
use crate::{Error, Model};
use layout::Inserted;
use layout::{DType, Dim, DimBox};
use onnx::PortDim;
use plan::SymbolOrigin;
use std::collections::BTreeMap;
use tensor::Tensor;

/// Names and tensors.
pub type Named = Vec<(String, Tensor)>;

/// What [`crate::Session::run`] takes, of `tensors`.
pub fn borrowed(tensors: &[(String, Tensor)]) -> Vec<(&str, &Tensor)> {
    tensors.iter().map(|(n, t)| (n.as_str(), t)).collect()
}

/// The value that each symbolic dimension of an input has when nobody gives one: the top of its range, else the number
/// that the file has for it, else 1. The names of those that were not given are the second part.
pub fn sizes(model: &Model) -> (BTreeMap<String, i64>, Vec<String>) {
    let (mut out, mut assumed) = (BTreeMap::new(), Vec::new());
    for s in &model.program().symbols {
        let SymbolOrigin::Input { input, axis } = s.origin else {
            continue;
        };
        let asked = model.dims().get(&s.name).map(|r| r.hi);
        let v = match asked.or_else(|| stated(model, input, axis)) {
            Some(v) => v,
            None => {
                assumed.push(s.name.to_string());
                1
            }
        };
        out.insert(s.name.to_string(), v);
    }
    (out, assumed)
}

/// The number that the model's file has for a dimension of an input.
fn stated(model: &Model, input: u32, axis: u32) -> Option<i64> {
    let program = model.program();
    let value = program.inputs.get(input as usize)?;
    let name = &program.values[*value as usize].name;
    let port = model.report().inputs.iter().find(|p| p.name == *name)?;
    match port.dims.as_ref()?.get(axis as usize)? {
        PortDim::Size(n) if *n >= 0 => Some(*n),
        _ => None,
    }
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

/// The sizes that a plan for `dims` is for, as tables show them: those that the model was opened with, which no
/// plan knows as symbols, and `dims`. Empty where the model has no open sizes.
pub fn dims_text(model: &Model, dims: &DimBox) -> String {
    let fixed = model.options().dims.iter().filter(|(_, r)| r.lo == r.hi);
    let mut all = dims.clone();
    for (name, r) in fixed {
        all.insert(name.clone(), r.lo, r.hi);
    }
    match all.is_empty() {
        true => String::new(),
        false => all.to_string(),
    }
}

/// The sizes that tensors give to a model's symbolic dimensions.
pub fn sizes_of(model: &Model, inputs: &[(String, Tensor)]) -> BTreeMap<String, i64> {
    sizes_given(model, &borrowed(inputs))
}

/// [`sizes_of`] of borrowed inputs, as [`crate::Session::run`] takes them.
pub fn sizes_given(model: &Model, inputs: &[(&str, &Tensor)]) -> BTreeMap<String, i64> {
    let program = model.program();
    let mut out = BTreeMap::new();
    let named: BTreeMap<&str, &Tensor> = inputs.iter().copied().inserted();
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
