//! Many dimension expressions compiled into one list of operations. Plans evaluate all parameters of a request
//! with one; it is checked for overflow.
use crate::{Atom, Dim, Sym};
use std::collections::BTreeMap;

/// Why [`DimProgram::eval`] gave no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The arithmetic left 64 bits or divided by a number below 1.
    #[error("the value of '{dim}' does not fit 64 bits or divides by zero; use smaller dimensions")]
    Range {
        /// The expression.
        dim: String,
    },
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Const(i64),
    Sym(usize),
    Add(usize, usize),
    Mul(usize, usize),
    FloorDiv(usize, usize),
    Min(usize, usize),
    Max(usize, usize),
}

/// Many [`Dim`]s compiled into one straight list of operations with common parts shared, so that
/// a plan evaluates all its parameters for new dims in one pass without allocating.
#[derive(Clone, Debug, Default)]
pub struct DimProgram {
    symbols: Vec<Sym>,
    ops: Vec<Op>,
    outputs: Vec<usize>,
    names: Vec<Dim>,
}

impl DimProgram {
    /// Compiles `dims` over `symbols`; `Err` names the first symbol that is not among them.
    pub fn compile(dims: &[Dim], symbols: &[Sym]) -> Result<DimProgram, Sym> {
        let mut c = Compiler {
            p: DimProgram {
                symbols: symbols.to_vec(),
                ..Default::default()
            },
            memo: BTreeMap::new(),
            consts: BTreeMap::new(),
        };
        for d in dims {
            let at = c.dim(d)?;
            c.p.outputs.push(at);
            c.p.names.push(d.clone());
        }
        Ok(c.p)
    }

    /// Number of slots that [`DimProgram::eval`] needs as scratch.
    pub fn scratch_len(&self) -> usize {
        self.ops.len()
    }

    /// Number of values that [`DimProgram::eval`] writes.
    pub fn len(&self) -> usize {
        self.outputs.len()
    }

    /// True when there is nothing to evaluate.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Symbols in the order in which `values` of [`DimProgram::eval`] gives them.
    pub fn symbols(&self) -> &[Sym] {
        &self.symbols
    }

    /// Evaluates every output for the symbols' `values`; allocates nothing unless it fails.
    /// `scratch` has at least [`DimProgram::scratch_len`] and `out` at least
    /// [`DimProgram::len`] elements.
    pub fn eval(
        &self,
        values: &[i64],
        scratch: &mut [i64],
        out: &mut [i64],
    ) -> Result<(), EvalError> {
        for (i, op) in self.ops.iter().enumerate() {
            let v = match *op {
                Op::Const(n) => Some(n),
                Op::Sym(s) => values.get(s).copied(),
                Op::Add(a, b) => scratch[a].checked_add(scratch[b]),
                Op::Mul(a, b) => scratch[a].checked_mul(scratch[b]),
                Op::FloorDiv(a, b) => (scratch[b] > 0).then(|| scratch[a].div_euclid(scratch[b])),
                Op::Min(a, b) => Some(scratch[a].min(scratch[b])),
                Op::Max(a, b) => Some(scratch[a].max(scratch[b])),
            };
            scratch[i] = v.ok_or_else(|| self.blame(i))?;
        }
        for (o, &at) in out.iter_mut().zip(&self.outputs) {
            *o = scratch[at];
        }
        Ok(())
    }

    fn blame(&self, op: usize) -> EvalError {
        let k = self.outputs.iter().position(|&o| o >= op).unwrap_or(0);
        EvalError::Range {
            dim: self.names.get(k).map(|d| d.to_string()).unwrap_or_default(),
        }
    }
}

struct Compiler {
    p: DimProgram,
    memo: BTreeMap<Dim, usize>,
    consts: BTreeMap<i64, usize>,
}

impl Compiler {
    fn push(&mut self, op: Op) -> usize {
        self.p.ops.push(op);
        self.p.ops.len() - 1
    }

    fn constant(&mut self, n: i64) -> usize {
        if let Some(&at) = self.consts.get(&n) {
            return at;
        }
        let at = self.push(Op::Const(n));
        self.consts.insert(n, at);
        at
    }

    fn dim(&mut self, d: &Dim) -> Result<usize, Sym> {
        if let Some(&at) = self.memo.get(d) {
            return Ok(at);
        }
        let mut sum: Option<usize> = None;
        for (c, atoms) in d.terms() {
            let mut product: Option<usize> = None;
            for a in atoms {
                let v = self.atom(a)?;
                product = Some(match product {
                    Some(p) => self.push(Op::Mul(p, v)),
                    None => v,
                });
            }
            let term = match product {
                None => self.constant(c),
                Some(p) if c == 1 => p,
                Some(p) => {
                    let k = self.constant(c);
                    self.push(Op::Mul(p, k))
                }
            };
            sum = Some(match sum {
                Some(s) => self.push(Op::Add(s, term)),
                None => term,
            });
        }
        let at = match sum {
            Some(s) => s,
            None => self.constant(0),
        };
        self.memo.insert(d.clone(), at);
        Ok(at)
    }

    fn atom(&mut self, a: &Atom) -> Result<usize, Sym> {
        let key = Dim::from_atom(a.clone());
        if let Some(&slot) = self.memo.get(&key) {
            return Ok(slot);
        }
        let op = match a {
            Atom::Sym(s) => {
                let at = self.p.symbols.iter().position(|x| x == s);
                Op::Sym(at.ok_or_else(|| s.clone())?)
            }
            Atom::FloorDiv(x, y) => Op::FloorDiv(self.dim(x)?, self.dim(y)?),
            Atom::Min(x, y) => Op::Min(self.dim(x)?, self.dim(y)?),
            Atom::Max(x, y) => Op::Max(self.dim(x)?, self.dim(y)?),
        };
        let slot = self.push(op);
        self.memo.insert(key, slot);
        Ok(slot)
    }
}
