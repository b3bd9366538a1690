//! Tensor maps: what `cuTensorMapEncodeTiled` writes. The driver's 128 bytes are opaque; these are the
//! emulator's own, which its `cp.async.bulk.tensor` reads. Reads outside of the tensor give zeros that
//! count, writes are left out; TFLOAT32 rounds to nearest, ties to even.

use crate::error::PtxError;

/// Bytes of a map.
pub const BYTES: usize = 128;
const MAGIC: [u8; 4] = *b"sfTM";

/// The arguments of `cuTensorMapEncodeTiled`; enumerations have the driver's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TensorMap {
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// Dimensions, 1 to 5, the innermost first.
    pub rank: u32,
    /// Where the tensor lies in global memory.
    pub address: u64,
    /// Elements along each dimension.
    pub dims: [u64; 5],
    /// Bytes from one element to the next along all dimensions but the innermost.
    pub strides: [u64; 4],
    /// Elements of a box along each dimension.
    pub boxes: [u32; 5],
    /// Every how manieth element of the tensor is taken.
    pub element_strides: [u32; 5],
    /// `CUtensorMapInterleave`; 0 is none.
    pub interleave: u32,
    /// `CUtensorMapSwizzle`: none, 32, 64 or 128 bytes.
    pub swizzle: u32,
    /// `CUtensorMapL2promotion`, which changes no result.
    pub l2_promotion: u32,
    /// `CUtensorMapFloatOOBfill`; 0 is zeros.
    pub fill: u32,
}

/// What becomes of elements on their way to shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Convert {
    Nothing,
    /// Rounded to tf32 (true), subnormal numbers to zero (true).
    Float(bool, bool),
}

fn refuse<T>(what: String) -> Result<T, PtxError> {
    Err(PtxError::Memory(format!("tensor map: {what}")))
}

impl TensorMap {
    /// The tensor at `address` without what is seldom asked for: dimensions, the innermost first, the distances in bytes
    /// between elements along all but that one, elements from the first to the last of a box, every how manieth of them it
    /// has, and bytes within which elements change places, 0, 32, 64 or 128.
    ///
    /// # Errors
    /// More than five dimensions, or not as many of everything.
    pub fn tiled(
        (data_type, address): (u32, u64),
        (dims, strides): (&[u64], &[u64]),
        (boxes, steps): (&[u32], &[u32]),
        swizzle_bytes: u32,
    ) -> Result<TensorMap, PtxError> {
        let n = dims.len();
        let rest = [strides.len() + 1, boxes.len(), steps.len()];
        if n == 0 || n > 5 || rest != [n; 3] {
            return refuse(format!("{n} dimensions, and {rest:?} numbers of them"));
        }
        let swizzle = match swizzle_bytes {
            0 => 0,
            32 => 1,
            64 => 2,
            128 => 3,
            other => return refuse(format!("a swizzle of {other} bytes; 0, 32, 64, 128")),
        };
        let mut m = TensorMap {
            data_type,
            rank: n as u32,
            address,
            swizzle,
            element_strides: [1; 5],
            ..TensorMap::default()
        };
        m.dims[..n].copy_from_slice(dims);
        m.strides[..n - 1].copy_from_slice(strides);
        m.boxes[..n].copy_from_slice(boxes);
        m.element_strides[..n].copy_from_slice(steps);
        Ok(m)
    }

    /// Bytes of an element.
    pub(crate) fn element(&self) -> u32 {
        match self.data_type {
            0 => 1,
            1 | 6 | 9 => 2,
            4 | 5 | 8 => 8,
            _ => 4,
        }
    }

    /// Elements that a copy moves along dimension `k`.
    pub(crate) fn count(&self, k: usize) -> u32 {
        self.boxes[k].div_ceil(self.step(k))
    }

    /// Steps along dimension `k`; the innermost has none.
    pub(crate) fn step(&self, k: usize) -> u32 {
        if k == 0 { 1 } else { self.element_strides[k] }
    }

    /// Bytes of a box in shared memory.
    pub(crate) fn box_bytes(&self) -> u32 {
        (0..self.rank as usize).fold(self.element(), |p, k| p.saturating_mul(self.count(k)))
    }

    pub(crate) fn convert(&self) -> Convert {
        match self.data_type {
            10 => Convert::Float(false, true),
            11 => Convert::Float(true, false),
            12 => Convert::Float(true, true),
            _ => Convert::Nothing,
        }
    }

