//! Products with a factor of 4 bits: numbers are turned into f32 in registers, a panel of columns at a
//! time, so that memory gives 4 bits per weight.
use super::candidate::Candidate;
use super::form::{places, wanted_tasks, whole};
use super::product::Product;
use super::tiles;
use crate::bind::ctx::Space;
use crate::bind::pack;
use kernel::{
    AxisId, AxisTile, CpuMapping, Mapping, MicroKernel, OperandId, Place, Schedule, Stmt, TileId,
};
use layout::{DType, Dim};

/// Neighbours along the summed axis in one lane.
const GROUP: i64 = 8;
/// Rows and vectors of a register tile.
const ROWS: u32 = 4;
const VECTORS: i64 = 2;

/// The expanded factor of `p`: the tile of numbers and those of what they are scaled by.
fn expanded(space: &Space, tile: TileId) -> Option<(OperandId, Vec<OperandId>)> {
    let k = space.kernel;
    let args = k.body.iter().find_map(|s| match s {
        Stmt::Map { dst, expr, args } if *dst == tile && expr.as_dequantise().is_some() => {
            Some((expr.as_dequantise()?, args))
        }
        _ => None,
    });
    let (steps, args) = args?;
    let source = |slot: u32| space.source(*args.get(slot as usize)?);
    let numbers = source(steps.x)?;
    let d = k.operands[numbers as usize].dtype;
    let mut rest = vec![source(steps.scale)?];
    if let expr::Zero::Slot(z) = steps.zero {
        rest.push(source(z)?);
    }
    let f32s = rest
        .iter()
        .all(|&o| k.operands[o as usize].dtype == DType::F32);
    (matches!(d, DType::U4 | DType::I4) && f32s).then_some((numbers, rest))
}

/// Candidates; none when no factor is made of 4 bits, or when it does not lie in blocks.
pub(crate) fn candidates(space: &Space, constant: &dyn Fn(OperandId) -> bool) -> Vec<Candidate> {
    build(space, constant).unwrap_or_default()
}

fn build(space: &Space, constant: &dyn Fn(OperandId) -> bool) -> Option<Vec<Candidate>> {
    let k = space.kernel;
    let mut p = Product::of(k)?;
    let mut found = expanded(space, p.b);
    if found.is_none() {
        p = p.swapped();
        found = expanded(space, p.b);
    }
    let (numbers, rest) = found?;
    let (&[lane], true) = (p.columns.as_slice(), p.batch.is_empty()) else {
        return None;
    };
    let out = space.main_output()?;
    let a = space.source(p.a)?;
    let stride = |o: OperandId, x: AxisId| space.stride(o, x);
    // Blocks: the axis that the scale does not have is inside.
    let (&inner, &outer) = match p.over.as_slice() {
        [x, y] if stride(rest[0], *y) == 0 => (y, x),
        [x, y] if stride(rest[0], *x) == 0 => (x, y),
        _ => return None,
    };
    let lies = stride(a, inner) == 1 && stride(a, outer) == space.extent(inner);
    let all = std::iter::once(numbers).chain(rest.iter().copied());
    let fit = all.clone().all(|o| constant(o) && pack::fits(space, o));
    if !lies || !fit || space.extent(inner) % GROUP != 0 || stride(out, lane) != 1 {
        return None;
    }
    let lanes = space.ctx.lanes();
    let order = [outer, inner];
    let mut kernel = k.clone();
    for s in &mut kernel.body {
        if let Stmt::Contract { over, .. } = s {
            *over = order.to_vec();
        }
    }
    let mut packed = Vec::new();
    let mut place = places(space, Some(lane));
    for o in all {
        let group = (o == numbers).then_some((inner, GROUP));
        let new = pack::pack(space, o, (&[], lane, &order), lanes, group)?;
        kernel.operands[o as usize].access = new.access.clone();
        kernel.operands[o as usize].elements = Dim::Known(new.elements);
        packed.push((o, new));
        for s in &k.body {
            if let Stmt::Load { dst, operand } = s
                && *operand == o
            {
                place[*dst as usize] = Place::InPlace;
            }
        }
    }
    for s in &k.body {
        if let Stmt::Load { dst, operand } = s
            && *operand == a
        {
            place[*dst as usize] = Place::InPlace;
        }
    }
    let mut rows = space.inner_first(out, &p.rows);
    rows.reverse();
    let n = space.extent(lane);
    let wanted = wanted_tasks(space.ctx, k, &whole(k));
    let unit = lanes * VECTORS;
    let most = (n / wanted.max(1) / unit * unit).max(unit);
    let mut list = Vec::new();
    for nt in [if wanted > 1 { most } else { n }, 2 * most, 4 * most] {
        let grid = tiles::grid(
            space,
            &[AxisTile {
                axis: lane,
                tile: nt,
            }],
        );
        let schedule = Schedule {
            grid,
            places: place.clone(),
            mapping: Mapping::Cpu(CpuMapping {
                micro: Some(MicroKernel {
                    mr: ROWS,
                    nr: unit as u32,
                }),
                rows: rows.clone(),
                lanes: Some(lane),
            }),
            ..whole(&kernel)
        };
        let what = tiles::describe(space, &schedule.grid, &[]);
        list.push(Candidate {
            what: what + "; 4 bits expanded in registers, packed",
            kernel: kernel.clone().into(),
            schedule: schedule.into(),
            packed: packed.clone(),
        });
    }
    Some(list)
}
