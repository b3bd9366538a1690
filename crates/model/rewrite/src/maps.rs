//! Element-wise programs on their own: scalars inlined, equal arguments shared, programs
//! simplified, identities removed. Programs of different nodes are never joined here.
use crate::edit::Edit;
use crate::pattern::scalar_constant;
use crate::{Error, Fuel, Rewritten};
use expr::{Expr, ExprBuilder, Inst};
use graph::{Graph, NodeId, Op, ValueId, View};
use layout::Arrange;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("maps", graph, fuel);
    for n in e.live() {
        if e.is_dead(n) || !matches!(e.node(n).op, Op::Map(_)) {
            continue;
        }
        if !simplify(&mut e, n)? || !identity(&mut e, n)? {
            break;
        }
    }
    Ok(e.finish())
}

/// False when the fuel is spent.
fn simplify(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    let Op::Map(old) = e.node(n).op.clone() else {
        return Ok(true);
    };
    let inputs = e.node(n).inputs.clone();
    let out_shape = e.value(e.node(n).outputs[0]).shape.clone();
    let attempt = |inline: bool| {
        let mut b = ExprBuilder::new();
        let mut kept: Vec<ValueId> = Vec::new();
        let mut args = Vec::new();
        for &v in &inputs {
            if inline && let Some(c) = scalar_constant(e, v) {
                args.push(b.push(c));
                continue;
            }
            if inline && let Some(p) = uniform(e, v) {
                args.push(b.inline(p, &[], None)[0]);
                continue;
            }
            let slot = kept.iter().position(|k| *k == v).unwrap_or(kept.len());
            if slot == kept.len() {
                kept.push(v);
            }
            args.push(b.input(slot as u32, e.value(v).dtype));
        }
        let outs = b.inline(&old, &args, None);
        let program = b.finish(&outs).simplified();
        let (program, used) = compact(&program, &kept);
        // What is left must still give the shape; a map left without inputs is a fill.
        let op = Op::Map(program.clone());
        let fits = used.is_empty() || e.infer(&op, &used).is_ok_and(|t| t[0].1 == out_shape);
        fits.then_some((program, used))
    };
    let Some((program, used)) = attempt(true).or_else(|| attempt(false)) else {
        return Ok(true);
    };
    if program == old && used == inputs {
        return Ok(true);
    }
    if !e.may(e.title(n), "a simpler program") {
        return Ok(false);
    }
    e.set(n, Op::Map(program), &used);
    Ok(true)
}

/// The program of a fill that has one value everywhere.
fn uniform<'a>(e: &'a Edit, v: ValueId) -> Option<&'a Expr> {
    let node = e.node(e.writer(v)?);
    match &node.op {
        Op::Map(p) if node.inputs.is_empty() && p.outputs.len() == 1 => {
            let varies = p.insts.iter().any(|i| matches!(i, Inst::Index { .. }));
            (!varies).then_some(p)
        }
        _ => None,
    }
}

/// The arguments that `e` reads, rising.
pub(crate) fn slots(e: &Expr) -> Vec<u32> {
    let slot = |i: &Inst| match i {
        Inst::Input { slot, .. } => Some(*slot),
        _ => None,
    };
    let mut used: Vec<u32> = e.insts.iter().filter_map(slot).collect();
    used.arrange();
    used.dedup();
    used
}

/// `e` with its arguments numbered without gaps, and the values for them.
pub(crate) fn compact(e: &Expr, args: &[ValueId]) -> (Expr, Vec<ValueId>) {
    let used = slots(e);
    let mut e = e.clone();
    for i in &mut e.insts {
        if let Inst::Input { slot, .. } = i {
            *slot = used.partition_point(|u| u < slot) as u32;
        }
    }
    (e, used.iter().map(|&u| args[u as usize]).collect())
}

fn identity(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    let node = e.node(n);
    let (Op::Map(p), [x], [out]) = (&node.op, node.inputs.as_slice(), node.outputs.as_slice())
    else {
        return Ok(true);
    };
    let (x, out) = (*x, *out);
    if *p != Expr::identity(e.value(x).dtype) {
        return Ok(true);
    }
    let shape = e.value(out).shape.clone();
    if e.value(x).shape == shape && e.can_replace(out, x) {
        if !e.may(e.title(n), "it returns its argument unchanged") {
            return Ok(false);
        }
        e.replace(out, x);
    } else if e.value(x).shape != shape {
        if !e.may(e.title(n), "it only broadcasts: now a view") {
            return Ok(false);
        }
        e.set(n, Op::View(View::Expand(shape)), &[x]);
    }
    Ok(true)
}
