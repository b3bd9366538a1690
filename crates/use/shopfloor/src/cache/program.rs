//! Fused programs as import left them, kept under the path of their model: a model that was read
//! before is not imported again for as long as its files' sizes and times stay the same.
use super::sealed::this_build;
use super::{Cache, binary, sealed};
use plan::{Item, ItemWork, Program, Segment, SymbolOrigin, ValueIx, ValueOrigin};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensor::{Bytes, WeightStore, file_identity};

const HEAD: &[u8] = b"shopfloor program 7\n";
/// Constants that are not in the model's files, together, in bytes: beyond it a program is not kept.
const INLINE: usize = 16 << 20;

/// Where a constant's bytes are.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    /// In this file of the model, from this byte on.
    File(u32, usize),
    /// Behind the text, from this byte on.
    Here(usize),
}

#[derive(Serialize, Deserialize)]
struct KeptWeight {
    name: String,
    dtype: layout::DType,
    shape: Vec<usize>,
    place: Place,
}

#[derive(Serialize, Deserialize)]
struct StoredProgram {
    /// Files of the model with their identities.
    files: Vec<(PathBuf, [u8; 32])>,
    program: Program,
    report: onnx::Report,
    weights: Vec<KeptWeight>,
}

/// The key of a model at `path` bound as `options` says, and the file that its program is kept in.
fn place(cache: &Cache, path: &Path, options: &str) -> Option<(sealed::Key, PathBuf)> {
    let path = path.canonicalize().ok()?;
    let key = sealed::key(&[
        path.as_os_str().as_encoded_bytes(),
        options.as_bytes(),
        this_build().as_bytes(),
    ]);
    Some((key, cache.folder.join(sealed::name(&key, "program"))))
}

fn identity(path: &Path) -> Option<[u8; 32]> {
    file_identity(&std::fs::metadata(path).ok()?)
}

/// See [`super::Store::find`]. What is damaged is removed.
pub(super) fn find(cache: &Cache, path: &Path, options: &str) -> Option<(Program, onnx::Report)> {
    let (key, note) = place(cache, path, options)?;
    sealed::find(&note, HEAD, &key, files::MADE, read)
}

fn read(rest: &[u8]) -> Option<(Program, onnx::Report)> {
    let (length, rest) = rest.split_at_checked(8)?;
    let length = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
    let (text, behind) = rest.split_at_checked(length)?;
    let mut kept: StoredProgram = binary::from_slice(text)?;
    let mut maps = Vec::new();
    for (path, known) in &kept.files {
        let bytes = onnx::map_path(path).ok()?;
        // Of the file that was mapped, whatever the path leads to by now.
        let (now, _) = bytes.identity()?;
        if now != *known {
            return None;
        }
        maps.push(bytes);
    }
    let behind = Bytes::from(behind.to_vec());
    let mut weights = WeightStore::new();
    for w in &kept.weights {
        let n = tensor::Tensor::byte_len(w.dtype, &w.shape).ok()?;
        let (from, at) = match w.place {
            Place::File(i, at) => (maps.get(i as usize)?, at),
            Place::Here(at) => (&behind, at),
        };
        let bytes = from.slice(at..at.checked_add(n)?)?;
        weights.add(&w.name, w.dtype, &w.shape, bytes).ok()?;
    }
    if !sound(&kept.program, &weights) {
        return None;
    }
    share(&mut kept.program, &Arc::new(weights));
    Some((kept.program, kept.report))
}

/// Gives a program and its bodies their constants.
fn share(program: &mut Program, weights: &Arc<WeightStore>) {
    program.weights = weights.clone();
    for s in &mut program.segments {
        match s {
            Segment::If {
                then_branch,
                else_branch,
                ..
            } => {
                share(then_branch, weights);
                share(else_branch, weights);
            }
            Segment::Loop { body, .. } => share(body, weights),
            Segment::Straight(_) | Segment::Late(_) => {}
        }
    }
}

