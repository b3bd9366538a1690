//! Floating-point instructions against Rust, over edge values.

use crate::suite::arithmetic::check;

/// One instruction on f32, f64 or packed halves.
pub struct Case {
    pub name: &'static str,
    pub bits: u32,
    pub out: u32,
    pub text: &'static str,
}

pub fn edges32() -> Vec<u64> {
    [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        -2.75,
        3.0,
        0.1,
        16_777_217.0,
        1e-40,
        -1e-42,
        f32::MIN_POSITIVE,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1.000_000_1,
    ]
    .iter()
    .map(|v| u64::from(v.to_bits()))
    .collect()
}

fn edges64() -> Vec<u64> {
    [
        0.0f64,
        -0.0,
        1.0,
        -1.5,
        0.1,
        3.0,
        1e300,
        -1e-300,
        f64::INFINITY,
        f64::NAN,
        1.0 + f64::EPSILON,
    ]
    .iter()
    .map(|v| v.to_bits())
    .collect()
}

fn f(v: u64) -> f32 {
    f32::from_bits(v as u32)
}

fn d(v: u64) -> f64 {
    f64::from_bits(v)
}

fn same32(got: u64, want: f32) -> Result<(), String> {
    let g = f(got);
    if g.to_bits() == want.to_bits() || (g.is_nan() && want.is_nan()) {
        Ok(())
    } else {
        Err(format!("got {g:e}, want {want:e}"))
    }
}

fn same64(got: u64, want: f64) -> Result<(), String> {
    let g = d(got);
    if g.to_bits() == want.to_bits() || (g.is_nan() && want.is_nan()) {
        Ok(())
    } else {
        Err(format!("got {g:e}, want {want:e}"))
    }
}

/// Zero instead of subnormal numbers.
fn z(v: f32) -> f32 {
    if v.is_subnormal() {
        0f32.copysign(v)
    } else {
        v
    }
}

macro_rules! cases {
    ($($name:ident $bits:literal $out:literal $text:literal |$a:ident, $b:ident, $c:ident, $got:ident| $e:expr;)*) => {
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            bits: $bits,
            out: $out,
            text: $text,
        }),*];
        $(#[test]
        fn $name() {
            let values = if $bits == 64 { edges64() } else { edges32() };
            check(stringify!($name), ($bits, $out), $text, &values, |$a, $b, $c, $got| {
                let _ = ($a, $b, $c);
                $e
            });
        })*
    };
}

fn within(got: u64, want: f64, relative: f64) -> Result<(), String> {
    let g = f64::from(f(got));
    let good = (g.is_nan() && want.is_nan())
        || g == want
        || (g - want).abs() <= relative * want.abs().max(f64::from(f32::MIN_POSITIVE))
        || (g.is_infinite() && want.abs() > f64::from(f32::MAX) && g.signum() == want.signum());
    if good {
        Ok(())
    } else {
        Err(format!("got {g:e}, want {want:e}"))
    }
}

/// min and max: a NaN loses, and the zeros are ordered.
fn least(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => {
            if a < b {
                a
            } else {
                b
            }
        }
    }
}

