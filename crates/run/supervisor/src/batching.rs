//! Batching of queued requests whose shapes agree.
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use crate::admission::Request;

/// How far behind the head of a queue a request may be that joins its batch: what is further back is
/// not looked at, so that a start takes bounded time.
const LOOK: usize = 256;

/// How requests of one session are joined.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// Items (extents of the batch dimension, summed) of one batch at most; 1: nothing is joined.
    pub max_items: u32,
    /// Seconds that the first request of a batch may be held back so that others can join it. 0
    /// starts what is there as soon as there is a worker.
    #[serde(default)]
    pub max_delay_s: f64,
    /// What each further item adds to the time of a batch, as a share of what an item takes alone: 1
    /// where batches save nothing.
    #[serde(default = "nothing_saved")]
    pub marginal: f64,
}

fn nothing_saved() -> f64 {
    1.0
}

impl Default for Batching {
    fn default() -> Self {
        Batching {
            max_items: 1,
            max_delay_s: 0.0,
            marginal: 1.0,
        }
    }
}

/// A request in a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The request.
    pub request: Request,
    /// When it came, seconds.
    pub arrived: f64,
    /// When it must be done, seconds; infinite where nobody said.
    pub due: f64,
}

impl Waiting {
    /// Latest time at which it may start and be done in time, seconds, where a run takes `stretch` times what was
    /// predicted.
    pub fn latest_start(&self, stretch: f64) -> f64 {
        self.due - self.request.cost_s * stretch
    }
}

/// Requests that run as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The requests, in order of arrival; never empty.
    pub requests: Vec<Waiting>,
    /// Their items.
    pub items: u32,
    /// Predicted seconds on the workers that the session asks for.
    pub cost_s: f64,
}

/// The queue of one session.
#[derive(Clone, Debug, Default)]
pub struct Batcher {
    batching: Batching,
    queue: VecDeque<Waiting>,
    /// Sum of what the requests in the queue cost alone, seconds.
    alone_s: f64,
    items: u64,
}

impl Batcher {
    /// An empty queue.
    pub fn new(batching: Batching) -> Batcher {
        Batcher {
            batching,
            ..Batcher::default()
        }
    }

    /// Changes how requests are joined; those that wait are joined by the new rule.
    pub fn set(&mut self, batching: Batching) {
        self.batching = batching;
    }

