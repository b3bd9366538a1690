//! Folds over the columns of fragments: each lane its own elements, then the four lanes of a row,
//! then the state; what depends on the state's old value is rescaled.
use super::emitter::{Emitter, Result, Value};
use super::group::Group;
use super::math::Val;
use super::text::{Kind, Reg};
use expr::{Monoid, Scalar};
use kernel::{AxisId, Rescale, TileId};
use layout::DType;

impl Emitter<'_> {
    /// Multiplies the rows of `tiles` by `factors`, one for each half of 8 rows.
    fn multiply(&mut self, tiles: &[TileId], factors: &[Reg]) -> Result<()> {
        for &tile in tiles {
            if self.kernel.tiles[tile as usize].dtype != DType::F32 {
                return self.fail("element type", "rescaled tiles are f32");
            }
            match self.tiles.get(&tile).cloned() {
                Some(Value::Row(regs)) => {
                    for (r, f) in regs.iter().zip(factors) {
                        self.t.op(format!("mul.rn.f32 {r}, {r}, {f}"));
                    }
                }
                Some(Value::Frag { columns, regs }) => {
                    let ni = self.warp_columns(&columns)? as usize / 8;
                    for (i, r) in regs.iter().enumerate() {
                        let h = i / 4 / ni * 2 + i % 4 / 2;
                        self.t.op(format!("mul.rn.f32 {r}, {r}, {}", factors[h]));
                    }
                }
                _ => {
                    return self.fail(
                        "rescaled tile",
                        "it must be held in registers and filled before",
                    );
                }
            }
        }
        Ok(())
    }

    /// `state = combine(state, lift(args) over the columns)`.
    pub fn fold(
        &mut self,
        monoid: &Monoid,
        state: &[TileId],
        args: &[TileId],
        over: &[AxisId],
        rescale: Option<&Rescale>,
    ) -> Result<()> {
        let (&[state], &[arg]) = (state, args) else {
            return self.fail(
                "one state",
                "a fold of one argument with a state of one scalar is printed",
            );
        };
        let dtype = self.kernel.tiles[state as usize].dtype;
        let arg_type = self.kernel.tiles[arg as usize].dtype;
        let (Some(Value::Row(old)), Some(Value::Frag { columns, regs })) = (
            self.tiles.get(&state).cloned(),
            self.tiles.get(&arg).cloned(),
        ) else {
            return self.fail(
                "shape of a fold",
                "the state must have rows only, the argument rows and the folded columns",
            );
        };
        let folded: Group = self.group(over)?;
        if folded != columns || self.map.warps[1] != 1 {
            return self.fail("columns of a fold", "a fold runs over all columns of its argument, which one warp must hold; use one warp along the columns");
        }
        if dtype != DType::F32 {
            return self.fail(
                "element type",
                format!("a fold's state of {dtype} has no PTX form here"),
            );
        }
        let identity = match monoid.identity.eval_plain(&[]).ok().as_deref() {
            Some([Scalar::Float(x)]) => *x,
            _ => return self.fail("identity", "it must be one float constant"),
        };
        let (halves, ni) = (self.warp_rows()? / 8, self.warp_columns(&columns)? / 8);
        // Beyond the extent there is the identity, which every lift maps plain elements around.
        let mut lifted = Vec::with_capacity(regs.len());
        for r in &regs {
            lifted.push(self.scalar(
                &monoid.lift,
                &[Val {
                    reg: *r,
                    dtype: arg_type,
                }],
            )?);
        }
        let lifted = self.replaced(state, &columns, lifted, identity)?;
        let combine = |e: &mut Self, a: Reg, b: Reg| {
            e.scalar(
                &monoid.combine,
                &[Val { reg: a, dtype }, Val { reg: b, dtype }],
            )
        };
        let mut factors = Vec::new();
        for h in 0..halves {
            let at = |n: u32, j: u32| lifted[((h / 2 * ni + n) * 4 + h % 2 * 2 + j) as usize];
            let mut sum = at(0, 0);
            for i in 1..ni * 2 {
                sum = combine(self, sum, at(i / 2, i % 2))?;
            }
            for mask in [1, 2] {
                let bits = self.t.def(Kind::R, |d| format!("mov.b32 {d}, {sum}"));
                let other = self
                    .t
                    .r("shfl.sync.bfly.b32", format_args!("{bits}, {mask}, 31, -1"));
                let other = self.t.f("mov.b32", format_args!("{other}"));
                sum = combine(self, sum, other)?;
            }
            let before = old[h as usize];
            let new = combine(self, before, sum)?;
            if let Some(r) = rescale {
                factors.push(self.scalar(
                    &r.factor,
                    &[Val { reg: before, dtype }, Val { reg: new, dtype }],
                )?);
            }
            self.t.op(format!("mov.f32 {before}, {new}"));
        }
        let rescaled = rescale.map_or(&[][..], |r| &r.tiles);
        self.multiply(rescaled, &factors)
    }
}
