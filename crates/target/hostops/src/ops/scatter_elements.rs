//! ScatterElements: every update goes to the place that its index names along an axis.
use crate::args::Args;
use crate::core::merge;
use crate::data::{axis, get, index, next, set, strides};
use crate::error::R;
use graph::ScatterReduce;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, indices, updates) = (a.input(0)?, a.input(1)?, a.input(2)?);
    let (s, ix) = (x.shape(), indices.shape());
    let d = axis(a.int("axis", 0)?, s.len())?;
    let fits = ix.len() == s.len()
        && updates.shape() == ix
        && updates.dtype() == x.dtype()
        && (0..s.len()).all(|i| i == d || ix[i] <= s[i]);
    if !fits {
        return Err(
            format!("indices {indices:?} and updates {updates:?} do not fit data {x:?}").into(),
        );
    }
    let reduce = match a.text("reduction", "none")? {
        "none" => ScatterReduce::Replace,
        "add" => ScatterReduce::Add,
        "mul" => ScatterReduce::Mul,
        "max" => ScatterReduce::Max,
        "min" => ScatterReduce::Min,
        r => return Err(format!("reduction '{r}' is not one that ONNX lists").into()),
    };
    let by = strides(s);
    let mut out = x.clone();
    let mut at = vec![0; ix.len()];
    for o in 0..indices.len() {
        let i = index(indices.get_i64(o), s[d])?;
        let to = (0..s.len())
            .map(|k| by[k] * if k == d { i } else { at[k] })
            .sum();
        let v = merge(reduce, get(&out, to), get(updates, o), x.dtype());
        set(&mut out, to, v);
        next(&mut at, ix);
    }
    Ok(vec![out])
}
