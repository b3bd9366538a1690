//! Operators that gather or scatter at places that data gives: MaxUnpool, and Col2Im and DeformConv by the
//! host; and MelWeightMatrix, a small table.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, to_dtype};
use graph::{Op, PadMode, ScatterReduce};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] =
    &[op("Col2Im", col2im), op("MaxUnpool", max_unpool), op("DeformConv", deform_conv), op("MelWeightMatrix", mel)];

fn col2im<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, image, block) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (s, d) = (c.shape(x), c.dtype(x));
    let rank = c.shape(image).first().and_then(Dim::known).filter(|r| (1..=32).contains(r));
    let (Some(rank), 3) = (rank, s.len()) else {
        return Err("needs columns of rank 3 and an image's shape of known rank".into());
    };
    let channels = c.sizes(block)?.map(|b| s[1].floor_div(&Dim::product(&b)));
    let mut out = vec![Some(s[0].clone()), channels];
    match c.sizes(image)? {
        Some(i) => out.extend(i.into_iter().map(Some)),
        None => out.extend(c.some_sizes(image, rank as usize)),
    }
    c.host(n, &[(d, out)])
}

fn max_unpool<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, size) = (n.input(0)?, n.opt(2));
    let (s, d) = (c.shape(x), c.dtype(x));
    let kernel = n.ints("kernel_shape")?.ok_or("attribute 'kernel_shape' is missing")?;
    let r = kernel.len();
    let strides = n.ints("strides")?.unwrap_or_else(|| vec![1; r]);
    let pads = n.ints("pads")?.unwrap_or_else(|| vec![0; 2 * r]);
    if s.len() != r + 2 || strides.len() != r || pads.len() != 2 * r {
        return Err("its kernel, strides and pads must fit its spatial dimensions".into());
    }
    // The pool's input by the attributes; indices count its elements.
    let mut own = s[..2].to_vec();
    for (i, d) in s[2..].iter().enumerate() {
        let pad = pads[i].saturating_add(pads[r + i]);
        own.push((d.clone() - Dim::ONE) * Dim::Known(strides[i]) + Dim::Known(kernel[i].saturating_sub(pad)));
    }
    let out = match size {
        Some(v) => c.sizes(v)?.filter(|o| o.len() == s.len()),
        None => Some(own.clone()),
    };
    let Some(out) = out else {
        let size = size.map_or(vec![], |v| c.some_sizes(v, s.len()));
        return c.host(n, &[(d, size)]);
    };
    let at = n.input(1)?;
    if c.shape(at) != s {
        return Err("its indices must have the shape of its input".into());
    }
    let count = Dim::product(&s);
    let zeros = c.fill(n, n.tmp("zeros"), &[Dim::product(&own)], d, |e| match d.is_float() {
        true => e.constant(0.0, d),
        false => e.int(0, d),
    })?;
    let places = c.reshape(n, n.tmp("places"), at, vec![count.clone(), Dim::ONE])?;
    let values = c.reshaped(n, n.tmp("values"), x, vec![count])?;
    let put = Op::ScatterNd(ScatterReduce::Replace);
    let y = c.add1(n, put, &[zeros, places, values], n.tmp("put"))?;
    if own == out {
        let y = c.reshape(n, n.name(0), y, own)?;
        c.set(n, 0, y);
        return Ok(());
    }
    let y = c.reshape(n, n.tmp("pooled"), y, own.clone())?;
    let after = out.iter().zip(&own).map(|(o, d)| o.clone() - d.clone()).collect();
    let fit = Op::Pad { before: vec![Dim::ZERO; s.len()], after, mode: PadMode::Constant };
    let y = c.add1(n, fit, &[y], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

fn deform_conv<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let (x, w, offset) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (s, ws, os, d) = (c.shape(x), c.shape(w), c.shape(offset), c.dtype(x));
    if s.len() < 3 || ws.len() != s.len() || os.len() != s.len() {
        return Err("needs input, weight and offsets of one rank of 3 or more".into());
    }
    let mut out = vec![Some(s[0].clone()), Some(ws[0].clone())];
    out.extend(os[2..].iter().cloned().map(Some));
    c.host(n, &[(d, out)])
}

fn mel<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let (bands, length) = (n.input(0)?, n.input(1)?);
    let d = to_dtype(n.int("output_datatype", 1)?)?;
    let one = |c: &mut Ctx<'m>, v| -> Lowered<Option<Dim>> { Ok(c.sizes(v)?.and_then(|k| k.first().cloned())) };
    let bins = one(c, length)?.map(|l| l.floor_div(&Dim::Known(2)) + Dim::ONE);
    let bands = one(c, bands)?;
    if d == DType::Bool {
        return Err("attribute 'output_datatype' must be a number's type".into());
    }
    c.host(n, &[(d, vec![bins, bands])])
}