cases! {
    add_f32 32 32 "add.rn.f32 %d, %a, %b;" |a, b, c, g| same32(g, f(a) + f(b));
    add_ftz_f32 32 32 "add.ftz.f32 %d, %a, %b;" |a, b, c, g| same32(g, z(z(f(a)) + z(f(b))));
    add_sat_f32 32 32 "add.sat.f32 %d, %a, %b;" |a, b, c, g| {
        let s = f(a) + f(b);
        same32(g, if s > 0.0 { s.min(1.0) } else { 0.0 })
    };
    sub_f32 32 32 "sub.f32 %d, %a, %b;" |a, b, c, g| same32(g, f(a) - f(b));
    mul_f32 32 32 "mul.rn.f32 %d, %a, %b;" |a, b, c, g| same32(g, f(a) * f(b));
    mul_rz_f32 32 32 "mul.rz.f32 %d, %a, %b;" |a, b, c, g| {
        let exact = f64::from(f(a)) * f64::from(f(b));
        let mut t = exact as f32;
        if f64::from(t).abs() > exact.abs() { t = f32::from_bits(t.to_bits() - 1); }
        same32(g, t)
    };
    add_rp_f32 32 32 "add.rp.f32 %d, %a, %b;" |a, b, c, g| {
        // The sum in f64, and what that lost.
        let (x, y) = (f64::from(f(a)), f64::from(f(b)));
        let sum = x + y;
        let part = sum - x;
        let lost = (x - (sum - part)) + (y - part);
        let t = sum as f32;
        let short = f64::from(t) < sum || (f64::from(t) == sum && lost > 0.0);
        same32(g, if short && sum.is_finite() { t.next_up() } else { t })
    };
    fma_f32 32 32 "fma.rn.f32 %d, %a, %b, %c;" |a, b, c, g| same32(g, f(a).mul_add(f(b), f(c)));
    fma_rm_f32 32 32 "fma.rm.f32 %d, %a, %b, 0f3F800000;" |a, b, c, g| {
        let exact = f64::from(f(a)) * f64::from(f(b));
        if !exact.is_finite() { return same32(g, exact as f32 + 1.0); }
        let got = f64::from(f(g));
        let ok = got - 1.0 <= exact && (f64::from(f(g).next_up()) - 1.0 > exact || f(g) == f32::MAX);
        if ok || got == exact + 1.0 { Ok(()) } else { Err(format!("got {got:e}, exact {:e}", exact + 1.0)) }
    };
    div_f32 32 32 "div.rn.f32 %d, %a, %b;" |a, b, c, g| same32(g, f(a) / f(b));
    div_full_f32 32 32 "div.full.f32 %d, %a, %b;" |a, b, c, g| same32(g, f(a) / f(b));
    rcp_f32 32 32 "rcp.rn.f32 %d, %a;" |a, b, c, g| same32(g, 1.0 / f(a));
    sqrt_f32 32 32 "sqrt.rn.f32 %d, %a;" |a, b, c, g| same32(g, f(a).sqrt());
    rsqrt_f32 32 32 "rsqrt.approx.f32 %d, %a;" |a, b, c, g| within(g, 1.0 / f64::from(f(a)).sqrt(), 1e-6);
    ex2_f32 32 32 "ex2.approx.f32 %d, %a;" |a, b, c, g| within(g, f64::from(f(a)).exp2(), 1e-6);
    lg2_f32 32 32 "lg2.approx.f32 %d, %a;" |a, b, c, g| within(g, f64::from(f(a)).log2(), 1e-6);
    sin_f32 32 32 "sin.approx.f32 %d, %a;" |a, b, c, g| within(g, f64::from(f(a)).sin(), 1e-6);
    cos_f32 32 32 "cos.approx.f32 %d, %a;" |a, b, c, g| within(g, f64::from(f(a)).cos(), 1e-6);
    tanh_f32 32 32 "tanh.approx.f32 %d, %a;" |a, b, c, g| within(g, f64::from(f(a)).tanh(), 1e-3);
    min_f32 32 32 "min.f32 %d, %a, %b;" |a, b, c, g| same32(g, least(f(a), f(b)));
    max_f32 32 32 "max.f32 %d, %a, %b;" |a, b, c, g| same32(g, -least(-f(a), -f(b)));
    max_nan_f32 32 32 "max.NaN.f32 %d, %a, %b;" |a, b, c, g| same32(g, if f(a).is_nan() || f(b).is_nan() { f32::NAN } else { -least(-f(a), -f(b)) });
    neg_f32 32 32 "neg.f32 %d, %a;" |a, b, c, g| same32(g, -f(a));
    abs_ftz_f32 32 32 "abs.ftz.f32 %d, %a;" |a, b, c, g| same32(g, z(f(a)).abs());
    copysign_f32 32 32 "copysign.f32 %d, %a, %b;" |a, b, c, g| same32(g, f(b).abs().copysign(f(a)));
    setp_unordered 32 32 "setp.ltu.f32 %p, %a, %b; setp.num.f32 %q, %a, %b; selp.u32 %x, 2, 0, %p; selp.u32 %y, 1, 0, %q; or.b32 %d, %x, %y;" |a, b, c, g| {
        let nan = f(a).is_nan() || f(b).is_nan();
        let want = u64::from(nan || f(a) < f(b)) * 2 + u64::from(!nan);
        if g == want { Ok(()) } else { Err(format!("got {g}, want {want}")) }
    };
    testp_f32 32 32 "testp.subnormal.f32 %p, %a; testp.finite.f32 %q, %a; selp.u32 %x, 2, 0, %p; selp.u32 %y, 1, 0, %q; or.b32 %d, %x, %y;" |a, b, c, g| {
        let want = u64::from(f(a).is_subnormal()) * 2 + u64::from(f(a).is_finite());
        if g == want { Ok(()) } else { Err(format!("got {g}, want {want}")) }
    };
    add_f64 64 64 "add.f64 %d, %a, %b;" |a, b, c, g| same64(g, d(a) + d(b));
    fma_f64 64 64 "fma.rn.f64 %d, %a, %b, %c;" |a, b, c, g| same64(g, d(a).mul_add(d(b), d(c)));
    mul_ru_f64 64 64 "mul.rp.f64 %d, %a, %b;" |a, b, c, g| {
        let p = d(a) * d(b);
        let lost = d(a).mul_add(d(b), -p);
        same64(g, if lost > 0.0 { p.next_up() } else { p })
    };
    div_f64 64 64 "div.rn.f64 %d, %a, %b;" |a, b, c, g| same64(g, d(a) / d(b));
    sqrt_f64 64 64 "sqrt.rn.f64 %d, %a;" |a, b, c, g| same64(g, d(a).sqrt());
    min_f64 64 64 "min.f64 %d, %a, %b;" |a, b, c, g| same64(g, match (d(a).is_nan(), d(b).is_nan()) {
        (true, _) => d(b),
        (_, true) => d(a),
        _ if d(a) == d(b) => if d(a).is_sign_negative() { d(a) } else { d(b) },
        _ => d(a).min(d(b)),
    });
}

