//! A compiled tile program: operands, tiles and operations, as data.

use super::fold::ints::Ints;
use super::vm::Program;
use crate::ukr::kernels::{BinaryFn, ReduceFn};
use crate::ukr::{Columns, GemmKernel, Kernels, Pick};
use layout::DType;

/// A tensor in memory as a compiled kernel sees it.
#[derive(Debug)]
pub(crate) struct COperand {
    pub dtype: DType,
    /// Bytes per element; 0 for types of 4 bits.
    pub elem: usize,
    /// Block's buffer.
    pub buffer: usize,
    pub access: CAccess,
    /// `access.outside` as an element's bytes.
    pub outside: [u8; 8],
}

/// A tile of a compiled kernel.
#[derive(Debug)]
pub(crate) struct CTile {
    pub dtype: DType,
    /// Bytes per element.
    pub elem: usize,
    pub axes: Vec<usize>,
    /// `axes` as a bit set.
    pub mask: u32,
    /// Offset of its scratch memory.
    pub offset: usize,
    /// Operand that it may be written straight into.
    pub direct: Option<usize>,
    /// Rows of a product's left factor: they must not lie a multiple of a cache's way apart.
    pub spaced: bool,
}

/// An operation on whole tiles.
#[derive(Debug)]
pub(crate) enum Op {
    /// Over the pieces of an axis from the first position that the rows see to the last.
    Loop {
        axis: usize,
        tile: i64,
        from: Vec<CEdge>,
        to: Vec<CEdge>,
        body: Vec<Op>,
    },
    Load {
        dst: usize,
        operand: usize,
        in_place: bool,
    },
    Store {
        operand: usize,
        src: usize,
    },
    Map(Box<CMap>),
    Fold(Box<CFold>),
    Contract(Box<CContract>),
    Nest(Box<CNest>),
    Nibbles(Box<CNibbles>),
    Pool(Box<CPool>),
    Relabel(Box<CRelabel>),
}

/// A compiled tile program.
#[derive(Debug)]
pub(crate) struct CKernel {
    /// Parameter of each axis' extent.
    pub axes: Vec<u32>,
    /// Axes of the grid with their tiles.
    pub grid: Vec<(usize, i64)>,
    pub operands: Vec<COperand>,
    pub tiles: Vec<CTile>,
    /// Axes of each tile that is stored, as a bit set.
    pub stores: Vec<u32>,
    pub body: Vec<Op>,
    /// Offset of the scratch that every operation may use for itself (programs, rows).
    pub area: usize,
    /// Offset of the row table of contractions.
    pub table: usize,
    /// Offset of packed factors.
    pub pack: usize,
    /// Scratch bytes per worker.
    pub scratch: usize,
    /// Bytes of zeros that rows outside a tensor may be read from.
    pub zeros: usize,
    pub kernels: &'static Kernels,
}

impl CKernel {
    /// Pointers that the row table has room for; 0 where there is none.
    pub(crate) fn pointers(&self) -> i64 {
        ((self.pack - self.table) / size_of::<*const f32>()) as i64
    }
}

#[derive(Debug)]
pub(crate) struct CTerm {
    pub axis: usize,
    /// (extent, stride), outermost first.
    pub leaves: Vec<(u32, u32)>,
}

#[derive(Debug)]
pub(crate) struct CBound {
    pub terms: Vec<(usize, u32)>,
    pub base: u32,
    pub extent: u32,
}

/// A position that depends on coordinates along other axes.
#[derive(Debug)]
pub(crate) struct CEdge {
    /// Axes with their coefficients, and whether these are not negative.
    pub terms: Vec<(usize, u32, bool)>,
    pub base: u32,
}

#[derive(Debug)]
pub(crate) struct CIndexed {
    pub by: usize,
    pub stride: u32,
    pub extent: u32,
}

/// An access whose dims are parameters.
#[derive(Debug)]
pub(crate) struct CAccess {
    pub offset: u32,
    pub terms: Vec<CTerm>,
    pub bounds: Vec<CBound>,
    pub outside: f64,
    pub indexed: Vec<CIndexed>,
}

/// A compiled `Map`.
#[derive(Debug)]
pub(crate) struct CMap {
    pub dst: usize,
    pub args: Vec<usize>,
    pub prog: Program,
    /// The same with every argument given element by element.
    pub flat: Option<Program>,
    /// Kernel axis along lanes; `None` for a scalar tile.
    pub lane: Option<usize>,
}

/// A compiled `Relabel`.
#[derive(Debug)]
pub(crate) struct CRelabel {
    pub dst: usize,
    pub src: usize,
    /// (axis of the source, axis of the result, parameter of the first coordinate).
    pub labels: Vec<(usize, usize, u32)>,
    /// The result has memory of its own: it outlives what the source holds.
    pub copied: bool,
}

/// A monoid that picks elements: the best one, or the first `k` in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arg {
    pub(super) k: usize,
    pub(super) pick: Pick,
}

/// The lift with every argument given element by element.
#[derive(Debug)]
pub(crate) struct Flat {
    pub program: Program,
    /// Offset of its scratch in the operation's area.
    pub at: usize,
    /// Offset of a row of `CH` 8-byte elements per argument.
    pub rows: usize,
}

/// A monoid of one f32 whose combine is one instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simple {
    pub combine: BinaryFn,
    /// Reduction of a row, where a micro-kernel has it.
    pub reduce: Option<ReduceFn>,
    /// Folding of whole columns, where a micro-kernel has it.
    pub columns: Option<unsafe fn(&Columns)>,
    pub lift: Lift,
}

