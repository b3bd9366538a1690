//! The first few of an axis in order: a fold whose state is the best so far, in order.
use super::{Builder, Lowering, Result, row_major, touched};
use expr::{Compare, ExprBuilder, Monoid};
use graph::NodeId;
use kernel::{AxisId, Family, TileId};
use layout::{DType, Dim};

/// As many as a fold keeps: every pair of states is merged by about k^2 comparisons.
const MOST: i64 = 4;

impl Lowering<'_> {
    /// Whether a fold can make what node `n` sorts out: a few of at least as many.
    pub(crate) fn selects(&self, n: NodeId, axis: usize, k: &Dim) -> bool {
        let x = self.graph.node(n).inputs[0];
        let d = self.dtype(x);
        let there = self.shape(x).get(axis).and_then(Dim::known).unwrap_or(0);
        let few = k
            .known()
            .is_some_and(|k| (1..=MOST.min(there)).contains(&k));
        few && matches!(
            d,
            DType::F32 | DType::F16 | DType::BF16 | DType::I32 | DType::I64
        )
    }

    /// Values and indices of the first `k` along `axis`, for [`Lowering::selects`].
    pub(crate) fn select(&mut self, n: NodeId, axis: usize, largest: bool) -> Result<()> {
        let node = self.graph.node(n);
        let (x, outs) = (node.inputs[0], node.outputs.clone());
        let from = self.locate(x)?;
        let name = self.origins(&[n]).join(" ");
        let mut b = Builder::new(&name, Family::Select);
        let mut dims: Vec<Vec<AxisId>> = Vec::new();
        for (d, e) in self.shape(x).iter().enumerate() {
            // The axis that is gone through stays one even where it has one position.
            let there = d == axis || !e.is_one();
            dims.push(
                there
                    .then(|| b.axis(&format!("d{d}"), e))
                    .into_iter()
                    .collect(),
            );
        }
        let extent = &self.shape(outs[0])[axis];
        // A single place is no axis.
        let place = (!extent.is_one()).then(|| b.axis("place", extent));
        let Some(read) = b.access(&from.layout, &dims) else {
            return self.fail(n, "the input does not fit its axes");
        };
        let over = dims[axis].clone();
        let d = self.dtype(x);
        let t = b.load("x", d, read, touched(&from.layout), from.ix);
        let k = usize::try_from(extent.known().unwrap_or(1)).unwrap_or(1);
        let monoid = Monoid::first(k, d, 0, largest);
        let list = match b.reduce(&monoid, &[t], &over) {
            Ok(l) => l,
            Err(e) => return self.fail(n, e.to_string()),
        };
        let mut to_dims = dims;
        to_dims[axis] = place.into_iter().collect();
        let kept: Vec<AxisId> = to_dims.iter().flatten().copied().collect();
        for (i, &out) in outs.iter().enumerate() {
            let shape = self.shape(out);
            let to = self.new_value(
                self.name(out),
                self.dtype(out),
                shape,
                &row_major(shape.len()),
            );
            self.located[out.0 as usize] = Some(to.clone());
            let states: Vec<TileId> = list[i * k..(i + 1) * k].to_vec();
            let at = match place {
                Some(place) => picked(k, self.dtype(out), place),
                None => expr::Expr::identity(self.dtype(out)),
            };
            let t = b.map(
                ["values", "indices"][i.min(1)],
                self.dtype(out),
                &kept,
                at,
                &states,
            );
            let Some(write) = b.access(&to.layout, &to_dims) else {
                return self.fail(n, "the output does not fit its axes");
            };
            b.store("y", write, Dim::product(shape), to.ix, t);
        }
        let (kernel, args) = b.finish();
        self.emit(kernel, args, self.origins(&[n]));
        Ok(())
    }
}

/// Of `k` arguments the one whose number is the coordinate along `axis`.
fn picked(k: usize, d: DType, axis: AxisId) -> expr::Expr {
    let mut e = ExprBuilder::new();
    let at = e.index(axis.into());
    let mut out = e.input(0, d);
    for n in 1..k {
        let x = e.input(n as u32, d);
        let number = e.int(n as i64, DType::I64);
        let here = e.compare(Compare::Eq, at, number);
        out = e.select(here, x, out);
    }
    e.finish(&[out])
}
