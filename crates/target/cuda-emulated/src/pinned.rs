//! Host memory that kernels see while they run.
use crate::context::Emulated;
use crate::hook::Happened;
use cuda::{DevicePtr, DriverError, Pinned};
use ptx_emulator::HostOrder;
use std::sync::Arc;

/// Pinned memory; freed when dropped.
pub(crate) struct PinnedHost {
    pub gpu: Arc<Emulated>,
    pub at: u64,
    pub len: usize,
}

impl PinnedHost {
    fn inside(&self, call: &'static str, offset: usize, bytes: usize) -> Result<u64, DriverError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len => Ok(self.at + offset as u64),
            _ => Err(DriverError::Argument {
                call,
                why: format!("{bytes} bytes from {offset} on of {}", self.len),
            }),
        }
    }

    fn word(&self, call: &'static str, offset: usize) -> Result<u64, DriverError> {
        if !offset.is_multiple_of(4) {
            return Err(DriverError::Argument {
                call,
                why: format!("offset {offset} is no multiple of 4"),
            });
        }
        self.inside(call, offset, 4)
    }
}

impl Pinned for PinnedHost {
    fn len(&self) -> usize {
        self.len
    }

    fn device_ptr(&self) -> DevicePtr {
        DevicePtr(self.at)
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DriverError> {
        let at = self.inside("read", offset, to.len())?;
        let bytes = self.gpu.lock().host_load(at, to.len(), HostOrder::Weak)?;
        to.copy_from_slice(&bytes);
        Ok(())
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<(), DriverError> {
        let at = self.inside("write", offset, from.len())?;
        self.gpu.lock().host_store(at, from, HostOrder::Weak)
    }

    fn load_acquire(&self, offset: usize) -> Result<u32, DriverError> {
        let at = self.word("load_acquire", offset)?;
        let mut s = self.gpu.lock();
        // A kernel's turn: whoever polls a word waits for one.
        s.told.tell(Happened::Polled);
        s.advance();
        let b = s.host_load(at, 4, HostOrder::Acquire)?;
        Ok(b.iter().rev().fold(0, |w, b| w << 8 | u32::from(*b)))
    }

    fn store_release(&self, offset: usize, value: u32) -> Result<(), DriverError> {
        let at = self.word("store_release", offset)?;
        let bytes = value.to_le_bytes();
        self.gpu.lock().host_store(at, &bytes, HostOrder::Release)
    }
}

impl Drop for PinnedHost {
    fn drop(&mut self) {
        self.gpu.freed().push(self.at);
    }
}
