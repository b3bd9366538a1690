//! ai.onnx.ml Imputer: one value replaced per column.
use crate::args::Args;
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let columns = x.shape().last().copied().unwrap_or(1).max(1);
    let mut y = x.clone();
    if x.dtype().is_float() {
        let (new, old) = (
            a.floats("imputed_value_floats")?,
            a.float("replaced_value_float", 0.0)?,
        );
        if new.len() != columns && new.len() != 1 {
            return Err(
                format!("{} imputed values do not fit {columns} columns", new.len()).into(),
            );
        }
        for i in 0..x.len() {
            let v = x.get_f64(i);
            if v == old || v.is_nan() && old.is_nan() {
                y.set_f64(i, new[i % columns % new.len()]);
            }
        }
        return Ok(vec![y]);
    }
    let new = a.attr_ints("imputed_value_int64s")?.unwrap_or_default();
    let old = a.int("replaced_value_int64", 0)?;
    if new.len() != columns && new.len() != 1 {
        return Err(format!("{} imputed values do not fit {columns} columns", new.len()).into());
    }
    for i in 0..x.len() {
        if x.get_i64(i) == old {
            y.set_i64(i, new[i % columns % new.len()]);
        }
    }
    Ok(vec![y])
}
