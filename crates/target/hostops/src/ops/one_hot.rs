//! OneHot.
use crate::args::Args;
use crate::data::{RawOut, raw};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (indices, depth, values) = (a.input(0)?, a.scalar(1)?, a.input(2)?);
    if values.len() != 2 {
        return Err("values must hold the off and the on value".into());
    }
    let n = usize::try_from(depth).map_err(|_| format!("depth {depth} is not an extent"))?;
    let s = indices.shape();
    let at = crate::data::axis(a.int("axis", -1)?, s.len() + 1)?;
    let shape: Vec<usize> = [&s[..at], &[n], &s[at..]].concat();
    let inner: usize = s[at..].iter().product();
    // Indices outside give a row of off values.
    let on = (0..indices.len()).filter_map(|i| {
        let v = indices.get_i64(i);
        let v = if v < 0 { v.saturating_add(depth) } else { v };
        let inside = (0..depth).contains(&v);
        inside.then(|| (i / inner * n + v as usize) * inner + i % inner)
    });
    if let Some([off, value]) = values.text() {
        let mut out = Tensor::zeros(values.dtype(), &shape)?
            .text()
            .map(<[String]>::to_vec);
        let texts = out.get_or_insert_default();
        texts.fill(off.clone());
        on.for_each(|i| texts[i].clone_from(value));
        return Ok(vec![Tensor::from_text(&shape, out.unwrap_or_default())?]);
    }
    let mut out = RawOut::new(values.dtype(), &shape)?;
    let src = raw(values);
    let off = src.at(0);
    if off.iter().any(|b| *b != 0) {
        for i in 0..out.bytes.len() / out.width {
            out.put(i, off);
        }
    }
    on.for_each(|i| out.put(i, src.at(1)));
    Ok(vec![out.finish()?])
}
