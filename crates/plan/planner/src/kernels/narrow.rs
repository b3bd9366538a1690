//! Factors of f32 products rounded to bf16, when that is asked for.
use super::{Builder, Lowering, Result, touched};
use crate::located::Located;
use graph::{NodeId, ValueId};
use kernel::{AxisId, Family};
use layout::Arrange;
use layout::{DType, Dim};
use plan::Why;

impl Lowering<'_> {
    /// Factors of the product `n` and their types as it multiplies them: as they are, or rounded.
    pub(crate) fn rounded(
        &mut self,
        n: NodeId,
        factors: [(ValueId, Located); 2],
    ) -> Result<[(Located, DType); 2]> {
        let f32s = factors.iter().all(|(v, _)| self.dtype(*v) == DType::F32);
        let types = factors.each_ref().map(|(v, _)| self.dtype(*v));
        if !self.rounds || !f32s {
            let [(_, a), (_, b)] = factors;
            return Ok([(a, types[0]), (b, types[1])]);
        }
        self.program.whys.push(Why {
            pass: "precision".into(),
            subject: self.origins(&[n]).join(", "),
            choice: "factors rounded to bf16".into(),
            alternatives: vec![],
            reason: "it was asked for; sums are f32".into(),
        });
        let [(va, a), (vb, b)] = factors;
        let a = self.narrow(n, va, a)?;
        let b = self.narrow(n, vb, b)?;
        Ok([(a, DType::BF16), (b, DType::BF16)])
    }

    /// A dense copy of `l` in bf16, in the same order.
    fn narrow(&mut self, n: NodeId, v: ValueId, l: Located) -> Result<Located> {
        let key = (l.ix, format!("{:?}", l.layout));
        if let Some(done) = self.narrowed.get(&key) {
            return Ok(done.clone());
        }
        let shape = l.layout.shape();
        let step = |d: usize| {
            let leaves = &l.layout.modes[d].leaves;
            let least = leaves.iter().filter(|x| !x.stride.is_zero());
            least.filter_map(|x| x.stride.known()).min()
        };
        let mut order: Vec<usize> = (0..shape.len()).collect();
        // Steps that depend on dims are those of outer dimensions, which keep their order.
        order.arrange_by_key(|&d| std::cmp::Reverse(step(d).unwrap_or(i64::MAX)));
        let name = format!("{}.bf16", self.name(v));
        let to = self.new_value(&name, DType::BF16, &shape, &order);
        let mut b = Builder::new(&name, Family::Map);
        let mut dims: Vec<Vec<AxisId>> = vec![vec![]; shape.len()];
        for &d in &order {
            if !shape[d].is_one() {
                dims[d].push(b.axis(&format!("d{d}"), &shape[d]));
            }
        }
        let (Some(read), Some(write)) = (b.access(&l.layout, &dims), b.access(&to.layout, &dims))
        else {
            return self.fail(n, "a factor of it does not fit its axes");
        };
        let all = dims.concat();
        let t = b.load("x", DType::F32, read, touched(&l.layout), l.ix);
        let t = super::contract::cast(&mut b, t, DType::BF16, &all);
        b.store("y", write, Dim::product(&shape), to.ix, t);
        let (k, args) = b.finish();
        let origins = self.origins(&[n]);
        self.emit(k, args, origins);
        self.narrowed.insert(key, to.clone());
        Ok(to)
    }
}
