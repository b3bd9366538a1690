//! Assembling kernels: axes, operands, tiles and statements with fitting labels.
use expr::{Expr, ExprBuilder, Monoid};
use kernel::{
    Access, Axis, AxisId, Bound, Family, Kernel, Label, Operand, OperandId, Rescale, Role, Stmt,
    Term, Tile, TileId,
};
use layout::{Arrange, DType, Dim, Layout, Leaf};
use plan::ValueIx;

/// A kernel under construction with the program values of its operands.
pub(crate) struct KernelBuilder {
    kernel: Kernel,
    args: Vec<ValueIx>,
}

impl KernelBuilder {
    /// Program values of the operands so far, with what the kernel does to them.
    pub fn values(&self) -> Vec<(ValueIx, Role)> {
        let roles = self.kernel.operands.iter().map(|o| o.role);
        self.args.iter().copied().zip(roles).collect()
    }

    pub fn new(name: &str, family: Family) -> KernelBuilder {
        KernelBuilder {
            kernel: Kernel {
                name: name.into(),
                family,
                axes: vec![],
                operands: vec![],
                tiles: vec![],
                body: vec![],
            },
            args: vec![],
        }
    }

    pub fn axis(&mut self, name: &str, extent: &Dim) -> AxisId {
        let taken = |n: &str| self.kernel.axes.iter().any(|a| a.name == n);
        let mut unique = name.to_string();
        let mut i = 1;
        while taken(&unique) {
            i += 1;
            unique = format!("{name}_{i}");
        }
        self.kernel.axes.push(Axis {
            name: unique,
            extent: extent.clone(),
        });
        (self.kernel.axes.len() - 1) as AxisId
    }

    pub fn extent(&self, axis: AxisId) -> &Dim {
        &self.kernel.axes[axis as usize].extent
    }

    pub fn tile_axes(&self, t: TileId) -> &[AxisId] {
        &self.kernel.tiles[t as usize].axes
    }

    pub fn tile_dtype(&self, t: TileId) -> DType {
        self.kernel.tiles[t as usize].dtype
    }

    fn unique(&self, name: &str) -> String {
        let taken = |n: &str| {
            self.kernel.tiles.iter().any(|t| t.name == n)
                || self.kernel.operands.iter().any(|o| o.name == n)
        };
        let mut unique = name.to_string();
        let mut i = 1;
        while taken(&unique) {
            i += 1;
            unique = format!("{name}{i}");
        }
        unique
    }

    pub fn tile(&mut self, name: &str, dtype: DType, axes: &[AxisId]) -> TileId {
        let mut axes = axes.to_vec();
        axes.arrange();
        axes.dedup();
        let name = self.unique(name);
        self.kernel.tiles.push(Tile { name, dtype, axes });
        (self.kernel.tiles.len() - 1) as TileId
    }

    pub fn operand(
        &mut self,
        name: &str,
        dtype: DType,
        role: Role,
        access: Access,
        elements: Dim,
        value: ValueIx,
    ) -> OperandId {
        let name = self.unique(name);
        let o = Operand::new(&name, dtype, role, access, elements);
        self.kernel.operands.push(o);
        self.args.push(value);
        (self.kernel.operands.len() - 1) as OperandId
    }

    /// A read operand with its load; axes are those of the access (and of what it is indexed by).
    pub fn load(
        &mut self,
        name: &str,
        dtype: DType,
        access: Access,
        elements: Dim,
        value: ValueIx,
    ) -> TileId {
        let mut axes: Vec<AxisId> = access.terms.iter().map(|t| t.axis).collect();
        axes.extend(
            access
                .bounds
                .iter()
                .flat_map(|b| b.terms.iter().map(|t| t.0)),
        );
        for i in &access.indexed {
            axes.extend(
                self.kernel.operands[i.by as usize]
                    .access
                    .terms
                    .iter()
                    .map(|t| t.axis),
            );
        }
        let o = self.operand(name, dtype, Role::Read, access, elements, value);
        let t = self.tile(name, dtype, &axes);
        self.kernel.body.push(Stmt::Load { dst: t, operand: o });
        t
    }

    pub fn map(
        &mut self,
        name: &str,
        dtype: DType,
        axes: &[AxisId],
        expr: Expr,
        args: &[TileId],
    ) -> TileId {
        let t = self.tile(name, dtype, axes);
        self.kernel.body.push(Stmt::Map {
            dst: t,
            expr,
            args: args.to_vec(),
        });
        t
    }

    pub fn fill(&mut self, name: &str, dtype: DType, axes: &[AxisId], value: f64) -> TileId {
        let mut b = ExprBuilder::new();
        let c = b.constant(value, dtype);
        let e = b.finish(&[c]);
        self.map(name, dtype, axes, e, &[])
    }

    pub fn contract(&mut self, acc: TileId, a: TileId, b: TileId, over: &[AxisId]) {
        self.kernel.body.push(Stmt::Contract {
            acc,
            a,
            b,
            over: over.to_vec(),
        });
    }

    pub fn relabel(&mut self, dst: TileId, src: TileId, labels: Vec<Label>, along: Option<AxisId>) {
        self.kernel.body.push(Stmt::Relabel {
            dst,
            src,
            labels,
            along,
        });
    }

