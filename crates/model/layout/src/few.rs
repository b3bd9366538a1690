//! Lists of a few elements that lie in their owner.
//!
//! Planning goes through millions of statements with some tiles each and instructions with some registers each; lists
//! on the heap for them took a third of its time. The library that a program needs may bring 25 packages from outside (see
//! ARCHITECTURE.md), and a crate for this would be one more.
use crate::Arrange;
use std::ops::{Deref, DerefMut};

/// A list whose elements lie in it up to `N`, and on the heap beyond.
#[derive(Clone, Debug)]
pub struct Few<T, const N: usize> {
    own: [T; N],
    /// Elements in `own`, where nothing is in `heap`.
    len: usize,
    /// All elements, where there are more than `N` or have been.
    heap: Vec<T>,
}

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Few {
            own: [T::default(); N],
            len: 0,
            heap: vec![],
        }
    }
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `v` behind the others.
    pub fn push(&mut self, v: T) {
        if self.heap.is_empty() {
            if let Some(place) = self.own.get_mut(self.len) {
                *place = v;
                self.len += 1;
                return;
            }
            self.heap.extend_from_slice(&self.own);
            self.len = 0;
        }
        self.heap.push(v);
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.len = 0;
        self.heap.clear();
    }

    /// Keeps the first `n`.
    fn truncate(&mut self, n: usize) {
        match self.heap.is_empty() {
            true => self.len = self.len.min(n),
            false => self.heap.truncate(n),
        }
    }

    /// Keeps those for which `keep` holds, which may change them.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        let mut kept = 0;
        for i in 0..self.len() {
            let mut v = self[i];
            if keep(&mut v) {
                self[kept] = v;
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Takes out the element at `at`.
    ///
    /// # Panics
    /// There is none.
    pub fn remove(&mut self, at: usize) -> T {
        let v = self[at];
        self[at..].rotate_left(1);
        self.truncate(self.len() - 1);
        v
    }
}

impl<T: Copy + Default + Ord, const N: usize> Few<T, N> {
    /// In ascending order, each once.
    pub fn sort_and_dedup(&mut self) {
        self.arrange();
        let mut last = None;
        self.retain(|v| last.replace(*v) != Some(*v));
    }
}

impl<T, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self.heap.is_empty() {
            true => &self.own[..self.len],
            false => &self.heap,
        }
    }
}

impl<T, const N: usize> DerefMut for Few<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self.heap.is_empty() {
            true => &mut self.own[..self.len],
            false => &mut self.heap,
        }
    }
}

impl<T: Copy + Default, const N: usize> Extend<T> for Few<T, N> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, all: I) {
        all.into_iter().for_each(|v| self.push(v));
    }
}

impl<T: Copy + Default, const N: usize> FromIterator<T> for Few<T, N> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut out = Few::new();
        out.extend(all);
        out
    }
}

impl<T: Copy + Default, const N: usize> From<&[T]> for Few<T, N> {
    fn from(all: &[T]) -> Self {
        all.iter().copied().collect()
    }
}

/// The elements of a list, one after the other.
#[derive(Clone, Debug)]
pub struct FewElements<T, const N: usize> {
    of: Few<T, N>,
    next: usize,
}

impl<T: Copy, const N: usize> Iterator for FewElements<T, N> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let v = self.of.get(self.next).copied();
        self.next += 1;
        v
    }
}

impl<T: Copy, const N: usize> IntoIterator for Few<T, N> {
    type Item = T;
    type IntoIter = FewElements<T, N>;

    fn into_iter(self) -> Self::IntoIter {
        FewElements { of: self, next: 0 }
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a Few<T, N> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T, const N: usize> IntoIterator for &'a mut Few<T, N> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::Few;

    #[test]
    fn a_list_does_what_a_vector_does() {
        for n in 0..9u32 {
            let mut few: Few<u32, 4> = (0..n).rev().collect();
            let mut all: Vec<u32> = (0..n).rev().collect();
            assert_eq!(*few, *all);
            few.extend([1, 2, 2]);
            all.extend([1, 2, 2]);
            few.sort_and_dedup();
            all.sort_unstable();
            all.dedup();
            assert_eq!(*few, *all);
            let change = |v: &mut u32| {
                *v += 1;
                !v.is_multiple_of(3)
            };
            few.retain(change);
            all.retain_mut(change);
            assert_eq!(*few, *all);
            if !all.is_empty() {
                assert_eq!(few.remove(all.len() / 2), all.remove(all.len() / 2));
            }
            assert_eq!(*few, *all);
            few.push(7);
            all.push(7);
            assert_eq!(*few, *all);
            few.clear();
            assert!(few.is_empty());
            few.push(1);
            assert_eq!(*few, [1]);
        }
    }
}
