//! Candidates in the order of what they are predicted to take.

use super::candidate::{Candidate, Packed, Rank};
use super::gpu::warps;
use crate::bind::ctx::Ctx;
use crate::bind::known::{Predicted, compared_s};
use crate::bind::predict::{counter, least_counted, predict_below, sketch_step};
use kernel::{
    Kernel, Mapping, OperandId, Prints, Schedule, Stmt, TileId, TileProgram, VerifiedKernel,
};
use layout::Arrange;
use plan::parallel;
use std::sync::Arc;

/// Candidates of a kernel whose instructions are counted, the best by arithmetic and bytes alone: to lower a program and
/// count them takes tens of times as long as all else that is predicted of it.
pub const COUNTED: usize = 6;
/// One in so many of those that are counted is of another kind than the best, where there are such.
const OTHERS: usize = 3;

/// Candidates whose instructions are counted at a time: the next ones are if arithmetic and bytes alone, which seldom
/// say more than counting, say that they may be better than the best so far.
const ROUND: usize = 2;

/// Candidates of which arithmetic and bytes are looked at by several threads, some 10 us for each of them.
const SHARED: usize = 64;

/// How far candidates are looked at.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// Says whether there is code for a program.
    pub prints: Option<Prints>,
    /// Candidates whose instructions are counted at most.
    pub counted: usize,
    /// What is there already takes so long, as candidates are ranked.
    pub limit: f64,
    /// How many times what counting finds arithmetic and bytes alone may say.
    pub overstated: f64,
    /// How many times what the best one takes another may take that is of interest, by warps and by warpgroups.
    pub near: [f64; 2],
}

impl Search {
    /// What a candidate takes that is of no interest where another takes `best`.
    fn limit(&self, best: f64, c: &Candidate) -> f64 {
        let near = self.near[usize::from(warps(c) > 1)];
        self.limit.min(near * best)
    }

    /// For the best of all.
    pub fn all(prints: Option<Prints>, counted: usize) -> Search {
        let limit = f64::INFINITY;
        Search {
            prints,
            counted,
            limit,
            overstated: 1.0,
            near: [1.0; 2],
        }
    }
}

/// Those of `list[from..]` that make valid programs, cheapest first; where instructions are counted, only
/// the best few, and none that takes longer than the limit by arithmetic and bytes alone. There is code for the
/// first.
///
/// # Errors
/// Why there is no code for any of them.
pub(super) fn ranked(
    ctx: Ctx,
    list: &[Candidate],
    from: usize,
    constant: &dyn Fn(OperandId) -> bool,
    search: Search,
) -> Result<Vec<Rank>, String> {
    let numbers: Vec<usize> = (from..list.len()).collect();
    if counter(ctx).is_none() {
        let whole = Prediction::Counted(f64::INFINITY, search);
        let best = sorted_by(whole, ctx, list, numbers, constant);
        return with_code(ctx, list, best, search.prints);
    }
    ranked_of(
        ctx,
        list,
        sketched(ctx, list, from, constant),
        constant,
        search,
    )
}

/// As [`ranked`] of what `sketches` has of `list`, as [`sketched`] gives it, where instructions are counted.
///
/// # Errors
/// Why there is no code for any of them.
pub(super) fn ranked_of(
    ctx: Ctx,
    list: &[Candidate],
    mut sketches: Vec<Rank>,
    constant: &dyn Fn(OperandId) -> bool,
    search: Search,
) -> Result<Vec<Rank>, String> {
    others_too(&mut sketches, search.counted, |r| {
        let c = &list[r.1];
        (stages(c), warps(c), deep(c), teams(c))
    });
    let mut refused = None;
    for few in sketches.chunks(search.counted.max(1)) {
        let (mut best, beaten) = counted(ctx, list, few, constant, search);
        // Those behind seldom take less.
        if best.is_empty() && !beaten.is_empty() {
            return Ok(vec![]);
        }
        best.extend(beaten);
        sort(&mut best);
        match with_code(ctx, list, best, search.prints) {
            Ok(best) if best.is_empty() => {}
            Ok(best) => return Ok(best),
            Err(why) => refused = refused.or(Some(why)),
        }
    }
    match refused {
        Some(why) => Err(why),
        None => Ok(vec![]),
    }
}

