//! Init results (packed weights, folded constants): shared by all plans of an engine, and taken from a cache's
//! shelf where an earlier process left them.
use crate::{AlignedBytes, DeviceError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tensor::Bytes;

/// Identity of an init result: a hash over the kernels and schedules that make it and the weights
/// they start from.
pub type PackedKey = [u8; 32];

/// An init result: made here, or mapped from where an earlier process left it.
#[derive(Debug)]
pub enum PackedBytes {
    /// Made by this process.
    Own(AlignedBytes),
    /// Read only, from a file.
    Mapped(Bytes),
}

impl PackedBytes {
    /// First byte; not to be written to.
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            PackedBytes::Own(b) => b.as_ptr(),
            PackedBytes::Mapped(b) => b[..].as_ptr(),
        }
    }
}

impl std::ops::Deref for PackedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            PackedBytes::Own(b) => b,
            PackedBytes::Mapped(b) => b,
        }
    }
}

/// Init results and code that earlier processes left.
pub trait Shelf: Sync {
    /// The digest of the contents of the file with this identity (of [`tensor::Owner::identity`]),
    /// where it is known: keys then say what was packed, not where it lay.
    fn contents(&self, file: &[u8; 32]) -> Option<[u8; 32]> {
        let _ = file;
        None
    }
    /// The result for `key`: exactly `bytes` bytes, found sound. `None` when it is not there or
    /// damaged: it is then made anew.
    fn get(&self, key: &PackedKey, bytes: usize) -> Option<Bytes>;
    /// The code that a driver made and that was kept under `key`, else what `make` gives, which is then kept. `None` where
    /// nothing is kept: the driver need not give away what it makes.
    fn code(&self, key: &PackedKey, make: &mut dyn FnMut() -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let _ = (key, make);
        None
    }
}

/// Nothing was left.
pub struct EmptyShelf;

impl Shelf for EmptyShelf {
    fn get(&self, _key: &PackedKey, _bytes: usize) -> Option<Bytes> {
        None
    }
}

/// Init results shared by all plans of an engine that make the same; kept while somebody holds them.
#[derive(Debug, Default)]
pub struct PackedStore {
    entries: Mutex<BTreeMap<PackedKey, Weak<PackedBytes>>>,
}

impl PackedStore {
    /// An empty store.
    pub fn new() -> PackedStore {
        PackedStore::default()
    }

    /// The result for `key`, if somebody holds it.
    pub fn get(&self, key: &PackedKey) -> Option<Arc<PackedBytes>> {
        self.entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .and_then(Weak::upgrade)
    }

    /// The result for `key`, made by `make` unless somebody holds it.
    pub fn get_or_make(
        &self,
        key: PackedKey,
        make: impl FnOnce() -> Result<PackedBytes, DeviceError>,
    ) -> Result<Arc<PackedBytes>, DeviceError> {
        if let Some(hit) = self.get(&key) {
            return Ok(hit);
        }
        let made = Arc::new(make()?);
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have made it meanwhile: theirs is kept, so that it exists once.
        if let Some(hit) = entries.get(&key).and_then(Weak::upgrade) {
            return Ok(hit);
        }
        entries.retain(|_, w| w.strong_count() > 0);
        entries.insert(key, Arc::downgrade(&made));
        Ok(made)
    }

    /// Bytes of all results that somebody holds.
    pub fn bytes(&self) -> u64 {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries
            .values()
            .filter_map(Weak::upgrade)
            .map(|b| b.len() as u64)
            .sum()
    }
}
