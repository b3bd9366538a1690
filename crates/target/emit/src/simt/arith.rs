//! Arithmetic on f32 values of a thread, and polynomials of it.

use super::build::Build;
use super::ir::{Op, Reg, Ty};
use expr::Unary;

/// Bits of an f32 that take part in a product in TF32.
pub(crate) const TF32: u32 = 0xffff_e000;

pub(super) fn un(b: &mut Build, f: Unary, x: Reg) -> Reg {
    b.op(b.ty(x), Op::Unary(f, x))
}

pub(super) fn number(b: &mut Build, v: f64) -> Reg {
    b.float(v as f32 as f64, Ty::F32)
}

pub(super) fn muladd(b: &mut Build, x: Reg, y: Reg, z: Reg) -> Reg {
    b.op(b.ty(x), Op::MulAdd(x, y, z))
}

pub(super) fn horner(b: &mut Build, x: Reg, coefficients: &[f64]) -> Reg {
    let mut it = coefficients.iter().rev();
    let mut r = number(b, it.next().copied().unwrap_or(0.0));
    for &c in it {
        let c = number(b, c);
        r = muladd(b, r, x, c);
    }
    r
}

/// `x + x^3 p(x^2)`.
pub(super) fn odd(b: &mut Build, x: Reg, p: &[f64]) -> Reg {
    let u = b.mul(x, x);
    let p = horner(b, u, p);
    let x3 = b.mul(x, u);
    muladd(b, x3, p, x)
}
