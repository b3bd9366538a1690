use layout::{Dim, DimBox, DimProgram, Sym};
use std::collections::BTreeMap;

/// The parameters of a block: every dimension expression that its steps use, once each, with a
/// compiled program that evaluates them all.
#[derive(Clone, Debug, Default)]
pub struct Params {
    index: BTreeMap<Dim, u32>,
    dims: Vec<Dim>,
    within: DimBox,
}

impl Params {
    /// No parameters.
    pub fn new() -> Params {
        Params::default()
    }

    /// No parameters yet, for requests within `dims`: what has one value there is a number.
    pub fn within(dims: &DimBox) -> Params {
        Params {
            within: dims.clone(),
            ..Params::default()
        }
    }

    /// Number of `dim` among the parameters; added when new.
    pub fn intern(&mut self, dim: &Dim) -> u32 {
        if let Some(&i) = self.index.get(dim) {
            return i;
        }
        let single = |s: &str| self.within.get(s).filter(|r| r.lo == r.hi).map(|r| r.lo);
        let number = match dim {
            Dim::Known(_) => None,
            Dim::Expr(_) => dim.eval(&single).map(Dim::Known),
        };
        let i = match number {
            Some(n) => self.intern(&n),
            None => {
                self.dims.push(dim.clone());
                (self.dims.len() - 1) as u32
            }
        };
        self.index.insert(dim.clone(), i);
        i
    }

    /// All parameters in order of their numbers.
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Number of `dim` among the parameters, if it is one.
    pub fn find(&self, dim: &Dim) -> Option<u32> {
        self.index.get(dim).copied()
    }

    /// Program that evaluates all parameters from the symbols' values; `Err` names a symbol that
    /// is missing.
    pub fn compile(&self, symbols: &[Sym]) -> Result<DimProgram, Sym> {
        DimProgram::compile(&self.dims, symbols)
    }
}
