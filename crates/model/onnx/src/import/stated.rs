//! Types of what operators on the host hold, and what the model states of values.

use super::types::narrow_name;
use super::{Ctx, ImportError, Kind, LowerError, Lowered};
use crate::proto::{Type, ValueInfo};
use ::graph::ValueId;
use layout::{DType, Dim};

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
