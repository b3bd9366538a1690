//! Memory of stream state in place: each stream's own, or shared by streams that run as one batch, side by side
//! in the memory of one plan.
use crate::RunError;
use device::State;
use layout::{Dim, DimBox};
use plan::{Block, Port};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How the items of one state lie in its memory: in each of `outer` parts one behind the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StateLayout {
    pub name: String,
    /// Bytes of the plan's buffer, which holds as many items as its box has at most.
    pub bytes: usize,
    outer: usize,
    /// Bytes of an item in one part.
    item: usize,
    /// Rows of an item along the axis that grows: how many lists of rows it is made of, and bytes of a row;
    /// `None` where that axis lies outside of the items.
    lists: Option<(usize, usize)>,
}

impl StateLayout {
    /// That of each state of `block` whose items lie along the axis that `along` has for it; `None` where
    /// extents are not known, but for that of the axis that grows: memory is laid out for its top.
    pub fn of(block: &Block, dims: &DimBox, along: &[usize]) -> Option<Vec<StateLayout>> {
        let each = block.states.iter().zip(along).map(|(s, &along)| {
            let past = block.inputs.get(s.input as usize)?;
            let present = block.outputs.get(s.output as usize)?;
            let extent = |(d, (now, next)): (usize, (&Dim, &Dim))| {
                let n = match d == along {
                    true => 1,
                    false if now == next => next.known()?,
                    false => dims.bounds(next)?.hi,
                };
                usize::try_from(n).ok()
            };
            let extents = past.shape.iter().zip(&present.shape).enumerate();
            let extents: Vec<usize> = extents.map(extent).collect::<Option<_>>()?;
            let product = |e: &[usize]| e.iter().try_fold(1usize, |p, n| p.checked_mul(*n));
            let (outer, inner) = extents.split_at_checked(along)?;
            let grows = grows_along(past, present).and_then(|g| g.checked_sub(along));
            let bits = past.dtype.bits() as usize;
            let lists = grows.and_then(|g| {
                let (before, from) = inner.split_at_checked(g)?;
                let row = product(from.get(1..)?)?.checked_mul(bits)? / 8;
                Some((product(before)?, row))
            });
            let (outer, inner) = (product(outer)?, product(inner)?);
            Some(StateLayout {
                lists,
                name: present.name.clone(),
                bytes: usize::try_from(block.buffers.get(s.buffer as usize)?.bytes).ok()?,
                outer,
                item: inner.checked_mul(bits)? / 8,
            })
        });
        each.collect()
    }

    /// How many lists of rows along the axis that grows an item is made of, and bytes of a row.
    pub fn lists(&self) -> Option<(usize, usize)> {
        self.lists
    }

    /// As [`StateLayout::copy`], with the rows of every list `shift` places further on than they were; those in
    /// front are zeros.
    fn copy_shifted(
        &self,
        count: usize,
        from: (&[u8], usize, usize),
        to: (&mut [u8], usize, usize),
        shift: isize,
    ) -> Option<()> {
        if shift == 0 {
            return self.copy(count, from, to);
        }
        let (lists, row) = self.lists?;
        let list = self.item.checked_div(lists)?;
        let by = shift.unsigned_abs().checked_mul(row)?;
        let rest = list.checked_sub(by)?;
        let (skip, batch) = match shift > 0 {
            true => (0, by),
            false => (by, 0),
        };
        let begin = |part: usize, at: usize, all: usize| (part * all + at) * self.item;
        for part in 0..self.outer {
            let (f, t) = (begin(part, from.1, from.2), begin(part, to.1, to.2));
            for l in 0..count * lists {
                let f = from.0.get(f + l * list + skip..)?.get(..rest)?;
                let t = to.0.get_mut(t + l * list..)?.get_mut(..batch + rest)?;
                t[..batch].fill(0);
                t[batch..].copy_from_slice(f);
            }
        }
        Some(())
    }

