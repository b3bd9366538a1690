//! Rare operators that stay whole: the host evaluates them under their own name.
use super::{OpDef, op, other};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axis_of, to_dtype};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("Compress", compress), op("NonZero", non_zero), op("NonMaxSuppression", nms), op("Unique", unique),
    op("RoiAlign", roi_align), op("ReverseSequence", same), op("GridSample", grid_sample), op("Det", det),
    op("HannWindow", signal), op("HammingWindow", signal), op("BlackmanWindow", signal),
    op("MelWeightMatrix", mel), op("DFT", dft), op("STFT", stft),
    other("ai.onnx.ml", "Scaler", scaler), other("ai.onnx.ml", "TreeEnsembleRegressor", ensemble),
    other("ai.onnx.ml", "LinearRegressor", ensemble), other("ai.onnx.ml", "SVMRegressor", ensemble),
    other("ai.onnx.ml", "TreeEnsembleClassifier", classifier), other("ai.onnx.ml", "LinearClassifier", classifier),
    other("ai.onnx.ml", "SVMClassifier", classifier), other("ai.onnx.ml", "Normalizer", scaler),
    other("ai.onnx.ml", "Binarizer", same), other("ai.onnx.ml", "Imputer", same),
];

fn some(s: &[Dim]) -> Vec<Option<Dim>> {
    s.iter().cloned().map(Some).collect()
}

fn same<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let (d, s) = (c.dtype(x), some(&c.shape(x)));
    c.host(n, &[(d, s)])
}

fn scaler<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let s = some(&c.shape(n.input(0)?));
    c.host(n, &[(DType::F32, s)])
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
    let wanted = n.outputs.len().clamp(1, 4);
    c.host(n, &all[..wanted])
}

fn roi_align<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, rois) = (n.input(0)?, n.input(1)?);
    let (d, s, r) = (c.dtype(x), c.shape(x), c.shape(rois));
    if s.len() != 4 || r.len() != 2 {
        return Err("needs an input of rank 4 and rois of rank 2".into());
    }
    let size = |name: &str| -> Lowered<Option<Dim>> { Ok(Some(Dim::Known(n.int(name, 1)?.max(0)))) };
    let out = vec![Some(r[0].clone()), Some(s[1].clone()), size("output_height")?, size("output_width")?];
    c.host(n, &[(d, out)])
}

fn grid_sample<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, g) = (n.input(0)?, n.input(1)?);
    let (d, s, t) = (c.dtype(x), c.shape(x), c.shape(g));
    if s.len() < 3 || t.len() != s.len() {
        return Err("needs an input and a grid of one rank".into());
    }
    let mut out = s[..2].to_vec();
    out.extend_from_slice(&t[1..t.len() - 1]);
    c.host(n, &[(d, some(&out))])
}

fn det<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let (d, s) = (c.dtype(x), c.shape(x));
    let keep = s.len().checked_sub(2).ok_or("needs rank 2 or more")?;
    c.host(n, &[(d, some(&s[..keep]))])
}

fn signal<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let size = c.sizes(n.input(0)?)?.and_then(|s| s.first().cloned());
    let d = to_dtype(n.int("output_datatype", 1)?)?;
    c.host(n, &[(d, vec![size])])
}

fn mel<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let one = |c: &mut Ctx<'m>, i: usize| -> Lowered<Option<Dim>> {
        Ok(c.sizes(n.input(i)?)?.and_then(|s| s.first().cloned()))
    };
    let (bins, length) = (one(c, 0)?, one(c, 1)?);
    let d = to_dtype(n.int("output_datatype", 1)?)?;
    let bands = length.map(|l| l.floor_div(&Dim::Known(2)) + Dim::ONE);
    c.host(n, &[(d, vec![bands, bins])])
}

fn dft<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let x = n.input(0)?;
    let (d, mut s) = (c.dtype(x), c.shape(x));
    if s.len() < 2 {
        return Err("needs rank 2 or more".into());
    }
    let axis = match n.opt(2).filter(|_| n.opset >= 20) {
        Some(a) => c.const_ints(a).and_then(|a| a.first().copied()).ok_or_else(|| LowerError::Unsupported("its axis is computed from data; make it constant".into()))?,
        None if n.opset >= 20 => -2,
        None => n.int("axis", 1)?,
    };
    let axis = axis_of(axis, s.len())?;
    if let Some(l) = n.opt(1) {
        s[axis] = c.sizes(l)?.and_then(|l| l.first().cloned()).ok_or_else(|| LowerError::Unsupported("its length is computed from data; make it constant".into()))?;
    }
    let (one, inverse) = (n.flag("onesided", false)?, n.flag("inverse", false)?);
    let last = s.len() - 1;
    s[last] = Dim::Known(2);
    if one {
        if inverse {
            s[last] = Dim::ONE;
        } else {
            s[axis] = s[axis].floor_div(&Dim::Known(2)) + Dim::ONE;
        }
    }
    c.host(n, &[(d, some(&s))])
}

fn stft<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let x = n.input(0)?;
    let (d, s) = (c.dtype(x), c.shape(x));
    if s.len() < 2 {
        return Err("needs rank 2 or more".into());
    }
    let step = c.sizes(n.input(1)?)?.and_then(|s| s.first().cloned());
    let frame = match (n.opt(2), n.opt(3)) {
        (Some(w), _) => c.shape(w).first().cloned(),
        (None, Some(l)) => c.sizes(l)?.and_then(|l| l.first().cloned()),
        _ => return Err("needs a window or a frame length".into()),
    };
    let bins = frame.clone().map(|f| match n.flag("onesided", true) {
        Ok(true) => f.floor_div(&Dim::Known(2)) + Dim::ONE,
        _ => f,
    });
    let frames = frame.zip(step).map(|(f, k)| (s[1].clone() - f).floor_div(&k) + Dim::ONE);
    c.host(n, &[(d, vec![Some(s[0].clone()), frames, bins, Some(Dim::Known(2))])])
}

fn rows<'m>(c: &Ctx<'m>, n: &NodeView<'m>) -> Lowered<Dim> {
    let s = c.shape(n.input(0)?);
    Ok(if s.len() < 2 { Dim::ONE } else { s[0].clone() })
}

fn ensemble<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let rows = rows(c, n)?;
    let targets = n.int_opt("n_targets")?.or(n.int_opt("targets")?).unwrap_or(1).max(1);
    c.host(n, &[(DType::F32, vec![Some(rows), Some(Dim::Known(targets))])])
}

fn classifier<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let rows = rows(c, n)?;
    let labels = n.ints("classlabels_int64s")?.or(n.ints("classlabels_ints")?);
    let Some(labels) = labels else {
        return Err(LowerError::Unsupported("its labels are texts; train with integer labels".into()));
    };
    let k = Dim::Known(labels.len().max(2) as i64);
    c.host(n, &[(DType::I64, vec![Some(rows.clone())]), (DType::F32, vec![Some(rows), Some(k)])])
}
