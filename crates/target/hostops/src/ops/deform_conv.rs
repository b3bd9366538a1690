//! DeformConv: a convolution whose taps are moved by offsets and weighted by a mask.
use crate::args::Args;
use crate::data::{alloc, count, extent, f64s, from_f64s, next};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

/// The plane's value at fractional coordinates, zero outside.
fn sample(plane: &[f64], size: &[usize], at: &[f64]) -> f64 {
    let r = size.len();
    let mut sum = 0.0;
    for corner in 0..1usize << r {
        let (mut w, mut o) = (1.0, Some(0usize));
        for (d, (x, n)) in at.iter().zip(size).enumerate() {
            let floor = x.floor();
            let upper = corner >> d & 1 == 1;
            let (i, k) = if upper {
                (floor + 1.0, x - floor)
            } else {
                (floor, 1.0 - (x - floor))
            };
            w *= k;
            o = o
                .filter(|_| i >= 0.0 && i < *n as f64)
                .map(|o| o * n + i as usize);
        }
        if let Some(o) = o.filter(|_| w != 0.0) {
            sum += w * plane[o];
        }
    }
    sum
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, w, offset) = (a.input(0)?, a.input(1)?, a.input(2)?);
    let (s, ws, os) = (x.shape(), w.shape(), offset.shape());
    let r = s.len().saturating_sub(2);
    let groups = extent(a.int("group", 1)?)?;
    let offset_groups = extent(a.int("offset_group", 1)?)?;
    let or = |name: &str, n: usize, v: i64| -> R<Vec<i64>> {
        let list = a.attr_ints(name)?.unwrap_or_else(|| vec![v; n]);
        if list.len() != n || list.iter().any(|k| !(0..1 << 31).contains(k)) {
            return Err(format!("attribute '{name}' {list:?} must be {n} numbers").into());
        }
        Ok(list)
    };
    let (strides, dilations, pads) = (
        or("strides", r, 1)?,
        or("dilations", r, 1)?,
        or("pads", 2 * r, 0)?,
    );
    if r == 0 || r > 3 || ws.len() != s.len() || os.len() != s.len() {
        return Err("input, weight and offsets must have one rank of 3 to 5".into());
    }
    let (taps, places) = (count(&ws[2..])?, count(&os[2..])?);
    let fits = groups > 0
        && offset_groups > 0
        && s[1] == ws[1] * groups
        && ws[0] % groups == 0
        && s[1] % offset_groups == 0
        && os[0] == s[0]
        && os[1] == offset_groups * taps * r;
    if !fits {
        return Err(format!("shapes {s:?}, {ws:?} and {os:?} do not fit {groups} groups").into());
    }
    let mask = match a.opt(4) {
        Some(m) if m.len() == s[0] * offset_groups * taps * places => Some(f64s(m)),
        Some(m) => return Err(format!("the mask has shape {:?}", m.shape()).into()),
        None => None,
    };
    let bias = match a.opt(3) {
        Some(b) if b.len() == ws[0] => Some(f64s(b)),
        Some(b) => return Err(format!("the bias has shape {:?}", b.shape()).into()),
        None => None,
    };
    let mut shape = vec![s[0], ws[0]];
    shape.extend(&os[2..]);
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    let (v, k, off) = (f64s(x), f64s(w), f64s(offset));
    let (plane, per_group) = (count(&s[2..])?, ws[0] / groups);
    let mut at = vec![0; r];
    for b in 0..s[0] {
        at.fill(0);
        for p in 0..places {
            let mut tap = vec![0; r];
            for t in 0..taps {
                for ch in 0..s[1] {
                    let g = ch / (s[1] / offset_groups);
                    let moved =
                        |d: usize| off[(((b * offset_groups + g) * taps + t) * r + d) * places + p];
                    let spot: Vec<f64> = (0..r)
                        .map(|d| {
                            let base =
                                at[d] as i64 * strides[d] - pads[d] + tap[d] as i64 * dilations[d];
                            base as f64 + moved(d)
                        })
                        .collect();
                    let m = mask.as_ref().map_or(1.0, |m| {
                        m[((b * offset_groups + g) * taps + t) * places + p]
                    });
                    let value = m * sample(&v[(b * s[1] + ch) * plane..][..plane], &s[2..], &spot);
                    let group = ch / ws[1];
                    for o in group * per_group..(group + 1) * per_group {
                        y[(b * ws[0] + o) * places + p] +=
                            value * k[(o * ws[1] + ch % ws[1]) * taps + t];
                    }
                }
                next(&mut tap, &ws[2..]);
            }
            next(&mut at, &os[2..]);
        }
    }
    if let Some(bias) = bias {
        for (i, y) in y.iter_mut().enumerate() {
            *y += bias[i / places.max(1) % ws[0]];
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
