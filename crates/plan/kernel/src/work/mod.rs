//! Work read off a tile program: operations by unit and bytes across each level.
//!
//! One walk over the statements. A statement runs once for every position of the axes that it
//! touches (edge tiles are counted by extents, not by whole tiles) and once more for every piece of
//! a grid axis that it does not touch, since each task repeats it. A contraction on a GPU goes over
//! whole tiles: its threads are there for all of one, whatever lies outside.
mod ahead;
mod reuse;
mod rows;
mod space;

use crate::{AxisId, Kernel, Mapping, Node, Place, Schedule, Stmt, TileProgram};
pub use ahead::bytes_ahead;
use expr::{Class, Expr};
use layout::{DType, Dim, DimBox};
use machine::{Machine, NumType, UnitClass, Work};
use space::{Space, runs_over};

/// Bytes that scratch tiles are aligned to.
const ALIGN: u64 = 64;

/// What `p` asks of `machine` when symbols have the values of `lookup`; `None` when a dimension
/// has no value.
///
/// Traffic is that of the near side of each of `machine.levels` up to its main memory: at the
/// level next to the registers what statements read and write (a contraction reads its left factor
/// once per column panel of its micro-kernel and its right factor once per row panel), at each
/// farther one what the level before it cannot hold: an operand is fetched again for every pass of
/// a loop that it does not depend on when everything inside that loop exceeds the capacity.
/// The first touch of every operand is counted at every level; see [`statements`].
pub fn work(
    p: &TileProgram,
    machine: &Machine,
    lookup: &dyn Fn(&str) -> Option<i64>,
) -> Option<Work> {
    Some(statements(p, machine, lookup, &|_| f64::INFINITY)?.0)
}

/// [`work`], and what each statement of the kernel's body has of it: operations, traffic, rows and
/// micro-kernel calls. Tasks and steps are the sum's alone.
///
/// `far` says how many bytes were touched between the last use of an operand and this one: it is found
/// in the nearest level that holds them, and levels beyond that have no traffic of it.
pub fn statements(
    p: &TileProgram,
    machine: &Machine,
    lookup: &dyn Fn(&str) -> Option<i64>,
    far: &dyn Fn(usize) -> f64,
) -> Option<(Work, Vec<Work>)> {
    let s = Space::new(p, lookup)?;
    let mut w = Work {
        tasks: s.tasks(),
        steps: 1,
        largest: s.largest_task(),
        uneven: s.most - 1.0,
        ..Work::default()
    };
    for (at, o) in p.kernel().operands.iter().enumerate() {
        let bytes = s.touched(at) * byte_size(o.dtype);
        match o.role {
            crate::Role::Read => w.unique_read += bytes,
            crate::Role::Write => w.unique_written += bytes,
        }
    }
    let mut parts = vec![Work::default(); p.kernel().body.len()];
    for (stmt, part) in p.kernel().body.iter().zip(&mut parts) {
        operations(p, &s, stmt, part);
        rows::rows(p, &s, stmt, part);
        part.calls = calls(p, &s, stmt);
    }
    reuse::traffic(p, &s, machine, far, &mut parts);
    w.statements = (executions(p.body(), &s) * w.tasks as f64) as u64;
    parts.iter().for_each(|part| w += part);
    Some((w, parts))
}

/// Statements that one task executes.
fn executions(nodes: &[Node], s: &Space) -> f64 {
    let each = |n: &Node| match n {
        Node::Stmt(_) => 1.0,
        Node::Loop { axis, body, .. } => s.loop_pieces(axis.axis) * executions(body, s),
    };
    nodes.iter().map(each).sum()
}

/// Calls of a CPU's micro-kernel: one for every register tile and every position of the summed axes
/// but the last, which it walks by itself.
fn calls(p: &TileProgram, s: &Space, stmt: &Stmt) -> f64 {
    let Mapping::Cpu(c) = &p.schedule().mapping else {
        return 0.0;
    };
    let (Some(micro), Some(lanes), Stmt::Contract { acc, over, .. }) = (c.micro, c.lanes, stmt)
    else {
        return 0.0;
    };
    let axes = &p.kernel().tiles[*acc as usize].axes;
    let product = |list: &[AxisId], of: &[f64]| -> f64 {
        let own = list.iter().filter(|a| axes.contains(a));
        own.map(|&a| of[a as usize]).product()
    };
    // A product whose sums lack the schedule's lane axis has its widest column along the lanes.
    let piece = |a: &&AxisId| s.piece[**a as usize];
    let mut free = axes.iter().filter(|a| !c.rows.contains(a));
    let widest = free.clone().max_by(|a, b| piece(a).total_cmp(&piece(b)));
    let lanes = match free.any(|a| *a == lanes) {
        true => lanes,
        false => widest.copied().unwrap_or(lanes),
    };
    // Register tiles do not reach over the pieces that a task is given.
    let tiles = |list: &[AxisId], side: u32| {
        let (all, piece) = (product(list, &s.extent), product(list, &s.piece));
        all / piece.max(1.0) * (piece / f64::from(side.max(1))).ceil()
    };
    let both = product(&c.rows, &s.extent) * product(&[lanes], &s.extent);
    if both <= 0.0 {
        return 0.0;
    }
    let others = s.positions(axes) / both;
    let taps = &over[..over.len().saturating_sub(1)];
    let taps: f64 = taps.iter().map(|&a| s.extent[a as usize]).product();
    tiles(&c.rows, micro.mr) * tiles(&[lanes], micro.nr) * others * taps
}

