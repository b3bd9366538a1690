//! A warpgroup: four warps that multiply together, and which of a warp's registers are in use by it.

use crate::clocks::LaneSync;
use crate::program::R;
use std::collections::VecDeque;
use std::sync::Arc;

/// The factors of one product, opened: A by rows, B by steps of k.
#[derive(Debug, Default)]
pub(crate) struct Tiles {
    pub a: Vec<f32>,
    pub b: Vec<f32>,
}

/// Four warps of a CTA.
#[derive(Debug, Default)]
pub(crate) struct Warpgroup {
    /// The product that warps came to, and which of them, a bit each.
    pub pc: u32,
    pub came: u8,
    /// Warps that may go on with `tiles`.
    pub go: u8,
    pub tiles: Arc<Tiles>,
    pub descriptors: [u64; 2],
    /// What the warps that came know, each once.
    pub knows: Vec<LaneSync>,
    /// Who reads shared memory for it, and its products so far.
    pub agent: u32,
    pub products: u32,
}

/// How products use a 32-bit register.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowUse {
    /// The last product that adds to it, its width and instruction.
    pub sum: u32,
    pub n: u32,
    pub pc: u32,
    /// The last product that reads it as A.
    pub factor: u32,
    /// The stretch between fences in which an ordinary instruction wrote it.
    pub written: u32,
}

/// Sums of products in flight, by rows, which go into their registers when they are waited for.
#[derive(Debug)]
pub(crate) struct Held {
    pub registers: Vec<R>,
    pub sums: Vec<f32>,
    /// The last product that added to them.
    pub product: u32,
}

/// Registers of a warp that products use.
#[derive(Debug)]
pub(crate) struct Flight {
    pub rows: Vec<RowUse>,
    /// The stretch between fences, from 1.
    pub stretch: u32,
    /// The newest product, and the newest that was waited for.
    pub newest: u32,
    pub retired: u32,
    /// The newest product of each group that was not waited for.
    pub groups: VecDeque<u32>,
    pub held: Vec<Held>,
}

impl Flight {
    /// For so many registers.
    pub fn new(rows: usize) -> Flight {
        Flight {
            rows: vec![RowUse::default(); rows],
            stretch: 1,
            newest: 0,
            retired: 0,
            groups: VecDeque::new(),
            held: Vec::new(),
        }
    }

    /// Closes a group.
    pub fn commit(&mut self) {
        self.groups.push_back(self.newest);
    }

    /// All but the newest `keep` groups are complete; gives the newest product that is.
    pub fn wait(&mut self, keep: u32) -> u32 {
        while self.groups.len() > keep as usize {
            if let Some(done) = self.groups.pop_front() {
                self.retired = self.retired.max(done);
            }
        }
        self.retired
    }
}
