//! Constants of a model, borrowed from the mapped file. Programs refer to them by [`WeightId`]; packing copies
//! them, and a file that is cut short while it is mapped is noted here.
use crate::{Tensor, TensorError};
use layout::DType;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whoever keeps bytes alive: a mapped file, or a vector.
pub trait Owner: AsRef<[u8]> + Send + Sync {
    /// What tells the contents from all others without reading them, where there is such: a file's
    /// identity with its size and times.
    fn identity(&self) -> Option<[u8; 32]> {
        None
    }

    /// The name of the file that holds the contents, where it was cut short since and some of them are zeros
    /// now.
    fn lost(&self) -> Option<String> {
        None
    }

    /// Hint that `range` will hardly be read again: what can be had again from a file need not stay
    /// in memory. The contents do not change.
    fn release(&self, range: Range<usize>) {
        let _ = range;
    }
}

impl Owner for Vec<u8> {}

static ANY_LOST: AtomicBool = AtomicBool::new(false);

/// Notes that an owner has lost contents. May be called from a signal handler.
pub fn note_loss() {
    ANY_LOST.store(true, Ordering::SeqCst);
}

/// Whether any owner in this process ever noted a loss: a cheap first question.
pub fn any_loss() -> bool {
    ANY_LOST.load(Ordering::SeqCst)
}

/// Device, number, size and times of a file: another content has another one.
#[cfg(unix)]
pub fn file_identity(meta: &std::fs::Metadata) -> Option<[u8; 32]> {
    use std::os::unix::fs::MetadataExt;
    let ns = |s: i64, ns: i64| s.wrapping_mul(1_000_000_000).wrapping_add(ns) as u64;
    let changed =
        ns(meta.mtime(), meta.mtime_nsec()) ^ ns(meta.ctime(), meta.ctime_nsec()).rotate_left(32);
    let mut id = [0; 32];
    let words = [meta.dev(), meta.ino(), meta.size(), changed];
    for (to, w) in id.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&w.to_le_bytes());
    }
    Some(id)
}

/// Not known on this system.
#[cfg(not(unix))]
pub fn file_identity(_meta: &std::fs::Metadata) -> Option<[u8; 32]> {
    None
}

/// A range of bytes that somebody keeps alive. Cloning shares.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn Owner>,
    range: Range<usize>,
}

impl Bytes {
    /// All bytes of `owner`.
    pub fn new(owner: Arc<dyn Owner>) -> Bytes {
        let range = 0..(*owner).as_ref().len();
        Bytes { owner, range }
    }

    /// The owner's identity, where it has one, and which of its bytes these are.
    pub fn identity(&self) -> Option<([u8; 32], Range<usize>)> {
        Some((self.owner.identity()?, self.range.clone()))
    }

    /// The file of these bytes, where some of it was lost ([`Owner::lost`]).
    pub fn lost(&self) -> Option<String> {
        self.owner.lost()
    }

    /// Hint that these bytes will hardly be read again ([`Owner::release`]).
    pub fn release(&self) {
        self.owner.release(self.range.clone());
    }

    /// Bytes `range` of this one; `None` when it does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        let start = self.range.start.checked_add(range.start)?;
        let end = self.range.start.checked_add(range.end)?;
        (start <= end && end <= self.range.end).then(|| Bytes {
            owner: self.owner.clone(),
            range: start..end,
        })
    }

    /// Whether both are ranges of one owner: nothing was copied between them.
    pub fn same_owner(&self, other: &Bytes) -> bool {
        Arc::ptr_eq(&self.owner, &other.owner)
    }
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::from(Vec::new())
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl From<Vec<u8>> for Bytes {
    fn from(v: Vec<u8>) -> Bytes {
        Bytes::new(Arc::new(v))
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.range.len())
    }
}

/// One constant of a model: borrowed bytes of its file, row-major, little endian, any alignment.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Name in the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Packed elements; the length fits dtype and shape.
    pub bytes: Bytes,
}

/// Index into a [`WeightStore`].
pub type WeightId = u32;

/// The constants of a model, borrowed from the mapped file until a plan wants them packed.
#[derive(Clone, Debug, Default)]
pub struct WeightStore {
    weights: Vec<Weight>,
}

impl WeightStore {
    /// An empty store.
    pub fn new() -> WeightStore {
        WeightStore::default()
    }

    /// The file of a constant that was cut short since it was mapped ([`Owner::lost`]).
    pub fn lost(&self) -> Option<String> {
        let mut asked: Option<&Bytes> = None;
        self.weights.iter().find_map(|w| {
            // Neighbours mostly share their file.
            if asked.is_some_and(|b| b.same_owner(&w.bytes)) {
                return None;
            }
            asked = Some(&w.bytes);
            w.bytes.lost()
        })
    }

    /// Adds a constant; its bytes must fit its dtype and shape.
    pub fn add(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[usize],
        bytes: Bytes,
    ) -> Result<WeightId, TensorError> {
        let want = Tensor::byte_len(dtype, shape)?;
        if want != bytes.len() {
            return Err(TensorError::Length {
                dtype,
                shape: shape.to_vec(),
                want,
                got: bytes.len(),
            });
        }
        self.weights.push(Weight {
            name: name.into(),
            dtype,
            shape: shape.to_vec(),
            bytes,
        });
        Ok((self.weights.len() - 1) as WeightId)
    }

    /// Adds a constant from a tensor.
    pub fn add_tensor(&mut self, name: &str, t: Tensor) -> Result<WeightId, TensorError> {
        let (dtype, shape) = (t.dtype(), t.shape().to_vec());
        self.add(name, dtype, &shape, Bytes::from(t.into_bytes()))
    }

    /// The constant `id`, if there is one.
    pub fn get(&self, id: WeightId) -> Option<&Weight> {
        self.weights.get(id as usize)
    }

    /// All constants in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Weight> {
        self.weights.iter()
    }

    /// Number of constants.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Copies constant `id` into a tensor.
    pub fn tensor(&self, id: WeightId) -> Option<Tensor> {
        let w = self.get(id)?;
        Tensor::from_bytes(w.dtype, &w.shape, w.bytes.to_vec()).ok()
    }
}
