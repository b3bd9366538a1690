//! Schedules for GPUs without a shared-memory pipeline: every family has one, so that any kernel can
//! be planned. Threads lie along the memory of the output, operands are read where they are used;
//! what a row needs more than once is held in registers, or in shared memory when it is too long.
//! Contractions here run on plain multiply-adds with their sums walked in short pieces.
use super::{Candidate, gather_loops, tiles, whole};
use crate::bind::ctx::Space;
use kernel::{
    AxisId, AxisTile, GpuMapping, GpuTarget, Kernel, Mapping, Place, Schedule, Stmt, Swizzle,
    TileId,
};

/// Reduced positions that one thread walks by itself.
const OWN: i64 = 64;
/// Registers of a thread that tiles may take.
const MOST_HELD: i64 = 128;
/// Positions of the innermost summed axis that one pass of a loop takes.
const PASS: i64 = 16;

/// Candidates, best guesses first.
pub(crate) fn candidates(space: &Space) -> Vec<Candidate> {
    let (Some(gpu), kernel) = (&space.ctx.target.gpu, space.kernel) else {
        return vec![];
    };
    let parallel = space.parallel();
    let mut over: Vec<AxisId> = kernel.body.iter().flat_map(|s| s.over()).copied().collect();
    over.sort_unstable();
    over.dedup();
    let contracts = kernel
        .body
        .iter()
        .any(|s| matches!(s, Stmt::Contract { .. }));
    let reduced = space.points(&over);
    let lead = space.main_output().or(space.main_input());
    let order = lead.map_or(parallel.clone(), |o| space.inner_first(o, &parallel));
    let unit = lead.and_then(|o| space.unit_axis(o, &parallel));
    let f = Flat {
        space,
        gpu,
        order,
        unit,
    };
    let mut out = vec![];
    let ordered = kernel.ordered_loops();
    if !ordered.is_empty() {
        f.points(kernel, &ordered, false, &mut out);
    } else if contracts {
        for (kernel, loops) in f.walks(&over) {
            f.points(&kernel, &loops, false, &mut out);
        }
        if out.is_empty() {
            f.points(kernel, &[], false, &mut out);
        }
    } else if over.is_empty() || reduced <= OWN {
        f.points(kernel, &[], false, &mut out);
    } else {
        f.rows(reduced, &mut out);
    }
    out
}

struct Flat<'a> {
    space: &'a Space<'a>,
    gpu: &'a GpuTarget,
    /// Parallel axes, innermost of the output first.
    order: Vec<AxisId>,
    /// The axis along which the output is contiguous.
    unit: Option<AxisId>,
}