    /// Copies `count` items, which are those from `from.1` on of `from.2`, to where they are those from
    /// `to.1` on of `to.2`.
    fn copy(
        &self,
        count: usize,
        from: (&[u8], usize, usize),
        to: (&mut [u8], usize, usize),
    ) -> Option<()> {
        let begin = |part: usize, at: usize, all: usize| (part * all + at) * self.item;
        for part in 0..self.outer {
            let (f, t) = (begin(part, from.1, from.2), begin(part, to.1, to.2));
            let n = count * self.item;
            to.0.get_mut(t..t + n)?
                .copy_from_slice(from.0.get(f..f + n)?);
        }
        Some(())
    }
}

/// The axis along which a state grows, if there is exactly one.
pub(crate) fn grows_along(past: &Port, present: &Port) -> Option<usize> {
    let both = past.shape.iter().zip(&present.shape).enumerate();
    let mut grows = both.filter(|(_, (now, next))| now != next).map(|g| g.0);
    let first = grows.next()?;
    (past.shape.len() == present.shape.len() && grows.next().is_none()).then_some(first)
}

/// How a stream's states lie beside those of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BatchPart {
    /// How many items it has.
    pub items: usize,
    /// Rows of zeros in front of its own, along the axis that grows: as many as it is shorter than the
    /// longest.
    pub pad: usize,
}

/// States of several streams, in the order in which they run.
pub(crate) struct Slab {
    each: Vec<BatchPart>,
    bytes: u64,
    states: Mutex<Vec<State>>,
}

impl Slab {
    pub fn states(&self) -> MutexGuard<'_, Vec<State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the items of stream `at` begin, and how many there are in all.
    fn place(&self, at: usize) -> (usize, usize) {
        let sum = |of: &[BatchPart]| of.iter().map(|b| b.items).sum();
        (sum(&self.each[..at]), sum(&self.each))
    }
}

/// Where a stream's states in place are.
pub(crate) enum StateStorage {
    /// Its own.
    Own(Vec<State>),
    /// The part of stream number `.1`.
    Shared(Arc<Slab>, usize),
}

fn size_mismatch(layout: &StateLayout) -> RunError {
    RunError::Stream {
        why: format!(
            "state '{}' does not fit the memory that its plan has for it; this is a fault of shopfloor, please report it with the model",
            layout.name
        ),
    }
}

impl StateStorage {
    /// Its states by themselves, taken out of what they shared with others.
    pub fn own(&mut self, layouts: &[StateLayout]) -> Result<&mut Vec<State>, RunError> {
        if let StateStorage::Shared(slab, at) = self {
            let BatchPart { items: count, pad } = slab.each[*at];
            let place = slab.place(*at);
            let mut taken = vec![];
            for (state, layout) in slab.states().iter_mut().zip(layouts) {
                let mut own = State::new(layout.bytes, &layout.name);
                let (from, to) = (state.host()?, own.host()?);
                let (from, to) = ((&**from, place.0, place.1), (&mut **to, 0, count));
                layout
                    .copy_shifted(count, from, to, -(pad as isize))
                    .ok_or_else(|| size_mismatch(layout))?;
                taken.push(own);
            }
            *self = StateStorage::Own(taken);
        }
        match self {
            StateStorage::Own(states) => Ok(states),
            StateStorage::Shared(..) => Err(RunError::Abandoned),
        }
    }

    /// Bytes; of what is shared its part.
    pub fn bytes(&self) -> u64 {
        match self {
            StateStorage::Own(states) => states.iter().map(|s| s.len() as u64).sum(),
            StateStorage::Shared(slab, _) => slab.bytes / Arc::strong_count(slab).max(1) as u64,
        }
    }

    /// Where each state is, but for those that were not used yet.
    pub fn places(&self) -> Vec<String> {
        let of = |all: &[State]| {
            let all = all.iter().filter_map(State::valid_in);
            all.map(str::to_string).collect()
        };
        match self {
            StateStorage::Own(states) => of(states),
            StateStorage::Shared(slab, _) => of(&slab.states()),
        }
    }
}

