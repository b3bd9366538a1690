//! com.microsoft CropAndResize: regions of pictures, stated in parts of their extents, resized to one size whose
//! corners are the regions'.
use crate::args::Args;
use crate::data::{alloc, f64s, from_f64s, index};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

/// Where element `i` of `count` between `from` and `to` lies in a dimension of `extent`; `None` outside of it.
fn place(i: usize, count: usize, (from, to): (f64, f64), extent: usize) -> Option<f64> {
    let last = extent as f64 - 1.0;
    let at = match count {
        1 => 0.5 * (from + to) * last,
        _ => from * last + i as f64 * ((to - from) * last / (count - 1) as f64),
    };
    (at >= 0.0 && at <= last).then_some(at)
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, rois, batch, size) = (
        a.ranked(0, 4)?,
        a.ranked(1, 2)?,
        a.ranked(2, 1)?,
        a.ranked(3, 1)?,
    );
    let [n, c, h, w] = *x.shape() else {
        return Err("X must have four dimensions".into());
    };
    let regions = rois.shape()[0];
    if rois.shape()[1] != 4 || batch.len() != regions || size.len() != 2 {
        return Err(format!(
            "rois {rois:?}, batch indices {batch:?} and crop size {size:?} do not fit"
        )
        .into());
    }
    let extent = |i| {
        usize::try_from(size.get_i64(i))
            .ok()
            .filter(|v| (1..1 << 20).contains(v))
    };
    let (Some(oh), Some(ow)) = (extent(0), extent(1)) else {
        return Err("crop_size must be two extents".into());
    };
    let outside = a.float("extrapolation_value", 0.0)?;
    let linear = match a.text("mode", "bilinear")? {
        "bilinear" => true,
        "nearest" => false,
        m => {
            return Err(
                format!("attribute 'mode' is '{m}', it must be bilinear or nearest").into(),
            );
        }
    };
    let shape = [regions, c, oh, ow];
    let mut y = vec![outside; alloc(DType::F64, &shape)?.len()];
    let v = f64s(x);
    for r in 0..regions {
        let b = index(batch.get_i64(r), n)?;
        let edge = |i: usize| rois.get_f64(r * 4 + i);
        for py in 0..oh {
            let Some(sy) = place(py, oh, (edge(0), edge(2)), h) else {
                continue;
            };
            for px in 0..ow {
                let Some(sx) = place(px, ow, (edge(1), edge(3)), w) else {
                    continue;
                };
                for ch in 0..c {
                    let plane = &v[(b * c + ch) * h * w..][..h * w];
                    let at = |i: f64, j: f64| plane[i as usize * w + j as usize];
                    y[((r * c + ch) * oh + py) * ow + px] = match linear {
                        false => at(sy.round(), sx.round()),
                        true => {
                            let (ly, lx) = (sy - sy.floor(), sx - sx.floor());
                            let row =
                                |i: f64| at(i, sx.floor()) * (1.0 - lx) + at(i, sx.ceil()) * lx;
                            row(sy.floor()) * (1.0 - ly) + row(sy.ceil()) * ly
                        }
                    };
                }
            }
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
