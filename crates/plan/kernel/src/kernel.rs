//! The data of kernels: axes, operands with their accesses, tiles and statements. The planner builds them;
//! schedules (`schedule`) say how they run. Rules are in `verify`.
use crate::Seen;
use expr::{Expr, Monoid};
use layout::{Arrange, DType, Dim, Leaf};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// Index into [`Kernel::axes`].
pub type AxisId = u16;
/// Index into [`Kernel::operands`].
pub type OperandId = u16;
/// Index into [`Kernel::tiles`].
pub type TileId = u16;

/// What kind of loop nest a kernel is: the name under which efficiencies and tables list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Family {
    Contract,
    Conv,
    Map,
    Row,
    Pool,
    Move,
    Attention,
    Recurrent,
    Select,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 9] = [
        Family::Contract,
        Family::Conv,
        Family::Map,
        Family::Row,
        Family::Pool,
        Family::Move,
        Family::Attention,
        Family::Recurrent,
        Family::Select,
    ];
}

/// One axis of a kernel's iteration space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Short name, unique in the kernel (`m`, `oh`, `k`).
    pub name: String,
    /// Number of positions; a parameter of the plan.
    pub extent: Dim,
}

/// Part of an address: an axis' coordinate, taken apart by leaves (outermost first, row-major rank)
/// of which each contributes its part times its stride. Strides are in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Term {
    /// The axis.
    pub axis: AxisId,
    /// Its mode; one leaf for a plain stride. The leaves' extents multiply to at least the axis'
    /// extent (blocked layouts are padded).
    pub leaves: Vec<Leaf>,
}

/// A condition `0 <= base + sum(coefficient * coordinate) < extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bound {
    /// Axes with their coefficients.
    pub terms: Vec<(AxisId, Dim)>,
    /// Constant part.
    pub base: Dim,
    /// Upper end, exclusive.
    pub extent: Dim,
}

/// Part of an address that another operand gives: `stride * index`, where `index` is that operand's
/// value at the same coordinates (negative: counted from `extent`). An index outside
/// `-extent..extent` fails the request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Indexed {
    /// An earlier Read operand of integer type.
    pub by: OperandId,
    /// Elements per index step.
    pub stride: Dim,
    /// Number of valid indices.
    pub extent: Dim,
}

/// Where an operand's element for given coordinates lies: `offset + terms + indexed`, in elements.
/// Where a bound fails a load gives `outside` and a store does nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Address of coordinate 0.
    pub offset: Dim,
    /// At most one per axis; axes without a term do not matter (broadcast).
    pub terms: Vec<Term>,
    /// All must hold.
    pub bounds: Vec<Bound>,
    /// Value of a load outside the bounds (an f64 that converts to the operand's type; NaN-free).
    #[serde(with = "float")]
    pub outside: f64,
    /// Gathered parts.
    pub indexed: Vec<Indexed>,
}

/// Whether an operand is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Only loaded.
    Read,
    /// Only stored.
    Write,
}

/// Numbers that JSON does not have as words.
mod float {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(f64),
        Word(String),
    }

    pub fn serialize<S: Serializer>(v: &f64, s: S) -> Result<S::Ok, S::Error> {
        if v.is_finite() || !s.is_human_readable() {
            s.serialize_f64(*v)
        } else {
            s.collect_str(v)
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        if !d.is_human_readable() {
            return f64::deserialize(d);
        }
        match Form::deserialize(d)? {
            Form::Number(n) => Ok(n),
            Form::Word(w) => match w.as_str() {
                "inf" => Ok(f64::INFINITY),
                "-inf" => Ok(f64::NEG_INFINITY),
                _ => Err(serde::de::Error::custom(format!("'{w}' is no number"))),
            },
        }
    }
}

/// A tensor in memory as the kernel sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operand {
    /// Short name, unique in the kernel.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Read or written.
    pub role: Role,
    /// Addressing.
    pub access: Access,
    /// Number of distinct elements that the kernel can touch (for the cost model).
    pub elements: Dim,
}

impl Operand {
    /// One of `elements` elements. The value outside bounds has no meaning without any and is 0 there, so
    /// that kernels that mean the same are the same.
    pub fn new(name: &str, dtype: DType, role: Role, access: Access, elements: Dim) -> Operand {
        let mut access = access;
        if access.bounds.is_empty() {
            access.outside = 0.0;
        }
        Operand {
            name: name.into(),
            dtype,
            role,
            access,
            elements,
        }
    }
}

