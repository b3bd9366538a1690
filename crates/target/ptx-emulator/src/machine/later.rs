//! What asynchronous copies do at a later step.

use crate::clocks::LaneSync;
use crate::tensor_map::Convert;

/// Bytes in a row: where in global memory, none for zeros, and where in shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub global: Option<(usize, u64)>,
    pub shared: u32,
    pub bytes: u32,
}

impl Piece {
    /// Words of shared memory that it touches.
    pub fn words(&self) -> std::ops::Range<usize> {
        (self.shared / 4) as usize..(self.shared + self.bytes).div_ceil(4) as usize
    }

    /// Its bytes in word `w`, a bit each.
    pub fn mask(&self, w: usize) -> u8 {
        let at = 4 * w as u32;
        let inside = |b: &u32| (self.shared..self.shared + self.bytes).contains(&(at + b));
        (0..4).filter(inside).fold(0, |m, b| m | 1 << b)
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Global memory to shared memory, counted at a barrier.
    Load {
        pieces: Vec<Piece>,
        bytes: u32,
        /// What becomes of its elements.
        convert: Convert,
        barrier: u32,
        /// The barrier's phase when it began.
        phase: u32,
    },
    /// Words, and whether they were written, to shared memory, counted at a barrier.
    Put {
        to: u32,
        data: Vec<(u32, bool)>,
        barrier: u32,
        phase: u32,
    },
    /// Shared memory to global memory, of the lane's group so and so.
    Store { pieces: Vec<Piece>, group: u32 },
    /// An arrival when the lane's `cp.async` up to this number have come.
    Arrive { upto: u32, barrier: u32 },
}

#[derive(Debug, Clone)]
pub(crate) struct Later {
    pub warp: u32,
    pub lane: u32,
    pub pc: u32,
    /// What its lane knew when it began.
    pub knows: LaneSync,
    /// Its CTA has ended already.
    pub late: bool,
    pub step: Step,
}
