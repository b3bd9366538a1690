//! The element-wise and reducing members of a group as statements of its kernel.
use super::builder::single;
use super::simplify::magnitude;
use super::{Builder, Lowering, Result, stored_values, touched};
use crate::fuse::{Anchor, Group, Mapping};
use crate::located::Located;
use expr::{Expr, ExprBuilder, Ref};
use graph::{NodeId, Op, ValueId};
use kernel::{AxisId, TileId};
use layout::{Arrange, Dim, Layout, Leaf, Mode};
use std::collections::BTreeMap;

/// Values at most between one and the outputs that it is laid out for.
const NEAR: usize = 32;

/// A kernel whose iteration space is laid out: for every dimension of the group's full shape the
/// axes it runs along (outermost first; none for an extent of 1).
pub(crate) struct Body {
    pub builder: Builder,
    pub dims: Vec<Vec<AxisId>>,
    /// Tiles of graph values that the kernel computes.
    pub tiles: BTreeMap<ValueId, TileId>,
    /// Tiles of values that it loads, by how their dimensions lie in its space: a square one may be read both ways.
    pub loads: BTreeMap<(ValueId, Mapping), TileId>,
    /// Whether loads may go through indices.
    pub indexed: bool,
    /// Gathers that became loads of this kernel.
    pub folded: Vec<NodeId>,
}

impl Body {
    /// Axes of a value with mapping `m`, dimension by dimension.
    pub fn axes_of(&self, m: &Mapping) -> Vec<Vec<AxisId>> {
        m.iter()
            .map(|d| d.map_or_else(Vec::new, |d| self.dims[d].clone()))
            .collect()
    }

    fn flat(&self, m: &Mapping) -> Vec<AxisId> {
        self.axes_of(m).concat()
    }

    /// The coordinate along a graph dimension as a program over kernel axes.
    pub fn index(&self, b: &mut ExprBuilder, axes: &[AxisId]) -> Ref {
        let mut sum: Option<Ref> = None;
        for (i, &a) in axes.iter().enumerate() {
            let below = Dim::product(axes[i + 1..].iter().map(|&x| self.builder.extent(x)));
            let mut v = b.index(a as u32);
            if !below.is_one() {
                let k = b.dim(&below);
                v = b.mul(v, k);
            }
            sum = Some(match sum {
                Some(s) => b.add(s, v),
                None => v,
            });
        }
        sum.unwrap_or_else(|| b.int(0, layout::DType::I64))
    }

    /// A graph-level program with its `Index` counting output dimensions turned into one over
    /// kernel axes.
    pub fn localise(&self, e: &Expr, dims: &[Vec<AxisId>]) -> Expr {
        let mut b = ExprBuilder::new();
        let index = |b: &mut ExprBuilder, d: u32| {
            let none = Vec::new();
            self.index(b, dims.get(d as usize).unwrap_or(&none))
        };
        let outs = b.append(e, Some(&index));
        b.finish(&outs)
    }
}

