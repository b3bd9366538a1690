//! Element types: widths, classes and names. Everything that holds or moves elements uses them; conversions are
//! in `expr::scalar`.
use serde::{Deserialize, Serialize};

/// Element type of a tensor, tile or scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// One byte, 0 or 1.
    Bool,
    /// Signed 4-bit integer, two per byte, low nibble first.
    I4,
    /// Unsigned 4-bit integer, two per byte, low nibble first.
    U4,
    /// Text of any length. No kernel reads it: it takes no bytes in a buffer, host operators hold
    /// it beside.
    Str,
    /// A sequence, an optional value or a map: held by host operators and control flow only.
    Host,
}

impl DType {
    /// Every element type that kernels know, in declaration order.
    pub const ALL: [DType; 15] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::Bool,
        DType::I4,
        DType::U4,
    ];

    /// True for what no buffer holds: text, sequences, optionals and maps.
    pub const fn is_held(self) -> bool {
        matches!(self, DType::Str | DType::Host)
    }

    /// Width of one element in bits; 0 for what no buffer holds.
    pub const fn bits(self) -> u32 {
        match self {
            DType::Str | DType::Host => 0,
            DType::I4 | DType::U4 => 4,
            DType::I8 | DType::U8 | DType::Bool => 8,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 16,
            DType::F32 | DType::I32 | DType::U32 => 32,
            DType::F64 | DType::I64 | DType::U64 => 64,
        }
    }

    /// Bytes that `elements` packed elements take; `None` on overflow.
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        match self.bits() {
            4 => Some(elements.div_ceil(2)),
            b => elements.checked_mul(b as usize / 8),
        }
    }

    /// True for f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }

    /// True for every integer type; false for `Bool`.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !self.is_held() && !matches!(self, DType::Bool)
    }

    /// True for integer types that hold negative numbers.
    pub const fn is_signed_int(self) -> bool {
        matches!(
            self,
            DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64
        )
    }

    /// Name as in text forms and on the command line (`f32`, `bf16`, `i4`, `bool`).
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
            DType::Bool => "bool",
            DType::I4 => "i4",
            DType::U4 => "u4",
            DType::Str => "str",
            DType::Host => "host",
        }
    }

    /// The type named `name`, if any.
    pub fn from_name(name: &str) -> Option<DType> {
        let all = DType::ALL.into_iter().chain([DType::Str, DType::Host]);
        all.into_iter().find(|d| d.name() == name)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
/// `x` as f32 with inexact results made odd: a later rounding to a type of at most 22 bits of precision, such as
/// f16 or bf16, is then the rounding of `x` itself.
#[must_use]
pub fn to_odd_f32(x: f64) -> f32 {
    let f = x as f32;
    let back = f64::from(f);
    if back == x || x.is_nan() {
        return f;
    }
    let bits = match back.abs() > x.abs() {
        true => f.to_bits() - 1,
        false => f.to_bits(),
    };
    f32::from_bits(bits | 1)
}
