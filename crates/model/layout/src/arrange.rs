//! Sorting in little code.
//!
//! The sort of the standard library is compiled again for every type and order, some 5 KB each time: it is made for
//! long lists, and what importing and planning sort are a hundred kinds of short ones. Here a kind adds the order and
//! an exchange of two elements alone. Lists whose length comes from data are better sorted by the standard library.
use std::cmp::Ordering;

/// Lists that can be sorted. Elements that are equal keep their order.
pub trait Arrange<T> {
    /// Sorts by the order that elements have.
    fn arrange(&mut self)
    where
        T: Ord,
    {
        self.arrange_by(T::cmp);
    }

    /// Sorts by an order of elements.
    fn arrange_by(&mut self, order: impl FnMut(&T, &T) -> Ordering);

    /// Sorts by a key of each element, which is made anew for every comparison.
    fn arrange_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> Arrange<T> for [T] {
    fn arrange_by(&mut self, order: impl FnMut(&T, &T) -> Ordering) {
        if self.len() > 1 {
            let n = self.len();
            arrange(&mut Elements(self, order), n);
        }
    }

    fn arrange_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.arrange_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// What sorting does with elements, whatever they are.
trait Places {
    fn order(&mut self, a: usize, b: usize) -> Ordering;
    fn exchange(&mut self, a: usize, b: usize);
}

struct Elements<'a, T, F>(&'a mut [T], F);

impl<T, F: FnMut(&T, &T) -> Ordering> Places for Elements<'_, T, F> {
    fn order(&mut self, a: usize, b: usize) -> Ordering {
        (self.1)(&self.0[a], &self.0[b])
    }

    fn exchange(&mut self, a: usize, b: usize) {
        self.0.swap(a, b);
    }
}

/// Up to how many elements each is moved to its place past its neighbours.
const SHORT: usize = 16;

/// Sorts `n` elements.
fn arrange(all: &mut dyn Places, n: usize) {
    if n <= SHORT {
        for end in 1..n {
            let mut at = end;
            while at > 0 && all.order(at, at - 1) == Ordering::Less {
                all.exchange(at, at - 1);
                at -= 1;
            }
        }
        return;
    }
    // Which element comes to each place.
    let mut from: Vec<usize> = (0..n).collect();
    from.sort_unstable_by(|&a, &b| all.order(a, b).then(a.cmp(&b)));
    for first in 0..n {
        // Each exchange brings one element to its place, along a cycle that ends where it began.
        let mut at = first;
        loop {
            let next = std::mem::replace(&mut from[at], at);
            if next == first {
                break;
            }
            all.exchange(at, next);
            at = next;
        }
    }
}

/// Collecting in little code. `collect` sorts what comes to a map or a set of the tree's kind, by a sort of its own for
/// each type.
pub trait Inserted: Iterator {
    /// Everything, one after the other; of equal keys the last stays.
    fn inserted<C: Default + Extend<Self::Item>>(self) -> C
    where
        Self: Sized,
    {
        let mut all = C::default();
        all.extend(self);
        all
    }
}

impl<I: Iterator> Inserted for I {}
