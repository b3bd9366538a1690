//! AffineGrid whose size comes from data.
use crate::args::Args;
use crate::data::{alloc, extent, f64s, from_f64s, ints, next};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let theta = a.ranked(0, 3)?;
    let size: Vec<usize> = ints(a.input(1)?)
        .into_iter()
        .map(extent)
        .collect::<R<_>>()?;
    let corners = a.int("align_corners", 0)? != 0;
    let r = size.len().saturating_sub(2);
    let t = theta.shape();
    if !(2..=3).contains(&r) || t[1] != r || t[2] != r + 1 || t[0] != size[0] {
        return Err(format!("matrices {t:?} do not fit a size of {size:?}").into());
    }
    let space = &size[2..];
    let mut shape = vec![size[0]];
    shape.extend(space);
    shape.push(r);
    let v = f64s(theta);
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    if y.is_empty() {
        return Ok(vec![from_f64s(theta.dtype(), &shape, &y)?]);
    }
    let place = |i: usize, n: usize| match corners {
        true => 2.0 * i as f64 / (n.max(2) - 1) as f64 - 1.0,
        false => (2 * i + 1) as f64 / n as f64 - 1.0,
    };
    let mut o = 0;
    for b in 0..size[0] {
        let mut at = vec![0; r];
        loop {
            for row in 0..r {
                let m = &v[(b * r + row) * (r + 1)..][..r + 1];
                // The first coordinate is that of the last dimension.
                let sum: f64 = (0..r)
                    .map(|k| m[k] * place(at[r - 1 - k], space[r - 1 - k]))
                    .sum();
                y[o] = sum + m[r];
                o += 1;
            }
            if !next(&mut at, space) {
                break;
            }
        }
    }
    Ok(vec![from_f64s(theta.dtype(), &shape, &y)?])
}
