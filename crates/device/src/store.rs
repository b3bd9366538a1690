use crate::{AlignedBytes, DeviceError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Identity of an init result: a hash over the kernels and schedules that make it and the weights
/// they start from.
pub type PackedKey = [u8; 32];

/// Init results shared by all plans of an engine that make the same; kept while somebody holds them.
#[derive(Debug, Default)]
pub struct PackedStore {
    entries: Mutex<BTreeMap<PackedKey, Weak<AlignedBytes>>>,
}

impl PackedStore {
    /// An empty store.
    pub fn new() -> PackedStore {
        PackedStore::default()
    }

    /// The result for `key`, if somebody holds it.
    pub fn get(&self, key: &PackedKey) -> Option<Arc<AlignedBytes>> {
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
        make: impl FnOnce() -> Result<AlignedBytes, DeviceError>,
    ) -> Result<Arc<AlignedBytes>, DeviceError> {
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
