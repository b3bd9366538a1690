//! Moves: copies between layouts, pieces of a concatenation, padding, gathered slices.
use super::simplify::magnitude;
use super::{Builder, Lowering, Result, row_major, touched};
use crate::PlannerError;
use crate::located::Located;
use expr::ExprBuilder;
use graph::{NodeId, ValueId};
use kernel::{AxisId, Family, Kernel, Role};
use layout::{Arrange, DType, Dim, Layout, Mode};
use plan::ValueIx;

/// A copy of every element from one layout to another of the same shape; `None` when the two take
/// a dimension apart in ways that do not fit.
pub(crate) fn copy_kernel(
    name: &str,
    dtype: DType,
    from: &Located,
    to: &Located,
) -> Option<(Kernel, Vec<ValueIx>)> {
    let mut b = Builder::new(name, Family::Move);
    // Axes in the order of the destination's memory, dimensions split as the finer side sees them.
    let mut parts: Vec<(i64, usize, usize, Dim)> = Vec::new();
    let mut splits = Vec::new();
    for (d, (f, t)) in from.layout.modes.iter().zip(&to.layout.modes).enumerate() {
        let (f, t) = (f.coalesce(), t.coalesce());
        let finer = if f.leaves.len() > t.leaves.len() {
            &f
        } else {
            &t
        };
        let mut extents: Vec<Dim> = finer.leaves.iter().map(|l| l.extent.clone()).collect();
        if f.refine(&extents).is_none() || t.refine(&extents).is_none() {
            extents = vec![f.extent()];
        }
        let strides = t.refine(&extents)?;
        for (p, (e, l)) in extents.iter().zip(&strides.leaves).enumerate() {
            if !e.is_one() {
                parts.push((-magnitude(&l.stride), d, p, e.clone()));
            }
        }
        splits.push(extents.len());
    }
    parts.arrange_by_key(|p| (p.0, p.1, p.2));
    let mut dims: Vec<Vec<(usize, AxisId)>> = vec![Vec::new(); splits.len()];
    for (_, d, p, e) in &parts {
        let a = b.axis(&format!("d{d}_{p}"), e);
        dims[*d].push((*p, a));
    }
    let dims: Vec<Vec<AxisId>> = dims
        .into_iter()
        .map(|mut d| {
            d.arrange();
            d.into_iter().map(|x| x.1).collect()
        })
        .collect();
    let read = b.access(&from.layout, &dims)?;
    let write = b.access(&to.layout, &dims)?;
    let t = b.load("x", dtype, read, touched(&from.layout), from.ix);
    b.store("y", write, touched(&to.layout), to.ix, t);
    Some(b.finish())
}

