//! How rows, columns and what is summed lie over threads without tensor-core instructions.
use super::super::gpu_layout;
use super::super::gpu_swizzle::NEIGHBOURS;
use super::shape::{Renumbered, WARP};
use kernel::{AxisId, Kernel, Spread, Stmt, TileId};

/// Rows and columns over threads for plain multiply-adds: the squarest share per thread, with at least four
/// columns together. `summed` is the innermost axis that is summed.
pub(super) fn multiply_add(r: &Renumbered, threads: u32, summed: AxisId) -> Option<Vec<Spread>> {
    let sized = |v: &[AxisId]| -> Option<Vec<(AxisId, i64)>> {
        v.iter().map(|&a| Some((a, r.tile_of(a)?))).collect()
    };
    let (rows, columns) = (sized(&r.rows)?, sized(&r.columns)?);
    let size = |v: &[(AxisId, i64)]| v.iter().fold(1i64, |p, a| p.saturating_mul(a.1));
    let (m, n) = (size(&rows), size(&columns));
    let along = (0..=threads.ilog2())
        .map(|i| 1u32 << i)
        .filter(|&c| i64::from(c) <= n && i64::from(threads / c) <= m)
        .min_by_key(|&c| m / i64::from(threads / c) + n / i64::from(c))?;
    let mut lay = gpu_layout::ThreadLayout::new(threads);
    lay.group(&columns, along, NEIGHBOURS);
    lay.group(&rows, threads / along, NEIGHBOURS);
    lay.along(summed, 1, NEIGHBOURS);
    (lay.used() == threads).then_some(lay.spread)
}

/// Queries, keys and values' columns over threads for attention in plain multiply-adds: a query's keys lie over
/// lanes of one warp, which fold them, and columns over the same lanes. What is summed of `queries` and keys lies
/// together.
pub(super) fn attention(r: &Renumbered, threads: u32, queries: TileId) -> Option<Vec<Spread>> {
    let (&[key], &[column]) = (r.loops.as_slice(), r.columns.as_slice()) else {
        return None;
    };
    let rows: Vec<(AxisId, i64)> = r
        .rows
        .iter()
        .map(|&a| Some((a, r.tile_of(a)?)))
        .collect::<Option<_>>()?;
    let m = rows.iter().fold(1i64, |p, a| p.saturating_mul(a.1));
    let width = r.tile_of(column)?;
    let lanes = |i: u32| 1u32 << i;
    let fits = |c: &u32| {
        let c = i64::from(*c);
        c <= key.tile && c <= width && i64::from(threads) / c <= m
    };
    let each = |c: u32| m / i64::from(threads / c) + (key.tile + width) / i64::from(c);
    let along = (0..=WARP.ilog2())
        .map(lanes)
        .filter(fits)
        .min_by_key(|&c| each(c))?;
    let mut lay = gpu_layout::ThreadLayout::new(threads);
    lay.group(&[(key.axis, key.tile)], along, NEIGHBOURS);
    lay.group(&rows, threads / along, NEIGHBOURS);
    if lay.used() != threads {
        return None;
    }
    let neighbours = (width / i64::from(along)).clamp(1, NEIGHBOURS.into());
    lay.spread.push(Spread {
        axis: column,
        stride: 1,
        count: along,
        each: 1 << u32::try_from(neighbours).ok()?.ilog2(),
    });
    let depth = *r.kernel.tiles[queries as usize].axes.last()?;
    if summed(r.kernel, queries, depth) {
        lay.spread.push(Spread {
            axis: depth,
            stride: 1,
            count: 1,
            each: NEIGHBOURS,
        });
    }
    Some(lay.spread)
}

/// Whether the contraction that reads tile `t` sums over axis `a`.
pub(super) fn summed(kernel: &Kernel, t: TileId, a: AxisId) -> bool {
    kernel.body.iter().any(|s| match s {
        Stmt::Contract { a: x, b, over, .. } => (*x == t || *b == t) && over.contains(&a),
        _ => false,
    })
}
