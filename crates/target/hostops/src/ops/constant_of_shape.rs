//! ConstantOfShape whose shape comes from data.
use crate::args::Args;
use crate::data::{alloc, extent, get, ints, set};
use crate::error::R;
use layout::DType;
use tensor::{Attr, Tensor};

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let shape: Vec<usize> = ints(a.input(0)?)
        .into_iter()
        .map(extent)
        .collect::<R<_>>()?;
    let t = match a.attrs.get("value") {
        Some(Attr::Tensor(v)) if v.len() == 1 => {
            let mut t = alloc(v.dtype(), &shape)?;
            let zero = v.bytes().iter().all(|b| *b == 0);
            for i in 0..if zero { 0 } else { t.len() } {
                set(&mut t, i, get(v, 0));
            }
            t
        }
        Some(_) => return Err("attribute 'value' must be a tensor of one element".into()),
        None => alloc(DType::F32, &shape)?,
    };
    Ok(vec![t])
}