/// Values of f16 halves: (bits, value).
const HALVES: [(u64, f64); 12] = [
    (0x0000, 0.0),
    (0x8000, -0.0),
    (0x3c00, 1.0),
    (0xbc00, -1.0),
    (0x3e00, 1.5),
    (0x3c01, 1.0009765625),
    (0x0001, 5.960464477539063e-8),
    (0x03ff, 6.097555160522461e-5),
    (0x0400, 6.103515625e-5),
    (0x7bff, 65504.0),
    (0x5640, 100.0),
    (0xfc00, f64::NEG_INFINITY),
];

/// Nearest f16 of an exact value, by looking at all of them.
fn nearest(v: f64) -> u64 {
    let all = |h: u64| -> f64 {
        let (e, m) = (h >> 10 & 31, (h & 1023) as f64);
        if e == 0 {
            m * 2f64.powi(-24)
        } else {
            (1.0 + m / 1024.0) * 2f64.powi(e as i32 - 15)
        }
    };
    let sign = if v.is_sign_negative() { 0x8000 } else { 0 };
    let x = v.abs();
    if x >= 65520.0 {
        return sign | 0x7c00;
    }
    let (mut lo, mut hi) = (0u64, 0x7c00u64);
    while hi - lo > 1 {
        let mid = (lo + hi) / 2;
        if all(mid) <= x { lo = mid } else { hi = mid }
    }
    let up = if hi == 0x7c00 { 65536.0 } else { all(hi) };
    let (below, above) = (x - all(lo), up - x);
    sign | if below < above || (below == above && lo & 1 == 0) {
        lo
    } else {
        hi
    }
}

#[test]
fn f16_products_and_sums_round_once() {
    let of = |h: u64| HALVES.iter().find(|p| p.0 == h).unwrap().1;
    let values: Vec<u64> = HALVES.iter().map(|p| p.0).collect();
    type Op = fn(f64, f64, f64) -> f64;
    let cases: [(&str, &str, Op); 4] = [
        ("hadd", "add.rn.f16 %d, %a, %b;", |a, b, _| a + b),
        ("hmul", "mul.rn.f16 %d, %a, %b;", |a, b, _| a * b),
        ("hsub", "sub.f16 %d, %a, %b;", |a, b, _| a - b),
        ("hfma", "fma.rn.f16 %d, %a, %b, %c;", |a, b, c| a * b + c),
    ];
    for (name, text, op) in cases {
        check(name, (16, 16), text, &values, |a, b, c, g| {
            let v = op(of(a), of(b), of(c));
            if v.is_nan() {
                return if g & 0x7fff > 0x7c00 {
                    Ok(())
                } else {
                    Err("no NaN".into())
                };
            }
            let want = nearest(v);
            if g == want {
                Ok(())
            } else {
                Err(format!("got {g:#x}, want {want:#x}"))
            }
        });
    }
}

#[test]
fn pairs_of_halves_are_two() {
    let values = [0x3c00_4000u64, 0xbc00_3800, 0x7bff_0001, 0x5640_3e00];
    check(
        "pair",
        (32, 32),
        "fma.rn.f16x2 %d, %a, %b, %c;",
        &values,
        |a, b, c, g| {
            let of = |h: u64| -> f64 {
                let s = if h & 0x8000 != 0 { -1.0 } else { 1.0 };
                let (e, m) = (h >> 10 & 31, (h & 1023) as f64);
                s * if e == 0 {
                    m * 2f64.powi(-24)
                } else {
                    (1.0 + m / 1024.0) * 2f64.powi(e as i32 - 15)
                }
            };
            for k in [0, 16] {
                let h = |v: u64| of(v >> k & 0xffff);
                let want = nearest(h(a) * h(b) + h(c));
                if g >> k & 0xffff != want {
                    return Err(format!("got {:#x}, want {want:#x}", g >> k & 0xffff));
                }
            }
            Ok(())
        },
    );
}

#[test]
fn bf16_is_the_upper_half_of_f32() {
    let values = [0x3f80u64, 0xbf80, 0x4049, 0x3e99, 0x7f7f, 0x0080];
    check(
        "bmul",
        (16, 16),
        "fma.rn.bf16 %d, %a, %b, %c;",
        &values,
        |a, b, c, g| {
            let h = |v: u64| f64::from(f32::from_bits((v as u32) << 16));
            let v = h(a).mul_add(h(b), h(c)) as f32;
            let bits = v.to_bits();
            let want = u64::from((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
            // The reference rounds twice: it may be off where f32 rounded onto a tie.
            if g == want || g + 1 == want || g == want + 1 {
                Ok(())
            } else {
                Err(format!("got {g:#x}, want {want:#x}"))
            }
        },
    );
}
