//! Long sums of few results: a product, an attention over many keys, or reductions of few rows, as two kernels. The first
//! sums parts of the longest summed axis, or of the keys, side by side into workspaces, the second adds the parts up in
//! ascending order and does what follows. Both are kernels like any other, so that verifier, reference, cost and emitters know
//! nothing of it, and the order of the sums is the schedule's: the same bits every time.
mod attention;
mod cluster;
mod folds;
mod pieces;
mod product;

use super::candidate::{Arg, Candidate, Half, Parts, Rank};
use super::rank::{self, Search, ranked_of, sketched};
use super::renumber::ordered;
use super::{gpu, gpu_flat};
use crate::bind::ctx::{Ctx, Space};
use crate::bind::launch::{Part, handovers};
use crate::bind::predict::idle_seconds;
use kernel::{AxisId, AxisTile, Family, Kernel};
use layout::Arrange;
use layout::{DType, Dim};
use pieces::Two;

/// Tasks for each worker below which an attention, or a product of few rows, is tried in parts: they have few warps, which
/// wait for one fold or load after the other. What is tried is taken where it is predicted to take less.
const FEW_TASKS: u64 = 4;
/// Positions of the summed axis that a part has at least.
const LEAST: i64 = 64;
/// Numbers of parts whose instructions are counted, the best by arithmetic and bytes alone.
const COUNTED: usize = 3;
/// Candidates of the products, and of the sums of parts, whose instructions are counted.
const OF_EACH: [usize; 2] = [rank::COUNTED, 2];

/// A way that is better than its whole.
pub(super) struct Found {
    pub parts: Parts,
    pub second: Half,
    pub what: String,
    pub rank: f64,
}

/// The fastest split of `kernel` that is predicted to take less than `whole` (as candidates are
/// ranked), whose grid has `tasks`.
pub(super) fn best(ctx: Ctx, kernel: &Kernel, whole: f64, tasks: u64) -> Option<Found> {
    let target = ctx.target.gpu.as_ref()?;
    let space = Space::new(ctx, kernel);
    let enough = match kernel.family {
        Family::Attention => FEW_TASKS * ctx.workers as u64,
        _ if gpu_flat::few_rows(&space) => FEW_TASKS * ctx.workers as u64,
        _ => ctx.workers as u64,
    };
    if tasks >= enough || target.splits.is_empty() || !kernel.ordered().is_empty() {
        return None;
    }
    // Two steps that do nothing, in one launch where that is less.
    let joined = most_saved(ctx);
    if whole <= 2.0 * idle_seconds(ctx) - joined {
        return None;
    }
    let (axis, length) = product::longest(kernel)
        .or_else(|| attention::keys(&space))
        .or_else(|| folds::longest(kernel))?;
    let name = &kernel.axes[axis as usize].name;
    let all = target.splits.iter().map(|&n| i64::from(n));
    let ways = all
        .filter(|n| length / n >= LEAST)
        .filter_map(|n| InParts::of(ctx, two(&space, axis, n)?));
    let ways = ways.filter_map(|w| Some((w.found(name, None, f64::MAX)?.rank, w)));
    let mut ways: Vec<(f64, InParts)> = ways.collect();
    ways.arrange_by(|a, b| a.0.total_cmp(&b.0));
    ways.truncate(COUNTED);
    let mut best: Option<Found> = None;
    for (sketched, w) in &ways {
        let limit = best.as_ref().map_or(whole, |b| b.rank);
        // Sketches do not say what is saved in one launch.
        if *sketched - joined >= limit {
            continue;
        }
        let Some(found) = w.found(name, Some(OF_EACH), limit) else {
            continue;
        };
        if found.rank < limit {
            best = Some(found);
        }
    }
    best
}

/// The two kernels that `kernel` is in `parts`.
pub(super) fn halves(ctx: Ctx, kernel: &Kernel, parts: &Parts) -> Option<[Kernel; 2]> {
    let kernel = ordered(kernel);
    let (axis, n) = parts.cut;
    Some(two(&Space::new(ctx, &kernel), axis, n)?.kernels)
}

