//! Every schedule that the generators can make, for one who measures them.
use super::candidate::{Candidate, Rank};
use layout::Inserted;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Candidates of a kernel and their ranking.
type Known = (Vec<Candidate>, Vec<Rank>);

/// Looks at some kernels of a program and says which of their candidates a plan takes: all legal
/// ones that the generators make, also those that a plan's budget does not let them try. One sweep
/// is for one program, box and machine, whose candidates it keeps.
#[derive(Debug, Default)]
pub struct Sweep {
    pub(super) picks: BTreeMap<String, usize>,
    known: Mutex<BTreeMap<String, Known>>,
}

impl Sweep {
    /// A sweep over the kernels of these names.
    pub fn of(kernels: impl IntoIterator<Item = String>) -> Sweep {
        Sweep {
            picks: kernels.into_iter().map(|k| (k, 0)).inserted(),
            known: Mutex::default(),
        }
    }

    /// What it has seen so far.
    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on plans take candidate `number` of `kernel`, where it is one that is looked at;
    /// number 0, and one that there is none of, are what the planner takes by itself.
    pub fn pick(&mut self, kernel: &str, number: usize) {
        if let Some(p) = self.picks.get_mut(kernel) {
            *p = number;
        }
    }

    /// The candidates of `kernel` as a short description and a predicted time in seconds, the
    /// planner's own first, the others from the cheapest on; none before a plan was made.
    pub fn candidates(&self, kernel: &str) -> Vec<(String, f64)> {
        let known = self.known();
        let Some((list, ranks)) = known.get(kernel) else {
            return vec![];
        };
        ranks
            .iter()
            .map(|r| (list[r.1].what.clone(), r.3.time_s))
            .collect()
    }
}