/// A few candidates with their instructions counted, cheapest first, and those that are seen to take more than the best or
/// the limit, with what they take at least.
fn counted(
    ctx: Ctx,
    list: &[Candidate],
    few: &[Rank],
    constant: &dyn Fn(OperandId) -> bool,
    search: Search,
) -> (Vec<Rank>, Vec<Rank>) {
    // Those that can be best are counted first.
    let bounded = |r: &Rank| (r.0, at_least(ctx, list, r));
    let mut few: Vec<(f64, Rank)> = few.iter().map(bounded).collect();
    few.arrange_by(|a, b| a.1.0.total_cmp(&b.1.0));
    let (mut best, mut beaten): (Vec<Rank>, Vec<Rank>) = (vec![], vec![]);
    for round in few.chunks(ROUND) {
        // What has no code is no better than anything.
        let reached = best.iter().find(|b| is_known(ctx, b));
        let reached = reached.map_or(f64::INFINITY, |b| b.0);
        let mut numbers = vec![];
        for (sketch, r) in round {
            // A sketch seldom says more than counting does.
            let may = *sketch < search.overstated * search.limit.min(reached);
            match may && r.0 < search.limit(reached, &list[r.1]) {
                true => numbers.push(r.1),
                false => beaten.push(r.clone()),
            }
        }
        let below = Prediction::Counted(reached, search);
        let found = ranked_by(below, ctx, list, numbers, constant);
        for (rank, least) in found {
            debug_assert!(
                // What has no code is not counted.
                least || !is_known(ctx, &rank) || bound(ctx, list, &rank) <= rank.0 * 1.001,
                "{} takes {}, at least {}: {}",
                list[rank.1].kernel.name,
                rank.0,
                bound(ctx, list, &rank),
                list[rank.1].what
            );
            let of = if least { &mut beaten } else { &mut best };
            of.push(rank);
        }
        sort(&mut best);
    }
    (best, beaten)
}

/// A candidate whose sketch is `r` with what counting its instructions finds at least.
fn at_least(ctx: Ctx, list: &[Candidate], r: &Rank) -> Rank {
    let (mut out, least) = (r.clone(), bound(ctx, list, r));
    out.0 = out.0.max(least);
    out.3.time_s = out.3.time_s.max(least);
    out
}

/// What counting the instructions of a candidate finds at least, by arithmetic alone.
fn bound(ctx: Ctx, list: &[Candidate], r: &Rank) -> f64 {
    let c = &list[r.1];
    least_counted(ctx, &c.kernel, &c.schedule, &r.2).unwrap_or(0.0)
}

/// Whether it is known what a candidate takes, not only what it takes at least, and there is code for it.
pub(super) fn is_known(ctx: Ctx, r: &Rank) -> bool {
    !counts_code(ctx) || r.2.warps.is_some()
}

/// Whether there is code where instructions are counted.
fn counts_code(ctx: Ctx) -> bool {
    let gpu = ctx.target.gpu.as_ref();
    gpu.is_some_and(|g| g.printer.counts_code)
}

/// `best` from the first on for which there is code.
///
/// # Errors
/// Why there is none for any of them.
fn with_code(
    ctx: Ctx,
    list: &[Candidate],
    mut best: Vec<Rank>,
    prints: Option<Prints>,
) -> Result<Vec<Rank>, String> {
    let mut refused = None;
    while let (Some(prints), Some(first)) = (prints, best.first()) {
        if first.2.warps.is_some() && counts_code(ctx) {
            break;
        }
        let c = &list[first.1];
        let program = TileProgram::new(c.kernel.clone(), c.schedule.clone());
        let printed = program.map_err(|e| e.to_string());
        match printed.and_then(|p| prints(&p, ctx.target)) {
            Ok(()) => break,
            Err(why) => refused = refused.or(Some(why)),
        }
        best.remove(0);
    }
    match refused {
        Some(why) if best.is_empty() => Err(why),
        _ => Ok(best),
    }
}

/// Whether a candidate stages what it loads in shared memory.
fn stages(c: &Candidate) -> bool {
    let staged = |t: TileId| c.schedule.place(t).stages().is_some();
    let mut body = c.kernel.body.iter();
    body.any(|s| matches!(s, Stmt::Load { dst, .. } if staged(*dst)))
}

/// Whether several threads of a candidate sum together in each pass of a recurrence, or a product.
fn teams(c: &Candidate) -> bool {
    let Mapping::Gpu(g) = &c.schedule.mapping else {
        return false;
    };
    let mut body = c.kernel.body.iter();
    let multiplies = g.fragment.is_none() && body.any(|s| matches!(s, Stmt::Contract { .. }));
    if c.kernel.ordered().is_empty() && !multiplies {
        return false;
    }
    let mut summed = c.kernel.body.iter().flat_map(|s| s.over());
    summed.any(|a| g.spread(*a).count > 1)
}

/// Whether warps of a candidate lie along the depth of a product.
fn deep(c: &Candidate) -> bool {
    matches!(&c.schedule.mapping, Mapping::Gpu(g) if g.deep() > 1)
}

/// Moves the best of the other kind than the first among the `counted`, so that one in `OTHERS` of these is of
/// it where there are so many: arithmetic and bytes alone say little of how threads that stage tiles compare with
/// those that do not.
pub fn others_too<T, K: PartialEq>(list: &mut [T], counted: usize, kind: impl Fn(&T) -> K) {
    let Some(first) = list.first().map(&kind) else {
        return;
    };
    let (head, tail) = list.split_at_mut(list.len().min(counted - counted / OTHERS));
    let there = head.iter().filter(|n| kind(n) != first).count();
    for to in 0..(counted / OTHERS).saturating_sub(there) {
        let Some(n) = tail[to..].iter().position(|n| kind(n) != first) else {
            return;
        };
        tail[to..=to + n].rotate_right(1);
    }
}

