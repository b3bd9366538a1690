//! Values that have cache lines to themselves.
use std::ops::{Deref, DerefMut};

/// A value that no other shares a cache line with: what one worker writes slows nobody down who reads what
/// stands beside it. 128 bytes, because processors fetch lines of 64 in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// `value`, apart from all others.
    pub const fn new(value: T) -> CachePadded<T> {
        CachePadded(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
