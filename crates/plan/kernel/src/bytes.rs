//! Rules for elements of 4 bits, two of which share a byte: which tasks may write them. The plan verifier and
//! the planner ask it.
use crate::{Kernel, Operand, Schedule};
use layout::Dim;

/// Whether tasks of `kernel` under `schedule` write whole bytes of `o`, an operand of 4 bits: its
/// elements go in pairs along an axis that is not cut, and pairs lie at even addresses.
pub fn whole_bytes(kernel: &Kernel, schedule: &Schedule, o: &Operand) -> bool {
    let two = Dim::Known(2);
    let even = |d: &Dim| d.exact_div(&two).is_some();
    let leaves = |t: &crate::Term| t.leaves.len();
    let mut pairs = o.access.terms.iter().filter(|t| {
        let last = t.leaves.last();
        last.is_some_and(|l| l.stride.is_one())
    });
    let (Some(unit), None) = (pairs.next(), pairs.next()) else {
        return false;
    };
    let others = o.access.terms.iter().flat_map(|t| {
        let own = usize::from(t.axis == unit.axis);
        t.leaves.iter().take(leaves(t) - own)
    });
    let whole = unit.leaves.iter().all(|l| even(&l.extent));
    whole
        && others.into_iter().all(|l| even(&l.stride))
        && even(&kernel.axes[unit.axis as usize].extent)
        && even(&o.access.offset)
        && o.access.bounds.is_empty()
        && o.access.indexed.is_empty()
        && schedule.tile(unit.axis).is_none()
}
