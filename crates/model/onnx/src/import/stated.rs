//! Types of what operators on the host hold, and what the model states of values.

use super::types::narrow_name;
use super::{Ctx, ImportError, Kind, LowerError, Lowered, NodeView};
use crate::proto::{Type, ValueInfo};
use ::graph::{Symbol, SymbolSource, ValueId};
use layout::Inserted;
use layout::{DType, Dim};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Largest rank that a request may decide.
const MAX_RANK: usize = 8;

/// What an operator takes out of a sequence or an optional value.
pub(crate) struct TakenOut {
    /// Its type.
    pub kind: Kind,
    /// Whether its rank is a guess.
    pub guessed: bool,
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

    /// The type of what `n` takes out of a value that holds tensors of any rank: of the rank that the request is said
    /// to give, else of one that is guessed, which running checks. `each`: what it may be, as far as that is known.
    pub fn ranked(&mut self, n: &NodeView<'m>, kind: Kind, each: &[Kind]) -> Lowered<TakenOut> {
        let Kind::Tensor { dtype, shape: None } = kind else {
            return Ok(TakenOut {
                kind,
                guessed: false,
            });
        };
        let mut ranks: BTreeSet<usize> = each.iter().filter_map(Kind::rank).inserted();
        if ranks.is_empty() {
            ranks.extend(self.stated_rank(n));
        }
        if ranks.is_empty() {
            ranks.extend(0..=MAX_RANK);
        }
        let rank = match self.told(n) {
            Some(rank) => usize::try_from(rank)
                .ok()
                .filter(|r| *r <= MAX_RANK || ranks.contains(r)),
            None => ranks.iter().nth(self.ranks.guess(ranks.len())).copied(),
        };
        let rank = rank.ok_or_else(|| {
            LowerError::Unsupported(format!(
                "it takes out a tensor of more than {MAX_RANK} dimensions; use fewer"
            ))
        })?;
        let open = Kind::Tensor {
            dtype,
            shape: Some(vec![None; rank]),
        };
        let mut fit = each.iter().filter(|k| k.rank() == Some(rank));
        let kind = match fit.next() {
            Some(first) if each.iter().all(|k| k.rank().is_some()) => {
                fit.try_fold(first.clone(), |a, b| a.join(b))?
            }
            _ => open,
        };
        Ok(TakenOut {
            kind,
            guessed: true,
        })
    }

    /// The number that `extent` is, on which the graph itself depends. Where only the data gives it, one of `among` is
    /// guessed, which running checks: requests in which it is another run on a program made for that. `None` where
    /// neither is so.
    pub fn number(
        &mut self,
        n: &NodeView<'m>,
        extent: &Dim,
        among: RangeInclusive<usize>,
    ) -> Option<usize> {
        if let Some(k) = extent.known() {
            return usize::try_from(k).ok();
        }
        if !self.is_late(extent) || self.changes_by_round(extent) {
            return None;
        }
        let count = among.clone().count();
        let k = among.clone().nth(self.ranks.guess(count))?;
        self.assume(n, extent, &Dim::from(k));
        Some(k)
    }

    /// The rank of what has the shape `t`, a vector of sizes.
    pub fn rank_by(&mut self, n: &NodeView<'m>, t: ValueId) -> Lowered<usize> {
        let count = self.shape(t).first().cloned();
        let count = count.and_then(|d| self.number(n, &d, 0..=MAX_RANK));
        count.filter(|r| *r <= 32).ok_or_else(|| {
            LowerError::Unsupported(
                "the rank of its result depends on data; make it constant".into(),
            )
        })
    }

    /// Whether only the data gives a size.
    pub fn is_late(&self, d: &Dim) -> bool {
        let mut used = BTreeSet::new();
        d.symbols(&mut used);
        let late = |s: &Symbol| {
            matches!(s.source, SymbolSource::Late { .. }) && used.contains(s.name.as_ref())
        };
        let mut frames = self.frames.iter();
        frames.any(|f| f.b.graph().symbols.iter().any(late))
    }

    /// The rank that the model states for the first output of `n`.
    fn stated_rank(&self, n: &NodeView<'m>) -> Option<usize> {
        let scope = self.frames.last()?.scopes.last()?;
        match &scope.stated.get(n.outputs.first()?)?.ty {
            Some(Type::Tensor(t)) => Some(t.shape.as_ref()?.len()),
            _ => None,
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
