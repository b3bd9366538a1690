//! A text as instructions and the parts that loops and conditions make of it.

use super::words::{self, Kind, Names, Word};
use crate::simt::lanes;

/// What a stretch of text is made of.
pub(in crate::ptx) enum Item {
    /// An instruction, and what its lanes touch.
    Word(Word, lanes::Touch),
    /// A part that is jumped over where a condition fails, or run so often.
    Part {
        /// Which of the text's parts it is.
        number: usize,
        times: f64,
        looped: bool,
        body: Vec<Item>,
    },
}

/// Reads lines into items.
#[derive(Default)]
pub(in crate::ptx) struct Reader {
    pub(super) names: Names,
    pub(super) parts: usize,
}

impl Reader {
    /// The part of the text that `body` is.
    pub fn part(&mut self, times: f64, looped: bool, body: Vec<Item>) -> Item {
        self.parts += 1;
        Item::Part {
            number: self.parts - 1,
            times,
            looped,
            body,
        }
    }

    /// The instructions of `text`, a stretch without jumps; those that touch memory touch `touch`.
    pub fn read(&mut self, text: &str, touch: lanes::Touch, out: &mut Vec<Item>) {
        for line in text.lines() {
            if let Some(w) = words::word(line, &mut self.names) {
                out.push(Item::Word(w, touch));
            }
        }
    }
}

/// Whether a line is where a warp may have to wait, or that others must not be moved past.
pub(super) fn waits(kind: Kind) -> bool {
    matches!(kind, Kind::Barrier | Kind::Commit | Kind::Wait(_))
}
