//! Schedules for GPUs without staged copies: every family has one, so that any kernel can be
//! planned. Threads lie along the memory of the output, or of what is reduced; operands are read
//! where they are used, and what is made of them is computed there too.
use super::candidate::Candidate;
use super::form::{gather_loops, whole};
use super::gpu::MOST_REGISTERS;
use super::product::Product;
use super::{gpu_layout, tiles};
use crate::bind::ctx::Space;
use kernel::{
    AxisId, AxisTile, Combined, GpuMapping, GpuTarget, Kernel, MOST_NEIGHBOURS, Mapping, Place,
    Role, Schedule, Spread, Stmt, Swizzle, TileId, TileIds, TileProgram,
};
use layout::Arrange;
use machine::units;

/// Reduced positions that one thread walks by itself.
const OWN: i64 = 64;
/// Registers of a thread that tiles may take.
const MOST_HELD: i64 = 64;
/// Registers of a thread that a loaded row may take, to be read from memory once.
const MOST_ROW: i64 = 16;
/// Positions of a looped axis that one pass takes.
const PASS: i64 = 16;
/// Neighbours that a thread of a team reads at once.
const EACH: u32 = 8;
/// Rows of a product whose columns are shared out to lanes.
const FEW_ROWS: i64 = 4;
/// Threads that reduce together at most, where there is something else for others to do.
const TEAM: u32 = 32;

/// Positions for each multiprocessor below which they are few.
const WHOLE: i64 = 64;

/// Threads that sum together to choose from, where loops go in passes.
const PASS_TEAMS: [u32; 3] = [4, 8, 16];

/// Threads along the columns of a product, and rows of each, where a CTA's threads make one of its factors in common.
const COLUMNS: [u32; 3] = [8, 16, 32];
const ROWS_EACH: [i64; 2] = [1, 4];

/// Threads that reduce together to choose from, where one CTA does all; one alone where there is little to reduce.
const TEAMS: [u32; 4] = [1, 2, 8, 32];

/// A tile in shared memory that nothing is copied to ahead of time.
const SHARED: Place = Place::Shared {
    swizzle: Swizzle {
        bits: 0,
        base: 0,
        shift: 0,
    },
    stages: 1,
};

/// Elements of tile `t` that each thread has; `None` where its size is not known.
fn elements_per_thread(k: &Kernel, s: &Schedule, spread: &[Spread], t: TileId) -> Option<i64> {
    k.tiles[t as usize].axes.iter().try_fold(1i64, |n, &a| {
        let known = k.axes[a as usize].extent.known();
        let bound = s.tile(a).or(known)?.min(known.unwrap_or(i64::MAX)).max(1);
        let over = spread.iter().find(|x| x.axis == a);
        let count = over.map_or(1, |x| i64::from(x.count));
        n.checked_mul((bound + count - 1) / count)
    })
}

/// Candidates, best guesses first.
pub(crate) fn candidates(space: &Space) -> Vec<Candidate> {
    let Some(f) = Flat::new(space) else {
        return vec![];
    };
    let kernel = space.kernel;
    let parallel = space.parallel();
    let products = Product::all(kernel);
    let reduced = space.points(&f.over);
    let mut out = vec![];
    let ordered = kernel.ordered_loops();
    if !ordered.is_empty() {
        f.points(kernel, &ordered, &mut out);
        f.teams(kernel, &ordered, &mut out);
        f.sequences(kernel, &ordered, &mut out);
    } else if products.len() > 1 {
        f.in_common(&products, &mut out);
        // Sums over sums: the last product's axis goes in passes, so that what lies between has a size. Where a
        // sum along that axis is needed whole by a later one along it, there are no passes.
        match f.walk(&products) {
            Some((kernel, loops)) => {
                f.few_points(&kernel, &loops, &mut out);
                f.points(&kernel, &loops, &mut out);
            }
            None => f.points(kernel, &[], &mut out),
        }
    } else if !products.is_empty() {
        // A thread for each position would leave multiprocessors without work, and the others waiting.
        let few = space.points(&parallel) < i64::from(TEAM) * space.ctx.workers as i64;
        if few || f.team(&products) {
            f.rows(TEAM, &mut out);
        }
        f.columns(&mut out);
        f.points(kernel, &[], &mut out);
    } else if f.over.is_empty() || reduced <= OWN {
        f.points(kernel, &[], &mut out);
    } else {
        f.rows(u32::MAX, &mut out);
        f.rows(TEAM, &mut out);
    }
    out
}

