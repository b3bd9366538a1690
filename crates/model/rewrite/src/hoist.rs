//! Parts of element-wise programs that read constants only become nodes of their own, which run once
//! when a model is loaded: products of scales, converted biases.
use crate::edit::Edit;
use crate::maps::{compact, slots};
use crate::pattern::constants;
use crate::{Error, Fuel, Rewritten};
use expr::{Expr, ExprBuilder, Inst, Ref};
use graph::{Graph, NodeId, Op, ValueId};
use layout::{DType, Dim};

/// Elements up to which a part may be kept, however small what it is made of.
const SMALL: i64 = 1 << 16;

/// Values beyond which a program does not come to read more for what it computes less.
const MANY: usize = 12;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let constant = constants(&graph);
    let mut e = Edit::new("hoist", graph, fuel);
    for n in e.live() {
        if e.is_dead(n) || !matches!(e.node(n).op, Op::Map(_)) {
            continue;
        }
        if !hoist(&mut e, n, &constant)? {
            break;
        }
    }
    Ok(e.finish())
}

/// What an instruction depends on.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    Nothing,
    Constants,
    More,
}

fn reads(p: &Expr, is_const: &dyn Fn(u32) -> bool) -> Vec<Reads> {
    let mut out: Vec<Reads> = Vec::with_capacity(p.insts.len());
    for i in &p.insts {
        let r = match i {
            Inst::Input { slot, .. } if is_const(*slot) => Reads::Constants,
            Inst::Float { .. } | Inst::Int { .. } => Reads::Nothing,
            Inst::Input { .. } | Inst::Index { .. } | Inst::Dim(_) => Reads::More,
            i => i
                .args()
                .fold(Reads::Nothing, |all, a| match (all, out[a as usize]) {
                    (Reads::More, _) | (_, Reads::More) => Reads::More,
                    (Reads::Nothing, r) | (r, Reads::Nothing) => r,
                    _ => Reads::Constants,
                }),
        };
        out.push(r);
    }
    out
}

/// False when the fuel is spent.
fn hoist(e: &mut Edit, n: NodeId, constant: &[bool]) -> Result<bool, Error> {
    let Op::Map(p) = e.node(n).op.clone() else {
        return Ok(true);
    };
    let (inputs, origins) = (e.node(n).inputs.clone(), e.node(n).origins.clone());
    let is_const = |v: &ValueId| constant.get(v.0 as usize).is_some_and(|c| *c);
    if inputs.iter().all(is_const) {
        return Ok(true);
    }
    let of = reads(&p, &|slot| inputs.get(slot as usize).is_some_and(is_const));
    let wanted = |r: usize| {
        let used = p.outputs.contains(&(r as Ref))
            || (0..p.insts.len())
                .any(|i| of[i] == Reads::More && p.insts[i].args().any(|a| a as usize == r));
        of[r] == Reads::Constants && p.insts[r].args().next().is_some() && used
    };
    let mut parts: Vec<(usize, DType, Expr, Vec<ValueId>)> = Vec::new();
    for r in (0..p.insts.len()).filter(|&r| wanted(r)) {
        let part = Expr {
            insts: p.insts[..=r].to_vec(),
            outputs: vec![r as Ref],
        };
        let (part, used) = compact(&part.simplified(), &inputs);
        let Ok(types) = e.infer(&Op::Map(part.clone()), &used) else {
            continue;
        };
        let size = |s: &[Dim]| Dim::product(s).known().unwrap_or(i64::MAX);
        let bits = |d: DType, s: &[Dim]| size(s).saturating_mul(i64::from(d.bits()));
        let (d, shape) = &types[0];
        let own: i64 = used
            .iter()
            .map(|&v| bits(e.value(v).dtype, &e.value(v).shape))
            .fold(0, i64::saturating_add);
        if size(shape) <= SMALL || bits(*d, shape) <= own {
            parts.push((r, *d, part, used));
        }
    }
    let mut rest = p.clone();
    for (at, (r, d, ..)) in parts.iter().enumerate() {
        let slot = (inputs.len() + at) as u32;
        rest.insts[*r] = Inst::Input { slot, dtype: *d };
    }
    let (before, after) = (slots(&p).len(), slots(&rest.clone().simplified()).len());
    if parts.is_empty() || (after > before && after > MANY) {
        return Ok(true);
    }
    // The result's shape must still follow from what is read.
    if !e.may(
        e.title(n),
        "what it computes from constants is computed once",
    ) {
        return Ok(false);
    }
    let mut all = inputs.clone();
    for (_, _, part, used) in parts {
        let name = e.title(n);
        all.push(e.add(Op::Map(part), &used, &format!("{name}.constant"), &origins)?);
    }
    let mut fresh = ExprBuilder::new();
    let args: Vec<Ref> = (0..all.len() as u32)
        .map(|i| fresh.input(i, e.value(all[i as usize]).dtype))
        .collect();
    let outs = fresh.inline(&rest, &args, None);
    let (program, used) = compact(&fresh.finish(&outs).simplified(), &all);
    e.set(n, Op::Map(program), &used);
    Ok(true)
}
