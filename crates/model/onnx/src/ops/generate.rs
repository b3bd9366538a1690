//! EyeLike.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, to_dtype};
use expr::Compare;
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[op("EyeLike", eye)];

fn eye<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let shape = c.shape(x);
    if shape.len() != 2 {
        return Err(format!("needs a matrix, its input has rank {}", shape.len()).into());
    }
    let k = n.int("k", 0)?;
    let d = match n.int_opt("dtype")? {
        Some(code) => to_dtype(code)?,
        None => c.dtype(x),
    };
    let y = c.fill(n, n.name(0), &shape, d, |e| {
        let (i, j) = (e.index(0), e.index(1));
        let k = e.int(k, DType::I64);
        let diagonal = e.add(i, k);
        let on = e.compare(Compare::Eq, j, diagonal);
        e.cast(on, d)
    })?;
    c.set(n, 0, y);
    Ok(())
}
