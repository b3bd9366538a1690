//! Numbers of a block that follow from a request's dims: extents, strides, buffer sizes. Devices evaluate them
//! once per set of dims, before anything runs.
use foldhash::HashMap;
use layout::{DType, Dim, DimBox, DimMap, DimProgram, Sym};

/// The parameters of a block: every dimension expression that its steps use, once each, with a
/// compiled program that evaluates them all.
#[derive(Clone, Debug, Default)]
pub struct Params {
    index: HashMap<Dim, u32>,
    places: DimMap<u32>,
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
        if let Some(&i) = self.places.get(dim) {
            return i;
        }
        let i = self.number(dim);
        self.places.insert(dim, i);
        i
    }

    fn number(&mut self, dim: &Dim) -> u32 {
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

/// Type and shape of a dense tensor, its extents as parameters of a block.
#[derive(Clone, Debug)]
pub struct Size {
    /// Element type.
    pub dtype: DType,
    shape: Vec<u32>,
}

impl Size {
    /// A tensor of `dtype` and `shape`, whose extents are added to `params`.
    pub fn new(dtype: DType, shape: &[Dim], params: &mut Params) -> Size {
        Size {
            dtype,
            shape: shape.iter().map(|d| params.intern(d)).collect(),
        }
    }

    /// Number of extents.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The extents under the parameters `p`, none below 0.
    pub fn extents<'a>(&'a self, p: &'a [i64]) -> impl Iterator<Item = usize> + 'a {
        let at = |d: &u32| p.get(*d as usize).copied().unwrap_or(0);
        self.shape
            .iter()
            .map(move |d| usize::try_from(at(d)).unwrap_or(0))
    }

    /// Bytes under the parameters `p`; `None` for negative extents and sizes beyond the address space.
    pub fn bytes(&self, p: &[i64]) -> Option<usize> {
        let n = self.shape.iter().try_fold(1usize, |n, &d| {
            n.checked_mul(usize::try_from(*p.get(d as usize)?).ok()?)
        });
        n.and_then(|n| self.dtype.bytes_for(n))
    }
}