/// Candidates whose tasks have the tiles of `grid`, outermost first.
pub(super) fn with_grid(space: &Space, grid: &[AxisTile]) -> Vec<Candidate> {
    let Some(f) = Flat::new(space) else {
        return vec![];
    };
    let cut: Vec<AxisTile> = grid.iter().rev().copied().collect();
    let each = f.gpu.threads.iter().rev();
    each.filter_map(|&threads| f.candidate(space.kernel, &cut, &[], (threads, 1, EACH)))
        .collect()
}

/// Candidates of CTAs of so many threads whose tasks have the tiles of `grid`, outermost first.
pub(super) fn with_threads(space: &Space, grid: &[AxisTile], threads: u32) -> Vec<Candidate> {
    let Some(f) = Flat::new(space) else {
        return vec![];
    };
    let cut: Vec<AxisTile> = grid.iter().rev().copied().collect();
    let widths = [EACH, 1].into_iter();
    widths
        .filter_map(|each| f.candidate(space.kernel, &cut, &[], (threads, 1, each)))
        .collect()
}

/// Whether a kernel is one product with few rows, or few columns, which reads a factor once for all of them.
pub(super) fn few_rows(space: &Space) -> bool {
    let all = Product::all(space.kernel);
    let (Some(largest), [_]) = (space.main_input(), all.as_slice()) else {
        return false;
    };
    let parallel = space.parallel();
    let apart = |a: &&AxisId| space.stride(largest, **a) == 0;
    let others: Vec<AxisId> = parallel.iter().filter(apart).copied().collect();
    space.points(&others) <= FEW_ROWS
}

/// Candidates of one task each, of at most so many threads.
pub(super) fn one_task(space: &Space, most: Option<u32>) -> Vec<Candidate> {
    let kernel = space.kernel;
    let Some(f) = Flat::new(space) else {
        return vec![];
    };
    if !kernel.ordered_loops().is_empty() || Product::all(kernel).len() > 1 {
        return vec![];
    }
    let mut out = vec![];
    let reduced = space.points(&f.over).max(1);
    let whole = tiles::fill(space, &f.order, space.points(&f.order), 1);
    let [widest, limit] = f.threads_of_one();
    let sizes = match most {
        Some(most) => vec![most.min(widest)],
        None => vec![widest, limit],
    };
    for threads in sizes {
        let most = u32::try_from(reduced).unwrap_or(threads).min(threads);
        let several = reduced > i64::from(EACH);
        for team in TEAMS
            .into_iter()
            .filter(|&t| t <= most && (t > 1 || !several))
        {
            for &each in f.widths() {
                out.extend(f.candidate(kernel, &whole, &[], (threads, team, each)));
            }
        }
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
    /// Reduced axes.
    over: Vec<AxisId>,
}

impl<'a> Flat<'a> {
    fn new(space: &'a Space<'a>) -> Option<Flat<'a>> {
        let gpu = space.ctx.target.gpu.as_ref()?;
        let kernel = space.kernel;
        let parallel = space.parallel();
        let mut over: Vec<AxisId> = kernel.body.iter().flat_map(|s| s.over()).copied().collect();
        over.arrange();
        over.dedup();
        let lead = space.main_output().or(space.main_input());
        let order = lead.map_or(parallel.clone(), |o| space.inner_first(o, &parallel));
        let unit = lead.and_then(|o| space.unit_axis(o, &parallel));
        Some(Flat {
            space,
            gpu,
            order,
            unit,
            over,
        })
    }
}

