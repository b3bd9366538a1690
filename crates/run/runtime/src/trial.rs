//! Trials: a new plan runs some of a session's requests while the others keep theirs, so that the two can be
//! compared.
use crate::compiled::Epoch;
use crate::dims::Env;
use plan::VerifiedPlan;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A plan that was verified and compiled beside the traffic.
#[derive(Clone)]
pub struct Prepared(pub(crate) Arc<Epoch>);

impl Prepared {
    /// The plan.
    pub fn plan(&self) -> &Arc<VerifiedPlan> {
        &self.0.plan
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims = &self.0.plan.plan().dims;
        f.debug_tuple("Prepared").field(&dims.to_string()).finish()
    }
}

/// Which requests run with the plan under trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialShare {
    /// One of so many.
    Every(u32),
    /// All or none, as [`crate::SessionHandle::turn`] says: for what changes how requests are shared out, which
    /// shows only when all of them do it.
    Windows,
}

/// Versions of plans under trial have this bit, those of plans in use do not.
const TRIED: u64 = 1 << 63;

pub(crate) struct Trial {
    pub epoch: Arc<Epoch>,
    pub version: u64,
    turns: TrialShare,
    on: AtomicBool,
    count: AtomicU32,
}

impl Trial {
    pub fn new(prepared: &Prepared, turns: TrialShare) -> Trial {
        Trial {
            version: TRIED | prepared.0.id,
            epoch: prepared.0.clone(),
            turns,
            on: AtomicBool::new(false),
            count: AtomicU32::new(0),
        }
    }

    pub fn turn(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Whether a request of these dims runs with the plan; `None` where it is outside of its box.
    pub fn side(&self, env: &Env) -> Option<bool> {
        self.epoch.covers(env).then(|| match self.turns {
            TrialShare::Every(n) => self
                .count
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(n.max(2)),
            TrialShare::Windows => self.on.load(Ordering::Relaxed),
        })
    }
}
