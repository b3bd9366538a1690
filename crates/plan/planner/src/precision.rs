//! In what type products are computed.

/// In what type f32 matrix products and convolutions multiply; sums are f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// As the model says.
    #[default]
    F32,
    /// Factors are rounded to bf16: eight bits of each number count.
    Bf16,
}