    /// Identity fills, the fold, and the finishing maps: one result tile per monoid result.
    pub fn reduce(
        &mut self,
        monoid: &Monoid,
        args: &[TileId],
        over: &[AxisId],
    ) -> Result<Vec<TileId>, expr::ExprError> {
        let mut axes: Vec<AxisId> = args
            .iter()
            .flat_map(|&a| self.tile_axes(a).to_vec())
            .collect();
        axes.retain(|a| !over.contains(a));
        let types = monoid.identity.output_types()?;
        let mut state = Vec::new();
        for (i, &ty) in types.iter().enumerate() {
            let e = single(&monoid.identity, i);
            state.push(self.map(&monoid.name, ty, &axes, e, &[]));
        }
        self.kernel.body.push(Stmt::Fold {
            monoid: monoid.clone(),
            state: state.clone(),
            args: args.to_vec(),
            over: over.to_vec(),
            rescale: None,
        });
        let mut out = Vec::new();
        for (i, ty) in monoid.finish.output_types()?.into_iter().enumerate() {
            let e = single(&monoid.finish, i);
            let plain = matches!(e.insts.as_slice(), [expr::Inst::Input { .. }]);
            out.push(match (plain, &e.insts[0]) {
                (true, expr::Inst::Input { slot, .. }) => state[*slot as usize],
                _ => self.map(&monoid.name, ty, &axes, e, &state),
            });
        }
        Ok(out)
    }

    pub fn fold(
        &mut self,
        monoid: Monoid,
        state: TileId,
        arg: TileId,
        over: &[AxisId],
        rescale: Option<Rescale>,
    ) {
        self.kernel.body.push(Stmt::Fold {
            monoid,
            state: vec![state],
            args: vec![arg],
            over: over.to_vec(),
            rescale,
        });
    }

    pub fn store(
        &mut self,
        name: &str,
        access: Access,
        elements: Dim,
        value: ValueIx,
        src: TileId,
    ) {
        let dtype = self.tile_dtype(src);
        // What is stored has all axes of the store: a value that repeats along some is spread first.
        let mut axes: Vec<AxisId> = access.terms.iter().map(|t| t.axis).collect();
        axes.arrange();
        axes.dedup();
        let held = self.tile_axes(src).to_vec();
        let src = match axes != held && held.iter().all(|a| axes.contains(a)) {
            true => self.map(name, dtype, &axes, Expr::identity(dtype), &[src]),
            false => src,
        };
        let o = self.operand(name, dtype, Role::Write, access, elements, value);
        self.kernel.body.push(Stmt::Store { operand: o, src });
    }

    pub fn store_to(&mut self, operand: OperandId, src: TileId) {
        self.kernel.body.push(Stmt::Store { operand, src });
    }

    /// The kernel with single-use maps merged and neighbouring axes joined, and its arguments.
    pub fn finish(self) -> (Kernel, Vec<ValueIx>) {
        (super::simplify::simplify(self.kernel), self.args)
    }

    /// Extents of `axes`.
    pub fn extents(&self, axes: &[AxisId]) -> Vec<Dim> {
        axes.iter().map(|&a| self.extent(a).clone()).collect()
    }

    /// Access of a tensor under `layout` whose dimension `d` runs along the kernel axes `dims[d]`
    /// (outermost first; none for an extent of 1 or a broadcast); `None` when a dimension's mode
    /// cannot be taken apart as the axes are.
    pub fn access(&self, layout: &Layout, dims: &[Vec<AxisId>]) -> Option<Access> {
        let mut terms = Vec::new();
        for (mode, axes) in layout.modes.iter().zip(dims) {
            if mode.extent().is_one() || axes.is_empty() {
                continue;
            }
            match mode.refine(&self.extents(axes)) {
                Some(m) => {
                    for (leaf, &axis) in m.leaves.into_iter().zip(axes) {
                        if !leaf.stride.is_zero() {
                            terms.push(Term {
                                axis,
                                leaves: vec![leaf],
                            });
                        }
                    }
                }
                None if axes.len() == 1 => terms.push(Term {
                    axis: axes[0],
                    leaves: mode.coalesce().leaves,
                }),
                None => return None,
            }
        }
        terms.arrange_by_key(|t| t.axis);
        Some(Access::strided(layout.offset.clone(), terms))
    }
}

/// The program with output `i` only.
pub(crate) fn single(e: &Expr, i: usize) -> Expr {
    let mut b = ExprBuilder::new();
    let outs = b.append(e, None);
    b.finish(&[outs[i]])
}

/// A dimension read with a window: coordinate `out * stride + tap * dilation - before`, checked
/// against the extent unless it provably stays inside. Adds to `access`.
pub(crate) struct Window<'a> {
    pub out: Option<AxisId>,
    pub tap: Option<AxisId>,
    pub stride: i64,
    pub dilation: i64,
    pub base: Dim,
    /// Extent of the tensor's dimension.
    pub extent: &'a Dim,
    /// Largest coordinate, when it is known to stay inside.
    pub inside: bool,
}

impl Window<'_> {
    /// Adds the dimension's terms, offset and bound, for a memory stride of `step` elements.
    pub fn apply(&self, b: &KernelBuilder, access: &mut Access, step: &Dim) {
        access.offset = access.offset.clone() + self.base.clone() * step.clone();
        let mut terms = Vec::new();
        for (axis, factor) in [(self.out, self.stride), (self.tap, self.dilation)] {
            if let Some(axis) = axis {
                let factor = Dim::Known(factor);
                let stride = step.clone() * factor.clone();
                access.terms.push(Term {
                    axis,
                    leaves: vec![Leaf {
                        extent: b.extent(axis).clone(),
                        stride,
                    }],
                });
                terms.push((axis, factor));
            }
        }
        access.terms.arrange_by_key(|t| t.axis);
        if !self.inside {
            access.bounds.push(Bound {
                terms,
                base: self.base.clone(),
                extent: self.extent.clone(),
            });
        }
    }
}
