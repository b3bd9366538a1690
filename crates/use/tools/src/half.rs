//! A model with everything that is f32 stored as f16: what exporting it so would give, for predictions.
use expr::{Expr, Inst, Monoid};
use graph::{Graph, Node, NodeId, Op, Origin, Value, ValueId, ValueSource};
use layout::DType;
use shopfloor::{Error, Model};

fn narrow(t: DType) -> DType {
    if t == DType::F32 { DType::F16 } else { t }
}

fn expr(e: &mut Expr) {
    for i in &mut e.insts {
        match i {
            Inst::Input { dtype, .. } | Inst::Float { dtype, .. } | Inst::Int { dtype, .. } => {
                *dtype = narrow(*dtype);
            }
            Inst::Cast(_, dtype) => *dtype = narrow(*dtype),
            _ => {}
        }
    }
}

fn monoid(m: &mut Monoid) {
    for e in [&mut m.identity, &mut m.lift, &mut m.combine, &mut m.finish] {
        expr(e);
    }
}

fn op(o: &mut Op) {
    match o {
        Op::Map(e) => expr(e),
        Op::Reduce { monoid: m, .. } | Op::Scan { monoid: m, .. } => monoid(m),
        Op::Attention(a) => expr(&mut a.score),
        Op::If {
            then_branch,
            else_branch,
        } => {
            **then_branch = graph(then_branch);
            **else_branch = graph(else_branch);
        }
        Op::Loop { body, .. } => **body = graph(body),
        _ => {}
    }
}

/// The same graph over f16; its f32 constants are rounded when it is loaded.
fn graph(g: &Graph) -> Graph {
    let mut out = g.clone();
    let is_weight = |v: &Value| v.dtype == DType::F32 && matches!(v.source, ValueSource::Weight(_));
    let constants: Vec<usize> = (0..g.values.len())
        .filter(|&i| is_weight(&g.values[i]))
        .collect();
    let shift = constants.len() as u32;
    for v in &mut out.values {
        if let ValueSource::Node(n, _) = &mut v.source {
            n.0 += shift;
        }
        v.dtype = narrow(v.dtype);
    }
    for n in &mut out.nodes {
        op(&mut n.op);
    }
    let mut rounded = Vec::with_capacity(constants.len());
    for (k, &i) in constants.iter().enumerate() {
        let (was, name) = (g.values[i].source, format!("{}.f32", g.values[i].name));
        let wide = ValueId(out.values.len() as u32);
        out.values.push(Value {
            name: name.clone(),
            source: was,
            ..g.values[i].clone()
        });
        out.values[i].source = ValueSource::Node(NodeId(k as u32), 0);
        let mut b = expr::ExprBuilder::new();
        let x = b.input(0, DType::F32);
        let y = b.cast(x, DType::F16);
        rounded.push(Node {
            op: Op::Map(b.finish(&[y])),
            inputs: vec![wide],
            outputs: vec![ValueId(i as u32)],
            origins: vec![Origin {
                name,
                op_type: "Cast".into(),
            }],
        });
    }
    rounded.append(&mut out.nodes);
    out.nodes = rounded;
    out
}

/// `model` with f16 in place of f32; `None` where it has no f32.
///
/// # Errors
/// An operator that has no form for f16.
pub(crate) fn halved(model: &Model) -> Result<Option<Model>, Error> {
    let old = model.graph()?;
    if old.values.iter().all(|v| v.dtype != DType::F32) {
        return Ok(None);
    }
    let new = graph(old);
    new.verify()?;
    let name = model.program().name.clone();
    Model::from_graph(&name, &new, model.options()).map(Some)
}
