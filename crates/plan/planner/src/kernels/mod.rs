//! From groups of nodes to kernels: one file per kind.
pub(crate) mod builder;
pub(crate) mod simplify;

mod attention;
mod concat;
mod contract;
mod conv;
mod custom;
mod epilogue;
mod indexed;
mod moves;
mod nibbles;
mod pointwise;
mod pool;
mod recurrent;
mod select;
mod standalone;

use crate::PlannerError;
use crate::fuse::{Anchor, Group};
use crate::located::Located;
use builder::KernelBuilder;
pub(crate) use concat::ConcatPlaces;
use foldhash::HashMap;
use graph::{Graph, NodeId, Op, ValueId, ValueSource};
use layout::{DType, Dim, Layout};
pub(crate) use moves::copy_kernel;
use plan::{Item, ItemWork, Program, ProgramValue, Segment, ValueIx, ValueOrigin, Why};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Lowers the groups of one graph into items of one program.
pub(crate) struct Lowering<'a> {
    pub graph: &'a Graph,
    pub program: Program,
    /// The pairs of extents of the program's constraints.
    pub constrained: std::collections::BTreeSet<(Dim, Dim)>,
    pub located: Vec<Option<Located>>,
    pub is_output: Vec<bool>,
    /// Items made now run for every request even when they read constants only: they write a part
    /// of a value whose other parts do not.
    pub per_request: bool,
    /// Sizes that kernels name.
    pub dims: layout::DimPool,
    /// Nodes that are members of groups or stand alone; gathers that do not are left to their readers.
    pub grouped: Vec<bool>,
    /// What is written into concatenations when it is made.
    pub concats: ConcatPlaces,
    /// For every graph value the nodes that read it.
    pub readers: Vec<Vec<NodeId>>,
    /// Names of the program's values; with a number the last that was put behind it to make another.
    pub names: HashMap<String, usize>,
}

pub(crate) type Result<T> = std::result::Result<T, PlannerError>;

