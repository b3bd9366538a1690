/// A scalar value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float of any width, held wide.
    Float(f64),
    /// An integer or boolean.
    Int(i64),
}

/// What a program sees beside its arguments.
pub struct EvalContext<'a> {
    /// Arguments by slot.
    pub inputs: &'a [Scalar],
    /// Coordinates by axis.
    pub index: &'a [i64],
    /// Values of symbols.
    pub symbols: &'a dyn Fn(&str) -> Option<i64>,
}
