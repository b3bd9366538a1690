//! Texts: host operators, and the operators that only move elements, which move numbers that stand
//! for the texts instead.
use super::{OpDef, op, op_of};
use crate::import::{Ctx, Item, LowerError, Lowered, NodeView};
use graph::{Op, ValueId};
use layout::{DType, Dim};
use tensor::{Attr, Attrs};

pub(crate) const OPS: &[OpDef] = &[
    op("RegexFullMatch", regex),
    op("StringConcat", concat),
    op("StringNormalizer", normalize),
    op("StringSplit", split),
    op("TfIdfVectorizer", tf_idf),
    op_of("com.microsoft", "Tokenizer", tokenizer),
];

/// Operators whose data outputs hold elements of their inputs, with the number of such outputs from
/// the first on (0: all).
const MOVES: &[(&str, usize)] = &[
    ("Compress", 0),
    ("Concat", 0),
    ("DepthToSpace", 0),
    ("Equal", 0),
    ("Expand", 0),
    ("Flatten", 0),
    ("Gather", 0),
    ("GatherElements", 0),
    ("GatherND", 0),
    ("Pad", 0),
    ("Reshape", 0),
    ("ReverseSequence", 0),
    ("Scatter", 0),
    ("ScatterElements", 0),
    ("ScatterND", 0),
    ("Slice", 0),
    ("SpaceToDepth", 0),
    ("Split", 0),
    ("Squeeze", 0),
    ("Tile", 0),
    ("Transpose", 0),
    ("Trilu", 0),
    ("Unique", 1),
    ("Unsqueeze", 0),
    ("Where", 0),
];

/// Those of them that put zeros where no input is, which empty texts stand for.
const FILLS: &[&str] = &["Pad", "Trilu"];

/// The one of ai.onnx.ml.
const PICKS: &str = "ArrayFeatureExtractor";

/// Whether the node moves texts.
pub(crate) fn moves_text(c: &Ctx, n: &NodeView) -> bool {
    let known = match n.domain {
        "" => MOVES.iter().any(|m| m.0 == n.op),
        "ai.onnx.ml" => n.op == PICKS,
        _ => false,
    };
    known
        && n.inputs.iter().flatten().any(|&v| c.dtype(v) == DType::Str)
}

/// Lowers a node on numbers in place of texts: equal texts have equal numbers, in the texts' order.
pub(crate) fn move_text<'m>(c: &mut Ctx<'m>, mut n: NodeView<'m>, def: &OpDef) -> Lowered<NodeView<'m>> {
    let mut texts: Vec<ValueId> = n.inputs.iter().copied().flatten().filter(|&v| c.dtype(v) == DType::Str).collect();
    if FILLS.contains(&n.op) {
        // Its number is 0, for it comes before any other.
        texts.push(constant_of(c, &n, n.tmp("empty"), vec![1], vec![String::new()])?);
    }
    let names: Vec<String> = (0..texts.len()).map(|i| n.tmp(&format!("ids{i}"))).collect();
    let outs: Vec<(&str, DType, Vec<Option<Dim>>)> = texts
        .iter()
        .zip(&names)
        .map(|(&v, name)| (name.as_str(), DType::I64, c.shape(v).into_iter().map(Some).collect()))
        .collect();
    let op = Op::Host { name: "text.ids".into(), attrs: Attrs::new() };
    let ids = c.b().node_with_shapes(op, &texts, &outs, &n.origin);
    let mut next = ids.into_iter();
    for v in n.inputs.iter_mut().flatten() {
        if texts.contains(v) {
            *v = next.next().ok_or("a text has no number")?;
        }
    }
    let wanted = n.names.clone();
    n.names = (0..n.names.len()).map(|i| n.tmp(&format!("id{i}"))).collect();
    (def.lower)(c, &n)?;
    n.names = wanted;
    let data = MOVES.iter().find(|m| m.0 == n.op).map_or(0, |m| m.1);
    for i in 0..n.outputs.len() {
        if !n.wants(i) {
            continue;
        }
        let Item::Value(y) = c.lookup(n.outputs[i])? else { continue };
        if n.op == "Equal" || (data > 0 && i >= data) {
            continue;
        }
        let s = c.shape(y).into_iter().map(Some).collect();
        let op = Op::Host { name: "text.pick".into(), attrs: Attrs::new() };
        let inputs: Vec<ValueId> = [y].into_iter().chain(texts.iter().copied()).collect();
        let name = n.name(i);
        let vs = c.b().node_with_shapes(op, &inputs, &[(&name, DType::Str, s)], &n.origin);
        if let Some(&v) = vs.first() {
            c.set(&n, i, v);
        }
    }
    Ok(n)
}

