//! A task at work.

use super::calls;
use super::program::CKernel;
use super::view::{Axes, View};
use workers::prefetch::prefetch_line_for_write;

/// Bytes of a row from which on its distance to the next matters, and what it is a multiple of then.
pub(crate) const WAY: i64 = 2048;

/// Bytes between such rows.
pub(crate) const SPACING: i64 = 64;

/// Why a task failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An index outside `-extent..extent`.
    Index { value: i64, extent: i64 },
}

impl Fault {
    pub(crate) fn text(self) -> String {
        match self {
            Fault::Index { value, extent } => {
                format!(
                    "index {value} is outside -{extent}..{extent}; give indices within the indexed dimension"
                )
            }
        }
    }
}

/// A task at work: everything an operation may look at.
pub(crate) struct Ctx<'a> {
    pub kernel: &'a CKernel,
    /// Parameters' values.
    pub p: &'a [i64],
    /// Addresses of the block's buffers.
    pub bufs: &'a [*mut u8],
    /// This worker's scratch memory, `kernel.scratch` bytes.
    pub scratch: *mut u8,
    /// Current tiles.
    pub views: &'a mut [View],
    /// Zeros, `kernel.zeros` bytes.
    pub zeros: *const u8,
    /// First coordinate of the current piece of each axis.
    pub org: Axes<i64>,
    /// Positions of the current piece of each axis.
    pub len: Axes<i64>,
    /// Who watches what this task comes down to, if anybody.
    pub trace: Option<&'a calls::Trace>,
}

impl Ctx<'_> {
    /// Value of parameter `i`.
    pub(crate) fn param(&self, i: u32) -> i64 {
        self.p[i as usize]
    }

    /// This operation's own scratch from `offset` on.
    pub(crate) fn area(&self, offset: usize) -> *mut u8 {
        self.scratch.wrapping_add(self.kernel.area + offset)
    }

    /// Makes `v` the dense view of `tile` in scratch memory.
    pub(crate) fn lay_scratch(&self, tile: usize, v: &mut View) {
        let t = &self.kernel.tiles[tile];
        v.clear(View::SCRATCH);
        v.ptr = self.scratch.wrapping_add(t.offset);
        let mut st = 1;
        for (i, &a) in t.axes.iter().rev().enumerate() {
            v.st[a] = st;
            st *= self.len[a];
            if i == 0 && t.spaced && st * t.elem as i64 % WAY == 0 {
                st += SPACING / t.elem as i64;
            }
        }
    }

    /// Makes `v` where `tile` is to be written: the operand it is stored to when that is legal and fast,
    /// otherwise scratch memory.
    pub(crate) fn lay_out(&self, tile: usize, v: &mut View) {
        let t = &self.kernel.tiles[tile];
        if let Some(o) = t.direct {
            let o = &self.kernel.operands[o];
            if o.access.bounds_hold(self, t.mask) && o.access.lay(self, t.mask, o, false, v) {
                let lane = t.axes.iter().rev().find(|&&a| self.len[a] > 1);
                if lane.is_none_or(|&a| v.st[a] == 1) {
                    v.direct = true;
                    prefetch_line_for_write(v.ptr);
                    return;
                }
            }
        }
        self.lay_scratch(tile, v);
    }

    /// Has `lay` write the views of tiles, which it is given beside the rest.
    pub(crate) fn lay_with<R>(&mut self, lay: impl FnOnce(&Self, &mut [View]) -> R) -> R {
        let views = std::mem::take(&mut self.views);
        let r = lay(self, views);
        self.views = views;
        r
    }
}
