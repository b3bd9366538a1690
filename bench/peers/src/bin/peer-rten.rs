//! rten: every numeric input is f32, i32, i8 or u8 to it.
#![forbid(unsafe_code)]
use rten::{Model, RunOptions, ThreadPool, Value};
use rten_tensor::Tensor;
use shopfloor_peers::{Failure, Input, Task, end};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

fn value(i: &Input) -> Result<Value, Failure> {
    let s = i.shape.as_slice();
    Ok(match i.dtype.as_str() {
        "float32" => Tensor::from_data(s, i.all(f32::from_le_bytes)).into(),
        "float64" => Tensor::from_data(s, i.all(|b| f64::from_le_bytes(b) as f32)).into(),
        "int64" => Tensor::from_data(s, i.all(|b| i64::from_le_bytes(b) as i32)).into(),
        "int32" => Tensor::from_data(s, i.all(i32::from_le_bytes)).into(),
        "bool" => Tensor::from_data(s, i.all(|[b]| i32::from(b))).into(),
        "uint8" => Tensor::from_data(s, i.bytes.clone()).into(),
        "int8" => Tensor::from_data(s, i.all(i8::from_le_bytes)).into(),
        d => return Err(format!("rten has no {d}").into()),
    })
}

/// rten reads external data from files called `*.data` only: another name goes into a copy of the
/// model, as long as the old one, with the weights linked beside it.
fn renamed(model: &Path, beside: &Path) -> Result<PathBuf, Failure> {
    const OLD: &str = "weights.bin";
    const NEW: &str = "weight.data";
    let weights = model.with_file_name(OLD);
    if !weights.is_file() {
        return Ok(model.into());
    }
    let mut bytes = std::fs::read(model)?;
    let mut at = 0;
    while let Some(i) = bytes[at..]
        .windows(OLD.len())
        .position(|w| w == OLD.as_bytes())
    {
        bytes[at + i..at + i + OLD.len()].copy_from_slice(NEW.as_bytes());
        at += i + OLD.len();
    }
    let copy = beside.join("renamed.onnx");
    std::fs::write(&copy, bytes)?;
    let link = beside.join(NEW);
    if !link.exists() {
        std::os::unix::fs::symlink(std::fs::canonicalize(weights)?, link)?;
    }
    Ok(copy)
}

fn run() -> Result<(), Failure> {
    let task = Task::read()?;
    let values: Vec<Value> = task.inputs.iter().map(value).collect::<Result<_, _>>()?;
    let pool = Arc::new(ThreadPool::with_num_threads(task.threads));
    let path = renamed(Path::new(&task.model), &task.folder)?;
    let began = Instant::now();
    let model = Model::load_file(path)?;
    let mut ids = Vec::new();
    for i in &task.inputs {
        ids.push(model.node_id(&i.name)?);
    }
    task.measure(began, || {
        let named = ids
            .iter()
            .zip(&values)
            .map(|(id, v)| (*id, v.into()))
            .collect();
        let mut options = RunOptions::default();
        options.thread_pool = Some(pool.clone());
        model.run(named, model.output_ids(), Some(options))?;
        Ok(())
    })
}

fn main() {
    end(run());
}
