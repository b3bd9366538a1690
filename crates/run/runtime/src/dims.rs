//! Values of symbols, and shapes that follow from them.

use crate::RunError;
use layout::{Dim, Sym};
use plan::{Program, SymbolOrigin, ValueIx};
use std::collections::BTreeMap;

/// Symbols that each value of a program gives once it is there, with their dimensions.
pub(crate) type Late = BTreeMap<ValueIx, Vec<(Sym, u32)>>;

/// Sizes by their names.
pub(crate) type Env = BTreeMap<Sym, i64>;

/// Values of a block's symbols.
pub(crate) fn values(symbols: &[Sym], env: &Env) -> Vec<i64> {
    symbols
        .iter()
        .map(|s| lookup(env, s).unwrap_or(0))
        .collect()
}

pub(crate) fn lookup(env: &Env, name: &str) -> Option<i64> {
    env.get(name).copied()
}

/// Symbols of `program` that inputs of these shapes determine, added to `env`.
pub(crate) fn bind_inputs(program: &Program, shapes: &[&[usize]], env: &mut Env) {
    for s in &program.symbols {
        if let SymbolOrigin::Input { input, axis } = s.origin
            && lookup(env, &s.name).is_none()
            && let Some(&n) = shapes
                .get(input as usize)
                .and_then(|sh| sh.get(axis as usize))
        {
            env.insert(s.name.clone(), n as i64);
        }
    }
}

pub(crate) fn shape_of(dims: &[Dim], env: &Env, name: &str) -> Result<Vec<usize>, RunError> {
    dims.iter()
        .map(|d| {
            let v = d.eval(&|s| lookup(env, s));
            v.and_then(|v| usize::try_from(v).ok())
                .ok_or_else(|| RunError::Control {
                    node: name.into(),
                    why: format!("its dimension {d} has no valid size for these inputs"),
                })
        })
        .collect()
}

/// Whether `shapes` are those of `key`.
pub(crate) fn same_shapes<'a>(key: &[usize], shapes: impl Iterator<Item = &'a [usize]>) -> bool {
    let mut rest = key;
    for s in shapes {
        let Some((&rank, tail)) = rest.split_first() else {
            return false;
        };
        if rank != s.len() || tail.len() < rank || tail[..rank] != *s {
            return false;
        }
        rest = &tail[rank..];
    }
    rest.is_empty()
}

/// The shapes that `key` is of.
pub(crate) fn shapes_of(key: &[usize]) -> Vec<&[usize]> {
    let mut shapes = Vec::new();
    let mut rest = key;
    while let Some((&rank, tail)) = rest.split_first() {
        let (shape, behind) = tail.split_at(rank.min(tail.len()));
        shapes.push(shape);
        rest = behind;
    }
    shapes
}
