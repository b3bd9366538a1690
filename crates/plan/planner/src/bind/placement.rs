//! On which device each item of a block runs.

/// Which device runs an item that has a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The last one; what it cannot run goes to the host, which is the first.
    #[default]
    Last,
    /// Item `i` of a block runs on the device that entry `i` names; the list repeats.
    Listed(Vec<u32>),
    /// Of two devices each item runs where the predicted time of all is least, copies included.
    Cut,
}

impl Placement {
    /// Device of item `number` among `devices`.
    pub(super) fn of(&self, number: usize, devices: usize) -> u32 {
        let last = devices.saturating_sub(1) as u32;
        match self {
            Placement::Listed(list) if !list.is_empty() => list[number % list.len()].min(last),
            _ => last,
        }
    }
}
