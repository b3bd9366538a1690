use layout::{Dim, DimProgram, Sym};
use std::collections::BTreeMap;

/// The parameters of a block: every dimension expression that its steps use, once each, with a
/// compiled program that evaluates them all.
#[derive(Clone, Debug, Default)]
pub struct Params {
    index: BTreeMap<Dim, u32>,
    dims: Vec<Dim>,
}

impl Params {
    /// No parameters.
    pub fn new() -> Params {
        Params::default()
    }

    /// Number of `dim` among the parameters; added when new.
    pub fn intern(&mut self, dim: &Dim) -> u32 {
        if let Some(&i) = self.index.get(dim) {
            return i;
        }
        let i = self.dims.len() as u32;
        self.dims.push(dim.clone());
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
