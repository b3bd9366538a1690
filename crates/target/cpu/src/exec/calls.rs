//! Steps that come down to one call of a micro-kernel: the next request of the same dims makes that
//! call and nothing else.
use crate::ukr::{Gemm, GemmKernel};
use std::cell::Cell;

/// A place in a block's buffer, in bytes from its start.
#[derive(Clone, Copy, Debug)]
struct BufferOffset {
    buffer: u32,
    offset: isize,
}

impl BufferOffset {
    /// `p` in `buffer`; `None` when it is none of a buffer's.
    fn of(p: *const f32, buffer: u32, bufs: &[*mut u8]) -> Option<BufferOffset> {
        let start = *bufs.get(buffer as usize)?;
        Some(BufferOffset {
            buffer,
            offset: (p as isize).wrapping_sub(start as isize),
        })
    }

    fn pointer(self, bufs: &[*mut u8]) -> *mut f32 {
        bufs[self.buffer as usize]
            .wrapping_offset(self.offset)
            .cast()
    }
}

/// A product whose operands lie in buffers.
#[derive(Debug)]
pub(crate) struct Call {
    kernel: GemmKernel,
    /// Its pointers are those of the request that was watched.
    product: Gemm,
    a: BufferOffset,
    b: BufferOffset,
    c: BufferOffset,
    bias: Option<BufferOffset>,
    added: Option<BufferOffset>,
}

impl Call {
    /// Makes the call with `bufs` as the block's buffers.
    ///
    /// # Safety
    ///
    /// The step was watched in a block whose buffers have the same sizes, under the same dims, and
    /// may run now.
    pub(crate) unsafe fn run(&self, bufs: &[*mut u8]) {
        let mut g = self.product;
        g.a = self.a.pointer(bufs);
        g.b.b = self.b.pointer(bufs);
        g.c = self.c.pointer(bufs);
        if let Some(at) = self.bias {
            g.post.bias = at.pointer(bufs);
        }
        if let Some(at) = self.added {
            g.post.from = (at.pointer(bufs) as isize).wrapping_sub(g.c as isize);
        }
        // SAFETY: the same places in the same buffers as when the step ran task by task.
        unsafe { self.kernel.gemm(&g) };
    }
}

/// Buffers of what is done to a product's sums: of the bias and of what is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources {
    pub bias: u32,
    pub added: u32,
}

/// Watches a task.
#[derive(Default)]
pub(crate) struct Trace {
    call: Cell<Option<Box<Call>>>,
    calls: Cell<u32>,
    pieces: Cell<u32>,
    spoilt: Cell<bool>,
}

impl Trace {
    /// A product is about to be made whose operands lie in `buffers` (A, B, C).
    pub(crate) fn gemm(
        &self,
        kernel: &GemmKernel,
        g: &Gemm,
        buffers: [u32; 3],
        sources: Sources,
        bufs: &[*mut u8],
    ) {
        self.calls.set(self.calls.get() + 1);
        let at = |p: *const f32, buffer: u32| BufferOffset::of(p, buffer, bufs);
        let has_bias = !g.post.bias.is_null();
        let added = g.c.cast_const().wrapping_byte_offset(g.post.from);
        let bias = at(g.post.bias, sources.bias).filter(|_| has_bias);
        let added = at(added, sources.added).filter(|_| g.post.added);
        match (
            at(g.a, buffers[0]),
            at(g.b.b, buffers[1]),
            at(g.c, buffers[2]),
        ) {
            (Some(a), Some(b), Some(c))
                if bias.is_some() == has_bias && added.is_some() == g.post.added =>
            {
                self.call.set(Some(Box::new(Call {
                    kernel: *kernel,
                    product: *g,
                    a,
                    b,
                    c,
                    bias,
                    added,
                })));
            }
            _ => self.spoil(),
        }
    }

    /// A piece of a contraction was summed, in whatever way.
    pub(crate) fn piece(&self) {
        self.pieces.set(self.pieces.get() + 1);
    }

    /// Something else was done too.
    pub(crate) fn spoil(&self) {
        self.spoilt.set(true);
    }

    /// Products so far.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.get()
    }

    /// The call, when the task was one and nothing else.
    pub(crate) fn found(self) -> Option<Box<Call>> {
        // Of several pieces some may have gone another way than by a product that is watched.
        let one = self.calls.get() == 1 && self.pieces.get() == 1 && !self.spoilt.get();
        self.call.into_inner().filter(|_| one)
    }
}

/// What is known of a step under the dims of the last request.
#[derive(Debug, Default)]
pub(crate) enum Known {
    /// It was not watched yet.
    #[default]
    New,
    /// It is one call.
    Call(Box<Call>),
    /// It is more than one call, or another kind of work.
    Other,
}
