//! Sums, products and extremes of rows of integers, without programs. Sums and products wrap.
use expr::{Binary, Monoid};
use layout::DType;

/// How a row of lifted integers becomes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ints {
    op: Binary,
    wide: bool,
}

impl Ints {
    /// That of `m` with a state of `dtypes`.
    pub(crate) fn of(m: &Monoid, dtypes: &[DType]) -> Option<Ints> {
        let wide = match dtypes {
            [DType::I32] => false,
            [DType::I64] => true,
            _ => return None,
        };
        let op = m.operation()?;
        let known = matches!(op, Binary::Add | Binary::Mul | Binary::Max | Binary::Min);
        known.then_some(Ints { op, wide })
    }

    /// Combines `state` with the `n` elements from `x` on.
    ///
    /// # Safety
    /// They are integers of the state's type, and nobody else uses the state.
    pub(super) unsafe fn row(self, state: *mut u8, x: *const u8, n: usize) {
        macro_rules! fold {
            ($t:ty) => {{
                // SAFETY: as the caller says.
                let (state, x) = unsafe {
                    (
                        &mut *state.cast::<$t>(),
                        std::slice::from_raw_parts(x.cast::<$t>(), n),
                    )
                };
                *state = match self.op {
                    Binary::Add => x.iter().fold(*state, |a, v| a.wrapping_add(*v)),
                    Binary::Mul => x.iter().fold(*state, |a, v| a.wrapping_mul(*v)),
                    Binary::Max => x.iter().fold(*state, |a, v| a.max(*v)),
                    _ => x.iter().fold(*state, |a, v| a.min(*v)),
                };
            }};
        }
        match self.wide {
            true => fold!(i64),
            false => fold!(i32),
        }
    }
}
