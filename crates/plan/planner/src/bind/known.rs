//! Predictions of programs whose instructions were counted, kept for the time of a bind: packings of weights, halves of
//! sums and kernels of other steps are often one program but for names.
use foldhash::HashMap;
use kernel::{Kernel, Schedule};
use machine::{Cost, Work};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// Work and cost of a program; `None`: kernel and schedule make none.
type Predicted = Option<(Work, Cost)>;

/// A program with its prediction.
struct Entry {
    kernel: Arc<Kernel>,
    schedule: Arc<Schedule>,
    /// The level that each operand is found in.
    found_in: Vec<u8>,
    predicted: Predicted,
}

/// What one bind predicted for one device.
#[derive(Default)]
pub struct KnownSteps(Mutex<HashMap<u64, Vec<Entry>>>);

impl KnownSteps {
    /// The prediction of `kernel` under `schedule` with operands in levels `found_in`, which `predict` makes where it is
    /// not known. Several threads may ask at once.
    pub fn of(
        &self,
        (kernel, schedule): (&Arc<Kernel>, &Arc<Schedule>),
        found_in: Vec<u8>,
        predict: impl FnOnce() -> Predicted,
    ) -> Predicted {
        let mut hasher = self.map().hasher().build_hasher();
        kernel.hash_unnamed(&mut hasher);
        schedule.hash(&mut hasher);
        let key = hasher.finish();
        let same = |e: &&Entry| {
            e.found_in == found_in && e.schedule == *schedule && e.kernel.same_unnamed(kernel)
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
