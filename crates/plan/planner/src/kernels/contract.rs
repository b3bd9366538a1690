//! Contractions: matrix products of any label pattern.
use super::{Body, Builder, Lowering, Result, touched};
use crate::fuse::Group;
use crate::located::Located;
use graph::{ContractSpec, NodeId, Op};
use kernel::{AxisId, Family};
use layout::{DType, Dim};
use std::collections::BTreeMap;

impl Lowering<'_> {
    pub(crate) fn contract(&mut self, g: &Group, n: NodeId) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(n);
        let Op::Contract(spec) = &node.op else {
            return self.fail(n, "not a contraction");
        };
        let (va, vb, vo) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        // A factor of 4 bits is read as it lies; its scale splits the dimensions most finely.
        let nibbles = self.nibble_factor(vb)?;
        let mut a = self.locate(va)?;
        let mut b = match &nibbles {
            Some(f) => f.args[f.finest].1.clone(),
            None => self.locate(vb)?,
        };
        let extent_of = |l: &u8| -> Option<Dim> {
            if let Some(d) = spec.out.iter().position(|o| o == l) {
                return Some(self.shape(vo)[d].clone());
            }
            let at = |labels: &[u8], v| {
                labels
                    .iter()
                    .position(|x| x == l)
                    .map(|d| self.shape(v)[d].clone())
            };
            match (at(&spec.a, va), at(&spec.b, vb)) {
                (Some(x), Some(y)) => Some(if x.is_one() {
                    y
                } else {
                    Dim::simpler(&x, &y).clone()
                }),
                (x, y) => x.or(y),
            }
        };
        let wants: Vec<Vec<Option<Dim>>> = [&spec.a, &spec.b]
            .iter()
            .map(|ls| ls.iter().map(extent_of).collect())
            .collect();
        a = self.fit(a, &wants[0], self.dtype(va), self.name(va))?;
        b = self.fit(b, &wants[1], self.dtype(vb), self.name(vb))?;
        let mut types = [self.dtype(va), self.dtype(vb)];
        if nibbles.is_none() {
            let both = self.rounded(n, [(va, a), (vb, b)])?;
            types = both.each_ref().map(|f| f.1);
            [a, b] = both.map(|f| f.0);
        }
        // Each label is split as finely as one side sees it; a side that cannot follow is moved.
        let mut splits = label_splits(spec, &a, &b);
        if nibbles.is_some() {
            // Blocks of a factor of 4 bits stay whole: the other side follows.
            for (label, mode) in spec.b.iter().zip(&b.layout.modes) {
                splits.insert(*label, split(mode));
            }
        }
        let sides = [
            (&mut a, va, &spec.a, types[0]),
            (&mut b, vb, &spec.b, types[1]),
        ];
        for (side, v, labels, dtype) in sides {
            let fits = labels
                .iter()
                .zip(&side.layout.modes)
                .all(|(l, m)| m.extent().is_one() || m.refine(&splits[l]).is_some());
            if !fits && (v != vb || nibbles.is_none()) {
                *side = self.materialise(side, dtype, self.name(v), &self.origins(&[n]))?;
            }
        }
        splits.retain(|_, s| s.iter().any(|e| !e.is_one()));
        let mut builder = Builder::new(&self.group_name(g), Family::Contract);
        let mut axes: BTreeMap<u8, Vec<AxisId>> = BTreeMap::new();
        let mut order: Vec<u8> = spec.out.clone();
        order.extend(
            spec.a
                .iter()
                .chain(&spec.b)
                .filter(|l| !spec.out.contains(l)),
        );
        for l in order {
            if axes.contains_key(&l) {
                continue;
            }
            let Some(extents) = splits.get(&l) else {
                axes.insert(l, vec![]);
                continue;
            };
            let kind = match (
                spec.out.contains(&l),
                spec.a.contains(&l),
                spec.b.contains(&l),
            ) {
                (true, true, true) => "b",
                (true, true, false) => "m",
                (true, false, _) => "n",
                _ => "k",
            };
            let ids = extents
                .iter()
                .enumerate()
                .filter(|(_, e)| !e.is_one())
                .map(|(_, e)| {
                    let suffix = axes.values().flatten().count();
                    builder.axis(&format!("{kind}{suffix}"), e)
                })
                .collect();
            axes.insert(l, ids);
        }
        let dims_of = |labels: &[u8]| labels.iter().map(|l| axes[l].clone()).collect::<Vec<_>>();
        let (Some(aa), Some(ab)) = (
            builder.access(&a.layout, &dims_of(&spec.a)),
            builder.access(&b.layout, &dims_of(&spec.b)),
        ) else {
            return self.fail(
                n,
                "its operands do not fit its axes; bind symbolic dims with --dim",
            );
        };
        let acc_type = accumulator(self.dtype(vo));
        let out_axes: Vec<AxisId> = spec.out.iter().flat_map(|l| axes[l].clone()).collect();
        let mut over: Vec<AxisId> = axes
            .iter()
            .filter(|(l, _)| !spec.out.contains(l))
            .flat_map(|(_, a)| a.clone())
            .collect();
        over.sort_unstable();
        let ta = builder.load("a", types[0], aa, touched(&a.layout), a.ix);
        let tb = match &nibbles {
            Some(f) => {
                let dims = dims_of(&spec.b);
                self.expand_nibbles(&mut builder, n, f, &dims)?
            }
            None => builder.load("b", types[1], ab, touched(&b.layout), b.ix),
        };
        let acc = builder.fill("acc", acc_type, &out_axes, 0.0);
        builder.contract(acc, ta, tb, &over);
        let result = cast(&mut builder, acc, self.dtype(vo), &out_axes);
        let dims = spec.out.iter().map(|l| axes[l].clone()).collect();
        let body = Body {
            builder,
            dims,
            tiles: BTreeMap::from([(vo, result)]),
            indexed: false,
            folded: Vec::new(),
        };
        self.close(body, g, Some(n))
    }
}

/// Type in which products of results of type `out` are summed.
pub(crate) fn accumulator(out: DType) -> DType {
    match out {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}

/// `t` in type `to`.
pub(crate) fn cast(
    b: &mut Builder,
    t: kernel::TileId,
    to: DType,
    axes: &[AxisId],
) -> kernel::TileId {
    let from = b.tile_dtype(t);
    if from == to {
        return t;
    }
    let mut e = expr::ExprBuilder::new();
    let x = e.input(0, from);
    let y = e.cast(x, to);
    b.map("cast", to, axes, e.finish(&[y]), &[t])
}

/// Extents of a mode's parts.
fn split(mode: &layout::Mode) -> Vec<Dim> {
    let leaves = mode.coalesce().leaves;
    match leaves.is_empty() {
        true => vec![mode.extent()],
        false => leaves.into_iter().map(|l| l.extent).collect(),
    }
}

fn label_splits(spec: &ContractSpec, a: &Located, b: &Located) -> BTreeMap<u8, Vec<Dim>> {
    let mut splits: BTreeMap<u8, Vec<Dim>> = BTreeMap::new();
    for (labels, l) in [(&spec.a, a), (&spec.b, b)] {
        for (label, mode) in labels.iter().zip(&l.layout.modes) {
            let extents = split(mode);
            let e = splits.entry(*label).or_insert_with(|| extents.clone());
            // An extent of 1 is a broadcast; otherwise the finer side decides.
            let one = e.len() == 1 && e[0].is_one();
            if one || extents.len() > e.len() {
                *e = extents;
            }
        }
    }
    splits
}
