//! A builder for kernels, statement by statement. Tests and measuring commands use it; the planner has its own.
use crate::kernel::*;
use expr::{Expr, ExprBuilder, Monoid};
use layout::{Arrange, DType, Dim};

/// Assembles a kernel statement by statement.
#[derive(Clone, Debug)]
pub struct KernelBuilder {
    /// What there is so far.
    pub k: Kernel,
}

impl KernelBuilder {
    /// A kernel without statements over axes with their extents.
    pub fn new(name: &str, family: Family, axes: &[(&str, Dim)]) -> KernelBuilder {
        let axes = axes
            .iter()
            .map(|(n, e)| Axis {
                name: n.to_string(),
                extent: e.clone(),
            })
            .collect();
        KernelBuilder {
            k: Kernel {
                name: name.into(),
                family,
                axes,
                operands: vec![],
                tiles: vec![],
                body: vec![],
            },
        }
    }

    /// Extent of an axis.
    pub fn extent(&self, a: AxisId) -> Dim {
        self.k.axes[a as usize].extent.clone()
    }

    /// Row-major access over `axes`.
    pub fn dense(&self, axes: &[AxisId]) -> Access {
        let mut stride = Dim::ONE;
        let mut terms = Vec::new();
        for &a in axes.iter().rev() {
            terms.push(Term::flat(a, self.extent(a), stride.clone()));
            stride = stride * self.extent(a);
        }
        terms.arrange_by_key(|t| t.axis);
        Access::strided(Dim::ZERO, terms)
    }

    /// A tile over `axes`, in any order.
    pub fn tile(&mut self, name: &str, dtype: DType, axes: &[AxisId]) -> TileId {
        let mut axes = axes.to_vec();
        axes.arrange();
        axes.dedup();
        self.k.tiles.push(Tile {
            name: name.into(),
            dtype,
            axes,
        });
        (self.k.tiles.len() - 1) as TileId
    }

    /// An operand of `elements` elements.
    pub fn operand(
        &mut self,
        name: &str,
        dtype: DType,
        role: Role,
        access: Access,
        elements: Dim,
    ) -> OperandId {
        let o = Operand::new(name, dtype, role, access, elements);
        self.k.operands.push(o);
        (self.k.operands.len() - 1) as OperandId
    }

    /// Loads an operand, called after the tile, through `access` into a tile.
    pub fn load(&mut self, name: &str, dtype: DType, access: Access, elements: Dim) -> TileId {
        let mut axes: Vec<AxisId> = access.terms.iter().map(|t| t.axis).collect();
        axes.extend(
            access
                .bounds
                .iter()
                .flat_map(|b| b.terms.iter().map(|t| t.0)),
        );
        for i in &access.indexed {
            axes.extend(
                self.k.operands[i.by as usize]
                    .access
                    .terms
                    .iter()
                    .map(|t| t.axis),
            );
        }
        let operand = self.operand(&name.to_uppercase(), dtype, Role::Read, access, elements);
        let dst = self.tile(name, dtype, &axes);
        self.k.body.push(Stmt::Load { dst, operand });
        dst
    }

    /// Loads a row-major operand over `axes`.
    pub fn load_dense(&mut self, name: &str, dtype: DType, axes: &[AxisId]) -> TileId {
        let elements = Dim::product(axes.iter().map(|&a| &self.k.axes[a as usize].extent));
        let access = self.dense(axes);
        self.load(name, dtype, access, elements)
    }

    /// A tile computed element by element from others.
    pub fn map(
        &mut self,
        name: &str,
        dtype: DType,
        axes: &[AxisId],
        expr: Expr,
        args: &[TileId],
    ) -> TileId {
        let dst = self.tile(name, dtype, axes);
        self.k.body.push(Stmt::Map {
            dst,
            expr,
            args: args.to_vec(),
        });
        dst
    }

    /// A tile of one value.
    pub fn fill(&mut self, name: &str, dtype: DType, axes: &[AxisId], v: f64) -> TileId {
        let mut b = ExprBuilder::new();
        let c = b.constant(v, dtype);
        self.map(name, dtype, axes, b.finish(&[c]), &[])
    }

    /// Adds products of two tiles to a third, summed over `over`.
    pub fn contract(&mut self, acc: TileId, a: TileId, b: TileId, over: &[AxisId]) {
        self.k.body.push(Stmt::Contract {
            acc,
            a,
            b,
            over: over.to_vec(),
        });
    }

    /// Reduces a tile into one tile of state.
    pub fn fold(
        &mut self,
        monoid: Monoid,
        state: TileId,
        arg: TileId,
        over: &[AxisId],
        rescale: Option<Rescale>,
    ) {
        self.folds(monoid, vec![state], arg, over, rescale);
    }

    /// Reduces a tile into several tiles of state.
    pub fn folds(
        &mut self,
        monoid: Monoid,
        state: Vec<TileId>,
        arg: TileId,
        over: &[AxisId],
        rescale: Option<Rescale>,
    ) {
        self.k.body.push(Stmt::Fold {
            monoid,
            state,
            args: vec![arg],
            over: over.to_vec(),
            rescale,
        });
    }

    /// Stores a tile as a row-major operand over `axes`.
    pub fn store_dense(&mut self, name: &str, src: TileId, axes: &[AxisId]) {
        let elements = Dim::product(axes.iter().map(|&a| &self.k.axes[a as usize].extent));
        let access = self.dense(axes);
        let dtype = self.k.tiles[src as usize].dtype;
        let operand = self.operand(name, dtype, Role::Write, access, elements);
        self.k.body.push(Stmt::Store { operand, src });
    }
}
