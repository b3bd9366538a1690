//! Host tensors: dense elements, or a [`HostValue`] (texts, sequences, optionals, maps). Callers, host
//! operators and files exchange them; devices see bytes alone.
use crate::storage::{Memory, Storage};
use half::{bf16, f16};
use layout::{DType, to_odd_f32};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A dense row-major tensor in host memory; elements little endian, packed (two per byte at 4 bits).
/// A tensor of type [`DType::Str`] holds text, one of type [`DType::Host`] (of rank 0) a sequence,
/// an optional value or a map; neither has bytes.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Storage,
    #[serde(default)]
    held: Option<Arc<HostValue>>,
}

/// What a tensor without bytes holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostValue {
    /// Text, one per element in row-major order.
    Text(Vec<String>),
    /// Tensors (or sequences, or maps) in order.
    Sequence(#[serde(deserialize_with = "layout::nested")] Vec<Arc<Tensor>>),
    /// A value or none.
    Optional(#[serde(deserialize_with = "layout::nested")] Option<Box<Tensor>>),
    /// Values by key: two vectors of equal length, keys I64 or Str.
    Map {
        /// Keys.
        #[serde(deserialize_with = "layout::nested")]
        keys: Box<Tensor>,
        /// Their values.
        #[serde(deserialize_with = "layout::nested")]
        values: Box<Tensor>,
    },
}

/// Why a tensor could not be made or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Bytes and shape disagree.
    #[error("a {dtype} tensor of shape {shape:?} takes {want} bytes, but {got} were given")]
    Length {
        /// Element type.
        dtype: DType,
        /// Shape asked for.
        shape: Vec<usize>,
        /// Bytes that the shape takes.
        want: usize,
        /// Bytes given.
        got: usize,
    },
    /// The shape's size overflows.
    #[error("a tensor of shape {shape:?} does not fit the address space; use smaller dimensions")]
    TooLarge {
        /// Shape asked for.
        shape: Vec<usize>,
    },
    /// A negative extent.
    #[error("a shape has the extent {extent}; give one that is not negative")]
    Extent {
        /// The extent.
        extent: i128,
    },
    /// Memory of a caller's that begins between two elements.
    #[error(
        "the tensor's memory does not begin at a multiple of {bytes} bytes, as {dtype} has to; copy it with Tensor::aligned first"
    )]
    Aligned {
        /// Element type.
        dtype: DType,
        /// Bytes that an element's address is a multiple of.
        bytes: usize,
    },
    /// Bytes that are no elements of the type.
    #[error("the tensor holds bytes that are no {dtype}; write 0 or 1")]
    Values {
        /// Element type.
        dtype: DType,
    },
    /// One element was asked for.
    #[error("a tensor of shape {shape:?} does not hold exactly one element; ask for all of them")]
    Scalar {
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// The tensor holds another element type.
    #[error("the tensor holds {got}, not {want}; convert it first")]
    Type {
        /// Element type asked for.
        want: DType,
        /// Element type held.
        got: DType,
    },
}

macro_rules! typed {
    ($to:ident, $from:ident, $t:ty, $d:ident) => {
        #[doc = concat!("A copy of the elements of a ", stringify!($d), " tensor in row-major order.")]
        pub fn $to(&self) -> Result<Vec<$t>, TensorError> {
            match self.as_slice::<$t>() {
                Err(TensorError::Aligned { .. }) => {
                    Ok(self.clone().aligned().as_slice::<$t>()?.to_vec())
                }
                elements => Ok(elements?.to_vec()),
            }
        }

        #[doc = concat!("A ", stringify!($d), " tensor of `shape` from a copy of row-major `values`.")]
        pub fn $from(shape: &[usize], values: &[$t]) -> Result<Tensor, TensorError> {
            Tensor::from_array((shape, values))
        }
    };
}

impl Tensor {
    /// A tensor of `shape` from packed little-endian `bytes`; their length must fit exactly.
    pub fn from_bytes(
        dtype: DType,
        shape: &[usize],
        bytes: Vec<u8>,
    ) -> Result<Tensor, TensorError> {
        let want = Tensor::byte_len(dtype, shape)?;
        if want != bytes.len() {
            return Err(TensorError::Length {
                dtype,
                shape: shape.to_vec(),
                want,
                got: bytes.len(),
            });
        }
        Ok(Tensor {
            dtype,
            shape: shape.to_vec(),
            bytes: bytes.into(),
            held: Tensor::nothing(dtype, shape)?,
        })
    }

    /// A tensor of `shape` in `memory`, whose length must fit exactly; the memory is dropped with
    /// the tensor. Not for texts and host values, which have no bytes.
    pub fn from_memory(
        dtype: DType,
        shape: &[usize],
        memory: Box<dyn Memory>,
    ) -> Result<Tensor, TensorError> {
        let want = Tensor::byte_len(dtype, shape)?;
        if want != memory.len() || matches!(dtype, DType::Str | DType::Host) {
            return Err(TensorError::Length {
                dtype,
                shape: shape.to_vec(),
                want,
                got: memory.len(),
            });
        }
        Ok(Tensor {
            dtype,
            shape: shape.to_vec(),
            bytes: Storage::Memory(memory),
            held: None,
        })
    }

