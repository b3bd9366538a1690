//! ai.onnx.ml tree ensembles: walked by the host.
use super::ml_encode::contents;
use super::ml_linear::Labels;
use super::{OpDef, op_of};
use crate::import::{Ctx, Lowered, NodeView};
use crate::proto::AttributeValue;
use graph::Op;
use layout::{DType, Dim};
use tensor::{Attr, Attrs};

const ML: &str = "ai.onnx.ml";
/// Outputs of one ensemble at most.
const MAX_TARGETS: i64 = 1 << 20;

pub(crate) const OPS: &[OpDef] = &[
    op_of(ML, "TreeEnsemble", ensemble), op_of(ML, "TreeEnsembleClassifier", classifier), op_of(ML, "TreeEnsembleRegressor", regressor),
];

/// All attributes, tensors among them.
fn attrs<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered<Attrs> {
    let mut out = Attrs::new();
    for (&name, &v) in &n.attrs {
        n.read.borrow_mut().insert(name.to_string());
        let text = |s: &[u8]| String::from_utf8(s.to_vec()).map_err(|_| format!("attribute '{name}' is not UTF-8; export the model again"));
        let a = match v {
            AttributeValue::Tensor(t) => Attr::Tensor(contents(c, t)?),
            AttributeValue::Float(x) => Attr::Float(*x as f64),
            AttributeValue::Int(x) => Attr::Int(*x),
            AttributeValue::String(s) => Attr::Str(text(s)?),
            AttributeValue::Floats(x) => Attr::Floats(x.iter().map(|&x| x as f64).collect()),
            AttributeValue::Ints(x) => Attr::Ints(x.clone()),
            AttributeValue::Strings(x) => Attr::Strs(x.iter().map(|s| text(s)).collect::<Result<_, _>>()?),
            _ => return Err(format!("attribute '{name}' is of a kind that trees do not have").into()),
        };
        out.insert(name.to_string(), a);
    }
    Ok(out)
}

fn rows<'m>(c: &Ctx<'m>, n: &NodeView<'m>) -> Lowered<Dim> {
    let s = c.shape(n.input(0)?);
    Ok(if s.len() < 2 { Dim::ONE } else { s[0].clone() })
}

fn targets(n: &NodeView) -> Lowered<Dim> {
    match n.int("n_targets", 1)? {
        k @ 1..=MAX_TARGETS => Ok(Dim::Known(k)),
        k => Err(format!("attribute 'n_targets' is {k}; it must lie within 1 and {MAX_TARGETS}").into()),
    }
}

fn regressor<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let rows = rows(c, n)?;
    let targets = targets(n)?;
    let a = attrs(c, n)?;
    c.host_with(n, a, &[(DType::F32, vec![Some(rows), Some(targets)])])
}

fn ensemble<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let d = c.dtype(n.input(0)?);
    let rows = rows(c, n)?;
    let targets = targets(n)?;
    let a = attrs(c, n)?;
    c.host_with(n, a, &[(d, vec![Some(rows), Some(targets)])])
}

/// The host gives positions of labels.
fn classifier<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let labels = Labels::of(n)?;
    let rows = rows(c, n)?;
    let mut a = attrs(c, n)?;
    a.remove("classlabels_strings");
    a.insert("classlabels_int64s".into(), Attr::Ints((0..labels.len() as i64).collect()));
    let k = Dim::from(labels.len());
    let (at, scores) = (n.tmp("at"), n.name(1));
    let op = Op::Host { name: "ml.TreeEnsembleClassifier".into(), attrs: a };
    let outs = [
        (at.as_str(), DType::I64, vec![Some(rows.clone())]),
        (scores.as_str(), DType::F32, vec![Some(rows), Some(k)]),
    ];
    let vs = c.b().node_with_shapes(op, &[n.input(0)?], &outs, &n.origin);
    if let [at, scores] = vs[..] {
        labels.set(c, n, at)?;
        c.set(n, 1, scores);
    }
    Ok(())
}