    /// An address in shared memory as the swizzle changes it.
    pub(crate) fn swizzled(&self, at: u32) -> u32 {
        at ^ (at >> 3 & [0, 0x10, 0x30, 0x70][self.swizzle as usize & 3])
    }

    /// What the driver would refuse, and what is not made here.
    fn check(&self) -> Result<(), PtxError> {
        let rank = self.rank as usize;
        if self.data_type > 12 {
            return refuse(format!("data type {} is not made here", self.data_type));
        }
        if self.rank == 0 || self.rank > 5 {
            return refuse(format!("rank {}; 1 to 5 are possible", self.rank));
        }
        if !self.address.is_multiple_of(16) {
            let at = self.address;
            return refuse(format!("address {at:#x} is no multiple of 16"));
        }
        if self.interleave != 0 || self.fill != 0 || self.swizzle > 3 || self.l2_promotion > 3 {
            return refuse("interleaved tensors and fills with NaN are not made here".into());
        }
        let dims = &self.dims[..rank];
        if let Some(d) = dims.iter().find(|d| **d == 0 || **d > 1 << 32) {
            return refuse(format!("dimension of {d} elements; 1 to 2^32 are possible"));
        }
        let strides = &self.strides[..rank - 1];
        if let Some(s) = strides.iter().find(|s| *s % 16 != 0 || **s >= 1 << 40) {
            return refuse(format!("stride {s} is no multiple of 16 below 2^40"));
        }
        for k in 0..rank {
            let (b, e) = (self.boxes[k], self.element_strides[k]);
            if b == 0 || b > 256 || e == 0 || e > 8 {
                return refuse(format!(
                    "box of {b} by steps of {e}; 1 to 256 and 1 to 8 are possible"
                ));
            }
        }
        let row = self.boxes[0] * self.element();
        if !row.is_multiple_of(16) {
            return refuse(format!("rows of {row} bytes, which is no multiple of 16"));
        }
        let most = [u32::MAX, 32, 64, 128][self.swizzle as usize];
        if row > most {
            return refuse(format!("rows of {row} bytes in a swizzle of {most}"));
        }
        if self.swizzle != 0 && row != most {
            return refuse(format!(
                "rows of {row} bytes do not fill a swizzle of {most}, which is not made here"
            ));
        }
        Ok(())
    }
}

/// The 128 bytes of a map.
///
/// # Errors
/// What the driver refuses, or is not made here.
pub fn encode(m: &TensorMap) -> Result<[u8; BYTES], PtxError> {
    m.check()?;
    let mut out = Vec::with_capacity(BYTES);
    out.extend(MAGIC);
    let small = [m.data_type, m.rank, m.swizzle, m.l2_promotion];
    out.extend(small.map(|v| v as u8));
    out.extend(m.address.to_le_bytes());
    let rank = m.rank as usize;
    for k in 0..5 {
        // Dimensions of 2^32 elements fit less one.
        let d = if k < rank { m.dims[k] - 1 } else { 0 };
        out.extend((d as u32).to_le_bytes());
        out.extend((m.boxes[k] as u16).to_le_bytes());
        out.push(m.element_strides[k] as u8);
    }
    for s in m.strides {
        out.extend(s.to_le_bytes());
    }
    out.resize(BYTES, 0);
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&out);
    Ok(bytes)
}

/// The map that [`encode`] made the bytes of, if it did.
pub fn decode(bytes: &[u8]) -> Option<TensorMap> {
    if bytes.len() != BYTES || bytes[..4] != MAGIC {
        return None;
    }
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let wide = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let mut m = TensorMap {
        data_type: bytes[4].into(),
        rank: bytes[5].into(),
        swizzle: bytes[6].into(),
        l2_promotion: bytes[7].into(),
        address: wide(8),
        ..TensorMap::default()
    };
    for k in 0..5 {
        let at = 16 + 7 * k;
        if k < m.rank as usize {
            m.dims[k] = u64::from(word(at)) + 1;
        }
        m.boxes[k] = u32::from(bytes[at + 4]) | u32::from(bytes[at + 5]) << 8;
        m.element_strides[k] = bytes[at + 6].into();
    }
    for k in 0..4 {
        m.strides[k] = wide(51 + 8 * k);
    }
    m.check().is_ok().then_some(m)
}
