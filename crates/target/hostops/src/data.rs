//! Helpers over host tensors: allocation with a cap, element access, strides.
use crate::error::R;
use expr::Scalar;
use layout::DType;
use std::borrow::Cow;
use tensor::Tensor;

/// Largest output in bytes that a host operator makes; data that asks for more is an error.
pub const MAX_OUTPUT_BYTES: usize = 1 << 33;

/// Largest result of texts in bytes that a host operator makes, each text's own record among them.
pub const MAX_TEXT_BYTES: usize = 1 << 30;

/// Room for the `count` texts of one result, which are not made yet and take `bytes` bytes together.
pub(crate) fn text_room(count: usize, bytes: Option<usize>) -> R<Vec<String>> {
    let records = count.checked_mul(size_of::<String>());
    let all = records.and_then(|r| r.checked_add(bytes?));
    if all.is_none_or(|n| n > MAX_TEXT_BYTES) {
        return Err(format!("its {count} texts together take more than a host operator may make ({MAX_TEXT_BYTES} B); use shorter texts or fewer").into());
    }
    let mut room = Vec::new();
    let had = room.try_reserve_exact(count);
    had.map_err(|_| format!("there is no memory for {count} texts; use smaller dimensions"))?;
    Ok(room)
}

/// Bytes of these texts together; `None` where they are too many to count.
pub(crate) fn text_bytes<T: AsRef<str>>(each: impl IntoIterator<Item = T>) -> Option<usize> {
    let mut each = each.into_iter();
    each.try_fold(0usize, |n, t| n.checked_add(t.as_ref().len()))
}

/// The tensor of `shape` that these texts fill; they are counted before they are made.
pub(crate) fn texts<I>(shape: &[usize], each: I) -> R<Tensor>
where
    I: IntoIterator<Item: AsRef<str>, IntoIter: Clone>,
{
    let each = each.into_iter();
    let mut out = text_room(count(shape)?, text_bytes(each.clone()))?;
    out.extend(each.map(|t| t.as_ref().to_string()));
    Ok(Tensor::from_text(shape, out)?)
}

/// A tensor of zeros whose memory could be had.
pub(crate) fn alloc(dtype: DType, shape: &[usize]) -> R<Tensor> {
    let n = Tensor::byte_len(dtype, shape)?;
    let bytes = alloc_bytes(n).ok_or_else(|| {
        format!("an output of shape {shape:?} takes {n} bytes, more than a host operator may make ({MAX_OUTPUT_BYTES}) or than there are; use smaller dimensions")
    })?;
    Ok(Tensor::from_bytes(dtype, shape, bytes)?)
}

/// Zeroed bytes, or `None` when they are too many.
pub(crate) fn alloc_bytes(n: usize) -> Option<Vec<u8>> {
    if n > MAX_OUTPUT_BYTES {
        return None;
    }
    // A probe that can fail; the zeroed allocation that follows then does not abort.
    Vec::<u8>::new().try_reserve_exact(n).ok()?;
    Some(vec![0; n])
}

/// Element `i` as a scalar.
#[inline]
pub(crate) fn get(t: &Tensor, i: usize) -> Scalar {
    if t.dtype().is_float() {
        Scalar::Float(t.get_f64(i))
    } else {
        Scalar::Int(t.get_i64(i))
    }
}

/// Sets element `i` from a scalar of the tensor's type.
#[inline]
pub(crate) fn set(t: &mut Tensor, i: usize, v: Scalar) {
    match v {
        Scalar::Float(x) => t.set_f64(i, x),
        Scalar::Int(x) => t.set_i64(i, x),
    }
}

/// All elements as i64.
pub(crate) fn ints(t: &Tensor) -> Vec<i64> {
    (0..t.len()).map(|i| t.get_i64(i)).collect()
}

/// All elements as f32; exact for f16, bf16 and f32.
pub(crate) fn f32s(t: &Tensor) -> Vec<f32> {
    if t.dtype() == DType::F32 {
        return t
            .bytes()
            .chunks_exact(4)
            .map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]))
            .collect();
    }
    (0..t.len()).map(|i| t.get_f64(i) as f32).collect()
}

