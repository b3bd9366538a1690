//! Schedules: candidates from the target's legal values, ranked by predicted time.
mod attention;
mod candidate;
mod clusters;
mod contract;
mod depthwise;
mod flat;
mod form;
mod given;
mod gpu;
mod gpu_flat;
mod gpu_layout;
mod gpu_swizzle;
mod images;
mod memo;
mod nibbles;
mod one_row;
mod product;
pub(crate) mod rank;
mod recurrent;
mod relaid;
pub(crate) mod renumber;
mod reuse;
mod row;
mod split;
mod sweep;
mod tiles;

use super::ctx::{Ctx, Space};
use super::predict::predict_step;
use super::prior::alike;
use candidate::Rank;
pub(crate) use candidate::{Arg, Candidate, Choice, Packed, Parts};
pub(crate) use form::Facts;
use form::set_chunk;
use kernel::{Family, Kernel, OperandId, Prints, TileProgram};
use layout::{Arrange, Inserted};
use machine::{Cost, Work, units};
pub(crate) use memo::{Asked, Memo};
use plan::{Alternative, Why};
pub(crate) use product::reach;
use rank::{COUNTED, Search, ranked, ranked_of, sketched};
pub(crate) use renumber::numbered_as;
use renumber::{lanes_last, ordered};
use std::collections::BTreeSet;
pub use sweep::Sweep;
pub(crate) use tiles::fill;

/// Alternatives that a why keeps.
const KEPT: usize = 3;
/// How much longer a step may take with weights as they are packed already than with weights packed
/// in another way.
const REUSE: f64 = 1.2;

/// One in so many candidates may be taken for what is packed already.
const REUSING: usize = 4;

/// Chooses the schedule of `kernel`.
///
/// # Errors
/// A text when no candidate makes a valid program.
pub(crate) fn choose(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
    whys: &mut Vec<Why>,
) -> Result<Choice, String> {
    if let Some(g) = facts.given {
        return given::choose(ctx, kernel, g, facts, whys);
    }
    let constant = facts.constant;
    if let Some(taken) = reuse::take(ctx, &kernel.name, facts, whys) {
        return Ok(taken);
    }
    plan::pause();
    let gpu = ctx.target.gpu.is_some();
    let (given, plain) = (kernel, ordered(kernel));
    let others = match gpu {
        true => Readings::of(ctx, &plain, facts),
        false => Readings::default(),
    };
    let (kernel, relaid) = match gpu {
        true => relaid::relaid(ctx, plain, facts),
        false => (plain, vec![]),
    };
    let kernel = &kernel;
    let space = Space {
        packings: facts.packings,
        ..Space::new(ctx, kernel)
    };
    let there = facts.packings.iter().any(|p| !p.is_empty());
    let effort = ctx.effort.max(1);
    // What reads weights as they are packed may come late in the list.
    let most = if there { usize::MAX } else { effort };
    let mut list = with_copies(candidates(&space, facts, most)?, &relaid, most);
    others.add(ctx, &mut list, most);
    let reuses = |c: &Candidate| {
        let mut packed = c.packed.iter().filter(|(_, p)| constant(p.of));
        packed.all(|(_, p)| facts.packings(p.of).iter().any(|k| alike(k, &p.kernel)))
    };
    tried(&mut list, effort, &|c| there && reuses(c));
    plan::pause();
    let prints = ctx.prints().filter(|_| !facts.whole);
    let mut search = near_best(prints, there);
    if kernel.family == Family::Recurrent {
        // Arithmetic and bytes alone do not tell passes by some threads from passes by others.
        (search.counted, search.overstated) = (list.len(), f64::INFINITY);
    }
    let mut best = ranked(ctx, &list, 0, constant, search)?;
    clusters::tried(ctx, constant, prints, (&mut list, &mut best));
    if let (Some(sweep), false) = (ctx.sweep, gpu) {
        sweep.choose(&space, constant, &mut list, &mut best);
    }
    let reused = there && prefer_reuse(&mut best, &|at| reuses(&list[at]));
    if best.is_empty() {
        return Err(unfit(list.swap_remove(0)));
    }
    let may = gpu && !facts.whole;
    let first = &list[best[0].1];
    let cut = may.then(|| others.cut(ctx, (kernel, relaid), (first, &best[0])));
    let cut = cut.flatten();
    let imaged = (gpu && ctx.pack && ctx.sweep.is_none()).then(|| {
        let cut = cut.as_ref().map(|c| c.2.rank);
        images::faster(ctx, &ordered(given), facts, (&list, &best), cut)
    });
    match (imaged.flatten(), cut) {
        (Some((candidate, rank)), _) => {
            best.insert(0, (rank.0, list.len(), rank.2, rank.3));
            list.push(candidate);
        }
        (None, Some((kernel, packed, found))) => {
            return Ok(in_parts(kernel, found, (first, &best[0].3), packed, whys));
        }
        (None, None) => {}
    }
    let alternatives = beaten(ctx, &list, &best);
    let (_, at, work, cost) = best.swap_remove(0);
    let choice = finished(ctx, list.swap_remove(at), work, cost)?;
    whys.push(Why {
        pass: "schedule".into(),
        subject: kernel.name.clone(),
        choice: choice.1,
        reason: format!(
            "predicted {}, bound by {}{}",
            units::seconds(choice.0.cost.time_s),
            choice.0.cost.bound,
            match reused {
                true => "; its weights are packed like this already",
                false => "",
            }
        ),
        alternatives,
    });
    Ok(choice.0)
}

