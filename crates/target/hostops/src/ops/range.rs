//! Range whose bounds come from data.
use crate::args::Args;
use crate::data::alloc;
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (start, limit, delta) = (a.input(0)?, a.input(1)?, a.input(2)?);
    let d = start.dtype();
    for t in [start, limit, delta] {
        if t.len() != 1 || t.dtype() != d {
            return Err(
                format!("start, limit and delta must be scalars of one type, not {t:?}").into(),
            );
        }
    }
    if d.is_float() {
        let (s, l, by) = (start.get_f64(0), limit.get_f64(0), delta.get_f64(0));
        let n = ((l - s) / by).ceil();
        if n.is_nan() || n >= (1u64 << 40) as f64 {
            return Err(format!("a range from {s} to {l} by {by} has no length").into());
        }
        let mut t = alloc(d, &[n.max(0.0) as usize])?;
        for i in 0..t.len() {
            t.set_f64(i, s + by * i as f64);
        }
        return Ok(vec![t]);
    }
    let (s, l, by) = (start.get_i64(0), limit.get_i64(0), delta.get_i64(0));
    if by == 0 {
        return Err("delta is 0".into());
    }
    let (span, step) = (l as i128 - s as i128, by as i128);
    let n = if (span > 0) == (step > 0) && span != 0 {
        (span.abs() + step.abs() - 1) / step.abs()
    } else {
        0
    };
    let n = usize::try_from(n).map_err(|_| "the range is too long")?;
    let mut t = alloc(d, &[n])?;
    for i in 0..n {
        t.set_i64(i, s.wrapping_add(by.wrapping_mul(i as i64)));
    }
    Ok(vec![t])
}
