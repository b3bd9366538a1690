//! What a CTA copies of constants before it waits for the kernels before it.
use crate::{Kernel, Mapping, OperandId, Schedule, Stmt, TileId};

/// Bytes of the constants of `schedule` ([`crate::GpuMapping::constants`]) that each CTA copies to the first stages of a
/// loop before it waits; 0 where none is copied ahead of a loop.
pub fn bytes_ahead(kernel: &Kernel, schedule: &Schedule) -> f64 {
    let Mapping::Gpu(g) = &schedule.mapping else {
        return 0.0;
    };
    let copied = |s: &Stmt| -> Option<(TileId, OperandId)> {
        match s {
            Stmt::Load { dst, operand } if g.constants.contains(operand) => Some((*dst, *operand)),
            _ => None,
        }
    };
    let bytes = kernel.body.iter().filter_map(copied).map(|(t, _)| {
        let Some(stages) = schedule.place(t).stages() else {
            return 0.0;
        };
        let tile = &kernel.tiles[t as usize];
        let in_loop = |a: &&crate::AxisId| schedule.loops.iter().any(|l| l.axis == **a);
        let pieces = tile.axes.iter().filter(in_loop).fold(1i64, |n, &a| {
            let extent = kernel.axes[a as usize].extent.known();
            let cut = schedule.tile(a).unwrap_or(1).max(1);
            n.saturating_mul(extent.map_or(i64::MAX, |e| e / cut + i64::from(e % cut > 0)))
        });
        let size = tile.axes.iter().fold(1.0, |n, &a| {
            n * schedule.positions(kernel, a).unwrap_or(1) as f64
        });
        let ahead = i64::from(g.pieces_ahead(stages)).min(pieces);
        size * ahead as f64 * f64::from(tile.dtype.bits()) / 8.0
    });
    bytes.sum()
}