/// A half with how it is ranked and what it is called.
type Ranked = (f64, Half, String);

/// Candidates of the sum of parts whose tasks have the tiles of the parts that `first` makes: a CTA that knows those
/// to be made can go on with them.
fn same_tiles(space: &Space, first: &Half) -> Vec<Candidate> {
    let s = &first.schedule;
    let axis = |c: &AxisTile| {
        let name = &first.kernel.axes[c.axis as usize].name;
        let at = space.kernel.axes.iter().position(|a| a.name == *name)?;
        Some(AxisTile {
            axis: at as AxisId,
            ..*c
        })
    };
    let Some((part, rest)) = s.grid.split_first().filter(|_| s.raster == 1) else {
        return vec![];
    };
    // An axis of one position, which the first half may have for itself, makes no tasks.
    let one = |c: &&AxisTile| first.kernel.axes[c.axis as usize].extent.is_one();
    let rest = rest.iter().filter(|c| !one(c));
    match rest.map(axis).collect::<Option<Vec<AxisTile>>>() {
        Some(grid) if part.tile == 1 => gpu_flat::with_grid(space, &grid),
        _ => vec![],
    }
}

/// Seconds that the second half takes less in the launch of the first.
fn saved_as_one_launch(ctx: Ctx, first: &Half, second: &Half) -> Option<f64> {
    fn part(half: &Half) -> Part<'_> {
        Part {
            kernel: &half.kernel,
            schedule: &half.schedule,
            work: &half.work,
        }
    }
    let times = handovers(ctx, &[part(first)], part(second))?;
    Some(ctx.machine.joined_s(times))
}

/// Seconds that a sum of parts takes less in the launch of the parts at most.
fn most_saved(ctx: Ctx) -> f64 {
    let gpu = ctx.target.gpu.as_ref();
    let clusters = gpu.is_some_and(|g| !g.cluster_parts.is_empty());
    let handovers = if clusters { 0 } else { 1 };
    ctx.machine.joined_s(handovers).max(0.0)
}

/// One of two kernels with its candidates.
struct Listed {
    /// Bytes of what lies where each operand does.
    far: Vec<f64>,
    list: Vec<Candidate>,
    sketches: Vec<Rank>,
}

impl Listed {
    fn of(
        ctx: Ctx,
        kernel: &Kernel,
        far: Vec<f64>,
        candidates: &dyn Fn(&Space) -> Vec<Candidate>,
    ) -> Listed {
        let own = Ctx { far: &far, ..ctx };
        let kernel = ordered(kernel);
        let mut list = candidates(&Space::new(own, &kernel));
        list.truncate(ctx.effort.max(1));
        let sketches = sketched(own, &list, 0, &|_| false);
        Listed {
            far,
            list,
            sketches,
        }
    }

    /// The best one, by the instructions of so many, or by sketches; `None` where there is none, or none that takes
    /// less than `limit`.
    fn best(&self, ctx: Ctx, counted: Option<usize>, limit: f64) -> Option<Ranked> {
        let (ctx, sketches) = (
            Ctx {
                far: &self.far,
                ..ctx
            },
            &self.sketches,
        );
        let best = match counted {
            Some(counted) => {
                let search = Search {
                    limit,
                    ..Search::all(ctx.prints(), counted)
                };
                ranked_of(ctx, &self.list, sketches.clone(), &|_| false, search).ok()?
            }
            None => sketches.first().cloned().into_iter().collect(),
        };
        let best = best.into_iter().next();
        let known = |r: &Rank| counted.is_none() || rank::is_known(ctx, r);
        let (rank, at, work, cost) = best.filter(known)?;
        let c = &self.list[at];
        let half = Half {
            kernel: c.kernel.clone(),
            schedule: c.schedule.clone(),
            work,
            cost,
        };
        Some((rank, half, c.what.clone()))
    }
}

/// A kernel in so many parts.
struct InParts<'a> {
    ctx: Ctx<'a>,
    two: Two,
    /// Elements and type of each tensor between the two.
    between: Vec<(i64, DType)>,
    halves: [Listed; 2],
}

