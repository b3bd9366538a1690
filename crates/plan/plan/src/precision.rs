//! How exactly products of f32 are computed.
use kernel::Factors;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How exactly f32 matrix products, convolutions and attention multiply, from the most exact on. Sums are f32.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Multiply-adds of f32 alone.
    Exact,
    /// As exact as multiply-adds: these, or three products of factors in two parts of TF32, as is faster.
    #[default]
    F32,
    /// Three products of factors in two parts of bf16, some 16 bits of each number.
    Bf16x3,
    /// Factors rounded to TF32: eleven bits of each number count.
    Tf32,
    /// Factors rounded to bf16: eight bits of each number count.
    Bf16,
}

impl Precision {
    /// All, the most exact first.
    pub const ALL: [Precision; 5] = [
        Precision::Exact,
        Precision::F32,
        Precision::Bf16x3,
        Precision::Tf32,
        Precision::Bf16,
    ];

    /// What it is called on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Exact => "exact",
            Precision::F32 => "f32",
            Precision::Bf16x3 => "bf16x3",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
        }
    }

    /// Whether a matrix instruction may multiply f32 factors so.
    pub fn allows(self, factors: Factors) -> bool {
        match factors {
            Factors::Whole => true,
            Factors::Tf32x3 => self >= Precision::F32,
            Factors::Bf16x3 => self >= Precision::Bf16x3,
            Factors::Tf32 => self >= Precision::Tf32,
            Factors::Bf16 => self >= Precision::Bf16,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Precision, String> {
        let mut all = Precision::ALL.into_iter();
        all.find(|p| p.name() == text).ok_or_else(|| {
            let names = Precision::ALL.map(Precision::name).join(", ");
            format!("'{text}' is no precision; it is one of {names}")
        })
    }
}