impl Flat<'_> {
    /// Threads of a CTA that does all: the most that others have, and the most that there can be.
    fn threads_of_one(&self) -> [u32; 2] {
        let limit = &self.space.ctx.machine.limits.threads_per_cta;
        let limit = limit.as_ref().and_then(|l| u32::try_from(l.value).ok());
        let widest = self.gpu.threads.last().copied().unwrap_or(1);
        [widest, limit.map_or(widest, |l| l.max(widest))]
    }

    /// Loops over what the last product sums; `None` where the body cannot be ordered for them.
    fn walk(&self, products: &[Product]) -> Option<(Kernel, Vec<AxisTile>)> {
        let last = products.last()?;
        let mut kernel = self.space.kernel.clone();
        kernel.body = gather_loops(&kernel, &last.over)?;
        let inner = last.over.last().copied();
        let tile = |&axis: &AxisId| AxisTile {
            axis,
            tile: if Some(axis) == inner { PASS } else { 1 },
        };
        Some((kernel, last.over.iter().map(tile).collect()))
    }

    /// Whether the largest operand of the only product lies along what is summed, and that is long.
    fn team(&self, products: &[Product]) -> bool {
        let largest = self.space.main_input().filter(|_| products.len() == 1);
        let unit = largest.and_then(|o| self.space.unit_axis(o, &self.over));
        unit.is_some() && self.space.points(&self.over) >= i64::from(TEAM)
    }

    /// Neighbours along what is reduced that a thread of `team` reads at once, and their axis: those of the largest
    /// operand, in whole loads where that leaves every thread as many.
    fn read_at_once(&self, (team, most): (u32, u32)) -> Option<(AxisId, u32)> {
        let o = self.space.main_input()?;
        let axis = self.space.unit_axis(o, &self.over)?;
        let operand = &self.space.kernel.operands[o as usize];
        let extent = &self.space.kernel.axes[axis as usize].extent;
        let widest = self.gpu.load_bytes.iter().max()? * 8;
        let most = (widest / operand.dtype.bits().max(1)).min(most);
        let tile = self.space.extent(axis);
        let run = operand.access.run(axis, extent, tile, most);
        // Threads of the team that have as many positions, each.
        let own = self.space.points(&self.over) / i64::from(team);
        let each = run.min(1 << own.trailing_zeros().min(5));
        (each > 1).then_some((axis, each))
    }

    /// Every thread makes a few positions of the output.
    fn points(&self, kernel: &Kernel, loops: &[AxisTile], out: &mut Vec<Candidate>) {
        for &threads in self.gpu.threads.iter().rev() {
            for per in [4, 1, 8, 2] {
                let target = i64::from(threads) * per;
                let cut = tiles::fill(self.space, &self.order, target, per);
                out.extend(self.candidate(kernel, &cut, loops, (threads, 1, EACH)));
            }
        }
    }

    /// As [`Flat::points`], where positions of the output that are not cut lie over the threads: the others, of which
    /// there are few, are shared out to all multiprocessors.
    fn few_points(&self, kernel: &Kernel, loops: &[AxisTile], out: &mut Vec<Candidate>) {
        let (all, workers) = (
            self.space.points(&self.order),
            self.space.ctx.workers as i64,
        );
        let each = all / workers.max(1);
        if let (true, Some(&threads)) = (each < WHOLE, self.gpu.threads.first()) {
            let cut = tiles::fill(self.space, &self.order, each.max(1), 1);
            out.extend(self.candidate(kernel, &cut, loops, (threads, 1, EACH)));
        }
    }

    /// Threads make in common, in shared memory, a factor of the last product: the axis of that sum lies over the same
    /// threads as the columns of its result. Without reductions in between, whose threads would be others.
    fn in_common(&self, products: &[Product], out: &mut Vec<Candidate>) {
        let (kernel, space) = (self.space.kernel, self.space);
        let reduces = kernel.body.iter().any(|s| matches!(s, Stmt::Fold { .. }));
        let (Some(last), false) = (products.last(), reduces) else {
            return;
        };
        let made = [last.a, last.b].into_iter();
        let made = made.filter(|&t| space.source(t).is_none());
        let (&[summed], [made]) = (last.over.as_slice(), &made.collect::<Vec<_>>()[..]) else {
            return;
        };
        let column = |a: &&AxisId| !kernel.tiles[usize::from(*made)].axes.contains(a);
        let Some(&unit) = self.order.iter().find(column) else {
            return;
        };
        let rows: Vec<AxisId> = self.order.iter().copied().filter(|a| *a != unit).collect();
        for &threads in self.gpu.threads.iter().rev() {
            for lanes in COLUMNS {
                for per in ROWS_EACH {
                    let points = i64::from(threads / lanes) * per;
                    let cut = tiles::fill(self.space, &rows, points, 1);
                    let schedule = self.tasks(kernel, &cut, &[]);
                    let mut lay = gpu_layout::ThreadLayout::new(threads);
                    lay.along(unit, lanes, 1);
                    for &a in &rows {
                        let n = self.space.len(&schedule, a).max(1);
                        let n = u32::try_from(n).unwrap_or(threads);
                        lay.along(a, n.min(threads).next_power_of_two(), 1);
                    }
                    let mut spread = lay.spread;
                    if let Some(&columns) = spread.iter().find(|s| s.axis == unit) {
                        spread.push(Spread {
                            axis: summed,
                            ..columns
                        });
                        out.extend(self.spread_like(kernel, schedule, (threads, 1), spread));
                    }
                }
            }
        }
    }

    /// As [`Flat::points`], where teams of threads make what is summed in each pass of `loops`: there are few positions.
    /// Those that have code: gates that are parts of one sum must lie over threads alike.
    fn teams(&self, kernel: &Kernel, loops: &[AxisTile], out: &mut Vec<Candidate>) {
        for &threads in self.gpu.threads.iter().rev() {
            for team in PASS_TEAMS {
                let teams = i64::from(threads / team).max(1);
                let cut = tiles::fill(self.space, &self.order, teams, 1);
                let found = self.candidate(kernel, &cut, loops, (threads, team, EACH));
                out.extend(found.filter(|c| self.has_code(c)));
            }
        }
    }

    /// As [`Flat::points`] and [`Flat::teams`], where so many multiprocessors as there are share the positions of the
    /// output that are cut: beside each lie those along which a pass sums, which are work for all threads of a task.
    fn sequences(&self, kernel: &Kernel, loops: &[AxisTile], out: &mut Vec<Candidate>) {
        let all = self.space.points(&self.order);
        let each = all.div_euclid(self.space.ctx.workers.max(1) as i64).max(1);
        let cut = tiles::fill(self.space, &self.order, each, 1);
        for &threads in self.gpu.threads.iter().rev().filter(|_| each < all) {
            for team in [1].into_iter().chain(PASS_TEAMS) {
                // Smaller tasks have it already.
                if team > 1 && i64::from(threads / team) <= each {
                    continue;
                }
                let found = self.candidate(kernel, &cut, loops, (threads, team, EACH));
                out.extend(found.filter(|c| self.has_code(c)));
            }
        }
    }

    /// Whether the target's printer takes a candidate, where it says so.
    fn has_code(&self, c: &Candidate) -> bool {
        let Some(prints) = self.gpu.printer.prints else {
            return true;
        };
        let program = TileProgram::new(c.kernel.clone(), c.schedule.clone());
        program.is_ok_and(|p| prints(&p, self.space.ctx.target).is_ok())
    }

    /// Teams of at most `most` threads make positions of the output, each thread its share of what
    /// is reduced.
    fn rows(&self, most: u32, out: &mut Vec<Candidate>) {
        for &threads in self.gpu.threads.iter().rev() {
            let all = self.space.points(&self.over);
            let team = u32::try_from(all).unwrap_or(u32::MAX);
            let team = team.min(most).min(threads).max(1);
            let team = 1 << team.ilog2();
            let teams = i64::from(threads / team).max(1);
            for per in [1, 4] {
                let cut = tiles::fill(self.space, &self.order, teams * per, 1);
                for &each in self.widths() {
                    let shape = (threads, team, each);
                    out.extend(self.candidate(self.space.kernel, &cut, &[], shape));
                }
            }
        }
    }

    /// As [`Flat::rows`] for a product of few rows whose larger factor lies along the columns: lanes read neighbouring
    /// columns, several each at once, and the others of the team are in other warps. A CTA of more threads than others have
    /// asks memory for more at once.
    fn columns(&self, out: &mut Vec<Candidate>) {
        let (space, kernel) = (self.space, self.space.kernel);
        let Some(largest) = space.main_input() else {
            return;
        };
        let unit = space.unit_axis(largest, &self.order);
        let (Some(unit), Some(&summed)) = (unit, self.reduced_inner_first().first()) else {
            return;
        };
        let wide = space.extent(unit).max(1);
        if !few_rows(space) || space.extent(summed) < i64::from(TEAM) {
            return;
        }
        let operand = &kernel.operands[largest as usize];
        let widest = self.gpu.load_bytes.iter().max().map_or(0, |b| b * 8);
        let most = (widest / operand.dtype.bits().max(1)).clamp(1, EACH);
        let widest = self.gpu.threads.last().map(|t| 2 * t);
        let fits = widest.filter(|&t| t <= self.threads_of_one()[1]);
        let all = self.gpu.threads.iter().copied().chain(fits);
        for threads in all.rev() {
            for (lanes, narrower) in [(32, 0), (32, 1), (32, 2), (8, 0)] {
                let each = most >> narrower;
                let columns = i64::from(lanes * each);
                let extent = &kernel.axes[unit as usize].extent;
                let together = operand.access.run(unit, extent, columns, each) == each;
                if each < 1 || columns > wide || !together {
                    continue;
                }
                let tile = |&axis: &AxisId| AxisTile {
                    axis,
                    tile: match axis == unit {
                        true => columns,
                        // Rows are one task's, which reads the factor once for them; parts of a sum are apart.
                        false if space.stride(largest, axis) == 0 => space.extent(axis),
                        false => 1,
                    },
                };
                let cut: Vec<AxisTile> = self.order.iter().map(tile).collect();
                let schedule = self.tasks(kernel, &cut, &[]);
                let mut lay = gpu_layout::ThreadLayout::new(threads);
                lay.along(unit, lanes, each);
                lay.along(summed, threads / lanes, 1);
                let team = threads / lanes;
                let found = self.spread_like(kernel, schedule, (threads, team), lay.spread);
                let found = found.filter(|c| self.has_code(c));
                out.extend(found.iter().flat_map(|c| self.ahead(c, each)));
                out.extend(found);
            }
        }
    }

    /// `c` with loops written out more often, so that a thread asks for more at once: `each` neighbours for each time.
    fn ahead(&self, c: &Candidate, each: u32) -> Vec<Candidate> {
        let usual = super::gpu::unroll(self.gpu);
        let more = self.gpu.unrolls.iter().filter(|&&n| n > usual);
        more.filter_map(|&unroll| {
            let mut schedule = (*c.schedule).clone();
            let Mapping::Gpu(g) = &mut schedule.mapping else {
                return None;
            };
            (g.unroll, g.registers) = (unroll, self.registers(g.threads, (unroll * each).into()));
            Some(Candidate {
                what: format!("{}, loops written out {unroll} times", c.what),
                schedule: schedule.into(),
                ..c.clone()
            })
        })
        .collect()
    }

    /// Neighbours that a thread of a team reads at once at most: of numbers of 4 bits as many as 16 bytes have, or fewer,
    /// beside which threads read what these are multiplied with in longer lines together.
    fn widths(&self) -> &'static [u32] {
        let largest = self.space.main_input();
        let bits = largest.map(|o| self.space.kernel.operands[o as usize].dtype.bits());
        match bits {
            Some(4) => &[EACH, MOST_NEIGHBOURS],
            _ => &[EACH],
        }
    }

    /// Where what is reduced lies together in memory, innermost first.
    fn reduced_inner_first(&self) -> Vec<AxisId> {
        match self.space.main_input() {
            Some(o) => self.space.inner_first(o, &self.over),
            None => self.over.clone(),
        }
    }

    fn candidate(
        &self,
        kernel: &Kernel,
        cut: &[AxisTile],
        loops: &[AxisTile],
        (threads, team, each): (u32, u32, u32),
    ) -> Option<Candidate> {
        let schedule = self.tasks(kernel, cut, loops);
        let spread = self.spread(kernel, &schedule, threads, (team, each));
        self.spread_like(kernel, schedule, (threads, team), spread)
    }

    /// The schedule whose tasks have these tiles, innermost first.
    fn tasks(&self, kernel: &Kernel, cut: &[AxisTile], loops: &[AxisTile]) -> Schedule {
        // A symbolic axis is cut even where one piece covers it: tiles have a size then.
        let needed = |t: &&AxisTile| {
            let symbolic = kernel.axes[t.axis as usize].extent.known().is_none();
            t.tile < self.space.extent(t.axis) || symbolic
        };
        Schedule {
            grid: cut.iter().rev().filter(needed).copied().collect(),
            loops: loops.to_vec(),
            ..whole(kernel)
        }
    }

    /// The candidate whose axes lie over threads as `spread` says.
    fn spread_like(
        &self,
        kernel: &Kernel,
        mut schedule: Schedule,
        (threads, team): (u32, u32),
        spread: Vec<Spread>,
    ) -> Option<Candidate> {
        let space = self.space;
        let (held, shared) = self.place_tiles(kernel, &mut schedule, &spread, team > 1)?;
        // What threads exchange when they reduce together.
        let scalars = kernel.body.iter().map(|s| match s {
            Stmt::Fold { state, .. } => state.len() as u64,
            _ => 1,
        });
        let exchanged = scalars.max().unwrap_or(1) * u64::from(threads) * 8;
        if team > 1 && shared + exchanged > self.shared_room() {
            return None;
        }
        let columns: Vec<AxisId> = self.unit.into_iter().collect();
        let rows = self.order.iter().rev().copied();
        let rows = rows.filter(|a| !columns.contains(a)).collect();
        let what = format!(
            "{}, {threads} threads{}, {} shared",
            tiles::describe(space, &schedule.grid, &schedule.loops),
            match team {
                1 => String::new(),
                n => format!(" in teams of {n}"),
            },
            units::bytes(shared as f64),
        );
        schedule.mapping = Mapping::Gpu(GpuMapping {
            threads,
            warps: [1, threads.div_ceil(32)],
            copiers: 0,
            walkers: 0,
            cluster: 1,
            combined: Combined::ByLast,
            store_bytes: 0,
            rows,
            columns,
            fragment: None,
            load_bytes: self.load_bytes(kernel, &schedule),
            unroll: super::gpu::unroll(self.gpu),
            registers: self.registers(threads, held),
            spread,
            code: None,
            constants: vec![],
            triggers: false,
        });
        Some(Candidate {
            what,
            kernel: kernel.clone().into(),
            schedule: schedule.into(),
            packed: vec![],
        })
    }

    /// Bytes of shared memory that a CTA may have.
    fn shared_room(&self) -> u64 {
        let limit = &self.space.ctx.machine.limits.shared_per_cta;
        limit.as_ref().map_or(16 << 10, |l| l.value)
    }

    /// Registers of a thread that holds `held` elements.
    fn registers(&self, threads: u32, held: i64) -> u32 {
        let limits = &self.space.ctx.machine.limits;
        let file = limits.registers_per_sm.as_ref();
        let file = file.map_or(65_536, |l| l.value as u32);
        let most = limits.registers_per_thread.as_ref();
        let most = most.map_or(MOST_REGISTERS, |l| {
            l.value.min(MOST_REGISTERS.into()) as u32
        });
        let wanted = (24 + held.clamp(0, 231) as u32).div_ceil(8) * 8;
        wanted.min(most).min(file / threads.max(1) / 8 * 8).max(24)
    }

    /// How axes lie over threads: teams along what is reduced, then what tasks share out, then axes of the output
    /// that no task may cut.
    fn spread(
        &self,
        kernel: &Kernel,
        s: &Schedule,
        threads: u32,
        (team, each): (u32, u32),
    ) -> Vec<Spread> {
        let space = self.space;
        let mut lay = gpu_layout::ThreadLayout::new(threads);
        if team > 1 {
            let at_once = self.read_at_once((team, each));
            for a in self.reduced_inner_first() {
                let each = at_once.filter(|x| x.0 == a).map_or(1, |x| x.1);
                let n = space.len(s, a) / i64::from(each);
                let count = (team / lay.used()).min(1 << n.max(1).ilog2());
                lay.along(a, count, each);
            }
        }
        let looped = |a: AxisId| s.loops.iter().any(|l| l.axis == a);
        let stored = self.stored_axes(kernel).into_iter();
        let others = stored.filter(|a| !self.order.contains(a) && !looped(*a));
        for a in self.order.iter().copied().chain(others) {
            let n = space.len(s, a).max(1);
            let count = u32::try_from(n).unwrap_or(threads).min(threads);
            lay.along(a, count.next_power_of_two(), 1);
        }
        let mut spread = lay.spread;
        gpu_layout::parts_alike(kernel, &mut spread);
        spread
    }

    /// Gives every tile a place; how many elements a thread then holds in registers, and the bytes of shared
    /// memory. `None` where those do not suffice.
    fn place_tiles(
        &self,
        kernel: &Kernel,
        schedule: &mut Schedule,
        spread: &[Spread],
        teams: bool,
    ) -> Option<(i64, u64)> {
        let room = self.shared_room();
        let (mut held, mut shared) = (0i64, 0u64);
        let count = |list: &dyn Fn(&Stmt) -> TileIds, t: TileId| {
            let all = kernel.body.iter();
            all.filter(|s| list(s).contains(&t)).count()
        };
        for t in 0..kernel.tiles.len() as TileId {
            let n = elements_per_thread(kernel, schedule, spread, t);
            let loaded = self.space.source(t).is_some();
            let once = count(&|s| s.writes(), t) == 1;
            let uses = count(&|s| s.reads(), t);
            let row =
                teams && uses > 1 && n.is_some_and(|n| n <= MOST_ROW && held + n <= MOST_HELD);
            let fits = n.is_some_and(|n| held + n <= MOST_HELD);
            let place = if loaded && once {
                match row {
                    true => Place::Register,
                    false => Place::InPlace,
                }
            } else if gpu_layout::handed_over(kernel, t, spread) {
                SHARED
            } else if kernel::recomputable(kernel, t) {
                Place::Recompute
            } else if fits {
                Place::Register
            } else {
                SHARED
            };
            match place {
                Place::Register => held += n.unwrap_or(0),
                Place::Shared { .. } => {
                    let bytes = self.bytes(kernel, schedule, t)?;
                    shared = shared.checked_add(bytes).filter(|&s| s <= room)?;
                }
                _ => {}
            }
            schedule.places[t as usize] = place;
        }
        Some((held, shared))
    }

    /// Axes of what is stored, innermost of the main output first.
    fn stored_axes(&self, kernel: &Kernel) -> Vec<AxisId> {
        let mut axes: Vec<AxisId> = vec![];
        for (_, t) in self.space.stores() {
            axes.extend(&kernel.tiles[t as usize].axes);
        }
        axes.arrange();
        axes.dedup();
        axes.retain(|a| !self.over.contains(a));
        match self.space.main_output() {
            Some(o) => self.space.inner_first(o, &axes),
            None => axes,
        }
    }

    /// Bytes of a shared tile, of 4 per narrow element; `None` when its size is not known.
    fn bytes(&self, kernel: &Kernel, schedule: &Schedule, t: TileId) -> Option<u64> {
        let tile = &kernel.tiles[t as usize];
        let mut n = 1u64;
        for &a in &tile.axes {
            let known = kernel.axes[a as usize].extent.known();
            let bound = schedule.tile(a).or(known)?.max(1);
            n = n.checked_mul(u64::try_from(bound).ok()?)?;
        }
        n.checked_mul(u64::from(tile.dtype.bits().max(32) / 8))
    }

    /// The widest load that suits every operand along the output's memory.
    fn load_bytes(&self, kernel: &Kernel, schedule: &Schedule) -> u32 {
        let widest = *self.gpu.load_bytes.iter().max().unwrap_or(&4);
        let mut bytes = widest;
        for o in kernel.operands.iter().filter(|o| o.role == Role::Read) {
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
