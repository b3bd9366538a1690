//! The kernel that stays on a GPU: one at a time in a process, whichever device it is of. Devices of one
//! GPU share its context, so that what one asks of the driver may wait for a kernel of another.
use crate::driver::Context;
use crate::resident::Live;
use std::collections::BTreeMap;
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
};

/// While this is held, the kernel that stays, or none, is the same.
pub(crate) type OwnerLock<'a> = RwLockReadGuard<'a, Option<Arc<Live>>>;

/// A GPU's kernel that stays, if one does.
#[derive(Default)]
pub(crate) struct ResidentOwner {
    live: RwLock<Option<Arc<Live>>>,
    /// Why nothing is asked of the driver any more: a kernel stays for ever.
    pub stuck: OnceLock<String>,
}

static ALL: Mutex<BTreeMap<usize, Weak<ResidentOwner>>> = Mutex::new(BTreeMap::new());

impl ResidentOwner {
    /// That of the GPU behind `context`.
    pub fn of(context: &dyn Context) -> Arc<ResidentOwner> {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(s) = all.get(&context.key()).and_then(Weak::upgrade) {
            return s;
        }
        let new = Arc::new(ResidentOwner::default());
        all.retain(|_, s| s.strong_count() > 0);
        all.insert(context.key(), Arc::downgrade(&new));
        new
    }

    /// The kernel there is; it is not told to leave, and no other one starts, while what this gives is held.
    pub fn now(&self) -> OwnerLock<'_> {
        self.live.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to start one or tell it to leave.
    pub fn change(&self) -> RwLockWriteGuard<'_, Option<Arc<Live>>> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }
}
