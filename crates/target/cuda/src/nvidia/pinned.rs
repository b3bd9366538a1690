//! Memory of the host that the driver has locked, so that a GPU reads and writes it.
use super::{Open, Shared, inside};
use crate::driver::{DevicePtr, Pinned};
use crate::error::DriverError;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Pinned memory of the driver.
pub(super) struct PinnedHost {
    pub open: Arc<Open>,
    pub at: NonNull<u8>,
    pub len: usize,
}

// SAFETY: the memory is only copied from and to, and its words are atomics.
unsafe impl Send for PinnedHost {}
// SAFETY: as above.
unsafe impl Sync for PinnedHost {}

impl PinnedHost {
    fn word(&self, call: &'static str, offset: usize) -> Result<&AtomicU32, DriverError> {
        let end = offset.checked_add(4);
        if !offset.is_multiple_of(4) || end.is_none_or(|e| e > self.len) {
            return Err(DriverError::Argument {
                call,
                why: format!("no 32-bit word at {offset} of {} bytes", self.len),
            });
        }
        // SAFETY: inside, aligned, and alive as long as `self`; a word is only touched as an atomic
        // or by the copies of `read` and `write`, which callers order by other words.
        Ok(unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(offset).cast()) })
    }
}

impl Pinned for PinnedHost {
    fn len(&self) -> usize {
        self.len
    }

    fn device_ptr(&self) -> DevicePtr {
        DevicePtr(self.at.as_ptr() as usize as u64)
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DriverError> {
        inside("read", &(offset..offset.saturating_add(to.len())), self.len)?;
        // SAFETY: the range is inside; the device may be writing it, which is no access of Rust's: a
        // caller who wants sense in it has acquired the word that says that it is written.
        unsafe { std::ptr::copy(self.at.as_ptr().add(offset), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<(), DriverError> {
        inside(
            "write",
            &(offset..offset.saturating_add(from.len())),
            self.len,
        )?;
        // SAFETY: as `read`.
        unsafe { std::ptr::copy(from.as_ptr(), self.at.as_ptr().add(offset), from.len()) };
        Ok(())
    }

    fn load_acquire(&self, offset: usize) -> Result<u32, DriverError> {
        Ok(self.word("load_acquire", offset)?.load(Ordering::Acquire))
    }

    fn store_release(&self, offset: usize, value: u32) -> Result<(), DriverError> {
        self.word("store_release", offset)?
            .store(value, Ordering::Release);
        Ok(())
    }
}

impl Drop for PinnedHost {
    fn drop(&mut self) {
        self.open
            .pinned()
            .remove(&(self.at.as_ptr() as usize as u64));
        self.open
            .gone()
            .pinned
            .push(Shared(self.at.as_ptr().cast()));
    }
}
