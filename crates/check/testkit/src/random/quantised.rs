//! Products of quantised tensors: 8-bit numbers with zero points and scales, weights of 4 bits.
use super::Gen;
use graph::{ContractSpec, ConvSpec, Op, ValueId, View};
use layout::{DType, Dim};
use tensor::Tensor;

const F: DType = DType::F32;

/// One node of a random kind and what it needs; nothing when no value suits it.
pub(super) fn step(g: &mut Gen) -> Option<Vec<ValueId>> {
    let v = match g.r.below(5) {
        0 | 1 => product(g),
        2 | 3 => conv(g),
        _ => nibbles(g),
    };
    v.map(|v| vec![v])
}

/// A constant of any bytes.
fn bytes(g: &mut Gen, dtype: DType, shape: &[usize]) -> Option<ValueId> {
    let n = dtype.bytes_for(shape.iter().product())?;
    let b = (0..n).map(|_| g.r.bits() as u8).collect();
    let t = Tensor::from_bytes(dtype, shape, b).ok()?;
    g.constant(t)
}

/// `(x - zero) * scale`; the scale and, perhaps, the zero point change along `shape`'s only long
/// dimension.
fn steps(g: &mut Gen, x: ValueId, shape: &[usize], zero: Option<i64>) -> Option<ValueId> {
    let scale = g.weight(F, shape)?;
    let d = g.dtype(x);
    let varied = zero.is_none() && g.r.once_in(2);
    let mut inputs = vec![x, scale];
    if varied {
        inputs.push(bytes(g, d, shape)?);
    }
    let whole = g.r.once_in(2);
    g.map(&inputs, |e, a| {
        let mut v = e.cast(a[0], DType::I32);
        let z = match a.get(2) {
            Some(&z) => e.cast(z, DType::I32),
            None => e.int(zero.unwrap_or(0), DType::I32),
        };
        v = e.sub(v, z);
        v = e.cast(v, F);
        if whole && shape.is_empty() {
            return v;
        }
        e.mul(v, a[1])
    })
}

/// An 8-bit value of at least `rank` dimensions.
fn narrow(g: &mut Gen, rank: usize) -> Option<ValueId> {
    g.find(|d, s| matches!(d, DType::U8 | DType::I8) && s.len() >= rank)
}

fn zero_of(g: &mut Gen, d: DType) -> i64 {
    match d {
        DType::U8 => g.r.below(256) as i64,
        _ => g.r.below(256) as i64 - 128,
    }
}

fn product(g: &mut Gen) -> Option<ValueId> {
    let x = narrow(g, 1)?;
    let s = g.shape(x);
    let k = s.last()?.known()? as usize;
    let n = g.r.of(&[1usize, 3, 8, 17, 48]);
    let zero = zero_of(g, g.dtype(x));
    let xs = steps(g, x, &[], Some(zero))?;
    let d = g.r.of(&[DType::I8, DType::I8, DType::U8]);
    let w = bytes(g, d, &[k, n])?;
    let w = steps(g, w, &[n], None)?;
    let lead: Vec<u8> = (0..s.len() as u8 - 1).collect();
    let spec = ContractSpec {
        a: [&lead[..], &[100]].concat(),
        b: vec![100, 101],
        out: [&lead[..], &[101]].concat(),
    };
    let y = g.node(Op::Contract(spec), &[xs, w])?;
    finish(g, y, k, &[n])
}

/// A bias, and results of about unit scale.
fn finish(g: &mut Gen, y: ValueId, terms: usize, shape: &[usize]) -> Option<ValueId> {
    let b = g.weight(F, shape)?;
    let by = 1.0 / (64.0 * 64.0 * (terms.max(1) as f64).sqrt());
    g.map(&[y, b], |e, a| {
        let by = e.constant(by, F);
        let v = e.mul(a[0], by);
        e.add(v, a[1])
    })
}

fn conv(g: &mut Gen) -> Option<ValueId> {
    let x = narrow(g, 3)?;
    let s = g.shape(x);
    let c = s[1].known().filter(|&c| c > 0 && s.len() <= 5)?;
    let spatial = s.len() - 2;
    let groups = match g.r.below(3) {
        0 => c,
        1 if c % 2 == 0 => 2,
        _ => 1,
    };
    let per = if groups == c {
        1
    } else {
        g.r.of(&[1i64, 5, 16])
    };
    let kernel: Vec<i64> = (0..spatial).map(|_| g.r.of(&[1i64, 2, 3])).collect();
    let spec = ConvSpec {
        strides: (0..spatial).map(|_| g.r.of(&[1i64, 1, 2])).collect(),
        dilations: vec![1; spatial],
        before: kernel.iter().map(|k| Dim::Known(k - 1)).collect(),
        after: kernel.iter().map(|k| Dim::Known(k - 1)).collect(),
        kernel: kernel.clone(),
        groups,
        transposed: false,
        outside: 0,
    };
    let zero = zero_of(g, g.dtype(x));
    let xs = steps(g, x, &[], Some(zero))?;
    let mut shape = vec![(groups * per) as usize, (c / groups) as usize];
    shape.extend(kernel.iter().map(|&k| k as usize));
    let w = bytes(g, DType::I8, &shape)?;
    let mut along = vec![1; shape.len()];
    along[0] = shape[0];
    let w = steps(g, w, &along, Some(0))?;
    let terms = shape[1..].iter().product();
    let y = g.node(Op::Conv(spec), &[xs, w])?;
    let mut wide = vec![shape[0]];
    wide.extend(vec![1; spatial]);
    finish(g, y, terms, &wide)
}

/// A product with blocked weights of 4 bits.
fn nibbles(g: &mut Gen) -> Option<ValueId> {
    let x = g.pick_float(1)?;
    let s = g.shape(x);
    let k = s.last()?.known().filter(|k| k % 8 == 0 && *k > 8)? as usize;
    let block = g.r.of(&[8usize, 16]);
    if !k.is_multiple_of(block) || k == block {
        return None;
    }
    let (n, blocks) = (g.r.of(&[1usize, 3, 16, 33]), k / block);
    let d = g.r.of(&[DType::U4, DType::I4]);
    let w = bytes(g, d, &[n, blocks, block])?;
    let scale = g.weight(F, &[n, blocks, 1])?;
    let mut inputs = vec![w, scale];
    if g.r.once_in(2) {
        inputs.push(g.weight(DType::U8, &[n, blocks, 1])?);
    }
    let middle = g.r.of(&[0.0, 8.0]);
    let w = g.map(&inputs, |e, a| {
        let w = e.cast(a[0], F);
        let z = match a.get(2) {
            Some(&z) => e.cast(z, F),
            None => e.constant(middle, F),
        };
        let w = e.sub(w, z);
        e.mul(w, a[1])
    })?;
    let shape = vec![Dim::from(n), Dim::from(k)];
    let w = g.view(w, View::Reshape(shape))?;
    let lead: Vec<u8> = (0..s.len() as u8 - 1).collect();
    let spec = ContractSpec {
        a: [&lead[..], &[100]].concat(),
        b: vec![101, 100],
        out: [&lead[..], &[101]].concat(),
    };
    let y = g.node(Op::Contract(spec), &[x, w])?;
    let by = 1.0 / (8.0 * (k as f64).sqrt());
    g.map(&[y], |e, a| {
        let by = e.constant(by, F);
        e.mul(a[0], by)
    })
}
