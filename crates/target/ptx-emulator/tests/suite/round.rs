//! Rounding in any direction.

use crate::suite::arithmetic::check;
use shopfloor_ptx_emulator::internals::{Rnd, to_bf16};
use std::cell::RefCell;

/// What an instruction gives for each of these values; `(bits, out)` are the sizes of %a and %d.
fn given(text: &str, sizes: (u32, u32), values: &[u64]) -> Vec<u64> {
    let all = RefCell::new(Vec::new());
    check("rounds", sizes, text, values, |_, _, _, g| {
        all.borrow_mut().push(g);
        Ok(())
    });
    all.into_inner()
}

#[test]
fn every_f16_survives() {
    let halves: Vec<u64> = (0..0x10000).collect();
    let from_f16 = given("cvt.f32.f16 %d, %a;", (16, 32), &halves);
    let to_f16 = given("cvt.rn.f16.f32 %d, %a;", (32, 16), &from_f16);
    let value = |h: usize| f32::from_bits(from_f16[h] as u32);
    for h in 0..halves.len() {
        if value(h).is_nan() {
            assert!(h & 0x7fff > 0x7c00);
        } else {
            assert_eq!(to_f16[h], halves[h], "{h:04x}");
        }
    }
    assert_eq!(value(0x3c00), 1.0);
    assert_eq!(value(0x0001), 5.960_464_5e-8);
    assert_eq!(value(0xfbff), -65504.0);
}

#[test]
fn directions() {
    let third = |way: &str| {
        let text = format!("div.{way}.f32 %d, %a, 0f40400000;");
        f32::from_bits(given(&text, (32, 32), &[1f32.to_bits().into()])[0] as u32)
    };
    assert!(f64::from(third("rm")) < 1.0 / 3.0);
    assert_eq!(third("rp"), third("rm").next_up());
    let to_f32 = |v: f64, way: &str| {
        let text = format!("cvt.{way}.f32.f64 %d, %a;");
        f32::from_bits(given(&text, (64, 32), &[v.to_bits()])[0] as u32)
    };
    assert_eq!(to_f32(1e300, "rz"), f32::MAX);
    assert_eq!(to_f32(1e300, "rp"), f32::INFINITY);
    let to_f16 = |v: f64, way: &str| {
        let text = format!("cvt.{way}.f16.f64 %d, %a;");
        given(&text, (64, 16), &[v.to_bits()])[0]
    };
    assert_eq!(to_f16(65519.9, "rn"), 0x7bff);
    assert_eq!(to_f16(65520.0, "rn"), 0x7c00);
    assert_eq!(to_f16(1e9, "rz"), 0x7bff);
    assert_eq!(to_bf16(1.0 + 1.0 / 256.0, Rnd::Near), 0x3f80);
    assert_eq!(to_bf16(1.0 + 1.0 / 256.0, Rnd::Away), 0x3f81);
    // Nothing is lost, so no direction moves it.
    let exact = 0.1f64.mul_add(0.1, -0.01);
    for way in ["rm", "rp"] {
        let text = format!("fma.{way}.f64 %d, %a, %a, 0d{:016X};", (-0.01f64).to_bits());
        assert_eq!(
            given(&text, (64, 64), &[0.1f64.to_bits()])[0],
            exact.to_bits()
        );
    }
    let text = format!("add.rp.f64 %d, %a, 0d{:016X};", 1e-30f64.to_bits());
    assert_eq!(
        given(&text, (64, 64), &[1f64.to_bits()])[0],
        1f64.next_up().to_bits()
    );
}
