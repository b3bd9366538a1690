//! The zoo's generator of weights and inputs, bit for bit.
//!
//! Element i of a tensor is a function of (seed, i) alone: a counter goes through a 64-bit mixer,
//! the upper 24 bits become a float in 0..1, and that is scaled into `lo..hi` with every operation
//! rounded to f32 on its own.

use half::{bf16, f16};
use layout::DType;
use tensor::{Tensor, TensorError};

/// The mixed 64 bits of element `i` (from 0).
pub fn bits(seed: u64, i: u64) -> u64 {
    let mut z = seed.wrapping_add(i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One tensor's seed and range.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    seed: u64,
    lo: f32,
    width: f32,
}

impl Source {
    /// Values from `lo` up to `hi`; both are decimals that denote an f32 exactly.
    pub fn new(seed: u64, lo: f64, hi: f64) -> Source {
        let (lo, hi) = (lo as f32, hi as f32);
        Source {
            seed,
            lo,
            width: hi - lo,
        }
    }

    /// Value of element `i` before it is brought to the element type.
    pub fn value(&self, i: u64) -> f32 {
        // 24 bits fit an f32 exactly, and so does the product with a power of two.
        let u = (bits(self.seed, i) >> 40) as f32 * (1.0 / 16_777_216.0);
        self.lo + u * self.width
    }

    /// Appends elements `from..to` in packed little-endian form; with 4-bit types `from` is even.
    pub fn append(&self, dtype: DType, from: u64, to: u64, out: &mut Vec<u8>) {
        macro_rules! each {
            ($of:expr) => {
                for i in from..to {
                    out.extend_from_slice(&$of(self.value(i)).to_le_bytes());
                }
            };
        }
        // A cast from float to integer saturates, which is the clamp that is asked for.
        match dtype {
            DType::F32 => each!(|v: f32| v),
            DType::F64 => each!(f64::from),
            DType::F16 => each!(f16::from_f32),
            DType::BF16 => each!(bf16::from_f32),
            DType::I8 => each!(|v: f32| v.floor() as i8),
            DType::U8 => each!(|v: f32| v.floor() as u8),
            DType::I16 => each!(|v: f32| v.floor() as i16),
            DType::U16 => each!(|v: f32| v.floor() as u16),
            DType::I32 => each!(|v: f32| v.floor() as i32),
            DType::U32 => each!(|v: f32| v.floor() as u32),
            DType::I64 => each!(|v: f32| v.floor() as i64),
            DType::U64 => each!(|v: f32| v.floor() as u64),
            DType::Bool => each!(|v: f32| u8::from(v.floor() != 0.0)),
            DType::I4 | DType::U4 => {
                let (low, high) = if dtype == DType::I4 {
                    (-8.0, 7.0)
                } else {
                    (0.0, 15.0)
                };
                let nibble = |i: u64| {
                    if i < to {
                        self.value(i).floor().clamp(low, high) as i8 as u8 & 15
                    } else {
                        0
                    }
                };
                for i in (from..to).step_by(2) {
                    out.push(nibble(i) | nibble(i + 1) << 4);
                }
            }
            // There are no generated texts: they stay empty.
            DType::Str | DType::Host => {}
        }
    }

    /// A whole tensor.
    ///
    /// # Errors
    /// When the shape does not fit the address space.
    pub fn tensor(&self, dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let n = Tensor::byte_len(dtype, shape)?;
        let mut bytes = Vec::with_capacity(n);
        self.append(dtype, 0, shape.iter().product::<usize>() as u64, &mut bytes);
        Tensor::from_bytes(dtype, shape, bytes)
    }
}
