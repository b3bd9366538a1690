//! Every schedule that the generators can make, for one who measures them.
use super::{Candidate, Rank, generated, ranked};
use crate::bind::ctx::{Ctx, Space};
use kernel::OperandId;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Tasks to cut a step into, per worker; 0 is one task in all.
const TASKS: [i64; 7] = [0, 1, 2, 4, 8, 16, 32];

/// Candidates of a kernel and their ranking.
type Known = (Vec<Candidate>, Vec<Rank>);

/// Looks at some kernels of a program and says which of their candidates a plan takes: all legal
/// ones that the generators make, also those that a plan's budget does not let them try. One sweep
/// is for one program, box and machine, whose candidates it keeps.
#[derive(Debug, Default)]
pub struct Sweep {
    picks: BTreeMap<String, usize>,
    known: RefCell<BTreeMap<String, Known>>,
}

impl Sweep {
    /// A sweep over the kernels of these names.
    pub fn of(kernels: impl IntoIterator<Item = String>) -> Sweep {
        Sweep {
            picks: kernels.into_iter().map(|k| (k, 0)).collect(),
            known: RefCell::default(),
        }
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
        let known = self.known.borrow();
        let Some((list, ranks)) = known.get(kernel) else {
            return vec![];
        };
        ranks
            .iter()
            .map(|r| (list[r.1].what.clone(), r.3.time_s))
            .collect()
    }

    /// Puts what is chosen first into `best`, whose first is the planner's own.
    pub(super) fn choose(
        &self,
        space: &Space,
        constant: &dyn Fn(OperandId) -> bool,
        list: &mut Vec<Candidate>,
        best: &mut Vec<Rank>,
    ) {
        let name = &space.kernel.name;
        let Some(&pick) = self.picks.get(name) else {
            return;
        };
        let mut known = self.known.borrow_mut();
        let entry = known.entry(name.clone()).or_insert_with(|| {
            widen(space, constant, list, best);
            (list.clone(), best.clone())
        });
        list.clone_from(&entry.0);
        best.clone_from(&entry.1);
        if pick < best.len() {
            best.swap(0, pick);
        }
    }
}

/// Adds all other candidates, ranked after the first.
fn widen(
    space: &Space,
    constant: &dyn Fn(OperandId) -> bool,
    list: &mut Vec<Candidate>,
    best: &mut Vec<Rank>,
) {
    let from = list.len();
    let mut seen: BTreeSet<String> = list.iter().map(|c| c.what.clone()).collect();
    for tasks in TASKS {
        let ctx = Ctx {
            forced: Some((tasks * space.ctx.workers as i64).max(1)),
            ..space.ctx
        };
        let wide = Space::new(ctx, space.kernel);
        for packs in [true, false] {
            for c in generated(&wide, &|o| packs && constant(o)) {
                if seen.insert(c.what.clone()) {
                    list.push(c);
                }
            }
        }
    }
    best.extend(ranked(space.ctx, list, from, constant, None).unwrap_or_default());
    if let Some(rest) = best.get_mut(1..) {
        rest.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
}
