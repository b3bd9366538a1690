//! Copies between a caller's memory and page-locked memory: pieces that some threads share, so that copies over the
//! link begin with the first piece, and that one core's copying is no limit.

use crate::DriverError;
use crate::driver::{Context, DevicePtr, Pinned, StreamId};
use machine::staging::{self, PIECE};
use std::ops::Range;
use std::sync::Arc;

/// Where the pieces of `bytes` bytes lie.
pub(crate) fn pieces(bytes: usize) -> impl ExactSizeIterator<Item = Range<usize>> {
    let piece = move |i: usize| i * PIECE..((i + 1) * PIECE).min(bytes);
    (0..bytes.div_ceil(PIECE)).map(piece)
}

/// Copies `from` to what lies at `at` of `to`.
///
/// # Errors
/// The range is not inside.
pub(crate) fn write(to: &Arc<dyn Pinned>, at: usize, from: &[u8]) -> Result<(), DriverError> {
    share(from.len(), pieces(from.len()), |r| {
        to.write(at + r.start, &from[r])
    })
}

/// Copies what lies at `at` of `from` to `to`, each piece when `ready` has waited for the one of its number.
///
/// # Errors
/// The range is not inside, or `ready` fails.
pub(crate) fn read(
    from: &Arc<dyn Pinned>,
    at: usize,
    to: &mut [u8],
    ready: impl Fn(usize) -> Result<(), DriverError> + Sync,
) -> Result<(), DriverError> {
    let bytes = to.len();
    share(bytes, to.chunks_mut(PIECE).enumerate(), |(i, piece)| {
        ready(i)?;
        from.read(at + i * PIECE, piece)
    })
}

/// Copies `bytes` to what lies at `at` of `staged`, and queues their copy from there to `to` in `stream`.
///
/// # Errors
/// The range is not inside, or the driver fails.
pub(crate) fn upload(
    context: &Arc<dyn Context>,
    (staged, at): (&Arc<dyn Pinned>, usize),
    bytes: &[u8],
    to: DevicePtr,
    stream: StreamId,
) -> Result<(), DriverError> {
    share(bytes.len(), pieces(bytes.len()), |r| {
        staged.write(at + r.start, &bytes[r.clone()])?;
        let to = to.offset(r.start as u64);
        context.upload_from(to, staged, at + r.start..at + r.end, stream)
    })
}

/// Does `each` for every one of `pieces`, in turns by as many threads as [`staging::threads`] says of `bytes` and the
/// machine has.
///
/// # Errors
/// Of the pieces that fail, one's error; later pieces of its thread are left out.
fn share<T: Send, E: Send>(
    bytes: usize,
    pieces: impl ExactSizeIterator<Item = T>,
    each: impl Fn(T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = staging::threads(bytes).min(cores);
    if threads <= 1 {
        return pieces.into_iter().try_for_each(each);
    }
    let mut lists: Vec<Vec<T>> = (0..threads).map(|_| vec![]).collect();
    for (i, piece) in pieces.enumerate() {
        lists[i % threads].push(piece);
    }
    let own = lists.swap_remove(0);
    let each = &each;
    std::thread::scope(|s| {
        let spawn = |list: Vec<T>| s.spawn(move || list.into_iter().try_for_each(each));
        let others: Vec<_> = lists.into_iter().map(spawn).collect();
        let mut done = own.into_iter().try_for_each(each);
        for other in others {
            match other.join() {
                Ok(d) => done = done.and(d),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::{PIECE, pieces, share};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn pieces_cover_all_bytes_once() {
        for bytes in [0, 1, PIECE - 1, PIECE, PIECE + 1, 9 * PIECE + 5] {
            let mut end = 0;
            for p in pieces(bytes) {
                assert_eq!(p.start, end);
                assert!(!p.is_empty() && p.len() <= PIECE);
                end = p.end;
            }
            assert_eq!(end, bytes);
        }
    }

    #[test]
    fn each_piece_is_done_once_and_an_error_is_given() {
        let bytes = 11 * PIECE;
        let sum = AtomicUsize::new(0);
        let all = share(bytes, pieces(bytes), |r| {
            sum.fetch_add(r.len(), Ordering::Relaxed);
            Ok::<(), usize>(())
        });
        assert_eq!((all, sum.into_inner()), (Ok(()), bytes));
        let failed = share(bytes, pieces(bytes), |r| {
            if r.start == 5 * PIECE {
                Err(r.start)
            } else {
                Ok(())
            }
        });
        assert_eq!(failed, Err(5 * PIECE));
    }
}
