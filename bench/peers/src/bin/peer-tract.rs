//! tract: planned for the inputs' sizes, as it asks for.
#![forbid(unsafe_code)]
use shopfloor_peers::{Failure, Input, Task, end};
use std::time::Instant;
use tract_onnx::prelude::*;

fn tensor(i: &Input) -> Result<Tensor, Failure> {
    let s = i.shape.as_slice();
    Ok(match i.dtype.as_str() {
        "float32" => Tensor::from_shape(s, &i.all(f32::from_le_bytes))?,
        "float64" => Tensor::from_shape(s, &i.all(f64::from_le_bytes))?,
        "float16" => Tensor::from_shape(s, &i.all(f16::from_le_bytes))?,
        "int64" => Tensor::from_shape(s, &i.all(i64::from_le_bytes))?,
        "int32" => Tensor::from_shape(s, &i.all(i32::from_le_bytes))?,
        "uint8" => Tensor::from_shape(s, &i.bytes)?,
        "int8" => Tensor::from_shape(s, &i.all(i8::from_le_bytes))?,
        "bool" => Tensor::from_shape(s, &i.all(|[b]| b != 0))?,
        d => return Err(format!("no input of type {d} is made for tract").into()),
    })
}

/// The whole chain of causes, as one text.
fn chain(e: TractError) -> Failure {
    format!("{e:#}").into()
}

fn run() -> Result<(), Failure> {
    let task = Task::read()?;
    multithread::set_default_executor(multithread::Executor::multithread(task.threads));
    let began = Instant::now();
    // Shapes that the file states with symbols do not unify with the sizes given.
    let reader = tract_onnx::onnx()
        .with_ignore_output_shapes(true)
        .with_ignore_value_info(true);
    let mut model = reader.model_for_path(&task.model).map_err(chain)?;
    let outlets = model.input_outlets().map_err(chain)?.to_vec();
    let mut values: TVec<TValue> = tvec!();
    for (k, o) in outlets.iter().enumerate() {
        let name = model.node(o.node).name.clone();
        let i = task.inputs.iter().find(|i| i.name == name);
        let t = tensor(i.ok_or_else(|| format!("input {name} is not known"))?)?;
        let fact = InferenceFact::dt_shape(t.datum_type(), t.shape());
        model.set_input_fact(k, fact).map_err(chain)?;
        values.push(t.into());
    }
    let model = model.into_optimized().map_err(chain)?;
    let model = model.into_runnable().map_err(chain)?;
    task.measure(began, || {
        model.run(values.clone()).map_err(chain)?;
        Ok(())
    })
}

fn main() {
    end(run());
}
