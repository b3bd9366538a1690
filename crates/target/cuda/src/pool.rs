//! Device memory that is used again: getting it from the driver may block behind a running kernel.
use crate::{Context, DevicePtr, DriverError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory is handed out in multiples of so many bytes.
const GRAIN: u64 = 512;

/// What a pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Bytes in blocks that somebody holds.
    pub allocated: u64,
    /// Bytes taken from the driver, free blocks included.
    pub reserved: u64,
    /// The most that was ever allocated.
    pub peak: u64,
}

#[derive(Default)]
struct State {
    /// Free blocks by size.
    free: BTreeMap<u64, Vec<DevicePtr>>,
    used: PoolUse,
}

/// Blocks of device memory by size; free ones stay reserved until [`Pool::trim`].
pub struct Pool {
    context: Arc<dyn Context>,
    state: Mutex<State>,
}

/// A block of device memory, back in its pool when dropped.
pub struct Block {
    pool: Arc<Pool>,
    ptr: DevicePtr,
    size: u64,
    bytes: u64,
}

impl Block {
    /// Its address.
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Bytes asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut s = self.pool.lock();
        s.used.allocated -= self.size;
        s.free.entry(self.size).or_default().push(self.ptr);
    }
}

impl Pool {
    /// An empty pool.
    pub fn new(context: Arc<dyn Context>) -> Arc<Pool> {
        Arc::new(Pool {
            context,
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that a block of `bytes` bytes takes at least.
    pub fn size(bytes: u64) -> u64 {
        bytes
            .max(1)
            .checked_next_multiple_of(GRAIN)
            .unwrap_or(u64::MAX)
    }

    /// A block of `bytes` bytes; its contents mean nothing. A free block up to an eighth too large is
    /// taken before the driver is asked, and free blocks go back to the driver before this fails.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`].
    pub fn take(self: &Arc<Pool>, bytes: u64) -> Result<Block, DriverError> {
        let size = bytes
            .max(1)
            .checked_next_multiple_of(GRAIN)
            .ok_or_else(|| DriverError::Argument {
                call: "take",
                why: format!("{bytes} bytes are more than there can be"),
            })?;
        let fits = |s: &mut State| {
            let most = size.saturating_add(size / 8);
            let found = *s.free.range(size..=most).next()?.0;
            let list = s.free.get_mut(&found)?;
            let ptr = list.pop()?;
            if list.is_empty() {
                s.free.remove(&found);
            }
            Some((ptr, found))
        };
        let mut s = self.lock();
        let (ptr, size) = match fits(&mut s) {
            Some(block) => block,
            None => {
                let ptr = match self.context.allocate(size) {
                    Err(DriverError::OutOfMemory { .. }) if !s.free.is_empty() => {
                        self.release(&mut s)?;
                        self.context.allocate(size)?
                    }
                    r => r?,
                };
                s.used.reserved += size;
                (ptr, size)
            }
        };
        s.used.allocated += size;
        s.used.peak = s.used.peak.max(s.used.allocated);
        drop(s);
        Ok(Block {
            pool: self.clone(),
            ptr,
            size,
            bytes,
        })
    }

    /// Bytes allocated and reserved.
    pub fn used(&self) -> PoolUse {
        self.lock().used
    }

    /// Gives free blocks back to the driver.
    ///
    /// # Errors
    /// The driver fails.
    pub fn trim(&self) -> Result<(), DriverError> {
        self.release(&mut self.lock())
    }

    fn release(&self, s: &mut State) -> Result<(), DriverError> {
        while let Some((size, list)) = s.free.pop_first() {
            for ptr in list {
                s.used.reserved -= size;
                self.context.free(ptr)?;
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.trim();
    }
}
