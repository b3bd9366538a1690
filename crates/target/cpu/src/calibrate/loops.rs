//! The loops that are measured.

use crate::isa::Isa;
use std::hint::black_box;

/// A memory operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Read,
    Write,
    Copy,
}

impl Memory {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Memory::Read => "read",
            Memory::Write => "write",
            Memory::Copy => "copy",
        }
    }
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// A working set of whole cache lines, touched by the thread that makes it.
pub(crate) struct Buffer {
    lines: Vec<Line>,
}

impl Buffer {
    /// `lines` is a multiple of 32.
    pub(crate) fn new(lines: usize) -> Self {
        Buffer {
            lines: vec![Line([1; 8]); lines],
        }
    }

    /// Moves the working set `passes` times; a copy moves one half onto the other, its bytes counted
    /// as loaded and stored.
    pub(crate) fn run(&mut self, isa: Isa, op: Memory, passes: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            let n = self.lines.len();
            let p = self.lines.as_mut_ptr().cast::<u8>();
            // SAFETY: the ISA was found available when it was chosen; `p` is valid for `64 * n`
            // bytes, aligned to 64, owned by `self`, and `n` is a multiple of 32.
            unsafe {
                match (isa, op) {
                    (Isa::Avx512, Memory::Read) => return x86::read512(p, n, passes),
                    (Isa::Avx512, Memory::Write) => return x86::write512(p, n, passes),
                    (Isa::Avx512, Memory::Copy) => return x86::copy512(p, n, passes),
                    (Isa::Avx2, Memory::Read) => return x86::read256(p, n, passes),
                    (Isa::Avx2, Memory::Write) => return x86::write256(p, n, passes),
                    (Isa::Avx2, Memory::Copy) => return x86::copy256(p, n, passes),
                    _ => {}
                }
            }
        }
        let _ = isa;
        self.portable(op, passes);
    }

    fn portable(&mut self, op: Memory, passes: usize) {
        for _ in 0..passes {
            let lines = black_box(&mut self.lines);
            match op {
                Memory::Read => {
                    let mut acc = [0u64; 16];
                    for pair in lines.chunks_exact(2) {
                        for i in 0..8 {
                            acc[i] ^= pair[0].0[i];
                            acc[8 + i] ^= pair[1].0[i];
                        }
                    }
                    black_box(acc);
                }
                Memory::Write => {
                    let v = black_box(Line([3; 8]));
                    lines.fill(v);
                }
                Memory::Copy => {
                    let half = lines.len() / 2;
                    let (a, b) = lines.split_at_mut(half);
                    b[..half].copy_from_slice(a);
                }
            }
        }
    }
}

/// Additions in one pass of [`chain`].
pub(crate) const CHAIN: usize = 512;

