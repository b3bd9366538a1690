//! What a sequence, an optional value or a map holds: known while importing only, so that what is
//! taken out of it has a type.
use super::types::dtype_of;
use super::{LowerError, Lowered};
use crate::proto::{Dimension, Type};
use layout::{DType, Dim};

/// Type of a value that a host operator holds, or of what is inside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A tensor; the shape is `None` where even the rank differs from item to item.
    Tensor {
        dtype: DType,
        shape: Option<Vec<Option<Dim>>>,
    },
    /// A sequence of such items. `each`: what every single one is, where their number is known; of an
    /// empty one `items` tells no more than the type that it was made for.
    Seq {
        items: Box<Kind>,
        each: Option<Vec<Kind>>,
    },
    /// A value or none.
    Opt(Box<Kind>),
    /// A map of keys to numbers.
    Map { keys: DType, values: DType },
}

impl Kind {
    /// Longest sequence whose items are told apart.
    pub const MAX_ITEMS: usize = 64;

    /// A tensor of known shape.
    pub fn tensor(dtype: DType, shape: &[Dim]) -> Kind {
        Kind::Tensor {
            dtype,
            shape: Some(shape.iter().cloned().map(Some).collect()),
        }
    }

    /// A sequence of such items.
    pub fn seq(items: Kind) -> Kind {
        Kind::Seq {
            items: Box::new(items),
            each: None,
        }
    }

    /// A sequence of these items and no others, told apart where they are few.
    pub fn seq_of(items: Kind, each: Vec<Kind>) -> Kind {
        Kind::Seq {
            items: Box::new(items),
            each: Some(each).filter(|e| e.len() <= Kind::MAX_ITEMS),
        }
    }

    /// Rank of a tensor, where it is known.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Kind::Tensor { shape, .. } => shape.as_ref().map(Vec::len),
            _ => None,
        }
    }

    /// The kind of a value that may be either; an error when it can be no one type.
    pub fn join(&self, other: &Kind) -> Lowered<Kind> {
        Ok(match (self, other) {
            (Kind::Tensor { dtype: a, shape: x }, Kind::Tensor { dtype: b, shape: y })
                if a == b =>
            {
                Kind::Tensor {
                    dtype: *a,
                    shape: match (x, y) {
                        (Some(x), Some(y)) if x.len() == y.len() => Some(
                            x.iter()
                                .zip(y)
                                .map(|(p, q)| if p == q { p.clone() } else { None })
                                .collect(),
                        ),
                        _ => None,
                    },
                }
            }
            (Kind::Seq { items: a, each: x }, Kind::Seq { items: b, each: y }) => {
                let none = |each: &Option<Vec<Kind>>| each.as_ref().is_some_and(Vec::is_empty);
                let items = match (none(x), none(y)) {
                    (true, _) => b.clone(),
                    (_, true) => a.clone(),
                    _ => Box::new(a.join(b)?),
                };
                let each = match (x, y) {
                    (Some(x), Some(y)) if x.len() == y.len() => {
                        let pairs = x.iter().zip(y);
                        Some(pairs.map(|(a, b)| a.join(b)).collect::<Lowered<_>>()?)
                    }
                    _ => None,
                };
                Kind::Seq { items, each }
            }
            (Kind::Opt(a), Kind::Opt(b)) => Kind::Opt(Box::new(a.join(b)?)),
            // A value stands for an optional one that is there.
            (Kind::Opt(a), b) | (b, Kind::Opt(a)) => Kind::Opt(Box::new(a.join(b)?)),
            (a, b) if a == b => a.clone(),
            (a, b) => {
                return Err(format!("one value is {} and then {}", a.text(), b.text()).into());
            }
        })
    }

    /// The same without the extents that `keep` refuses.
    pub fn known(&self, keep: &dyn Fn(&Dim) -> bool) -> Kind {
        match self {
            Kind::Tensor { dtype, shape } => Kind::Tensor {
                dtype: *dtype,
                shape: shape
                    .as_ref()
                    .map(|s| s.iter().map(|d| d.clone().filter(|d| keep(d))).collect()),
            },
            Kind::Seq { items, each } => Kind::Seq {
                items: Box::new(items.known(keep)),
                each: (each.as_ref()).map(|e| e.iter().map(|k| k.known(keep)).collect()),
            },
            Kind::Opt(k) => Kind::Opt(Box::new(k.known(keep))),
            Kind::Map { .. } => self.clone(),
        }
    }

    /// Whether both hold the same types, whatever their shapes.
    pub(super) fn has_type_of(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Tensor { dtype: a, .. }, Kind::Tensor { dtype: b, .. }) => a == b,
            (Kind::Seq { items: a, .. }, Kind::Seq { items: b, .. }) => a.has_type_of(b),
            (Kind::Opt(a), Kind::Opt(b)) => a.has_type_of(b),
            // A value stands for an optional one that is there, in older models either way.
            (a, Kind::Opt(b)) => a.has_type_of(b),
            (Kind::Opt(a), b) => a.has_type_of(b),
            (a, b) => a == b,
        }
    }

    /// For messages.
    pub fn text(&self) -> String {
        match self {
            Kind::Tensor { dtype, .. } => format!("a tensor of {dtype}"),
            Kind::Seq { items, .. } => format!("a sequence of {}", items.text()),
            Kind::Opt(k) => format!("an optional {}", k.text()),
            Kind::Map { .. } => "a map".into(),
        }
    }

    /// The kind that a model states; extents it names are not taken over, for nothing binds them.
    pub fn stated(ty: &Type) -> Lowered<Kind> {
        Ok(match ty {
            Type::Tensor(t) => Kind::Tensor {
                dtype: dtype_of(t.dtype).map_err(LowerError::Unsupported)?,
                shape: t.shape.as_ref().map(|s| {
                    s.iter()
                        .map(|d| match d {
                            Dimension::Value(n) if *n >= 0 => Some(Dim::Known(*n)),
                            _ => None,
                        })
                        .collect()
                }),
            },
            Type::Sequence(t) => Kind::seq(Kind::stated(t)?),
            Type::Optional(t) => Kind::Opt(Box::new(Kind::stated(t)?)),
            Type::Map { key, value } => {
                let Kind::Tensor { dtype, .. } = Kind::stated(value)? else {
                    return Err(LowerError::Unsupported(
                        "holds maps of maps; use maps of numbers".into(),
                    ));
                };
                Kind::Map {
                    keys: dtype_of(*key).map_err(LowerError::Unsupported)?,
                    values: dtype,
                }
            }
            _ => {
                return Err(LowerError::Unsupported(
                    "is a sparse tensor or has no type; use dense tensors and sequences of them"
                        .into(),
                ));
            }
        })
    }
}
