//! Which requests run now, which wait, which are refused: a state machine without clocks, threads
//! or I/O, so that the same code runs live, in virtual time and from a replayed log.
use std::collections::VecDeque;

/// Number of a request, given by the caller; unique while the request lives.
pub type RequestId = u64;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request came.
    Arrive(RequestId),
    /// A running request ended.
    Finish(RequestId),
    /// A waiting request was given up.
    Cancel(RequestId),
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Let it run.
    Start(RequestId),
    /// Let it wait.
    Queue(RequestId),
    /// Turn it away.
    Reject(RequestId),
}

/// First come, first served, within bounds.
#[derive(Clone, Debug)]
pub struct Admission {
    running: usize,
    queue: VecDeque<RequestId>,
    max_running: usize,
    max_queued: usize,
}

impl Admission {
    /// At most `max_running` at once and `max_queued` waiting.
    pub fn new(max_running: usize, max_queued: usize) -> Admission {
        Admission {
            running: 0,
            queue: VecDeque::new(),
            max_running: max_running.max(1),
            max_queued,
        }
    }

    /// What follows from `event`. `now` is the caller's clock in seconds; this policy does not
    /// look at it, the signature is that of every policy.
    pub fn step(&mut self, _now: f64, event: Event) -> Vec<Action> {
        match event {
            Event::Arrive(id) if self.running < self.max_running => {
                self.running += 1;
                vec![Action::Start(id)]
            }
            Event::Arrive(id) if self.queue.len() < self.max_queued => {
                self.queue.push_back(id);
                vec![Action::Queue(id)]
            }
            Event::Arrive(id) => vec![Action::Reject(id)],
            Event::Finish(_) => match self.queue.pop_front() {
                Some(next) => vec![Action::Start(next)],
                None => {
                    self.running = self.running.saturating_sub(1);
                    vec![]
                }
            },
            Event::Cancel(id) => {
                self.queue.retain(|q| *q != id);
                vec![]
            }
        }
    }

    /// Requests running.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Requests waiting.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}
