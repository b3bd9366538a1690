//! FlexAttention (ai.onnx.preview): attention whose scores and weights pass through graphs that the
//! node carries.
use super::attention::repeated;
use super::{OpDef, matmul, op_of, softmax};
use crate::import::{Ctx, Item, LowerError, Lowered, NodeView, to_dtype};
use graph::ValueId;
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[op_of("ai.onnx.preview", "FlexAttention", lower)];

/// `v` through the graph of attribute `name`, where there is one.
fn through<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: &str, v: ValueId) -> Lowered<ValueId> {
    if !n.attrs.contains_key(name) {
        return Ok(v);
    }
    let g = n.graph(name)?;
    let formals = Ctx::real_inputs(g);
    let ([formal], [out]) = (formals.as_slice(), g.outputs.as_slice()) else {
        return Err(format!("the graph '{name}' must have one input and one output").into());
    };
    let mut scope = c.scope_of(g, format!("{}/{name}/", n.origin.name))?;
    scope.values.insert(&formal.name, Item::Value(v));
    c.frame().scopes.push(scope);
    let found = c.nodes(&g.nodes).and_then(|()| c.lookup(&out.name));
    c.frame().scopes.pop();
    match found? {
        Item::Value(v) => Ok(v),
        Item::Poisoned => Err(LowerError::Unsupported(format!("its graph '{name}' has a node that is not supported"))),
    }
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (q, k, v) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (sq, sk, d) = (c.shape(q), c.shape(k), c.dtype(q));
    if sq.len() != 4 || sk.len() != 4 || c.rank(v) != 4 {
        return Err("needs query, key and value of rank 4".into());
    }
    let precision = n.int_opt("softmax_precision")?.map(to_dtype).transpose()?;
    let wide = precision.unwrap_or(if d == DType::F64 { d } else { DType::F32 });
    let times = sq[1].exact_div(&sk[1]).and_then(|t| t.known()).filter(|t| *t >= 1);
    let times = times.ok_or_else(|| format!("{} query heads are no multiple of {} key heads", sq[1], sk[1]))?;
    let k = repeated(c, n, "k", k, times)?;
    let v = repeated(c, n, "v", v, times)?;
    let scale = match (n.float_opt("scale")?, sq[3].known().filter(|w| *w > 0)) {
        (Some(s), _) => s,
        (None, Some(w)) => 1.0 / (w as f64).sqrt(),
        _ => return Err(LowerError::Unsupported("its head size is not known; give it with --dim".into())),
    };
    let kt = c.permute(n, n.tmp("k.t"), k, vec![0, 1, 3, 2])?;
    let raw = matmul::product(c, n, n.tmp("product"), q, kt, (false, false))?;
    let s = c.map(n, n.tmp("scores"), &[raw], |e, a| {
        let x = if d == wide { a[0] } else { e.cast(a[0], wide) };
        let f = e.constant(scale, wide);
        e.mul(x, f)
    })?;
    let s = through(c, n, "score_mod", s)?;
    let p = softmax::softmax(c, n, n.tmp("softmax"), s, &[3], false)?;
    let p = through(c, n, "prob_mod", p)?;
    let p = c.cast(n, n.tmp("weights"), p, d)?;
    let y = matmul::product(c, n, n.name(0), p, v, (false, false))?;
    c.set(n, 0, y);
    Ok(())
}
