//! A value that requests read while others replace it.
use std::sync::{Arc, PoisonError, RwLock};

/// What is current of something: read by every request, replaced rarely.
pub(crate) struct Shared<T>(RwLock<Option<Arc<T>>>);

impl<T> Shared<T> {
    pub fn empty() -> Shared<T> {
        Shared(RwLock::new(None))
    }

    /// What is there now.
    pub fn load(&self) -> Option<Arc<T>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts `value` there; gives what was.
    pub fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        let mut there = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut there, value)
    }
}
