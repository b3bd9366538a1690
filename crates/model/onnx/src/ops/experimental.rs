//! Operators of ONNX's first versions that never left the experimental state and were removed; old models have them.
use super::{OpDef, op, standard};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Unary, functions};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("Affine", scaled), op("Crop", crop), op("DynamicSlice", slice), op("ImageScaler", image_scaler),
    op("ParametricSoftplus", scaled), op("Scale", scaled), op("ScaledTanh", scaled),
];

/// A scalar function of `alpha` and `beta`.
fn scaled<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let (alpha, beta) = match n.op {
        "Scale" => (n.float("scale", 1.0)?, 0.0),
        _ => (n.float("alpha", 1.0)?, n.float("beta", if n.op == "Affine" { 0.0 } else { 1.0 })?),
    };
    let y = c.map_wide(n, n.name(0), &[x], |e, a, d| {
        let (alpha, beta) = (e.constant(alpha, d), e.constant(beta, d));
        match n.op {
            "Affine" => {
                let y = e.mul(alpha, a[0]);
                e.add(y, beta)
            }
            "ParametricSoftplus" => {
                let y = e.mul(beta, a[0]);
                let y = functions::softplus(e, y, d);
                e.mul(alpha, y)
            }
            "ScaledTanh" => {
                let y = e.mul(beta, a[0]);
                let y = e.unary(Unary::Tanh, y);
                e.mul(alpha, y)
            }
            _ => e.mul(alpha, a[0]),
        }
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// A picture scaled, with a bias for each channel.
fn image_scaler<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let scale = n.float("scale", 1.0)?;
    let bias = n.floats("bias")?.ok_or("attribute 'bias' is missing")?;
    let rank = c.rank(x);
    if rank != 4 || c.shape(x)[1].known().is_some_and(|k| k as usize != bias.len()) {
        return Err(format!("has {} biases for a picture of shape {:?}", bias.len(), c.shape(x)).into());
    }
    let bytes: Vec<u8> = bias.iter().flat_map(|b| (*b as f32).to_le_bytes()).collect();
    let t = tensor::Tensor::from_bytes(DType::F32, &[bias.len()], bytes).map_err(|e| e.to_string())?;
    let bias = c.constant(&n.tmp("bias"), t)?;
    let bias = c.along(n, n.tmp("bias.c"), bias, rank, 1)?;
    let y = c.map_wide(n, n.name(0), &[x, bias], |e, a, d| {
        let k = e.constant(scale, d);
        let y = e.mul(a[0], k);
        e.add(y, a[1])
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// A picture without its border, or a part of stated size.
fn crop<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let (s, border) = (c.shape(x), n.ints("border")?.unwrap_or_default());
    let (4, [left, top, right, bottom]) = (s.len(), border.as_slice()) else {
        return Err("needs an input of rank 4 and four numbers in 'border'".into());
    };
    let size = n.ints("scale")?;
    if size.as_ref().is_some_and(|s| s.len() != 2) {
        return Err("attribute 'scale' must have two numbers".into());
    }
    let mut y = x;
    for (k, (from, to)) in [(top, bottom), (left, right)].into_iter().enumerate() {
        let (axis, from) = (k + 2, Dim::Known(*from));
        let extent = match &size {
            Some(s) => Dim::Known(s[k]),
            None => s[axis].clone() - from.clone() - Dim::Known(*to),
        };
        c.assume_at_most(n, &(from.clone() + extent.clone()), &s[axis]);
        let name = if k == 1 { n.name(0) } else { n.tmp("rows") };
        y = c.slice(n, name, y, axis, from, extent)?;
    }
    c.set(n, 0, y);
    Ok(())
}

/// Slice as it became in opset 10.
fn slice<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    standard(c, n, "Slice", 10, |_| {})
}
