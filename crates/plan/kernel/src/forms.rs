//! Which scalar operations and types a kernel uses, and which of them a target cannot print. The planner asks
//! before it schedules a kernel on a GPU.
use crate::{Kernel, Stmt, Target, TileId};
use expr::{Binary, Compare, Expr, Inst, Unary};
use layout::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A scalar operation and the type of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// A function of one argument.
    Unary(Unary, DType),
    /// A function of two.
    Binary(Binary, DType),
    /// A comparison.
    Compare(Compare, DType),
    /// A conversion from the first type to the second.
    Cast(DType, DType),
}

impl Form {
    /// Every operation on values of `types`.
    pub fn all(types: &[DType]) -> impl Iterator<Item = Form> + '_ {
        types.iter().flat_map(move |&d| {
            let unary = Unary::ALL.iter().map(move |&f| Form::Unary(f, d));
            let binary = Binary::ALL.iter().map(move |&f| Form::Binary(f, d));
            let compare = Compare::ALL.iter().map(move |&f| Form::Compare(f, d));
            let cast = types.iter().map(move |&to| Form::Cast(d, to));
            unary.chain(binary).chain(compare).chain(cast)
        })
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Unary(name, d) => write!(f, "{name} of {d}"),
            Form::Binary(name, d) => write!(f, "{name} of {d}"),
            Form::Compare(name, d) => write!(f, "{name} of {d}"),
            Form::Cast(from, to) => write!(f, "a conversion of {from} to {to}"),
        }
    }
}

impl Target {
    /// The first thing that `kernel` needs, whatever its schedule, and this target has not: its family, an
    /// element type, or a scalar operation.
    pub fn lacking(&self, kernel: &Kernel) -> Option<String> {
        if !self.families.contains(&kernel.family) {
            return Some(format!("kernels of kind {:?}", kernel.family));
        }
        let operands = kernel.operands.iter().map(|o| o.dtype);
        let mut types = operands.chain(kernel.tiles.iter().map(|t| t.dtype));
        if let Some(d) = types.find(|d| !self.dtypes.contains(d)) {
            return Some(format!("{d}"));
        }
        kernel.body.iter().find_map(|s| self.lacking_in(kernel, s))
    }

    fn lacking_in(&self, kernel: &Kernel, s: &Stmt) -> Option<String> {
        let dtype = |t: TileId| kernel.tiles[t as usize].dtype;
        let form = |f: Form| self.lacks.contains(&f).then(|| f.to_string());
        let product = |d: DType| form(Form::Binary(Binary::Mul, d));
        match s {
            Stmt::Load { .. } | Stmt::Store { .. } | Stmt::Relabel { .. } => None,
            Stmt::Map { expr, .. } => self.lacking_of(expr),
            Stmt::Contract { acc, a, b, .. } => {
                let factor = |t: TileId| form(Form::Cast(dtype(t), dtype(*acc)));
                let sum = || form(Form::Binary(Binary::Add, dtype(*acc)));
                let factors = || factor(*a).or_else(|| factor(*b));
                product(dtype(*acc)).or_else(sum).or_else(factors)
            }
            Stmt::Fold {
                monoid, rescale, ..
            } => {
                let own = [&monoid.identity, &monoid.lift, &monoid.combine];
                let factor = rescale.as_ref().map(|r| &r.factor);
                let scaled = rescale.iter().flat_map(|r| &r.tiles);
                let mut all = own.into_iter().chain(factor);
                all.find_map(|e| self.lacking_of(e))
                    .or_else(|| scaled.map(|&t| dtype(t)).find_map(product))
            }
        }
    }

    fn lacking_of(&self, e: &Expr) -> Option<String> {
        // A program without types is the verifier's business.
        let types = e.types().ok()?;
        if let Some(d) = types.iter().find(|d| !self.dtypes.contains(d)) {
            return Some(format!("{d}"));
        }
        let of = |r: &u32| types[*r as usize];
        let used = e.insts.iter().filter_map(|i| match i {
            Inst::Unary(f, a) => Some(Form::Unary(*f, of(a))),
            Inst::Binary(f, a, _) => Some(Form::Binary(*f, of(a))),
            Inst::Compare(f, a, _) => Some(Form::Compare(*f, of(a))),
            Inst::Cast(a, to) => Some(Form::Cast(of(a), *to)),
            _ => None,
        });
        let mut lacked = used.filter(|f| self.lacks.contains(f));
        lacked.next().map(|f| f.to_string())
    }
}