impl Lowering<'_> {
    /// The tile of `v`, loaded when it comes from outside; `m` gives its dimensions in the space.
    pub fn tile_of(
        &mut self,
        body: &mut Body,
        v: ValueId,
        m: &Mapping,
        n: NodeId,
    ) -> Result<TileId> {
        let key = (v, m.clone());
        if let Some(&t) = body.tiles.get(&v).or_else(|| body.loads.get(&key)) {
            return Ok(t);
        }
        if body.indexed
            && let Some(g) = self.gathered(v)?
            && let Some(t) = self.gathered_tile(body, v, g, m)?
        {
            body.loads.insert(key, t);
            return Ok(t);
        }
        let l = self.locate(v)?;
        let dims = body.axes_of(m);
        let want: Vec<Option<Dim>> = dims
            .iter()
            .map(|axes| {
                (!axes.is_empty())
                    .then(|| Dim::product(axes.iter().map(|&a| body.builder.extent(a))))
            })
            .collect();
        let mut l = self.fit(l, &want, self.dtype(v), self.name(v))?;
        let access = match body.builder.access(&l.layout, &dims) {
            Some(a) => a,
            None => {
                let nodes = self.origins(&[n]);
                l = self.materialise(&l, self.dtype(v), self.name(v), &nodes)?;
                match body.builder.access(&l.layout, &dims) {
                    Some(a) => a,
                    None => return self.fail(n, format!("input '{}' does not fit the axes of its kernel; give its symbolic dimensions sizes with --dim", self.name(v))),
                }
            }
        };
        let t = body.builder.load(
            &short(self.name(v)),
            self.dtype(v),
            access,
            touched(&l.layout),
            l.ix,
        );
        body.loads.insert(key, t);
        Ok(t)
    }

    /// Statements for the members of `g` other than `anchor`, in order.
    pub fn members(&mut self, body: &mut Body, g: &Group, anchor: Option<NodeId>) -> Result<()> {
        let graph = self.graph;
        for &n in &g.nodes {
            if Some(n) == anchor {
                continue;
            }
            let node = graph.node(n);
            match &node.op {
                Op::View(_) => {
                    if let Some(&t) = body.tiles.get(&node.inputs[0]) {
                        body.tiles.insert(node.outputs[0], t);
                    }
                }
                Op::Map(e) => {
                    let m = g.mapping[&node.outputs[0]].clone();
                    let mut args = Vec::new();
                    for &v in &node.inputs {
                        let vm = operand_mapping(self.shape(v), &m, g, v);
                        args.push(self.tile_of(body, v, &vm, n)?);
                    }
                    let dims = body.axes_of(&m);
                    let e = body.localise(e, &dims);
                    let types = e.output_types().map_err(|x| self.expr_error(n, x))?;
                    for (i, &o) in node.outputs.iter().enumerate() {
                        let axes = body.flat(&m);
                        let t = body.builder.map(
                            &short(&graph.value(o).name),
                            types[i],
                            &axes,
                            single(&e, i),
                            &args,
                        );
                        body.tiles.insert(o, t);
                    }
                }
                Op::Reduce { monoid, axes, .. } => {
                    let v = node.inputs[0];
                    let vm = match g.mapping.get(&v) {
                        Some(m) => m.clone(),
                        None => {
                            crate::fuse::shape_mapping(&g.full, self.shape(v)).unwrap_or_default()
                        }
                    };
                    let t = self.tile_of(body, v, &vm, n)?;
                    let over: Vec<AxisId> = axes
                        .iter()
                        .filter_map(|&a| vm[a])
                        .flat_map(|d| body.dims[d].clone())
                        .collect();
                    // A reduction over extents of 1 only still lifts and finishes every element.
                    let outs = body
                        .builder
                        .reduce(monoid, &[t], &over)
                        .map_err(|x| self.expr_error(n, x))?;
                    for (&o, t) in node.outputs.iter().zip(outs) {
                        body.tiles.insert(o, t);
                    }
                }
                _ => return self.fail(n, "it is no element-wise member of a kernel"),
            }
        }
        Ok(())
    }

    pub fn expr_error(&self, n: NodeId, e: expr::ExprError) -> crate::PlannerError {
        let node = self.graph.node(n);
        crate::PlannerError::Node {
            node: node
                .origins
                .first()
                .map(|o| o.name.clone())
                .unwrap_or_default(),
            op: node.op.name().into(),
            why: e.to_string(),
        }
    }

    /// Stores every value that somebody outside reads; the memory order of each follows the axes'
    /// order (model outputs are row-major).
    /// Gives the values that are stored in the kernel's own order first, for a move to make row-major.
    pub fn stores(
        &mut self,
        body: &mut Body,
        g: &Group,
        readers: &[Vec<NodeId>],
    ) -> Result<Vec<ValueId>> {
        let mut to_move = Vec::new();
        let apart = self.lanes_are_channels(g);
        for v in stored_values(self, g, readers) {
            let m = g.mapping[&v].clone();
            let shape = self.shape(v).to_vec();
            let mut order: Vec<usize> = (0..shape.len()).collect();
            let size = magnitude(&Dim::product(&shape));
            let own_order =
                !self.is_output[v.0 as usize] && !self.grows_into_output(v, size, readers);
            if own_order || apart {
                let dims = body.axes_of(&m);
                order.arrange_by_key(|&d| (dims[d].first().copied().unwrap_or(0), d));
            }
            let dims = body.axes_of(&m);
            let own = match self.is_output[v.0 as usize] {
                true => None,
                false => interleaved(body, &dims, &shape)
                    .filter(|l| self.plain_when_read(l, &readers[v.0 as usize])),
            };
            let to = match own {
                Some(layout) => {
                    let size = Dim::product(&shape);
                    self.new_value_with(self.name(v), self.dtype(v), &shape, layout, size)
                }
                None if apart && !own_order => {
                    to_move.push(v);
                    let name = format!("{}.channels", self.name(v));
                    self.new_value(&name, self.dtype(v), &shape, &order)
                }
                None => match self.join(v, &order, &body.builder.values()) {
                    Some(place) => place,
                    None => self.new_value(self.name(v), self.dtype(v), &shape, &order),
                },
            };
            let Some(access) = body.builder.access(&to.layout, &dims) else {
                let n = *g.nodes.last().unwrap_or(&NodeId(0));
                return self.fail(
                    n,
                    format!(
                        "value '{}' does not fit the axes of its kernel",
                        self.name(v)
                    ),
                );
            };
            let t = body.tiles[&v];
            body.builder.store(
                &format!("{}.out", short(self.name(v))),
                access,
                Dim::product(&shape),
                to.ix,
                t,
            );
            self.located[v.0 as usize] = Some(to);
        }
        Ok(to_move)
    }

    /// Whether the kernel of `g` is a depthwise convolution or one of small groups: its lanes are channels, and
    /// writing them row-major means element by element, which takes many times what the move of the result does.
    fn lanes_are_channels(&self, g: &Group) -> bool {
        let Anchor::Node(n) = g.anchor else {
            return false;
        };
        let node = self.graph.node(n);
        let Op::Conv(spec) = &node.op else {
            return false;
        };
        !spec.transposed && spec.groups > 1 && self.shape(node.inputs[1])[1].is_one()
            || self.shares_inputs(n)
    }

    /// Whether all readers see a value of this layout through views in which every dimension has a
    /// stride of its own.
    fn plain_when_read(&self, layout: &Layout, readers: &[NodeId]) -> bool {
        let here = Located {
            ix: 0,
            layout: layout.clone(),
        };
        let plain = |m: &Mode| m.coalesce().leaves.len() <= 1;
        !readers.is_empty()
            && readers.iter().all(|&n| match &self.graph.node(n).op {
                Op::View(view) => here
                    .view(view)
                    .is_some_and(|l| l.layout.modes.iter().all(plain)),
                _ => false,
            })
    }

    /// Whether all that reads `v`, element by element or through indices, comes down to outputs of the
    /// model of at least twice `size` elements. Outputs are row-major: what is moved for that is moved
    /// while there is less of it.
    fn grows_into_output(&self, v: ValueId, size: i64, readers: &[Vec<NodeId>]) -> bool {
        let rank = self.shape(v).len();
        let mut seen = vec![v];
        let mut at = 0;
        while let Some(&v) = seen.get(at) {
            at += 1;
            if self.is_output[v.0 as usize] {
                if magnitude(&Dim::product(self.shape(v))) < size.saturating_mul(2) {
                    return false;
                }
                continue;
            }
            let readers = &readers[v.0 as usize];
            if readers.is_empty() || seen.len() > NEAR {
                return false;
            }
            for &n in readers {
                let node = self.graph.node(n);
                let follows = match node.op {
                    Op::Map(_) => true,
                    Op::Gather { .. } => node.inputs[0] == v && self.is_folded(n),
                    _ => false,
                };
                if !follows || node.outputs.iter().any(|&o| self.shape(o).len() != rank) {
                    return false;
                }
                let new = node.outputs.iter().filter(|o| !seen.contains(o));
                let new: Vec<ValueId> = new.copied().collect();
                seen.extend(new);
            }
        }
        true
    }

    /// Finishes a group's kernel: members, stores, emission.
    pub fn close(&mut self, mut body: Body, g: &Group, anchor: Option<NodeId>) -> Result<()> {
        self.members(&mut body, g, anchor)?;
        let readers = std::mem::take(&mut self.readers);
        let stored = self.stores(&mut body, g, &readers);
        self.readers = readers;
        let to_move = stored?;
        let mut members: Vec<NodeId> = body.folded.iter().chain(&g.nodes).copied().collect();
        for &n in &g.nodes {
            for &o in &self.graph.node(n).outputs {
                members.extend(self.joins(o));
            }
        }
        let nodes = self.origins(&members);
        let (kernel, args) = body.builder.finish();
        if kernel
            .body
            .iter()
            .any(|s| matches!(s, kernel::Stmt::Store { .. }))
        {
            self.emit(kernel, args, nodes.clone());
        }
        for v in to_move {
            if let Some(from) = self.located[v.0 as usize].clone() {
                let rows = self.materialise(&from, self.dtype(v), self.name(v), &nodes)?;
                self.located[v.0 as usize] = Some(rows);
            }
        }
        Ok(())
    }
}

