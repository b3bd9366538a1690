//! The table of kernels of one instruction set.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::columns::Columns;
use super::depthwise::Depthwise;
use super::depthwise8::Depthwise8;
use super::dot::Dot;
use super::gemm::{GemmKernel, gemm_kernel, shapes};
use super::lines::Lines;
use super::nibbles::Nibbles;
use super::picks::{Pick, Picks};
use super::take::Ranks;
use crate::isa::Isa;

/// A unary function over `n` elements: (src, dst, n). In place is allowed.
pub type UnaryFn = unsafe fn(*const f32, *mut f32, usize);
/// A binary function over `n` elements: (a, b, dst, n). In place is allowed.
pub type BinaryFn = unsafe fn(*const f32, *const f32, *mut f32, usize);
/// A binary function with a scalar over `n` elements: (a, k, dst, n). In place is allowed.
pub type ScalarFn = unsafe fn(*const f32, f32, *mut f32, usize);
/// A reduction of `n` elements: (x, n).
pub type ReduceFn = unsafe fn(*const f32, usize) -> f32;

/// Hands the one list of kernels to a macro, behind the tokens given.
macro_rules! list {
    ($callback:ident $($head:tt)*) => {
        $callback! {
            [$($head)*]
            /// e^x, at most 2 ULP.
            exp: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::exp;
            /// e^x - 1, at most 3 ULP.
            expm1: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::expm1;
            /// Natural logarithm, at most 2 ULP.
            log: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::log;
            /// log(1 + x), at most 4 ULP.
            log1p: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::log1p;
            /// Hyperbolic tangent, at most 4 ULP.
            tanh: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::tanh;
            /// Arc tangent, at most 3 ULP.
            atan: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::atan;
            /// 1 / (1 + e^-x), at most 4 ULP.
            sigmoid: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::sigmoid;
            /// x / (1 + e^-x), at most 5 ULP for x > -87.
            silu: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::silu;
            /// log(1 + e^x), at most 4 ULP.
            softplus: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::softplus;
            /// Error function, at most 4 ULP.
            erf: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::erf;
            /// x/2 (1 + erf(x / sqrt 2)), within 2.5 ULP of |x|.
            gelu: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::gelu;
            /// The tanh form of GELU, within 3 ULP of |x|.
            gelu_tanh: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::gelu_tanh;
            /// x max(0, min(1, x/6 + 1/2)), within 3 ULP of |x|.
            hard_swish: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::hard_swish;
            /// Sine, at most 2 ULP.
            sin: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::sin;
            /// Cosine, at most 2 ULP.
            cos: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::cos;
            /// 1 / sqrt x, at most 2 ULP.
            rsqrt: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::rsqrt;
            /// max(x, 0), NaN kept.
            relu: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::relu;
            /// Square root.
            sqrt: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::sqrt;
            /// 1 / x.
            recip: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::recip;
            /// Magnitude.
            abs: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::abs;
            /// Negation.
            neg: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::neg;
            /// Whole number towards -inf.
            floor: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::floor;
            /// Whole number towards +inf.
            ceil: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::ceil;
            /// Whole number towards zero.
            trunc: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::trunc;
            /// Nearest whole number, ties to even.
            round: fn(src: *const f32, dst: *mut f32, n: usize) = slice::one::round;
            /// a + b.
            add: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::add;
            /// a - b.
            sub: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::sub;
            /// a * b.
            mul: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::mul;
            /// a / b.
            div: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::div;
            /// The smaller, NaN where either is.
            min: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::min;
            /// The greater, NaN where either is.
            max: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::max;
            /// a^b, at most 4 ULP.
            pow: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::pow;
            /// 1.0 where a < b, else 0.0.
            lt: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::lt;
            /// 1.0 where a <= b, else 0.0.
            le: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::le;
            /// 1.0 where a == b, else 0.0.
            eq: fn(a: *const f32, b: *const f32, dst: *mut f32, n: usize) = slice::two::eq;
            /// a + k; k is a scalar.
            add_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::add;
            /// a - k; k is a scalar.
            sub_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::sub;
            /// a * k; k is a scalar.
            mul_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::mul;
            /// a / k; k is a scalar.
            div_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::div;
            /// The smaller, NaN where either is; k is a scalar.
            min_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::min;
            /// The greater, NaN where either is; k is a scalar.
            max_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::max;
            /// a^k, at most 4 ULP; k is a scalar.
            pow_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::pow;
            /// 1.0 where a < k, else 0.0; k is a scalar.
            lt_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::lt;
            /// 1.0 where a <= k, else 0.0; k is a scalar.
            le_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::le;
            /// 1.0 where a == k, else 0.0; k is a scalar.
            eq_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::eq;
            /// k - a; k is a scalar.
            rsub_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::rsub;
            /// k / a; k is a scalar.
            rdiv_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::rdiv;
            /// k^a; k is a scalar.
            rpow_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::rpow;
            /// 1.0 where a > k, else 0.0; k is a scalar.
            gt_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::gt;
            /// 1.0 where a >= k, else 0.0; k is a scalar.
            ge_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::ge;
            /// e^(a - k), 0 where a is -inf whatever k is; at most 2 ULP more than the difference's; k is a scalar.
            exp_sub_k: fn(a: *const f32, k: f32, dst: *mut f32, n: usize) = slice::with::exp_sub;
            /// a * b + c, in place allowed.
            fma: fn(a: *const f32, b: *const f32, c: *const f32, dst: *mut f32, n: usize) = row::fma;
            /// k * x + y, in place allowed.
            axpy: fn(k: f32, x: *const f32, y: *const f32, dst: *mut f32, n: usize) = row::axpy;
            /// `a` where c is not 0, else `b`; in place allowed.
            select: fn(c: *const f32, a: *const f32, b: *const f32, dst: *mut f32, n: usize) = row::select;
            /// The sum of a row.
            row_sum: fn(x: *const f32, n: usize) -> f32 = row::sum;
            /// The product of a row.
            row_prod: fn(x: *const f32, n: usize) -> f32 = row::prod;
            /// The greatest of a row: -inf for none, NaN when any is NaN.
            row_max: fn(x: *const f32, n: usize) -> f32 = row::max;
            /// The smallest of a row: inf for none, NaN when any is NaN.
            row_min: fn(x: *const f32, n: usize) -> f32 = row::min;
            /// The sum of (x - mean)^2 of a row (x, mean, n); mean 0 gives the sum of squares.
            row_sum_sq: fn(x: *const f32, mean: f32, n: usize) -> f32 = row::sum_sq;
            /// The sum of x * y over two rows.
            row_dot: fn(x: *const f32, y: *const f32, n: usize) -> f32 = row::dot1;
            /// dst = e^(scale * (src - shift)) and the sum of dst (src, dst, n, scale, shift), in place allowed.
            exp_sum: fn(src: *const f32, dst: *mut f32, n: usize, scale: f32, shift: f32) -> f32 = row::exp_sum;
            /// dst = (src - mean) * rstd * gamma + beta (src, dst, n, mean, rstd, gamma or null, beta or null), in place allowed.
            normalise: fn(src: *const f32, dst: *mut f32, n: usize, mean: f32, rstd: f32, gamma: *const f32, beta: *const f32) = row::normalise;
            /// Sums of columns, added to `acc`; the elements named by [`Columns`] are valid and `acc` overlaps none.
            col_sum: fn(d: &Columns) = columns::sum;
            /// Sums of (x - mean)^2 by columns, added to `acc`; as `col_sum`.
            col_squares: fn(d: &Columns) = columns::squares;
            /// The greatest of each column and `acc`, NaN when any is NaN; as `col_sum`.
            col_max: fn(d: &Columns) = columns::max;
            /// The smallest of each column and `acc`, NaN when any is NaN; as `col_sum`.
            col_min: fn(d: &Columns) = columns::min;
            /// The best of each column with what is at hand, into `values` and `ranks`; the elements named by [`Picks`] are valid and what is written overlaps nothing else.
            col_pick: fn(d: &Picks) = picks::columns;
            /// Where the best of a row is (pick, x, n): 0 for none.
            row_pick: fn(pick: &Pick, x: *const f32, n: usize) -> usize = picks::row;
            /// Packs B (k, n, src, row stride, column stride, nr, dst) into panels of nr columns: dst\[panel\]\[p\]\[j\], the last panel zero-padded; dst has n.div_ceil(nr) * k * nr elements; no overlap.
            pack_b: fn(k: usize, n: usize, src: *const f32, row_stride: usize, col_stride: usize, nr: usize, dst: *mut f32) = pack::pack_b;
            /// dst\[c * dst_ld + r\] = src\[r * src_ld + c\] (rows, cols, src, src_ld, dst, dst_ld) for 32-bit elements, as bits; no overlap.
            transpose32: fn(rows: usize, cols: usize, src: *const u32, src_ld: usize, dst: *mut u32, dst_ld: usize) = pack::transpose32;
            /// Products with both operands contiguous along k; the operands' elements named by [`Dot`] are valid and C overlaps neither.
            dot: fn(d: &Dot) = dot::dot;
            /// Depthwise convolution; the operands' elements named by [`Depthwise`] are valid and `out` overlaps none.
            depthwise: fn(d: &Depthwise) = depthwise::depthwise;
            /// As `depthwise` with inputs shared by groups of 2, 4 or 8 channels (d, group): `out\[p * out_step + c\] (+)= sum_t sum_r x(p, t)\[c / group * group + r\] * w\[(t * group + r) * ldw + c\]`.
            grouped: fn(d: &Depthwise, group: usize) = grouped::grouped;
            /// Products with weights of 4 bits; the elements named by [`Nibbles`] are valid and C overlaps none.
            nibbles: fn(d: &Nibbles) = nibbles::nibbles;
            /// dst = (f32(acc + off * times) + before) * scale + after, rows that are null left out.
            scaled: fn(acc: *const i32, off: *const i32, times: i32, before: *const f32, scale: *const f32, after: *const f32, dst: *mut f32, n: usize) = quant::scaled;
            /// dst = round(src / by) + zero, saturated between lo and hi (within the bounds of 16 bits); 0 for a NaN.
            quantise: fn(src: *const f32, by: f32, zero: f32, lo: f32, hi: f32, dst: *mut i32, n: usize) = quant::quantise;
            /// dst = (f32(src) - zero) * by of bytes, signed ones where `signed`.
            dequantise: fn(src: *const u8, signed: bool, zero: f32, by: f32, dst: *mut f32, n: usize) = quant::dequantise;
            /// Depthwise convolution of 8-bit integers; the operands' elements named by [`Depthwise8`] are valid and `out` overlaps none.
            depthwise8: fn(d: &Depthwise8) = depthwise8::depthwise8;
            /// Depthwise convolution of whole planes, where [`Lines::fits`]; the operands' elements named by [`Lines`] are valid and no output overlaps anything.
            lines: fn(d: &Lines) = lines::lines;
            /// n offsets of n indices that are `step` elements apart: what they stand for, behind a beginning and a stride or, without, added to what is there; gives whether any is outside.
            ranks64: fn(by: *const i64, step: isize, r: &Ranks, begin: Option<(i64, i64)>, offsets: *mut i64, n: usize) -> bool = take::ranks64;
            /// As `ranks64`.
            ranks32: fn(by: *const i32, step: isize, r: &Ranks, begin: Option<(i64, i64)>, offsets: *mut i64, n: usize) -> bool = take::ranks32;
            /// dst\[i\] = what lies offsets\[i\] bytes behind src, which may be anywhere valid; no overlap.
            take8: fn(src: *const u8, offsets: *const i64, dst: *mut u8, n: usize) = take::take8;
            /// As `take8`.
            take16: fn(src: *const u16, offsets: *const i64, dst: *mut u16, n: usize) = take::take16;
            /// As `take8`.
            take32: fn(src: *const u32, offsets: *const i64, dst: *mut u32, n: usize) = take::take32;
            /// As `take8`.
            take64: fn(src: *const u64, offsets: *const i64, dst: *mut u64, n: usize) = take::take64;
        }
    };
}