/// A value over a set of axes: a whole tile once scheduled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tile {
    /// Short name, unique in the kernel.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Axes, outermost first (the order of a tile's own storage); empty for a scalar.
    pub axes: Vec<AxisId>,
}

/// Tiles multiplied by `factor` when a fold's state changes: how sums that were taken relative to
/// an old state are carried to the new one (online softmax).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rescale {
    /// Tiles whose axes include the state's axes.
    pub tiles: Vec<TileId>,
    /// Program of (old state.., new state..).
    pub factor: Expr,
}

/// A label of a relabelled tile: the source's axis `from` is read at `first` + the coordinate along
/// the result's axis `to`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    /// Axis of the source.
    pub from: AxisId,
    /// Axis of the result.
    pub to: AxisId,
    /// The coordinate along `from` that is the result's coordinate 0.
    pub first: Dim,
}

/// A statement on whole tiles.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant)] // A kernel has a handful of statements.
pub enum Stmt {
    /// `dst[axes] = operand[axes]`; in a schedule's [`crate::Place`] it says whether the tile is
    /// a copy in a nearer level or the operand's own memory.
    Load {
        /// Defined tile.
        dst: TileId,
        /// Read operand.
        operand: OperandId,
    },
    /// `operand[axes of src] = src`.
    Store {
        /// Written operand.
        operand: OperandId,
        /// Stored tile.
        src: TileId,
    },
    /// `dst = expr(args)`, arguments broadcast by axis label; `Index(a)` is the coordinate along
    /// kernel axis `a`. Without arguments it fills.
    Map {
        /// Defined (or redefined) tile.
        dst: TileId,
        /// Program with one output.
        expr: Expr,
        /// One tile per slot.
        args: Vec<TileId>,
    },
    /// `acc[axes] += sum over 'over' of a * b`, products and sums in the type of `acc`. Axes of
    /// both `a` and `b` outside `over` are batch axes (depthwise convolution has its channel there).
    Contract {
        /// Accumulator, filled before.
        acc: TileId,
        /// Left factor.
        a: TileId,
        /// Right factor.
        b: TileId,
        /// Summed axes.
        over: Vec<AxisId>,
    },
    /// `state = combine(state, lift(args) reduced over 'over')` in ascending index order;
    /// the state is filled with the identity before. `Index(0)` in `lift` is the row-major rank
    /// of the coordinates along `over`.
    Fold {
        /// The reduction.
        monoid: Monoid,
        /// One tile per state scalar.
        state: Vec<TileId>,
        /// One tile per slot of `lift`.
        args: Vec<TileId>,
        /// Reduced axes.
        over: Vec<AxisId>,
        /// What depends on the state's old value.
        rescale: Option<Rescale>,
    },
    /// `dst[.., to, ..] = src[.., first + to, ..]`: the source, or a part of it, along other labels;
    /// axes that no label names keep theirs.
    ///
    /// With `along` the result lacks that axis of the source: it is what the source holds at the
    /// present position, and the next position finds it there. An axis that something is carried
    /// along is *ordered*: its positions are gone through one by one, in ascending order.
    Relabel {
        /// Defined tile; one that is carried is defined before as well, for the first position.
        dst: TileId,
        /// Read tile.
        src: TileId,
        /// Axes that get another label.
        labels: Vec<Label>,
        /// The ordered axis that the result is carried along.
        along: Option<AxisId>,
    },
}

/// What a step computes: axes, operands, and statements in order.
///
/// A tile is defined by a `Load` or `Map` before it is used; accumulators and fold states are
/// filled by a `Map` without arguments first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Name for people.
    pub name: String,
    /// Family.
    pub family: Family,
    /// Iteration space.
    pub axes: Vec<Axis>,
    /// Tensors.
    pub operands: Vec<Operand>,
    /// Values.
    pub tiles: Vec<Tile>,
    /// Statements.
    pub body: Vec<Stmt>,
}

