//! Counts the values between the steps of control flow against a session's memory limit.
use crate::RunError;
use tensor::{HostValue as Contents, Tensor};

/// Bytes of values that branches, loops and stretches of a request hold, counted before they are made where
/// their sizes are known.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: u64,
    now: u64,
}

impl MemoryBudget {
    /// At most `limit` bytes; `None`: as many as there are.
    pub fn new(limit: Option<u64>) -> MemoryBudget {
        MemoryBudget {
            limit: limit.unwrap_or(u64::MAX),
            now: 0,
        }
    }

    /// `bytes` more, for what `node` makes.
    pub fn take(&mut self, bytes: u64, node: &str) -> Result<(), RunError> {
        let all = self.now.saturating_add(bytes);
        if all > self.limit {
            return Err(RunError::Control {
                node: node.into(),
                why: format!(
                    "with it the values between the model's steps take {all} B, the memory limit is {} B; raise the limit, or run fewer turns or smaller sizes",
                    self.limit
                ),
            });
        }
        self.now = all;
        Ok(())
    }

    /// `bytes` that were taken are free again.
    pub fn give(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }

    /// What is held now, to go back to.
    pub fn mark(&self) -> u64 {
        self.now
    }

    /// What was taken since `mark` is free again.
    pub fn restore(&mut self, mark: u64) {
        self.now = mark;
    }
}

/// Bytes that a tensor takes, with the texts and items that it holds.
pub(crate) fn bytes_of(t: &Tensor) -> u64 {
    let texts = |all: &[String]| {
        let record = size_of::<String>() as u64;
        all.iter().map(|s| record + s.len() as u64).sum()
    };
    match t.host_value() {
        None => t.bytes().len() as u64,
        Some(Contents::Text(all)) => texts(all),
        Some(Contents::Sequence(items)) => items.iter().map(|i| bytes_of(i)).sum(),
        Some(Contents::Optional(item)) => item.as_ref().map_or(0, |i| bytes_of(i)),
        Some(Contents::Map { keys, values }) => bytes_of(keys) + bytes_of(values),
    }
}
