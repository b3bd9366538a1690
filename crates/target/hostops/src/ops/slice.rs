//! Slice whose bounds come from data.
use crate::args::Args;
use crate::core;
use crate::data::axis;
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let s = x.shape();
    let starts = a.ints(1, "starts")?.ok_or("starts are missing")?;
    let ends = a.ints(2, "ends")?.ok_or("ends are missing")?;
    let n = starts.len();
    let axes = a
        .ints(3, "axes")?
        .unwrap_or_else(|| (0..n as i64).collect());
    let by = a.ints(4, "steps")?.unwrap_or_else(|| vec![1; n]);
    if ends.len() != n || axes.len() != n || by.len() != n {
        return Err("starts, ends, axes and steps must be of one length".into());
    }
    let mut first = vec![0i64; s.len()];
    let mut steps = vec![1i64; s.len()];
    let mut extents = s.to_vec();
    for i in 0..n {
        let d = axis(axes[i], s.len())?;
        let (len, step) = (s[d] as i64, by[i]);
        if step == 0 {
            return Err("a step of 0 is not allowed".into());
        }
        let wrap = |v: i64| if v < 0 { v.saturating_add(len) } else { v };
        // The standard moves a start before the first element onto it also where steps go down; its
        // reference leaves nothing where the start is the least number there is.
        let least = step < 0 && starts[i] == i64::MIN;
        let (lo, hi) = if step > 0 { (0, len) } else { (-1, len - 1) };
        let start = wrap(starts[i]).clamp(lo.max(0), hi.max(0));
        let end = wrap(ends[i]).clamp(lo, hi);
        // i128: a step may be as small as i64::MIN.
        let count = if step > 0 {
            (end as i128 - start as i128 + step as i128 - 1).div_euclid(step as i128)
        } else {
            (start as i128 - end as i128 - step as i128 - 1).div_euclid(-(step as i128))
        };
        extents[d] = if len == 0 || least {
            0
        } else {
            count.max(0) as usize
        };
        first[d] = if extents[d] == 0 { 0 } else { start };
        steps[d] = if extents[d] <= 1 { 1 } else { step };
    }
    core::slice(x, &first, &steps, &extents)
        .map(|t| vec![t])
        .map_err(|e| e.to_string().into())
}
