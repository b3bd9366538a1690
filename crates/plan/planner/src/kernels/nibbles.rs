//! Factors of 4 bits: a product reads a constant's numbers as they lie and widens them by a statement
//! of its own, instead of a wide copy that is made when the model is loaded.
use super::{Builder, Lowering, Result, touched};
use crate::located::Located;
use expr::{Expr, Zero};
use graph::{NodeId, Op, ValueId, ValueSource, View};
use kernel::{AxisId, TileId};
use layout::{DType, Dim};

/// Neighbours along the summed dimension that lie in one lane of a vector.
const GROUP: i64 = 8;

/// A factor that a map makes of numbers of 4 bits.
pub(crate) struct NibbleFactor {
    pub program: Expr,
    /// Type of what the program makes, and those of what it reads.
    pub dtype: DType,
    types: Vec<DType>,
    /// What the program reads, each as the factor's shape shows it.
    pub args: Vec<(ValueId, Located)>,
    /// The argument whose layout splits the dimensions most finely.
    pub finest: usize,
}

impl Lowering<'_> {
    fn constant(&self, v: ValueId, depth: usize) -> bool {
        match self.graph.value(v).source {
            ValueSource::Weight(_) => true,
            ValueSource::Node(n, _) if depth > 0 => {
                let node = self.graph.node(n);
                matches!(node.op, Op::View(_) | Op::Map(_))
                    && node.inputs.iter().all(|&i| self.constant(i, depth - 1))
                    && !node.inputs.is_empty()
            }
            _ => false,
        }
    }

    /// The map that makes `v` of numbers of 4 bits, with the views behind it, outermost last.
    fn nibble_map(&self, v: ValueId) -> Option<(NodeId, Vec<View>)> {
        let (v, views) = self.behind_views(v);
        let ValueSource::Node(n, _) = self.graph.value(v).source else {
            return None;
        };
        self.is_nibble_map(n).then_some((n, views))
    }

    /// The value that `v` is a view of, and the views of it, outermost last.
    fn behind_views(&self, mut v: ValueId) -> (ValueId, Vec<View>) {
        let mut views = Vec::new();
        while let ValueSource::Node(n, _) = self.graph.value(v).source
            && let Op::View(w) = &self.graph.node(n).op
        {
            views.push(w.clone());
            v = self.graph.node(n).inputs[0];
        }
        views.reverse();
        (v, views)
    }

    fn is_nibble_map(&self, n: NodeId) -> bool {
        let node = self.graph.node(n);
        let (Op::Map(e), [out]) = (&node.op, node.outputs.as_slice()) else {
            return false;
        };
        let Some(s) = e.as_dequantise() else {
            return false;
        };
        let dtype = |slot: u32| node.inputs.get(slot as usize).map(|&v| self.dtype(v));
        let known = self.shape(*out).iter().all(|d| d.known().is_some());
        self.dtype(*out) == s.dtype
            && known
            && matches!(dtype(s.x), Some(DType::U4 | DType::I4))
            && node.inputs.iter().all(|&v| self.constant(v, 8))
            && node
                .inputs
                .get(s.x as usize)
                .is_some_and(|&x| self.shape(x) == self.shape(*out))
    }

    /// Whether every reader of the nibble map's result is a product that takes it as a factor.
    pub(crate) fn absorbed(&self, n: NodeId) -> bool {
        if !self.is_nibble_map(n) {
            return false;
        }
        let mut stack = self.graph.node(n).outputs.clone();
        let mut any = false;
        while let Some(v) = stack.pop() {
            if self.is_output[v.0 as usize] {
                return false;
            }
            for &r in &self.readers[v.0 as usize] {
                let node = self.graph.node(r);
                match &node.op {
                    Op::View(_) => stack.extend(&node.outputs),
                    Op::Contract(s) => {
                        any = true;
                        let plain = s.a.len() >= 2
                            && s.b.len() == 2
                            && node.inputs[1] == v
                            && node.inputs[0] != v
                            && s.b.iter().filter(|l| s.out.contains(l)).count() == 1
                            && s.b.iter().all(|l| s.out.contains(l) != s.a.contains(l));
                        if !plain || self.nibble_blocks(v, s).is_none() {
                            return false;
                        }
                    }
                    _ => return false,
                }
            }
        }
        any
    }

    /// Whether blocks along the summed dimension are whole groups.
    fn nibble_blocks(&self, v: ValueId, s: &graph::ContractSpec) -> Option<()> {
        let (n, views) = self.nibble_map(v)?;
        let k = s.b.iter().position(|l| !s.out.contains(l))?;
        let depth = self.shape(v)[k].known()?;
        if depth % GROUP != 0 {
            return None;
        }
        let node = self.graph.node(n);
        let Op::Map(e) = &node.op else { return None };
        let steps = e.as_dequantise()?;
        // The scale's blocks as the factor shows them, whatever lies where.
        let shape: Vec<Dim> = self.shape(node.outputs[0]).to_vec();
        let (from, before) = self.behind_views(node.inputs[steps.scale as usize]);
        // Blocks that views make, as DequantizeLinear has them, stay a wide constant in f32: micro-kernels of CPUs for
        // numbers of 4 bits are slower where weights are few, and a bind chooses by prediction for GPUs alone.
        if steps.dtype == DType::F32 && !before.is_empty() {
            return None;
        }
        let own = self.shape(from).to_vec();
        let order: Vec<usize> = (0..own.len()).collect();
        let mut l = Located {
            ix: 0,
            layout: layout::Layout::ordered(&own, &order, 1),
        };
        for w in &before {
            l = l.view(w)?;
        }
        l.layout = l.layout.expand(&shape)?;
        if own.iter().all(Dim::is_one) && !own.is_empty() {
            return None;
        }
        for w in &views {
            l = l.view(w)?;
        }
        let leaves = l.layout.modes[k].coalesce().leaves;
        let inner = leaves.last()?;
        let blocked = leaves.len() == 2 && inner.stride.is_zero();
        let size = inner.extent.known()?;
        (blocked && size % GROUP == 0).then_some(())
    }

    /// Factor `v` as numbers of 4 bits, where its map is left to the products that read it.
    pub(crate) fn nibble_factor(&mut self, v: ValueId) -> Result<Option<NibbleFactor>> {
        let Some((n, views)) = self.nibble_map(v) else {
            return Ok(None);
        };
        if !self.absorbed(n) {
            return Ok(None);
        }
        let node = self.graph.node(n);
        let Op::Map(e) = &node.op else {
            return Ok(None);
        };
        let Some(steps) = e.as_dequantise() else {
            return Ok(None);
        };
        let shape = self.shape(node.outputs[0]).to_vec();
        let (mut args, mut types) = (Vec::new(), Vec::new());
        for (slot, &input) in node.inputs.iter().enumerate() {
            let mut l = self.locate(input)?;
            // Zero points become floats once, exactly, before views show each to its block: they are few.
            let mut dtype = self.dtype(input);
            if steps.zero == Zero::Slot(slot as u32) && dtype != steps.dtype {
                let (from, views) = self.behind_views(input);
                l = self.locate(from)?;
                l = self.widened(&l, from, (dtype, steps.dtype), &[n])?;
                for w in &views {
                    let Some(seen) = l.view(w) else {
                        return self.fail(n, "its zero points have no such view");
                    };
                    l = seen;
                }
                dtype = steps.dtype;
            }
            types.push(dtype);
            let Some(layout) = l.layout.expand(&shape) else {
                return self.fail(n, "an input of it does not broadcast");
            };
            let mut l = Located { ix: l.ix, layout };
            for w in &views {
                l = match l.view(w) {
                    Some(l) => l,
                    None => return self.fail(n, "a view of it has no strides"),
                };
            }
            args.push((input, l));
        }
        Ok(Some(NibbleFactor {
            program: steps.program(&|slot| types[slot as usize]),
            dtype: steps.dtype,
            types,
            args,
            finest: steps.scale as usize,
        }))
    }

    /// A dense copy of `l`, which is of one type, in another.
    fn widened(
        &mut self,
        l: &Located,
        v: ValueId,
        (from, wide): (DType, DType),
        nodes: &[NodeId],
    ) -> Result<Located> {
        let shape = l.layout.shape();
        let order = super::row_major(shape.len());
        let name = format!("{}.wide", self.name(v));
        let to = self.new_value(&name, wide, &shape, &order);
        let mut b = Builder::new(&name, kernel::Family::Map);
        let mut dims: Vec<Vec<AxisId>> = Vec::new();
        for (d, e) in shape.iter().enumerate() {
            dims.push(match e.is_one() {
                true => vec![],
                false => vec![b.axis(&format!("d{d}"), e)],
            });
        }
        let all = dims.concat();
        let (Some(read), Some(write)) = (b.access(&l.layout, &dims), b.access(&to.layout, &dims))
        else {
            return self.fail(nodes[0], "its zero points do not fit their axes");
        };
        let t = b.load("x", from, read, touched(&l.layout), l.ix);
        let t = super::contract::cast(&mut b, t, wide, &all);
        b.store("y", write, Dim::product(&shape), to.ix, t);
        let (k, args) = b.finish();
        let origins = self.origins(nodes);
        self.emit(k, args, origins);
        Ok(to)
    }

    /// Loads of `f` and the statement that makes numbers of them; `dims` as for an access.
    pub(crate) fn expand_nibbles(
        &mut self,
        b: &mut Builder,
        n: NodeId,
        f: &NibbleFactor,
        dims: &[Vec<AxisId>],
    ) -> Result<TileId> {
        let mut tiles = Vec::new();
        for ((v, l), &d) in f.args.iter().zip(&f.types) {
            let Some(access) = b.access(&l.layout, dims) else {
                return self.fail(n, "its factor of 4 bits does not fit its axes");
            };
            let name: String = self.name(*v).chars().take(12).collect();
            tiles.push(b.load(&name, d, access, touched(&l.layout), l.ix));
        }
        let axes = dims.concat();
        Ok(b.map("wide", f.dtype, &axes, f.program.clone(), &tiles))
    }
}
