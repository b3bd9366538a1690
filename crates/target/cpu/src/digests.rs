//! Digests of kernels with their schedules, by where those lie in memory: plans of one program share them,
//! and to write one out for its digest takes longer than all else that is done about an init result at hand.
use device::DeviceError;
use kernel::{Kernel, Schedule};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The digest of a kernel and its schedule.
pub(crate) type Digest = [u8; 32];

/// What a digest was made of. As long as this is there, nothing else comes to lie in its place.
#[derive(Debug)]
struct Known {
    kernel: Weak<Kernel>,
    schedule: Weak<Schedule>,
    digest: Digest,
}

/// Entries up to which nothing is thrown away.
const FEW: usize = 64;

/// Digests of what somebody still holds.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    known: Mutex<HashMap<(usize, usize), Known>>,
}

impl Digests {
    /// The digest of `kernel` run by `schedule`.
    ///
    /// # Errors
    /// Where they have no binary form; `step` is whom the error names.
    pub fn of(
        &self,
        kernel: &Arc<Kernel>,
        schedule: &Arc<Schedule>,
        step: &str,
    ) -> Result<Digest, DeviceError> {
        let at = (Arc::as_ptr(kernel).addr(), Arc::as_ptr(schedule).addr());
        let list = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(k) = list().get(&at) {
            return Ok(k.digest);
        }
        let bytes = postcard::to_allocvec(&(kernel, schedule)).map_err(|e| unwritten(step, &e))?;
        let digest = *blake3::hash(&bytes).as_bytes();
        let mut known = list();
        if known.len() >= FEW && known.len() == known.capacity() {
            known.retain(|_, k| k.kernel.strong_count() > 0 && k.schedule.strong_count() > 0);
        }
        known.insert(
            at,
            Known {
                kernel: Arc::downgrade(kernel),
                schedule: Arc::downgrade(schedule),
                digest,
            },
        );
        Ok(digest)
    }
}

/// The error of a step that cannot be written out.
pub(crate) fn unwritten(step: &str, e: &postcard::Error) -> DeviceError {
    DeviceError::Unsupported {
        device: "cpu".into(),
        step: step.into(),
        why: format!("it has no binary form: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{CpuMapping, Family, Mapping};

    fn kernel(name: &str) -> Arc<Kernel> {
        Arc::new(Kernel {
            name: name.into(),
            family: Family::Move,
            axes: vec![],
            operands: vec![],
            tiles: vec![],
            body: vec![],
        })
    }

    fn schedule(chunk: i64) -> Arc<Schedule> {
        Arc::new(Schedule {
            grid: vec![],
            loops: vec![],
            places: vec![],
            chunk,
            raster: 1,
            mapping: Mapping::Cpu(CpuMapping {
                micro: None,
                rows: vec![],
                lanes: None,
            }),
        })
    }

    #[test]
    fn equal_things_have_equal_digests_wherever_they_lie() {
        let all = Digests::default();
        let of = |k: &Arc<Kernel>, s: &Arc<Schedule>| all.of(k, s, "step").unwrap();
        let (k, s) = (kernel("a"), schedule(1));
        let first = of(&k, &s);
        assert_eq!(of(&k, &s), first);
        assert_eq!(of(&kernel("a"), &schedule(1)), first);
        assert_ne!(of(&kernel("b"), &s), first);
        assert_ne!(of(&k, &schedule(2)), first);
        // What is changed in its place is another.
        let mut changed = k.clone();
        drop(k);
        Arc::make_mut(&mut changed).name = "c".into();
        assert_ne!(of(&changed, &s), first);
    }

    #[test]
    fn what_is_gone_is_thrown_away() {
        let all = Digests::default();
        let s = schedule(1);
        let digests: std::collections::BTreeSet<Digest> = (0..10 * FEW)
            .map(|i| all.of(&kernel(&i.to_string()), &s, "step").unwrap())
            .collect();
        assert_eq!(digests.len(), 10 * FEW);
        assert!(all.known.lock().unwrap().len() <= 4 * FEW);
    }
}
