//! Products of one row, and attention of one query: matrix instructions want rows of what they make, and threads of
//! scores, which an axis of one position gives.
use super::product::Product;
use super::renumber::with_last_first;
use kernel::{Axis, AxisId, Kernel, OperandId, Stmt, Term, TileId};
use layout::Dim;

/// What the axes are called.
const QUERY: &str = "query";
const ROW: &str = "row";

/// `kernel` with a query axis of one position, which the queries, factor `scores.a`, and all that is computed have;
/// `None` where it has one already, or another form.
pub(super) fn of_attention(kernel: &Kernel, scores: &Product, values: &Product) -> Option<Kernel> {
    let attends = values.over.iter().all(|a| scores.columns.contains(a));
    match attends && scores.rows.is_empty() {
        true => with_axis(kernel, scores.a, QUERY),
        false => None,
    }
}

/// `kernel`, a product of a vector by the rows or columns of a matrix, with an axis of one position for the vector;
/// `None` where it has one already, or another form.
pub(super) fn of_product(kernel: &Kernel, p: &Product) -> Option<Kernel> {
    let vector = match (p.rows.is_empty(), p.columns.is_empty()) {
        (true, false) => p.a,
        (false, true) => p.b,
        _ => return None,
    };
    match p.batch.is_empty() {
        true => with_axis(kernel, vector, ROW),
        false => None,
    }
}

/// `kernel` with the axis that `like`, a candidate's kernel made of it, has for a product of one row.
pub(super) fn as_in(kernel: &Kernel, like: &Kernel) -> Option<Kernel> {
    let has = like.axes.iter().any(|a| a.name == ROW);
    let p = Product::of(kernel).filter(|_| has)?;
    of_product(kernel, &p)
}

fn with_axis(kernel: &Kernel, factor: TileId, name: &str) -> Option<Kernel> {
    if kernel.axes.iter().any(|a| a.name == name) {
        return None;
    }
    let of = |s: &Stmt| match s {
        Stmt::Load { dst, operand } => Some((*dst, *operand)),
        _ => None,
    };
    let loads: Vec<(TileId, OperandId)> = kernel.body.iter().filter_map(of).collect();
    // An operand is loaded with the axis or without it, and so is a tile.
    let vector = loads.iter().find(|l| l.0 == factor)?.1;
    let again = loads.iter().filter(|l| l.1 == vector).count() > 1;
    let stored =
        |s: &Stmt| matches!(s, Stmt::Store { src, .. } if loads.iter().any(|l| l.0 == *src));
    if again || kernel.body.iter().any(stored) {
        return None;
    }
    let axis = kernel.axes.len() as AxisId;
    let mut out = kernel.clone();
    out.axes.push(Axis {
        name: name.into(),
        extent: Dim::ONE,
    });
    // A tile by the operand that it is loaded from.
    let mut add = |t: TileId, o: OperandId| {
        let tile = &mut out.tiles[t as usize];
        if !tile.axes.contains(&axis) {
            tile.axes.push(axis);
        }
        let operand = &mut out.operands[o as usize];
        let stride = operand.elements.clone();
        operand
            .access
            .terms
            .push(Term::flat(axis, Dim::ONE, stride));
    };
    for s in &kernel.body {
        match s {
            Stmt::Load { dst, operand } if *dst == factor => add(*dst, *operand),
            Stmt::Store { operand, src } => add(*src, *operand),
            Stmt::Relabel { .. } => return None,
            _ => {}
        }
    }
    // All that is made of the vector, and the states that it changes.
    let mut made = vec![factor];
    let mut grown = true;
    while std::mem::take(&mut grown) {
        for s in &kernel.body {
            let writes = s.writes();
            let load = matches!(s, Stmt::Load { .. });
            if load || !s.reads().iter().chain(&*writes).any(|t| made.contains(t)) {
                continue;
            }
            let new = writes.iter().filter(|t| !made.contains(t));
            let new: Vec<TileId> = new.copied().collect();
            grown |= !new.is_empty();
            made.extend(new);
        }
    }
    for t in made {
        let axes = &mut out.tiles[t as usize].axes;
        if !axes.contains(&axis) {
            axes.push(axis);
        }
    }
    Some(with_last_first(out))
}
