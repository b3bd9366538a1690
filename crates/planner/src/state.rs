//! State that stays in place between requests.
use crate::bind::why;
use layout::DimBox;
use plan::{Program, ValueIx, Why};

/// A pair of values that share one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateValue {
    /// The input.
    pub past: ValueIx,
    /// The output that carries it on.
    pub present: ValueIx,
    /// Elements of the buffer: those of the present at the top of the box.
    pub elements: i64,
}

/// Finds the declared pairs that can share a buffer, and the program with accesses rewritten.
pub(crate) fn alias(
    program: &Program,
    _dims: &DimBox,
    whys: &mut Vec<Why>,
) -> (Vec<StateValue>, Option<Program>) {
    for p in &program.states {
        let name = program
            .inputs
            .get(p.input as usize)
            .map_or(String::new(), |&v| program.value(v).name.clone());
        whys.push(why("state", &name, "not aliased", "covered later"));
    }
    (vec![], None)
}
