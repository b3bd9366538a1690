//! Memory of dropped outputs, reused for new ones within a limit. Sessions keep one recycler each.
use crate::{AlignedBytes, DeviceError};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Memory of dropped outputs, kept for the next ones: fresh memory costs a page fault for every
/// page of it. Bounded in bytes and in number; the oldest goes first.
#[derive(Debug)]
pub struct Recycler {
    free: Mutex<Vec<AlignedBytes>>,
    most: usize,
}

/// Buffers kept at most.
const MOST_BUFFERS: usize = 32;

impl Recycler {
    /// Keeps at most `most` bytes.
    pub fn new(most: usize) -> Arc<Recycler> {
        Arc::new(Recycler {
            free: Mutex::new(Vec::new()),
            most,
        })
    }

    /// `len` bytes for `what`, with any contents; they come back here when dropped.
    ///
    /// # Errors
    /// [`DeviceError::Memory`].
    pub fn take(self: &Arc<Recycler>, len: usize, what: &str) -> Result<Recycled, DeviceError> {
        let found = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            // The smallest that is large enough and not mostly wasted.
            let fits = |b: &AlignedBytes| b.len() >= len && b.len() / 2 <= len;
            let best = (0..free.len())
                .filter(|&i| fits(&free[i]))
                .min_by_key(|&i| free[i].len());
            best.map(|i| free.remove(i))
        };
        let mut bytes = match found {
            Some(b) => b,
            None => {
                // A little more than asked for, so that other sizes nearby find it of use.
                let step = (len.next_power_of_two() / 8).max(AlignedBytes::ALIGN);
                let size = len.checked_next_multiple_of(step).unwrap_or(len);
                AlignedBytes::new(size, what)?
            }
        };
        // A step that forgets part of its output shows in tests.
        if cfg!(debug_assertions) {
            bytes.fill(0xA5);
        }
        Ok(Recycled {
            bytes: Some(bytes),
            len,
            home: Arc::downgrade(self),
        })
    }

    /// Bytes kept now.
    pub fn bytes(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.iter().map(AlignedBytes::len).sum()
    }

    fn put(&self, bytes: AlignedBytes) {
        if bytes.len() > self.most {
            return;
        }
        let mut dropped = Vec::new();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(bytes);
        let mut total: usize = free.iter().map(AlignedBytes::len).sum();
        while total > self.most || free.len() > MOST_BUFFERS {
            let oldest = free.remove(0);
            total -= oldest.len();
            dropped.push(oldest);
        }
        // Given back to the system without the lock.
        drop(free);
    }
}

/// Memory from a [`Recycler`].
#[derive(Debug)]
pub struct Recycled {
    bytes: Option<AlignedBytes>,
    len: usize,
    home: Weak<Recycler>,
}

impl std::ops::Deref for Recycled {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |b| &b[..self.len])
    }
}

impl std::ops::DerefMut for Recycled {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.bytes.as_mut().map_or(&mut [], |b| &mut b[..len])
    }
}

impl tensor::Memory for Recycled {}

impl Drop for Recycled {
    fn drop(&mut self) {
        if let (Some(b), Some(home)) = (self.bytes.take(), self.home.upgrade()) {
            home.put(b);
        }
    }
}
