//! Random schedules.
use crate::Rng;
use kernel::{
    AxisId, AxisTile, CpuMapping, GpuMapping, Kernel, Mapping, MicroKernel, Place, Schedule,
    Spread, Stmt, Swizzle, TileId,
};

/// Schedules per kernel.
const TRIES: usize = 4;

/// Axes that no statement reduces and every store has: tasks may share them out.
fn parallel(k: &Kernel) -> Vec<AxisId> {
    let stored = |a: AxisId| {
        k.body.iter().all(|s| match s {
            Stmt::Store { src, .. } => k.tiles[*src as usize].axes.contains(&a),
            _ => true,
        })
    };
    (0..k.axes.len() as AxisId)
        .filter(|&a| stored(a) && !k.body.iter().any(|s| s.over().contains(&a)))
        .collect()
}

fn relabelled(k: &Kernel, a: AxisId) -> bool {
    k.body.iter().any(|s| match s {
        Stmt::Relabel { labels, .. } => labels.iter().any(|l| l.from == a || l.to == a),
        _ => false,
    })
}

fn cuts(k: &Kernel, rng: &mut Rng) -> (Vec<AxisTile>, Vec<AxisTile>) {
    let mut grid = vec![];
    for axis in parallel(k) {
        let symbolic = k.axes[axis as usize].extent.known().is_none();
        if !relabelled(k, axis) && (symbolic || !rng.once_in(3)) {
            let tile = rng.of(&[1, 2, 3, 4, 5, 8, 16, 32, 33, 64]);
            grid.push(AxisTile { axis, tile });
        }
    }
    let mut loops = k.ordered_loops();
    for axis in 0..k.axes.len() as AxisId {
        let over = k.body.iter().any(|s| s.over().contains(&axis));
        let known = loops.iter().any(|l| l.axis == axis);
        if over && !known && !relabelled(k, axis) && rng.once_in(2) {
            let tile = rng.of(&[1, 2, 4, 5, 8, 16]);
            loops.push(AxisTile { axis, tile });
        }
    }
    (grid, loops)
}

/// Random schedules for a CPU; those that break a rule are for the caller to leave out.
pub fn cpu_schedules(k: &Kernel, rng: &mut Rng) -> Vec<Schedule> {
    let mut out = vec![];
    for _ in 0..TRIES {
        let (grid, loops) = cuts(k, rng);
        let micro = match rng.once_in(2) {
            true => Some(rng.of(&[(6, 16), (6, 64), (4, 16)])),
            false => None,
        };
        let in_place = rng.once_in(2);
        out.push(cpu_schedule(k, grid, loops, in_place, micro));
    }
    out
}

/// A schedule for a CPU; `in_place`: tiles that are loaded, and nothing else, are their operands' own memory.
pub fn cpu_schedule(
    k: &Kernel,
    grid: Vec<AxisTile>,
    loops: Vec<AxisTile>,
    in_place: bool,
    micro: Option<(u32, u32)>,
) -> Schedule {
    let place = |t: usize| match in_place && loaded_once(k, t as TileId) {
        true => Place::InPlace,
        false => Place::Register,
    };
    Schedule {
        grid,
        loops,
        places: (0..k.tiles.len()).map(place).collect(),
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: micro.map(|(mr, nr)| MicroKernel { mr, nr }),
            rows: vec![],
            lanes: None,
        }),
    }
}

fn loaded_once(k: &Kernel, t: TileId) -> bool {
    let writes = k.body.iter().filter(|s| s.writes().contains(&t)).count();
    let loaded = |s: &Stmt| matches!(s, Stmt::Load { dst, .. } if *dst == t);
    writes == 1 && k.body.iter().any(loaded)
}

/// Axes over so many threads in a random order, most of them.
fn spread(k: &Kernel, threads: u32, rng: &mut Rng) -> Vec<Spread> {
    let mut spread: Vec<Spread> = vec![];
    let mut used = 1u32;
    let mut order: Vec<AxisId> = (0..k.axes.len() as AxisId).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, rng.below(i + 1));
    }
    for axis in order {
        if rng.once_in(3) {
            continue;
        }
        let most = (threads / used).max(1);
        let count = (1u32 << rng.below(6)).min(1 << most.ilog2());
        let each = rng.of(&[1, 1, 1, 2, 4]);
        if count > 1 || each > 1 {
            spread.push(Spread {
                axis,
                stride: used,
                count,
                each,
            });
            used *= count;
        }
    }
    spread
}