impl Kernel {
    /// Feeds a hasher with all but names: kernels that differ in those alone have one hash.
    pub fn hash_unnamed(&self, to: &mut impl Hasher) {
        self.family.hash(to);
        self.axes.iter().for_each(|a| a.extent.hash(to));
        for o in &self.operands {
            let a = &o.access;
            (o.dtype, o.role, &o.elements).hash(to);
            (
                &a.offset,
                &a.terms,
                &a.bounds,
                &a.indexed,
                a.outside.to_bits(),
            )
                .hash(to);
        }
        self.tiles.iter().for_each(|t| (t.dtype, &t.axes).hash(to));
        self.body.hash(to);
    }

    /// Whether two kernels are one but for the names of themselves, their operands and their tiles.
    pub fn same_unnamed(&self, other: &Kernel) -> bool {
        let operand = |(a, b): (&Operand, &Operand)| {
            a.dtype == b.dtype
                && a.role == b.role
                && a.access == b.access
                && a.elements == b.elements
        };
        let tile = |(a, b): (&Tile, &Tile)| a.dtype == b.dtype && a.axes == b.axes;
        self.family == other.family
            && self.axes == other.axes
            && self.body == other.body
            && self.operands.len() == other.operands.len()
            && self.tiles.len() == other.tiles.len()
            && self.tiles.iter().zip(&other.tiles).all(tile)
            && self.operands.iter().zip(&other.operands).all(operand)
    }
}

impl Term {
    /// A plain stride.
    pub fn flat(axis: AxisId, extent: Dim, stride: Dim) -> Term {
        Term {
            axis,
            leaves: vec![Leaf { extent, stride }],
        }
    }

    /// The stride, when there is a single leaf.
    pub fn stride(&self) -> Option<&Dim> {
        match self.leaves.as_slice() {
            [l] => Some(&l.stride),
            _ => None,
        }
    }
}

/// The dims of an access, by reference or for a change.
macro_rules! each_dim_of_access {
    ($access:ident, $f:ident, $iter:ident, $($of:tt)+) => {
        $f($($of)+ $access.offset);
        for l in $access.terms.$iter().flat_map(|t| t.leaves.$iter()) {
            $f($($of)+ l.extent);
            $f($($of)+ l.stride);
        }
        for b in $access.bounds.$iter() {
            b.terms.$iter().for_each(|t| $f($($of)+ t.1));
            $f($($of)+ b.base);
            $f($($of)+ b.extent);
        }
        for i in $access.indexed.$iter() {
            $f($($of)+ i.stride);
            $f($($of)+ i.extent);
        }
    };
}

/// The dims of a kernel, by reference or for a change.
macro_rules! each_dim_of_kernel {
    ($kernel:ident, $f:ident, $each:ident, $iter:ident, $($of:tt)+) => {
        $kernel.axes.$iter().for_each(|a| $f($($of)+ a.extent));
        for o in $kernel.operands.$iter() {
            o.access.$each($f);
            $f($($of)+ o.elements);
        }
        for s in $kernel.body.$iter() {
            let mut program = |e: $($of)+ Expr| {
                for i in e.insts.$iter() {
                    if let expr::Inst::Dim(d) = i {
                        $f(d);
                    }
                }
            };
            match s {
                Stmt::Map { expr, .. } => program(expr),
                Stmt::Fold {
                    monoid, rescale, ..
                } => {
                    program($($of)+ monoid.identity);
                    program($($of)+ monoid.lift);
                    program($($of)+ monoid.combine);
                    program($($of)+ monoid.finish);
                    if let Some(r) = rescale {
                        program($($of)+ r.factor);
                    }
                }
                Stmt::Relabel { labels, .. } => labels.$iter().for_each(|l| $f($($of)+ l.first)),
                _ => {}
            }
        }
    };
}

impl Access {
    /// Unbounded access with plain strides.
    pub fn strided(offset: Dim, terms: Vec<Term>) -> Access {
        Access {
            offset,
            terms,
            bounds: Vec::new(),
            outside: 0.0,
            indexed: Vec::new(),
        }
    }

    /// The term of `axis`, if it matters.
    pub fn term(&self, axis: AxisId) -> Option<&Term> {
        self.terms.iter().find(|t| t.axis == axis)
    }

    /// Calls `f` for every dimension expression, in a fixed order.
    pub fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        each_dim_of_access!(self, f, iter, &);
    }

    /// As [`Access::for_each_dim`], for a change.
    pub fn for_each_dim_mut(&mut self, f: &mut dyn FnMut(&mut Dim)) {
        each_dim_of_access!(self, f, iter_mut, &mut);
    }
}