impl<'a> InParts<'a> {
    /// `None` where a size between the two has no value.
    fn of(ctx: Ctx<'a>, two: Two) -> Option<InParts<'a>> {
        let top = |(elements, dtype): &(Dim, DType)| Some((ctx.dims.at_top(elements)?, *dtype));
        let between: Vec<(i64, DType)> = two.between.iter().map(top).collect::<Option<_>>()?;
        let bytes = |(n, dtype): &(i64, DType)| *n as f64 * f64::from(dtype.bits()) / 8.0;
        let bytes: f64 = between.iter().map(bytes).sum();
        let half = |n: usize| {
            let far = |o: &Arg| match o {
                Arg::Whole(o) => ctx.far.get(*o as usize).copied().unwrap_or(ctx.footprint),
                Arg::Between(_) => bytes,
            };
            let far = two.args[n].iter().map(far).collect();
            let some = |space: &Space| gpu::candidates(space, ctx.effort.max(1));
            Listed::of(ctx, &two.kernels[n], far, &some)
        };
        Some(InParts {
            halves: [half(0), half(1)],
            ctx,
            between,
            two,
        })
    }

    /// The best schedules of both kernels, by the instructions of so many candidates of each, or by sketches; `None`
    /// where there are none, or the first alone takes `limit`.
    fn found(&self, axis: &str, counted: Option<[usize; 2]>, limit: f64) -> Option<Found> {
        let (ctx, two) = (self.ctx, &self.two);
        let [one, sum] = &self.halves;
        // The sum takes its sketch at least, less what one launch saves.
        let joined = most_saved(ctx);
        let left = sum.sketches.first().map_or(0.0, |s| s.0 - joined);
        let (r1, first, w1) = one.best(ctx, counted.map(|c| c[0]), limit - left.max(0.0))?;
        if r1 >= limit {
            return None;
        }
        let of_sum = counted.map(|c| c[1]);
        let alone = sum.best(ctx, of_sum, limit - r1).map(|h| (h, 0.0));
        // In the launch of the first it may take as much more as that saves.
        let least = alone.as_ref().map_or(limit - r1, |a| a.0.0);
        let most = least + joined;
        let tiles = |space: &Space| same_tiles(space, &first);
        let same = Listed::of(ctx, &two.kernels[1], sum.far.clone(), &tiles);
        let beside = same.best(ctx, of_sum, most);
        let beside = beside.and_then(|(rank, half, what)| {
            let less = saved_as_one_launch(ctx, &first, &half)?;
            let what = format!("{what}, in the same launch");
            Some(((rank - less, half, what), less))
        });
        let clustered = match counted {
            Some(_) => self.in_cluster(&first, limit),
            None => None,
        };
        let ways = [alone, beside].into_iter().flatten();
        let by_last = ways.min_by(|a, b| a.0.0.total_cmp(&b.0.0));
        let by_last = by_last.map(|((rank, second, what), saved)| Way {
            rank: r1 + rank,
            halves: [first, second],
            what,
            saved,
        });
        let ways = [by_last, clustered].into_iter().flatten();
        let way = ways.min_by(|a, b| a.rank.total_cmp(&b.rank))?;
        let [first, second] = way.halves;
        Some(Found {
            what: format!(
                "{} parts along {axis}, {w1}; then their sum, {}",
                two.cut.1, way.what
            ),
            rank: way.rank,
            parts: Parts {
                seconds: first.cost.time_s + second.cost.time_s - way.saved,
                first,
                cut: two.cut,
                args: two.args.clone(),
                between: self.between.clone(),
            },
            second,
        })
    }
}

/// How both kernels run, what the sum is called and how much less both take in one launch.
struct Way {
    rank: f64,
    halves: [Half; 2],
    what: String,
    saved: f64,
}

/// The sum of `space`'s kernel in `parts` along `axis`, and the sum of the parts with what follows; `None` where the
/// kernel has another form.
fn two(space: &Space, axis: AxisId, parts: i64) -> Option<Two> {
    product::two(space, axis, parts)
        .or_else(|| attention::two(space, axis, parts))
        .or_else(|| folds::two(space, axis, parts))
}
