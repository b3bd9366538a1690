//! Lane loops that are worth code of their own on CPUs with AVX2 and FMA: a fused multiply-add
//! without the instruction is a call for every lane.

/// Makes `$name` call a copy of itself compiled for AVX2 and FMA where the CPU has them.
macro_rules! dispatched {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn fast($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the features that the function was compiled for are there.
                    return unsafe { fast($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}

dispatched! {
    /// a * b + c, rounded once, lane by lane.
    fn fma32(a: &[u32; 32], b: &[u32; 32], c: &[u32; 32]) -> [u32; 32] {
        let mut r = [0u32; 32];
        for l in 0..32 {
            let v = f32::from_bits(a[l]).mul_add(f32::from_bits(b[l]), f32::from_bits(c[l]));
            r[l] = if v.is_nan() { super::round::NAN32 } else { v.to_bits() };
        }
        r
    }
}

dispatched! {
    /// The same in f64.
    fn fma64(a: &[u64; 32], b: &[u64; 32], c: &[u64; 32]) -> [u64; 32] {
        let mut r = [0u64; 32];
        for l in 0..32 {
            let v = f64::from_bits(a[l]).mul_add(f64::from_bits(b[l]), f64::from_bits(c[l]));
            r[l] = v.to_bits();
        }
        r
    }
}

dispatched! {
    /// c += a b for a of 16 rows and `k` columns and b of `k` rows and 8 columns, the products of
    /// each element added in the order of k.
    fn product(a: &[[f32; 16]; 16], b: &[[f32; 8]; 16], c: &mut [[f32; 8]; 16], k: usize) {
        for (row, c) in a.iter().zip(c.iter_mut()) {
            for (x, b) in row.iter().zip(b).take(k) {
                for n in 0..8 {
                    c[n] = x.mul_add(b[n], c[n]);
                }
            }
        }
    }
}

dispatched! {
    /// c += a b for a of 16 rows and `k` columns and b of `k` rows and `n` columns, likewise.
    fn wide_product(a: &[f32], b: &[f32], c: &mut [f32], k: usize, n: usize) {
        for (row, c) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
            for (x, b) in row.iter().zip(b.chunks_exact(n)) {
                for (c, b) in c.iter_mut().zip(b) {
                    *c = x.mul_add(*b, *c);
                }
            }
        }
    }
}

dispatched! {
    /// Pairs of f16 in 32-bit words to f32: low halves, then high ones.
    fn halves(w: &[u32; 32]) -> ([f32; 32], [f32; 32]) {
        let (mut lo, mut hi) = ([0.0; 32], [0.0; 32]);
        for l in 0..32 {
            lo[l] = super::round::from_f16(w[l] & 0xffff);
            hi[l] = super::round::from_f16(w[l] >> 16);
        }
        (lo, hi)
    }
}