/// All elements as f64.
pub(crate) fn f64s(t: &Tensor) -> Vec<f64> {
    if t.dtype() == DType::F32 {
        return t
            .bytes()
            .chunks_exact(4)
            .map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]]) as f64)
            .collect();
    }
    (0..t.len()).map(|i| t.get_f64(i)).collect()
}

/// A tensor of `dtype` from f64 values, rounded to nearest (integers: toward zero, saturating).
pub(crate) fn from_f64s(dtype: DType, shape: &[usize], v: &[f64]) -> R<Tensor> {
    let mut t = alloc(dtype, shape)?;
    if v.len() != t.len() {
        return Err(format!("{} values do not fill shape {shape:?}", v.len()).into());
    }
    if dtype == DType::F32 {
        for (b, x) in t.bytes_mut().chunks_exact_mut(4).zip(v) {
            b.copy_from_slice(&(*x as f32).to_le_bytes());
        }
    } else {
        for (i, x) in v.iter().enumerate() {
            t.set_f64(i, *x);
        }
    }
    Ok(t)
}

/// An I64 tensor.
pub(crate) fn from_i64s(shape: &[usize], v: &[i64]) -> R<Tensor> {
    Ok(Tensor::from_i64(shape, v)?)
}

/// Number of elements of a shape; an error on overflow.
pub(crate) fn count(shape: &[usize]) -> R<usize> {
    if shape.contains(&0) {
        return Ok(0);
    }
    shape
        .iter()
        .try_fold(1usize, |a, &d| a.checked_mul(d))
        .ok_or_else(|| format!("shape {shape:?} has too many elements").into())
}

/// Row-major strides in elements.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut s = vec![1usize; shape.len()];
    for d in (1..shape.len()).rev() {
        s[d - 1] = s[d].saturating_mul(shape[d]);
    }
    s
}

/// Steps `at` to the next coordinate of `shape` in row-major order; false after the last.
pub(crate) fn next(at: &mut [usize], shape: &[usize]) -> bool {
    for d in (0..shape.len()).rev() {
        at[d] += 1;
        if at[d] < shape[d] {
            return true;
        }
        at[d] = 0;
    }
    false
}

/// `axis` counted from the end when negative.
pub(crate) fn axis(a: i64, rank: usize) -> R<usize> {
    let r = rank as i64;
    if a < -r || a >= r {
        return Err(format!("axis {a} is outside a tensor of {rank} dimensions").into());
    }
    Ok(if a < 0 { a + r } else { a } as usize)
}

/// `index` counted from the end when negative, checked against `extent`.
#[inline]
pub(crate) fn index(i: i64, extent: usize) -> R<usize> {
    let e = extent as i64;
    if i < -e || i >= e {
        return Err(format!("index {i} is outside an extent of {extent}").into());
    }
    Ok(if i < 0 { i + e } else { i } as usize)
}

/// (product before, extent, product after) of dimension `axis`.
pub(crate) fn around(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (
        shape[..axis].iter().product(),
        shape[axis],
        shape[axis + 1..].iter().product(),
    )
}

/// An i64 as an extent.
pub(crate) fn extent(v: i64) -> R<usize> {
    usize::try_from(v).map_err(|_| format!("{v} is not an extent").into())
}

/// Elements at whole-byte addresses: 4-bit types are unpacked to one byte each.
pub(crate) struct Raw<'a> {
    /// Bytes per element.
    pub width: usize,
    /// Elements.
    pub bytes: Cow<'a, [u8]>,
}

impl Raw<'_> {
    /// Element `i`.
    #[inline]
    pub fn at(&self, i: usize) -> &[u8] {
        &self.bytes[i * self.width..(i + 1) * self.width]
    }
}

/// The elements of `t` at byte addresses.
pub(crate) fn raw(t: &Tensor) -> Raw<'_> {
    match t.dtype().bits() {
        4 => Raw {
            width: 1,
            bytes: Cow::Owned((0..t.len()).map(|i| t.get_i64(i) as u8 & 15).collect()),
        },
        b => Raw {
            width: b as usize / 8,
            bytes: Cow::Borrowed(t.bytes()),
        },
    }
}

