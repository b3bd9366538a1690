//! Plain loops over rows: conversions, and every operation that has no micro-kernel. The loops are
//! compiled once per instruction set, so that the compiler's vectors are as wide as the processor's.
use super::{Kind, Lane};
use crate::isa::Isa;
use expr::{Binary, Compare, Scalar, Unary};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use layout::{DType, to_odd_f32};

/// `$put(i, x, y)` for i below `$n`, x and y read from `$a` and `$b` by strides of which 0 stands for one value: a
/// loop of its own for each way, since the compiler makes vectors of those with strides that it knows.
macro_rules! pairs {
    ($n:expr, ($a:expr, $sa:expr), ($b:expr, $sb:expr), $put:expr) => {{
        let (n, a, b, sa, sb, put) = ($n, $a, $b, $sa, $sb, $put);
        // SAFETY: the contract of the loop's caller.
        unsafe {
            match (sa, sb) {
                (1, 1) => (0..n).for_each(|i| put(i, *a.add(i), *b.add(i))),
                (1, 0) if n > 0 => {
                    let y = *b;
                    (0..n).for_each(|i| put(i, *a.add(i), y));
                }
                (0, 1) if n > 0 => {
                    let x = *a;
                    (0..n).for_each(|i| put(i, x, *b.add(i)));
                }
                _ => (0..n).for_each(|i| put(i, *a.add(i * sa), *b.add(i * sb))),
            }
        }
    }};
}

/// Compiles a plain loop for each instruction set.
macro_rules! by_isa {
    ($(#[$doc:meta])* fn $name:ident = $body:ident($($a:ident: $t:ty),*)) => {
        /// The loop compiled for each instruction set.
        pub(super) mod $name {
            use super::*;
            /// # Safety
            /// As the loop itself, on a processor with these instructions.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,fma,avx2")]
            #[allow(clippy::too_many_arguments, reason = "rows with their strides")]
            pub(super) unsafe fn widest($($a: $t),*) {
                // SAFETY: the caller's contract.
                unsafe { $body($($a),*) }
            }
            /// # Safety
            /// As the loop itself, on a processor with these instructions.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments, reason = "rows with their strides")]
            pub(super) unsafe fn wide($($a: $t),*) {
                // SAFETY: the caller's contract.
                unsafe { $body($($a),*) }
            }
            /// Address of the loop of an instruction set.
            pub(in crate::exec::vm) fn code(isa: Isa) -> usize {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => widest as *const () as usize,
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => wide as *const () as usize,
                    _ => $body as *const () as usize,
                }
            }
        }
        $(#[$doc])*
        /// # Safety
        /// As the loop itself; the processor has the instructions of `isa`.
        #[allow(clippy::too_many_arguments, reason = "rows with their strides")]
        pub(super) unsafe fn $name(isa: Isa, $($a: $t),*) {
            // SAFETY: the caller's contract; the instruction set is the device's.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => $name::widest($($a),*),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => $name::wide($($a),*),
                    _ => $body($($a),*),
                }
            }
        }
    };
}

by_isa! {
    /// Loads `n` elements from position `from` of a row in memory into a register.
    ///
    /// # Safety
    ///
    /// The row and the register have them.
    fn load = load_loop(dst: *mut u8, d: DType, a: Lane, from: usize, n: usize)
}
by_isa! {
    /// Stores `n` elements of a register (`uniform`: its first one) at position `from` of a row.
    ///
    /// # Safety
    ///
    /// Row and register have them.
    fn store = store_loop(src: *const u8, k: Kind, uniform: bool, d: DType, out: Lane, from: usize, n: usize)
}
by_isa! {
    /// A function of two arguments of type `d`; `sa` and `sb` are 0 for uniform ones.
    ///
    /// # Safety
    ///
    /// Registers of `n` elements (uniform: 1) in the form of `d`.
    fn binary = binary_loop(g: Binary, d: DType, a: *const u8, sa: usize, b: *const u8, sb: usize, dst: *mut u8, n: usize)
}
by_isa! {
    /// A comparison of two values of type `d`; the result is a mask.
    ///
    /// # Safety
    ///
    /// As for [`binary`].
    fn compare = compare_loop(g: Compare, d: DType, a: *const u8, sa: usize, b: *const u8, sb: usize, dst: *mut f32, n: usize)
}
by_isa! {
    /// `c ? a : b` for values of form `k`; strides 0 for uniform ones.
    ///
    /// # Safety
    ///
    /// As for [`binary`].
    fn select = select_loop(k: Kind, c: *const f32, a: *const u8, b: *const u8, s: [usize; 3], dst: *mut u8, n: usize)
}
by_isa! {
    /// Conversion between types.
    ///
    /// # Safety
    ///
    /// As for [`unary`].
    fn cast = cast_loop(a: *const u8, from: DType, dst: *mut u8, to: DType, n: usize)
}

