//! What a test is told while a GPU works.
use std::sync::Arc;

/// Something that happened. Numbers count from 1, from when the hook was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The host queued the launch of this number.
    Launched(u64),
    /// The launch of this number began on the GPU.
    Began(u64),
    /// The host asked for a word that a kernel may write, for the time of this number.
    Polled(u64),
}

/// What is called when something happens.
pub(crate) type Hook = Arc<dyn Fn(Happened) + Send + Sync>;

/// A hook, and what it was told so far.
#[derive(Clone, Default)]
pub(crate) struct Told {
    hook: Option<Hook>,
    counts: [u64; 3],
}

impl Told {
    pub fn new(hook: Hook) -> Told {
        Told {
            hook: Some(hook),
            counts: [0; 3],
        }
    }

    /// Tells that something of kind `of` happened once more.
    pub fn tell(&mut self, of: fn(u64) -> Happened) {
        let Some(hook) = &self.hook else { return };
        let n = match of(0) {
            Happened::Launched(_) => &mut self.counts[0],
            Happened::Began(_) => &mut self.counts[1],
            Happened::Polled(_) => &mut self.counts[2],
        };
        *n += 1;
        hook(of(*n));
    }
}
