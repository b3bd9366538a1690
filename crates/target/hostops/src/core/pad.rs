//! Padding in every mode. Plain code on whole tensors, run as a host step.
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
    // Rows along the last dimension in pieces that lie in one piece, or outside altogether.
    let (inner, outer) = match maps.split_last() {
        Some((inner, outer)) => (pieces(inner), outer),
        None => (vec![(1, Some(0))], maps.as_slice()),
    };
    let w = out.width;
    let outside = outside.filter(|v| v.at(0).iter().any(|&b| b != 0));
    let mut at = vec![0; outer.len()];
    let mut o = 0;
    loop {
        let row = at
            .iter()
            .zip(outer)
            .try_fold(0usize, |a, (c, m)| m[*c].map(|x| a + x));
        for &(len, from) in &inner {
            let to = &mut out.bytes[o * w..(o + len) * w];
            match (row.zip(from), &outside) {
                (Some((row, i)), _) => {
                    to.copy_from_slice(&src.bytes[(row + i) * w..(row + i + len) * w]);
                }
                (None, Some(v)) => to
                    .chunks_exact_mut(w)
                    .for_each(|e| e.copy_from_slice(v.at(0))),
                (None, None) => {}
            }
            o += len;
        }
        if !next(&mut at, &shape[..outer.len()]) {
            break;
        }
    }
    out.finish()
}

/// Source addresses as runs of neighbours: how many, and the first.
fn pieces(map: &[Option<usize>]) -> Vec<(usize, Option<usize>)> {
    let mut runs: Vec<(usize, Option<usize>)> = Vec::new();
    for &m in map {
        match runs.last_mut() {
            Some((len, None)) if m.is_none() => *len += 1,
            Some((len, Some(first))) if m == Some(*first + *len) => *len += 1,
            _ => runs.push((1, m)),
        }
    }
    runs
}
