//! ai.onnx.ml operators between categories and numbers: LabelEncoder, CategoryMapper,
//! OneHotEncoder, DictVectorizer, CastMap, ZipMap.
use super::{OpDef, op_of};
use crate::import::{Ctx, Kind, LowerError, Lowered, NodeView};
use crate::proto::{DataType, TensorData};
use expr::Compare;
use graph::Op;
use layout::{DType, Dim};
use tensor::{Attr, Tensor};

const ML: &str = "ai.onnx.ml";

pub(crate) const OPS: &[OpDef] = &[
    op_of(ML, "CastMap", cast_map), op_of(ML, "CategoryMapper", mapper), op_of(ML, "DictVectorizer", vectorizer),
    op_of(ML, "LabelEncoder", labels), op_of(ML, "OneHotEncoder", one_hot), op_of(ML, "ZipMap", zip_map),
];

/// The contents of a tensor attribute: texts or numbers.
pub(super) fn contents<'m>(c: &mut Ctx<'m>, t: &'m TensorData) -> Lowered<Tensor> {
    if DataType::from_code(t.dtype) == Some(DataType::String) {
        let texts = t.texts()?;
        return Ok(Tensor::from_text(&[texts.len()], texts)?);
    }
    let at = c.frames.len() - 1;
    let v = c.tensor(at, t, "attribute")?;
    let id = c.weight_id(v).ok_or("an attribute is no constant")?;
    c.store().tensor(id).ok_or_else(|| "an attribute is lost".into())
}

/// The list that one of the attributes `NAME_strings`, `NAME_int64s`, `NAME_floats`, `NAME_tensor`
/// gives.
fn list<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: &str) -> Lowered<Option<Tensor>> {
    let mut found = None;
    if let Some(t) = n.texts(&format!("{name}_strings"))?.filter(|t| !t.is_empty()) {
        found = Some(Tensor::from_text(&[t.len()], t)?);
    }
    if let Some(v) = n.ints(&format!("{name}_int64s"))?.filter(|v| !v.is_empty()) {
        found = Some(Tensor::from_i64(&[v.len()], &v)?);
    }
    if let Some(v) = n.floats(&format!("{name}_floats"))?.filter(|v| !v.is_empty()) {
        let v: Vec<f32> = v.into_iter().map(|x| x as f32).collect();
        found = Some(Tensor::from_f32(&[v.len()], &v)?);
    }
    if let Some(t) = n.tensor(&format!("{name}_tensor"))? {
        found = Some(contents(c, t)?);
    }
    Ok(found)
}

/// A look-up as a host operator: `values` at the position of the input among `keys`.
fn look_up<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, keys: Tensor, values: Tensor, default: Tensor) -> Lowered {
    let x = n.input(0)?;
    let (have, want) = (c.dtype(x), keys.dtype());
    if (have == DType::Str) != (want == DType::Str) || keys.len() != values.len() {
        return Err(format!("looks {have} up among {} {want} keys for {} values", keys.len(), values.len()).into());
    }
    let (d, s) = (values.dtype(), c.shape(x));
    let attrs = tensor::attrs(vec![
        ("keys", Attr::Tensor(keys)),
        ("values", Attr::Tensor(values)),
        ("default", Attr::Tensor(default)),
    ]);
    let op = Op::Host { name: format!("ml.{}", n.op), attrs };
    let name = n.name(0);
    let s = s.into_iter().map(Some).collect();
    let vs = c.b().node_with_shapes(op, &[x], &[(&name, d, s)], &n.origin);
    if let Some(&v) = vs.first() {
        c.set(n, 0, v);
    }
    Ok(())
}

fn default_of<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, d: DType) -> Lowered<Tensor> {
    let (text, whole, real) = (n.text("default_string", "_Unused")?, n.int("default_int64", -1)?, n.float("default_float", -0.0)?);
    if let Some(t) = n.tensor("default_tensor")? {
        return contents(c, t);
    }
    if d == DType::Str {
        return Ok(Tensor::from_text(&[1], vec![text])?);
    }
    let mut t = Tensor::zeros(d, &[1])?;
    if d.is_float() { t.set_f64(0, real) } else { t.set_i64(0, whole) }
    Ok(t)
}

fn labels<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    if n.opset < 2 {
        let classes = n.texts("classes_strings")?.ok_or("attribute 'classes_strings' is missing")?;
        let positions: Vec<i64> = (0..classes.len() as i64).collect();
        let texts = Tensor::from_text(&[classes.len()], classes)?;
        let numbers = Tensor::from_i64(&[positions.len()], &positions)?;
        let to_text = c.dtype(n.input(0)?) != DType::Str;
        let (keys, values) = if to_text { (numbers, texts) } else { (texts, numbers) };
        let default = default_of(c, n, values.dtype())?;
        return look_up(c, n, keys, values, default);
    }
    let keys = list(c, n, "keys")?.ok_or("its keys are missing")?;
    let values = list(c, n, "values")?.ok_or("its values are missing")?;
    let default = default_of(c, n, values.dtype())?;
    look_up(c, n, keys, values, default)
}

