//! com.microsoft MurmurHash3: a hash of 32 bits per element (Austin Appleby's MurmurHash3_x86_32).
use crate::args::Args;
use crate::data::alloc;
use crate::error::R;
use layout::DType;
use tensor::Tensor;

fn scrambled(k: u32) -> u32 {
    k.wrapping_mul(0xcc9e_2d51)
        .rotate_left(15)
        .wrapping_mul(0x1b87_3593)
}

fn hash(bytes: &[u8], seed: u32) -> u32 {
    let mut h = seed;
    let mut words = bytes.chunks_exact(4);
    for w in &mut words {
        h ^= scrambled(u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        h = h.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let rest = words.remainder().iter().rev();
    h ^= scrambled(rest.fold(0, |k, b| k << 8 | u32::from(*b)));
    h ^= bytes.len() as u32;
    h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let seed = a.int("seed", 0)? as u32;
    let d = match a.int("positive", 1)? {
        0 => DType::I32,
        _ => DType::U32,
    };
    let mut y = alloc(d, x.shape())?;
    let mut put = |i: usize, h: u32| match d {
        DType::I32 => y.set_i64(i, i64::from(h as i32)),
        _ => y.set_i64(i, i64::from(h)),
    };
    if let Some(texts) = x.text() {
        for (i, t) in texts.iter().enumerate() {
            put(i, hash(t.as_bytes(), seed));
        }
        return Ok(vec![y]);
    }
    let width = match x.dtype().bits() {
        bits @ (32 | 64) => bits as usize / 8,
        _ => return Err(format!("it hashes no elements of {}", x.dtype()).into()),
    };
    for (i, b) in x.bytes().chunks_exact(width).enumerate() {
        put(i, hash(b, seed));
    }
    Ok(vec![y])
}
