//! Transposes and regroupings around contractions become part of their labels.
use crate::edit::Edit;
use crate::pattern::groups;
use crate::{Error, Fuel, Rewritten};
use graph::{ContractSpec, Graph, NodeId, Op, ValueId, View};
use std::ops::Range;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("labels", graph, fuel);
    for n in e.live() {
        if e.is_dead(n) || !matches!(e.node(n).op, Op::Contract(_)) {
            continue;
        }
        if !operands(&mut e, n)? || !result(&mut e, n)? || !regroup(&mut e, n)? {
            break;
        }
    }
    Ok(e.finish())
}

fn spec(e: &Edit, n: NodeId) -> ContractSpec {
    match &e.node(n).op {
        Op::Contract(s) => s.clone(),
        _ => ContractSpec {
            a: vec![],
            b: vec![],
            out: vec![],
        },
    }
}

/// Permuted operands. False when the fuel is spent.
fn operands(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    for side in 0..2 {
        let mut inputs = e.node(n).inputs.clone();
        let Some((Op::View(View::Permute(perm)), x)) = e.unary(inputs[side]) else {
            continue;
        };
        let mut s = spec(e, n);
        let labels = if side == 0 { &mut s.a } else { &mut s.b };
        let mut moved = labels.clone();
        for (i, &p) in perm.iter().enumerate() {
            moved[p] = labels[i];
        }
        *labels = moved;
        if !e.may(
            e.title(n),
            "the product reads the operand transposed, so the transpose is removed",
        ) {
            return Ok(false);
        }
        inputs[side] = x;
        e.set(n, Op::Contract(s), &inputs);
    }
    Ok(true)
}

/// A result that is only read permuted.
fn result(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    let out = e.node(n).outputs[0];
    let Some(reader) = e.only_reader(out) else {
        return Ok(true);
    };
    let Op::View(View::Permute(perm)) = e.node(reader).op.clone() else {
        return Ok(true);
    };
    if !e.may(
        e.title(n),
        "the product writes the result transposed, so the transpose is removed",
    ) {
        return Ok(false);
    }
    let mut s = spec(e, n);
    s.out = perm.iter().map(|&p| s.out[p]).collect();
    let (inputs, origins) = (e.node(n).inputs.clone(), e.node(n).origins.clone());
    e.set(reader, Op::Contract(s), &inputs);
    e.credit(reader, &origins);
    Ok(true)
}

/// `reshape(contract(reshape(x), w))` where both reshapes treat one operand's dimensions alike:
/// the dimensions that were joined become labels of their own.
fn regroup(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    let s = spec(e, n);
    let out = e.node(n).outputs[0];
    let Some(reader) = e.only_reader(out) else {
        return Ok(true);
    };
    let Op::View(View::Reshape(fine_out)) = e.node(reader).op.clone() else {
        return Ok(true);
    };
    let Some(out_groups) = groups(&fine_out, &e.value(out).shape) else {
        return Ok(true);
    };
    for side in 0..2 {
        let inputs = e.node(n).inputs.clone();
        let Some((Op::View(View::Reshape(_)), x)) = e.unary(inputs[side]) else {
            continue;
        };
        let (mine, other) = match side {
            0 => (&s.a, &s.b),
            _ => (&s.b, &s.a),
        };
        let Some(split) = split_labels(e, &s, mine, other, x, inputs[side], &fine_out, &out_groups)
        else {
            continue;
        };
        let (labels, out_labels) = split;
        if !e.may(
            e.title(n),
            "dimensions joined for a matrix product are labels of their own",
        ) {
            return Ok(false);
        }
        let mut inputs = inputs.clone();
        inputs[side] = x;
        let (a, b) = match side {
            0 => (labels, s.b.clone()),
            _ => (s.a.clone(), labels),
        };
        let origins = e.node(n).origins.clone();
        let op = Op::Contract(ContractSpec {
            a,
            b,
            out: out_labels,
        });
        e.set(reader, op, &inputs);
        e.credit(reader, &origins);
        break;
    }
    Ok(true)
}

#[allow(clippy::too_many_arguments)] // One question about one place.
fn split_labels(
    e: &Edit,
    s: &ContractSpec,
    mine: &[u8],
    other: &[u8],
    x: ValueId,
    reshaped: ValueId,
    fine_out: &[layout::Dim],
    out_groups: &[Range<usize>],
) -> Option<(Vec<u8>, Vec<u8>)> {
    let fine_in = &e.value(x).shape;
    let in_groups = groups(fine_in, &e.value(reshaped).shape)?;
    let mut free = (b'a'..=b'z')
        .chain(b'A'..=b'Z')
        .chain(0..=255)
        .filter(|l| !s.a.contains(l) && !s.b.contains(l));
    let mut labels = Vec::new();
    let mut out_labels: Vec<Vec<u8>> = s.out.iter().map(|l| vec![*l]).collect();
    for (l, g) in mine.iter().zip(&in_groups) {
        let at = s.out.iter().position(|o| o == l);
        let og = at.map(|at| out_groups[at].clone());
        if g.len() == 1 && og.as_ref().is_none_or(|og| og.len() == 1) {
            labels.push(*l);
            continue;
        }
        // Only a label of this operand alone can be split without touching the other one.
        let og = og?;
        if other.contains(l) || fine_in[g.clone()] != fine_out[og] {
            return None;
        }
        let fresh: Vec<u8> = g.clone().map(|_| free.next()).collect::<Option<_>>()?;
        labels.extend(&fresh);
        out_labels[at?] = fresh;
    }
    let out_labels: Vec<u8> = out_labels.concat();
    (out_labels.len() == fine_out.len()).then_some((labels, out_labels))
}
