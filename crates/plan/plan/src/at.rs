//! Evaluating a verified plan's parameters for the dims of a request.
use crate::{Block, Constraint, Params, PlanError};
use layout::{DimBox, DimProgram, Sym};

/// The parameters of a block evaluated for given dims. Made once per request slot; changing the
/// dims takes O(steps) and allocates nothing.
#[derive(Clone, Debug)]
pub struct Bound {
    program: DimProgram,
    dims: DimBox,
    current: Vec<i64>,
    scratch: Vec<i64>,
    values: Vec<i64>,
    /// What must hold, with the places of both sides behind the parameters.
    constraints: Vec<Constraint>,
    params: usize,
    valid: bool,
}

impl Bound {
    /// Space for `params` of the steps of `block` within `dims`; its constraints are checked with
    /// every evaluation.
    pub fn for_block(params: &Params, block: &Block, dims: &DimBox) -> Result<Bound, PlanError> {
        Bound::made(params, &block.symbols, dims, &block.constraints)
    }

    /// Space for `params` over `symbols` within `dims`, without constraints: for the init segment.
    pub fn new(params: &Params, symbols: &[Sym], dims: &DimBox) -> Result<Bound, PlanError> {
        Bound::made(params, symbols, dims, &[])
    }

    fn made(
        params: &Params,
        symbols: &[Sym],
        dims: &DimBox,
        constraints: &[Constraint],
    ) -> Result<Bound, PlanError> {
        let mut all = params.dims().to_vec();
        for c in constraints {
            all.extend([c.left.clone(), c.right.clone()]);
        }
        let program = DimProgram::compile(&all, symbols).map_err(|s| PlanError::Dim {
            name: s.to_string(),
            value: "missing".into(),
            range: "symbols".into(),
        })?;
        Ok(Bound {
            dims: dims.clone(),
            current: vec![0; symbols.len()],
            scratch: vec![0; program.scratch_len()],
            values: vec![0; program.len()],
            program,
            constraints: constraints.to_vec(),
            params: params.dims().len(),
            valid: false,
        })
    }

    /// Evaluates every parameter for the symbols' `values`; an error when one is
    /// outside the box or a constraint does not hold.
    pub fn at(&mut self, values: &[i64]) -> Result<&[i64], PlanError> {
        if self.valid && self.current == values {
            return Ok(&self.values[..self.params]);
        }
        self.valid = false;
        for (i, s) in self.program.symbols().iter().enumerate() {
            let v = values.get(i).copied();
            if let Some(r) = self.dims.get(s)
                && v.is_none_or(|v| v < r.lo || v > r.hi)
            {
                return Err(PlanError::Dim {
                    name: s.to_string(),
                    value: v.map_or("missing".into(), |v| v.to_string()),
                    range: format!("{}..{}", r.lo, r.hi),
                });
            }
        }
        self.program
            .eval(values, &mut self.scratch, &mut self.values)?;
        for (c, v) in self
            .constraints
            .iter()
            .zip(self.values[self.params..].chunks_exact(2))
        {
            if v[0] != v[1] {
                return Err(PlanError::Constraint {
                    node: c.node.clone(),
                    left: c.left.to_string(),
                    right: c.right.to_string(),
                    values: (v[0], v[1]),
                });
            }
        }
        let n = self.current.len();
        self.current.copy_from_slice(&values[..n]);
        self.valid = true;
        Ok(&self.values[..self.params])
    }

    /// The values of the last [`Bound::at`].
    pub fn values(&self) -> &[i64] {
        &self.values[..self.params]
    }
}
