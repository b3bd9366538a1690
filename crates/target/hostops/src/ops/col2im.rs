//! Col2Im: columns of blocks summed back into an image.
use crate::args::Args;
use crate::data::{alloc, count, extent, f64s, from_f64s, ints, next};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.ranked(0, 3)?;
    let list = |i: usize| -> R<Vec<usize>> { ints(a.input(i)?).into_iter().map(extent).collect() };
    let (image, block) = (list(1)?, list(2)?);
    let r = image.len();
    let or = |name: &str, n: usize, v: i64| -> R<Vec<i64>> {
        let list = a.attr_ints(name)?.unwrap_or_else(|| vec![v; n]);
        if list.len() != n || list.iter().any(|k| !(0..1 << 31).contains(k)) {
            return Err(format!("attribute '{name}' {list:?} must be {n} numbers").into());
        }
        Ok(list)
    };
    let (dilations, strides, pads) = (
        or("dilations", r, 1)?,
        or("strides", r, 1)?,
        or("pads", 2 * r, 0)?,
    );
    let [n, columns, places] = *x.shape() else {
        return Err("X must have three dimensions".into());
    };
    let taps = count(&block)?;
    if block.len() != r || r == 0 || taps == 0 || columns % taps != 0 || strides.contains(&0) {
        return Err(format!(
            "blocks {block:?} do not fit {columns} columns and an image {image:?}"
        )
        .into());
    }
    let channels = columns / taps;
    // Places of the block along each dimension.
    let steps: Vec<usize> = (0..r)
        .map(|d| {
            let wide = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
            let reach = dilations[d]
                .saturating_mul(wide(block[d]) - 1)
                .saturating_add(1);
            let whole = wide(image[d])
                .saturating_add(pads[d])
                .saturating_add(pads[r + d]);
            let free = whole.saturating_sub(reach);
            (free.max(-strides[d]).div_euclid(strides[d]) + 1).max(0) as usize
        })
        .collect();
    if count(&steps)? != places {
        return Err(
            format!("the image has {steps:?} places for a block, but X has {places}").into(),
        );
    }
    let mut shape = vec![n, channels];
    shape.extend(&image);
    let v = f64s(x);
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    let plane = count(&image)?;
    if y.is_empty() || v.is_empty() {
        return Ok(vec![from_f64s(x.dtype(), &shape, &y)?]);
    }
    for b in 0..n * channels {
        let mut tap = vec![0; r];
        for t in 0..taps {
            let mut at = vec![0; r];
            for p in 0..places {
                let mut o = Some(0);
                for (d, n) in image.iter().enumerate() {
                    let i = at[d] as i64 * strides[d] - pads[d] + tap[d] as i64 * dilations[d];
                    let inside = (0..*n as i64).contains(&i);
                    o = o.filter(|_| inside).map(|o| o * n + i as usize);
                }
                if let Some(o) = o {
                    y[b * plane + o] += v[(b * taps + t) * places + p];
                }
                next(&mut at, &steps);
            }
            next(&mut tap, &block);
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
