//! What a plan may hold at most.

/// Largest buffer, arena or scratch in bytes.
pub(crate) const MAX_BYTES: u64 = 1 << 46;

pub(super) const MAX_SYMBOL: i64 = 1 << 40;

/// Steps that a block may have.
pub const MAX_STEPS: usize = 1 << 20;

pub(super) const MAX_LIST: usize = 4 * MAX_STEPS;

/// Symbols that a block may use.
pub const MAX_SYMBOLS: usize = 1 << 16;

pub(super) const MAX_CONSTRAINTS: usize = 1_024;

pub(super) const MAX_WORKERS: u32 = 4_096;
