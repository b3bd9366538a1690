//! A number together with where it comes from.

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// Where a number of a machine description comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A vendor's data sheet, white paper or programming guide, or what the hardware reports of itself.
    Spec,
    /// A micro-benchmark, ours or published.
    Measured,
    /// A published measurement as it was remembered: nobody has looked it up again.
    Recalled,
    /// A constant fitted to measurements of whole kernels.
    Fitted,
    /// A guess: by analogy, from the micro-architecture, or by a person.
    Assumed,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Spec => "spec",
            Source::Measured => "measured",
            Source::Recalled => "recalled",
            Source::Fitted => "fitted",
            Source::Assumed => "assumed",
        })
    }
}

/// A value and its [`Source`]. In TOML and JSON it is `{ v = 3.2e10, src = "measured" }`; a bare
/// number is read as assumed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sourced<T = f64> {
    /// The number, in SI units.
    pub value: T,
    /// Where it comes from.
    pub source: Source,
}

impl<T> Sourced<T> {
    /// A number with a given source.
    pub const fn new(value: T, source: Source) -> Self {
        Sourced { value, source }
    }
    /// A number from a data sheet.
    pub const fn spec(value: T) -> Self {
        Self::new(value, Source::Spec)
    }
    /// A measured number.
    pub const fn measured(value: T) -> Self {
        Self::new(value, Source::Measured)
    }
    /// A fitted number.
    pub const fn fitted(value: T) -> Self {
        Self::new(value, Source::Fitted)
    }
    /// An assumed number.
    pub const fn assumed(value: T) -> Self {
        Self::new(value, Source::Assumed)
    }
}

impl<T: Serialize> Serialize for Sourced<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut st = s.serialize_struct("Sourced", 2)?;
        st.serialize_field("v", &self.value)?;
        st.serialize_field("src", &self.source)?;
        st.end()
    }
}

/// Types a [`Sourced`] number may have; lets a bare number stand for an assumed one.
pub trait Number: Sized {
    /// The value from an integer literal, when it fits.
    fn from_i64(v: i64) -> Option<Self>;
    /// The value from a float literal, when it fits without loss.
    fn from_f64(v: f64) -> Option<Self>;
}
impl Number for f64 {
    fn from_i64(v: i64) -> Option<Self> {
        Some(v as f64)
    }
    fn from_f64(v: f64) -> Option<Self> {
        Some(v)
    }
}
impl Number for u64 {
    fn from_i64(v: i64) -> Option<Self> {
        u64::try_from(v).ok()
    }
    fn from_f64(v: f64) -> Option<Self> {
        (v >= 0.0 && v.fract() == 0.0 && v < 9.0e15).then_some(v as u64)
    }
}

/// A bare number, read through the same visitor as the table's `v`.
struct Bare<T>(T);

impl<'de, T: Number> Deserialize<'de> for Bare<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<T: Number> Visitor<'_> for V<T> {
            type Value = Bare<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Bare<T>, E> {
                T::from_i64(v)
                    .map(Bare)
                    .ok_or_else(|| E::custom(format!("{v} is not a legal value here")))
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Bare<T>, E> {
                let v = i64::try_from(v).map_err(|_| E::custom(format!("{v} is too large")))?;
                self.visit_i64(v)
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Bare<T>, E> {
                T::from_f64(v)
                    .map(Bare)
                    .ok_or_else(|| E::custom(format!("{v} is not a whole number")))
            }
        }
        d.deserialize_any(V(PhantomData))
    }
}

impl<'de, T: Number> Deserialize<'de> for Sourced<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Number> Visitor<'de> for V<T> {
            type Value = Sourced<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a number or { v = NUMBER, src = \"spec|measured|recalled|fitted|assumed\" }",
                )
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Self::Value, E> {
                T::from_i64(v)
                    .map(Sourced::assumed)
                    .ok_or_else(|| E::custom(format!("{v} is not a legal value here")))
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Self::Value, E> {
                let v = i64::try_from(v).map_err(|_| E::custom(format!("{v} is too large")))?;
                self.visit_i64(v)
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Self::Value, E> {
                T::from_f64(v)
                    .map(Sourced::assumed)
                    .ok_or_else(|| E::custom(format!("{v} is not a whole number")))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut m: A) -> Result<Self::Value, A::Error> {
                let mut value = None;
                let mut source = None;
                while let Some(k) = m.next_key::<String>()? {
                    match k.as_str() {
                        "v" => value = Some(m.next_value::<Bare<T>>()?.0),
                        "src" => source = Some(m.next_value::<Source>()?),
                        other => return Err(de::Error::unknown_field(other, &["v", "src"])),
                    }
                }
                Ok(Sourced {
                    value: value.ok_or_else(|| de::Error::missing_field("v"))?,
                    source: source.ok_or_else(|| de::Error::missing_field("src"))?,
                })
            }
        }
        d.deserialize_any(V(PhantomData))
    }
}