/// Whether every number in `program` names something that is there.
fn sound(program: &Program, weights: &WeightStore) -> bool {
    let value = |v: &ValueIx| (*v as usize) < program.values.len();
    let item = |i: &Item| match &i.work {
        ItemWork::Kernel { kernel, args } => {
            args.len() == kernel.operands.len() && args.iter().all(value)
        }
        ItemWork::Host {
            inputs, outputs, ..
        } => inputs.iter().flatten().all(value) && outputs.iter().all(value),
    };
    let segment = |s: &Segment| match s {
        Segment::Straight(items) => items.iter().all(item),
        Segment::Late(i) => item(i),
        Segment::If {
            cond,
            captures,
            then_branch,
            else_branch,
            outputs,
            ..
        } => {
            value(cond)
                && captures.iter().chain(outputs).all(value)
                && [then_branch, else_branch].iter().all(|b| {
                    sound(b, weights)
                        && b.inputs.len() == captures.len()
                        && b.outputs.len() == outputs.len()
                })
        }
        Segment::Loop {
            trip,
            cond,
            carried,
            captures,
            body,
            outputs,
            ..
        } => {
            let all = trip.iter().chain(cond).chain(carried).chain(captures);
            all.chain(outputs).all(value)
                && sound(body, weights)
                && body.inputs.len() == 2 + carried.len() + captures.len()
                && body.outputs.len() == 1 + outputs.len()
                && outputs.len() >= carried.len()
        }
    };
    program.values.iter().all(|v| match v.origin {
        ValueOrigin::Weight(w) => weights.get(w).is_some(),
        ValueOrigin::Input(i) => (i as usize) < program.inputs.len(),
        ValueOrigin::Init | ValueOrigin::Made => true,
    }) && program.symbols.iter().all(|s| match s.origin {
        SymbolOrigin::Input { input, .. } => (input as usize) < program.inputs.len(),
        SymbolOrigin::Late { value: v, .. } => value(&v),
        SymbolOrigin::Outer => true,
    }) && program.inputs.iter().all(value)
        && program.outputs.iter().all(|o| value(&o.1))
        && program.states.iter().all(|s| {
            (s.input as usize) < program.inputs.len() && (s.output as usize) < program.outputs.len()
        })
        && program.init.iter().all(item)
        && program.segments.iter().all(segment)
}

/// See [`super::Store::keep`].
pub(super) fn keep(
    cache: &Cache,
    path: &Path,
    options: &str,
    program: &Program,
    report: &onnx::Report,
) {
    let Some((key, note)) = place(cache, path, options) else {
        return;
    };
    let Some(bytes) = written(program, report) else {
        return;
    };
    sealed::keep(cache, &note, HEAD, &key, &bytes);
}

fn written(program: &Program, report: &onnx::Report) -> Option<Vec<u8>> {
    let mut files = Vec::new();
    let mut of_identity = BTreeMap::new();
    for path in &report.files {
        let path = path.canonicalize().ok()?;
        let id = identity(&path)?;
        of_identity.entry(id).or_insert(files.len() as u32);
        files.push((path, id));
    }
    if files.is_empty() {
        return None;
    }
    let mut behind: Vec<u8> = Vec::new();
    let mut weights = Vec::new();
    for w in program.weights.iter() {
        // What lies in a file that has changed since is not the file's any more.
        let lies = w
            .bytes
            .identity()
            .and_then(|(id, range)| Some((*of_identity.get(&id)?, range.start)));
        let place = match lies {
            Some((file, at)) => Place::File(file, at),
            None if w.bytes.identity().is_some() => return None,
            None => {
                behind.resize(behind.len().next_multiple_of(64), 0);
                let at = behind.len();
                behind.extend_from_slice(&w.bytes);
                if behind.len() > INLINE {
                    return None;
                }
                Place::Here(at)
            }
        };
        weights.push(KeptWeight {
            name: w.name.clone(),
            dtype: w.dtype,
            shape: w.shape.clone(),
            place,
        });
    }
    #[derive(Serialize)]
    struct Lent<'a> {
        files: Vec<(PathBuf, [u8; 32])>,
        program: &'a Program,
        report: &'a onnx::Report,
        weights: Vec<KeptWeight>,
    }
    let text = binary::to_vec(&Lent {
        files,
        program,
        report,
        weights,
    })?;
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(&text);
    out.extend_from_slice(&behind);
    Some(out)
}
