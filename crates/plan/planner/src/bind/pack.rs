//! Constant factors rewritten once at load as the micro-kernel streams them: panels of `nr` lanes,
//! sums outermost within a panel, lanes innermost, padded with zeros.
use super::ctx::Space;
use super::schedule::Packed;
use kernel::{
    Access, Axis, AxisId, AxisTile, Bound, CpuMapping, Family, Kernel, Mapping, Operand, OperandId,
    Place, Role, Schedule, Stmt, Term, Tile,
};
use layout::{Dim, Leaf};

/// Whether an operand can be packed: its extents are numbers, it has elements, and nothing of it is
/// bounded or gathered.
pub(crate) fn fits(space: &Space, operand: OperandId) -> bool {
    let a = &space.kernel.operands[operand as usize].access;
    a.bounds.is_empty()
        && a.indexed.is_empty()
        && a.offset.known().is_some()
        && a.terms.iter().all(|t| {
            let extent = space.kernel.axes[t.axis as usize].extent.known();
            extent.is_some_and(|n| n > 0)
                && t.leaves
                    .iter()
                    .all(|l| l.extent.known().is_some() && l.stride.known().is_some())
        })
}

/// Packs `operand` into panels of `nr` positions of `lane`; `order` are the summed axes, innermost
/// last, `others` the axes outside panels. `group`: so many neighbours along that axis, the innermost
/// sum, lie side by side per lane. `None` when sizes overflow.
pub(crate) fn pack(
    space: &Space,
    operand: OperandId,
    others: &[AxisId],
    lane: AxisId,
    nr: i64,
    order: &[AxisId],
    group: Option<(AxisId, i64)>,
) -> Option<Packed> {
    let source = &space.kernel.operands[operand as usize];
    let order: Vec<AxisId> = order
        .iter()
        .copied()
        .filter(|&a| source.access.term(a).is_some())
        .collect();
    let others: Vec<AxisId> = others
        .iter()
        .copied()
        .filter(|&a| source.access.term(a).is_some())
        .collect();
    let n = space.extent(lane);
    let panels = (n + nr - 1).checked_div(nr)?;
    let padded = panels.checked_mul(nr)?;
    if group.is_some_and(|(x, w)| order.last() != Some(&x) || space.extent(x) % w != 0) {
        return None;
    }
    let (pair, width) = (group.map(|g| g.0), group.map_or(1, |g| g.1));
    let mut strides: Vec<(AxisId, i64)> = Vec::new();
    let mut step = nr;
    for &a in order.iter().rev() {
        strides.push((a, step));
        step = step.checked_mul(space.extent(a))?;
    }
    let panel = step;
    step = step.checked_mul(panels)?;
    for &a in others.iter().rev() {
        strides.push((a, step));
        step = step.checked_mul(space.extent(a))?;
    }
    let elements = step;
    let known = Dim::Known;
    let lane_leaves = |extent: i64| match panels {
        1 => vec![Leaf {
            extent: known(extent),
            stride: known(width),
        }],
        _ => vec![
            Leaf {
                extent: known(panels),
                stride: known(panel),
            },
            Leaf {
                extent: known(nr),
                stride: known(width),
            },
        ],
    };
    let half = |a: AxisId| Leaf {
        extent: known(space.extent(a) / width),
        stride: known(width * nr),
    };
    let terms = |lane_id: AxisId, lane_extent: i64, id: &dyn Fn(AxisId) -> AxisId| {
        let mut t: Vec<Term> = strides
            .iter()
            .map(|&(a, s)| match pair {
                Some(x) if x == a => Term {
                    axis: id(a),
                    leaves: vec![half(a)],
                },
                _ => Term::flat(id(a), known(space.extent(a)), known(s)),
            })
            .collect();
        t.push(Term {
            axis: lane_id,
            leaves: lane_leaves(lane_extent),
        });
        t.sort_by_key(|t| t.axis);
        t
    };
    let mut access = Access::strided(Dim::ZERO, terms(lane, nr.min(padded), &|a| a));
    for t in access.terms.iter_mut().filter(|t| Some(t.axis) == pair) {
        t.leaves.push(Leaf {
            extent: known(width),
            stride: Dim::ONE,
        });
    }
    // The move's own axes: others, sums, lanes (padded); its tile is stored as the copy lies.
    let list: Vec<AxisId> = others
        .iter()
        .copied()
        .chain(order.iter().copied())
        .chain([lane])
        .collect();
    let id = |a: AxisId| list.iter().position(|&x| x == a).unwrap_or(0) as AxisId;
    let mut axes: Vec<Axis> = list
        .iter()
        .map(|&a| Axis {
            name: space.kernel.axes[a as usize].name.clone(),
            extent: match a {
                a if a == lane => known(padded),
                a if Some(a) == pair => known(space.extent(a) / width),
                a => known(space.extent(a)),
            },
        })
        .collect();
    let mut read = source.access.clone();
    let mut twin = None;
    if let Some(x) = pair {
        // The group is an axis of the move's own, behind the lanes.
        let term = read.terms.iter_mut().find(|t| t.axis == x)?;
        let step = term.stride()?.known()?;
        let more = known(step.checked_mul(width)?);
        *term = Term::flat(x, known(space.extent(x) / width), more);
        twin = Some(Term::flat(list.len() as AxisId, known(width), known(step)));
        axes.push(Axis {
            name: "group".into(),
            extent: known(width),
        });
    }
    read.terms.iter_mut().for_each(|t| t.axis = id(t.axis));
    read.terms.extend(twin);
    read.terms.sort_by_key(|t| t.axis);
    let mut written = Access::strided(Dim::ZERO, terms(id(lane), nr.min(padded), &id));
    if pair.is_some() {
        let axis = list.len() as AxisId;
        written.terms.push(Term::flat(axis, known(width), Dim::ONE));
    }
    if padded != n {
        read.bounds.push(Bound {
            terms: vec![(id(lane), Dim::ONE)],
            base: Dim::ZERO,
            extent: known(n),
        });
    }
    let lane_id = id(lane);
    let tile_axes: Vec<AxisId> = (0..axes.len() as AxisId).collect();
    let op = |name: &str, role, access, elements: i64| Operand {
        name: name.into(),
        dtype: source.dtype,
        role,
        access,
        elements: known(elements),
    };
    let unique = list.iter().map(|&a| space.extent(a)).product::<i64>();
    let kernel = Kernel {
        name: "pack".into(),
        family: Family::Move,
        axes,
        operands: vec![
            op("x", Role::Read, read, unique),
            op("y", Role::Write, written, elements),
        ],
        tiles: vec![Tile {
            name: "x".into(),
            dtype: source.dtype,
            axes: tile_axes,
        }],
        body: vec![
            Stmt::Load { dst: 0, operand: 0 },
            Stmt::Store { operand: 1, src: 0 },
        ],
    };
    let mut grid: Vec<AxisTile> = others
        .iter()
        .map(|&a| AxisTile {
            axis: id(a),
            tile: 1,
        })
        .collect();
    if padded > nr {
        grid.push(AxisTile {
            axis: lane_id,
            tile: nr,
        });
    }
    // Pieces of the sums that a worker's cache holds.
    let inner_first: Vec<AxisId> = order.iter().rev().copied().collect();
    let room =
        (space.ctx.share() / (source.dtype.bits() as f64 / 8.0) / nr.min(n).max(1) as f64) as i64;
    for t in super::schedule::fill(space, &inner_first, room, 1)
        .iter()
        .rev()
    {
        let extent = space.extent(t.axis) / if Some(t.axis) == pair { width } else { 1 };
        if t.tile < extent {
            grid.push(AxisTile {
                axis: id(t.axis),
                tile: t.tile,
            });
        }
    }
    let schedule = Schedule {
        grid,
        loops: vec![],
        places: vec![if padded == n {
            Place::InPlace
        } else {
            Place::Register
        }],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: None,
            rows: vec![],
            lanes: Some(lane_id),
        }),
    };
    Some(Packed {
        access,
        elements,
        kernel: kernel.into(),
        schedule: schedule.into(),
    })
}