by_isa! {
    /// `first`, `first + step` and so on.
    ///
    /// # Safety
    ///
    /// A register of `n` integers of 64 bits.
    fn count = count_loop(dst: *mut i64, first: i64, step: i64, n: usize)
}

/// # Safety
/// `dst` has room for `n` integers.
#[inline(always)]
unsafe fn count_loop(dst: *mut i64, first: i64, step: i64, n: usize) {
    let mut at = first;
    for i in 0..n {
        // SAFETY: the caller's contract.
        unsafe { *dst.add(i) = at };
        at = at.wrapping_add(step);
    }
}

/// Rounds `n` numbers to a type of 16 bits.
///
/// # Safety
///
/// Registers of `n` elements.
pub(super) unsafe fn round_half(d: DType, a: *const f32, dst: *mut f32, n: usize) {
    let mut bits = [0u16; super::CH];
    let n = n.min(super::CH);
    // SAFETY: the caller's contract.
    unsafe {
        narrow(d, a, bits.as_mut_ptr(), n);
        widen(d, bits.as_ptr(), dst, n);
    }
}

/// Address of what [`widen`] runs for numbers of type `d` on the present processor.
pub(crate) fn widen_code(d: DType) -> usize {
    #[cfg(target_arch = "x86_64")]
    if d == DType::F16 && std::arch::is_x86_feature_detected!("avx512f") {
        return widen_f16 as *const () as usize;
    }
    let _ = d;
    widen as *const () as usize
}

/// `n` numbers of 16 bits as f32.
///
/// # Safety
///
/// Both rows have them.
pub(crate) unsafe fn widen(d: DType, src: *const u16, dst: *mut f32, n: usize) {
    // SAFETY: the caller's contract; any bits are a number.
    unsafe {
        if d == DType::F16 {
            #[cfg(target_arch = "x86_64")]
            if n >= 16 && std::arch::is_x86_feature_detected!("avx512f") {
                widen_f16(src, dst, n);
                return;
            }
            let s = std::slice::from_raw_parts(src.cast::<f16>(), n);
            s.convert_to_f32_slice(std::slice::from_raw_parts_mut(dst, n));
        } else {
            for i in 0..n {
                *dst.add(i) = f32::from_bits(u32::from(*src.add(i)) << 16);
            }
        }
    }
}

/// [`widen`] for f16, sixteen at a time.
///
/// # Safety
/// `src` and `dst` hold `n` numbers, 16 or more, and the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn widen_f16(src: *const u16, dst: *mut f32, n: usize) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm512_cvtph_ps, _mm512_storeu_ps};
    // SAFETY: the caller gives n >= 16 numbers on both sides; the last vector overlaps the one before.
    unsafe {
        let go = |i: usize| {
            let v = _mm512_cvtph_ps(_mm256_loadu_si256(src.add(i).cast()));
            _mm512_storeu_ps(dst.add(i), v);
        };
        let mut i = 0;
        while i + 16 <= n {
            go(i);
            i += 16;
        }
        if i < n {
            go(n - 16);
        }
    }
}

/// `n` numbers as 16 bits each.
///
/// # Safety
///
/// Both rows have them.
pub(crate) unsafe fn narrow(d: DType, src: *const f32, dst: *mut u16, n: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        if d == DType::F16 {
            #[cfg(target_arch = "x86_64")]
            if n >= 16 && std::arch::is_x86_feature_detected!("avx512f") {
                narrow_f16(src, dst, n);
                return;
            }
            let s = std::slice::from_raw_parts(src, n);
            std::slice::from_raw_parts_mut(dst.cast::<f16>(), n).convert_from_f32_slice(s);
        } else {
            for i in 0..n {
                *dst.add(i) = bf16::from_f32(*src.add(i)).to_bits();
            }
        }
    }
}

