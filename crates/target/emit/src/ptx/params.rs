//! Parameters of an entry: pointers of operands, and one number per distinct dimension expression.
use kernel::OperandId;
use layout::Dim;

/// What a parameter of an entry is.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamValue {
    /// Device address of an operand's buffer: `.u64`, aligned to 16 bytes.
    Operand(OperandId),
    /// Value of a dimension expression: `.s64`.
    Dim(Dim),
    /// Number of tasks, where a CTA walks those that the launch's number of CTAs leaves it: `.s64`.
    Tasks(Dim),
    /// Device address of a 32-bit word that takes the number of a fault, counted from 1: `.u64`.
    Fault,
}

/// One parameter of an entry, 8 bytes wide.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Name in the text.
    pub name: String,
    /// What it holds.
    pub value: ParamValue,
}
