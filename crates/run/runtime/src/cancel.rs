//! Cancellation of requests: a flag that callers share, and the queued requests that it wakes.
use crate::queued::QueuedRequest;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// By this a caller gives requests up: one that waits leaves its queue at once, one that runs ends at its
/// next task or step. Clones are the same handle; once cancelled it stays so.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Off>);

#[derive(Default)]
struct Off {
    off: AtomicBool,
    waiting: Mutex<Vec<Weak<QueuedRequest>>>,
}

impl Cancel {
    /// A handle that was not used yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Gives up every request that was sent with this handle.
    pub fn cancel(&self) {
        self.0.off.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting());
        waiting
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|t| t.give_up());
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.off.load(Ordering::SeqCst)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0.off
    }

    /// Gives `queued` up when this is cancelled, or was.
    pub(crate) fn follow(&self, queued: &Arc<QueuedRequest>) {
        {
            let mut w = self.waiting();
            // Only before the list would grow: thousands may be in flight by one handle.
            if w.len() == w.capacity() {
                w.retain(|t| t.strong_count() > 0);
            }
            w.push(Arc::downgrade(queued));
        }
        if self.is_cancelled() {
            queued.give_up();
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<Weak<QueuedRequest>>> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cancel").field(&self.is_cancelled()).finish()
    }
}
