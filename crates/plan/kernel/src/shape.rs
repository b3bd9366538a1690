//! Shapes of tensors as texts write them.

use layout::Dim;

/// A tensor's shape as a text writes it behind the type: `[rows, cols]`, or `[n..]`.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Extent by extent.
    Dims(Vec<Dim>),
    /// Any extents, of so many elements in all.
    Any(Dim),
}
