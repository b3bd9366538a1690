//! Memory of requests to a kernel that stays: a few slots, which callers take in turn.
use device::{DeviceError, Permit};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest sleep of a request that may be called off.
const LOOK: Duration = Duration::from_millis(1);

/// An error once the request was called off.
pub(super) fn wanted(permit: Permit<'_>) -> Result<(), DeviceError> {
    match permit.called_off() {
        true => Err(DeviceError::Cancelled),
        false => Ok(()),
    }
}

/// What each slot's tables were written for, by stretch: whether times are asked for, symbols, then
/// addresses of states.
type Written = Vec<Option<Vec<i64>>>;

/// Who has which slot.
struct Uses {
    free: Vec<usize>,
    written: Vec<Written>,
    /// Times that the slots were cleared: no tables from before count.
    cleared: u64,
}

/// The slots of a block.
pub(super) struct Slots {
    uses: Mutex<Uses>,
    freed: Condvar,
}

/// A slot while a request has it.
pub(super) struct Taken<'a> {
    of: &'a Slots,
    pub slot: usize,
    /// What its tables on the device are for, by stretch.
    pub written: Written,
    cleared: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut uses = self.of.uses();
        if uses.cleared == self.cleared {
            uses.written[self.slot] = std::mem::take(&mut self.written);
        }
        uses.free.push(self.slot);
        self.of.freed.notify_one();
    }
}

impl Slots {
    /// `count` slots with nothing written, of `stretches` tables each.
    pub fn new(count: usize, stretches: usize) -> Slots {
        Slots {
            uses: Mutex::new(Uses {
                free: (0..count).rev().collect(),
                written: vec![vec![None; stretches]; count],
                cleared: 0,
            }),
            freed: Condvar::new(),
        }
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot, one whose tables are those for `key` if there is; waits while none is free.
    ///
    /// # Errors
    /// The request is called off.
    pub fn take(&self, key: &[i64], permit: Permit<'_>) -> Result<Taken<'_>, DeviceError> {
        let mut uses = self.uses();
        loop {
            if let Err(e) = wanted(permit) {
                // It may be this one that was woken for a slot.
                self.freed.notify_one();
                return Err(e);
            }
            let has = |&n: &usize| uses.written[n][0].as_deref() == Some(key);
            let at = uses.free.iter().position(has);
            let last = uses.free.len().checked_sub(1);
            if let Some(at) = at.or(last) {
                let slot = uses.free.swap_remove(at);
                let none = vec![None; uses.written[slot].len()];
                let written = std::mem::replace(&mut uses.written[slot], none);
                return Ok(Taken {
                    of: self,
                    slot,
                    written,
                    cleared: uses.cleared,
                });
            }
            // Nobody wakes who is called off.
            uses = match permit.cancel {
                None => self.freed.wait(uses),
                Some(_) => match self.freed.wait_timeout(uses, LOOK) {
                    Ok((uses, _)) => Ok(uses),
                    Err(e) => Err(PoisonError::new(e.into_inner().0)),
                },
            }
            .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the slots were cleared since `taken` was.
    pub fn cleared_since(&self, taken: &Taken<'_>) -> bool {
        self.uses().cleared != taken.cleared
    }

    /// From now on no tables are written in any slot.
    pub fn clear(&self) {
        let mut uses = self.uses();
        uses.cleared += 1;
        uses.written.iter_mut().for_each(|w| w.fill(None));
    }
}
