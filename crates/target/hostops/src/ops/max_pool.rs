//! MaxPool with the indices of the winners.
use crate::args::Args;
use crate::core::{self, PoolWindow};
use crate::error::R;
use tensor::Tensor;

/// The window that ONNX attributes describe over `spatial` extents.
pub(crate) fn window(a: &Args, spatial: &[usize]) -> R<PoolWindow> {
    let n = spatial.len();
    let list = |name: &str, len: usize, default: i64| -> R<Vec<i64>> {
        let v = a.attr_ints(name)?.unwrap_or_else(|| vec![default; len]);
        if v.len() != len || v.iter().any(|x| !(default.min(1)..1 << 31).contains(x)) {
            return Err(
                format!("attribute '{name}' {v:?} does not fit {n} spatial dimensions").into(),
            );
        }
        Ok(v)
    };
    let kernel = a
        .attr_ints("kernel_shape")?
        .ok_or("kernel_shape is missing")?;
    if kernel.len() != n || kernel.iter().any(|k| !(1..1 << 31).contains(k)) {
        return Err(format!("kernel_shape {kernel:?} does not fit {n} spatial dimensions").into());
    }
    let strides = list("strides", n, 1)?;
    let dilations = list("dilations", n, 1)?;
    let pads = list("pads", 2 * n, 0)?;
    let ceil = a.int("ceil_mode", 0)? != 0;
    let auto = a.text("auto_pad", "NOTSET")?;
    let (mut before, mut after) = (pads[..n].to_vec(), pads[n..].to_vec());
    let mut out = Vec::new();
    for d in 0..n {
        let len = spatial[d] as i64;
        let reach = (kernel[d] - 1) * dilations[d] + 1;
        if auto.starts_with("SAME") {
            let o = (len + strides[d] - 1) / strides[d];
            let all = ((o - 1) * strides[d] + reach - len).max(0);
            let (small, large) = (all / 2, all - all / 2);
            (before[d], after[d]) = if auto == "SAME_UPPER" {
                (small, large)
            } else {
                (large, small)
            };
        } else if auto == "VALID" {
            (before[d], after[d]) = (0, 0);
        }
        let room = len + before[d] + after[d] - reach;
        if room < 0 {
            return Err(format!("a window of {reach} does not fit an extent of {len}").into());
        }
        let mut o = room / strides[d] + 1;
        // A window that would start in the padding behind the input is left out.
        if ceil && room % strides[d] != 0 && o * strides[d] < len + before[d] {
            o += 1;
        }
        out.push(o as usize);
    }
    Ok(PoolWindow {
        kernel,
        strides,
        dilations,
        before,
        after,
        out,
    })
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let w = window(a, x.shape().get(2..).ok_or("X must be [n, c, spatial..]")?)?;
    let column_major = a.int("storage_order", 0)? != 0;
    core::pool_with_indices(x, &w, column_major)
        .map(|(y, i)| vec![y, i])
        .map_err(|e| e.to_string().into())
}