macro_rules! define {
    ([] $($(#[doc = $doc:literal])* $name:ident : fn($($a:ident : $t:ty),*) $(-> $r:ty)? = $($path:ident)::+;)*) => {
        /// The micro-kernels of one instruction set, as pointers.
        ///
        /// # Safety
        ///
        /// Every one of them needs a CPU with the instruction set ([`Isa::available`]), pointers valid for the
        /// elements named (`n` readable in each source, `n` writable in the destination), and a destination that
        /// is apart from every source or, where "in place" is allowed, exactly one of them. Unary, binary and
        /// scalar functions work in place. None needs alignment beyond an element's, none touches anything outside.
        #[derive(Clone, Copy)]
        pub struct Kernels {
            /// The instruction set.
            pub isa: Isa,
            $($(#[doc = $doc])* pub $name: unsafe fn($($t),*) $(-> $r)?,)*
        }
    };
}
list!(define);

macro_rules! names {
    ([] $($(#[doc = $doc:literal])* $name:ident : fn($($a:ident : $t:ty),*) $(-> $r:ty)? = $($path:ident)::+;)*) => {
        impl Kernels {
            /// Every function of the table by name, with the address of its code: for tools that show it.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($name), self.$name as *const () as usize)),*]
            }
        }
    };
}
list!(names);

macro_rules! table {
    ([$isa:ident $module:ident $simd:ident $features:literal] $($(#[doc = $doc:literal])* $name:ident : fn($($a:ident : $t:ty),*) $(-> $r:ty)? = $($path:ident)::+;)*) => {
        mod $module {
            #[allow(unused_imports, reason = "which of them a list names may change")]
            use super::super::{columns, columns::Columns, depthwise, depthwise::Depthwise, depthwise8, depthwise8::Depthwise8, dot, dot::Dot, grouped, lines, lines::Lines, nibbles, nibbles::Nibbles, pack, picks, picks::{Pick, Picks}, quant, row, slice, take, take::Ranks};
            use super::super::$module::$simd;
            $(
                #[target_feature(enable = $features)]
                #[allow(clippy::too_many_arguments, reason = "rows of one expression")]
                unsafe fn $name($($a: $t),*) $(-> $r)? {
                    // SAFETY: the caller's contract is that of the wrapped kernel.
                    unsafe { $($path)::+::<$simd>($($a),*) }
                }
            )*
            pub(super) static TABLE: super::Kernels = super::Kernels { isa: crate::isa::Isa::$isa, $($name),* };
        }
    };
}
#[cfg(target_arch = "x86_64")]
list!(table Avx512 avx512 Avx512 "avx512f,avx512vl,avx512dq,avx512bw,fma,avx2");
#[cfg(target_arch = "x86_64")]
list!(table Avx2 avx2 Avx2 "avx2,fma");
#[cfg(target_arch = "x86_64")]
list!(table Portable sse2 Sse2 "sse2");
#[cfg(not(target_arch = "x86_64"))]
list!(table Portable portable Portable "neon");

/// The kernels of `isa`. Calling one is sound only on a CPU that has it; elsewhere than on x86-64 there is only
/// the portable table.
#[must_use]
pub fn kernels(isa: Isa) -> &'static Kernels {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => &avx512::TABLE,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => &avx2::TABLE,
        #[cfg(target_arch = "x86_64")]
        Isa::Portable => &sse2::TABLE,
        #[cfg(not(target_arch = "x86_64"))]
        _ => &portable::TABLE,
    }
}

impl Kernels {
    /// The contract kernel with register tiles of `mr` x `nr`; None where [`Kernels::shapes`] has no such shape.
    #[must_use]
    pub fn gemm(&self, mr: usize, nr: usize) -> Option<GemmKernel> {
        gemm_kernel(self.isa, mr, nr)
    }

    /// Every legal register shape (MR, NR).
    #[must_use]
    pub fn shapes(&self) -> Vec<(usize, usize)> {
        shapes(self.isa)
    }
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernels of {}", self.isa)
    }
}