/// Tiles of a statement.
pub type TileIds = layout::Few<TileId, 4>;

impl Stmt {
    /// Tiles read (accumulators and states included).
    pub fn reads(&self) -> TileIds {
        match self {
            Stmt::Load { .. } => TileIds::new(),
            Stmt::Store { src, .. } => [*src][..].into(),
            Stmt::Map { args, .. } => args[..].into(),
            Stmt::Relabel { src, .. } => [*src][..].into(),
            Stmt::Contract { acc, a, b, .. } => [*acc, *a, *b][..].into(),
            Stmt::Fold {
                state,
                args,
                rescale,
                ..
            } => {
                let rescaled = rescale.iter().flat_map(|r| &r.tiles);
                args.iter().chain(state).chain(rescaled).copied().collect()
            }
        }
    }

    /// Tiles written.
    pub fn writes(&self) -> TileIds {
        match self {
            Stmt::Load { dst, .. } | Stmt::Map { dst, .. } | Stmt::Relabel { dst, .. } => {
                [*dst][..].into()
            }
            Stmt::Store { .. } => TileIds::new(),
            Stmt::Contract { acc, .. } => [*acc][..].into(),
            Stmt::Fold { state, rescale, .. } => {
                let rescaled = rescale.iter().flat_map(|r| &r.tiles);
                state.iter().chain(rescaled).copied().collect()
            }
        }
    }

    /// The constant program, when this fills a tile.
    pub fn as_fill(&self) -> Option<(TileId, &Expr)> {
        match self {
            Stmt::Map { dst, expr, args } if args.is_empty() => Some((*dst, expr)),
            _ => None,
        }
    }

    /// Axes that this statement sums, folds or carries its result over.
    pub fn over(&self) -> &[AxisId] {
        match self {
            Stmt::Contract { over, .. } | Stmt::Fold { over, .. } => over,
            Stmt::Relabel { along, .. } => along.as_slice(),
            _ => &[],
        }
    }
}

impl Kernel {
    /// Axes on which it depends which element of an operand a position reads or writes, and whether there is one.
    pub fn depends(&self, operand: OperandId) -> Vec<AxisId> {
        let a = &self.operands[operand as usize].access;
        let mut axes: Vec<AxisId> = a.terms.iter().map(|t| t.axis).collect();
        axes.extend(a.bounds.iter().flat_map(|b| b.terms.iter().map(|t| t.0)));
        axes.extend(a.indexed.iter().flat_map(|i| self.depends(i.by)));
        axes.arrange();
        axes.dedup();
        axes
    }

    /// Axes that tiles are carried along, ascending: a schedule goes through their positions one by
    /// one, in order, in its outermost loops.
    pub fn ordered(&self) -> Vec<AxisId> {
        let along = |s: &Stmt| match s {
            Stmt::Relabel { along, .. } => *along,
            _ => None,
        };
        let mut axes: Vec<AxisId> = self.body.iter().filter_map(along).collect();
        axes.arrange();
        axes.dedup();
        axes
    }

    /// Calls `f` for every dimension expression (axis extents, accesses, programs), in a fixed
    /// order: these are the kernel's parameters.
    pub fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        each_dim_of_kernel!(self, f, for_each_dim, iter, &);
    }

    /// As [`Kernel::for_each_dim`], for a change.
    pub fn for_each_dim_mut(&mut self, f: &mut dyn FnMut(&mut Dim)) {
        each_dim_of_kernel!(self, f, for_each_dim_mut, iter_mut, &mut);
    }
}

/// An axis cut into pieces of `tile` positions (the last may be shorter).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AxisTile {
    /// The axis.
    pub axis: AxisId,
    /// Positions per piece, at least 1.
    pub tile: i64,
}

/// One entry of a tile program's body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::large_enum_variant)] // A program has a handful of statements.
pub enum Node {
    /// Sequential loop over the pieces of an axis, but those that no row of the task sees any position of.
    Loop {
        /// Axis and piece.
        axis: AxisTile,
        /// The positions that matter.
        #[serde(default)]
        seen: Seen,
        /// Body.
        body: Vec<Node>,
    },
    /// A statement on the current tiles.
    Stmt(Stmt),
}