    /// A tensor of zeros (empty texts, an empty sequence).
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let n = Tensor::byte_len(dtype, shape)?;
        Ok(Tensor {
            dtype,
            shape: shape.to_vec(),
            bytes: vec![0; n].into(),
            held: Tensor::nothing(dtype, shape)?,
        })
    }

    /// The same tensor with its elements in other memory of as many bytes.
    pub(crate) fn with_memory(self, memory: Box<dyn Memory>) -> Tensor {
        Tensor {
            bytes: Storage::Memory(memory),
            ..self
        }
    }

    fn nothing(dtype: DType, shape: &[usize]) -> Result<Option<Arc<HostValue>>, TensorError> {
        Ok(match dtype {
            DType::Str => {
                // As many as there would be bytes of a numeric tensor at most.
                let n = Tensor::byte_len(DType::U8, shape)?;
                let mut text = Vec::new();
                text.try_reserve_exact(n)
                    .map_err(|_| TensorError::TooLarge {
                        shape: shape.to_vec(),
                    })?;
                text.resize(n, String::new());
                Some(Arc::new(HostValue::Text(text)))
            }
            DType::Host => Some(Arc::new(HostValue::Sequence(Vec::new()))),
            _ => None,
        })
    }

    /// A tensor of texts in row-major order; their number must fit the shape.
    pub fn from_text(shape: &[usize], text: Vec<String>) -> Result<Tensor, TensorError> {
        let want = Tensor::byte_len(DType::U8, shape)?;
        if want != text.len() {
            return Err(TensorError::Length {
                dtype: DType::Str,
                shape: shape.to_vec(),
                want,
                got: text.len(),
            });
        }
        Ok(Tensor {
            dtype: DType::Str,
            shape: shape.to_vec(),
            bytes: Vec::new().into(),
            held: Some(Arc::new(HostValue::Text(text))),
        })
    }

    /// A sequence, an optional value or a map as one value of rank 0.
    pub fn from_host_value(held: HostValue) -> Tensor {
        let (dtype, shape) = match &held {
            HostValue::Text(t) => (DType::Str, vec![t.len()]),
            _ => (DType::Host, vec![]),
        };
        Tensor {
            dtype,
            shape,
            bytes: Vec::new().into(),
            held: Some(Arc::new(held)),
        }
    }

    /// A sequence of `items`.
    pub fn sequence(items: impl IntoIterator<Item = Tensor>) -> Tensor {
        Tensor::from_host_value(HostValue::Sequence(
            items.into_iter().map(Arc::new).collect(),
        ))
    }

    /// What a tensor without bytes holds.
    pub fn host_value(&self) -> Option<&HostValue> {
        self.held.as_deref()
    }

    /// The texts of a Str tensor in row-major order.
    pub fn text(&self) -> Option<&[String]> {
        match self.held.as_deref() {
            Some(HostValue::Text(t)) => Some(t),
            _ => None,
        }
    }

    /// The items of a sequence.
    pub fn items(&self) -> Option<&[Arc<Tensor>]> {
        match self.held.as_deref() {
            Some(HostValue::Sequence(s)) => Some(s),
            _ => None,
        }
    }

    /// Bytes that a tensor of `shape` takes. Extents beside a 0 count as well, so that no product of
    /// some of them overflows later.
    pub fn byte_len(dtype: DType, shape: &[usize]) -> Result<usize, TensorError> {
        let n = shape
            .iter()
            .try_fold(1usize, |a, &d| a.checked_mul(d.max(1)));
        n.and_then(|n| dtype.bytes_for(n))
            .filter(|&b| b <= isize::MAX as usize)
            .map(|b| if shape.contains(&0) { 0 } else { b })
            .ok_or_else(|| TensorError::TooLarge {
                shape: shape.to_vec(),
            })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packed little-endian elements.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Packed little-endian elements, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The packed bytes, taken out.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_vec()
    }

    /// The same elements under another shape with as many elements.
    pub fn reshaped(self, shape: &[usize]) -> Result<Tensor, TensorError> {
        if self.dtype != DType::Str {
            let want = Tensor::byte_len(self.dtype, shape)?;
            if want != self.bytes.len() {
                return Err(TensorError::Length {
                    dtype: self.dtype,
                    shape: shape.to_vec(),
                    want,
                    got: self.bytes.len(),
                });
            }
            return Ok(Tensor {
                shape: shape.to_vec(),
                ..self
            });
        }
        match self.text() {
            Some(t) => Tensor::from_text(shape, t.to_vec()),
            None => Tensor::zeros(DType::Str, shape),
        }
    }

    typed!(to_f32, from_f32, f32, F32);
    typed!(to_f64, from_f64, f64, F64);
    typed!(to_i32, from_i32, i32, I32);
    typed!(to_i64, from_i64, i64, I64);
    typed!(to_u8, from_u8, u8, U8);
    typed!(to_i8, from_i8, i8, I8);

    /// Element `i` (row-major) as f64: exact for every type but 64-bit integers beyond 2^53; NaN
    /// for what is no number.
    pub fn get_f64(&self, i: usize) -> f64 {
        let b = &self.bytes;
        macro_rules! le {
            ($t:ty) => {{
                let w = size_of::<$t>();
                <$t>::from_le_bytes(b[i * w..(i + 1) * w].try_into().unwrap_or_default())
            }};
        }
        match self.dtype {
            DType::F32 => le!(f32) as f64,
            DType::F64 => le!(f64),
            DType::F16 => f16::from_bits(le!(u16)).to_f64(),
            DType::BF16 => bf16::from_bits(le!(u16)).to_f64(),
            DType::Str | DType::Host => f64::NAN,
            _ => self.get_i64(i) as f64,
        }
    }

    /// Element `i` (row-major) as i64; floats are truncated toward zero, u64 wraps; 0 for what is
    /// no number.
    pub fn get_i64(&self, i: usize) -> i64 {
        let b = &self.bytes;
        macro_rules! le {
            ($t:ty) => {{
                let w = size_of::<$t>();
                <$t>::from_le_bytes(b[i * w..(i + 1) * w].try_into().unwrap_or_default())
            }};
        }
        match self.dtype {
            DType::I8 => le!(i8) as i64,
            DType::U8 => b[i] as i64,
            DType::Bool => (b[i] != 0) as i64,
            DType::I16 => le!(i16) as i64,
            DType::U16 => le!(u16) as i64,
            DType::I32 => le!(i32) as i64,
            DType::U32 => le!(u32) as i64,
            DType::I64 => le!(i64),
            DType::U64 => le!(u64) as i64,
            DType::U4 => (b[i / 2] >> (4 * (i % 2)) & 15) as i64,
            DType::I4 => {
                let n = (b[i / 2] >> (4 * (i % 2)) & 15) as i64;
                if n > 7 { n - 16 } else { n }
            }
            DType::Str | DType::Host => 0,
            _ => self.get_f64(i) as i64,
        }
    }

    /// Sets element `i` from an f64 by rounding to the element type (integers: toward zero,
    /// saturating).
    pub fn set_f64(&mut self, i: usize, v: f64) {
        match self.dtype {
            DType::F32 => self.put(i, &(v as f32).to_le_bytes()),
            DType::F64 => self.put(i, &v.to_le_bytes()),
            DType::F16 => self.put(i, &f16::from_f32(to_odd_f32(v)).to_bits().to_le_bytes()),
            DType::BF16 => self.put(i, &bf16::from_f32(to_odd_f32(v)).to_bits().to_le_bytes()),
            DType::Bool => self.put(i, &[(v != 0.0) as u8]),
            DType::U64 => self.put(i, &(v as u64).to_le_bytes()),
            DType::Str | DType::Host => {}
            _ => self.set_i64(i, v as i64),
        }
    }

    /// Copies `count` elements of `from`, a tensor of the same type, from its element `start` on, to element `at` on.
    ///
    /// # Panics
    /// Where they do not lie inside both tensors.
    pub fn copy_elements(&mut self, at: usize, from: &Tensor, start: usize, count: usize) {
        let bits = self.dtype.bits() as usize;
        if bits < 8 {
            // Elements that share bytes.
            return (0..count).for_each(|i| self.set_i64(at + i, from.get_i64(start + i)));
        }
        let bytes = bits / 8;
        let (to, source) = (at * bytes, start * bytes);
        let length = count * bytes;
        self.bytes_mut()[to..to + length].copy_from_slice(&from.bytes()[source..source + length]);
    }

    /// Sets element `i` from an i64; narrower integers keep the low bits, `Bool` is `v != 0`.
    pub fn set_i64(&mut self, i: usize, v: i64) {
        match self.dtype {
            DType::I8 | DType::U8 => self.put(i, &[v as u8]),
            DType::Bool => self.put(i, &[(v != 0) as u8]),
            DType::I16 | DType::U16 => self.put(i, &(v as u16).to_le_bytes()),
            DType::I32 | DType::U32 => self.put(i, &(v as u32).to_le_bytes()),
            DType::I64 | DType::U64 => self.put(i, &v.to_le_bytes()),
            DType::I4 | DType::U4 => {
                let shift = 4 * (i % 2);
                let b = &mut self.bytes[i / 2];
                *b = *b & !(15 << shift) | ((v as u8 & 15) << shift);
            }
            DType::Str | DType::Host => {}
            _ => self.set_f64(i, v as f64),
        }
    }

    fn put(&mut self, i: usize, le: &[u8]) {
        self.bytes[i * le.len()..(i + 1) * le.len()].copy_from_slice(le);
    }
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}
