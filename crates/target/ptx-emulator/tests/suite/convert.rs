//! Conversions against Rust.

use crate::suite::arithmetic::check;
use crate::suite::floats::edges32;

fn f(v: u64) -> f32 {
    f32::from_bits(v as u32)
}

/// What a conversion must give.
pub type Want = fn(u64) -> u64;

macro_rules! cases {
    ($($name:ident $bits:literal $out:literal $text:literal |$a:ident| $e:expr;)*) => {
        pub const CASES: &[(&str, u32, u32, &str, Want)] = &[$(
            (stringify!($name), $bits, $out, $text, |$a| ($e) as u64)
        ),*];
        $(#[test]
        fn $name() { one(stringify!($name)); })*
    };
}

fn one(name: &str) {
    let (name, bits, out, text, want) = CASES.iter().find(|c| c.0 == name).unwrap();
    let mut values = edges32();
    values.extend([
        1u64,
        2,
        127,
        128,
        255,
        256,
        32767,
        65535,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
    ]);
    values.extend(
        [2.5f32, -2.5, 3.5, 1e10, -1e10, 255.5, 2147483520.0].map(|v| u64::from(v.to_bits())),
    );
    if *bits == 64 {
        values.extend([
            u64::MAX,
            1 << 63,
            (1 << 53) + 1,
            0x7fff_ffff_ffff_ffff,
            0x0020_0000_0100_0001,
        ]);
    }
    let m = if *bits == 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    };
    let values: Vec<u64> = values.iter().map(|v| v & m).collect();
    let mo = if *out == 64 { u64::MAX } else { (1 << out) - 1 };
    check(name, (*bits, *out), text, &values, |a, _, _, g| {
        let w = want(a) & mo;
        if g == w {
            Ok(())
        } else {
            Err(format!("got {g:#x}, want {w:#x}"))
        }
    });
}

fn half_even(v: f32) -> f32 {
    v.round_ties_even()
}

cases! {
    s32_from_f32_rzi 32 32 "cvt.rzi.s32.f32 %d, %a;" |a| f(a) as i32 as u32;
    s32_from_f32_rni 32 32 "cvt.rni.s32.f32 %d, %a;" |a| half_even(f(a)) as i32 as u32;
    u32_from_f32_rmi 32 32 "cvt.rmi.u32.f32 %d, %a;" |a| f(a).floor() as u32;
    u8_from_f32_sat 32 32 "cvt.rni.sat.u8.f32 %d, %a;" |a| half_even(f(a)) as u8;
    s8_from_s32_sat 32 32 "cvt.sat.s8.s32 %d, %a;" |a| (a as i32).clamp(-128, 127) as u32;
    s16_from_s32 32 16 "cvt.s16.s32 %d, %a;" |a| a as u16;
    u32_from_s8 32 32 "cvt.u32.s8 %d, %a;" |a| a as i8 as i32 as u32;
    s64_from_s32 32 64 "cvt.s64.s32 %d, %a;" |a| a as i32 as i64;
    u64_from_u32 32 64 "cvt.u64.u32 %d, %a;" |a| a;
    u32_from_u64 64 32 "cvt.u32.u64 %d, %a;" |a| a as u32;
    u16_from_s64_sat 64 16 "cvt.sat.u16.s64 %d, %a;" |a| (a as i64).clamp(0, 65535);
    f32_from_s32 32 32 "cvt.rn.f32.s32 %d, %a;" |a| (a as i32 as f32).to_bits();
    f32_from_u32_rz 32 32 "cvt.rz.f32.u32 %d, %a;" |a| {
        let v = a as u32;
        let mut t = v as f32;
        if f64::from(t) > f64::from(v) { t = t.next_down(); }
        t.to_bits()
    };
    f32_from_s64 64 32 "cvt.rn.f32.s64 %d, %a;" |a| (a as i64 as f32).to_bits();
    f64_from_u64 64 64 "cvt.rn.f64.u64 %d, %a;" |a| (a as f64).to_bits();
    f64_from_f32 32 64 "cvt.f64.f32 %d, %a;" |a| f64::from(f(a)).to_bits();
    f32_from_f64 64 32 "cvt.rn.f32.f64 %d, %a;" |a| {
        let v = f64::from_bits(a) as f32;
        if v.is_nan() { 0x7fff_ffff } else { v.to_bits() }
    };
    f32_round_half_even 32 32 "cvt.rni.f32.f32 %d, %a;" |a| if f(a).is_nan() { 0x7fff_ffff } else { half_even(f(a)).to_bits() };
    f32_round_up 32 32 "cvt.rpi.f32.f32 %d, %a;" |a| if f(a).is_nan() { 0x7fff_ffff } else { f(a).ceil().to_bits() };
    f32_saturated 32 32 "cvt.sat.f32.f32 %d, %a;" |a| if f(a) > 0.0 { f(a).min(1.0).to_bits() } else { 0 };
    tf32_away 32 32 "cvt.rna.tf32.f32 %d, %a;" |a| match f(a) {
        v if v.is_nan() => 0x7fff_ffff,
        v if v.is_infinite() => a as u32,
        _ => (a as u32 + 0x1000) & 0xffff_e000,
    };
    bf16_from_f32 32 16 "cvt.rn.bf16.f32 %d, %a;" |a| match f(a) {
        v if v.is_nan() => 0x7fff,
        _ => (a as u32 + 0x7fff + (a as u32 >> 16 & 1)) >> 16,
    };
    f16_pair 32 32 "cvt.rn.f16x2.f32 %d, %a, 0f3F800000;" |a| {
        let h = match f(a) {
            v if v.is_nan() => 0x7fff,
            v if v.abs() >= 65520.0 => 0x7c00 | (a as u32 >> 16 & 0x8000),
            v => {
                // To a multiple of the f16 step, ties to even, which f64 does exactly.
                let x = f64::from(v.abs());
                let e = if x == 0.0 { -14 } else { (x.log2().floor() as i32).max(-14) };
                let step = 2f64.powi(e - 10);
                let q = (x / step).round_ties_even();
                let bits = q as i64 + i64::from(e + 14) * 1024;
                bits as u32 | (a as u32 >> 16 & 0x8000)
            }
        };
        h << 16 | 0x3c00
    };
    f32_from_f16 32 32 "mov.b32 {%h0, %h1}, %a; cvt.f32.f16 %d, %h0;" |a| {
        let h = a as u32 & 0xffff;
        let (s, e, m) = ((h & 0x8000) << 16, h >> 10 & 31, h & 1023);
        match (e, m) {
            (31, 0) => s | 0x7f80_0000,
            (31, _) => 0x7fff_ffff,
            (0, _) => s | ((m as f32) * 2f32.powi(-24)).to_bits(),
            _ => s | (e + 112) << 23 | m << 13,
        }
    };
}