impl Lowering<'_> {
    /// Every input moved to its place in the output.
    pub(crate) fn concat(&mut self, n: NodeId, axis: usize) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(n);
        let out = node.outputs[0];
        if let (false, Some(part)) = (self.is_output[out.0 as usize], self.part_of_larger(n, axis))
        {
            self.located[out.0 as usize] = Some(part);
            return Ok(());
        }
        let to = match self.concats.place(n) {
            Some(place) => place,
            None => {
                // The memory order of the first input is kept, so that pieces stay long.
                let order = match self.is_output[out.0 as usize] {
                    true => row_major(self.shape(out).len()),
                    false => self.order_of(node.inputs[0])?,
                };
                self.new_value(self.name(out), self.dtype(out), self.shape(out), &order)
            }
        };
        self.located[out.0 as usize] = Some(to.clone());
        let nodes = self.origins(&[n]);
        for &v in &node.inputs {
            let l = self.locate(v)?;
            let origin = self.program.value(l.ix).origin;
            self.per_request |= !matches!(
                origin,
                plan::ValueOrigin::Weight(_) | plan::ValueOrigin::Init
            );
        }
        // What has no elements has no step, unless there would be none at all: somebody makes every value.
        let empty = |v: &ValueId| graph.value(*v).shape[axis].is_zero();
        let nothing = node.inputs.iter().all(empty);
        let mut at = Dim::ZERO;
        for (i, &v) in node.inputs.iter().enumerate() {
            let extent = self.shape(v)[axis].clone();
            let from = self.locate(v)?;
            let want: Vec<Option<Dim>> = self
                .shape(out)
                .iter()
                .enumerate()
                .map(|(d, e)| (d != axis).then(|| e.clone()))
                .collect();
            let from = self.fit(from, &want, self.dtype(v), self.name(v))?;
            let Some(piece) = to.layout.slice(axis, &at, 1, &extent) else {
                return self.fail(n, "the concatenated dimension cannot be cut");
            };
            at = at + extent.clone();
            let passed = extent.is_zero() && !(nothing && i == 0);
            if passed || self.concats.has(n, v) {
                continue;
            }
            let place = Located {
                ix: to.ix,
                layout: piece,
            };
            self.copy(
                &from,
                &place,
                self.dtype(v),
                &format!("{} part {i}", self.name(out)),
                &nodes,
            )?;
        }
        self.per_request = false;
        Ok(())
    }

    /// The memory order of a value's dimensions, outermost first.
    pub(crate) fn order_of(&mut self, v: ValueId) -> Result<Vec<usize>> {
        let l = self.locate(v)?;
        let stride = |m: &Mode| {
            m.coalesce()
                .leaves
                .first()
                .map_or(0, |l| magnitude(&l.stride))
        };
        let mut order = row_major(l.layout.modes.len());
        if l.layout
            .modes
            .iter()
            .any(|m| m.coalesce().leaves.iter().any(|l| l.stride.is_zero()))
        {
            return Ok(order);
        }
        let strides: Vec<i64> = l.layout.modes.iter().map(stride).collect();
        // Extents of 1 have no stride: they keep their place behind the dimension before them.
        let mut keys: Vec<i64> = Vec::new();
        for (d, &s) in strides.iter().enumerate() {
            let before = if d == 0 { i64::MAX } else { keys[d - 1] };
            keys.push(if s == 0 { before } else { s });
        }
        order.arrange_by_key(|&d| (std::cmp::Reverse(keys[d]), d));
        Ok(order)
    }

    /// Constant padding as a bounded load.
    pub(crate) fn pad_constant(&mut self, n: NodeId, before: &[Dim], value: f64) -> Result<()> {
        let node = self.graph.node(n);
        let (x, out) = (node.inputs[0], node.outputs[0]);
        let from = self.locate(x)?;
        let mut from = from;
        if from
            .layout
            .modes
            .iter()
            .any(|m| m.coalesce().leaves.len() > 1)
        {
            from = self.materialise(&from, self.dtype(x), self.name(x), &self.origins(&[n]))?;
        }
        let to = self.new_value(
            self.name(out),
            self.dtype(out),
            self.shape(out),
            &row_major(self.shape(out).len()),
        );
        self.located[out.0 as usize] = Some(to.clone());
        let mut b = Builder::new(&self.origins(&[n]).join(" "), Family::Move);
        let mut dims = Vec::new();
        let mut access = kernel::Access::strided(from.layout.offset.clone(), vec![]);
        access.outside = value;
        for (d, e) in self.shape(out).iter().enumerate() {
            let axis = (!e.is_one()).then(|| b.axis(&format!("d{d}"), e));
            dims.push(axis.into_iter().collect::<Vec<_>>());
            let stride = from.layout.modes[d]
                .coalesce()
                .leaves
                .first()
                .map_or(Dim::ZERO, |l| l.stride.clone());
            let extent = &self.shape(x)[d];
            let inside = before[d].is_zero() && *e == *extent;
            if axis.is_none() && inside {
                continue;
            }
            super::builder::Window {
                out: axis,
                tap: None,
                stride: 1,
                dilation: 1,
                base: -before[d].clone(),
                extent,
                inside,
            }
            .apply(&b, &mut access, &stride);
        }
        let t = b.load("x", self.dtype(x), access, touched(&from.layout), from.ix);
        let Some(write) = b.access(&to.layout, &dims) else {
            return self.fail(n, "the output does not fit its axes");
        };
        b.store("y", write, Dim::product(self.shape(out)), to.ix, t);
        let (k, args) = b.finish();
        self.emit(k, args, self.origins(&[n]));
        Ok(())
    }

    /// Slices picked by indices: an indexed access, checked when executed.
    pub(crate) fn gather(&mut self, n: NodeId, axis: usize, batch: usize) -> Result<()> {
        let node = self.graph.node(n);
        let (data, idx, out) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let mut from = self.locate(data)?;
        if from.layout.modes[axis].coalesce().leaves.len() > 1 {
            from = self.materialise(
                &from,
                self.dtype(data),
                self.name(data),
                &self.origins(&[n]),
            )?;
        }
        let mut by = self.locate(idx)?;
        let q = self.shape(idx).len() - batch;
        let places = |s: &[Dim]| [&s[..batch], &s[axis..axis + q]].concat();
        let want: Vec<Option<Dim>> = places(self.shape(out)).into_iter().map(Some).collect();
        let in_parts = |m: &Mode| m.coalesce().leaves.len() > 1;
        if by.layout.modes[..batch].iter().any(in_parts) {
            // Common dimensions are split as the data lies.
            by = self.materialise(&by, self.dtype(idx), self.name(idx), &self.origins(&[n]))?;
        }
        let by = self.fit(by, &want, self.dtype(idx), self.name(idx))?;
        let rank = self.shape(data).len();
        let to = self.new_value(
            self.name(out),
            self.dtype(out),
            self.shape(out),
            &row_major(self.shape(out).len()),
        );
        self.located[out.0 as usize] = Some(to.clone());
        let mut b = Builder::new(&self.origins(&[n]).join(" "), Family::Move);
        let outer = from.layout.modes[..axis].iter();
        let modes = outer.chain(&by.layout.modes[batch..batch + q]);
        let modes = modes.chain(&from.layout.modes[axis + 1..]);
        let dims = split_axes(&mut b, self.shape(out), modes);
        let fit = |a: Option<kernel::Access>, l: &Self| {
            a.map_or_else(
                || {
                    l.fail(
                        n,
                        "its operands do not fit its axes; give its symbolic dimensions sizes with --dim",
                    )
                },
                Ok,
            )
        };
        let places = [&dims[..batch], &dims[axis..axis + q]].concat();
        let index_access = fit(b.access(&by.layout, &places), self)?;
        let mut modes = from.layout.modes.clone();
        let picked = modes.remove(axis);
        let mut other_dims: Vec<Vec<AxisId>> = dims[..axis].to_vec();
        other_dims.extend(dims[axis + q..].iter().cloned());
        debug_assert_eq!(other_dims.len(), rank - 1);
        let rest = Layout {
            offset: from.layout.offset.clone(),
            modes,
        };
        let mut access = fit(b.access(&rest, &other_dims), self)?;
        let op = b.operand(
            "index",
            self.dtype(idx),
            Role::Read,
            index_access,
            touched(&by.layout),
            by.ix,
        );
        access.indexed.push(kernel::Indexed {
            by: op,
            stride: picked
                .coalesce()
                .leaves
                .first()
                .map_or(Dim::ZERO, |l| l.stride.clone()),
            extent: self.shape(data)[axis].clone(),
        });
        // What is touched is what is read: one slice per index.
        let t = b.load(
            "x",
            self.dtype(data),
            access,
            Dim::product(self.shape(out)),
            from.ix,
        );
        let Some(write) = b.access(&to.layout, &dims) else {
            return self.fail(n, "the output does not fit its axes");
        };
        b.store("y", write, Dim::product(self.shape(out)), to.ix, t);
        let (k, args) = b.finish();
        self.emit(k, args, self.origins(&[n]));
        Ok(())
    }
}

