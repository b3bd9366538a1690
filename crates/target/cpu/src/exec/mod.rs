//! Tile programs on the CPU: compiled once into a list of operations on whole tiles, run per task.
//!
//! A tile is a [`View`]: a pointer and one stride per kernel axis, either of scratch memory or of the
//! operand itself. Everything that depends on dims is a parameter number until a task runs.

pub(crate) mod access;
pub(crate) mod calls;
pub(crate) mod compile;
pub(crate) mod contract;
pub(crate) mod copy;
pub(crate) mod fold;
pub(crate) mod gather;
pub(crate) mod listed;
pub(crate) mod map;
pub(crate) mod nibbles;
pub(crate) mod pool;
pub(crate) mod relabel;
pub(crate) mod run;
pub(crate) mod transfer;
pub(crate) mod vm;

use crate::prefetch::prefetch_line_for_write;
use crate::ukr::Kernels;
use access::CAccess;
use layout::DType;

/// Axes that a kernel may have on this backend.
pub(crate) const MAX_AXES: usize = 16;
/// One value per kernel axis.
pub(crate) type Axes<T> = [T; MAX_AXES];

/// An axis whose positions lie in blocks: `size` neighbours by the view's stride, then `stride` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub axis: usize,
    pub size: i64,
    pub stride: i64,
}

/// Where a tile lies: address of its first element and strides in elements, by kernel axis
/// (0 for axes that it does not have).
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub ptr: *mut u8,
    pub st: Axes<i64>,
    pub block: Option<Block>,
    /// The memory is that of the operand that the tile is stored to.
    pub direct: bool,
    /// Block's buffer that it lies in; [`View::SCRATCH`] for none.
    pub buffer: u32,
}

impl View {
    /// Stands for memory that is no buffer's.
    pub(crate) const SCRATCH: u32 = u32::MAX;

    pub(crate) const EMPTY: View = View {
        ptr: std::ptr::null_mut(),
        st: [0; MAX_AXES],
        block: None,
        direct: false,
        buffer: View::SCRATCH,
    };

    /// As [`View::EMPTY`], in `buffer`. A view is three lines of memory: it is written where it stays, for to
    /// copy one right after it was written takes longer than all else that is done to find a tile.
    fn clear(&mut self, buffer: u32) {
        self.ptr = std::ptr::null_mut();
        self.st.fill(0);
        self.block = None;
        self.direct = false;
        self.buffer = buffer;
    }
}

/// A tensor in memory as a compiled kernel sees it.
#[derive(Debug)]
pub(crate) struct COperand {
    pub dtype: DType,
    /// Bytes per element; 0 for types of 4 bits.
    pub elem: usize,
    /// Block's buffer.
    pub buffer: usize,
    pub access: CAccess,
    /// `access.outside` as an element's bytes.
    pub outside: [u8; 8],
}

/// A tile of a compiled kernel.
#[derive(Debug)]
pub(crate) struct CTile {
    pub dtype: DType,
    /// Bytes per element.
    pub elem: usize,
    pub axes: Vec<usize>,
    /// `axes` as a bit set.
    pub mask: u32,
    /// Offset of its scratch memory.
    pub offset: usize,
    /// Operand that it may be written straight into.
    pub direct: Option<usize>,
    /// Rows of a product's left factor: they must not lie a multiple of a cache's way apart.
    pub spaced: bool,
}

/// Bytes of a row from which on its distance to the next matters, and what it is a multiple of then.
pub(crate) const WAY: i64 = 2048;
/// Bytes between such rows.
pub(crate) const SPACING: i64 = 64;

/// An operation on whole tiles.
#[derive(Debug)]
pub(crate) enum Op {
    Loop {
        axis: usize,
        tile: i64,
        body: Vec<Op>,
    },
    Load {
        dst: usize,
        operand: usize,
        in_place: bool,
    },
    Store {
        operand: usize,
        src: usize,
    },
    Map(Box<map::CMap>),
    Fold(Box<fold::CFold>),
    Contract(Box<contract::CContract>),
    Nest(Box<contract::CNest>),
    Nibbles(Box<nibbles::CNibbles>),
    Pool(Box<pool::CPool>),
    Relabel(Box<relabel::CRelabel>),
}

/// A compiled tile program.
#[derive(Debug)]
pub(crate) struct CKernel {
    /// Parameter of each axis' extent.
    pub axes: Vec<u32>,
    /// Axes of the grid with their tiles.
    pub grid: Vec<(usize, i64)>,
    pub operands: Vec<COperand>,
    pub tiles: Vec<CTile>,
    /// Axes of each tile that is stored, as a bit set.
    pub stores: Vec<u32>,
    pub body: Vec<Op>,
    /// Offset of the scratch that every operation may use for itself (programs, rows).
    pub area: usize,
    /// Offset of the row table of contractions.
    pub table: usize,
    /// Offset of packed factors.
    pub pack: usize,
    /// Scratch bytes per worker.
    pub scratch: usize,
    /// Bytes of zeros that rows outside a tensor may be read from.
    pub zeros: usize,
    pub kernels: &'static Kernels,
}

impl CKernel {
    /// Pointers that the row table has room for; 0 where there is none.
    pub(crate) fn pointers(&self) -> i64 {
        ((self.pack - self.table) / size_of::<*const f32>()) as i64
    }
}

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