/// A kernel that reads copies, and these.
type Reading = (Kernel, Copies);

/// Operands that are read as copies, and these.
type Copies = Vec<(OperandId, Packed)>;

/// A kernel that is cut in parts, the copies that it reads, and how.
type Cut<'k> = (&'k Kernel, Copies, split::Found);

/// What matrix instructions of a GPU may read in place of a kernel's constant factors.
#[derive(Default)]
struct Readings {
    /// Factors along what is summed.
    deep: Option<Reading>,
    /// Numbers of 4 bits, of which fragments of a factor are made.
    widening: Option<(Reading, candidate::Widened)>,
    /// A factor of f32 in bf16.
    rounded: Option<(Reading, kernel::Factors)>,
}

impl Readings {
    fn of(ctx: Ctx, kernel: &Kernel, facts: &Facts) -> Readings {
        Readings {
            deep: relaid::along_depth(ctx, kernel, facts),
            widening: relaid::widening(ctx, kernel, facts),
            rounded: relaid::rounded(ctx, kernel, facts),
        }
    }

    /// Puts the first `most` candidates of each in front of `list`: of equals the first is taken.
    fn add(&self, ctx: Ctx, list: &mut Vec<Candidate>, most: usize) {
        let mut first = |more: Vec<Candidate>, copies: &[(OperandId, Packed)]| {
            list.splice(0..0, with_copies(more, copies, most));
        };
        if let Some((kernel, copies)) = &self.deep {
            first(gpu::along_depth(&Space::new(ctx, kernel), most), copies);
        }
        if let Some(((kernel, copies), widened)) = &self.widening {
            first(
                gpu::widening(&Space::new(ctx, kernel), *widened, most),
                copies,
            );
        }
        if let Some(((kernel, copies), factors)) = &self.rounded {
            first(
                gpu::of_parts(&Space::new(ctx, kernel), *factors, most),
                copies,
            );
        }
    }

    /// The best way to cut a kernel in parts, with the kernel that is cut and the copies that it reads, where that is
    /// better than `first`: one that reads its factors as that does, or, of few rows, along what is summed.
    fn cut<'k>(
        &'k self,
        ctx: Ctx,
        (kernel, relaid): (&'k Kernel, Copies),
        (first, best): (&Candidate, &Rank),
    ) -> Option<Cut<'k>> {
        let deep = gpu::lies_along_depth(first);
        let own = match (&self.deep, &self.widening) {
            (Some((kernel, _)), _) if deep => kernel,
            (_, Some(((kernel, _), _))) if gpu::widens(first) => kernel,
            _ => kernel,
        };
        // A product is cut that reads its factors as they are.
        let packed = match gpu::has_parts(first) {
            true => relaid,
            false => first.packed.clone(),
        };
        let mut ways = vec![(own, packed)];
        if let Some((kernel, copies)) = &self.deep
            && !deep
            && gpu_flat::few_rows(&Space::new(ctx, kernel))
        {
            ways.push((kernel, copies.clone()));
        }
        let mut found: Option<Cut> = None;
        for (kernel, packed) in ways {
            let limit = found.as_ref().map_or(best.0, |f| f.2.rank);
            if let Some(f) = split::best(ctx, kernel, limit, best.2.tasks) {
                found = Some((kernel, packed, f));
            }
        }
        found
    }
}

/// What a GPU takes for `kernel`, by the instructions of its few best candidates, where that is less than `limit`.
pub(crate) fn quick(ctx: Ctx, kernel: &Kernel, facts: &Facts, limit: f64) -> Option<f64> {
    let (kernel, _) = relaid::relaid(ctx, ordered(kernel), facts);
    let list = candidates(&Space::new(ctx, &kernel), facts, ctx.effort.max(1)).ok()?;
    let sketches = sketched(ctx, &list, 0, facts.constant);
    let search = Search {
        limit,
        ..Search::all(ctx.prints(), COUNTED)
    };
    let best = ranked_of(ctx, &list, sketches, facts.constant, search).ok()?;
    let known = |b: &&Rank| rank::is_known(ctx, b) && b.0 < limit;
    Some(best.first().filter(known)?.0)
}