/// The layout that has the axes of a value in the kernel's own order, where a dimension is taken apart
/// and its parts do not lie one inside the other (channels of a group around the positions of an image).
fn interleaved(body: &Body, dims: &[Vec<AxisId>], shape: &[Dim]) -> Option<Layout> {
    let mut axes = dims.concat();
    axes.arrange();
    let mut strides = BTreeMap::new();
    let mut step = Dim::ONE;
    for &a in axes.iter().rev() {
        strides.insert(a, step.clone());
        step = step * body.builder.extent(a).clone();
    }
    let leaf = |a: &AxisId| Leaf {
        extent: body.builder.extent(*a).clone(),
        stride: strides[a].clone(),
    };
    let modes: Vec<Mode> = dims
        .iter()
        .zip(shape)
        .map(|(axes, e)| match axes.as_slice() {
            [] => Mode::flat(e.clone(), Dim::ZERO),
            axes => Mode {
                leaves: axes.iter().map(leaf).collect(),
            },
        })
        .collect();
    let apart = modes.iter().any(|m| m.coalesce().leaves.len() > 1);
    let whole = modes.iter().zip(shape).all(|(m, e)| m.extent() == *e);
    (apart && whole && step == Dim::product(shape)).then_some(Layout {
        offset: Dim::ZERO,
        modes,
    })
}

/// Mapping of an input of an element-wise node whose result has mapping `out`.
pub(crate) fn operand_mapping(shape: &[Dim], out: &Mapping, g: &Group, v: ValueId) -> Mapping {
    if let Some(m) = g.mapping.get(&v) {
        return m.clone();
    }
    let missing = out.len() - shape.len().min(out.len());
    shape
        .iter()
        .enumerate()
        .map(|(i, e)| {
            if e.is_one() {
                None
            } else {
                out.get(i + missing).copied().flatten()
            }
        })
        .collect()
}

/// The end of a long model name: what tells values apart in a table.
pub(crate) fn short(name: &str) -> String {
    let tail = name.rsplit(['/', ':']).next().unwrap_or(name);
    let tail = if tail.is_empty() { name } else { tail };
    tail.chars().take(24).collect()
}