/// [`narrow`] to f16, sixteen at a time.
///
/// # Safety
/// `src` and `dst` hold `n` numbers, 16 or more, do not overlap, and the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn narrow_f16(src: *const f32, dst: *mut u16, n: usize) {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm256_storeu_si256, _mm512_cvtps_ph, _mm512_loadu_ps,
    };
    // SAFETY: the caller gives n >= 16 numbers on both sides; the last vector overlaps the one before.
    unsafe {
        let go = |i: usize| {
            let v = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(src.add(i)));
            _mm256_storeu_si256(dst.add(i).cast(), v);
        };
        let mut i = 0;
        while i + 16 <= n {
            go(i);
            i += 16;
        }
        if i < n {
            go(n - 16);
        }
    }
}

/// Element `i` of a register as a scalar.
///
/// # Safety
///
/// The register has it.
unsafe fn get(p: *const u8, k: Kind, i: usize) -> Scalar {
    // SAFETY: the caller's contract.
    unsafe {
        match k {
            Kind::F => Scalar::Float(*p.cast::<f32>().add(i) as f64),
            Kind::D => Scalar::Float(*p.cast::<f64>().add(i)),
            Kind::W => Scalar::Int(i64::from(*p.cast::<i32>().add(i))),
            Kind::I => Scalar::Int(*p.cast::<i64>().add(i)),
            Kind::M => Scalar::Int((*p.cast::<f32>().add(i) != 0.0) as i64),
        }
    }
}

/// Sets element `i` of a register.
///
/// # Safety
///
/// The register has it.
unsafe fn set(p: *mut u8, k: Kind, i: usize, s: Scalar) {
    // SAFETY: the caller's contract.
    unsafe {
        match k {
            Kind::F => *p.cast::<f32>().add(i) = s.as_f64() as f32,
            Kind::D => *p.cast::<f64>().add(i) = s.as_f64(),
            Kind::W => *p.cast::<i32>().add(i) = s.as_i64() as i32,
            Kind::I => *p.cast::<i64>().add(i) = s.as_i64(),
            Kind::M => *p.cast::<f32>().add(i) = (s.as_i64() != 0) as i64 as f32,
        }
    }
}

/// Sets element 0.
///
/// # Safety
///
/// The register has an element.
pub(super) unsafe fn put(p: *mut u8, k: Kind, s: Scalar) {
    // SAFETY: the caller's contract.
    unsafe { set(p, k, 0, s) }
}

/// Repeats element 0 of `src` `n` times.
///
/// # Safety
///
/// Registers of form `k`.
pub(super) unsafe fn splat(dst: *mut u8, src: *const u8, k: Kind, n: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        match k {
            Kind::F | Kind::M | Kind::W => {
                std::slice::from_raw_parts_mut(dst.cast::<u32>(), n).fill(*src.cast::<u32>());
            }
            Kind::D | Kind::I => {
                std::slice::from_raw_parts_mut(dst.cast::<u64>(), n).fill(*src.cast::<u64>());
            }
        }
    }
}

