//! Binding a verified plan's parameters to dims.
use crate::{Params, PlanError};
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
    valid: bool,
}

impl Bound {
    /// Space for `params` over `symbols` within `dims`.
    pub fn new(params: &Params, symbols: &[Sym], dims: &DimBox) -> Result<Bound, PlanError> {
        let program = params.compile(symbols).map_err(|s| PlanError::Dim {
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
            valid: false,
        })
    }

    /// Evaluates every parameter for the symbols' `values`; an error when one is outside the box.
    pub fn at(&mut self, values: &[i64]) -> Result<&[i64], PlanError> {
        if self.valid && self.current == values {
            return Ok(&self.values);
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
        let n = self.current.len();
        self.current.copy_from_slice(&values[..n]);
        self.valid = true;
        Ok(&self.values)
    }

    /// The values of the last [`Bound::at`].
    pub fn values(&self) -> &[i64] {
        &self.values
    }
}
