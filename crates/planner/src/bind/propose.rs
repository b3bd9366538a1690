//! Changes that would pay, given what was seen of the machine and its load.
use super::Planner;
use plan::{Candidate, Observations, Serving};

impl Planner {
    pub(super) fn proposals(&self, _: &Observations, _: &[Serving]) -> Vec<Candidate> {
        Vec::new()
    }
}
