//! Cutting axes into tiles.
use crate::bind::ctx::Space;
use kernel::{AxisId, AxisTile};

/// Tiles for `axes` (innermost first) whose product is about `target`: inner axes whole as far as
/// they fit, the axis that does not fit cut evenly, those beyond it in single positions.
pub(crate) fn fill(space: &Space, axes: &[AxisId], target: i64, multiple: i64) -> Vec<AxisTile> {
    let mut left = target.max(1);
    let mut out = Vec::new();
    for (i, &axis) in axes.iter().enumerate() {
        let e = space.extent(axis);
        let multiple = if i == 0 { multiple.max(1) } else { 1 };
        let tile = even(e, left, multiple);
        out.push(AxisTile { axis, tile });
        left = if tile >= e { left / e.max(1) } else { 1 };
        left = left.max(1);
    }
    out
}

/// A tile of at most about `most` positions that cuts `extent` into even pieces, a multiple of
/// `multiple` when it cuts at all.
pub(crate) fn even(extent: i64, most: i64, multiple: i64) -> i64 {
    let (extent, most, multiple) = (extent.max(1), most.max(1), multiple.max(1));
    if extent <= most {
        return extent;
    }
    let pieces = (extent + most - 1) / most;
    let tile = (extent + pieces - 1) / pieces;
    let tile = (tile + multiple - 1) / multiple * multiple;
    tile.min(extent)
}

/// The grid made of cut tiles, outermost first (`tiles` come innermost first).
pub(crate) fn grid(space: &Space, tiles: &[AxisTile]) -> Vec<AxisTile> {
    tiles
        .iter()
        .rev()
        .filter(|t| t.tile < space.extent(t.axis))
        .copied()
        .collect()
}

/// Sizes to try: `most` and its halves down to `least`, largest first.
pub(crate) fn halves(most: i64, least: i64) -> Vec<i64> {
    let mut v = Vec::new();
    let mut x = most.max(1);
    while x >= least.max(1) {
        v.push(x);
        if x == 1 {
            break;
        }
        x = (x + 1) / 2;
    }
    if v.is_empty() {
        v.push(most.max(1));
    }
    v
}

/// "m 96, n 64", for names of candidates.
pub(crate) fn describe(space: &Space, grid: &[AxisTile], loops: &[AxisTile]) -> String {
    let name = |t: &AxisTile| format!("{} {}", space.kernel.axes[t.axis as usize].name, t.tile);
    let mut s = match grid {
        [] => "one task".to_string(),
        g => format!(
            "tasks of {}",
            g.iter().map(name).collect::<Vec<_>>().join(", ")
        ),
    };
    if !loops.is_empty() {
        s += &format!(
            "; loop {}",
            loops.iter().map(name).collect::<Vec<_>>().join(", ")
        );
    }
    s
}
