//! Vectors of SSE2 have the bits of the plain code that other CPUs run in their place.

use super::Rng;
use shopfloor_microkernels::portable::Portable;
use shopfloor_microkernels::simd::Simd;
use shopfloor_microkernels::sse2::Sse2;

/// Every operation on `a`, `b` and `c`, by name, as the bits of its eight lanes.
unsafe fn results<S: Simd>(
    a: &[f32; 8],
    b: &[f32; 8],
    c: &[f32; 8],
) -> Vec<(&'static str, [u32; 8])> {
    // SAFETY: any CPU has what both sets need, and pointers are of eight lanes.
    unsafe {
        let lanes = |v: S::F| {
            let mut out = [0.0f32; 8];
            S::store(out.as_mut_ptr(), v);
            out.map(f32::to_bits)
        };
        let ints = |v: S::I| lanes(S::from_bits(v));
        let truth = |m: S::M| lanes(S::select(m, S::splat(1.0), S::zero()));
        let number = |x: f32| [x.to_bits(); 8];
        let [va, vb, vc] = [a, b, c].map(|x| S::load(x.as_ptr()));
        let [ia, ib] = [S::bits(va), S::bits(vb)];
        let tail = S::tail(a[0].to_bits() as usize % 9);
        let small = S::round(S::mul(vb, S::splat(100.0)));
        vec![
            ("add", lanes(S::add(va, vb))),
            ("sub", lanes(S::sub(va, vb))),
            ("mul", lanes(S::mul(va, vb))),
            ("div", lanes(S::div(va, vb))),
            ("fma", lanes(S::fma(va, vb, vc))),
            ("fnma", lanes(S::fnma(va, vb, vc))),
            ("min", lanes(S::min(va, vb))),
            ("max", lanes(S::max(va, vb))),
            ("sqrt", lanes(S::sqrt(S::abs(va)))),
            ("neg", lanes(S::neg(va))),
            ("with_sign", lanes(S::with_sign(S::abs(va), vb))),
            ("round", lanes(S::round(va))),
            ("round_small", lanes(S::round_small(vb))),
            ("floor", lanes(S::floor(va))),
            ("ceil", lanes(S::ceil(va))),
            ("trunc", lanes(S::trunc(va))),
            ("scale2", lanes(S::scale2(va, small))),
            ("to_int", ints(S::to_int(small))),
            ("from_int", lanes(S::from_int(ia))),
            ("load_t", lanes(S::load_t(c.as_ptr(), tail))),
            ("select_t", lanes(S::select_t(tail, va, vb))),
            ("lanes", lanes(S::lanes(va, S::spread(4, 1)))),
            ("iadd", ints(S::iadd(ia, ib))),
            ("isub", ints(S::isub(ia, ib))),
            ("imul", ints(S::imul(ia, ib))),
            ("iand", ints(S::iand(ia, ib))),
            ("ixor", ints(S::ixor(ia, ib))),
            ("madd", ints(S::madd(ia, ib))),
            ("low_u8", ints(S::low_u8(ia))),
            ("high_u8", ints(S::high_u8(ia))),
            ("low_i8", ints(S::low_i8(ia))),
            ("high_i8", ints(S::high_i8(ia))),
            ("load_u8", ints(S::load_u8(a.as_ptr().cast()))),
            ("load_i8", ints(S::load_i8(a.as_ptr().cast()))),
            ("nibble", lanes(S::nibble(ia))),
            ("shr4", ints(S::shr4(ia))),
            ("shl23", ints(S::shl23(ia))),
            ("shl30", ints(S::shl30(ia))),
            ("sar23", ints(S::sar23(ia))),
            ("ieq", truth(S::ieq(ia, S::bits(S::load(c.as_ptr()))))),
            ("lt", truth(S::lt(va, vb))),
            ("le", truth(S::le(va, vc))),
            ("eq", truth(S::eq(va, vc))),
            ("is_nan", truth(S::is_nan(S::div(va, vb)))),
            ("m_or", truth(S::m_or(S::lt(va, vb), S::eq(va, vc)))),
            ("m_and", truth(S::m_and(S::lt(va, vb), S::m_none()))),
            ("m_all", number(f32::from(S::m_all(S::le(va, vb))))),
            ("m_any", number(f32::from(S::m_any(S::eq(va, vb))))),
            ("hsum", number(S::hsum(va))),
            ("hmax", number(S::hmax(va))),
            ("hmin", number(S::hmin(va))),
            ("hsum4", number(S::hsum4([va, vb, vc, va])[1])),
        ]
    }
}

#[test]
fn sse2_has_the_bits_of_plain_code() {
    let mut rng = Rng::new(31);
    let special = [
        0.0,
        -0.0,
        1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        3e38,
        1e-40,
    ];
    for _ in 0..2000 {
        let mut draw = |wide: bool| -> [f32; 8] {
            std::array::from_fn(|_| match rng.below(6) {
                0 if wide => special[rng.below(special.len())],
                1 if wide => (rng.value() * 50.0).round() / 2.0,
                _ => rng.value() * 20.0,
            })
        };
        let (a, b) = (draw(true), draw(false));
        let mut c = draw(true);
        c[2] = a[2];
        // SAFETY: any CPU has what both sets need.
        let (plain, own) =
            unsafe { (results::<Portable>(&a, &b, &c), results::<Sse2>(&a, &b, &c)) };
        for ((name, want), (_, got)) in plain.into_iter().zip(own) {
            let same = want.iter().zip(&got).all(|(x, y)| {
                // Which bits a NaN has is the compiler's choice.
                x == y || f32::from_bits(*x).is_nan() && f32::from_bits(*y).is_nan()
            });
            assert!(same, "{name} of {a:?} {b:?} {c:?}: {want:x?} {got:x?}");
        }
    }
}