/// The states of these streams side by side, each as it says: those that ran together last are so already,
/// and nothing is copied.
pub(crate) fn share(
    storages: Vec<&mut StateStorage>,
    each: &[BatchPart],
    layouts: &[StateLayout],
) -> Result<Arc<Slab>, RunError> {
    let first = storages.first().and_then(|h| match h {
        StateStorage::Shared(slab, 0) if slab.each == each => Some(slab.clone()),
        _ => None,
    });
    let same = |slab: &Arc<Slab>| {
        storages.iter().enumerate().all(
            |(i, h)| matches!(h, StateStorage::Shared(other, at) if *at == i && Arc::ptr_eq(slab, other)),
        )
    };
    if let Some(slab) = first.filter(same) {
        return Ok(slab);
    }
    let mut states: Vec<State> = layouts
        .iter()
        .map(|r| State::new(r.bytes, &r.name))
        .collect();
    let all = each.iter().map(|b| b.items).sum();
    let mut storages = storages;
    for (i, layout) in layouts.iter().enumerate() {
        let to = states[i].host()?;
        let mut at = 0;
        for (storage, &BatchPart { items: count, pad }) in storages.iter_mut().zip(each) {
            let mut copy =
                |state: &mut State, place: (usize, usize), was: usize| match state.valid_in() {
                    // It is zeros, as the room is.
                    None => Ok(()),
                    Some(_) => {
                        let from = (&**state.host()?, place.0, place.1);
                        layout
                            .copy_shifted(count, from, (to, at, all), pad as isize - was as isize)
                            .ok_or_else(|| size_mismatch(layout))
                    }
                };
            match storage {
                StateStorage::Own(own) => {
                    copy(
                        own.get_mut(i).ok_or_else(|| size_mismatch(layout))?,
                        (0, count),
                        0,
                    )?;
                }
                StateStorage::Shared(slab, n) => {
                    let place = slab.place(*n);
                    let was = slab.each[*n].pad;
                    let mut states = slab.states();
                    copy(
                        states.get_mut(i).ok_or_else(|| size_mismatch(layout))?,
                        place,
                        was,
                    )?;
                }
            }
            at += count;
        }
    }
    let slab = Arc::new(Slab {
        each: each.to_vec(),
        bytes: states.iter().map(|s| s.len() as u64).sum(),
        states: Mutex::new(states),
    });
    for (i, storage) in storages.into_iter().enumerate() {
        *storage = StateStorage::Shared(slab.clone(), i);
    }
    Ok(slab)
}

#[cfg(test)]
mod tests {
    use super::{BatchPart, StateLayout, StateStorage, share};
    use device::State;

    /// Two parts of three bytes an item, for at most eight items.
    fn layouts() -> Vec<StateLayout> {
        vec![StateLayout {
            name: "s".into(),
            bytes: 2 * 3 * 8,
            outer: 2,
            item: 3,
            lists: Some((1, 1)),
        }]
    }

    fn items(each: &[usize]) -> Vec<BatchPart> {
        let one = |&items: &usize| BatchPart { items, pad: 0 };
        each.iter().map(one).collect()
    }

    /// Items of one stream by itself: bytes that say stream, part and item.
    fn storage(stream: u8, items: u8) -> StateStorage {
        let mut s = State::new(48, "s");
        let bytes = s.host().unwrap();
        for part in 0..2u8 {
            for i in 0..items {
                let at = usize::from(part * items + i) * 3;
                bytes[at..at + 3].fill(100 * part + 10 * stream + i + 1);
            }
        }
        StateStorage::Own(vec![s])
    }

    fn firsts(storage: &mut StateStorage, count: usize) -> Vec<u8> {
        let states = storage.own(&layouts()).unwrap();
        let bytes = states[0].host().unwrap();
        (0..count).map(|i| bytes[3 * i]).collect()
    }

