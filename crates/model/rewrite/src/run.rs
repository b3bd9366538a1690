//! The table of passes and the loop that applies them until nothing changes, in the main graph and in all
//! bodies. `planner` calls [`run`] once per model; every pass has a file of its own.
use crate::edit::tidy;
use crate::{
    Change, Error, Fuel, Rewritten, attention, cse, dead, empty, fold, hoist, integer, labels,
    maps, moves, pads, parts, recurrent, resample, shapes, shared, stages, views,
};
use graph::{Graph, Op};
use std::sync::Arc;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Name.
    pub name: &'static str,
    /// The function; it looks at one graph, without its bodies.
    pub run: fn(Graph, &mut Fuel) -> Result<Rewritten, Error>,
    /// Properties that passes before it establish and that it relies on to find its patterns.
    pub needs: &'static [&'static str],
    /// Properties that hold afterwards.
    pub establishes: &'static [&'static str],
}

/// All passes in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "shapes",
        run: shapes::run,
        needs: &[],
        establishes: &["no shape arithmetic"],
    },
    Pass {
        name: "dead",
        run: dead::run,
        needs: &[],
        establishes: &["no dead code"],
    },
    Pass {
        name: "empty",
        run: empty::run,
        needs: &["no shape arithmetic"],
        establishes: &[],
    },
    Pass {
        name: "pads",
        run: pads::run,
        needs: &["no shape arithmetic"],
        establishes: &[],
    },
    Pass {
        name: "resample",
        run: resample::run,
        needs: &["no shape arithmetic"],
        establishes: &[],
    },
    Pass {
        name: "recurrent",
        run: recurrent::run,
        needs: &["no dead code"],
        establishes: &["recurrences apart from their inputs"],
    },
    Pass {
        name: "views",
        run: views::run,
        needs: &["no shape arithmetic"],
        establishes: &["merged views"],
    },
    Pass {
        name: "moves",
        run: moves::run,
        needs: &["merged views", "no dead code"],
        establishes: &[],
    },
    Pass {
        name: "parts",
        run: parts::run,
        needs: &["merged views"],
        establishes: &[],
    },
    Pass {
        name: "maps",
        run: maps::run,
        needs: &[],
        establishes: &["simple maps", "inline scalars"],
    },
    Pass {
        name: "cse",
        run: cse::run,
        needs: &["merged views", "simple maps"],
        establishes: &["no common subexpressions"],
    },
    Pass {
        name: "labels",
        run: labels::run,
        needs: &["merged views"],
        establishes: &["transposes in labels"],
    },
    Pass {
        name: "attention",
        run: attention::run,
        needs: &["inline scalars", "transposes in labels", "no dead code"],
        establishes: &["attention found"],
    },
    Pass {
        name: "integer",
        run: integer::run,
        needs: &["inline scalars", "transposes in labels"],
        establishes: &["integer products"],
    },
    Pass {
        name: "fold",
        run: fold::run,
        needs: &["simple maps", "no dead code"],
        establishes: &["folded scales"],
    },
    Pass {
        name: "shared",
        run: shared::run,
        needs: &["folded scales", "attention found", "no dead code"],
        establishes: &[],
    },
    Pass {
        name: "stages",
        run: stages::run,
        needs: &["simple maps", "merged views"],
        establishes: &[],
    },
    Pass {
        name: "hoist",
        run: hoist::run,
        needs: &["inline scalars", "folded scales"],
        establishes: &["constants computed once"],
    },
];

/// How to run the passes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Single rewrites allowed over all passes; `None`: all.
    pub fuel: Option<usize>,
    /// Verify after every pass in release builds too.
    pub verify: bool,
}

/// Rounds over the table at most; each round but the last changed something.
const MAX_ROUNDS: usize = 16;

