//! TopK on keys that compare as integers: partial selection, then a sort of what is kept.
use super::{Elem, Fast, Form, In, Out, input};
use crate::core::spec;
use crate::data::around;
use graph::HostSpec;
use layout::DType;
use tensor::Attrs;

pub(super) struct Sort {
    axis: usize,
    descending: bool,
}

pub(super) fn prepare(attrs: &Attrs) -> Option<Sort> {
    match spec("core.sort", attrs) {
        Ok(HostSpec::Sort {
            axis, descending, ..
        }) => Some(Sort { axis, descending }),
        _ => None,
    }
}

/// Rank of a float among all floats: zeros are equal, NaNs are equal and above every number.
#[inline(always)]
fn float_key(x: f32) -> u32 {
    if x.is_nan() {
        return u32::MAX;
    }
    let b = (x + 0.0).to_bits();
    if b >> 31 == 1 { !b } else { b | 1 << 31 }
}

/// The `k` first of `keys` in ascending order, which holds a key and, below it, an index.
fn first<K: Ord + Copy>(keys: &mut Vec<K>, k: usize) {
    if k < keys.len() {
        keys.select_nth_unstable(k - 1);
        keys.truncate(k);
    }
    keys.sort_unstable();
}

impl Form for Sort {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast {
        let (Some(x), [values, indices]) = (input(inputs, 0), outputs) else {
            return Ok(false);
        };
        let fits = self.axis < x.shape.len()
            && values.shape.len() == x.shape.len()
            && (0..x.shape.len()).all(|d| d == self.axis || values.shape[d] == x.shape[d])
            && values.shape == indices.shape
            && values.dtype == x.dtype
            && indices.dtype == DType::I64;
        if !fits || values.shape[self.axis] > x.shape[self.axis] {
            return Ok(false);
        }
        let (outer, n, inner) = around(x.shape, self.axis);
        let k = values.shape[self.axis];
        if k == 0 || inner == 0 || outer == 0 {
            return Ok(true);
        }
        if n > u32::MAX as usize {
            return Ok(false);
        }
        let turn = |down: bool, key: u32| u64::from(if down { !key } else { key });
        let down = self.descending;
        match x.dtype {
            DType::F32 => self.each::<f32, u64>(
                x.bytes,
                (values.bytes, indices.bytes),
                (outer, n, inner, k),
                |v, j| turn(down, float_key(v)) << 32 | j as u64,
                |key| key as u32 as usize,
            ),
            DType::I32 => self.each::<i32, u64>(
                x.bytes,
                (values.bytes, indices.bytes),
                (outer, n, inner, k),
                |v, j| turn(down, v as u32 ^ 1 << 31) << 32 | j as u64,
                |key| key as u32 as usize,
            ),
            DType::I64 => self.each::<i64, (i64, usize)>(
                x.bytes,
                (values.bytes, indices.bytes),
                (outer, n, inner, k),
                |v, j| (if down { !v } else { v }, j),
                |key| key.1,
            ),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Sort {
    fn each<T: Elem, K: Ord + Copy>(
        &self,
        x: &[u8],
        (values, indices): (&mut [u8], &mut [u8]),
        (outer, n, inner, k): (usize, usize, usize, usize),
        key: impl Fn(T, usize) -> K,
        index: impl Fn(K) -> usize,
    ) {
        let x = T::chunks(x);
        let (values, indices) = (T::chunks_mut(values), i64::chunks_mut(indices));
        let mut keys: Vec<K> = Vec::with_capacity(n);
        for o in 0..outer {
            for i in 0..inner {
                keys.clear();
                let row = x[o * n * inner..(o + 1) * n * inner][i..]
                    .iter()
                    .step_by(inner);
                keys.extend(row.enumerate().map(|(j, v)| key(T::get(*v), j)));
                first(&mut keys, k);
                for (j, q) in keys.iter().enumerate() {
                    let (from, to) = (index(*q), (o * k + j) * inner + i);
                    values[to] = x[(o * n + from) * inner + i];
                    indices[to] = (from as i64).put();
                }
            }
        }
    }
}
