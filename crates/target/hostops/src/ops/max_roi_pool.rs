//! MaxRoiPool: the maximum of each bin of a region of a feature map.
use crate::args::Args;
use crate::data::{alloc, f64s, from_f64s, index};
use crate::error::R;
use layout::DType;
use std::ops::Range;
use tensor::Tensor;

/// The elements of bin `i` of `bins` between the whole numbers `from` and `to`, inside an extent of `most`.
fn bin(i: usize, bins: usize, from: f64, to: f64, most: usize) -> Range<usize> {
    let each = (to - from + 1.0).max(1.0) / bins as f64;
    let at = |edge: f64| (edge + from).clamp(0.0, most as f64) as usize;
    at((i as f64 * each).floor())..at(((i + 1) as f64 * each).ceil())
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, rois) = (a.ranked(0, 4)?, a.ranked(1, 2)?);
    let [n, c, h, w] = *x.shape() else {
        return Err("X must have four dimensions".into());
    };
    let [regions, 5] = *rois.shape() else {
        return Err(format!("rois have shape {:?}, not five numbers each", rois.shape()).into());
    };
    let pooled = a.attr_ints("pooled_shape")?.unwrap_or_default();
    let extent = |v: &i64| {
        usize::try_from(*v)
            .ok()
            .filter(|v| (1..1 << 20).contains(v))
    };
    let [Some(oh), Some(ow)] = pooled.iter().map(extent).collect::<Vec<_>>()[..] else {
        return Err(
            format!("attribute 'pooled_shape' is {pooled:?}, it must be two extents").into(),
        );
    };
    let scale = a.float("spatial_scale", 1.0)?;
    let shape = [regions, c, oh, ow];
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    let v = f64s(x);
    for r in 0..regions {
        let b = index(rois.get_i64(r * 5), n)?;
        // Halves are rounded away from zero, in the type of the regions.
        let edge = |i: usize| (rois.get_f64(r * 5 + i) as f32 * scale as f32).round() as f64;
        let (x0, y0, x1, y1) = (edge(1), edge(2), edge(3), edge(4));
        for py in 0..oh {
            let rows = bin(py, oh, y0, y1, h);
            for px in 0..ow {
                let columns = bin(px, ow, x0, x1, w);
                for ch in 0..c {
                    let plane = &v[(b * c + ch) * h * w..][..h * w];
                    let all = rows.clone().flat_map(|i| {
                        &plane[i * w..][columns.start..columns.end.max(columns.start)]
                    });
                    // An empty bin is 0.
                    y[((r * c + ch) * oh + py) * ow + px] =
                        all.copied().reduce(f64::max).unwrap_or(0.0);
                }
            }
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
