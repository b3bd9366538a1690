//! Requests, policies of sessions, and what the scheduler answers.

use crate::batching::Batching;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of a request, given by the caller; unique while the request lives.
pub type RequestId = u64;

/// Number of a session, given by the caller.
pub type SessionId = u32;

/// Number of a run: one or more requests that run as one batch.
pub type RunId = u64;

/// Seconds after which a request that waits, or a run whose workers were taken, is treated as of the highest
/// priority there is: as soon as a worker leaves what it does, it is next.
pub const RISES_S: f64 = 1.0;

/// How requests of a session are treated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionPolicy {
    /// Share of the workers beside sessions of the same priority. Above 0.
    pub weight: f64,
    /// Higher goes first, and takes workers from what is lower and has not waited for [`RISES_S`].
    pub priority: i32,
    /// Seconds from arrival within which a request must be done. What cannot be is turned away.
    pub deadline: Option<f64>,
    /// Requests that may wait; further ones are turned away.
    pub max_queued: usize,
    /// Runs at once, those that were made to wait by higher priorities among them.
    pub max_running: usize,
    /// Workers that a run is given where they are free. At least 1.
    pub workers: u32,
    /// Runs share the workers out evenly with requests that would have to wait: each has fewer, so that more
    /// go on at once, since workers of one run lose time to each other.
    pub spread: bool,
    /// How requests are joined.
    pub batching: Batching,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        SessionPolicy {
            weight: 1.0,
            priority: 0,
            deadline: None,
            max_queued: 64,
            max_running: usize::MAX,
            workers: 1,
            spread: false,
            batching: Batching::default(),
        }
    }
}

/// A request as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Number.
    pub id: RequestId,
    /// Session.
    pub session: SessionId,
    /// Predicted seconds on the workers that the session's policy asks for.
    pub cost_s: f64,
    /// Extent of the batch dimension; 1 where there is none.
    pub items: u32,
    /// Any number that is equal for requests that may run as one: a hash of all other dims.
    pub shape: u64,
    /// Seconds from arrival within which it must be done; `None`: the session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<f64>,
    /// Seconds ago that it arrived, where it had to wait before the scheduler heard of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since_s: f64,
}

fn is_zero(v: &f64) -> bool {
    *v == 0.0
}

/// Why a request was turned away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The queue is full.
    Overloaded {
        /// Runs of the session.
        running: usize,
        /// Its requests that wait.
        queued: usize,
    },
    /// It could not be done in time.
    Late {
        /// Predicted seconds from arrival to end.
        predicted_s: f64,
        /// Deadline in seconds from arrival.
        deadline_s: f64,
    },
    /// The session takes no more.
    Draining,
    /// There is no such session.
    Unknown(SessionId),
    /// Its numbers make no sense: what is wrong.
    Malformed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Overloaded { running, queued } => write!(
                f,
                "overloaded: {running} runs and {queued} waiting requests are what the session may have"
            ),
            Refusal::Late {
                predicted_s,
                deadline_s,
            } => write!(
                f,
                "overloaded: it would take {:.3} ms and must be done in {:.3} ms",
                1e3 * predicted_s,
                1e3 * deadline_s
            ),
            Refusal::Draining => write!(f, "the session is draining and takes no more requests"),
            Refusal::Unknown(s) => write!(f, "there is no session {s}"),
            Refusal::Malformed(why) => write!(f, "the request cannot be scheduled: {why}"),
        }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Let these requests run as one batch.
    Start {
        /// Number to say [`super::Event::Finish`] with.
        run: RunId,
        /// Session.
        session: SessionId,
        /// Requests, in order of arrival.
        requests: Vec<RequestId>,
        /// Workers granted.
        workers: u32,
    },
    /// Change a run's workers: each that leaves finishes its task first. 0: the run stands still until
    /// it is given workers again.
    Resize {
        /// Run.
        run: RunId,
        /// Workers granted from now on.
        workers: u32,
    },
    /// Nobody wants the run's results any more: end it at a task's boundary and say so.
    Stop(RunId),
    /// Let it wait.
    Queue(RequestId),
    /// Turn it away.
    Reject {
        /// Request.
        request: RequestId,
        /// Reason.
        why: Refusal,
    },
    /// It waited and can no longer be done in time.
    Expire {
        /// Request.
        request: RequestId,
        /// Reason.
        why: Refusal,
    },
    /// Nothing of a draining session runs or waits any more.
    Drained(SessionId),
}