/// Applies all passes until nothing changes. Gives the graph and what was done and why; equal
/// graphs give equal results.
pub fn run(graph: &Graph, options: &Options) -> Result<(Graph, Vec<Change>), Error> {
    let verify = options.verify || cfg!(debug_assertions);
    graph.verify().map_err(Error::Input)?;
    let mut fuel = Fuel::new(options.fuel);
    let mut g = tidied(graph.clone());
    let mut changes: Vec<Change> = Vec::new();
    // What each pass found when it ran last, with the state that the graph was in: a pass that
    // meets its own graph again finds the same.
    let mut found: Vec<Option<(State, Vec<Change>)>> = vec![None; PASSES.len()];
    let mut edits = 0;
    for _ in 0..MAX_ROUNDS {
        let before = fuel.used();
        // Only the last round's reasons why not are those of the final graph.
        changes.retain(|c| c.done);
        for (pass, found) in PASSES.iter().zip(&mut found) {
            let state = (edits, fuel.used());
            if let Some((at, known)) = found
                && *at == state
            {
                changes.extend(known.iter().cloned());
                continue;
            }
            let mut new = Vec::new();
            let touched;
            (g, touched) = apply(pass, g, &mut fuel, &mut new)?;
            edits += usize::from(touched);
            changes.extend(new.iter().cloned());
            *found = Some((state, new));
            if verify && touched {
                g.verify().map_err(|source| Error::Pass {
                    pass: pass.name,
                    rewrites: fuel.used(),
                    source,
                })?;
            }
        }
        if fuel.used() == before {
            break;
        }
    }
    Ok((g, changes))
}

/// Edits done and fuel used: no two graphs of one run have the same.
type State = (usize, usize);

/// The bodies of `op`.
fn bodies(op: &mut Op) -> Vec<&mut Box<Graph>> {
    match op {
        Op::If {
            then_branch,
            else_branch,
        } => vec![then_branch, else_branch],
        Op::Loop { body, .. } => vec![body],
        _ => vec![],
    }
}

/// Takes the graph out of `b` for a moment.
fn taken(b: &mut Graph) -> Graph {
    Graph {
        name: std::mem::take(&mut b.name),
        values: std::mem::take(&mut b.values),
        nodes: std::mem::take(&mut b.nodes),
        inputs: std::mem::take(&mut b.inputs),
        outputs: std::mem::take(&mut b.outputs),
        symbols: std::mem::take(&mut b.symbols),
        assumptions: std::mem::take(&mut b.assumptions),
        weights: std::mem::take(&mut b.weights),
    }
}

/// The graph and its bodies in the order and numbering that passes keep to.
fn tidied(mut g: Graph) -> Graph {
    for node in &mut g.nodes {
        for b in bodies(&mut node.op) {
            **b = tidied(taken(b));
        }
    }
    tidy(g)
}

/// One pass over the graph's bodies, innermost first, and then over itself; gives the graph and
/// whether it is another one.
fn apply(
    pass: &Pass,
    mut g: Graph,
    fuel: &mut Fuel,
    changes: &mut Vec<Change>,
) -> Result<(Graph, bool), Error> {
    let mut weights = g.weights.clone();
    let mut touched = false;
    for node in &mut g.nodes {
        for b in bodies(&mut node.op) {
            // Constants are numbered alike everywhere, so a body continues the common store.
            b.weights = weights;
            let (body, other) = apply(pass, taken(b), fuel, changes)?;
            **b = body;
            touched |= other;
            weights = b.weights.clone();
        }
    }
    g.weights = weights;
    let r = (pass.run)(g, fuel)?;
    changes.extend(r.changes);
    let mut g = r.graph;
    let weights = g.weights.clone();
    share(&mut g, &weights);
    Ok((g, touched || r.touched))
}

fn share(g: &mut Graph, weights: &Arc<tensor::WeightStore>) {
    g.weights = weights.clone();
    for node in &mut g.nodes {
        for b in bodies(&mut node.op) {
            share(b, weights);
        }
    }
}
