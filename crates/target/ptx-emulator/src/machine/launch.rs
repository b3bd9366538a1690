//! What to run, and what came of it.

use super::cluster::Clusters;
use super::launch_state::LaunchState;
use super::times::InstructionTimes;
use crate::checks::{Checks, Report};
use crate::counters::{Counters, Counts, Request};
use crate::program::Kernel;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: String,
    /// CTAs along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a CTA along x, y and z.
    pub block: [u32; 3],
    /// CTAs of a cluster along x, y and z, when the kernel does not say itself.
    pub cluster: Option<[u32; 3]>,
    /// Dynamic shared memory, in bytes.
    pub shared: u32,
    /// The bytes of each parameter, in order, little endian.
    pub args: Vec<Vec<u8>>,
    /// Decides how warps and CTAs are interleaved: the same seed gives the same run.
    pub seed: u64,
    /// CTAs that are in flight together, at most.
    pub resident: usize,
    /// Threads of this machine to use for CTAs that do not depend on each other; 0 for as many as
    /// it has.
    pub threads: usize,
    /// Checks to make.
    pub checks: Checks,
    /// Instructions of warps after which a run is given up.
    pub step_limit: u64,
    /// Whether a run on several threads that finds something is repeated on one, in the order of
    /// its seed. For that, memory is copied before each run. Otherwise the findings of the first run
    /// are reported.
    pub repeat_findings: bool,
    /// Shared memory that a CTA may have, in bytes, when it is not what the text's architecture has.
    pub shared_limit: Option<u32>,
    /// What things take, for a launch in slices that is to keep time.
    pub pace: Option<InstructionTimes>,
    /// Whether the first request of every instruction to global and shared memory is kept, lane by
    /// lane; such a run takes its CTAs on one thread.
    pub requests: bool,
    /// Launches that may still be under way when it begins (programmatic dependent launch): what a thread touches of
    /// their memory before `griddepcontrol.wait` is judged.
    pub unfinished: Unfinished,
}

/// Launches that may still be under way; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfinished(pub(crate) u16);

impl Unfinished {
    /// These and others.
    #[must_use]
    pub fn and(self, others: Unfinished) -> Unfinished {
        Unfinished(self.0 | others.0)
    }
}

impl Launch {
    /// A launch with one CTA of one warp and every check; fields can be changed.
    pub fn new(kernel: impl Into<String>) -> Launch {
        Launch {
            kernel: kernel.into(),
            grid: [1; 3],
            block: [32, 1, 1],
            cluster: None,
            shared: 0,
            args: Vec::new(),
            seed: 0,
            resident: 64,
            threads: 0,
            checks: Checks::default(),
            step_limit: 1 << 40,
            repeat_findings: true,
            shared_limit: None,
            pace: None,
            requests: false,
            unfinished: Unfinished::default(),
        }
    }

    /// The same with another argument of four bytes.
    #[must_use]
    pub fn u32(mut self, v: u32) -> Launch {
        self.args.push(v.to_le_bytes().into());
        self
    }

    /// The same with another argument of eight bytes, such as an address.
    #[must_use]
    pub fn u64(mut self, v: u64) -> Launch {
        self.args.push(v.to_le_bytes().into());
        self
    }

    /// The same with an argument of a tensor map's bytes.
    #[must_use]
    pub fn tensor_map(mut self, bytes: [u8; crate::tensor_map::BYTES]) -> Launch {
        self.args.push(bytes.into());
        self
    }

    /// The same with another f32 argument.
    #[must_use]
    pub fn f32(self, v: f32) -> Launch {
        self.u32(v.to_bits())
    }
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was found wrong, in the order it was found.
    pub reports: Vec<Report>,
    /// What was executed.
    pub counters: Counters,
    /// Threads of this machine that ran CTAs.
    pub threads: usize,
    /// The first request of every instruction to global and to shared memory, where they were kept,
    /// in the order of the text.
    pub requests: Vec<Request>,
    /// What may still be under way when a launch begins that depends on this one.
    pub unfinished: Unfinished,
}

impl Outcome {
    /// Whether nothing was found wrong.
    pub fn clean(&self) -> bool {
        self.reports.is_empty()
    }
}

/// A launch that is possible.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub kernel: Arc<Kernel>,
    pub params: Vec<u8>,
    pub shared: u32,
    pub ctas: u32,
    /// Threads of a CTA.
    pub threads: u32,
    pub clusters: Clusters,
    /// Its mark on what it writes.
    pub mark: u8,
}

impl Plan {
    /// Whether CTAs may depend on each other, so that they must be interleaved.
    pub(crate) fn together(&self) -> bool {
        self.kernel.communicates || self.clusters.size() > 1
    }

    /// Threads of a CTA, rounded up to whole warps.
    pub(super) fn threads_per_cta(&self) -> u32 {
        self.threads.next_multiple_of(32)
    }

    pub(super) fn world(&self, l: &Launch) -> LaunchState {
        LaunchState::new(
            &self.kernel,
            l.checks,
            self.params.clone(),
            self.shared,
            self.clusters,
            self.threads,
        )
        .at_pace(l.pace)
        .marking(self.mark, l.unfinished.0)
        .keeping(l.requests)
    }
}

/// Counters by line and class, from those by instruction.
pub(crate) fn summary(k: &Kernel, counts: &[Counts]) -> Counters {
    let mut c = Counters::default();
    let (mut lines, mut classes) = (BTreeMap::new(), BTreeMap::new());
    for (i, n) in k.code.iter().zip(counts) {
        // What the decoder added behind the last line counts nowhere.
        if n.issued == 0 {
            continue;
        }
        c.total.add(n);
        *classes.entry(i.class).or_insert(0) += n.issued;
        lines.entry(i.line).or_insert_with(Counts::default).add(n);
    }
    c.classes = classes.into_iter().collect();
    c.by_line = lines.into_iter().collect();
    c
}
