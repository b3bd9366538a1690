//! Where tiles lie in memory.

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
    pub(super) fn clear(&mut self, buffer: u32) {
        self.ptr = std::ptr::null_mut();
        self.st.fill(0);
        self.block = None;
        self.direct = false;
        self.buffer = buffer;
    }
}