impl<'a> Lowering<'a> {
    pub fn shape(&self, v: ValueId) -> &'a [Dim] {
        &self.graph.value(v).shape
    }

    pub fn dtype(&self, v: ValueId) -> DType {
        self.graph.value(v).dtype
    }

    pub fn name(&self, v: ValueId) -> &'a str {
        &self.graph.value(v).name
    }

    pub fn fail<T>(&self, n: NodeId, why: impl Into<String>) -> Result<T> {
        let node = self.graph.node(n);
        Err(PlannerError::Node {
            node: node
                .origins
                .first()
                .map(|o| o.name.clone())
                .unwrap_or_default(),
            op: node.op.name().into(),
            why: why.into(),
        })
    }

    pub fn origins(&self, nodes: &[NodeId]) -> Vec<String> {
        let all = nodes.iter().flat_map(|&n| &self.graph.node(n).origins);
        let mut seen = BTreeSet::new();
        all.filter(|o| seen.insert(&o.name))
            .map(|o| o.name.clone())
            .collect()
    }

    /// Adds a program value of `shape` whose memory order is `order`.
    pub fn new_value(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[Dim],
        order: &[usize],
    ) -> Located {
        self.new_value_with(
            name,
            dtype,
            shape,
            Layout::ordered(shape, order, 1),
            Dim::product(shape),
        )
    }

    /// Adds a program value with a layout of its own.
    pub fn new_value_with(
        &mut self,
        name: &str,
        dtype: DType,
        shape: &[Dim],
        layout: Layout,
        storage: Dim,
    ) -> Located {
        let mut unique = name.to_string();
        if let Some(&last) = self.names.get(name) {
            let mut i = last;
            while self.names.contains_key(&unique) {
                i += 1;
                unique = format!("{name}#{i}");
            }
            self.names.insert(name.into(), i);
        }
        self.names.insert(unique.clone(), 1);
        let ix = self.program.values.len() as ValueIx;
        self.program.values.push(ProgramValue {
            name: unique,
            dtype,
            shape: shape.to_vec(),
            layout: layout.clone(),
            storage,
            origin: ValueOrigin::Made,
        });
        Located { ix, layout }
    }

    /// Where graph value `v` lies. Views are followed; one that no strides express is moved first.
    pub fn locate(&mut self, v: ValueId) -> Result<Located> {
        // From the first view that lies nowhere yet to the last: a file may have any number of them in a row.
        let mut views = vec![v];
        while let Some(input) = self.viewed(views[views.len() - 1]) {
            views.push(input);
        }
        let mut found = self.locate_one(views[views.len() - 1])?;
        for &v in views.iter().rev().skip(1) {
            found = self.locate_one(v)?;
        }
        Ok(found)
    }

    /// What `v` is a view of, where it lies nowhere yet.
    fn viewed(&self, v: ValueId) -> Option<ValueId> {
        let node = self.graph.producer(v)?;
        let view = self.located[v.0 as usize].is_none() && matches!(node.op, Op::View(_));
        view.then(|| node.inputs[0])
    }

    fn locate_one(&mut self, v: ValueId) -> Result<Located> {
        if let Some(l) = &self.located[v.0 as usize] {
            return Ok(l.clone());
        }
        let value = self.graph.value(v);
        let found = match value.source {
            ValueSource::Weight(w) => {
                let l = self.new_value(
                    &value.name,
                    value.dtype,
                    &value.shape,
                    &row_major(value.shape.len()),
                );
                self.program.values[l.ix as usize].origin = ValueOrigin::Weight(w);
                l
            }
            ValueSource::Node(n, _) => {
                let node = self.graph.node(n);
                if let Op::Gather { axis, batch } = &node.op
                    && self.is_folded(n)
                {
                    // Left to its reader, which cannot load through indices after all.
                    self.gather(n, *axis, *batch)?;
                    if let Some(l) = &self.located[v.0 as usize] {
                        return Ok(l.clone());
                    }
                }
                let Op::View(view) = &node.op else {
                    return self.fail(
                        n,
                        format!("value '{}' is read before it is made", value.name),
                    );
                };
                let view = view.clone();
                self.locate_view(n, v, &view)?
            }
            ValueSource::Input(_) => {
                return Err(PlannerError::Node {
                    node: value.name.clone(),
                    op: "input".into(),
                    why: "it is not among the graph's inputs".into(),
                });
            }
        };
        self.located[v.0 as usize] = Some(found.clone());
        Ok(found)
    }

    /// Where the result `v` of view node `n` lies.
    fn locate_view(&mut self, n: NodeId, v: ValueId, view: &graph::View) -> Result<Located> {
        let read = self.graph.node(n).inputs[0];
        let mut input = self.locate(read)?;
        if let graph::View::Expand(shape) = view
            && input.view(view).is_none()
            && let Some(new) = shape.len().checked_sub(input.layout.modes.len())
        {
            let want: Vec<Option<Dim>> = shape[new..].iter().cloned().map(Some).collect();
            input = self.fit(input, &want, self.dtype(read), self.name(read))?;
        }
        let assumed = match view {
            graph::View::Reshape(shape) if input.layout.size() != Dim::product(shape) => {
                crate::located::reshape_assuming(&input, shape)
            }
            _ => None,
        };
        if let Some((l, ones)) = assumed {
            for e in ones {
                self.constrain(&self.origins(&[n]).join(" "), &e, &Dim::ONE);
            }
            return Ok(l);
        }
        if let Some(l) = input.view(view) {
            return Ok(l);
        }
        // Dense memory already has every shape of its size.
        let dense = input.layout.is_row_major(1)
            && input.layout.offset.is_zero()
            && matches!(view, graph::View::Reshape(_));
        let moved = if dense {
            input.clone()
        } else {
            self.program.whys.push(Why {
                pass: "layout".into(),
                subject: self.origins(&[n]).join(", "),
                choice: "moved".into(),
                alternatives: vec![],
                reason: "no strides express this view of its input's layout".into(),
            });
            let (dtype, name) = (self.dtype(read), self.name(read));
            self.materialise(&input, dtype, name, &self.origins(&[n]))?
        };
        if let Some(l) = moved.view(view) {
            return Ok(l);
        }
        if let Some(l) = self.reshape_dense(n, &moved, view) {
            return Ok(l);
        }
        let (from, to) = (self.shape(read), self.shape(v));
        self.fail(n, format!("{from:?} cannot be seen as {to:?}"))
    }

    /// Dense row-major memory under a reshape whose factors no rule takes apart. Sizes that no rule
    /// shows to be equal are taken to be, and checked for every request; `None` for other views
    /// and for sizes that do differ.
    fn reshape_dense(&mut self, n: NodeId, l: &Located, view: &graph::View) -> Option<Located> {
        let graph::View::Reshape(shape) = view else {
            return None;
        };
        let (from, to) = (l.layout.size(), Dim::product(shape));
        if from != to {
            if from.known().is_some() && to.known().is_some() {
                return None;
            }
            self.constrain(&self.origins(&[n]).join(" "), &from, &to);
        }
        Some(Located {
            ix: l.ix,
            layout: Layout {
                offset: l.layout.offset.clone(),
                modes: Layout::row_major(shape, 1).modes,
            },
        })
    }

    /// Records that two extents must be equal when the model runs; each pair once, for the node that
    /// relies on it first.
    pub fn constrain(&mut self, node: &str, left: &Dim, right: &Dim) {
        let pair = match left <= right {
            true => (left.clone(), right.clone()),
            false => (right.clone(), left.clone()),
        };
        if left != right && self.constrained.insert(pair) {
            self.program.constraints.push(plan::Constraint {
                node: node.into(),
                left: left.clone(),
                right: right.clone(),
            });
        }
    }

    /// `l` with extents exactly `want` where it is not 1 (`None`: anything goes). Extents that no
    /// rule shows to be equal are taken to be, and checked for every request.
    pub fn fit(
        &mut self,
        l: Located,
        want: &[Option<Dim>],
        dtype: DType,
        name: &str,
    ) -> Result<Located> {
        let mut l = l;
        for d in 0..l.layout.modes.len() {
            let e = l.layout.modes[d].extent();
            let Some(Some(w)) = want.get(d) else { continue };
            if e == *w || e.is_one() {
                continue;
            }
            if let (Some(a), Some(b)) = (e.known(), w.known()) {
                return Err(PlannerError::Node {
                    node: name.into(),
                    op: "tensor".into(),
                    why: format!("an extent is {a} where {b} is needed"),
                });
            }
            self.constrain(name, &e, w);
            let mode = match crate::located::with_extent(&l.layout.modes[d], w) {
                Some(m) => m,
                None => {
                    l = self.materialise(&l, dtype, name, &[])?;
                    match crate::located::with_extent(&l.layout.modes[d], w) {
                        Some(m) => m,
                        None => continue,
                    }
                }
            };
            l.layout.modes[d] = mode;
        }
        Ok(l)
    }

    /// A dense row-major copy.
    pub fn materialise(
        &mut self,
        from: &Located,
        dtype: DType,
        name: &str,
        nodes: &[String],
    ) -> Result<Located> {
        let shape = from.layout.shape();
        let order = row_major(shape.len());
        self.copy_to(from, dtype, name, &order, nodes)
    }

    /// A dense copy with memory order `order`.
    pub fn copy_to(
        &mut self,
        from: &Located,
        dtype: DType,
        name: &str,
        order: &[usize],
        nodes: &[String],
    ) -> Result<Located> {
        let shape = from.layout.shape();
        let to = self.new_value(&format!("{name}.moved"), dtype, &shape, order);
        self.copy(from, &to, dtype, name, nodes)?;
        Ok(to)
    }

    /// The program value that holds `v` alone, dense and row-major; made if there is none.
    pub fn dense(&mut self, v: ValueId) -> Result<ValueIx> {
        let l = self.locate(v)?;
        let whole = self.program.value(l.ix).storage == Dim::product(self.shape(v));
        if whole && l.layout.is_row_major(1) {
            let shape = self.shape(v).to_vec();
            let value = &mut self.program.values[l.ix as usize];
            if matches!(value.origin, ValueOrigin::Made) && !value.layout.is_row_major(1) {
                // Seen through this view its memory is row-major, and it is declared so: nobody
                // else relies on the old form, which host operators and ports do not take.
                value.shape = shape;
                value.layout = l.layout.clone();
            }
        }
        // Host operators see the program value's own shape.
        let whole = whole && self.program.value(l.ix).shape == self.shape(v);
        if whole && l.layout.is_row_major(1) {
            return Ok(l.ix);
        }
        let nodes: Vec<String> = self
            .graph
            .producer(v)
            .map(|n| n.origins.iter().map(|o| o.name.clone()).collect())
            .unwrap_or_default();
        let m = self.materialise(&l, self.dtype(v), self.name(v), &nodes)?;
        Ok(m.ix)
    }

    /// Adds a kernel to the init segment when it reads constants only, else to the current segment.
    pub fn emit(&mut self, kernel: kernel::Kernel, args: Vec<ValueIx>, nodes: Vec<String>) {
        self.emit_as(kernel, args, nodes, None);
    }

    /// As [`Lowering::emit`] for a kernel that is to run as `given` says.
    pub fn emit_as(
        &mut self,
        mut kernel: kernel::Kernel,
        args: Vec<ValueIx>,
        nodes: Vec<String>,
        given: Option<Arc<kernel::Given>>,
    ) {
        let reads = kernel
            .operands
            .iter()
            .zip(&args)
            .filter(|(o, _)| o.role == kernel::Role::Read);
        let constant = reads.clone().all(|(_, &a)| {
            matches!(
                self.program.value(a).origin,
                ValueOrigin::Weight(_) | ValueOrigin::Init
            )
        });
        let mut symbols = Default::default();
        kernel.for_each_dim_mut(&mut |d| {
            self.dims.share(d);
            d.symbols(&mut symbols);
        });
        // Where there are no elements the kernel may not show what its results' extents depend on.
        for (o, &a) in kernel.operands.iter().zip(&args) {
            if o.role == kernel::Role::Write {
                let shape = &self.program.value(a).shape;
                shape.iter().for_each(|d| d.symbols(&mut symbols));
            }
        }
        // An output of the model is the caller's memory: the init segment cannot fill it.
        let shared = args.iter().any(|&a| self.concats.is_shared(a));
        let init = constant && symbols.is_empty() && !self.per_request && !shared;
        for (o, &a) in kernel.operands.iter().zip(&args) {
            if o.role == kernel::Role::Write {
                self.program.values[a as usize].origin = if init {
                    ValueOrigin::Init
                } else {
                    ValueOrigin::Made
                };
            }
        }
        let item = Item {
            name: kernel.name.clone(),
            work: ItemWork::Kernel {
                kernel: kernel.into(),
                args,
            },
            nodes,
            given,
        };
        if init {
            self.program.init.push(item);
        } else {
            self.push(item);
        }
    }

    /// Adds an item to the current straight segment.
    pub fn push(&mut self, item: Item) {
        match self.program.segments.last_mut() {
            Some(Segment::Straight(items)) => items.push(item),
            _ => self.program.segments.push(Segment::Straight(vec![item])),
        }
    }

    /// Lowers one group.
    pub fn group(&mut self, g: &Group) -> Result<()> {
        match g.anchor {
            // The products that read it make its numbers themselves.
            Anchor::Map if matches!(g.nodes.as_slice(), [n] if self.absorbed(*n)) => Ok(()),
            Anchor::Map | Anchor::Row => self.pointwise(g),
            Anchor::Node(n) => match &self.graph.node(n).op {
                Op::Contract(_) => self.contract(g, n),
                Op::Conv(_) => self.conv(g, n),
                Op::Pool(_) => self.pool(g, n),
                _ => self.attention(g, n),
            },
            Anchor::Alone(n) => self.alone(n),
        }
    }
}