/// Builds a tensor whose elements are moved, not computed.
pub(crate) struct RawOut {
    dtype: DType,
    shape: Vec<usize>,
    /// Bytes per element.
    pub width: usize,
    /// Elements.
    pub bytes: Vec<u8>,
}

impl RawOut {
    /// Zeroed elements.
    pub fn new(dtype: DType, shape: &[usize]) -> R<RawOut> {
        let width = (dtype.bits() as usize).div_ceil(8);
        let bytes = count(shape)?.checked_mul(width).and_then(alloc_bytes);
        Ok(RawOut {
            dtype,
            shape: shape.to_vec(),
            width,
            bytes: bytes.ok_or_else(|| {
                format!("an output of shape {shape:?} takes more memory than a host operator may use; use smaller dimensions")
            })?,
        })
    }

    /// Puts an element.
    #[inline]
    pub fn put(&mut self, i: usize, e: &[u8]) {
        self.bytes[i * self.width..(i + 1) * self.width].copy_from_slice(e);
    }

    /// The tensor.
    pub fn finish(self) -> R<Tensor> {
        if self.dtype.bits() != 4 {
            return Ok(Tensor::from_bytes(self.dtype, &self.shape, self.bytes)?);
        }
        let mut t = Tensor::zeros(self.dtype, &self.shape)?;
        for (i, b) in self.bytes.iter().enumerate() {
            t.set_i64(i, *b as i64);
        }
        Ok(t)
    }
}

/// Output element at each coordinate is the element of `input` at `offset + sum of coordinate times
/// stride` (in elements). The caller has checked that every address is inside.
pub(crate) fn strided(input: &Tensor, offset: i64, by: &[i64], shape: &[usize]) -> R<Tensor> {
    let src = raw(input);
    let mut out = RawOut::new(input.dtype(), shape)?;
    let w = src.width;
    if out.bytes.is_empty() {
        return out.finish();
    }
    let (outer, inner) = match shape.len() {
        0 => (&shape[..0], 1),
        r => (&shape[..r - 1], shape[r - 1]),
    };
    let step = by.last().copied().unwrap_or(1);
    let mut at = vec![0usize; outer.len()];
    let mut o = 0;
    loop {
        let base = offset + at.iter().zip(by).map(|(c, s)| *c as i64 * s).sum::<i64>();
        if step == 1 {
            let b = base as usize * w;
            out.bytes[o * w..(o + inner) * w].copy_from_slice(&src.bytes[b..b + inner * w]);
        } else {
            for i in 0..inner {
                let s = (base + i as i64 * step) as usize;
                out.put(o + i, src.at(s));
            }
        }
        o += inner;
        if !next(&mut at, outer) {
            break;
        }
    }
    out.finish()
}

/// The common shape of right-aligned broadcasting.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> R<Vec<usize>> {
    let rank = a.len().max(b.len());
    (0..rank)
        .map(|d| {
            let x = (d + a.len()).checked_sub(rank).map_or(1, |i| a[i]);
            let y = (d + b.len()).checked_sub(rank).map_or(1, |i| b[i]);
            match (x, y) {
                (x, y) if x == y => Ok(x),
                (1, y) => Ok(y),
                (x, 1) => Ok(x),
                _ => Err(format!("shapes {a:?} and {b:?} do not broadcast").into()),
            }
        })
        .collect()
}

/// Strides in elements that read a tensor of shape `from` as if it had shape `to`.
pub(crate) fn broadcast_strides(from: &[usize], to: &[usize]) -> R<Vec<i64>> {
    let own = strides(from);
    if from.len() > to.len() {
        return Err(format!("shape {from:?} does not broadcast to {to:?}").into());
    }
    let skip = to.len() - from.len();
    (0..to.len())
        .map(|d| match d.checked_sub(skip) {
            None => Ok(0),
            Some(i) if from[i] == 1 => Ok(0),
            Some(i) if from[i] == to[d] => Ok(own[i] as i64),
            _ => Err(format!("shape {from:?} does not broadcast to {to:?}").into()),
        })
        .collect()
}