/// Number of grid points: the product over the grid of the pieces of each axis.
pub fn tasks(kernel: &Kernel, schedule: &Schedule) -> Dim {
    let pieces = schedule.grid.iter().map(|t| {
        let extent = kernel
            .axes
            .get(t.axis as usize)
            .map_or(Dim::ONE, |a| a.extent.clone());
        extent.ceil_div(&Dim::Known(t.tile.max(1)))
    });
    pieces.fold(Dim::ONE, |a, d| a * d)
}

/// Scratch bytes that one worker needs at the top of the box: all tiles that are not in place,
/// each rounded up to 64 bytes and as often as it has pipeline stages. `None` when an extent has
/// no bounds or the sum leaves 64 bits.
pub fn scratch_bytes(p: &TileProgram, dims: &DimBox) -> Option<u64> {
    scratch_of(p.kernel(), p.schedule(), dims)
}

/// [`scratch_bytes`] of the program that `kernel` and `schedule` make.
pub fn scratch_of(kernel: &Kernel, schedule: &Schedule, dims: &DimBox) -> Option<u64> {
    let extents: Option<Vec<u64>> = kernel
        .axes
        .iter()
        .map(|a| u64::try_from(dims.bounds(&a.extent)?.hi.max(0)).ok())
        .collect();
    let extents = extents?;
    let mut sum = 0u64;
    for (t, tile) in kernel.tiles.iter().enumerate() {
        let copies = match schedule.place(t as u16) {
            Place::InPlace | Place::Recompute | Place::Cluster => continue,
            place => u64::from(place.stages().unwrap_or(1).max(1)),
        };
        let mut elements = 1u64;
        for &a in &tile.axes {
            let extent = *extents.get(a as usize)?;
            let piece = schedule
                .tile(a)
                .map_or(extent, |t| extent.min(t.max(1) as u64));
            elements = elements.checked_mul(piece)?;
        }
        let bytes = elements
            .checked_mul(u64::from(tile.dtype.bits()))?
            .div_ceil(8);
        sum = sum.checked_add(bytes.checked_next_multiple_of(ALIGN)?.checked_mul(copies)?)?;
    }
    Some(sum)
}

pub(crate) fn byte_size(d: DType) -> f64 {
    f64::from(d.bits()) / 8.0
}

fn add_program(w: &mut Work, e: &Expr, dtype: DType, times: f64) {
    for (class, n) in e.counts() {
        let class = match class {
            Class::Free => continue,
            Class::Simple => UnitClass::Simple,
            Class::Divide => UnitClass::Divsqrt,
            Class::Transcendental => UnitClass::Transcendental,
        };
        if n > 0 {
            w.add_ops(class, NumType::from(dtype), n as f64 * times);
        }
    }
}

/// Positions of whole tiles for each position of a contraction's axes: 1 on a CPU.
fn padding(p: &TileProgram, s: &Space, stmt: &Stmt) -> f64 {
    let Mapping::Gpu(_) = &p.schedule().mapping else {
        return 1.0;
    };
    let cuts = p.schedule().grid.iter().chain(&p.schedule().loops);
    cuts.filter(|t| runs_over(p.kernel(), stmt, t.axis))
        .map(|t| {
            let (extent, tile) = (s.extent[t.axis as usize], t.tile.max(1) as f64);
            match extent > 0.0 {
                true => (extent / tile).ceil() * tile / extent,
                false => 1.0,
            }
        })
        .product()
}

fn operations(p: &TileProgram, s: &Space, stmt: &Stmt, w: &mut Work) {
    let k = p.kernel();
    let times = s.times(k, stmt);
    if times == 0.0 {
        return;
    }
    match stmt {
        Stmt::Load { .. } | Stmt::Store { .. } | Stmt::Relabel { .. } => {}
        Stmt::Map { dst, expr, args } => {
            // A comparison works in the type of what it compares.
            let own = k.tiles[*dst as usize].dtype;
            let dtype = match (own, args.first()) {
                (DType::Bool, Some(&a)) => k.tiles[a as usize].dtype,
                _ => own,
            };
            add_program(w, expr, dtype, times);
        }
        Stmt::Contract { acc, a, .. } => {
            let input = k.tiles[*a as usize].dtype;
            let sum = k.tiles[*acc as usize].dtype;
            let fragment = match &p.schedule().mapping {
                Mapping::Gpu(g) => g.fragment,
                Mapping::Cpu(_) => None,
            };
            let (class, number, each) = match fragment {
                Some(f) => (UnitClass::Tensor, f.number(), f64::from(f.products())),
                // Floats are widened on the way into the registers.
                None if input.is_float() => (UnitClass::Fma, NumType::from(sum), 1.0),
                None => (UnitClass::Fma, NumType::from(input), 1.0),
            };
            let own = 2.0 * times;
            let done = each * own * padding(p, s, stmt);
            w.add_ops(class, number, done);
            w.repeated += done - own;
        }
        Stmt::Fold {
            monoid,
            state,
            args,
            over,
            rescale,
        } => {
            let dtype = state
                .first()
                .or(args.first())
                .map_or(DType::F32, |&t| k.tiles[t as usize].dtype);
            add_program(w, &monoid.lift, dtype, times);
            add_program(w, &monoid.combine, dtype, times);
            if let Some(r) = rescale {
                // Once per piece of the looped axes that are folded.
                let pieces: f64 = over.iter().map(|&a| s.loop_pieces(a)).product();
                let positions = |tile: u16| s.positions(&k.tiles[tile as usize].axes) * pieces;
                if let Some(&m) = state.first() {
                    add_program(w, &r.factor, dtype, positions(m));
                }
                for &t in &r.tiles {
                    w.add_ops(
                        UnitClass::Simple,
                        NumType::from(k.tiles[t as usize].dtype),
                        positions(t),
                    );
                }
            }
        }
    }
}
