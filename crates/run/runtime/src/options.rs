//! How a session is opened.

use crate::PlanStore;
use crate::special::Specialise;
use layout::DimBox;
use plan::Allotment;
use std::sync::Arc;
use supervisor::admission::SessionPolicy;

/// How a session runs.
#[derive(Clone)]
pub struct SessionOptions {
    /// Ranges that plans are to cover; dims without one are planned as they come.
    pub dims: DimBox,
    /// What the session may use.
    pub allotment: Allotment,
    /// How requests are admitted, and what share of the workers they have.
    pub policy: SessionPolicy,
    /// Workers of a request; `None`: all where a plan has use for them, else one.
    pub workers: Option<u32>,
    /// Where plans and packed weights outlive the process, if anywhere.
    pub store: Option<Arc<dyn PlanStore>>,
    /// Makes programs for sizes that the session's program does not hold for, where that can be done.
    pub special: Option<Arc<dyn Specialise>>,
    /// Whether plans stay as they are, whatever happens, and follow from nothing but the dims asked for: the
    /// same requests give the same bits.
    pub pinned: bool,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            dims: DimBox::new(),
            allotment: Allotment::default(),
            policy: SessionPolicy {
                max_running: 8,
                max_queued: 1024,
                ..SessionPolicy::default()
            },
            workers: None,
            store: None,
            special: None,
            pinned: false,
        }
    }
}
