//! How far a CTA is with those of its cluster.

/// What a CTA knows of its cluster.
#[derive(Default)]
pub(super) struct Meeting {
    /// The cluster's first task, and shared memory of all of its CTAs where they meet first.
    pub peers: Option<(i64, Vec<Vec<Vec<u64>>>)>,
    /// Whether CTAs are run until they meet.
    pub until: bool,
    /// How often this one has met the others, whether it has arrived, and whether it reads of them since.
    pub met: u32,
    pub arrived: bool,
    pub reads: bool,
}