/// As [`ranked`], all of them, by arithmetic and bytes alone.
pub(super) fn sketched(
    ctx: Ctx,
    list: &[Candidate],
    from: usize,
    constant: &dyn Fn(OperandId) -> bool,
) -> Vec<Rank> {
    let all = (from..list.len()).collect();
    sorted_by(Prediction::Sketched, ctx, list, all, constant)
}

/// How a step is predicted.
#[derive(Clone, Copy)]
enum Prediction {
    /// By its instructions, where they are counted, as far as it is of interest where another takes so long.
    Counted(f64, Search),
    /// By arithmetic and bytes alone.
    Sketched,
}

/// Kernels of candidates, each verified once: many candidates have the same.
#[derive(Default)]
struct Verified(Vec<(Arc<Kernel>, Option<VerifiedKernel>)>);

impl Verified {
    fn of<'c>(kernels: impl Iterator<Item = &'c Arc<Kernel>>) -> Verified {
        let mut out = Verified::default();
        for k in kernels {
            if out.found(k).is_none() {
                let verified = VerifiedKernel::new(k.clone()).ok();
                out.0.push((k.clone(), verified));
            }
        }
        out
    }

    fn found(&self, kernel: &Arc<Kernel>) -> Option<&Option<VerifiedKernel>> {
        let mut all = self.0.iter().rev();
        all.find(|v| Arc::ptr_eq(&v.0, kernel)).map(|v| &v.1)
    }
}

impl Prediction {
    fn of(
        self,
        ctx: Ctx,
        c: (&Arc<Kernel>, &Arc<Schedule>),
        limit: f64,
        verified: &Verified,
    ) -> Option<Predicted> {
        match (self, verified.found(c.0)) {
            (Prediction::Counted(..), _) => predict_below(ctx, c.0, c.1, limit),
            (Prediction::Sketched, Some(k)) => sketch_step(ctx, k.as_ref()?, c.1),
            (Prediction::Sketched, None) => {
                let k = VerifiedKernel::new(c.0.clone()).ok()?;
                sketch_step(ctx, &k, c.1)
            }
        }
    }
}

/// The candidates of these numbers that make valid programs; of some it is known only what they take at least.
fn ranked_by(
    prediction: Prediction,
    ctx: Ctx,
    list: &[Candidate],
    numbers: Vec<usize>,
    constant: &dyn Fn(OperandId) -> bool,
) -> Vec<(Rank, bool)> {
    let verified = match prediction {
        Prediction::Counted(..) => Verified::default(),
        Prediction::Sketched => Verified::of(numbers.iter().map(|&i| &list[i].kernel)),
    };
    let whole = |i: &usize| {
        let c = &list[*i];
        let limit = match prediction {
            Prediction::Counted(best, search) => search.limit(best, c),
            Prediction::Sketched => f64::INFINITY,
        };
        prediction.of(ctx, (&c.kernel, &c.schedule), limit, &verified)
    };
    // Arithmetic and bytes alone of a few take less time than handing them out to threads.
    let long = match prediction {
        Prediction::Counted(..) => counter(ctx).is_some(),
        Prediction::Sketched => numbers.len() >= SHARED,
    };
    let costs: Vec<Option<Predicted>> = match long {
        true => parallel::map(&numbers, whole),
        false => numbers.iter().map(whole).collect(),
    };
    let of = |(i, predicted): (usize, Option<Predicted>)| {
        let mut p = predicted?;
        let own = compared_s(&p.cost);
        if p.least {
            p.work.warps = None;
            return Some(((own, i, p.work, p.cost), true));
        }
        // What is no constant is packed by every request.
        let packed = list[i].packed.iter().filter(|(_, p)| !constant(p.of));
        let seconds = |p: &Packed| {
            let copy = (&p.kernel, &p.schedule);
            let copy = prediction.of(ctx, copy, f64::INFINITY, &verified);
            Some(copy?.cost.time_s)
        };
        let packing: Option<f64> = packed.map(|(_, p)| seconds(p)).sum();
        Some(((own + packing?, i, p.work, p.cost), false))
    };
    numbers.into_iter().zip(costs).filter_map(of).collect()
}

/// As [`ranked_by`], all of it known, cheapest first.
fn sorted_by(
    prediction: Prediction,
    ctx: Ctx,
    list: &[Candidate],
    numbers: Vec<usize>,
    constant: &dyn Fn(OperandId) -> bool,
) -> Vec<Rank> {
    let all = ranked_by(prediction, ctx, list, numbers, constant);
    let mut best: Vec<Rank> = all.into_iter().map(|r| r.0).collect();
    sort(&mut best);
    best
}

fn sort(best: &mut [Rank]) {
    best.arrange_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
}
