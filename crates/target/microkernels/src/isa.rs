//! The instruction sets the micro-kernels are written for, and the run-time choice among them.

use std::fmt;

/// An instruction set of the CPU backend, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// x86-64 with AVX-512 F, VL, DQ, BW and FMA: 16 lanes of f32.
    Avx512,
    /// x86-64 with AVX2 and FMA: 8 lanes of f32.
    Avx2,
    /// What any CPU executes: blocks of 8 f32 without fused multiply-add, in plain Rust or, on x86-64, SSE2.
    Portable,
}

impl Isa {
    /// Every instruction set, best first.
    pub const ALL: [Isa; 3] = [Isa::Avx512, Isa::Avx2, Isa::Portable];

    /// The best instruction set of the present CPU.
    #[must_use]
    pub fn detect() -> Isa {
        Self::ALL
            .into_iter()
            .find(|isa| isa.available())
            .unwrap_or(Isa::Portable)
    }

    /// The instruction set called `name` (`avx512`, `avx2`, `portable`), whether or not the present CPU has it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Isa> {
        Self::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// The name that [`Isa::from_name`] reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        }
    }

    /// Whether the present CPU (and its operating system) can execute this instruction set.
    #[must_use]
    pub fn available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.available()
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512vl")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512bw")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// Lanes of f32 in one vector.
    #[must_use]
    pub const fn lanes(self) -> usize {
        match self {
            Isa::Avx512 => 16,
            Isa::Avx2 | Isa::Portable => 8,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
