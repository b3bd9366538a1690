//! Products of a factor that is made of numbers of 4 bits.
use super::Case;
use super::dense::{FACTORS, fragment_extent};
use crate::Rng;
use crate::build::{B, at, expr, n};
use expr::ExprBuilder;
use kernel::Family;
use layout::DType;

const F: DType = DType::F32;

/// How the numbers lie.
#[derive(Clone, Copy, PartialEq)]
enum Lies {
    /// Neighbours along the depth.
    Deep,
    /// Neighbours along the columns.
    Across,
}

/// `y[m, n] = a[m, k] w[k, n]` with `w = (numbers - zero) * scale`, a scale and perhaps a zero point for every block
/// along k.
pub(super) fn product(rng: &mut Rng) -> Case {
    let (m, nn) = (rng.extent(20), rng.extent(40));
    let (blocks, block) = (rng.some(5), rng.of(&[1, 5, 8, 16, 32]));
    let lies = rng.of(&[Lies::Deep, Lies::Across]);
    of(rng, [m, nn, blocks, block], lies)
}

/// The same for matrix instructions, which find neighbours along the depth.
pub(super) fn matrix_product(rng: &mut Rng) -> Case {
    let (m, nn) = (fragment_extent(rng), fragment_extent(rng));
    let (blocks, block) = (rng.some(5), rng.of(&[16, 32, 64]));
    of(rng, [m, nn, blocks, block], Lies::Deep)
}

fn of(rng: &mut Rng, [m, nn, blocks, block]: [i64; 4], lies: Lies) -> Case {
    let d = rng.of(&FACTORS);
    let numbers = rng.of(&[DType::U4, DType::I4]);
    let depth = blocks * block;
    let axes = [
        ("m", n(m)),
        ("n", n(nn)),
        ("k", n(blocks)),
        ("block", n(block)),
    ];
    let mut b = B::new("narrow product", Family::Contract, &axes);
    let oa = b.read(d, m * depth, at(&[(0, depth), (2, block), (3, 1)]));
    let ow = match lies {
        Lies::Deep => at(&[(1, depth), (2, block), (3, 1)]),
        Lies::Across => at(&[(1, 1), (2, block * nn), (3, nn)]),
    };
    let ow = b.read(numbers, nn * depth, ow);
    let scaled = |rng: &mut Rng| match rng.once_in(2) {
        true => at(&[(1, 1), (2, nn)]),
        false => at(&[(1, blocks), (2, 1)]),
    };
    let scale = scaled(rng);
    let os = b.read(d, nn * blocks, scale);
    let zero = rng.once_in(2).then(|| scaled(rng));
    let oz = zero.map(|z| b.read(d, nn * blocks, z));
    let acc = b.fill(F, &[0, 1], 0.0);
    let a = b.load(oa, &[0, 2, 3]);
    let mut args = vec![b.load(ow, &[1, 2, 3]), b.load(os, &[1, 2])];
    args.extend(oz.map(|z| b.load(z, &[1, 2])));
    let f32_of = |e: &mut ExprBuilder, slot: u32, from: DType| {
        let v = e.input(slot, from);
        match from {
            DType::F32 => v,
            _ => e.cast(v, F),
        }
    };
    let made = expr(|e| {
        let w = f32_of(e, 0, numbers);
        let scale = f32_of(e, 1, d);
        let w = match oz {
            Some(_) => {
                let z = f32_of(e, 2, d);
                e.sub(w, z)
            }
            None => {
                let z = e.constant(8.0, F);
                e.sub(w, z)
            }
        };
        let w = e.mul(w, scale);
        match d {
            DType::F32 => w,
            _ => e.cast(w, d),
        }
    });
    let w = b.map(d, &[1, 2, 3], &args, made);
    b.contract(acc, a, w, &[2, 3]);
    let oy = b.write(F, m * nn, at(&[(0, nn), (1, 1)]));
    b.store(oy, acc);
    Case::new(b.0.k, 2e-5).of_sums()
}
