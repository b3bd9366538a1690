//! What a sequence, an optional value or a map holds: known while importing only, so that what is
//! taken out of it has a type.
use super::ctx::dtype_of;
use super::narrow::narrow_name;
use super::{Ctx, ImportError, LowerError, Lowered};
use crate::proto::{Dimension, Type, ValueInfo};
use ::graph::ValueId;
use layout::{DType, Dim};

/// Type of a value that a host operator holds, or of what is inside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A tensor; the shape is `None` where even the rank differs from item to item.
    Tensor {
        dtype: DType,
        shape: Option<Vec<Option<Dim>>>,
    },
    /// A sequence of such items; `empty` while none was put in, so that the shape is still open.
    Seq { items: Box<Kind>, empty: bool },
    /// A value or none.
    Opt(Box<Kind>),
    /// A map of keys to numbers.
    Map { keys: DType, values: DType },
}

impl Kind {
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
            empty: false,
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
            (Kind::Seq { items: a, empty: x }, Kind::Seq { items: b, empty: y }) => match (x, y) {
                (true, _) => other.clone(),
                (_, true) => self.clone(),
                _ => Kind::seq(a.join(b)?),
            },
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
            Kind::Seq { items, empty } => Kind::Seq {
                items: Box::new(items.known(keep)),
                empty: *empty,
            },
            Kind::Opt(k) => Kind::Opt(Box::new(k.known(keep))),
            Kind::Map { .. } => self.clone(),
        }
    }

    /// Whether both hold the same types, whatever their shapes.
    fn has_type_of(&self, other: &Kind) -> bool {
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

impl<'m> Ctx<'m> {
    /// Kind of a value.
    pub fn kind(&self, v: ValueId) -> Kind {
        let frame = &self.frames[self.frames.len() - 1];
        match frame.kinds.get(&v) {
            Some(k) => k.clone(),
            None => Kind::tensor(self.dtype(v), &self.shape(v)),
        }
    }

    /// Refuses a value whose type is not the one that the model states for it.
    pub fn check_stated(&self, info: &ValueInfo, v: ValueId) -> Lowered {
        let ty = match &info.ty {
            None | Some(Type::Unspecified) => return Ok(()),
            Some(Type::Tensor(t)) if t.dtype == 0 => return Ok(()),
            Some(ty) => ty,
        };
        // What is stated and not covered is of no use to anything that is.
        let Ok(stated) = Kind::stated(ty) else {
            return Ok(());
        };
        let own = self.kind(v);
        let code = match ty {
            Type::Tensor(t) => narrow_name(t.dtype),
            _ => None,
        };
        let codes = self.narrow(v);
        let untold = matches!(
            own,
            Kind::Tensor {
                dtype: DType::Host,
                ..
            }
        );
        if untold || (own.has_type_of(&stated) && (codes.is_none() || codes == code)) {
            return Ok(());
        }
        let name = |k: &Kind, code: Option<&str>| {
            code.map_or_else(|| k.text(), |c| format!("a tensor of {c}"))
        };
        Err(LowerError::Import(ImportError::Model {
            file: self.file.name().into(),
            why: format!(
                "'{}' is {}, and the model states {}; export the model again",
                info.name,
                name(&own, codes),
                name(&stated, code)
            ),
        }))
    }

    /// Notes what a held value holds.
    pub fn set_kind(&mut self, v: ValueId, kind: Kind) {
        if self.dtype(v) == DType::Host {
            self.frame().kinds.insert(v, kind);
        }
    }

    /// Element type and extents under which a value of this kind stands in the graph. A tensor
    /// whose rank is unknown cannot.
    pub fn outside(&self, kind: &Kind) -> Lowered<(DType, Vec<Option<Dim>>)> {
        match kind {
            Kind::Tensor { dtype, shape: Some(s) } => Ok((*dtype, s.clone())),
            Kind::Tensor { .. } => Err(LowerError::Unsupported(
                "the rank of what it takes out of a sequence is unknown; put tensors of one rank in"
                    .into(),
            )),
            _ => Ok((DType::Host, vec![])),
        }
    }
}
