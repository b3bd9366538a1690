use crate::HostError;
use crate::data::{RawOut, next, raw, strides};
use crate::error::{R, named};
use graph::PadMode;
use tensor::Tensor;

/// `input` with a rim of `before[d]` and `after[d]` elements (negative: removed); `value` is the
/// scalar that stands in a constant rim (0 when left out).
pub fn pad(
    input: &Tensor,
    value: Option<&Tensor>,
    before: &[i64],
    after: &[i64],
    mode: PadMode,
) -> Result<Tensor, HostError> {
    named("Pad", rim(input, value, before, after, mode))
}

/// Source coordinate for output coordinate `o`, which lies `before` after the start.
fn source(o: i64, before: i64, n: i64, mode: PadMode) -> Option<i64> {
    let c = o - before;
    match mode {
        PadMode::Constant => (0..n).contains(&c).then_some(c),
        _ if n == 0 => None,
        PadMode::Edge => Some(c.clamp(0, n - 1)),
        PadMode::Wrap => Some(c.rem_euclid(n)),
        PadMode::Reflect => {
            let period = (2 * (n - 1)).max(1);
            let r = c.rem_euclid(period);
            Some(if r < n { r } else { period - r })
        }
    }
}

fn rim(
    input: &Tensor,
    value: Option<&Tensor>,
    before: &[i64],
    after: &[i64],
    mode: PadMode,
) -> R<Tensor> {
    let s = input.shape();
    if before.len() != s.len() || after.len() != s.len() {
        return Err(format!("{before:?} and {after:?} do not fit shape {s:?}").into());
    }
    if value.is_some_and(|v| v.dtype() != input.dtype() || v.is_empty()) {
        return Err("the outside value must be one element of the input's type".into());
    }
    let mut shape = Vec::new();
    for d in 0..s.len() {
        let n = (s[d] as i64)
            .checked_add(before[d])
            .and_then(|n| n.checked_add(after[d]));
        let n = n.filter(|n| (0..1 << 40).contains(n)).ok_or_else(|| {
            format!(
                "padding {} and {} of an extent of {} gives no size",
                before[d], after[d], s[d]
            )
        })?;
        shape.push(n as usize);
    }
    let mut out = RawOut::new(input.dtype(), &shape)?;
    if out.bytes.is_empty() {
        return out.finish();
    }
    let src = raw(input);
    let outside = value.map(raw);
    let by = strides(s);
    // For every dimension the source address of each coordinate.
    let maps: Vec<Vec<Option<usize>>> = (0..s.len())
        .map(|d| {
            (0..shape[d] as i64)
                .map(|o| source(o, before[d], s[d] as i64, mode).map(|c| c as usize * by[d]))
                .collect()
        })
        .collect();
    let mut at = vec![0; shape.len()];
    for o in 0.. {
        let from = at
            .iter()
            .zip(&maps)
            .try_fold(0usize, |a, (c, m)| m[*c].map(|x| a + x));
        match (from, &outside) {
            (Some(i), _) => out.put(o, src.at(i)),
            (None, Some(v)) => out.put(o, v.at(0)),
            (None, None) => {}
        }
        if !next(&mut at, &shape) {
            break;
        }
    }
    out.finish()
}
