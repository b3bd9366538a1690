//! Removes nodes whose results are not used.
use crate::edit::{Edit, of_bodies, refuses, symbols_of};
use crate::{Error, Fuel, Rewritten};
use graph::{Graph, SymbolSource, ValueId, ValueSource};
use layout::Inserted;
use layout::Sym;
use std::collections::{BTreeMap, BTreeSet};

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
        .inserted();
    let dead: Vec<_> = e
        .live()
        .into_iter()
        .rev()
        .filter(|n| !live[n.0 as usize])
        .collect();
    let mut dropped = false;
    for n in dead {
        if e.is_dead(n) {
            continue;
        }
        if !e.may(e.title(n), "no one reads its results") {
            return Ok(e.finish());
        }
        // A dead value's late symbols are used by dead values only.
        if !std::mem::replace(&mut dropped, true) {
            e.drop_symbols(&unused);
        }
        e.bury(n);
    }
    e.drop_symbols(&unused);
    Ok(e.finish())
}

/// Which nodes are needed, and which symbols; a body's may be the outer graph's, and counting its own too only
/// keeps more.
fn needed(g: &Graph) -> (Vec<bool>, BTreeSet<Sym>) {
    let mut live = vec![false; g.nodes.len()];
    let mut symbols = BTreeSet::new();
    let mut seen = vec![false; g.values.len()];
    let mut work: Vec<ValueId> = g.outputs.iter().chain(&g.inputs).copied().collect();
    // The rest of the model is made for one branch: that the other is taken must come out.
    let refusing = g.nodes.iter().filter(|n| refuses(&n.op));
    work.extend(refusing.filter_map(|n| n.outputs.first()));
    let late = g.symbols.iter().filter_map(|s| match s.source {
        SymbolSource::Late { value, .. } => Some((&s.name, value)),
        SymbolSource::Input { .. } => None,
    });
    let late: BTreeMap<&Sym, ValueId> = late.inserted();
    // A shape may rest on what is assumed of a size and not show it: ten elements are left of the last ten of any number
    // that is taken to be ten or more.
    let bodies = g.nodes.iter().flat_map(|n| of_bodies(g, &n.op));
    for a in g.assumptions.iter().cloned().chain(bodies) {
        let used = symbols_of(&a);
        work.extend(used.iter().filter_map(|s| late.get(s)));
        symbols.extend(used);
    }
    while let Some(v) = work.pop() {
        if std::mem::replace(&mut seen[v.0 as usize], true) {
            continue;
        }
        let value = g.value(v);
        let mut used = BTreeSet::new();
        for d in value.shape.iter().chain(value.ints.iter().flatten()) {
            d.symbols(&mut used);
        }
        if let ValueSource::Node(n, _) = value.source
            && !std::mem::replace(&mut live[n.0 as usize], true)
        {
            let node = g.node(n);
            node.op.for_each_dim(&mut |d| d.symbols(&mut used));
            work.extend(node.inputs.iter().chain(&node.outputs));
        }
        for s in used {
            work.extend(late.get(&s).filter(|_| !symbols.contains(&s)));
            symbols.insert(s);
        }
    }
    (live, symbols)
}
