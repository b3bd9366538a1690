//! The loops that are measured.

use super::rate::Rate;
use crate::isa::Isa;
use machine::{NumType, UnitClass};
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

/// The rates that can be measured with these instruction sets, the widest first.
pub(crate) fn rates(isas: &[Isa]) -> Vec<Rate> {
    let mut out = Vec::new();
    #[cfg(target_arch = "x86_64")]
    x86::rates(isas, &mut out);
    let _ = isas;
    out.push(Rate {
        class: UnitClass::Fma,
        dtype: NumType::F32,
        isa: "portable",
        lanes: 4,
        ops_per_pass: (PORTABLE * 2 * UNROLL) as f64,
        run: portable_fma,
    });
    if out.len() == 1 {
        out.push(Rate {
            class: UnitClass::Simple,
            dtype: NumType::F32,
            isa: "portable",
            lanes: 4,
            ops_per_pass: (PORTABLE * UNROLL) as f64,
            run: portable_add,
        });
    }
    out
}

/// Repetitions of the independent chains in one pass.
const UNROLL: usize = 64;
/// Independent scalars of the portable loops: twelve chains of four.
const PORTABLE: usize = 48;

fn portable_fma(passes: usize) {
    let (c, d) = (black_box(0.999f32), black_box(0.001f32));
    let mut acc = [1.0f32; PORTABLE];
    for _ in 0..passes * UNROLL {
        for a in &mut acc {
            *a = *a * c + d;
        }
    }
    black_box(acc);
}

fn portable_add(passes: usize) {
    let d = black_box(0.001f32);
    let mut acc = [1.0f32; PORTABLE];
    for _ in 0..passes * UNROLL {
        for a in &mut acc {
            *a += d;
        }
    }
    black_box(acc);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Isa, NumType, Rate, UNROLL, UnitClass, black_box};
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
            fn $name(passes: usize) {
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
                // SAFETY: `rates` lists a loop only when its features are available.
                unsafe { inner(passes) }
            }
        };
    }

    rate!(
        fma512,
        "avx512f",
        24,
        _mm512_set1_ps(1.0),
        |a, c| _mm512_set1_ps(0.5),
        _mm512_fmadd_ps(*a, c, c)
    );
    rate!(
        fma256,
        "avx2,fma",
        12,
        _mm256_set1_ps(1.0),
        |a, c| _mm256_set1_ps(0.5),
        _mm256_fmadd_ps(*a, c, c)
    );
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
    rate!(
        add512,
        "avx512f",
        24,
        _mm512_set1_ps(1.0),
        |a, c| _mm512_set1_ps(0.5),
        _mm512_max_ps(*a, c)
    );
    rate!(
        add256,
        "avx2",
        12,
        _mm256_set1_ps(1.0),
        |a, c| _mm256_set1_ps(0.5),
        _mm256_max_ps(*a, c)
    );
    rate!(
        div512,
        "avx512f",
        12,
        _mm512_set1_ps(1.0),
        |a, c| _mm512_set1_ps(1.01),
        _mm512_div_ps(c, *a)
    );
    rate!(
        div256,
        "avx2",
        12,
        _mm256_set1_ps(1.0),
        |a, c| _mm256_set1_ps(1.01),
        _mm256_div_ps(c, *a)
    );
    rate!(
        bf512,
        "avx512f,avx512bf16",
        24,
        _mm512_set1_ps(0.0),
        |a, c| _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5), _mm512_set1_ps(0.5)),
        _mm512_dpbf16_ps(*a, c, c)
    );
    rate!(
        vnni512,
        "avx512f,avx512vnni",
        24,
        _mm512_setzero_si512(),
        |a, c| _mm512_set1_epi8(1),
        _mm512_dpbusd_epi32(*a, c, c)
    );

    pub(super) fn rates(isas: &[Isa], out: &mut Vec<Rate>) {
        let mut add = |class, dtype, isa, lanes: u64, chains: usize, ops_per_lane: u64, run| {
            let ops_per_pass = (lanes * ops_per_lane) as f64 * (chains * UNROLL) as f64;
            out.push(Rate {
                class,
                dtype,
                isa,
                lanes,
                ops_per_pass,
                run,
            });
        };
        let wide = isas.contains(&Isa::Avx512);
        let avx2 = isas.contains(&Isa::Avx2);
        let f32t = NumType::F32;
        if wide {
            add(
                UnitClass::Fma,
                f32t,
                "avx512",
                16,
                24,
                2,
                fma512 as fn(usize),
            );
        }
        if avx2 {
            add(UnitClass::Fma, f32t, "avx2", 8, 12, 2, fma256);
        }
        if wide {
            add(UnitClass::Fma, NumType::F64, "avx512", 8, 24, 2, fma512d);
            add(UnitClass::Simple, f32t, "avx512", 16, 24, 1, add512);
            add(UnitClass::Divsqrt, f32t, "avx512", 16, 12, 1, div512);
        } else if avx2 {
            add(UnitClass::Fma, NumType::F64, "avx2", 4, 12, 2, fma256d);
            add(UnitClass::Simple, f32t, "avx2", 8, 12, 1, add256);
            add(UnitClass::Divsqrt, f32t, "avx2", 8, 12, 1, div256);
        }
        if wide && std::arch::is_x86_feature_detected!("avx512bf16") {
            add(
                UnitClass::Fma,
                NumType::Bf16,
                "avx512_bf16",
                32,
                24,
                2,
                bf512,
            );
        }
        if wide && std::arch::is_x86_feature_detected!("avx512vnni") {
            add(
                UnitClass::Fma,
                NumType::I8,
                "avx512_vnni",
                64,
                24,
                2,
                vnni512,
            );
        }
    }
}
