//! How values of the host reach page-locked memory: in pieces that cross the link while the next ones are copied, by
//! several threads where there are many. Read by what copies and by what says how long that takes.

/// Bytes of a piece: a call to the driver and the begin of a copy take a few percent of its way over the link.
pub const PIECE: usize = 1 << 20;
/// Threads that copy one value at most.
const THREADS: usize = 4;

/// Threads that copy a value of `bytes` bytes: each has two pieces at least, which take longer than to start it.
pub fn threads(bytes: usize) -> usize {
    (bytes / (2 * PIECE)).clamp(1, THREADS)
}