/// The best choice of one task of at most so many threads for `kernel`, and what it is called, where one takes less than
/// `limit`: one CTA can do it behind the tasks of the step before.
pub(crate) fn one_task(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
    (limit, most): (f64, Option<u32>),
) -> Option<(Choice, String)> {
    let (kernel, copies) = relaid::relaid(ctx, ordered(kernel), facts);
    let space = Space::new(ctx, &kernel);
    let mut list = with_copies(gpu_flat::one_task(&space, most), &copies, usize::MAX);
    // Arithmetic and bytes alone do not tell them apart.
    let search = Search {
        limit,
        ..Search::all(ctx.prints(), list.len())
    };
    let best = ranked(ctx, &list, 0, facts.constant, search).ok()?;
    let known = |b: &Rank| rank::is_known(ctx, b) && b.0 < limit;
    let (_, at, work, cost) = best.into_iter().next().filter(known)?;
    finished(ctx, list.swap_remove(at), work, cost).ok()
}

/// Candidates that are sought: the best, and those near it that read what is packed already, where something is `there`,
/// or that are tried with images.
fn near_best(prints: Option<Prints>, there: bool) -> Search {
    Search {
        near: match there {
            true => [REUSE, images::NEAR.max(REUSE)],
            false => [1.0, images::NEAR],
        },
        ..Search::all(prints, COUNTED)
    }
}

/// Why a candidate makes no program.
fn unfit(c: Candidate) -> String {
    let why = TileProgram::new(c.kernel, c.schedule).err();
    why.map_or("a size in it has no value".to_string(), |e| e.to_string())
}

/// What the best of `list` was better than, the next best first.
fn beaten(ctx: Ctx, list: &[Candidate], best: &[Rank]) -> Vec<Alternative> {
    let Some(first) = best.first() else {
        return vec![];
    };
    let chosen = &list[first.1];
    let mut said: Vec<String> = vec![chosen.what.clone()];
    let mut out = vec![];
    for b in best.iter().skip(1).take(KEPT) {
        let what = list[b.1].beside(chosen);
        // What differs in nothing that is said was no choice.
        if said.contains(&what) {
            continue;
        }
        said.push(what.clone());
        out.push(Alternative {
            what: match rank::is_known(ctx, b) {
                true => what,
                false => format!("{what}, at least"),
            },
            predicted_s: b.3.time_s,
        });
    }
    out
}

/// Candidates that the target has for a kernel, best guesses first: the first `most`, and perhaps more.
fn candidates(space: &Space, facts: &Facts, most: usize) -> Result<Vec<Candidate>, String> {
    let (ctx, kernel) = (space.ctx, space.kernel);
    let gpu = ctx.target.gpu.is_some();
    // A launch of the user's PTX computes the whole: nothing is printed of it.
    if let Some(what) = ctx.target.lacking(kernel).filter(|_| gpu && !facts.whole) {
        return Err(format!("target {} has no form for {what}", ctx.target.name));
    }
    let list = match gpu {
        true => gpu::candidates(space, most),
        false => generated(space, facts.constant),
    };
    match list.is_empty() {
        false => Ok(list),
        true => Err(format!(
            "target {} has no schedule for a kernel of kind {:?} with these element types and extents",
            ctx.target.name, kernel.family
        )),
    }
}

/// The first `most` of `list`, whose tasks share no bytes, reading `copies`.
fn with_copies(
    mut list: Vec<Candidate>,
    copies: &[(OperandId, Packed)],
    most: usize,
) -> Vec<Candidate> {
    list.truncate(most);
    for c in &mut list {
        c.bytes_of_one_task();
        c.packed.extend(copies.iter().cloned());
    }
    list
}

/// Puts the best candidate that reads weights as they are packed already in front, where it is nearly as good as
/// the first; true where that changes the first.
fn prefer_reuse(best: &mut [Rank], reuses: &dyn Fn(usize) -> bool) -> bool {
    let Some(first) = best.first().filter(|b| !reuses(b.1)) else {
        return false;
    };
    let limit = REUSE * first.0;
    let Some(at) = best.iter().position(|b| b.0 <= limit && reuses(b.1)) else {
        return false;
    };
    best[..=at].rotate_right(1);
    true
}

