//! Predictions of programs whose instructions were counted, kept for the time of a bind: packings of weights, halves of
//! sums and kernels of other steps are often one program but for names.
use foldhash::HashMap;
use kernel::{Kernel, Schedule};
use machine::{Cost, Work};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// What a step is predicted to ask for and to take.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// What it asks for.
    pub work: Work,
    /// What it takes.
    pub cost: Cost,
    /// It takes that at least, which is no less than what was asked for: more of it is not known.
    pub least: bool,
}

/// How much of what could overlap is taken to overlap when candidates are compared: between equals
/// the one that moves less is the safer choice.
const OVERLAP: f64 = 0.9;

/// Seconds by which candidates with these costs are compared.
pub(super) fn compared_s(cost: &Cost) -> f64 {
    OVERLAP * cost.time_s + (1.0 - OVERLAP) * cost.interval.1
}

/// What a program is predicted to take; `None`: kernel and schedule make none.
type Prediction = Option<Predicted>;

/// A program with its prediction.
struct Entry {
    kernel: Arc<Kernel>,
    schedule: Arc<Schedule>,
    /// The level that each operand is found in.
    found_in: Vec<u8>,
    predicted: Prediction,
}

/// What one bind predicted for one device.
#[derive(Default)]
pub struct KnownSteps(Mutex<HashMap<u64, Vec<Entry>>>);

impl KnownSteps {
    /// The prediction of `kernel` under `schedule` with operands in levels `found_in`, which `predict` makes where it is
    /// not known as far as `limit` asks for. Several threads may ask at once.
    pub fn of(
        &self,
        (kernel, schedule): (&Arc<Kernel>, &Arc<Schedule>),
        found_in: Vec<u8>,
        limit: f64,
        predict: impl FnOnce() -> Prediction,
    ) -> Prediction {
        let mut hasher = self.map().hasher().build_hasher();
        kernel.hash_unnamed(&mut hasher);
        schedule.hash(&mut hasher);
        let key = hasher.finish();
        let far_enough = |p: &Prediction| {
            let p = p.as_ref();
            p.is_none_or(|p| !p.least || compared_s(&p.cost) >= limit)
        };
        let same = |e: &&Entry| {
            let alike = e.found_in == found_in && e.schedule == *schedule;
            alike && far_enough(&e.predicted) && e.kernel.same_unnamed(kernel)
        };
        let known = self.map().get(&key).and_then(|all| {
            let found = all.iter().find(same);
            found.map(|e| e.predicted.clone())
        });
        known.unwrap_or_else(|| {
            let predicted = predict();
            self.map().entry(key).or_default().push(Entry {
                kernel: kernel.clone(),
                schedule: schedule.clone(),
                found_in,
                predicted: predicted.clone(),
            });
            predicted
        })
    }

    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Vec<Entry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