fn mapper<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let texts = n.texts("cats_strings")?.ok_or("attribute 'cats_strings' is missing")?;
    let numbers = n.ints("cats_int64s")?.ok_or("attribute 'cats_int64s' is missing")?;
    let texts = Tensor::from_text(&[texts.len()], texts)?;
    let numbers = Tensor::from_i64(&[numbers.len()], &numbers)?;
    let to_text = c.dtype(n.input(0)?) != DType::Str;
    let (keys, values) = if to_text { (numbers, texts) } else { (texts, numbers) };
    let default = default_of(c, n, values.dtype())?;
    look_up(c, n, keys, values, default)
}

fn one_hot<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let d = c.dtype(x);
    let zeros = n.flag("zeros", true)?;
    let (texts, ints) = (n.texts("cats_strings")?.filter(|t| !t.is_empty()), n.ints("cats_int64s")?.filter(|v| !v.is_empty()));
    let mut out = c.shape(x);
    let count = texts.as_ref().map(Vec::len).or(ints.as_ref().map(Vec::len)).ok_or("its categories are missing")?;
    out.push(Dim::from(count));
    if let (Some(cats), true, false) = (&ints, zeros, d == DType::Str) {
        let table = c.constant(&n.tmp("categories"), Tensor::from_i64(&[count], cats)?)?;
        let mut thin = c.shape(x);
        thin.push(Dim::ONE);
        let x = c.reshape(n, n.tmp("each"), x, thin)?;
        let y = c.map(n, n.name(0), &[x, table], |e, a| {
            let x = e.cast(a[0], DType::I64);
            let same = e.compare(Compare::Eq, x, a[1]);
            e.cast(same, DType::F32)
        })?;
        c.set(n, 0, y);
        return Ok(());
    }
    if texts.is_some() != (d == DType::Str) {
        return Err(format!("its categories are not of the input's type {d}").into());
    }
    c.host(n, &[(DType::F32, out.into_iter().map(Some).collect())])
}

fn zip_map<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let texts = n.texts("classlabels_strings")?.is_some_and(|t| !t.is_empty());
    let keys = if texts { DType::Str } else { DType::I64 };
    let attrs = n.host_attrs()?;
    let kind = Kind::seq(Kind::Map { keys, values: DType::F32 });
    let x = c.cast(n, n.tmp("x"), n.input(0)?, DType::F32)?;
    let y = c.held_op(n, "ml.ZipMap", attrs, &[x], n.name(0), kind)?;
    c.set(n, 0, y);
    Ok(())
}

fn cast_map<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    match c.kind(x) {
        Kind::Map { keys: DType::I64, values: DType::F32 | DType::Str } => {}
        _ => return Err("its input is no map from int64 to float or string; give it one".into()),
    }
    let dtype = match n.text("cast_to", "TO_FLOAT")?.as_str() {
        "TO_FLOAT" => DType::F32,
        "TO_STRING" => DType::Str,
        "TO_INT64" => DType::I64,
        other => return Err(format!("its cast_to is '{other}'; use TO_FLOAT, TO_STRING or TO_INT64").into()),
    };
    // A dense one has as many elements as the map that comes.
    let count = match n.text("map_form", "DENSE")?.as_str() {
        "DENSE" => None,
        "SPARSE" => match n.int("max_map", 1)? {
            count @ 1.. => Some(Dim::from(usize::try_from(count).unwrap_or(usize::MAX))),
            count => return Err(format!("its max_map is {count}; give it at least 1").into()),
        },
        other => return Err(format!("its map_form is '{other}'; use DENSE or SPARSE").into()),
    };
    n.int("max_map", 1)?;
    let attrs = n.host_attrs()?;
    let kind = Kind::Tensor { dtype, shape: Some(vec![Some(Dim::ONE), count]) };
    let y = c.held_op(n, "ml.CastMap", attrs, &[x], n.name(0), kind)?;
    c.set(n, 0, y);
    Ok(())
}

fn vectorizer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let Kind::Map { keys, values } = c.kind(x) else {
        return Err("its input must be a map".into());
    };
    let numbers = matches!(values, DType::F32 | DType::F64);
    if !numbers && !matches!((keys, values), (DType::Str, DType::I64) | (DType::I64, DType::Str)) {
        return Err(LowerError::Node(format!(
            "its input is a map from {keys} to {values}; give it one to floats, or one between texts and integers"
        )));
    }
    let texts = n.texts("string_vocabulary")?.filter(|t| !t.is_empty());
    let ints = n.ints("int64_vocabulary")?.filter(|v| !v.is_empty());
    let count = match (&texts, &ints, keys) {
        (Some(t), None, DType::Str) => t.len(),
        (None, Some(v), DType::I64) => v.len(),
        _ => return Err(LowerError::Node(format!("its vocabulary is not of the keys' type {keys}"))),
    };
    let attrs = n.host_attrs()?;
    let kind = Kind::tensor(values, &[Dim::ONE, Dim::from(count)]);
    let y = c.held_op(n, "ml.DictVectorizer", attrs, &[x], n.name(0), kind)?;
    c.set(n, 0, y);
    Ok(())
}
