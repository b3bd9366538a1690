//! Contractions: matrix products of any label pattern.
use super::{Body, Builder, Lowering, Result, touched};
use crate::fuse::Group;
use crate::located::Located;
use graph::{ContractSpec, Node, NodeId, Op};
use kernel::{AxisId, Family};
use layout::{Arrange, DType, Dim};
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
        let wants: Vec<Vec<Option<Dim>>> = [&spec.a, &spec.b]
            .iter()
            .map(|ls| {
                ls.iter()
                    .map(|l| self.label_extent(node, spec, l))
                    .collect()
            })
            .collect();
        a = self.fit(a, &wants[0], self.dtype(va), self.name(va))?;
        b = self.fit(b, &wants[1], self.dtype(vb), self.name(vb))?;
        // Each label is split as finely as one side sees it; a side that cannot follow is moved.
        let mut splits = label_splits(spec, &a, &b);
        if nibbles.is_some() {
            // Blocks of a factor of 4 bits stay whole: the other side follows.
            for (label, mode) in spec.b.iter().zip(&b.layout.modes) {
                splits.insert(*label, split(mode));
            }
        }
        let sides = [(&mut a, va, &spec.a), (&mut b, vb, &spec.b)];
        for (side, v, labels) in sides {
            let fits = labels
                .iter()
                .zip(&side.layout.modes)
                .all(|(l, m)| m.extent().is_one() || m.refine(&splits[l]).is_some());
            if !fits && (v != vb || nibbles.is_none()) {
                *side = self.materialise(side, self.dtype(v), self.name(v), &self.origins(&[n]))?;
            }
        }
        splits.retain(|_, s| s.iter().any(|e| !e.is_one()));
        let mut builder = Builder::new(&self.group_name(g), Family::Contract);
        let axes = label_axes(&mut builder, spec, &splits);
        let dims_of = |labels: &[u8]| labels.iter().map(|l| axes[l].clone()).collect::<Vec<_>>();
        let (Some(aa), Some(ab)) = (
            builder.access(&a.layout, &dims_of(&spec.a)),
            builder.access(&b.layout, &dims_of(&spec.b)),
        ) else {
            return self.fail(
                n,
                "its operands do not fit its axes; give its symbolic dimensions sizes with --dim",
            );
        };
        let acc_type = accumulator(self.dtype(vo));
        let out_axes: Vec<AxisId> = spec.out.iter().flat_map(|l| axes[l].clone()).collect();
        let mut over: Vec<AxisId> = axes
            .iter()
            .filter(|(l, _)| !spec.out.contains(l))
            .flat_map(|(_, a)| a.clone())
            .collect();
        over.arrange();
        let ta = builder.load("a", self.dtype(va), aa, touched(&a.layout), a.ix);
        let tb = match &nibbles {
            Some(f) => {
                let dims = dims_of(&spec.b);
                self.expand_nibbles(&mut builder, n, f, &dims)?
            }
            None => builder.load("b", self.dtype(vb), ab, touched(&b.layout), b.ix),
        };
        let acc = builder.fill("acc", acc_type, &out_axes, 0.0);
        builder.contract(acc, ta, tb, &over);
        let result = cast(&mut builder, acc, self.dtype(vo), &out_axes);
        let dims = spec.out.iter().map(|l| axes[l].clone()).collect();
        let body = Body {
            builder,
            dims,
            tiles: BTreeMap::from([(vo, result)]),
            loads: BTreeMap::new(),
            indexed: false,
            folded: Vec::new(),
        };
        self.close(body, g, Some(n))
    }

    /// The extent of a label: that of the output, or the simpler one of the factors'.
    fn label_extent(&self, node: &Node, spec: &ContractSpec, l: &u8) -> Option<Dim> {
        let at = |labels: &[u8], v| {
            let d = labels.iter().position(|x| x == l)?;
            Some(self.shape(v)[d].clone())
        };
        if let Some(d) = at(&spec.out, node.outputs[0]) {
            return Some(d);
        }
        match (at(&spec.a, node.inputs[0]), at(&spec.b, node.inputs[1])) {
            (Some(x), Some(y)) if x.is_one() => Some(y),
            (Some(x), Some(y)) => Some(Dim::simpler(&x, &y).clone()),
            (x, y) => x.or(y),
        }
    }
}

/// Axes of every label: those of the output first, in its order, then the summed ones.
fn label_axes(
    builder: &mut Builder,
    spec: &ContractSpec,
    splits: &BTreeMap<u8, Vec<Dim>>,
) -> BTreeMap<u8, Vec<AxisId>> {
    let mut axes: BTreeMap<u8, Vec<AxisId>> = BTreeMap::new();
    let summed = spec.a.iter().chain(&spec.b);
    let summed = summed.filter(|l| !spec.out.contains(l));
    for &l in spec.out.iter().chain(summed) {
        if axes.contains_key(&l) {
            continue;
        }
        let has = [&spec.out, &spec.a, &spec.b].map(|labels| labels.contains(&l));
        let kind = match has {
            [true, true, true] => "b",
            [true, true, false] => "m",
            [true, false, _] => "n",
            _ => "k",
        };
        let extents = splits.get(&l).into_iter().flatten();
        let ids = extents.filter(|e| !e.is_one()).map(|e| {
            let suffix = axes.values().flatten().count();
            builder.axis(&format!("{kind}{suffix}"), e)
        });
        let ids = ids.collect();
        axes.insert(l, ids);
    }
    axes
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
