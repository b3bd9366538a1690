//! Which compiled plans a program retains beside the current one, so that their packed weights stay bounded.
use crate::compiled::Epoch;
use device::PackedKey;
use plan::VerifiedPlan;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Compiled plans kept per program beside the current one.
const RETAINED_PLANS: usize = 12;

/// Plans without their packed weights that are remembered beside those, for their schedules.
const REMEMBERED_PLANS: usize = 8;

/// What the plans of one program keep packed together, in times what the largest of them packs. A
/// request of other dims may want its weights packed in another way; two plans may always stay, so
/// that requests of two kinds in turn pack nothing anew.
pub const RETAINED_PACKED_FACTOR: u64 = 2;

/// Bytes that the plans of one program may keep packed together in any case: planning a small model
/// again costs more than this memory.
pub const RETAINED_PACKED_MIN: u64 = 4 << 20;

/// What one plan keeps packed: results that others may share, and bytes that are its own.
#[derive(Clone, Debug, Default)]
struct PackedSize {
    shared: Vec<(PackedKey, u64)>,
    own: u64,
}

impl PackedSize {
    fn of(e: &Epoch) -> PackedSize {
        let mut h = PackedSize::default();
        for b in &e.blocks {
            let shared: Vec<(PackedKey, u64)> = b
                .exe
                .packed()
                .iter()
                .map(|(k, bytes)| (*k, bytes.len() as u64))
                .collect();
            let known: u64 = shared.iter().map(|s| s.1).sum();
            h.own = h
                .own
                .saturating_add(b.exe.packed_bytes().saturating_sub(known));
            h.shared.extend(shared);
        }
        h
    }
}

/// How many of `others`, the one used last first, may stay beside `current`: together they keep at
/// most [`RETAINED_PACKED_FACTOR`] times as much packed as the largest of them, or `least` bytes.
fn retained_count(current: Option<&PackedSize>, others: &[PackedSize], least: u64) -> usize {
    let mut all: BTreeMap<PackedKey, u64> = BTreeMap::new();
    let (mut bytes, mut largest) = (0u64, 0u64);
    let mut add = |h: &PackedSize| {
        let mut own: BTreeMap<PackedKey, u64> = BTreeMap::new();
        own.extend(h.shared.iter().copied());
        largest = largest.max(own.values().sum::<u64>().saturating_add(h.own));
        let fresh = own
            .into_iter()
            .filter(|(k, n)| all.insert(*k, *n).is_none());
        bytes = bytes.saturating_add(fresh.map(|s| s.1).sum::<u64>().saturating_add(h.own));
        bytes <= largest.saturating_mul(RETAINED_PACKED_FACTOR).max(least)
    };
    if let Some(c) = current {
        add(c);
    }
    let fits = others.iter().take(RETAINED_PLANS).take_while(|h| add(h));
    fits.count().max(others.len().min(1))
}

/// Takes out of `others`, the one used last first, those that must not stay beside `current`.
pub(crate) fn evict(current: Option<&Epoch>, others: &mut Vec<Arc<Epoch>>) -> Vec<Arc<Epoch>> {
    let sizes: Vec<PackedSize> = others
        .iter()
        .take(RETAINED_PLANS)
        .map(|e| PackedSize::of(e))
        .collect();
    others.split_off(retained_count(
        current.map(PackedSize::of).as_ref(),
        &sizes,
        RETAINED_PACKED_MIN,
    ))
}

/// Puts the plans of `gone` before `evicted`: without what they packed, for the schedules that were looked
/// for in their boxes.
pub(crate) fn remember_evicted(evicted: &mut Vec<Arc<VerifiedPlan>>, gone: &[Arc<Epoch>]) {
    let looked = |e: &&Arc<Epoch>| {
        let mut steps = e.plan.plan().blocks().flat_map(|b| &b.steps);
        steps.any(|s| !s.taken)
    };
    let plans = gone.iter().filter(looked).map(|e| e.plan.clone());
    evicted.splice(0..0, plans);
    evicted.truncate(REMEMBERED_PLANS);
}

#[cfg(test)]
mod tests {
    use super::{PackedSize, RETAINED_PLANS, retained_count};

    fn sizes(shared: &[(u8, u64)], own: u64) -> PackedSize {
        PackedSize {
            shared: shared.iter().map(|&(k, n)| ([k; 32], n)).collect(),
            own,
        }
    }

    #[test]
    fn plans_that_pack_alike_all_stay() {
        let same = vec![sizes(&[(1, 100), (2, 50)], 3); RETAINED_PLANS];
        // What is not shared is theirs: 12 x 3 B are no more than twice 153 B.
        assert_eq!(retained_count(None, &same, 0), RETAINED_PLANS);
        assert_eq!(retained_count(Some(&same[0]), &same, 0), RETAINED_PLANS);
        assert_eq!(
            retained_count(None, &vec![sizes(&[(1, 100)], 0); 40], 0),
            RETAINED_PLANS
        );
        assert_eq!(retained_count(None, &[], 0), 0);
    }

    #[test]
    fn two_always_stay_and_more_while_they_share() {
        let a = |k: u8| sizes(&[(0, 60), (k, 40)], 0);
        // 100 B each, 60 B of them shared: 100, 140, 180, then 220 B.
        let five: Vec<PackedSize> = (1..6).map(a).collect();
        assert_eq!(retained_count(None, &five, 0), 3);
        assert_eq!(retained_count(Some(&a(9)), &five, 0), 2);
        let apart: Vec<PackedSize> = (1..6).map(|k| sizes(&[(k, 100)], 0)).collect();
        assert_eq!(retained_count(None, &apart, 0), 2);
        assert_eq!(retained_count(None, &apart, 400), 4);
        assert_eq!(retained_count(Some(&sizes(&[(9, 100)], 0)), &apart, 0), 1);
        // The one just made stays whatever it takes.
        assert_eq!(
            retained_count(Some(&sizes(&[(9, 1)], 0)), &[sizes(&[(1, 1000)], 0)], 0),
            1
        );
    }

    #[test]
    fn nothing_packed_is_no_limit() {
        assert_eq!(retained_count(None, &vec![PackedSize::default(); 5], 0), 5);
    }
}