/// # Safety
/// `a` has elements of type `d` at its positions `from` to `from + n`, `dst` has room for `n` values
/// of the kind that `d` is computed in.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two rows with their strides")]
unsafe fn load_loop(dst: *mut u8, d: DType, a: Lane, from: usize, n: usize) {
    macro_rules! go {
        ($t:ty, $to:ty, |$x:ident| $e:expr) => {{
            let src = a.ptr.cast::<$t>().wrapping_offset(from as isize * a.st as isize);
            let dst = dst.cast::<$to>();
            if a.st == 1 {
                for i in 0..n {
                    // SAFETY: the caller's contract.
                    unsafe {
                        let $x = *src.add(i);
                        *dst.add(i) = $e;
                    }
                }
            } else {
                for i in 0..n {
                    // SAFETY: the caller's contract.
                    unsafe {
                        let $x = *src.wrapping_offset(i as isize * a.st as isize);
                        *dst.add(i) = $e;
                    }
                }
            }
        }};
    }
    match d {
        DType::F32 => go!(f32, f32, |x| x),
        DType::F64 => go!(f64, f64, |x| x),
        DType::F16 | DType::BF16 if a.st == 1 => {
            let src = a.ptr.cast::<u16>().wrapping_add(from);
            // SAFETY: the caller's contract.
            unsafe { widen(d, src, dst.cast(), n) }
        }
        DType::F16 => go!(u16, f32, |x| f16::from_bits(x).to_f32()),
        DType::BF16 => go!(u16, f32, |x| bf16::from_bits(x).to_f32()),
        DType::Bool => go!(u8, f32, |x| (x != 0) as u8 as f32),
        DType::I64 | DType::U64 => go!(i64, i64, |x| x),
        DType::U32 => go!(u32, i64, |x| x as i64),
        DType::I32 => go!(i32, i32, |x| x),
        DType::I16 => go!(i16, i32, |x| x as i32),
        DType::U16 => go!(u16, i32, |x| x as i32),
        DType::I8 | DType::I4 => go!(i8, i32, |x| x as i32),
        DType::U8 | DType::U4 => go!(u8, i32, |x| x as i32),
        // The verifier lets no kernel have these.
        DType::Str | DType::Host => {}
    }
}

/// # Safety
/// `src` holds `n` values of kind `k` (one when `uniform`), `out` has room for elements of type `d` at
/// its positions `from` to `from + n`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two rows with their strides")]
unsafe fn store_loop(
    src: *const u8,
    k: Kind,
    uniform: bool,
    d: DType,
    out: Lane,
    from: usize,
    n: usize,
) {
    macro_rules! go {
        ($s:ty, $t:ty, |$x:ident| $e:expr) => {{
            let dst = out.ptr.cast::<$t>().wrapping_offset(from as isize * out.st as isize);
            let src = src.cast::<$s>();
            let st = !uniform as usize;
            if out.st == 1 && !uniform {
                for i in 0..n {
                    // SAFETY: register and row have n elements.
                    unsafe {
                        let $x = *src.add(i);
                        *dst.add(i) = $e;
                    }
                }
            } else {
                for i in 0..n {
                    // SAFETY: register and row have n elements.
                    unsafe {
                        let $x = *src.add(i * st);
                        *dst.wrapping_offset(i as isize * out.st as isize) = $e;
                    }
                }
            }
        }};
    }
    debug_assert_eq!(k, Kind::of(d));
    match d {
        DType::F32 => go!(f32, f32, |x| x),
        DType::F64 => go!(f64, f64, |x| x),
        DType::F16 | DType::BF16 if out.st == 1 && !uniform => {
            let dst = out.ptr.cast::<u16>().wrapping_add(from);
            // SAFETY: register and row have n elements.
            unsafe { narrow(d, src.cast(), dst, n) }
        }
        DType::F16 => go!(f32, u16, |x| f16::from_f32(x).to_bits()),
        DType::BF16 => go!(f32, u16, |x| bf16::from_f32(x).to_bits()),
        DType::Bool => go!(f32, u8, |x| (x != 0.0) as u8),
        DType::I64 | DType::U64 => go!(i64, i64, |x| x),
        DType::U32 => go!(i64, i32, |x| x as i32),
        DType::I32 => go!(i32, i32, |x| x),
        DType::I16 | DType::U16 => go!(i32, i16, |x| x as i16),
        DType::I8 | DType::U8 | DType::I4 | DType::U4 => go!(i32, i8, |x| x as i8),
        DType::Str | DType::Host => {}
    }
}