/// Additions each of which waits for the one before it: one in every cycle. False where nobody wrote it.
pub(crate) fn chain(passes: usize) -> bool {
    // Carried on, so that no addition begins before the last.
    let mut sum = 1u64;
    black_box(&mut sum);
    for _ in 0..passes * (CHAIN / 16) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: two registers, no memory.
        unsafe {
            std::arch::asm!(
                ".rept 16", "add {a}, {b}", ".endr",
                a = inout(reg) sum, b = in(reg) 3u64, options(nomem, nostack)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: two registers, no memory.
        unsafe {
            std::arch::asm!(
                ".rept 16", "add {a}, {a}, {b}", ".endr",
                a = inout(reg) sum, b = in(reg) 3u64, options(nomem, nostack)
            );
        }
    }
    black_box(sum);
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}

/// Independent chains of multiply-adds of f64 with one instruction set.
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{fma256d, fma512d};
/// Repetitions of the independent chains in one pass.
#[cfg(target_arch = "x86_64")]
pub(crate) const UNROLL: usize = 64;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{UNROLL, black_box};
    use std::arch::x86_64::*;

    /// Read, write and copy of a working set with one vector type.
    macro_rules! memory {
        ($read:ident, $write:ident, $copy:ident, $feature:literal, $v:ty, $load:ident, $store:ident, $xor:ident, $zero:ident) => {
            /// # Safety
            /// The feature is available; `p` is valid for reads of `64 * lines` bytes, aligned to 64;
            /// `lines` is a multiple of 32.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $read(p: *mut u8, lines: usize, passes: usize) {
                const W: usize = size_of::<$v>();
                let n = lines * 64 / W;
                let mut acc = [$zero(); 8];
                for _ in 0..passes {
                    let p = black_box(p).cast::<$v>();
                    let mut i = 0;
                    while i + 8 <= n {
                        for (k, a) in acc.iter_mut().enumerate() {
                            // SAFETY: i + k < n vectors of the caller's buffer, aligned to 64.
                            *a = $xor(*a, unsafe { $load(p.add(i + k).cast()) });
                        }
                        i += 8;
                    }
                }
                black_box(acc);
            }

            /// # Safety
            /// As the read, and valid for writes.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $write(p: *mut u8, lines: usize, passes: usize) {
                const W: usize = size_of::<$v>();
                let n = lines * 64 / W;
                let v = black_box($zero());
                for _ in 0..passes {
                    let p = black_box(p).cast::<$v>();
                    let mut i = 0;
                    while i + 8 <= n {
                        for k in 0..8 {
                            // SAFETY: i + k < n vectors of the caller's buffer, aligned to 64.
                            unsafe { $store(p.add(i + k).cast(), v) };
                        }
                        i += 8;
                    }
                }
            }

            /// # Safety
            /// As the read, and valid for writes.
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $copy(p: *mut u8, lines: usize, passes: usize) {
                const W: usize = size_of::<$v>();
                let half = lines * 64 / W / 2;
                for _ in 0..passes {
                    let p = black_box(p).cast::<$v>();
                    let mut i = 0;
                    while i + 8 <= half {
                        for k in 0..8 {
                            // SAFETY: i + k < half, so both places are within the caller's buffer.
                            unsafe {
                                let v = $load(p.add(i + k).cast());
                                $store(p.add(half + i + k).cast(), v);
                            }
                        }
                        i += 8;
                    }
                }
            }
        };
    }

    memory!(
        read512,
        write512,
        copy512,
        "avx512f",
        __m512i,
        _mm512_load_si512,
        _mm512_store_si512,
        _mm512_xor_si512,
        _mm512_setzero_si512
    );
    memory!(
        read256,
        write256,
        copy256,
        "avx2",
        __m256i,
        _mm256_load_si256,
        _mm256_store_si256,
        _mm256_xor_si256,
        _mm256_setzero_si256
    );

    /// A rate: `chains` independent chains of one instruction.
    macro_rules! rate {
        ($name:ident, $feature:literal, $chains:literal, $start:expr, |$a:ident, $c:ident| $c_init:expr, $step:expr) => {
            pub(crate) fn $name(passes: usize) {
                #[target_feature(enable = $feature)]
                fn inner(passes: usize) {
                    let $c = black_box($c_init);
                    let mut acc = [$start; $chains];
                    for _ in 0..passes {
                        for _ in 0..UNROLL {
                            for $a in &mut acc {
                                *$a = $step;
                            }
                        }
                    }
                    black_box(acc);
                }
                // SAFETY: a rate is listed only when its features are available.
                unsafe { inner(passes) }
            }
        };
    }

    rate!(
        fma512d,
        "avx512f",
        24,
        _mm512_set1_pd(1.0),
        |a, c| _mm512_set1_pd(0.5),
        _mm512_fmadd_pd(*a, c, c)
    );
    rate!(
        fma256d,
        "avx2,fma",
        12,
        _mm256_set1_pd(1.0),
        |a, c| _mm256_set1_pd(0.5),
        _mm256_fmadd_pd(*a, c, c)
    );
}
