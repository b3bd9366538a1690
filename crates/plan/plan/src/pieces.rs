//! Writers of disjoint pieces of one buffer (a concatenation): proved disjoint in one pass instead of pair by
//! pair. The verifier uses it.
use crate::StepSet;
use layout::Dim;
use std::collections::BTreeMap;

/// Where the addresses of a writer lie modulo a period (0: where they lie), from `lo` up to before `hi`.
/// All three are proved to be in order: `0 <= lo <= hi`, and `hi <= period` unless that is 0.
#[derive(Clone, Debug)]
pub struct Reach {
    /// What the rest of its strides are multiples of.
    pub period: Dim,
    /// The least.
    pub lo: Dim,
    /// One more than the largest.
    pub hi: Dim,
}

/// Writers in the order in which they lie, each proved to end before the next one begins.
#[derive(Debug, Default)]
struct Row {
    /// Ends by their numbers at the top of the box: what is proved does not depend on them.
    ends: BTreeMap<(i64, i64), (Dim, Dim)>,
    steps: StepSet,
}

/// Writers of one buffer.
#[derive(Debug, Default)]
pub struct Pieces(BTreeMap<Dim, Row>);

impl Pieces {
    /// Adds a writer; gives those of the earlier ones that it is apart from. `top` gives a number for a
    /// dimension, the same each time, and `le` proves that one is nowhere above another.
    pub fn add(
        &mut self,
        step: usize,
        reaches: Vec<Reach>,
        top: &dyn Fn(&Dim) -> Option<i64>,
        le: &dyn Fn(&Dim, &Dim) -> bool,
    ) -> StepSet {
        let mut apart = StepSet::new();
        for r in reaches {
            let (Some(lo), Some(hi)) = (top(&r.lo), top(&r.hi)) else {
                continue;
            };
            let row = self.0.entry(r.period).or_default();
            let before = row.ends.range(..(lo, hi)).next_back();
            let after = row.ends.range((lo, hi)..).next();
            let fits = before.is_none_or(|(_, b)| b.1 == r.lo || le(&b.1, &r.lo))
                && after.is_none_or(|(at, a)| *at != (lo, hi) && le(&r.hi, &a.0));
            if fits {
                row.ends.insert((lo, hi), (r.lo, r.hi));
                apart.join(&row.steps);
                row.steps.add(step);
            }
        }
        apart
    }
}