    #[test]
    fn states_lie_side_by_side_and_come_apart_again() {
        let (mut a, mut b, mut c) = (storage(1, 2), storage(2, 1), storage(3, 1));
        let slab = share(vec![&mut a, &mut b], &items(&[2, 1]), &layouts()).unwrap();
        let seen: Vec<u8> = {
            let mut states = slab.states();
            let bytes = states[0].host().unwrap();
            (0..6).map(|i| bytes[3 * i]).collect()
        };
        assert_eq!(seen, [11, 12, 21, 111, 112, 121]);
        // The same again: nothing moves. Others, or in another order: it does.
        let again = share(vec![&mut a, &mut b], &items(&[2, 1]), &layouts()).unwrap();
        assert!(std::sync::Arc::ptr_eq(&slab, &again));
        let other = share(vec![&mut c, &mut a], &items(&[1, 2]), &layouts()).unwrap();
        assert!(!std::sync::Arc::ptr_eq(&slab, &other));
        let seen: Vec<u8> = {
            let mut states = other.states();
            let bytes = states[0].host().unwrap();
            (0..6).map(|i| bytes[3 * i]).collect()
        };
        assert_eq!(seen, [31, 11, 12, 131, 111, 112]);
        // What was left behind is whole, and so is what is taken out.
        assert_eq!(firsts(&mut b, 2), [21, 121]);
        assert_eq!(firsts(&mut a, 4), [11, 12, 111, 112]);
        assert_eq!(firsts(&mut c, 2), [31, 131]);
    }

    #[test]
    fn what_does_not_fit_is_an_error_and_changes_nothing() {
        let (mut a, mut b) = (storage(1, 2), storage(2, 2));
        let mut small = layouts();
        small[0].bytes = 20;
        assert!(share(vec![&mut a, &mut b], &items(&[2, 2]), &small).is_err());
        assert_eq!(firsts(&mut a, 4), [11, 12, 111, 112]);
        assert_eq!(firsts(&mut b, 4), [21, 22, 121, 122]);
    }

    /// Items of two lists of four rows of two bytes.
    #[test]
    fn shorter_ones_are_filled_up_at_their_front_and_shrink_again() {
        let layouts = vec![StateLayout {
            name: "s".into(),
            bytes: 4 * 16,
            outer: 1,
            item: 16,
            lists: Some((2, 2)),
        }];
        let storage = |stream: u8, rows: u8| {
            let mut s = State::new(64, "s");
            let bytes = s.host().unwrap();
            for list in 0..2u8 {
                for row in 0..rows {
                    let at = usize::from(list * 8 + row * 2);
                    bytes[at..at + 2].fill(100 * list + 10 * stream + row + 1);
                }
            }
            StateStorage::Own(vec![s])
        };
        let of = |h: &mut StateStorage| h.own(&layouts).unwrap()[0].host().unwrap()[..16].to_vec();
        let (mut a, mut b) = (storage(1, 1), storage(2, 3));
        let (alone_a, alone_b) = (of(&mut a), of(&mut b));
        let parts = |pads: [usize; 2]| pads.map(|pad| BatchPart { items: 1, pad });
        let slab = share(vec![&mut a, &mut b], &parts([2, 0]), &layouts).unwrap();
        {
            let mut states = slab.states();
            let bytes = states[0].host().unwrap();
            assert_eq!(bytes[..8], [0, 0, 0, 0, 11, 11, 0, 0]);
            assert_eq!(bytes[8..16], [0, 0, 0, 0, 111, 111, 0, 0]);
            assert_eq!(bytes[16..24], [21, 21, 22, 22, 23, 23, 0, 0]);
            // A row more of each, as a run would add it.
            for (at, v) in [(6, 12), (14, 112), (22, 24), (30, 124)] {
                bytes[at..at + 2].fill(v);
            }
        }
        let again = share(vec![&mut a, &mut b], &parts([2, 0]), &layouts).unwrap();
        assert!(std::sync::Arc::ptr_eq(&slab, &again));
        // Less in front, since the longer one is gone; and by itself again.
        share(vec![&mut a], &[BatchPart { items: 1, pad: 1 }], &layouts).unwrap();
        let (mut want_a, mut want_b) = (alone_a, alone_b);
        for (want, at, v) in [(&mut want_a, 2, 12), (&mut want_b, 6, 24)] {
            want[at..at + 2].fill(v);
            want[at + 8..at + 10].fill(v + 100);
        }
        assert_eq!(of(&mut a), want_a);
        assert_eq!(of(&mut b), want_b);
    }
}
