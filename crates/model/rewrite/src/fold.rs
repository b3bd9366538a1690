//! A constant scale per channel after a convolution or matrix product goes into the weight
//! (batch normalization), and its shift remains as a bias. The new weight is computed by nodes of
//! constants, which run once when a model is loaded.
use crate::affine::affine;
use crate::edit::Edit;
use crate::pattern::constants;
use crate::{Error, Fuel, Rewritten};
use expr::{Expr, ExprBuilder};
use graph::{Graph, NodeId, Op, Origin, ValueId, View};
use layout::Dim;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let constant = constants(&graph);
    let mut e = Edit::new("fold", graph, fuel);
    for n in e.live() {
        if e.is_dead(n) || !matches!(e.node(n).op, Op::Conv(_) | Op::Contract(_)) {
            continue;
        }
        if !fold(&mut e, n, &constant)? {
            break;
        }
    }
    Ok(e.finish())
}

/// False when the fuel is spent.
fn fold(e: &mut Edit, n: NodeId, constant: &[bool]) -> Result<bool, Error> {
    let is_const = |v: ValueId| constant.get(v.0 as usize).is_some_and(|c| *c);
    let out = e.node(n).outputs[0];
    let Some(reader) = e.only_reader(out) else {
        return Ok(true);
    };
    let Op::Map(program) = e.node(reader).op.clone() else {
        return Ok(true);
    };
    let args = e.node(reader).inputs.clone();
    let shape = e.value(out).shape.clone();
    let dtype = e.value(out).dtype;
    let same_shape =
        e.node(reader).outputs.len() == 1 && e.value(e.node(reader).outputs[0]).shape == shape;
    let slots: Vec<usize> = (0..args.len()).filter(|i| args[*i] == out).collect();
    let ([slot], true) = (slots.as_slice(), same_shape) else {
        return Ok(true);
    };
    let Some(parts) = affine(&program, *slot as u32, dtype) else {
        return Ok(true);
    };
    let Some(scale) = parts.scale else {
        return Ok(true);
    };
    let others: Vec<ValueId> = args.iter().copied().filter(|v| *v != out).collect();
    if !others.iter().all(|v| is_const(*v)) {
        e.why_not(e.title(reader), "its scale or shift is no constant");
        return Ok(true);
    }
    let along = changes_along(e, &others, shape.len());
    let inputs = e.node(n).inputs.clone();
    let Some((side, dim)) = weight_dim(&e.node(n).op, &inputs, &along, &is_const) else {
        return Ok(true);
    };
    let w = inputs[side];
    if e.value(w).dtype != dtype || e.value(inputs[1 - side]).dtype != dtype {
        return Ok(true);
    }
    if !e.may(e.title(reader), "its scale is folded into the weight") {
        return Ok(false);
    }
    let origins = e.node(reader).origins.clone();
    let name = e.value(w).name.clone();
    let scaled = scaled_weight(e, w, dim, (&scale, &args), &origins)?;
    let bias = match &parts.shift {
        Some(shift) => Some(bias(e, shift, &args, &name, reader)?),
        None => None,
    };
    let mut b = ExprBuilder::new();
    let x = b.input(0, dtype);
    let (y, operands) = match &bias {
        None => (x, vec![out]),
        Some(Bias::Value(v)) => {
            let t = b.input(1, dtype);
            (b.add(x, t), vec![out, *v])
        }
        Some(Bias::Program(p)) => {
            let t = b.inline(p, &[], None)[0];
            (b.add(x, t), vec![out])
        }
    };
    e.set(reader, Op::Map(b.finish(&[y])), &operands);
    let mut inputs = inputs;
    inputs[side] = scaled;
    let op = e.node(n).op.clone();
    e.set(n, op, &inputs);
    e.credit(n, &origins);
    Ok(true)
}

/// The dimensions of a result of this rank along which one of `values` changes.
fn changes_along(e: &Edit, values: &[ValueId], rank: usize) -> Vec<usize> {
    let mut along: Vec<usize> = Vec::new();
    for v in values {
        let s = &e.value(*v).shape;
        for (i, d) in s.iter().enumerate() {
            let at = i + rank - s.len().min(rank);
            if !d.is_one() && !along.contains(&at) {
                along.push(at);
            }
        }
    }
    along
}

/// The input that is a constant weight, and its dimension for what changes along `along` of the result, if anything
/// does; `None` where no weight can take such a scale.
fn weight_dim(
    op: &Op,
    inputs: &[ValueId],
    along: &[usize],
    is_const: &dyn Fn(ValueId) -> bool,
) -> Option<(usize, Option<usize>)> {
    match (op, along) {
        (_, [_, _, ..]) => None,
        (Op::Conv(s), at) => {
            let dim = match (at.first(), s.transposed) {
                (None, _) => Some(None),
                (Some(1), false) => Some(Some(0)),
                (Some(1), true) if s.groups == 1 => Some(Some(1)),
                _ => None,
            };
            dim.map(|d| (1, d)).filter(|_| is_const(inputs[1]))
        }
        (Op::Contract(s), at) => {
            let mut sides = [(1, &s.b), (0, &s.a)].into_iter();
            sides.find_map(|(side, labels)| {
                if !is_const(inputs[side]) {
                    return None;
                }
                let Some(&p) = at.first() else {
                    return Some((side, None));
                };
                let d = labels.iter().position(|x| *x == s.out[p])?;
                Some((side, Some(d)))
            })
        }
        _ => None,
    }
}

/// The weight `w` times a scale, whose arguments are laid along the weight's dimension `dim`.
fn scaled_weight(
    e: &mut Edit,
    w: ValueId,
    dim: Option<usize>,
    (scale, args): (&Expr, &[ValueId]),
    origins: &[Origin],
) -> Result<ValueId, Error> {
    let dtype = e.value(w).dtype;
    let name = e.value(w).name.clone();
    let rank = e.value(w).shape.len();
    let (scale, used) = crate::maps::compact(scale, args);
    let mut b = ExprBuilder::new();
    let x = b.input(0, dtype);
    let mut operands = vec![w];
    let mut bound = Vec::new();
    for v in used {
        let own = e.value(v).shape.clone();
        let mut to: Vec<Dim> = own.iter().filter(|d| !d.is_one()).cloned().collect();
        if let (Some(d), false) = (dim, to.is_empty()) {
            to.resize(rank - d, Dim::ONE);
        }
        let v = match to == own {
            true => v,
            false => e.add(
                Op::View(View::Reshape(to)),
                &[v],
                &format!("{name}.scale"),
                origins,
            )?,
        };
        bound.push(b.input(operands.len() as u32, e.value(v).dtype));
        operands.push(v);
    }
    let s = b.inline(&scale, &bound, None)[0];
    let y = b.mul(x, s);
    e.add(
        Op::Map(b.finish(&[y])),
        &operands,
        &format!("{name}.scaled"),
        origins,
    )
}

enum Bias {
    Value(ValueId),
    /// A constant.
    Program(Expr),
}

fn bias(
    e: &mut Edit,
    shift: &Expr,
    args: &[ValueId],
    name: &str,
    reader: NodeId,
) -> Result<Bias, Error> {
    let origins = e.node(reader).origins.clone();
    let (program, used) = crate::maps::compact(shift, args);
    Ok(match used.as_slice() {
        [] => Bias::Program(program),
        [v] if program == Expr::identity(e.value(*v).dtype) => Bias::Value(*v),
        used => Bias::Value(e.add(Op::Map(program), used, &format!("{name}.bias"), &origins)?),
    })
}