impl Flat<'_> {
    /// Loops over the summed axes, where the kernel can be walked so; else over the last of them.
    fn walks(&self, over: &[AxisId]) -> Vec<(Kernel, Vec<AxisTile>)> {
        let cut = |axes: &[AxisId]| {
            let last = axes.last().copied();
            let tile = |&axis: &AxisId| AxisTile {
                axis,
                tile: if Some(axis) == last { PASS } else { 1 },
            };
            axes.iter().map(tile).collect::<Vec<_>>()
        };
        let all = over.len();
        for n in (1..=all).rev() {
            let axes = &over[all - n..];
            let mut kernel = self.space.kernel.clone();
            if let Some(body) = gather_loops(&kernel, axes) {
                kernel.body = body;
                return vec![(kernel, cut(axes))];
            }
        }
        vec![]
    }

    /// Every thread makes a few positions of the output.
    fn points(&self, kernel: &Kernel, loops: &[AxisTile], held: bool, out: &mut Vec<Candidate>) {
        for &threads in self.gpu.threads.iter().rev() {
            for per in [4, 1, 8, 2] {
                let target = i64::from(threads) * per;
                let cut = tiles::fill(self.space, &self.order, target, per);
                out.push(self.candidate(kernel, &cut, loops, threads, held));
            }
        }
    }

    /// A CTA makes whole rows, each of `reduced` positions.
    fn rows(&self, reduced: i64, out: &mut Vec<Candidate>) {
        for &threads in self.gpu.threads.iter().rev() {
            let most = (i64::from(threads) * OWN / 2 / reduced.max(1)).max(1);
            for rows in [most, (most / 4).max(1), 1] {
                let cut = tiles::fill(self.space, &self.order, rows, 1);
                out.push(self.candidate(self.space.kernel, &cut, &[], threads, true));
                if most == 1 {
                    break;
                }
            }
        }
    }

    fn candidate(
        &self,
        kernel: &Kernel,
        cut: &[AxisTile],
        loops: &[AxisTile],
        threads: u32,
        hold: bool,
    ) -> Candidate {
        let space = self.space;
        let limits = &space.ctx.machine.limits;
        let mut schedule = Schedule {
            grid: tiles::grid(space, cut),
            loops: loops.to_vec(),
            ..whole(kernel)
        };
        // Elements of a thread's share of a tile.
        let share = |s: &Schedule, t: TileId| {
            let n = space.tile_points(s, t);
            (n + i64::from(threads) - 1) / i64::from(threads)
        };
        let written = |t: TileId| {
            let writes = |s: &&Stmt| s.writes().contains(&t);
            kernel.body.iter().filter(writes).count()
        };
        let uses = |t: TileId| {
            kernel
                .body
                .iter()
                .filter(|s| s.reads().contains(&t))
                .count()
        };
        let mut held = 0i64;
        let mut shared = 0u64;
        let room = limits.shared_per_cta.as_ref().map_or(48 << 10, |l| l.value);
        for t in 0..kernel.tiles.len() as TileId {
            let loaded = space.source(t).is_some() && written(t) == 1;
            let n = share(&schedule, t);
            let fits = held.saturating_add(n) <= MOST_HELD;
            schedule.places[t as usize] = match loaded {
                true if hold && uses(t) > 1 && fits => Place::Register,
                true => Place::InPlace,
                false if fits => Place::Register,
                false => {
                    let bytes = space.tile_bytes(&schedule, t);
                    if shared.saturating_add(bytes) <= room {
                        shared += bytes;
                        Place::Shared {
                            swizzle: Swizzle::default(),
                            stages: 1,
                        }
                    } else {
                        Place::Register
                    }
                }
            };
            if schedule.places[t as usize] == Place::Register {
                held += n;
            }
        }
        let file = limits
            .registers_per_sm
            .as_ref()
            .map_or(65_536, |l| l.value as u32);
        let most = limits
            .registers_per_thread
            .as_ref()
            .map_or(255, |l| l.value as u32);
        let wanted = (24 + held.clamp(0, 231) as u32).div_ceil(8) * 8;
        let registers = wanted.min(most).min(file / threads.max(1) / 8 * 8).max(24);
        let columns: Vec<AxisId> = self.unit.into_iter().collect();
        let rows = self
            .order
            .iter()
            .rev()
            .copied()
            .filter(|a| !columns.contains(a))
            .collect();
        schedule.mapping = Mapping::Gpu(GpuMapping {
            threads,
            warps: [1, threads / 32],
            rows,
            columns,
            fragment: None,
            load_bytes: self.load_bytes(kernel, &schedule),
            registers,
        });
        Candidate {
            what: format!(
                "{}, {} threads, {shared} B shared",
                tiles::describe(space, &schedule.grid, loops),
                threads
            ),
            kernel: kernel.clone(),
            schedule,
            packed: vec![],
        }
    }

    /// The widest load that suits every operand along the output's memory.
    fn load_bytes(&self, kernel: &Kernel, schedule: &Schedule) -> u32 {
        let widest = *self.gpu.load_bytes.iter().max().unwrap_or(&4);
        let mut bytes = widest;
        for o in &kernel.operands {
            let size = (o.dtype.bits() / 8).max(1);
            let along = self.unit.filter(|&a| o.access.term(a).is_some());
            let run = along.map_or(1, |a| {
                let extent = &kernel.axes[a as usize].extent;
                let tile = schedule.tile(a).or(extent.known()).unwrap_or(1);
                o.access.run(a, extent, tile, (widest / size).max(1))
            });
            bytes = bytes.min(run * size);
        }
        let fits = self.gpu.load_bytes.iter().copied().filter(|&b| b <= bytes);
        fits.max().unwrap_or(1)
    }
}
