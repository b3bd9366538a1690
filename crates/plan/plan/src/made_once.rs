//! A value that is computed at most once per part of a program and shared by all plans that contain the part.
//! Devices keep compiled kernels in it.
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A place for what devices make of a part of a program: the first that needs it makes it, and every plan
/// that shares the part finds it there. No part of what the part is: equal to any other, and not saved.
#[derive(Clone, Default)]
pub struct MadeOnce(OnceLock<Arc<dyn Any + Send + Sync>>);

impl MadeOnce {
    /// What was made, or what `make` makes now. Only the first type asked for is kept.
    pub fn get_or_make<T: Send + Sync + 'static>(&self, make: impl Fn() -> T) -> Arc<T> {
        let kept = self.0.get_or_init(|| Arc::new(make()));
        Arc::downcast(kept.clone()).unwrap_or_else(|_| Arc::new(make()))
    }
}

impl PartialEq for MadeOnce {
    fn eq(&self, _other: &MadeOnce) -> bool {
        true
    }
}

impl fmt::Debug for MadeOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Made")
    }
}