/// The chosen candidate as it runs, and what it is called.
fn finished(
    ctx: Ctx,
    mut chosen: Candidate,
    mut work: Work,
    mut cost: Cost,
) -> Result<(Choice, String), String> {
    // What is predicted is what runs: tiles of other axes may be turned as they are loaded.
    if let Some((k, s)) = lanes_last(&chosen.kernel, &chosen.schedule) {
        (chosen.kernel, chosen.schedule) = (k, s);
        (work, cost) = predict_step(ctx, &chosen.kernel, &chosen.schedule)
            .ok_or("moving its lanes makes no valid program; this is a fault, report it")?;
    }
    // A CTA takes one task: handing out is what its hardware does.
    if ctx.target.gpu.is_none() {
        set_chunk(ctx, &mut chosen.schedule, &work, cost.time_s);
    }
    let choice = Choice {
        kernel: chosen.kernel,
        schedule: chosen.schedule,
        packed: chosen.packed,
        parts: None,
        work,
        cost,
        taken: false,
    };
    Ok((choice, chosen.what))
}

/// Leaves `most` of `list`: the first, and of those behind that `reuse` what is there as many as one in
/// [`REUSING`], since what ranks first of its own kind may come late in the list.
fn tried(list: &mut Vec<Candidate>, most: usize, reuse: &dyn Fn(&Candidate) -> bool) {
    if list.len() <= most {
        return;
    }
    let first = list.drain(..most - most / REUSING);
    let mut kept: Vec<Candidate> = first.collect();
    let (late, others): (Vec<Candidate>, Vec<Candidate>) = list.drain(..).partition(|c| reuse(c));
    kept.extend(late.into_iter().chain(others).take(most - kept.len()));
    *list = kept;
}

/// The choice of a sum of parts in place of `whole`.
fn in_parts(
    kernel: &Kernel,
    found: split::Found,
    (whole, cost): (&Candidate, &Cost),
    packed: Vec<(OperandId, Packed)>,
    whys: &mut Vec<Why>,
) -> Choice {
    whys.push(Why {
        pass: "schedule".into(),
        subject: kernel.name.clone(),
        choice: found.what,
        reason: format!(
            "predicted {}, bound by {}: the whole has too few tasks for its sums",
            units::seconds(found.parts.seconds),
            found.parts.first.cost.bound
        ),
        alternatives: vec![Alternative {
            what: whole.what.clone(),
            predicted_s: cost.time_s,
        }],
    });
    Choice {
        kernel: found.second.kernel,
        schedule: found.second.schedule,
        packed,
        parts: Some(Box::new(found.parts)),
        work: found.second.work,
        cost: found.second.cost,
        taken: false,
    }
}

/// Candidates of a CPU, best guesses first; there is always one.
fn generated(space: &Space, constant: &dyn Fn(OperandId) -> bool) -> Vec<Candidate> {
    let mut list = match space.kernel.family {
        Family::Contract | Family::Conv => {
            let mut c = nibbles::candidates(space, constant);
            if c.is_empty() {
                c = contract::candidates(space, constant);
            }
            if c.is_empty() {
                c = depthwise::candidates(space, constant);
            }
            c
        }
        Family::Attention => attention::candidates(space),
        Family::Row | Family::Select => row::candidates(space),
        Family::Recurrent => recurrent::candidates(space, constant),
        _ => vec![],
    };
    if list.is_empty() {
        list = flat::candidates(space);
    }
    list
}

impl Sweep {
    /// Puts what is chosen first into `best`, whose first is the planner's own.
    fn choose(
        &self,
        space: &Space,
        constant: &dyn Fn(OperandId) -> bool,
        list: &mut Vec<Candidate>,
        best: &mut Vec<Rank>,
    ) {
        let name = &space.kernel.name;
        let Some(&pick) = self.picks.get(name) else {
            return;
        };
        let mut known = self.known();
        let entry = known.entry(name.clone()).or_insert_with(|| {
            widen(space, constant, list, best);
            (list.clone(), best.clone())
        });
        list.clone_from(&entry.0);
        best.clone_from(&entry.1);
        if pick < best.len() {
            best.swap(0, pick);
        }
    }
}

/// Tasks to cut a step into, per worker; 0 is one task in all.
const TASKS: [i64; 7] = [0, 1, 2, 4, 8, 16, 32];

/// Adds all other candidates, ranked after the first.
fn widen(
    space: &Space,
    constant: &dyn Fn(OperandId) -> bool,
    list: &mut Vec<Candidate>,
    best: &mut Vec<Rank>,
) {
    let from = list.len();
    let mut seen: BTreeSet<String> = list.iter().map(|c| c.what.clone()).inserted();
    for tasks in TASKS {
        let ctx = Ctx {
            forced: Some((tasks * space.ctx.workers as i64).max(1)),
            ..space.ctx
        };
        let wide = Space::new(ctx, space.kernel);
        for packs in [true, false] {
            for c in generated(&wide, &|o| packs && constant(o)) {
                if seen.insert(c.what.clone()) {
                    list.push(c);
                }
            }
        }
    }
    let all = Search::all(None, COUNTED);
    best.extend(ranked(space.ctx, list, from, constant, all).unwrap_or_default());
    if let Some(rest) = best.get_mut(1..) {
        rest.arrange_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }
}
