//! Inputs of a model: their sizes, random ones, those in files.
use crate::{Error, Model};
use layout::Inserted;
use layout::{DType, Dim, DimBox};
use plan::SymbolOrigin;
use std::collections::BTreeMap;
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
