//! Constant in all its attribute forms, ConstantOfShape.
use super::{OpDef, op};
use crate::import::{Ctx, Item, Lowered, NodeView, narrow_name};
use crate::proto::TensorData;
use graph::ValueId;
use layout::DType;
use tensor::Tensor;

pub(crate) const OPS: &[OpDef] = &[op("Constant", constant), op("ConstantOfShape", of_shape)];

fn constant<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let name = n.name(0);
    let v = if let Some(t) = n.tensor("value")? {
        let at = c.frames.len() - 1;
        c.tensor(at, t, &name)?
    } else if let Some(x) = n.float_opt("value_float")? {
        c.constant(&name, Tensor::from_f32(&[], &[x as f32])?)?
    } else if let Some(x) = n.floats("value_floats")? {
        let x: Vec<f32> = x.iter().map(|&v| v as f32).collect();
        c.constant(&name, Tensor::from_f32(&[x.len()], &x)?)?
    } else if let Some(x) = n.int_opt("value_int")? {
        c.constant(&name, Tensor::from_i64(&[], &[x])?)?
    } else if let Some(x) = n.ints("value_ints")? {
        c.constant(&name, Tensor::from_i64(&[x.len()], &x)?)?
    } else if n.attrs.contains_key("value_string") {
        return super::text::constant(c, n, vec![], vec![n.text("value_string", "")?]);
    } else if let Some(t) = n.texts("value_strings")? {
        return super::text::constant(c, n, vec![t.len() as i64], t);
    } else if let Some(t) = n.sparse("sparse_value")? {
        let at = c.frames.len() - 1;
        c.sparse(at, t, &name)?
    } else {
        return Err("has no value; export the model again".into());
    };
    c.set(n, 0, v);
    Ok(())
}

/// The only element of a tensor attribute.
pub(crate) fn single<'m>(c: &mut Ctx<'m>, t: &'m TensorData) -> Lowered<Tensor> {
    let at = c.frames.len() - 1;
    let v: ValueId = c.tensor(at, t, "value")?;
    let id = c.weight_id(v).ok_or("a constant is no weight")?;
    let t = c.store().tensor(id).ok_or("a constant is lost")?;
    if t.len() != 1 {
        return Err(format!("attribute 'value' must hold one element, it holds {}", t.len()).into());
    }
    Ok(t)
}

fn of_shape<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let s = n.input(0)?;
    let (value, narrow) = match n.tensor("value")? {
        Some(t) => (single(c, t)?, narrow_name(t.dtype)),
        None => (Tensor::from_f32(&[1], &[0.0])?, None),
    };
    let d = value.dtype();
    let y = match c.sizes(s)? {
        Some(shape) => c.fill(n, n.name(0), &shape, d, |e| match d.is_float() {
            true => e.constant(value.get_f64(0), d),
            false => e.int(value.get_i64(0), d),
        })?,
        None => {
            let rank = c.rank_by(n, s)?;
            let shape = c.some_sizes(s, rank);
            let mut attrs = tensor::Attrs::new();
            attrs.insert("value".into(), tensor::Attr::Tensor(value));
            c.host_with(n, attrs, &[(d, shape)])?;
            if let (Item::Value(y), true) = (c.lookup(n.outputs[0])?, narrow.is_some()) {
                c.set_narrow(y, narrow);
            }
            return Ok(());
        }
    };
    c.set_narrow(y, narrow);
    if d != DType::F32 && let Some(count) = y_count(c, y) {
        let fill = c.ints(y).is_none() && !d.is_float() && count <= 4096;
        if fill {
            c.b().set_ints(y, vec![layout::Dim::Known(value.get_i64(0)); count as usize]);
        }
    }
    c.set(n, 0, y);
    Ok(())
}

fn y_count(c: &Ctx, y: ValueId) -> Option<i64> {
    layout::Dim::product(&c.shape(y)).known().filter(|n| *n >= 0)
}
