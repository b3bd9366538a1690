//! Tests of the micro-kernels on every instruction set of the CPU, against plain loops in f64.

mod contract;
mod elementary;
mod integers;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod lines;
mod moves;
mod rows;
mod steps;

use shopfloor_microkernels::isa::Isa;

/// The instruction sets of the present CPU; says which are left out.
pub(crate) fn isas() -> Vec<Isa> {
    let (have, lack): (Vec<Isa>, Vec<Isa>) = Isa::ALL.into_iter().partition(|i| i.available());
    for isa in lack {
        testing::skip(
            &format!("isa: micro-kernels of {isa}"),
            "this CPU has none of it",
        );
    }
    have
}

/// A fixed generator whose seed a failing test prints.
pub(crate) struct Rng(fastrand::Rng);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        eprintln!("seed {seed}");
        Rng(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Uniform in -1..1.
    pub(crate) fn value(&mut self) -> f32 {
        2.0 * self.0.f32() - 1.0
    }

    /// An extent: small and odd ones often.
    pub(crate) fn extent(&mut self, top: usize) -> usize {
        let pick = [1, 2, 3, 5, 7, 13, 16, 17, 31, 32, 33, 61, 64, 67];
        let v = if self.0.bool() {
            pick[self.below(pick.len())]
        } else {
            1 + self.below(top)
        };
        v.min(top)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n)
    }

    pub(crate) fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.value()).collect()
    }
}

/// A value that no kernel computes, around and between what it may write.
pub(crate) const GUARD: f32 = -12_345.679;

/// A destination of `n` elements between guard bands, filled with the guard value.
pub(crate) struct Guarded {
    pub(crate) all: Vec<f32>,
    pub(crate) n: usize,
}

const BAND: usize = 40;

impl Guarded {
    pub(crate) fn new(n: usize) -> Guarded {
        Guarded {
            all: vec![GUARD; n + 2 * BAND],
            n,
        }
    }

    pub(crate) fn ptr(&mut self) -> *mut f32 {
        self.all[BAND..].as_mut_ptr()
    }

    pub(crate) fn inner(&self) -> &[f32] {
        &self.all[BAND..BAND + self.n]
    }

    pub(crate) fn inner_mut(&mut self) -> &mut [f32] {
        &mut self.all[BAND..BAND + self.n]
    }

    pub(crate) fn check(&self) {
        assert!(
            self.all[..BAND]
                .iter()
                .chain(&self.all[BAND + self.n..])
                .all(|&v| v == GUARD),
            "written outside"
        );
    }
}

/// A source between bands of NaN, which would show in any result that used them; and the offset of its start.
pub(crate) fn fenced(values: &[f32]) -> (Vec<f32>, usize) {
    let mut all = vec![f32::NAN; BAND];
    all.extend_from_slice(values);
    all.extend(std::iter::repeat_n(f32::NAN, BAND));
    (all, BAND)
}

pub(crate) fn close(got: f32, want: f64, scale: f64, what: &str) {
    let ok = f64::from(got) == want || (f64::from(got) - want).abs() <= scale * 1e-6 + 1e-30;
    assert!(ok, "{what}: got {got}, want {want}");
}
