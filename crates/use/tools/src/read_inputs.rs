//! Inputs of requests from npz and npy files.
use layout::{DType, Inserted};
use shopfloor::inputs::Named;
use shopfloor::{Error, Model};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tensor::Tensor;

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
        .inserted();
    let memory = memory.unwrap_or(u64::MAX);
    read(files, &mut |name| most.get(name).map(|m| memory.min(*m)))
}

fn read(files: &[String], wanted: &mut dyn FnMut(&str) -> Option<u64>) -> Result<Named, Error> {
    let mut out: Named = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for f in files {
        let read = match f.split_once('=') {
            Some((name, path)) if !Path::new(f).is_file() => {
                vec![(
                    name.to_string(),
                    data::read_npy(path).map_err(Error::other)?,
                )]
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
                let mut read = data::read_npz_of(f, &mut asked).map_err(Error::other)?;
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
