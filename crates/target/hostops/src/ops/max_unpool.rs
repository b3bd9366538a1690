//! MaxUnpool: elements put back where a max pool found them.
use crate::args::Args;
use crate::data::{RawOut, count, extent, ints, raw, strides};
use crate::error::{R, Why};
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, at) = (a.input(0)?, a.input(1)?);
    let s = x.shape();
    let kernel = a
        .attr_ints("kernel_shape")?
        .ok_or_else(|| Why("attribute 'kernel_shape' is missing".into()))?;
    let r = kernel.len();
    let by = a.attr_ints("strides")?.unwrap_or_else(|| vec![1; r]);
    let pads = a.attr_ints("pads")?.unwrap_or_else(|| vec![0; 2 * r]);
    if s.len() != r + 2 || by.len() != r || pads.len() != 2 * r || at.shape() != s {
        return Err("kernel, strides, pads and indices must fit the input".into());
    }
    // The pool's input by the attributes; indices count its elements.
    let mut own = s.to_vec();
    for (d, stride) in by.iter().enumerate() {
        let wide = (s[d + 2] as i64 - 1)
            .checked_mul(*stride)
            .and_then(|v| v.checked_add(kernel[d]))
            .and_then(|v| v.checked_sub(pads[d].checked_add(pads[r + d])?));
        own[d + 2] = extent(wide.unwrap_or(-1))?;
    }
    let shape: Vec<usize> = match a.opt(2) {
        Some(o) => ints(o).into_iter().map(extent).collect::<R<_>>()?,
        None => own.clone(),
    };
    if shape.len() != s.len() {
        return Err(format!("output_shape {shape:?} has another rank than the input").into());
    }
    let total = count(&own)?;
    let by = strides(&shape);
    let (src, mut out) = (raw(x), RawOut::new(x.dtype(), &shape)?);
    let mut c = vec![0; s.len()];
    for i in 0..x.len() {
        let mut p = extent(at.get_i64(i))?;
        if p >= total {
            return Err(format!("index {p} is outside {own:?}").into());
        }
        for d in (0..own.len()).rev() {
            c[d] = p % own[d];
            p /= own[d];
        }
        if c.iter().zip(&shape).all(|(c, n)| c < n) {
            out.put(c.iter().zip(&by).map(|(c, k)| c * k).sum(), src.at(i));
        }
    }
    Ok(vec![out.finish()?])
}
