//! The bytes of a tensor: a vector, or [`Memory`] that its owner wants back (recycled outputs).
//! [`crate::Tensor`] wraps it; nothing here knows element types.
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::{Deref, DerefMut};

/// Memory for a tensor's elements that is more than a vector: aligned, or to be given back to
/// whom it was borrowed from when the tensor is dropped.
pub trait Memory: Deref<Target = [u8]> + DerefMut + Send + Sync {}

/// A tensor's bytes, owned.
pub(crate) enum Storage {
    Vec(Vec<u8>),
    Memory(Box<dyn Memory>),
}

impl Storage {
    /// The bytes as a vector; copied where they are none.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Storage::Vec(v) => v,
            Storage::Memory(m) => m.to_vec(),
        }
    }
}

impl From<Vec<u8>> for Storage {
    fn from(v: Vec<u8>) -> Storage {
        Storage::Vec(v)
    }
}

impl Deref for Storage {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Storage::Vec(v) => v,
            Storage::Memory(m) => m,
        }
    }
}

impl DerefMut for Storage {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Storage::Vec(v) => v,
            Storage::Memory(m) => m,
        }
    }
}

impl Clone for Storage {
    fn clone(&self) -> Storage {
        Storage::Vec(self.to_vec())
    }
}

impl PartialEq for Storage {
    fn eq(&self, other: &Storage) -> bool {
        **self == **other
    }
}

impl Serialize for Storage {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(s)
    }
}

impl<'de> Deserialize<'de> for Storage {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Storage, D::Error> {
        Vec::deserialize(d).map(Storage::Vec)
    }
}
