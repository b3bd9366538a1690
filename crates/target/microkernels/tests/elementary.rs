//! Errors of the elementary functions in ULP, over dense samples and special values.

use super::{Guarded, Rng, isas};
use shopfloor_microkernels::{UnaryFn, kernels};

/// The distance of `got` from `want` in units of the last place of f32 at `want`; 0 where both are the same
/// special value.
fn ulp(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if got == rounded || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    if got.is_nan() || want.is_nan() || rounded.is_infinite() || got.is_infinite() {
        return f64::INFINITY;
    }
    let exponent = want.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
    (f64::from(got) - want).abs() / (exponent - 23.0).exp2()
}

/// erf by its series and its continued fraction, in f64.
fn erf(x: f64) -> f64 {
    let t = x.abs();
    if x.is_nan() {
        return x;
    }
    let y = if t < 3.0 {
        let (mut term, mut sum, mut n) = (t, t, 0.0);
        while term.abs() > 1e-18 * sum.abs() && n < 200.0 {
            n += 1.0;
            term *= -t * t / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else if t > 7.0 {
        1.0
    } else {
        let mut f = t;
        for k in (1..=80).rev() {
            f = t + f64::from(k) / 2.0 / f;
        }
        1.0 - (-t * t).exp() / f / std::f64::consts::PI.sqrt()
    };
    y.copysign(x)
}

const SPECIALS: [f32; 26] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1e-45,
    -1e-45,
    1e-40,
    -1e-40,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    88.7,
    88.73,
    -87.3,
    -87.4,
    -103.0,
    -104.0,
    -150.0,
    1e-8,
    -1e-8,
    9999.9,
    10000.1,
];

/// Dense samples: every exponent with random mantissas and signs, and an even sweep of lo..hi.
fn samples(lo: f32, hi: f32) -> Vec<f32> {
    let mut rng = Rng::new(41);
    let mut out = SPECIALS.to_vec();
    for exponent in 0..255_u32 {
        for _ in 0..400 {
            let r = rng.next() as u32;
            out.push(f32::from_bits((r & 0x807f_ffff) | (exponent << 23)));
        }
    }
    for _ in 0..600_000 {
        out.push(lo + (hi - lo) * (rng.value() * 0.5 + 0.5));
    }
    out
}

fn apply(f: UnaryFn, x: &[f32]) -> Vec<f32> {
    let mut out = Guarded::new(x.len());
    // SAFETY: both have as many elements.
    unsafe { f(x.as_ptr(), out.ptr(), x.len()) };
    out.check();
    out.inner().to_vec()
}

fn check(
    name: &str,
    pick: impl Fn(&shopfloor_microkernels::Kernels) -> UnaryFn,
    lo: f32,
    hi: f32,
    keep: impl Fn(f32) -> bool,
    want: impl Fn(f64) -> f64,
    limit: f64,
) {
    let x: Vec<f32> = samples(lo, hi).into_iter().filter(|&x| keep(x)).collect();
    let want: Vec<f64> = x.iter().map(|&x| want(f64::from(x))).collect();
    for isa in isas() {
        let got = apply(pick(kernels(isa)), &x);
        let (mut worst, mut at) = (0.0, 0);
        for i in 0..x.len() {
            let e = ulp(got[i], want[i]);
            if e > worst {
                (worst, at) = (e, i);
            }
        }
        eprintln!("{name} on {isa}: at most {worst:.2} ULP, at {:e}", x[at]);
        assert!(
            worst <= limit,
            "{name} on {isa}: {worst} ULP at {:e}: got {:e}, want {:e}",
            x[at],
            got[at],
            want[at]
        );
    }
}

fn any(_: f32) -> bool {
    true
}

#[test]
fn exponentials_and_logarithms() {
    check("exp", |k| k.exp, -104.0, 89.0, any, f64::exp, 2.0);
    check("expm1", |k| k.expm1, -3.0, 3.0, any, f64::exp_m1, 3.0);
    check("log", |k| k.log, 0.5, 2.0, any, f64::ln, 2.0);
    check("atan", |k| k.atan, -3.0, 3.0, any, f64::atan, 3.0);
    check("log1p", |k| k.log1p, -0.9, 3.0, any, f64::ln_1p, 4.0);
    check(
        "softplus",
        |k| k.softplus,
        -20.0,
        20.0,
        any,
        |x| x.max(0.0) + (-x.abs()).exp().ln_1p(),
        4.0,
    );
}

#[test]
fn sigmoids() {
    check("tanh", |k| k.tanh, -10.0, 10.0, any, f64::tanh, 4.0);
    let sigmoid = |x: f64| {
        if x < 0.0 {
            x.exp() / (1.0 + x.exp())
        } else {
            1.0 / (1.0 + (-x).exp())
        }
    };
    check("sigmoid", |k| k.sigmoid, -20.0, 20.0, any, sigmoid, 4.0);
    check(
        "silu",
        |k| k.silu,
        -20.0,
        20.0,
        |x| x > -87.0 || x.is_nan(),
        |x| x / (1.0 + (-x).exp()),
        5.0,
    );
}

#[test]
fn error_function() {
    check("erf", |k| k.erf, -4.5, 4.5, any, erf, 4.0);
}

#[test]
fn sine_and_cosine() {
    check("sin", |k| k.sin, -20.0, 20.0, any, f64::sin, 2.0);
    check("cos", |k| k.cos, -20.0, 20.0, any, f64::cos, 2.0);
    check("sin", |k| k.sin, -1.1e4, 1.1e4, any, f64::sin, 2.0);
    check("cos", |k| k.cos, -1.1e4, 1.1e4, any, f64::cos, 2.0);
}

#[test]
fn sine_near_multiples_of_pi() {
    let x: Vec<f32> = (1..6366)
        .flat_map(|n| {
            let v = (f64::from(n) * std::f64::consts::FRAC_PI_2) as f32;
            [v, v.next_up(), v.next_down(), -v]
        })
        .filter(|v| v.abs() < 1e4)
        .collect();
    for isa in isas() {
        for (name, f, want) in [
            ("sin", kernels(isa).sin, f64::sin as fn(f64) -> f64),
            ("cos", kernels(isa).cos, f64::cos),
        ] {
            for (x, y) in x.iter().zip(apply(f, &x)) {
                let e = ulp(y, want(f64::from(*x)));
                assert!(e <= 2.0, "{name} on {isa}: {e} ULP at {x}");
            }
        }
    }
}

#[test]
fn square_roots() {
    check("sqrt", |k| k.sqrt, 0.0, 4.0, any, f64::sqrt, 0.5);
    check("rsqrt", |k| k.rsqrt, 0.0, 4.0, any, |x| 1.0 / x.sqrt(), 2.0);
}

#[test]
fn gelus_within_ulp_of_x() {
    let x: Vec<f32> = samples(-8.0, 8.0)
        .into_iter()
        .filter(|x| x.abs() < 1e30 && x.abs() > 1e-30)
        .collect();
    let exact = |x: f64| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
    let tanh = |x: f64| {
        0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
    };
    for isa in isas() {
        let k = kernels(isa);
        type Form<'a> = (&'a str, UnaryFn, &'a dyn Fn(f64) -> f64, f64);
        let forms: [Form; 2] = [
            ("gelu", k.gelu, &exact, 2.5),
            ("gelu_tanh", k.gelu_tanh, &tanh, 3.0),
        ];
        for (name, f, want, limit) in forms {
            let mut worst = 0.0_f64;
            for (x, y) in x.iter().zip(apply(f, &x)) {
                let unit = (f64::from(x.abs()).log2().floor() - 23.0).exp2();
                let e = (f64::from(y) - want(f64::from(*x))).abs() / unit;
                assert!(e <= limit, "{name} on {isa}: {e} ULP of x at {x:e}: {y:e}");
                worst = worst.max(e);
            }
            eprintln!("{name} on {isa}: at most {worst:.2} ULP of x");
            let ends = apply(f, &[0.0, -0.0, f32::INFINITY, f32::NAN, 50.0, -50.0]);
            assert!(
                ends[0] == 0.0 && ends[1] == 0.0 && ends[2] == f32::INFINITY && ends[3].is_nan(),
                "{name} on {isa}: {ends:?}"
            );
            assert!(ends[4] == 50.0 && ends[5].abs() < 1e-30);
        }
    }
}

#[test]
fn powers() {
    let mut rng = Rng::new(42);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for x in SPECIALS {
        for y in SPECIALS.into_iter().chain([2.0, 3.0, -2.0, -3.0, 0.5, 2.5]) {
            a.push(x);
            b.push(y);
        }
    }
    for _ in 0..300_000 {
        let x = rng.value().abs() * [1.0, 4.0, 1e3, 1e-3][rng.below(4)];
        a.push(x);
        b.push(rng.value() * [1.0, 3.0, 30.0, 300.0][rng.below(4)]);
        // Bases near 1 with large exponents.
        a.push(1.0 + 0.01 * rng.value());
        b.push(rng.value() * 8000.0);
        // Negative ones, with whole powers and with broken ones.
        a.push(-x - 1e-3);
        b.push([1.0, 2.0, 3.0, 4.0, -1.0, -3.0, 7.0, 0.5, 2.5, 1e4][rng.below(10)]);
    }
    for isa in isas() {
        let k = kernels(isa);
        let mut out = Guarded::new(a.len());
        // SAFETY: all have as many elements.
        unsafe { (k.pow)(a.as_ptr(), b.as_ptr(), out.ptr(), a.len()) };
        out.check();
        let mut worst = 0.0_f64;
        for i in 0..a.len() {
            let want = f64::from(a[i]).powf(f64::from(b[i]));
            let e = ulp(out.inner()[i], want);
            assert!(
                e <= 4.0,
                "pow on {isa}: {e} ULP at {:e}^{:e}: got {:e}, want {want:e}",
                a[i],
                b[i],
                out.inner()[i]
            );
            worst = worst.max(e);
        }
        eprintln!("pow on {isa}: at most {worst:.2} ULP");
        // SAFETY: as above.
        unsafe { (k.pow_k)(a.as_ptr(), 2.0, out.ptr(), a.len()) };
        // SAFETY: as above.
        unsafe { (k.rpow_k)(b.as_ptr(), 2.0, out.ptr(), b.len()) };
        assert!((0..b.len()).all(|i| ulp(out.inner()[i], 2.0_f64.powf(f64::from(b[i]))) <= 4.0));
    }
}
