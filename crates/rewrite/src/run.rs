use crate::{Error, attention, cse, dead, fold, labels, maps, shapes, views};
use graph::{Graph, Op};
use std::sync::Arc;

/// One decision of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Pass.
    pub pass: &'static str,
    /// Model node or value that it is about.
    pub subject: String,
    /// True when the graph was changed, false for a reason why not.
    pub done: bool,
    /// What was done, or why not.
    pub why: String,
}

/// How many single rewrites may still be done.
#[derive(Clone, Debug)]
pub struct Fuel {
    left: Option<usize>,
    used: usize,
}

impl Fuel {
    /// Fuel for `n` rewrites; `None`: without a limit.
    pub fn new(n: Option<usize>) -> Fuel {
        Fuel { left: n, used: 0 }
    }

    /// Takes one unit; false when none is left.
    pub fn take(&mut self) -> bool {
        match &mut self.left {
            Some(0) => return false,
            Some(n) => *n -= 1,
            None => {}
        }
        self.used += 1;
        true
    }

    /// Rewrites done.
    pub fn used(&self) -> usize {
        self.used
    }
}

/// What a pass gives.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The new graph.
    pub graph: Graph,
    /// What was done and what was not, in order.
    pub changes: Vec<Change>,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Name.
    pub name: &'static str,
    /// The function; it looks at one graph, without its bodies.
    pub run: fn(&Graph, &mut Fuel) -> Result<Rewritten, Error>,
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
        name: "views",
        run: views::run,
        needs: &["no shape arithmetic"],
        establishes: &["merged views"],
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
        name: "fold",
        run: fold::run,
        needs: &["simple maps", "no dead code"],
        establishes: &["folded scales"],
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
    let mut g = graph.clone();
    let mut changes: Vec<Change> = Vec::new();
    for _ in 0..MAX_ROUNDS {
        let before = fuel.used();
        // Only the last round's reasons why not are those of the final graph.
        changes.retain(|c| c.done);
        for pass in PASSES {
            g = apply(pass, g, &mut fuel, &mut changes)?;
            if verify {
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

/// One pass over the graph's bodies, innermost first, and then over itself.
fn apply(
    pass: &Pass,
    mut g: Graph,
    fuel: &mut Fuel,
    changes: &mut Vec<Change>,
) -> Result<Graph, Error> {
    let mut weights = g.weights.clone();
    for node in &mut g.nodes {
        let bodies: Vec<&mut Box<Graph>> = match &mut node.op {
            Op::If {
                then_branch,
                else_branch,
            } => vec![then_branch, else_branch],
            Op::Loop { body, .. } => vec![body],
            _ => continue,
        };
        for b in bodies {
            // Constants are numbered alike everywhere, so a body continues the common store.
            b.weights = weights;
            **b = apply(pass, (**b).clone(), fuel, changes)?;
            weights = b.weights.clone();
        }
    }
    g.weights = weights;
    let r = (pass.run)(&g, fuel)?;
    changes.extend(r.changes);
    let mut g = r.graph;
    let weights = g.weights.clone();
    share(&mut g, &weights);
    Ok(g)
}

fn share(g: &mut Graph, weights: &Arc<tensor::WeightStore>) {
    g.weights = weights.clone();
    for node in &mut g.nodes {
        match &mut node.op {
            Op::If {
                then_branch,
                else_branch,
            } => {
                share(then_branch, weights);
                share(else_branch, weights);
            }
            Op::Loop { body, .. } => share(body, weights),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_established_before() {
        let mut have: Vec<&str> = Vec::new();
        for p in PASSES {
            for n in p.needs {
                assert!(have.contains(n), "{} needs '{n}'", p.name);
            }
            have.extend(p.establishes);
        }
    }
}