fn texts<'m>(c: &Ctx<'m>, n: &NodeView<'m>, count: usize) -> Lowered {
    n.at_most(count)?;
    for i in 0..count {
        let d = c.dtype(n.input(i)?);
        if d != DType::Str {
            return Err(format!("input {i} is {d}, it must be text").into());
        }
    }
    Ok(())
}

fn concat<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    texts(c, n, 2)?;
    let (a, b) = (c.shape(n.input(0)?), c.shape(n.input(1)?));
    let s = c.broadcast(n, &a, &b)?;
    c.host(n, &[(DType::Str, s.into_iter().map(Some).collect())])
}

fn regex<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    texts(c, n, 1)?;
    let s = c.shape(n.input(0)?);
    c.host(n, &[(DType::Bool, s.into_iter().map(Some).collect())])
}

fn normalize<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    texts(c, n, 1)?;
    let mut s: Vec<Option<Dim>> = c.shape(n.input(0)?).into_iter().map(Some).collect();
    if !matches!(s.len(), 1 | 2) {
        return Err("needs rank 1 or 2".into());
    }
    if n.texts("stopwords")?.is_some_and(|w| !w.is_empty()) {
        let last = s.len() - 1;
        s[last] = None;
    }
    c.host(n, &[(DType::Str, s)])
}

fn split<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    texts(c, n, 1)?;
    let s: Vec<Option<Dim>> = c.shape(n.input(0)?).into_iter().map(Some).collect();
    let mut parts = s.clone();
    parts.push(None);
    c.host(n, &[(DType::Str, parts), (DType::I64, s)])
}

fn tokenizer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    texts(c, n, 1)?;
    let mut s: Vec<Option<Dim>> = c.shape(n.input(0)?).into_iter().map(Some).collect();
    if !matches!(s.len(), 1 | 2) {
        return Err("needs rank 1 or 2".into());
    }
    s.push(None);
    c.host(n, &[(DType::Str, s)])
}

fn tf_idf<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let mut s = c.shape(n.input(0)?);
    if !matches!(s.len(), 1 | 2) {
        return Err("needs rank 1 or 2".into());
    }
    let indexes = n.ints("ngram_indexes")?.ok_or("attribute 'ngram_indexes' is missing")?;
    let width = indexes.iter().copied().max().unwrap_or(-1).checked_add(1).ok_or("an index is too large")?;
    let last = s.len() - 1;
    s[last] = Dim::Known(width.max(0));
    c.host(n, &[(DType::F32, s.into_iter().map(Some).collect())])
}

/// Cast to or from text.
pub(crate) fn cast<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, to: DType) -> Lowered {
    if to == DType::Host || c.dtype(x) == DType::Host {
        return Err(LowerError::Unsupported("casts a sequence; cast its items".into()));
    }
    let s = c.shape(x).into_iter().map(Some).collect();
    let attrs = tensor::attrs(vec![("to", Attr::Str(to.name().into()))]);
    let op = Op::Host { name: "text.cast".into(), attrs };
    let name = n.name(0);
    let vs = c.b().node_with_shapes(op, &[x], &[(&name, to, s)], &n.origin);
    if let Some(&v) = vs.first() {
        c.set(n, 0, v);
    }
    Ok(())
}

/// A constant of texts as the node's result.
pub(crate) fn constant<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, dims: Vec<i64>, texts: Vec<String>) -> Lowered {
    let v = constant_of(c, n, n.name(0), dims, texts)?;
    c.set(n, 0, v);
    Ok(())
}

fn constant_of<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, dims: Vec<i64>, texts: Vec<String>) -> Lowered<ValueId> {
    let s = dims.iter().map(|&d| Some(Dim::Known(d))).collect();
    let attrs = tensor::attrs(vec![("dims", Attr::Ints(dims)), ("texts", Attr::Strs(texts))]);
    let op = Op::Host { name: "text.constant".into(), attrs };
    let vs = c.b().node_with_shapes(op, &[], &[(&name, DType::Str, s)], &n.origin);
    vs.first().copied().ok_or_else(|| "a constant has no value".into())
}
