//! ReverseSequence: the first elements of every sequence in reverse order.
use crate::args::Args;
use crate::data::{RawOut, axis, next, raw, strides};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, lens) = (a.input(0)?, a.input(1)?);
    let s = x.shape();
    let time = axis(a.int("time_axis", 0)?, s.len())?;
    let batch = axis(a.int("batch_axis", 1)?, s.len())?;
    if time == batch || lens.len() != s[batch] {
        return Err(format!("{} lengths do not fit shape {s:?}", lens.len()).into());
    }
    for b in 0..lens.len() {
        if !(0..=s[time] as i64).contains(&lens.get_i64(b)) {
            return Err(format!("length {} is outside 0..{}", lens.get_i64(b), s[time]).into());
        }
    }
    let mut out = RawOut::new(x.dtype(), s)?;
    let (src, by) = (raw(x), strides(s));
    let mut at = vec![0; s.len()];
    for o in 0..x.len() {
        let (t, len) = (at[time], lens.get_i64(at[batch]) as usize);
        let from = if t < len { len - 1 - t } else { t };
        out.put(o, src.at(o - t * by[time] + from * by[time]));
        next(&mut at, s);
    }
    Ok(vec![out.finish()?])
}
