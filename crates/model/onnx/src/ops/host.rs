//! Rare operators that stay whole: the host evaluates them under their own name.
use super::{OpDef, op, op_of};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("Compress", compress),
    op("NonZero", non_zero),
    op("NonMaxSuppression", nms),
    op("Unique", unique),
    op("Det", det),
    op("MaxRoiPool", max_roi_pool),
    op_of("com.microsoft", "CropAndResize", crop_and_resize),
    op_of("com.microsoft", "Inverse", inverse),
    op_of("com.microsoft", "MurmurHash3", murmur),
    op("ImageDecoder", image_decoder),
];

fn some(s: &[Dim]) -> Vec<Option<Dim>> {
    s.iter().cloned().map(Some).collect()
}

fn compress<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let (d, s) = (c.dtype(x), c.shape(x));
    let out = match n.int_opt("axis")? {
        None => vec![None],
        Some(a) => {
            let a = axis_of(a, s.len())?;
            let mut s = some(&s);
            s[a] = None;
            s
        }
    };
    c.host(n, &[(d, out)])
}

fn non_zero<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let r = c.rank(n.input(0)?);
    c.host(n, &[(DType::I64, vec![Some(Dim::from(r)), None])])
}

fn nms<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    c.host(n, &[(DType::I64, vec![None, Some(Dim::Known(3))])])
}

fn unique<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let (d, s) = (c.dtype(x), c.shape(x));
    let (values, whole) = match n.int_opt("axis")? {
        None => (vec![None], Dim::product(&s)),
        Some(a) => {
            let a = axis_of(a, s.len())?;
            let mut v = some(&s);
            v[a] = None;
            (v, s[a].clone())
        }
    };
    let all = [(d, values), (DType::I64, vec![None]), (DType::I64, vec![Some(whole)]), (DType::I64, vec![None])];
    c.host(n, &all)
}

fn image_decoder<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let channels = match n.text("pixel_format", "RGB")?.as_str() {
        "RGB" | "BGR" => 3,
        "Grayscale" => 1,
        f => return Err(format!("attribute 'pixel_format' is '{f}', it must be RGB, BGR or Grayscale").into()),
    };
    c.host(n, &[(DType::U8, vec![None, None, Some(Dim::Known(channels))])])
}

fn max_roi_pool<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, rois) = (n.input(0)?, n.input(1)?);
    let (s, r) = (c.shape(x), c.shape(rois));
    let pooled = n.ints("pooled_shape")?.unwrap_or_default();
    let (4, 2, [h, w]) = (s.len(), r.len(), pooled.as_slice()) else {
        return Err("needs an input of rank 4, rois of rank 2 and two numbers in 'pooled_shape'".into());
    };
    let out = [r[0].clone(), s[1].clone(), Dim::Known(*h), Dim::Known(*w)];
    c.host(n, &[(c.dtype(x), some(&out))])
}

fn det<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let (d, s) = (c.dtype(x), c.shape(x));
    let keep = s.len().checked_sub(2).ok_or("needs rank 2 or more")?;
    c.host(n, &[(d, some(&s[..keep]))])
}

fn crop_and_resize<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, rois, size) = (n.input(0)?, n.input(1)?, n.input(3)?);
    let (s, r) = (c.shape(x), c.shape(rois));
    if s.len() != 4 || r.len() != 2 {
        return Err(format!("its input has rank {} and its rois {}, not 4 and 2", s.len(), r.len()).into());
    }
    let mut out = vec![Some(r[0].clone()), Some(s[1].clone())];
    out.extend(c.some_sizes(size, 2));
    c.host(n, &[(c.dtype(x), out)])
}

fn murmur<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let d = if n.flag("positive", true)? { DType::U32 } else { DType::I32 };
    let s = c.shape(n.input(0)?);
    c.host(n, &[(d, some(&s))])
}

fn inverse<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    c.host(n, &[(c.dtype(x), some(&c.shape(x)))])
}
