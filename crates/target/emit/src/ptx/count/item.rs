//! A text as instructions and the parts that loops and conditions make of it.

use super::words::{Kind, Word, Words};
use crate::ptx::lines::Lines;
use crate::simt::lanes;
use std::ops::Range;

/// What a stretch of text is made of.
pub(in crate::ptx) enum Item {
    /// An instruction, and what its lanes touch.
    Word(Word, lanes::Footprint),
    /// A part that is jumped over where a condition fails, or run so often.
    Part {
        /// Which of the text's parts it is.
        number: usize,
        times: f64,
        looped: bool,
        body: Vec<Item>,
    },
    /// Pieces that some warps copy while the others compute with them.
    Sides(Box<Sides>),
}

/// What is done for each piece of a pipeline.
pub(in crate::ptx) struct Sides {
    /// By one of the warps that copy.
    pub copy: Vec<Item>,
    /// By each of the warps that compute, before the first piece of a task: the others copy meanwhile.
    pub before: Vec<Item>,
    /// By each of the warps that compute.
    pub compute: Vec<Item>,
    pub pieces: f64,
    /// Where CTAs walk tasks: what those that compute do behind the pieces of each, and how many there are of a CTA.
    pub walk: Option<(Vec<Item>, f64)>,
    /// Stages, and how many pieces later one is free.
    pub stages: u32,
    pub behind: u32,
    /// Warps that copy, those of them that take turns, and all of the CTA.
    pub copiers: u32,
    pub turns: u32,
    pub warps: u32,
}

impl Sides {
    /// The share of the CTA's warps that compute.
    pub fn computing(&self) -> f64 {
        1.0 - f64::from(self.copiers) / f64::from(self.warps)
    }
}

/// Reads lines into items.
pub(in crate::ptx) struct Reader<'a> {
    words: Words<'a>,
    pub(super) parts: usize,
}

impl<'a> Reader<'a> {
    pub fn new(lines: &'a Lines) -> Reader<'a> {
        Reader {
            words: Words::of(lines),
            parts: 0,
        }
    }

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

    /// The instructions of these lines, a stretch that is gone through from its first to its last; those that touch memory touch `touch`.
    pub fn read(&mut self, lines: Range<usize>, touch: lanes::Footprint, out: &mut Vec<Item>) {
        out.extend(lines.map(|at| Item::Word(self.words.word(at), touch)));
    }
}

/// Whether a line is where a warp may have to wait, or that others must not be moved past.
pub(super) fn waits(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Barrier
            | Kind::Commit
            | Kind::Wait(_)
            | Kind::ProductCommit
            | Kind::ProductWait(_)
            | Kind::Fence
    )
}
