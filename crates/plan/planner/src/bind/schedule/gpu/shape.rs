//! What candidates for a GPU are made of: the kernel with its axes in order, and what a candidate fixes beside it.
use super::super::candidate::{Image, Widened};
use super::super::form::gather_loops;
use super::super::renumber::renumbered;
use crate::bind::ctx::Space;
use kernel::{AxisId, AxisTile, Fragment, GpuTarget, Kernel, OperandId, Place, TileId};
use std::sync::Arc;

/// Lanes of a warp.
pub(super) const WARP: u32 = 32;

pub(super) struct Gpu<'a> {
    pub space: &'a Space<'a>,
    pub gpu: &'a GpuTarget,
    /// A factor that is shared as it lies, by warps that copy.
    pub image: Option<Image>,
    /// A factor that is made of numbers of 4 bits.
    pub widened: Option<Widened>,
    /// Tensor-core instruction; `None`: multiply-adds.
    pub fragment: Option<Fragment>,
    /// Candidates that are asked for at most.
    pub most: usize,
}

/// The kernel of candidates that stage the same tiles and cut the same axes: numbered so that a staged tile's last
/// axis is the one along which its operand is contiguous.
pub(super) struct Numbered {
    kernel: Arc<Kernel>,
    /// New numbers of the axes.
    new: Vec<AxisId>,
    sources: Vec<(TileId, OperandId)>,
    /// Where its tiles are before any is staged.
    places: Vec<Place>,
}

impl Numbered {
    /// The kernel of `space` in loops over `looped` with `staged` tiles; `None` when these disagree on the order of
    /// axes, or are no loads.
    pub fn of(gpu: &Gpu, looped: &[AxisId], staged: &[TileId]) -> Option<Numbered> {
        let space = gpu.space;
        let mut kernel = space.kernel.clone();
        kernel.body = gather_loops(&kernel, looped)?;
        let source = |&t: &TileId| Some((t, space.source(t)?));
        let sources: Vec<_> = staged.iter().map(source).collect::<Option<_>>()?;
        let new = order(&kernel, &sources, gpu.image)?;
        let kernel = renumbered(kernel, &|a: AxisId| new[a as usize]);
        Some(Numbered {
            places: gpu.unstaged_places(&kernel),
            kernel: kernel.into(),
            new,
            sources,
        })
    }
}

/// A candidate's kernel and shape.
pub(super) struct Renumbered<'a> {
    /// Where tiles are that are not staged.
    pub unstaged: &'a [Place],
    pub kernel: &'a Arc<Kernel>,
    pub sources: &'a [(TileId, OperandId)],
    pub grid: Vec<AxisTile>,
    pub loops: Vec<AxisTile>,
    pub rows: Vec<AxisId>,
    pub columns: Vec<AxisId>,
}

impl Renumbered<'_> {
    pub fn new<'a>(n: &'a Numbered, s: &Shape) -> Renumbered<'a> {
        let to = |a: AxisId| n.new[a as usize];
        let cuts = |v: &[AxisTile]| {
            let each = v.iter().map(|c| AxisTile {
                axis: to(c.axis),
                ..*c
            });
            each.collect()
        };
        let list = |v: &[AxisId]| v.iter().map(|&a| to(a)).collect();
        Renumbered {
            unstaged: &n.places,
            kernel: &n.kernel,
            sources: &n.sources,
            grid: cuts(&s.grid),
            loops: cuts(&s.loops),
            rows: list(s.rows),
            columns: list(s.columns),
        }
    }

    /// Positions of an axis that a piece has, where that is known.
    pub fn tile_of(&self, a: AxisId) -> Option<i64> {
        let cut = self.grid.iter().chain(&self.loops).find(|t| t.axis == a);
        let extent = &self.kernel.axes[a as usize].extent;
        cut.map(|t| t.tile).or_else(|| extent.known())
    }
}

/// What a candidate fixes beside the kernel.
pub(super) struct Shape<'a> {
    pub grid: Vec<AxisTile>,
    pub loops: Vec<AxisTile>,
    pub rows: &'a [AxisId],
    pub columns: &'a [AxisId],
    /// Staged tiles with their pipeline depth, and the axes and positions of a line.
    pub staged: Vec<(TileId, u32)>,
    /// A factor that threads make and others read, without a tensor-core instruction.
    pub shared: Option<TileId>,
    pub warps: [u32; 2],
    /// Warps that only copy.
    pub copiers: u32,
    /// Warps along the depth of a product.
    pub deep: u32,
    pub raster: i64,
}

/// New numbers of the axes such that each staged tile's last axis is the contiguous one of its
/// operand, of an image the one along which its lines lie; `None` when tiles disagree.
fn order(
    kernel: &Kernel,
    sources: &[(TileId, OperandId)],
    image: Option<Image>,
) -> Option<Vec<AxisId>> {
    let n = kernel.axes.len();
    let mut after: Vec<Vec<AxisId>> = vec![vec![]; n];
    for &(tile, operand) in sources {
        let access = &kernel.operands[operand as usize].access;
        let axes = &kernel.tiles[tile as usize].axes;
        let unit = |a: &&AxisId| {
            access
                .term(**a)
                .and_then(|t| t.stride())
                .is_some_and(|s| s.is_one())
        };
        let along = image.filter(|i| i.has(kernel, tile)).map(|i| i.along);
        let last = axes.iter().find(|a| match along {
            Some(along) => **a == along,
            None => unit(a),
        });
        if let Some(&last) = last {
            after[last as usize].extend(axes.iter().filter(|&&a| a != last));
        }
    }
    let mut new = vec![None; n];
    for number in 0..n {
        let free =
            |a: usize| new[a].is_none() && after[a].iter().all(|&b| new[b as usize].is_some());
        let next = (0..n).find(|&a| free(a))?;
        new[next] = Some(number as AxisId);
    }
    new.into_iter().collect()
}
