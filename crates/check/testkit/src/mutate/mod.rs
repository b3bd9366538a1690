//! Damaged copies of files, for tests of readers that must refuse them in one sentence.
//!
//! [`damaged`] knows nothing of what it damages; `proto`, `text` and `zip` keep what a reader
//! checks first (lengths, brackets, check sums), so that the damage reaches what lies behind.
use crate::random::Rng;

pub(crate) mod proto;
pub(crate) mod text;
pub(crate) mod zip;

pub use proto::damaged_proto;
pub use text::damaged_text;
pub use zip::{stored, unstored};

/// A copy of `bytes` damaged in one to four places: bits flipped, bytes set, ranges removed,
/// repeated or swapped, the end cut off, or numbers made enormous.
pub fn damaged(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..1 + rng.below(4) {
        if out.is_empty() {
            break;
        }
        let n = out.len();
        let at = rng.below(n);
        let len = 1 + rng.below(16.min(n - at));
        match rng.below(8) {
            0 | 1 => out[at] ^= 1 << rng.below(8),
            2 => out[at] = rng.of(&[0, 1, 0x7f, 0x80, 0xff]),
            3 => {
                out.drain(at..at + len);
            }
            4 => {
                let piece = out[at..at + len].to_vec();
                let to = rng.below(n);
                out.splice(to..to, piece);
            }
            5 => {
                let other = rng.below(n - len + 1);
                for i in 0..len {
                    out.swap(at + i, other + i);
                }
            }
            // A number that goes on: lengths and sizes of any amount.
            6 => out[at..at + len].fill(0xff),
            _ => {
                if rng.once_in(4) {
                    out.truncate(at);
                }
            }
        }
    }
    out
}