    /// Puts a request at the end.
    pub fn push(&mut self, w: Waiting) {
        self.alone_s += w.request.cost_s;
        self.items += u64::from(w.request.items);
        self.queue.push_back(w);
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Items that wait.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Whether a full batch waits, as far as items say it.
    pub fn is_full(&self) -> bool {
        self.items >= u64::from(self.batching.max_items.max(1))
    }

    /// Predicted seconds of everything that waits, joined as far as the rule allows.
    pub fn backlog_s(&self) -> f64 {
        if self.queue.is_empty() {
            return 0.0;
        }
        let full = f64::from(self.batching.max_items.max(1));
        let share = (1.0 + self.batching.marginal * (full - 1.0)) / full;
        // What does not fill a batch costs about one request alone.
        let one = self.alone_s / self.queue.len() as f64;
        (self.alone_s * share).max(one.min(self.alone_s))
    }

    /// Whether the last in the queue is request `id`.
    pub fn holds_last(&self, id: u64) -> bool {
        self.queue.back().is_some_and(|w| w.request.id == id)
    }

    /// The first in the queue.
    pub fn head(&self) -> Option<&Waiting> {
        self.queue.front()
    }

    /// When the head may start, seconds: at once where a full batch waits or nothing is held back,
    /// else when it was held back for long enough; `stretch` as in [`Waiting::latest_start`]. `None` when nothing
    /// waits.
    pub fn ready_at(&self, stretch: f64) -> Option<f64> {
        let head = self.queue.front()?;
        match self.is_full() {
            true => Some(head.arrived),
            false => Some(self.held_until(head, stretch)),
        }
    }

    /// Until when a request is held back at most, seconds.
    fn held_until(&self, w: &Waiting, stretch: f64) -> f64 {
        // Holding back must not be what makes it late: a run's time is left.
        let latest = w.latest_start(stretch + 1.0);
        (w.arrived + self.batching.max_delay_s.max(0.0)).min(latest.max(w.arrived))
    }

    /// Request `id` and until when it is held back at most, whatever waits before it.
    pub fn find(&self, id: u64, stretch: f64) -> Option<(&Waiting, f64)> {
        let w = self.queue.iter().find(|w| w.request.id == id)?;
        Some((w, self.held_until(w, stretch)))
    }

    /// Takes the head and, behind it, what agrees with it in shape, as long as the batch holds it. A
    /// request with more items than a batch holds goes alone. What does not fit stays where it was: a
    /// batch runs with the items it has, nothing is padded. `None` when nothing waits.
    pub fn take(&mut self) -> Option<Batch> {
        let head = self.queue.pop_front()?;
        let most = self.batching.max_items.max(1);
        let shape = head.request.shape;
        let mut items = head.request.items;
        let per_item = head.request.cost_s / f64::from(items.max(1));
        let mut requests = vec![head];
        if items < most {
            let mut at = 0;
            let mut looked = 0;
            while at < self.queue.len() && looked < LOOK && items < most {
                looked += 1;
                let r = &self.queue[at].request;
                let fits = items.checked_add(r.items).is_some_and(|sum| sum <= most);
                if r.shape != shape || !fits {
                    at += 1;
                    continue;
                }
                items += r.items;
                requests.extend(self.queue.remove(at));
            }
        }
        for w in &requests {
            self.alone_s -= w.request.cost_s;
            self.items -= u64::from(w.request.items);
        }
        if self.queue.is_empty() {
            self.alone_s = 0.0;
        }
        let cost_s = match requests.as_slice() {
            [one] => one.request.cost_s,
            _ => per_item * (1.0 + self.batching.marginal * f64::from(items.saturating_sub(1))),
        };
        Some(Batch {
            requests,
            items,
            cost_s,
        })
    }

    /// Takes a request out of the queue.
    pub fn remove(&mut self, id: u64) -> Option<Waiting> {
        let at = self.queue.iter().position(|w| w.request.id == id)?;
        self.remove_at(at)
    }

    /// Takes every request out that cannot be done in time: `late` says so of its time of completion
    /// and its cost.
    pub fn remove_late(&mut self, late: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < self.queue.len() {
            if late(&self.queue[at]) {
                out.extend(self.remove_at(at));
            } else {
                at += 1;
            }
        }
        out
    }

    fn remove_at(&mut self, at: usize) -> Option<Waiting> {
        let w = self.queue.remove(at)?;
        self.alone_s -= w.request.cost_s;
        self.items -= u64::from(w.request.items);
        if self.queue.is_empty() {
            self.alone_s = 0.0;
        }
        Some(w)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: u64, items: u32, shape: u64, arrived: f64) -> Waiting {
        Waiting {
            request: Request {
                id,
                session: 0,
                cost_s: 1e-3 * f64::from(items),
                items,
                shape,
                deadline_s: None,
                since_s: 0.0,
            },
            arrived,
            due: f64::INFINITY,
        }
    }

    fn batcher(max_items: u32, max_delay_s: f64) -> Batcher {
        Batcher::new(Batching {
            max_items,
            max_delay_s,
            marginal: 0.5,
        })
    }

    fn ids(b: &Batch) -> Vec<u64> {
        b.requests.iter().map(|w| w.request.id).collect()
    }

    #[test]
    fn only_shapes_that_agree_are_joined_and_order_is_kept() {
        let mut b = batcher(3, 0.0);
        for (id, shape) in [(1, 7), (2, 9), (3, 7), (4, 7), (5, 7)] {
            b.push(waiting(id, 1, shape, 0.0));
        }
        let first = b.take().unwrap();
        assert_eq!(ids(&first), [1, 3, 4]);
        assert!((first.cost_s - 2e-3).abs() < 1e-12);
        assert_eq!(ids(&b.take().unwrap()), [2]);
        assert_eq!(ids(&b.take().unwrap()), [5]);
        assert!(b.take().is_none());
        assert_eq!(b.backlog_s(), 0.0);
    }

    #[test]
    fn ragged_tails_run_with_what_they_have_and_large_ones_go_alone() {
        let mut b = batcher(4, 0.0);
        for (id, items) in [(1, 3), (2, 2), (3, 1), (4, 9)] {
            b.push(waiting(id, items, 0, 0.0));
        }
        assert_eq!(ids(&b.take().unwrap()), [1, 3]);
        let tail = b.take().unwrap();
        assert_eq!((ids(&tail), tail.items), (vec![2], 2));
        assert_eq!(ids(&b.take().unwrap()), [4]);
        assert_eq!(b.items(), 0);
    }

    #[test]
    fn a_head_is_held_back_until_the_batch_is_full_or_time_is_up() {
        let mut b = batcher(2, 0.010);
        b.push(waiting(1, 1, 0, 1.0));
        assert_eq!(b.ready_at(1.0), Some(1.010));
        b.push(waiting(2, 1, 0, 1.004));
        assert_eq!(b.ready_at(1.0), Some(1.0));
        b.take();
        assert_eq!(b.ready_at(1.0), None);
        let mut due = waiting(3, 1, 0, 2.0);
        due.due = 2.006;
        b.push(due);
        assert!((b.ready_at(1.0).unwrap() - 2.004).abs() < 1e-12);
    }
}
