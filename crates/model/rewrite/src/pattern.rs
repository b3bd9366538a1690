//! Queries that several passes share: constants, single readers.
use crate::edit::Edit;
use expr::{Binary, Inst, Monoid};
use graph::{Graph, Op, ValueId, ValueSource};
use layout::Dim;
use std::ops::Range;

/// The instruction for a constant of one element.
pub(crate) fn scalar_constant(e: &Edit, v: ValueId) -> Option<Inst> {
    let value = e.value(v);
    let ValueSource::Weight(id) = value.source else {
        return None;
    };
    let w = e.graph().weights.get(id)?;
    if w.shape.iter().any(|d| *d != 1) {
        return None;
    }
    let t = e.graph().weights.tensor(id)?;
    Some(match w.dtype.is_float() {
        true => Inst::Float {
            bits: t.get_f64(0).to_bits(),
            dtype: w.dtype,
        },
        false => Inst::Int {
            value: t.get_i64(0),
            dtype: w.dtype,
        },
    })
}

/// For every value whether it is computed from constants alone.
pub(crate) fn constants(g: &Graph) -> Vec<bool> {
    let mut c: Vec<bool> = g
        .values
        .iter()
        .map(|v| matches!(v.source, ValueSource::Weight(_)))
        .collect();
    for n in &g.nodes {
        let pure = match &n.op {
            Op::Map(e) => !e
                .insts
                .iter()
                .any(|i| matches!(i, Inst::Dim(d) if d.known().is_none())),
            Op::Kernel(_) | Op::Host { .. } | Op::If { .. } | Op::Loop { .. } => false,
            _ => true,
        };
        let known = n
            .outputs
            .iter()
            .all(|o| g.value(*o).shape.iter().all(|d| d.known().is_some()));
        if pure && known && n.inputs.iter().all(|i| c[i.0 as usize]) {
            for o in &n.outputs {
                c[o.0 as usize] = true;
            }
        }
    }
    c
}

/// True when `m` folds its lifted elements with `f` and gives the state back, perhaps in another
/// type.
pub(crate) fn folds_with(m: &Monoid, f: Binary) -> bool {
    let is_input =
        |i: Option<&Inst>, n: u32| matches!(i, Some(Inst::Input { slot, .. }) if *slot == n);
    let c = &m.combine;
    let folds = match c.outputs.as_slice() {
        [o] => match c.insts.get(*o as usize) {
            Some(Inst::Binary(g, x, y)) if *g == f => {
                let (x, y) = (c.insts.get(*x as usize), c.insts.get(*y as usize));
                (is_input(x, 0) && is_input(y, 1)) || (is_input(x, 1) && is_input(y, 0))
            }
            _ => false,
        },
        _ => false,
    };
    let plain = m.finish.outputs.len() == 1
        && m.finish
            .insts
            .iter()
            .all(|i| matches!(i, Inst::Input { .. } | Inst::Cast(..)));
    folds && plain
}

/// For every dimension of `coarse` the dimensions of `fine` that it joins; `None` when the shapes
/// are not so related, or cannot be told to be.
pub(crate) fn groups(fine: &[Dim], coarse: &[Dim]) -> Option<Vec<Range<usize>>> {
    let mut out = Vec::new();
    let mut at = 0;
    for (i, c) in coarse.iter().enumerate() {
        let start = at;
        // The last group takes the rest, so that trailing ones have a place.
        if i + 1 == coarse.len() {
            at = fine.len();
        } else {
            let mut p = Dim::ONE;
            while p != *c || (at == start && at < fine.len()) {
                p = p * fine.get(at)?.clone();
                at += 1;
                if at - start > 16 {
                    return None;
                }
            }
        }
        if Dim::product(&fine[start..at]) != *c {
            return None;
        }
        out.push(start..at);
    }
    (at == fine.len()).then_some(out)
}
