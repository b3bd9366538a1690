//! Zeroed memory aligned to 64 bytes, for arenas, scratch and packed weights. Large buffers are pages of their
//! own (`pages`).
use crate::DeviceError;
use crate::pages::Pages;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Zeroed bytes aligned to 64, the size of a cache line and of the widest vector. Large ones are
/// pages of their own: they cost nothing until touched and go back to the system when dropped.
#[derive(Debug)]
pub struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
    /// Bytes before `start` that came with it from the allocator.
    ahead: usize,
    /// Keeps the memory where it came as pages.
    pages: Option<Pages>,
}

// SAFETY: the bytes are owned, like a Vec's.
unsafe impl Send for AlignedBytes {}
// SAFETY: shared references give shared access only.
unsafe impl Sync for AlignedBytes {}

/// From this size on memory comes as pages of its own.
const LARGE: usize = 1 << 20;

/// Alignment that is asked of the allocator: at this one it may have pages at hand that are zero already, at
/// [`AlignedBytes::ALIGN`] it writes zeros to every one.
const PLAIN: usize = 16;

impl AlignedBytes {
    /// Alignment in bytes.
    pub const ALIGN: usize = 64;

    /// `len` zeroed bytes for `what`.
    pub fn new(len: usize, what: &str) -> Result<AlignedBytes, DeviceError> {
        if len == 0 {
            return Ok(AlignedBytes {
                start: NonNull::<AlignUnit>::dangling().cast(),
                len,
                ahead: 0,
                pages: None,
            });
        }
        let fail = || DeviceError::Memory {
            what: what.into(),
            bytes: len as u64,
        };
        if len >= LARGE
            && let Some(pages) = Pages::new(len)
        {
            let pages = pages.map_err(|_| fail())?;
            return Ok(AlignedBytes {
                start: pages.start(),
                len,
                ahead: 0,
                pages: Some(pages),
            });
        }
        let whole = len.checked_add(Self::ALIGN).ok_or_else(fail)?;
        let layout = Layout::from_size_align(whole, PLAIN).map_err(|_| fail())?;
        // SAFETY: the layout's size is not 0.
        let given = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(fail)?;
        let ahead = given.align_offset(Self::ALIGN);
        // An allocator whose memory cannot be aligned is one that has none.
        if ahead >= Self::ALIGN {
            // SAFETY: just allocated with this layout.
            unsafe { dealloc(given.as_ptr(), layout) };
            return Err(fail());
        }
        // SAFETY: less than `ALIGN` further, which the allocation is longer than `len`.
        let start = unsafe { given.add(ahead) };
        Ok(AlignedBytes {
            start,
            len,
            ahead,
            pages: None,
        })
    }

    /// Makes it at least `len` bytes long; what it holds then is unspecified. Pages that it has stay,
    /// so that there is never more memory than the new length, nor any that was paid for given back.
    ///
    /// # Errors
    /// There is no such memory; it is then empty.
    pub fn grow(&mut self, len: usize, what: &str) -> Result<(), DeviceError> {
        if len <= self.len {
            return Ok(());
        }
        match self.pages.take() {
            Some(pages) => {
                self.len = 0;
                let pages = pages.grown(len).map_err(|()| DeviceError::Memory {
                    what: what.into(),
                    bytes: len as u64,
                })?;
                self.start = pages.start();
                self.pages = Some(pages);
                self.len = len;
            }
            None => {
                *self = AlignedBytes::new(0, what)?;
                *self = AlignedBytes::new(len, what)?;
            }
        }
        Ok(())
    }

    /// First byte; valid for `len` bytes while this lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[repr(align(64))]
struct AlignUnit;

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes from `start`, owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes from `start`, owned and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.len > 0 && self.pages.is_none() {
            // SAFETY: allocated in `new` that far ahead with this size and alignment, not freed before.
            unsafe {
                dealloc(
                    self.start.as_ptr().sub(self.ahead),
                    Layout::from_size_align_unchecked(self.len + Self::ALIGN, PLAIN),
                )
            }
        }
    }
}