/// A function of one argument of type `d`.
///
/// # Safety
///
/// Registers of `n` elements in the forms of their types.
pub(super) unsafe fn unary(g: Unary, d: DType, a: *const u8, dst: *mut u8, n: usize) {
    let k = Kind::of(d);
    let to = if matches!(g, Unary::IsNan | Unary::IsInf) {
        Kind::M
    } else {
        k
    };
    macro_rules! go {
        ($t:ty, $to:ty, |$x:ident| $e:expr) => {{
            let (a, dst) = (a.cast::<$t>(), dst.cast::<$to>());
            for i in 0..n {
                // SAFETY: the caller's contract.
                unsafe {
                    let $x = *a.add(i);
                    *dst.add(i) = $e;
                }
            }
        }};
    }
    let mask = |b: bool| f32::from(u8::from(b));
    match (g, d) {
        (Unary::Sign, DType::F32) => go!(f32, f32, |x| match x.is_nan() {
            true => x,
            false => mask(x > 0.0) - mask(x < 0.0),
        }),
        (Unary::IsNan, DType::F32) => go!(f32, f32, |x| mask(x.is_nan())),
        (Unary::IsInf, DType::F32) => go!(f32, f32, |x| mask(x.is_infinite())),
        (Unary::Not, DType::Bool) => go!(f32, f32, |x| mask(x == 0.0)),
        (Unary::Neg, DType::I64) => go!(i64, i64, |x| x.wrapping_neg()),
        (Unary::Abs, DType::I64) => go!(i64, i64, |x| x.wrapping_abs()),
        (Unary::Neg, DType::I32) => go!(i32, i32, |x| x.wrapping_neg()),
        (Unary::Abs, DType::I32) => go!(i32, i32, |x| x.wrapping_abs()),
        (Unary::Neg, DType::F64) => go!(f64, f64, |x| -x),
        (Unary::Abs, DType::F64) => go!(f64, f64, |x| x.abs()),
        (Unary::Sqrt, DType::F64) => go!(f64, f64, |x| x.sqrt()),
        _ => {
            for i in 0..n {
                // SAFETY: the caller's contract.
                unsafe { set(dst, to, i, get(a, k, i).unary(g, d)) }
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two rows with their strides")]
unsafe fn binary_loop(
    g: Binary,
    d: DType,
    a: *const u8,
    sa: usize,
    b: *const u8,
    sb: usize,
    dst: *mut u8,
    n: usize,
) {
    let k = Kind::of(d);
    macro_rules! go {
        ($t:ty, |$x:ident, $y:ident| $e:expr) => {{
            let dst = dst.cast::<$t>();
            // SAFETY: the caller's contract.
            let put = move |i: usize, $x: $t, $y: $t| unsafe { *dst.add(i) = $e };
            pairs!(n, (a.cast::<$t>(), sa), (b.cast::<$t>(), sb), put)
        }};
    }
    // Integers of a register's width.
    macro_rules! words {
        (|$x:ident, $y:ident| $e:expr) => {
            go!(i32, |$x, $y| $e)
        };
    }
    match (k, d, g) {
        (_, DType::I64, Binary::Add) => go!(i64, |x, y| x.wrapping_add(y)),
        (_, DType::I64, Binary::Sub) => go!(i64, |x, y| x.wrapping_sub(y)),
        (_, DType::I64, Binary::Mul) => go!(i64, |x, y| x.wrapping_mul(y)),
        (_, DType::I64, Binary::Min) => go!(i64, |x, y| x.min(y)),
        (_, DType::I64, Binary::Max) => go!(i64, |x, y| x.max(y)),
        (_, DType::I64, Binary::And) => go!(i64, |x, y| x & y),
        (_, DType::I64, Binary::Or) => go!(i64, |x, y| x | y),
        (_, DType::I64, Binary::Xor) => go!(i64, |x, y| x ^ y),
        (_, DType::I64, Binary::Div) => {
            go!(i64, |x, y| if y == 0 { 0 } else { x.wrapping_div(y) })
        }
        (_, DType::I64, Binary::Fmod) => {
            go!(i64, |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) })
        }
        (_, DType::I64, Binary::Mod) => go!(i64, |x, y| {
            // A remainder has the sign of the divisor.
            let r = if y == 0 { 0 } else { x.wrapping_rem(y) };
            if r != 0 && (r < 0) != (y < 0) {
                r + y
            } else {
                r
            }
        }),
        (_, DType::I32, Binary::Add) => words!(|x, y| x.wrapping_add(y)),
        (_, DType::I32, Binary::Sub) => words!(|x, y| x.wrapping_sub(y)),
        (_, DType::I32, Binary::Mul) => words!(|x, y| x.wrapping_mul(y)),
        (_, DType::I16, Binary::Add) => words!(|x, y| i32::from(x.wrapping_add(y) as i16)),
        (_, DType::I16, Binary::Sub) => words!(|x, y| i32::from(x.wrapping_sub(y) as i16)),
        (Kind::W, _, Binary::Min) => words!(|x, y| x.min(y)),
        (Kind::W, _, Binary::Max) => words!(|x, y| x.max(y)),
        (Kind::W, _, Binary::And) => words!(|x, y| x & y),
        (Kind::W, _, Binary::Or) => words!(|x, y| x | y),
        (_, DType::I32, Binary::Shr) => {
            words!(|x, y| (x as u32).checked_shr(y as u32).unwrap_or(0) as i32)
        }
        (_, DType::F64, Binary::Add) => go!(f64, |x, y| x + y),
        (_, DType::F64, Binary::Sub) => go!(f64, |x, y| x - y),
        (_, DType::F64, Binary::Mul) => go!(f64, |x, y| x * y),
        (_, DType::F64, Binary::Div) => go!(f64, |x, y| x / y),
        (Kind::M, _, Binary::And | Binary::Mul | Binary::Min) => go!(f32, |x, y| x * y),
        (Kind::M, _, Binary::Or | Binary::Max | Binary::Add) => {
            go!(f32, |x, y| if x + y != 0.0 { 1.0 } else { 0.0 })
        }
        (Kind::M, _, Binary::Xor | Binary::Sub) => go!(f32, |x, y| if x != y { 1.0 } else { 0.0 }),
        _ => {
            for i in 0..n {
                // SAFETY: the caller's contract.
                unsafe { set(dst, k, i, get(a, k, i * sa).binary(g, get(b, k, i * sb), d)) }
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two rows with their strides")]
unsafe fn compare_loop(
    g: Compare,
    d: DType,
    a: *const u8,
    sa: usize,
    b: *const u8,
    sb: usize,
    dst: *mut f32,
    n: usize,
) {
    macro_rules! go {
        ($t:ty, $op:tt) => {{
            // SAFETY: the caller's contract.
            // By value: what is captured by reference is read again after every store.
            let put = move |i: usize, x: $t, y: $t| unsafe { *dst.add(i) = if x $op y { 1.0 } else { 0.0 } };
            pairs!(n, (a.cast::<$t>(), sa), (b.cast::<$t>(), sb), put)
        }};
    }
    macro_rules! all {
        ($t:ty) => {
            match g {
                Compare::Eq => go!($t, ==),
                Compare::Ne => go!($t, !=),
                Compare::Lt => go!($t, <),
                Compare::Le => go!($t, <=),
                Compare::Gt => go!($t, >),
                Compare::Ge => go!($t, >=),
            }
        };
    }
    match Kind::of(d) {
        Kind::F | Kind::M => all!(f32),
        Kind::D => all!(f64),
        Kind::W => all!(i32),
        Kind::I if d == DType::U64 => all!(u64),
        Kind::I => all!(i64),
    }
}

/// # Safety
/// `c`, `a` and `b` hold values at `0, s, 2 s, ..` for `n` of them (a stride of 0: one), `dst` has room
/// for `n` values of kind `k`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two rows with their strides")]
unsafe fn select_loop(
    k: Kind,
    c: *const f32,
    a: *const u8,
    b: *const u8,
    s: [usize; 3],
    dst: *mut u8,
    n: usize,
) {
    macro_rules! go {
        ($t:ty) => {{
            let (a, b, dst) = (a.cast::<$t>(), b.cast::<$t>(), dst.cast::<$t>());
            if s[0] == 1 {
                // SAFETY: the caller's contract.
                let put = move |i: usize, x: $t, y: $t| unsafe {
                    *dst.add(i) = if *c.add(i) != 0.0 { x } else { y };
                };
                return pairs!(n, (a, s[1]), (b, s[2]), put);
            }
            for i in 0..n {
                // SAFETY: the caller's contract.
                unsafe {
                    let (x, y) = (*a.add(i * s[1]), *b.add(i * s[2]));
                    *dst.add(i) = if *c.add(i * s[0]) != 0.0 { x } else { y };
                }
            }
        }};
    }
    match k {
        Kind::F | Kind::M | Kind::W => go!(u32),
        Kind::D | Kind::I => go!(u64),
    }
}

/// # Safety
/// `a` holds `n` values of the kind that `from` is computed in, `dst` has room for `n` of `to`'s.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two rows with their strides")]
unsafe fn cast_loop(a: *const u8, from: DType, dst: *mut u8, to: DType, n: usize) {
    macro_rules! go {
        ($s:ty, $t:ty, |$x:ident| $e:expr) => {{
            let (a, dst) = (a.cast::<$s>(), dst.cast::<$t>());
            for i in 0..n {
                // SAFETY: the caller's contract.
                unsafe {
                    let $x = *a.add(i);
                    *dst.add(i) = $e;
                }
            }
        }};
    }
    use DType as T;
    match (Kind::of(from), Kind::of(to)) {
        (Kind::F, Kind::F) if matches!(to, T::F16 | T::BF16) => {
            // SAFETY: the caller's contract.
            unsafe { round_half(to, a.cast(), dst.cast(), n) }
        }
        (Kind::F, Kind::F) | (Kind::M, Kind::M) | (Kind::M, Kind::F) => go!(f32, f32, |x| x),
        (Kind::F, Kind::M) => go!(f32, f32, |x| if x != 0.0 { 1.0 } else { 0.0 }),
        (Kind::M, Kind::I) => go!(f32, i64, |x| (x != 0.0) as i64),
        (Kind::I, Kind::M) => go!(i64, f32, |x| if x != 0 { 1.0 } else { 0.0 }),
        (Kind::M, Kind::W) => go!(f32, i32, |x| (x != 0.0) as i32),
        (Kind::W, Kind::M) => go!(i32, f32, |x| if x != 0 { 1.0 } else { 0.0 }),
        (Kind::W, Kind::F) if to == T::F32 => go!(i32, f32, |x| x as f32),
        (Kind::W, Kind::D) => go!(i32, f64, |x| x as f64),
        (Kind::I, Kind::F) if to == T::F32 && from != T::U64 => go!(i64, f32, |x| x as f32),
        (Kind::D, Kind::F) if to == T::F32 => go!(f64, f32, |x| x as f32),
        (Kind::D, Kind::F) if to == T::F16 => {
            go!(f64, f32, |x| f16::from_f32(to_odd_f32(x)).to_f32())
        }
        (Kind::D, Kind::F) => go!(f64, f32, |x| bf16::from_f32(to_odd_f32(x)).to_f32()),
        (Kind::F, Kind::D) => go!(f32, f64, |x| x as f64),
        (Kind::F, Kind::I) if to == T::I64 => go!(f32, i64, |x| x as i64),
        (Kind::F, Kind::W) if to == T::I32 => go!(f32, i32, |x| x as i32),
        (Kind::F, Kind::W) if to.bits() >= 8 => {
            let (lo, hi) = match to {
                T::U8 => (0.0f32, 255.0f32),
                T::I8 => (-128.0, 127.0),
                T::U16 => (0.0, 65535.0),
                _ => (-32768.0, 32767.0),
            };
            // Bounds first: what is inside them converts by an instruction.
            go!(f32, i32, |x| {
                let y = if x > lo { x } else { lo };
                let y = if y < hi { y } else { hi };
                let y = if x.is_nan() { 0.0 } else { y };
                // A number between the bounds of 16 bits.
                y.to_int_unchecked::<i32>()
            })
        }
        (Kind::W, Kind::W) => match to {
            T::I32 => go!(i32, i32, |x| x),
            T::I16 => go!(i32, i32, |x| i32::from(x as i16)),
            T::U16 => go!(i32, i32, |x| i32::from(x as u16)),
            T::I8 => go!(i32, i32, |x| i32::from(x as i8)),
            T::U8 => go!(i32, i32, |x| i32::from(x as u8)),
            T::I4 => go!(i32, i32, |x| (x << 28) >> 28),
            _ => go!(i32, i32, |x| x & 15),
        },
        (Kind::W, Kind::I) if to != T::U32 => go!(i32, i64, |x| x as i64),
        (Kind::I, Kind::W) if to == T::I32 => go!(i64, i32, |x| x as i32),
        (Kind::I, Kind::I) if to == T::I64 => go!(i64, i64, |x| x),
        (f, t) => {
            for i in 0..n {
                // SAFETY: the caller's contract.
                unsafe { set(dst, t, i, get(a, f, i).cast(from, to)) }
            }
        }
    }
}