/// Lays an axis of a contraction's result over the threads that an axis of its sum lies over.
fn over_the_same(k: &Kernel, spread: &mut Vec<Spread>, rng: &mut Rng) {
    let mut pairs = vec![];
    for s in &k.body {
        if let Stmt::Contract { acc, over, .. } = s {
            let axes = &k.tiles[*acc as usize].axes;
            pairs.extend(over.iter().flat_map(|&x| axes.iter().map(move |&y| (x, y))));
        }
    }
    if pairs.is_empty() {
        return;
    }
    let (x, y) = rng.of(&pairs);
    let Some(&over) = spread.iter().find(|s| s.axis == x && s.count > 1) else {
        return;
    };
    spread.retain(|s| s.axis != y || s.count > 1);
    if !spread.iter().any(|s| s.axis == y) {
        spread.push(Spread { axis: y, ..over });
    }
}

/// Random schedules for a GPU: axes over threads in every way, tiles in every place. Those that
/// break a rule are for the caller to leave out.
pub fn gpu_schedules(
    k: &Kernel,
    lookup: &dyn Fn(&str) -> Option<i64>,
    rng: &mut Rng,
) -> Vec<Schedule> {
    let mut out = vec![];
    for _ in 0..TRIES {
        let (grid, loops) = cuts(k, rng);
        let threads = rng.of(&[32u32, 64, 128]);
        let tile = |a: AxisId| -> i64 {
            let cut = grid
                .iter()
                .chain(&loops)
                .find(|t| t.axis == a)
                .map(|t| t.tile);
            let extent = k.axes[a as usize].extent.eval(lookup).unwrap_or(1).max(1);
            cut.unwrap_or(i64::MAX).min(extent)
        };
        let mut spread = spread(k, threads, rng);
        // A sum's axis over the threads of its result now and then.
        if rng.once_in(3) {
            over_the_same(k, &mut spread, rng);
        }
        let own = |t: TileId| -> i64 {
            k.tiles[t as usize].axes.iter().fold(1i64, |n, &a| {
                let s = spread.iter().find(|s| s.axis == a);
                let (count, each) = s.map_or((1, 1), |s| (i64::from(s.count), i64::from(s.each)));
                n.saturating_mul((tile(a) + count * each - 1) / (count * each) * each)
            })
        };
        let mut places = vec![];
        // Copies run ahead of a loop now and then.
        let depth = rng.of(&[1u32, 1, 2, 3]);
        let swizzles = [
            (0, 0, 0),
            (0, 0, 0),
            (3, 2, 5),
            (2, 2, 4),
            (1, 2, 3),
            (1, 0, 2),
        ];
        let (bits, base, shift) = rng.of(&swizzles);
        let swizzle = Swizzle { bits, base, shift };
        for t in 0..k.tiles.len() as TileId {
            let axes = &k.tiles[t as usize].axes;
            let looped = loaded_once(k, t) && loops.iter().any(|l| axes.contains(&l.axis));
            // A swizzle stays within its tile.
            let size = axes.iter().fold(1i64, |n, &a| n.saturating_mul(tile(a)));
            let swizzle = match size % (1 << (swizzle.base + swizzle.bits)) {
                0 => swizzle,
                _ => Swizzle::default(),
            };
            let shared = Place::Shared {
                swizzle,
                stages: if looped { depth } else { 1 },
            };
            let held = match own(t) <= 32 {
                true => Place::Register,
                false => shared,
            };
            let computed = if kernel::recomputable(k, t) {
                Place::Recompute
            } else {
                held
            };
            places.push(match loaded_once(k, t) {
                true => rng.of(&[Place::InPlace, Place::InPlace, held, shared]),
                false => rng.of(&[held, held, computed, computed, shared]),
            });
        }
        out.push(Schedule {
            grid,
            loops,
            places,
            chunk: 1,
            raster: rng.of(&[1, 1, 2, 3]),
            mapping: Mapping::Gpu(GpuMapping {
                threads,
                warps: [1, threads / 32],
                copiers: 0,
                walkers: 0,
                cluster: 1,
                combined: kernel::Combined::ByLast,
                store_bytes: 0,
                rows: vec![],
                columns: vec![],
                fragment: None,
                load_bytes: rng.of(&[4, 8, 16]),
                unroll: [1, 2, 4][out.len() % 3],
                registers: 64,
                spread,
                code: None,
                constants: vec![],
                triggers: false,
            }),
        });
    }
    out
}
