//! What a pass takes and gives.

use graph::Graph;

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

    /// Whether a rewrite that counts for nothing may be done: none is once all fuel is taken.
    pub fn allows(&mut self) -> bool {
        let left = self.left != Some(0);
        self.used += usize::from(left);
        left
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
    /// False when the graph is the one that the pass was given.
    pub touched: bool,
}
