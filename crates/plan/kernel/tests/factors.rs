//! What matrix instructions of TF32 and bf16 multiply of f32.
use shopfloor_kernel as kernel;

use expr::{Expr, Scalar};
use kernel::{Factors, PARTS_SCALE};

/// Bits that TF32 has not.
const BELOW: u32 = 0x1fff;

fn of(e: &Expr, inputs: &[f32]) -> f32 {
    let inputs: Vec<Scalar> = inputs.iter().map(|&x| Scalar::Float(x.into())).collect();
    match e.eval_plain(&inputs).expect("a value")[..] {
        [Scalar::Float(x)] => x as f32,
        _ => panic!("no float"),
    }
}

/// f32 of all bits, and those at the ends.
fn some() -> impl Iterator<Item = f32> {
    let mut rng = fastrand::Rng::with_seed(5);
    let ends = [
        0.0,
        -0.0,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    ends.into_iter()
        .chain((0..20_000).map(move |_| f32::from_bits(rng.u32(..))))
}

#[test]
fn parts_of_f32_are_numbers_of_tf32_and_make_it_again() {
    let [upper, lower] = &Factors::Tf32x3.parts()[..] else {
        panic!("two parts")
    };
    let whole = Factors::Tf32x3.whole();
    for x in some() {
        let (u, l) = (of(upper, &[x]), of(lower, &[x]));
        let again = of(whole, &[u, l]);
        assert!(
            again == x || again.is_nan() && x.is_nan(),
            "{x:e} is {u:e} and {l:e}, which make {again:e}"
        );
        if u.is_nan() {
            assert!(x.is_nan() || x.abs() >= 2f32.powi(90), "{x:e} has no parts");
            continue;
        }
        assert_eq!(u.to_bits() & BELOW, 0, "{x:e}: {u:e}");
        // Nothing of a part is below the least normal number.
        assert!(
            u == 0.0 || u.abs() >= f32::MIN_POSITIVE * 2f32.powi(1),
            "{x:e}: {u:e}"
        );
        assert!(
            f64::from(l).abs() <= f64::from(u).abs() / 2048.0,
            "{x:e}: {l:e}"
        );
        assert_eq!(f64::from(u) + f64::from(l), f64::from(x) * PARTS_SCALE);
    }
}

#[test]
fn a_number_near_those_of_tf32_is_cut_to_a_neighbour_and_tf32_stays() {
    let near = &Factors::Tf32.parts()[0];
    for x in some().filter(|x| x.is_finite() && x.abs() < 1e38) {
        let cut = |x: f32| f32::from_bits(x.to_bits() & !BELOW);
        let got = cut(of(near, &[x]));
        assert_eq!(cut(of(near, &[cut(x)])), cut(x), "{x:e}");
        let away = f32::from_bits(cut(x).to_bits() + BELOW + 1);
        assert!(got == cut(x) || got == away, "{x:e}: {got:e}");
    }
}

#[test]
fn parts_of_bf16_are_near_and_finite_where_the_f32_is() {
    for factors in [Factors::Bf16, Factors::Bf16x3] {
        let (parts, whole) = (factors.parts(), factors.whole());
        for x in some() {
            let made: Vec<f32> = parts.iter().map(|p| of(p, &[x])).collect();
            assert!(made.iter().all(|p| p.to_bits() << 16 == 0 || p.is_nan()));
            let again = of(whole, &made);
            if !x.is_finite() {
                assert!(
                    again == x || again.is_nan() && x.is_nan(),
                    "{x:e}: {again:e}"
                );
                continue;
            }
            let bits = if made.len() == 1 { 8 } else { 16 };
            // The last bit of the least number of bf16 is worth 2^-133.
            let least = 2f64.powi(-134);
            let off = (f64::from(again) - f64::from(x)).abs();
            assert!(
                off <= f64::from(x).abs() * 2f64.powi(-bits) + least,
                "{x:e}: {made:?} are {again:e}"
            );
        }
    }
}
