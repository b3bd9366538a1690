//! What an engine keeps of a session while it lives: its policy, what it takes, how it fares.
use crate::stats::Stats;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use supervisor::admission::{SessionId, SessionPolicy};
use tensor::WeightStore;

/// How many times as fast a plan must be with all workers as with one to be given more than one.
const PAYS: f64 = 1.25;

pub(crate) struct Book {
    pub id: SessionId,
    pub name: String,
    pub weights: Arc<WeightStore>,
    policy: Mutex<SessionPolicy>,
    /// Whether its requests may run without the scheduler when nothing else runs: no deadline, no
    /// joining, not draining.
    plain: AtomicBool,
    pub priority: AtomicI32,
    pub workers: AtomicU32,
    /// Whether workers are as the plan has use for them, not as somebody said.
    pub chosen: AtomicBool,
    /// Predicted seconds of an item, as bits.
    cost: AtomicU64,
    /// Bytes of request slots, of streams' state, and of inputs that wait.
    pub arenas: AtomicU64,
    pub states: AtomicU64,
    pub queue: AtomicU64,
    pub stats: Stats,
}

impl Book {
    pub fn new(
        id: SessionId,
        name: String,
        weights: Arc<WeightStore>,
        policy: SessionPolicy,
    ) -> Book {
        let b = Book {
            id,
            name,
            weights,
            policy: Mutex::new(SessionPolicy::default()),
            plain: AtomicBool::new(false),
            priority: AtomicI32::new(0),
            workers: AtomicU32::new(1),
            chosen: AtomicBool::new(false),
            cost: AtomicU64::new(0),
            arenas: AtomicU64::new(0),
            states: AtomicU64::new(0),
            queue: AtomicU64::new(0),
            stats: Stats::default(),
        };
        b.set(policy);
        b
    }

    pub fn policy(&self) -> MutexGuard<'_, SessionPolicy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, policy: SessionPolicy) {
        let plain = policy.deadline.is_none() && policy.batching.max_items <= 1;
        self.priority.store(policy.priority, Ordering::SeqCst);
        self.workers.store(policy.workers, Ordering::SeqCst);
        *self.policy() = policy;
        self.plain.store(plain, Ordering::SeqCst);
    }

    pub fn close(&self) {
        self.plain.store(false, Ordering::SeqCst);
    }

    #[inline]
    pub fn is_plain(&self) -> bool {
        self.plain.load(Ordering::SeqCst)
    }

    /// Predicted seconds of an item.
    pub fn cost_s(&self) -> f64 {
        f64::from_bits(self.cost.load(Ordering::Relaxed))
    }

    /// A plan is in use that covers `items` items. Gives the workers that its requests are to have,
    /// should that change.
    pub fn planned(&self, plan: &plan::Plan, items: i64, workers: u32) -> Option<u32> {
        let (mut one, mut all) = (0.0, 0.0);
        for s in plan.blocks().flat_map(|b| &b.steps) {
            let t = s.predicted.time_s;
            let tasks = s
                .tasks
                .known()
                .map_or(u32::MAX, |n| n.clamp(1, i64::from(u32::MAX)) as u32);
            all += t;
            one += t * f64::from(tasks.min(workers));
        }
        let cost = plan.predicted.time_s / items.max(1) as f64;
        self.cost.store(cost.to_bits(), Ordering::Relaxed);
        if self.chosen.load(Ordering::Relaxed) {
            return None;
        }
        let now = if one > PAYS * all { workers } else { 1 };
        (self.workers.load(Ordering::Relaxed) != now).then_some(now)
    }
}