/// Dimensions in their own order.
pub(crate) fn row_major(rank: usize) -> Vec<usize> {
    (0..rank).collect()
}

/// Number of elements behind a layout, for the cost model: positions along axes that move.
pub(crate) fn touched(layout: &Layout) -> Dim {
    Dim::product(
        layout
            .modes
            .iter()
            .flat_map(|m| &m.leaves)
            .filter(|l| !l.stride.is_zero())
            .map(|l| &l.extent),
    )
}

/// Values of a group that somebody outside reads, or that are outputs: they must be stored.
pub(crate) fn stored_values(
    lowering: &Lowering,
    g: &Group,
    readers: &[Vec<NodeId>],
) -> Vec<ValueId> {
    let mut out = Vec::new();
    let escapes = |v: ValueId| -> bool {
        let mut stack = vec![v];
        while let Some(v) = stack.pop() {
            if lowering.is_output[v.0 as usize] {
                return true;
            }
            for &r in &readers[v.0 as usize] {
                if !matches!(lowering.graph.node(r).op, Op::View(_)) {
                    if !g.nodes.contains(&r) {
                        return true;
                    }
                } else {
                    stack.extend(&lowering.graph.node(r).outputs);
                }
            }
        }
        false
    };
    for &n in &g.nodes {
        if matches!(lowering.graph.node(n).op, Op::View(_)) {
            continue;
        }
        out.extend(
            lowering
                .graph
                .node(n)
                .outputs
                .iter()
                .copied()
                .filter(|&v| escapes(v)),
        );
    }
    out
}

pub(crate) use epilogue::Body;
pub(crate) type Builder = KernelBuilder;
