//! Nodes whose results nobody needs.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::{Expr, Inst};
use graph::{Graph, Op, SymbolSource, ValueId, ValueSource, View};
use layout::{Dim, Sym};
use std::collections::BTreeSet;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let (live, symbols) = needed(&graph);
    let mut e = Edit::new("dead", graph, fuel);
    // Symbols pin the values they are read from, so unused ones go first.
    let unused: BTreeSet<Sym> = e
        .graph()
        .symbols
        .iter()
        .filter(|s| matches!(s.source, SymbolSource::Late { .. }) && !symbols.contains(&s.name))
        .map(|s| s.name.clone())
        .collect();
    let dead: Vec<_> = e
        .live()
        .into_iter()
        .rev()
        .filter(|n| !live[n.0 as usize])
        .collect();
    for n in dead {
        if e.is_dead(n) {
            continue;
        }
        if !e.may(e.title(n), "no one reads its results") {
            return Ok(e.finish());
        }
        // A dead value's late symbols are used by dead values only.
        e.drop_symbols(&unused);
        e.bury(n);
    }
    e.drop_symbols(&unused);
    Ok(e.finish())
}

/// Which nodes are needed, and which symbols.
fn needed(g: &Graph) -> (Vec<bool>, BTreeSet<Sym>) {
    let mut live = vec![false; g.nodes.len()];
    let mut symbols = BTreeSet::new();
    let mut seen = vec![false; g.values.len()];
    let mut work: Vec<ValueId> = g.outputs.iter().chain(&g.inputs).copied().collect();
    loop {
        while let Some(v) = work.pop() {
            if std::mem::replace(&mut seen[v.0 as usize], true) {
                continue;
            }
            let value = g.value(v);
            for d in value.shape.iter().chain(value.ints.iter().flatten()) {
                d.symbols(&mut symbols);
            }
            if let ValueSource::Node(n, _) = value.source
                && !std::mem::replace(&mut live[n.0 as usize], true)
            {
                let node = g.node(n);
                op_symbols(&node.op, &mut symbols);
                work.extend(node.inputs.iter().chain(&node.outputs));
            }
        }
        for s in &g.symbols {
            if let SymbolSource::Late { value, .. } = &s.source
                && symbols.contains(&s.name)
                && !seen[value.0 as usize]
            {
                work.push(*value);
            }
        }
        if work.is_empty() {
            return (live, symbols);
        }
    }
}

fn op_symbols(op: &Op, out: &mut BTreeSet<Sym>) {
    let mut dims = |d: &[Dim]| d.iter().for_each(|d| d.symbols(out));
    match op {
        Op::View(View::Reshape(s) | View::Expand(s)) => dims(s),
        Op::View(View::Slice {
            starts, extents, ..
        }) => {
            dims(starts);
            dims(extents);
        }
        Op::Pad { before, after, .. } => {
            dims(before);
            dims(after);
        }
        Op::Conv(c) => {
            dims(&c.before);
            dims(&c.after);
        }
        Op::Pool(c) => {
            dims(&c.before);
            dims(&c.after);
        }
        Op::Sort { k, .. } => k.symbols(out),
        Op::Kernel(k) => out.extend(k.symbols.iter().map(|s| Sym::from(s.as_str()))),
        Op::Map(e) => program(e, out),
        Op::Attention(a) => program(&a.score, out),
        Op::Reduce { monoid, .. } | Op::Scan { monoid, .. } => {
            for e in [
                &monoid.identity,
                &monoid.lift,
                &monoid.combine,
                &monoid.finish,
            ] {
                program(e, out);
            }
        }
        Op::If {
            then_branch,
            else_branch,
        } => {
            body(then_branch, out);
            body(else_branch, out);
        }
        Op::Loop { body: b, .. } => body(b, out),
        _ => {}
    }
}

fn program(e: &Expr, out: &mut BTreeSet<Sym>) {
    for i in &e.insts {
        if let Inst::Dim(d) = i {
            d.symbols(out);
        }
    }
}

/// A body's symbols may be the outer graph's; counting its own too only keeps more.
fn body(g: &Graph, out: &mut BTreeSet<Sym>) {
    for v in &g.values {
        for d in v.shape.iter().chain(v.ints.iter().flatten()) {
            d.symbols(out);
        }
    }
    for n in &g.nodes {
        op_symbols(&n.op, out);
    }
}
