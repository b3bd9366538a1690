//! The engine's record of a session: its policy, the bytes that it uses, its statistics.
use crate::stats::Stats;
use device::Worked;
use layout::Arrange;
use plan::{StepWork, VerifiedPlan, WORKERS_PAY};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use supervisor::admission::{SessionId, SessionPolicy};
use tensor::WeightStore;

pub(crate) struct SessionRecord {
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
    /// Blocks of its plans by the number of what they were compiled to, the last ones first.
    blocks: Mutex<Vec<(u64, Weak<VerifiedPlan>, usize)>>,
}

/// Blocks that are remembered.
const BLOCKS: usize = 32;

impl SessionRecord {
    pub fn new(
        id: SessionId,
        name: String,
        weights: Arc<WeightStore>,
        policy: SessionPolicy,
    ) -> SessionRecord {
        let b = SessionRecord {
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
            blocks: Mutex::new(Vec::new()),
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

    /// `id` is what block number `block` of `plan` was compiled to.
    pub fn compiled(&self, id: u64, plan: &Arc<VerifiedPlan>, block: usize) {
        let mut all = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if id != 0 && !all.iter().any(|b| b.0 == id) {
            all.insert(0, (id, Arc::downgrade(plan), block));
            all.truncate(BLOCKS);
        }
    }

    /// What executables its blocks were compiled to, each with the names of its steps.
    pub fn steps(&self) -> Vec<(u64, Vec<String>)> {
        let all = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let names = |(id, plan, block): &(u64, Weak<VerifiedPlan>, usize)| {
            let plan = plan.upgrade()?;
            let b = plan.plan().blocks().nth(*block)?;
            Some((*id, b.steps.iter().map(|s| s.name.clone()).collect()))
        };
        all.iter().filter_map(names).collect()
    }

    /// Nanoseconds of `history` by family of step, the largest first.
    pub fn families(&self, history: &[Worked]) -> Vec<(String, u64)> {
        let all = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for (id, plan, block) in all.iter() {
            let Some(plan) = plan.upgrade() else { continue };
            let Some(b) = plan.plan().blocks().nth(*block) else {
                continue;
            };
            for w in history.iter().filter(|w| w.executable == *id) {
                let Some(s) = b.steps.get(w.step as usize) else {
                    continue;
                };
                let family = match &s.work {
                    StepWork::Kernel { kernel, .. } => {
                        format!("{:?}", kernel.family).to_lowercase()
                    }
                    StepWork::Host { .. } => "host".into(),
                };
                *found.entry(family).or_default() += w.end_ns - w.start_ns;
            }
        }
        let mut list: Vec<(String, u64)> = found.into_iter().collect();
        list.arrange_by_key(|f| std::cmp::Reverse(f.1));
        list
    }

    /// Predicted seconds of an item.
    pub fn cost_s(&self) -> f64 {
        f64::from_bits(self.cost.load(Ordering::Relaxed))
    }

    /// A plan is in use that covers `items` items. Gives the workers that its requests are to have,
    /// should that change.
    pub fn planned(&self, plan: &plan::Plan, items: i64, workers: u32) -> Option<u32> {
        let steps = plan.blocks().flat_map(|b| &b.steps);
        let one: f64 = steps
            .map(|s| s.predicted.time_s * s.cost_work.tasks.clamp(1, u64::from(workers)) as f64)
            .sum();
        let all: f64 = plan.blocks().map(|b| b.predicted.time_s).sum();
        let cost = plan.predicted.time_s / items.max(1) as f64;
        self.cost.store(cost.to_bits(), Ordering::Relaxed);
        if self.chosen.load(Ordering::Relaxed) {
            return None;
        }
        let now = if one > WORKERS_PAY * all { workers } else { 1 };
        (self.workers.load(Ordering::Relaxed) != now).then_some(now)
    }
}