/// Axes of every dimension, which is split as its mode is.
fn split_axes<'m>(
    b: &mut Builder,
    shape: &[Dim],
    modes: impl Iterator<Item = &'m Mode>,
) -> Vec<Vec<AxisId>> {
    let mut dims = Vec::new();
    for (d, (e, mode)) in shape.iter().zip(modes).enumerate() {
        let leaves = mode.coalesce().leaves;
        let extents: Vec<Dim> = match leaves.len() > 1 {
            true => leaves.into_iter().map(|l| l.extent).collect(),
            false => vec![e.clone()],
        };
        let parts = extents.iter().enumerate().filter(|(_, e)| !e.is_one());
        let ids = parts.map(|(p, e)| b.axis(&format!("d{d}_{p}"), e));
        dims.push(ids.collect());
    }
    dims
}

/// The scalar that a constant tensor value holds, when it is a weight.
pub(crate) fn scalar(lowering: &Lowering, v: ValueId) -> Option<f64> {
    let mut v = v;
    while lowering.graph.value(v).ints.is_none()
        && let Some(node) = lowering.graph.producer(v)
        && matches!(node.op, graph::Op::View(_))
    {
        v = node.inputs[0];
    }
    let value = lowering.graph.value(v);
    if let Some(ints) = &value.ints {
        return ints.first()?.known().map(|n| n as f64);
    }
    match value.source {
        graph::ValueSource::Weight(w) => {
            let t = lowering.graph.weights.tensor(w)?;
            (t.len() == 1).then(|| t.get_f64(0))
        }
        graph::ValueSource::Node(n, 0) => {
            // A fill: a map without inputs whose program is a constant.
            let node = lowering.graph.node(n);
            match &node.op {
                graph::Op::Map(e) if node.inputs.is_empty() => {
                    let mut b = ExprBuilder::new();
                    let out = b.inline(e, &[], None);
                    let e = b.finish(&out);
                    match e.simplified().insts.as_slice() {
                        [expr::Inst::Float { bits, .. }] => Some(f64::from_bits(*bits)),
                        [expr::Inst::Int { value, .. }] => Some(*value as f64),
                        _ => None,
                    }
                }
                _ => None,
            }
        }
        _ => None,
    }
}

impl Lowering<'_> {
    /// A move of all elements between two layouts of one shape.
    pub fn copy(
        &mut self,
        from: &Located,
        to: &Located,
        dtype: DType,
        name: &str,
        nodes: &[String],
    ) -> Result<()> {
        let (kernel, args) =
            copy_kernel(&format!("move {name}"), dtype, from, to).ok_or_else(|| {
                PlannerError::Node {
                    node: name.into(),
                    op: "move".into(),
                    why: format!(
                        "{:?} does not fit {:?}; give its symbolic dimensions sizes with --dim",
                        from.layout.shape(),
                        to.layout.shape()
                    ),
                }
            })?;
        self.emit(kernel, args, nodes.to_vec());
        Ok(())
    }
}
