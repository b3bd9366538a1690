//! Elementwise functions over slices, in three forms: unary, binary, and binary with a scalar.
//!
//! All may work in place (`dst` may be any source); partial overlap is not allowed.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::math;
use super::pow::pow as pow_lane;
use super::row::map;
use super::simd::Simd;

/// A truth value as 1.0 or 0.0.
#[inline(always)]
unsafe fn truth<S: Simd>(m: S::M) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::select(m, S::splat(1.0), S::zero()) }
}

macro_rules! unary {
    ($($name:ident |$x:ident| $f:expr;)*) => {
        /// Unary functions.
        pub(super) mod one {
            use super::*;
            $(#[inline(always)]
            pub(in super::super) unsafe fn $name<S: Simd>($x: *const f32, dst: *mut f32, n: usize) {
                // SAFETY: the caller gives n readable and n writable elements.
                unsafe { map!(S, [$x] -> dst, n, $f) }
            })*
        }
    };
}

macro_rules! binary {
    ($($name:ident |$a:ident, $b:ident| $f:expr;)*) => {
        /// Binary functions of two slices.
        pub(super) mod two {
            use super::*;
            $(#[inline(always)]
            pub(in super::super) unsafe fn $name<S: Simd>($a: *const f32, $b: *const f32, dst: *mut f32, n: usize) {
                // SAFETY: the caller gives n readable elements in both and n writable ones.
                unsafe { map!(S, [$a, $b] -> dst, n, $f) }
            })*
        }
    };
}

macro_rules! scalar {
    ($($name:ident |$a:ident, $k:ident| $f:expr;)*) => {
        /// Binary functions of a slice and a scalar.
        pub(super) mod with {
            use super::*;
            $(#[inline(always)]
            pub(in super::super) unsafe fn $name<S: Simd>($a: *const f32, $k: f32, dst: *mut f32, n: usize) {
                // SAFETY: the caller gives n readable and n writable elements.
                unsafe {
                    let $k = S::splat($k);
                    map!(S, [$a] -> dst, n, $f)
                }
            })*
        }
    };
}

unary! {
    exp |x| math::exp::<S>(x);
    expm1 |x| math::expm1::<S>(x);
    log |x| math::log::<S>(x);
    log1p |x| math::log1p::<S>(x);
    tanh |x| math::tanh::<S>(x);
    atan |x| math::atan::<S>(x);
    sigmoid |x| math::sigmoid::<S>(x);
    silu |x| math::silu::<S>(x);
    softplus |x| math::softplus::<S>(x);
    erf |x| math::erf::<S>(x);
    gelu |x| math::gelu::<S>(x);
    gelu_tanh |x| math::gelu_tanh::<S>(x);
    hard_swish |x| math::hard_swish::<S>(x);
    sin |x| math::sin::<S>(x);
    cos |x| math::cos::<S>(x);
    rsqrt |x| math::rsqrt::<S>(x);
    relu |x| math::relu::<S>(x);
    sqrt |x| S::sqrt(x);
    recip |x| S::div(S::splat(1.0), x);
    abs |x| S::abs(x);
    neg |x| S::neg(x);
    floor |x| S::floor(x);
    ceil |x| S::ceil(x);
    trunc |x| S::trunc(x);
    round |x| S::round(x);
}

binary! {
    add |a, b| S::add(a, b);
    sub |a, b| S::sub(a, b);
    mul |a, b| S::mul(a, b);
    div |a, b| S::div(a, b);
    min |a, b| math::min_nan::<S>(a, b);
    max |a, b| math::max_nan::<S>(a, b);
    pow |a, b| pow_lane::<S>(a, b);
    lt |a, b| truth::<S>(S::lt(a, b));
    le |a, b| truth::<S>(S::le(a, b));
    eq |a, b| truth::<S>(S::eq(a, b));
}

scalar! {
    add |a, b| S::add(a, b);
    sub |a, b| S::sub(a, b);
    mul |a, b| S::mul(a, b);
    div |a, b| S::div(a, b);
    min |a, b| math::min_nan::<S>(a, b);
    max |a, b| math::max_nan::<S>(a, b);
    pow |a, b| pow_lane::<S>(a, b);
    lt |a, b| truth::<S>(S::lt(a, b));
    le |a, b| truth::<S>(S::le(a, b));
    eq |a, b| truth::<S>(S::eq(a, b));
    exp_sub |a, k| math::exp_sub::<S>(a, k);
    rsub |a, k| S::sub(k, a);
    rdiv |a, k| S::div(k, a);
    rpow |a, k| pow_lane::<S>(k, a);
    gt |a, k| truth::<S>(S::lt(k, a));
    ge |a, k| truth::<S>(S::le(k, a));
}
