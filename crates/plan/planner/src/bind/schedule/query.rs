//! Attention of one query: matrix instructions and threads want rows of scores, which an axis of one position gives.
use super::product::Product;
use super::renumber::with_last_first;
use kernel::{Axis, AxisId, Kernel, OperandId, Stmt, Term, TileId};
use layout::Dim;

/// `kernel` with a query axis of one position, which the queries, factor `scores.a`, and all that is computed have;
/// `None` where it has one already, or another form.
pub(super) fn with_axis(kernel: &Kernel, scores: &Product, values: &Product) -> Option<Kernel> {
    let attends = values.over.iter().all(|a| scores.columns.contains(a));
    if !attends || !scores.rows.is_empty() || kernel.axes.iter().any(|a| a.name == NAME) {
        return None;
    }
    let of = |s: &Stmt| match s {
        Stmt::Load { dst, operand } => Some((*dst, *operand)),
        _ => None,
    };
    let loads: Vec<(TileId, OperandId)> = kernel.body.iter().filter_map(of).collect();
    // An operand is loaded with the axis or without it, and so is a tile.
    let of_queries = loads.iter().find(|l| l.0 == scores.a)?.1;
    let again = loads.iter().filter(|l| l.1 == of_queries).count() > 1;
    let stored =
        |s: &Stmt| matches!(s, Stmt::Store { src, .. } if loads.iter().any(|l| l.0 == *src));
    if again || kernel.body.iter().any(stored) {
        return None;
    }
    let query = kernel.axes.len() as AxisId;
    let mut out = kernel.clone();
    out.axes.push(Axis {
        name: NAME.into(),
        extent: Dim::ONE,
    });
    // A tile by the operand that it is loaded from.
    let mut add = |t: TileId, o: OperandId| {
        let tile = &mut out.tiles[t as usize];
        if !tile.axes.contains(&query) {
            tile.axes.push(query);
        }
        let operand = &mut out.operands[o as usize];
        let stride = operand.elements.clone();
        operand
            .access
            .terms
            .push(Term::flat(query, Dim::ONE, stride));
    };
    for s in &kernel.body {
        match s {
            Stmt::Load { dst, operand } if *dst == scores.a => add(*dst, *operand),
            Stmt::Store { operand, src } => add(*src, *operand),
            Stmt::Relabel { .. } => return None,
            _ => {}
        }
    }
    for s in kernel
        .body
        .iter()
        .filter(|s| !matches!(s, Stmt::Load { .. }))
    {
        for t in s.writes() {
            let axes = &mut out.tiles[t as usize].axes;
            if !axes.contains(&query) {
                axes.push(query);
            }
        }
    }
    Some(with_last_first(out))
}

/// What the axis is called.
const NAME: &str = "query";
