//! Products whose lane axis is in every factor: depthwise convolutions.
use super::candidate::Candidate;
use super::form::{places, wanted_tasks, whole};
use super::product::Product;
use super::tiles;
use crate::bind::ctx::Space;
use crate::bind::pack;
use kernel::{AxisTile, CpuMapping, Mapping, OperandId, Place, Schedule};
use layout::DType;

/// Candidates, best guesses first; none when no axis common to all factors can take the lanes.
pub(crate) fn candidates(space: &Space, constant: &dyn Fn(OperandId) -> bool) -> Vec<Candidate> {
    let Some(p) = Product::of(space.kernel) else {
        return vec![];
    };
    let Some(out) = space.main_output() else {
        return vec![];
    };
    let Some(lane) = space.unit_axis(out, &p.batch) else {
        return vec![];
    };
    let p = if p.rows.is_empty() && !p.columns.is_empty() {
        p.swapped()
    } else {
        p
    };
    let lanes = space.ctx.lanes();
    let parallel = space.parallel();
    let rest: Vec<_> = space
        .inner_first(out, &parallel)
        .into_iter()
        .filter(|&x| x != lane)
        .collect();
    let wanted = wanted_tasks(space.ctx, space.kernel, &whole(space.kernel));
    let all = space.points(&parallel);
    let fit = (space.ctx.share() / 16.0) as i64;
    let n = space.extent(lane);
    let mut found = Vec::new();
    for nt in tiles::halves(n, (4 * lanes).min(n))
        .into_iter()
        .take(space.ctx.most(3))
    {
        let nt = tiles::even(n, nt, lanes);
        let target = (all / wanted.max(1)).clamp(1, fit.max(1)) / nt.max(1);
        for t in tiles::halves(target.max(1), 1)
            .into_iter()
            .take(space.ctx.most(3))
        {
            let mut cut = tiles::fill(space, &rest, t, 1);
            cut.push(AxisTile {
                axis: lane,
                tile: nt,
            });
            let grid = tiles::grid(space, &cut);
            let mut kernel = space.kernel.clone();
            let mut packed = Vec::new();
            let mut place = places(space, Some(lane));
            if let Some(o) = space
                .source(p.b)
                .filter(|&o| constant(o) && pack::fits(space, o) && space.stride(o, lane) > 1)
                && matches!(
                    space.kernel.operands[o as usize].dtype,
                    DType::F32 | DType::I8
                )
            {
                let others: Vec<_> = kernel.tiles[p.b as usize]
                    .axes
                    .iter()
                    .copied()
                    .filter(|x| *x != lane && !p.over.contains(x))
                    .collect();
                let width = (n + lanes - 1) / lanes * lanes;
                if let Some(new) = pack::pack(space, o, (&others, lane, &p.over), width, None) {
                    kernel.operands[o as usize].access = new.access.clone();
                    kernel.operands[o as usize].elements = layout::Dim::Known(new.elements);
                    place[p.b as usize] = Place::InPlace;
                    packed.push((o, new));
                }
            }
            let mut rows = space.inner_first(out, &p.rows);
            rows.reverse();
            let schedule = Schedule {
                grid,
                places: place,
                mapping: Mapping::Cpu(CpuMapping {
                    micro: None,
                    rows,
                    lanes: Some(lane),
                }),
                ..whole(&kernel)
            };
            let what = tiles::describe(space, &schedule.grid, &[]);
            found.push(Candidate {
                what,
                kernel: kernel.into(),
                schedule: schedule.into(),
                packed,
            });
        }
    }
    found
}
