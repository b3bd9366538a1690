//! How an engine is supervised, and what the supervisor counts.

use crate::Error;
use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use supervisor::supervise::{Decision, Mode, Options};

/// How an engine is supervised.
pub struct SuperviseOptions {
    /// What the supervisor decides by, and how far it may go.
    pub decide: Options,
    /// How long a window is.
    pub window: Duration,
    /// Where everything is written that the supervisor is told and says, for `shopfloor_tools::replay`.
    pub log: Option<Box<dyn Write + Send>>,
    /// Who hears every decision.
    pub hear: Option<DecisionListener>,
}

impl Default for SuperviseOptions {
    fn default() -> SuperviseOptions {
        SuperviseOptions {
            decide: Options::default(),
            window: Duration::from_millis(100),
            log: None,
            hear: None,
        }
    }
}

impl SuperviseOptions {
    /// As usual, going so far.
    pub fn of(mode: Mode) -> SuperviseOptions {
        SuperviseOptions {
            decide: Options {
                mode,
                ..Options::default()
            },
            ..SuperviseOptions::default()
        }
    }
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) windows: AtomicU64,
    pub(super) loop_ns: AtomicU64,
    pub(super) planning_ns: AtomicU64,
}

pub(super) fn threads(source: std::io::Error) -> Error {
    Error::Io {
        path: "the supervisor's thread".into(),
        source,
    }
}

/// Hears every decision.
pub type DecisionListener = Box<dyn FnMut(&Decision) + Send>;
