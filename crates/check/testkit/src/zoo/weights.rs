//! Writes `weights.bin` in blocks: one thread generates, one hashes, one writes.

use super::error::ZooError;
use super::meta::{self, Weights, dtype_named};
use super::model::ZooModel;
use crate::generate::Source;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use tensor::Tensor;

/// Elements generated at a time; even, so that 4-bit pairs stay together.
const BLOCK: u64 = 1 << 18;

fn io(path: &Path) -> impl Fn(std::io::Error) -> ZooError + '_ {
    |source| ZooError::Io {
        path: path.to_path_buf(),
        source,
    }
}

/// Whether a hash is what the description says, where it says one.
fn is_said(sha256: &str, spec: &Weights) -> bool {
    spec.sha256.as_ref().is_none_or(|said| said == sha256)
}

pub(super) fn prepare(
    model: &ZooModel,
    dir: &Path,
    progress: impl FnMut(u64, u64),
) -> Result<PathBuf, ZooError> {
    let described = model.folder().join("weights.json");
    let spec: Weights = meta::read_json(&described)?;
    let folder = dir.join(model.name());
    std::fs::create_dir_all(&folder).map_err(io(&folder))?;
    let onnx = folder.join("model.onnx");
    let (bin, mark) = (folder.join("weights.bin"), folder.join("weights.sha256"));
    let complete = std::fs::metadata(&bin).is_ok_and(|m| m.len() == spec.size)
        && std::fs::read_to_string(&mark).is_ok_and(|s| is_said(&s, &spec));
    if !complete {
        // Made under a name of its own and renamed, so that nobody ever sees a part of it.
        let temporary = tempfile::Builder::new()
            .prefix("weights-")
            .tempfile_in(&folder)
            .map_err(io(&folder))?;
        let sha256 = write(&spec, temporary.as_file(), &bin, &described, progress)?;
        if !is_said(&sha256, &spec) {
            let said = spec.sha256.as_deref().unwrap_or_default();
            let reason = format!("generated weights have sha256 {sha256}, not {said}");
            return Err(ZooError::Format {
                path: described,
                reason,
            });
        }
        temporary.persist(&bin).map_err(|e| io(&bin)(e.error))?;
        replace(&mark, sha256.as_bytes(), &folder)?;
    }
    let source = model.folder().join("model.onnx");
    let bytes = std::fs::read(&source).map_err(io(&source))?;
    if std::fs::read(&onnx).is_ok_and(|b| b == bytes) {
        return Ok(onnx);
    }
    replace(&onnx, &bytes, &folder)?;
    Ok(onnx)
}

fn replace(path: &Path, bytes: &[u8], folder: &Path) -> Result<(), ZooError> {
    let mut file = tempfile::Builder::new()
        .prefix("new-")
        .tempfile_in(folder)
        .map_err(io(folder))?;
    file.write_all(bytes).map_err(io(path))?;
    file.persist(path).map_err(|e| io(path)(e.error))?;
    Ok(())
}

/// Writes all tensors to `file` and returns the sha256 in hexadecimal.
fn write(
    spec: &Weights,
    mut file: &File,
    path: &Path,
    described: &Path,
    mut progress: impl FnMut(u64, u64),
) -> Result<String, ZooError> {
    let format = |reason: String| ZooError::Format {
        path: described.to_path_buf(),
        reason,
    };
    std::thread::scope(|scope| {
        let (to_hash, hashed) = sync_channel::<Arc<Vec<u8>>>(8);
        let (to_disk, written) = sync_channel::<Arc<Vec<u8>>>(8);
        let hash = scope.spawn(move || {
            let mut sha = Sha256::new();
            hashed.iter().for_each(|block| sha.update(block.as_slice()));
            sha.finalize()
        });
        let disk = scope.spawn(move || written.iter().try_for_each(|block| file.write_all(&block)));
        let mut done = 0u64;
        // A closed channel means that the other side failed; its result says why.
        let mut put = |block: Vec<u8>| {
            done += block.len() as u64;
            let block = Arc::new(block);
            let open = to_hash.send(Arc::clone(&block)).is_ok() && to_disk.send(block).is_ok();
            progress(done, spec.size);
            open
        };
        let mut at = 0u64;
        'tensors: for t in &spec.tensors {
            let dtype = dtype_named(&t.dtype).map_err(format)?;
            let bytes = Tensor::byte_len(dtype, &t.shape).map_err(|e| format(e.to_string()))?;
            if t.offset < at || t.offset - at > 4096 || bytes as u64 != t.length {
                return Err(format(format!(
                    "offset or length of tensor {:?} is wrong",
                    t.name
                )));
            }
            if t.offset > at && !put(vec![0; (t.offset - at) as usize]) {
                break 'tensors;
            }
            at = t.offset + t.length;
            let source = Source::new(t.seed, t.lo, t.hi);
            let count = if bytes == 0 {
                0
            } else {
                t.shape.iter().product::<usize>() as u64
            };
            for from in (0..count).step_by(BLOCK as usize) {
                let to = count.min(from + BLOCK);
                let mut block = Vec::with_capacity(
                    ((to - from) * u64::from(dtype.bits())).div_ceil(8) as usize,
                );
                source.append(dtype, from, to, &mut block);
                if !put(block) {
                    break 'tensors;
                }
            }
        }
        drop((to_hash, to_disk));
        let sha = hash.join().expect("hashing does not panic");
        disk.join()
            .expect("writing does not panic")
            .map_err(io(path))?;
        if at != spec.size {
            return Err(format(format!(
                "its tensors end at byte {at}, not {}",
                spec.size
            )));
        }
        Ok(sha.iter().map(|b| format!("{b:02x}")).collect())
    })
}
