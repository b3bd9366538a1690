//! Constant factors rewritten once at load as the micro-kernel streams them: panels of `nr` lanes,
//! sums outermost within a panel, lanes innermost, padded with zeros.
use super::ctx::Space;
use super::schedule::Packed;
use kernel::{
    Access, Axis, AxisId, AxisTile, Bound, CpuMapping, Family, Kernel, Mapping, Operand, OperandId,
    Place, Role, Schedule, Stmt, Term, Tile,
};
use layout::Arrange;
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

/// How a copy lies: the axes by role, and the elements between neighbours along each.
struct Panels<'a> {
    space: &'a Space<'a>,
    lane: AxisId,
    nr: i64,
    /// Summed axes, innermost last.
    order: Vec<AxisId>,
    /// Axes outside panels.
    others: Vec<AxisId>,
    /// The summed axis of which `width` neighbours lie side by side per lane.
    pair: Option<AxisId>,
    width: i64,
    /// Panels, and elements of one.
    panels: i64,
    panel: i64,
    /// Lanes, padding included.
    padded: i64,
    strides: Vec<(AxisId, i64)>,
    /// Elements of the copy, padding included.
    elements: i64,
}

impl<'a> Panels<'a> {
    /// `None` when sizes overflow, or the group is no part of the innermost sum.
    fn new(
        space: &'a Space<'a>,
        operand: OperandId,
        (others, lane, order): (&[AxisId], AxisId, &[AxisId]),
        nr: i64,
        group: Option<(AxisId, i64)>,
    ) -> Option<Panels<'a>> {
        let source = &space.kernel.operands[operand as usize];
        let read = |axes: &[AxisId]| -> Vec<AxisId> {
            let all = axes.iter().copied();
            all.filter(|&a| source.access.term(a).is_some()).collect()
        };
        let (order, others) = (read(order), read(others));
        let n = space.extent(lane);
        let panels = (n + nr - 1).checked_div(nr)?;
        let padded = panels.checked_mul(nr)?;
        if group.is_some_and(|(x, w)| order.last() != Some(&x) || space.extent(x) % w != 0) {
            return None;
        }
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
        Some(Panels {
            space,
            lane,
            nr,
            order,
            others,
            pair: group.map(|g| g.0),
            width: group.map_or(1, |g| g.1),
            panels,
            panel,
            padded,
            strides,
            elements: step,
        })
    }

    /// Leaves of the lane's term.
    fn lane_leaves(&self) -> Vec<Leaf> {
        let leaf = |extent: i64, stride: i64| Leaf {
            extent: Dim::Known(extent),
            stride: Dim::Known(stride),
        };
        match self.panels {
            1 => vec![leaf(self.nr.min(self.padded), self.width)],
            _ => vec![leaf(self.panels, self.panel), leaf(self.nr, self.width)],
        }
    }

    /// Terms of the copy's address, axes numbered by `id`; positions inside a group are left out.
    fn terms(&self, id: &dyn Fn(AxisId) -> AxisId) -> Vec<Term> {
        let known = Dim::Known;
        let extent = |a: AxisId| self.space.extent(a);
        let term = |&(a, stride): &(AxisId, i64)| match self.pair {
            Some(x) if x == a => Term {
                axis: id(a),
                leaves: vec![Leaf {
                    extent: known(extent(a) / self.width),
                    stride: known(self.width * self.nr),
                }],
            },
            _ => Term::flat(id(a), known(extent(a)), known(stride)),
        };
        let mut t: Vec<Term> = self.strides.iter().map(term).collect();
        t.push(Term {
            axis: id(self.lane),
            leaves: self.lane_leaves(),
        });
        t.arrange_by_key(|t| t.axis);
        t
    }

    /// Addressing of the copy by the axes of the reading kernel.
    fn access(&self) -> Access {
        let mut access = Access::strided(Dim::ZERO, self.terms(&|a| a));
        for t in (access.terms.iter_mut()).filter(|t| Some(t.axis) == self.pair) {
            t.leaves.push(Leaf {
                extent: Dim::Known(self.width),
                stride: Dim::ONE,
            });
        }
        access
    }

    /// The packing kernel's axes by those of the reading kernel: others, sums, lanes.
    fn axes(&self) -> Vec<AxisId> {
        let all = self.others.iter().chain(&self.order);
        all.copied().chain([self.lane]).collect()
    }

    /// The kernel that makes the copy of `source`; its tile is stored as the copy lies. Numbers of its axes are
    /// places in `list`; a group is an axis of its own behind them.
    fn kernel(&self, source: &Operand, list: &[AxisId]) -> Option<Kernel> {
        let (known, space, width) = (Dim::Known, self.space, self.width);
        let id = |a: AxisId| number(list, a);
        let axis = |&a: &AxisId| Axis {
            name: space.kernel.axes[a as usize].name.clone(),
            extent: match a {
                a if a == self.lane => known(self.padded),
                a if Some(a) == self.pair => known(space.extent(a) / width),
                a => known(space.extent(a)),
            },
        };
        let mut axes: Vec<Axis> = list.iter().map(axis).collect();
        let mut read = source.access.clone();
        let mut written = Access::strided(Dim::ZERO, self.terms(&id));
        let mut inside_group = None;
        if let Some(x) = self.pair {
            let group = list.len() as AxisId;
            let term = read.terms.iter_mut().find(|t| t.axis == x)?;
            let step = term.stride()?.known()?;
            let more = known(step.checked_mul(width)?);
            *term = Term::flat(x, known(space.extent(x) / width), more);
            inside_group = Some(Term::flat(group, known(width), known(step)));
            written
                .terms
                .push(Term::flat(group, known(width), Dim::ONE));
            axes.push(Axis {
                name: "group".into(),
                extent: known(width),
            });
        }
        read.terms.iter_mut().for_each(|t| t.axis = id(t.axis));
        read.terms.extend(inside_group);
        read.terms.arrange_by_key(|t| t.axis);
        let n = space.extent(self.lane);
        if self.padded != n {
            read.bounds.push(Bound {
                terms: vec![(id(self.lane), Dim::ONE)],
                base: Dim::ZERO,
                extent: known(n),
            });
        }
        let op = |name: &str, role, access, elements: i64| Operand {
            name: name.into(),
            dtype: source.dtype,
            role,
            access,
            elements: known(elements),
        };
        let unique = list.iter().map(|&a| space.extent(a)).product::<i64>();
        let tile_axes: Vec<AxisId> = (0..axes.len() as AxisId).collect();
        Some(Kernel {
            name: "pack".into(),
            family: Family::Move,
            axes,
            operands: vec![
                op("x", Role::Read, read, unique),
                op("y", Role::Write, written, self.elements),
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
        })
    }

    /// How the packing kernel runs: a task per panel, and pieces of the sums that a worker's cache holds.
    fn schedule(&self, source: &Operand, list: &[AxisId]) -> Schedule {
        let (space, nr) = (self.space, self.nr);
        let tile = |a: AxisId, tile: i64| AxisTile {
            axis: number(list, a),
            tile,
        };
        let mut grid: Vec<AxisTile> = self.others.iter().map(|&a| tile(a, 1)).collect();
        if self.padded > nr {
            grid.push(tile(self.lane, nr));
        }
        let inner_first: Vec<AxisId> = self.order.iter().rev().copied().collect();
        let n = space.extent(self.lane);
        let bytes = source.dtype.bits() as f64 / 8.0;
        let room = (space.ctx.share() / bytes / nr.min(n).max(1) as f64) as i64;
        for t in (super::schedule::fill(space, &inner_first, room, 1).iter()).rev() {
            let per = match Some(t.axis) == self.pair {
                true => self.width,
                false => 1,
            };
            if t.tile < space.extent(t.axis) / per {
                grid.push(tile(t.axis, t.tile));
            }
        }
        Schedule {
            grid,
            loops: vec![],
            places: vec![match self.padded == n {
                true => Place::InPlace,
                false => Place::Register,
            }],
            chunk: 1,
            raster: 1,
            mapping: Mapping::Cpu(CpuMapping {
                micro: None,
                rows: vec![],
                lanes: Some(number(list, self.lane)),
            }),
        }
    }
}

/// The place of `a` in `list`.
fn number(list: &[AxisId], a: AxisId) -> AxisId {
    list.iter().position(|&x| x == a).unwrap_or(0) as AxisId
}

/// Packs `operand` into panels of `nr` positions of `lane`; `axes` are those outside panels, the lane, and
/// the summed axes, innermost last. `group`: so many neighbours along that axis, the innermost sum, lie side
/// by side per lane. `None` when sizes overflow.
pub(crate) fn pack(
    space: &Space,
    operand: OperandId,
    axes: (&[AxisId], AxisId, &[AxisId]),
    nr: i64,
    group: Option<(AxisId, i64)>,
) -> Option<Packed> {
    let source = &space.kernel.operands[operand as usize];
    let panels = Panels::new(space, operand, axes, nr, group)?;
    let list = panels.axes();
    let kernel = panels.kernel(source, &list)?;
    Some(Packed {
        of: operand,
        access: panels.access(),
        elements: panels.elements,
        kernel: kernel.into(),
        schedule: panels.schedule(source, &list).into(),
    })
}