/// Lifts that need no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lift {
    /// The element itself.
    Identity,
    /// The square of the element, summed.
    Square,
    /// The square of (argument 0 - argument 1), argument 1 the same along reduced axes, summed.
    Deviation,
    /// Anything else.
    Program,
}

/// A compiled `Fold` (without rescaling, which is maps of its own).
#[derive(Debug)]
pub(crate) struct CFold {
    pub state: Vec<usize>,
    pub args: Vec<usize>,
    /// Kept and reduced axes, outermost first, the lane axis left out.
    pub kept: Vec<usize>,
    pub reduced: Vec<usize>,
    pub lane: Option<usize>,
    /// Whether the lane axis is reduced.
    pub horizontal: bool,
    pub lift: Program,
    /// Element by element: states in slots, lifted values behind them.
    pub combine: Program,
    /// The short way, where there is one.
    pub simple: Option<Simple>,
    /// The short way of picks of f32 elements.
    pub arg: Option<Arg>,
    /// The short way of rows of integers.
    pub ints: Option<Ints>,
    /// Offset of `combine`'s scratch in the operation's area.
    pub combine_at: usize,
    /// For rows of a few elements, of which many are lifted at once.
    pub flat: Option<Flat>,
    /// Offset of rows of `CH` 8-byte elements: two sets of one per state scalar.
    pub rows: usize,
    pub dtypes: Vec<DType>,
    /// Extents of the kernel's axes as parameters (for ranks along `over`).
    pub rank: Vec<(usize, u32)>,
}

/// Scratch for a widened factor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CWide {
    pub dtype: DType,
    /// Offset in the worker's scratch.
    pub offset: usize,
    /// Elements that it has room for.
    pub room: usize,
}

/// A map behind a product.
#[derive(Debug)]
pub(crate) struct CPost {
    /// The whole map, for where the product cannot take it.
    pub map: CMap,
    /// Its tile.
    pub dst: usize,
    /// Tile along lanes that is added.
    pub bias: Option<usize>,
    /// Tile over the accumulator's axes that is added.
    pub add: Option<usize>,
    pub lo: f32,
    pub hi: f32,
    /// What is left to do on the result in place.
    pub rest: Option<CMap>,
}

/// A compiled `Contract`.
#[derive(Debug)]
pub(crate) struct CContract {
    pub acc: usize,
    /// Rows' factor.
    pub a: usize,
    /// Lanes' factor (with the lane axis).
    pub b: usize,
    pub over: Vec<usize>,
    /// Accumulator axes but the lane axis, outermost first: of A only, of B only, of both.
    pub rows: Vec<usize>,
    pub columns: Vec<usize>,
    pub batch: Vec<usize>,
    pub lane: Option<usize>,
    /// The lane axis is in both factors.
    pub depthwise: bool,
    pub dtype: DType,
    pub gemm: Option<GemmKernel>,
    /// Elements are groups of small integers and sums i32: only against packed panels.
    pub grouped: bool,
    /// Elements are unsigned and signed 8-bit integers and every lane has its own sum in i32.
    pub bytes: bool,
    /// Bytes of scratch for packing B; 0 where it lies right.
    pub pack: usize,
    /// The accumulator is filled with zeros first.
    pub zero: Option<CMap>,
    /// The map behind it, where it starts from zeros.
    pub post: Option<CPost>,
}

/// Loads, loops and a contraction run as one sequence of micro-kernel calls, A and B in place.
#[derive(Debug)]
pub(crate) struct CNest {
    pub loops: Vec<(usize, i64)>,
    pub contract: CContract,
    /// Operands of the factors.
    pub a: usize,
    pub b: usize,
    /// The summed axis of which so many neighbours are one element of 4 bytes.
    pub grouped: Option<(usize, i64)>,
    /// Scratch (offset, bytes) for what lies outside, where that is no zero.
    pub outside: Option<(usize, usize)>,
    /// The rows' factor is copied first, so that it is contiguous along that axis.
    pub copied: bool,
    /// Where the factors are widened to, those that are no f32.
    pub wide: [Option<CWide>; 2],
    /// The accumulator is filled with zeros first.
    pub zero: Option<CMap>,
    /// The map behind the product.
    pub post: Option<CPost>,
    /// The same statement by statement, without that map.
    pub body: Vec<Op>,
}

/// A compiled product with a factor of 4 bits.
#[derive(Debug)]
pub(crate) struct CNibbles {
    pub acc: usize,
    /// Tile of the rows' factor.
    pub a: usize,
    /// Operands: the rows' factor, numbers, scales, zero points.
    pub oa: usize,
    pub numbers: usize,
    pub scales: usize,
    pub zeros: Option<usize>,
    pub zero: f32,
    pub rows: Vec<usize>,
    pub lane: usize,
    /// Summed axes: blocks, and within them.
    pub outer: usize,
    pub inner: usize,
    /// Offset in the scratch of the rows' sums of blocks, and how many there is room for.
    pub totals: usize,
    pub room: usize,
    /// The accumulator is filled with zeros first.
    pub fill: Option<CMap>,
    /// The same statement by statement.
    pub body: Vec<Op>,
}

/// A load and a fold (in loops or not) that may run as one.
#[derive(Debug)]
pub(crate) struct CPool {
    pub operand: usize,
    /// The loaded tile.
    pub tile: usize,
    pub fold: CFold,
    pub simple: Simple,
    /// For elements of 16 bits: where the window is widened to, and the offset of the state as f32.
    pub wide: Option<(CWide, usize)>,
    /// The same statement by statement.
    pub body: Vec<Op>,
}
