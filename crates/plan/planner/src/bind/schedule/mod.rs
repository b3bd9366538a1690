//! Schedules: candidates from the target's legal values, ranked by predicted time.
mod attention;
mod contract;
mod depthwise;
mod flat;
mod given;
mod gpu;
mod gpu_flat;
mod gpu_layout;
mod memo;
mod nibbles;
mod recurrent;
mod reuse;
mod row;
mod split;
mod sweep;
mod tiles;

use super::ctx::{Ctx, Space};
use super::pack::Packed;
use super::predict::{busy_seconds, counter, predict_step, sketch_step};
use super::prior::{Earlier, alike};
pub(crate) use contract::reach;
use kernel::{
    AxisId, CpuMapping, Family, Given, Kernel, Mapping, OperandId, Place, Prints, Role, Schedule,
    Stmt, Term, TileId, TileProgram,
};
use machine::{Cost, Work};
pub(crate) use memo::Memo;
use plan::{Alternative, Why};
pub(crate) use split::Parts;
use std::sync::Arc;
pub use sweep::Sweep;
pub(crate) use tiles::fill;

/// A way to run a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Short description.
    pub what: String,
    /// The kernel with accesses as this way wants them.
    pub kernel: Arc<Kernel>,
    /// How.
    pub schedule: Arc<Schedule>,
    /// Operands that are read from a packed copy.
    pub packed: Vec<(OperandId, Packed)>,
}

/// The way chosen, with its prediction.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub kernel: Arc<Kernel>,
    pub schedule: Arc<Schedule>,
    pub packed: Vec<(OperandId, Packed)>,
    /// The step before it, where the kernel is the sum of parts.
    pub parts: Option<Box<Parts>>,
    pub work: Work,
    pub cost: Cost,
    /// The schedule is that of another box.
    pub taken: bool,
}

/// How much of what could overlap is taken to overlap when candidates are compared: between equals
/// the one that moves less is the safer choice.
const OVERLAP: f64 = 0.9;
/// Alternatives that a why keeps.
const KEPT: usize = 3;
/// Candidates whose instructions are counted, the best by arithmetic and bytes alone: printing a program
/// to count them takes tens of times as long as all else that is predicted of it.
const COUNTED: usize = 6;
/// Below this many hand-offs between workers a step is not worth sharing out.
const WORTH_SHARING: f64 = 64.0;
/// A ticket should be worth this many hand-offs.
const WORTH_A_TICKET: f64 = 32.0;

/// What a choice may know of a kernel's operands.
pub(crate) struct Facts<'a> {
    /// Which operands hold constants that may be packed.
    pub constant: &'a dyn Fn(OperandId) -> bool,
    /// How an earlier plan packed an operand.
    pub packings: &'a [&'a [Arc<Kernel>]],
    /// How the nearest box that looked for a schedule of the kernel runs it.
    pub earlier: Option<Earlier<'a>>,
    /// How the kernel is to run, where its text says so.
    pub given: Option<&'a Given>,
    /// Whether the kernel is to be one step: no sum of parts.
    pub whole: bool,
}

impl<'a> Facts<'a> {
    /// How an earlier plan packed operand `o`.
    pub fn packings(&self, o: OperandId) -> &'a [Arc<Kernel>] {
        self.packings.get(o as usize).copied().unwrap_or_default()
    }
}

impl Facts<'_> {
    /// No constants.
    pub const NONE: Facts<'static> = Facts {
        constant: &|_| false,
        packings: &[],
        earlier: None,
        given: None,
        whole: false,
    };
}

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
    let kernel = &ordered(kernel);
    let space = Space {
        packings: facts.packings,
        ..Space::new(ctx, kernel)
    };
    let gpu = ctx.target.gpu.is_some();
    // A launch of the user's PTX computes the whole: nothing is printed of it.
    if let Some(what) = ctx.target.lacking(kernel).filter(|_| gpu && !facts.whole) {
        return Err(format!("target {} has no form for {what}", ctx.target.name));
    }
    let mut list = match gpu {
        true => gpu::candidates(&space),
        false => generated(&space, constant),
    };
    if list.is_empty() {
        return Err(format!(
            "target {} has no schedule for a kernel of family {:?} with these element types and extents",
            ctx.target.name, kernel.family
        ));
    }
    let there = facts.packings.iter().any(|p| !p.is_empty());
    let reuses = |c: &Candidate| {
        let mut packed = c.packed.iter().filter(|(o, _)| constant(*o));
        packed.all(|(o, p)| facts.packings(*o).iter().any(|k| alike(k, &p.kernel)))
    };
    tried(&mut list, ctx.effort.max(1), &|c| there && reuses(c));
    plan::pause();
    let prints = ctx.prints().filter(|_| !facts.whole);
    let mut best = ranked(ctx, &list, 0, constant, prints)?;
    if let (Some(sweep), false) = (ctx.sweep, gpu) {
        sweep.choose(&space, constant, &mut list, &mut best);
    }
    let mut reused = false;
    if let Some(first) = best.first().filter(|b| there && !reuses(&list[b.1])) {
        let limit = REUSE * first.0;
        if let Some(at) = best.iter().position(|b| b.0 <= limit && reuses(&list[b.1])) {
            best[..=at].rotate_right(1);
            reused = true;
        }
    }
    let alternatives: Vec<Alternative> = best
        .iter()
        .skip(1)
        .take(KEPT)
        .map(|b| Alternative {
            what: list[b.1].what.clone(),
            predicted_s: b.3.time_s,
        })
        .collect();
    if best.is_empty() {
        let first = list.swap_remove(0);
        let why = TileProgram::new(first.kernel, first.schedule).err();
        return Err(why.map_or("a size in it has no value".to_string(), |e| e.to_string()));
    }
    if let Some(found) = split::best(ctx, kernel, best[0].0, best[0].2.tasks).filter(|_| gpu) {
        return Ok(in_parts(
            kernel,
            found,
            (&list[best[0].1], &best[0].3),
            whys,
        ));
    }
    let (_, at, mut work, mut cost) = best.swap_remove(0);
    let mut chosen = list.swap_remove(at);
    // What is predicted is what runs: tiles of other axes may be turned as they are loaded.
    if let Some((k, s)) = lanes_last(&chosen.kernel, &chosen.schedule) {
        (chosen.kernel, chosen.schedule) = (k, s);
        (work, cost) = predict_step(ctx, &chosen.kernel, &chosen.schedule)
            .ok_or("moving its lanes makes no valid program; this is a fault, report it")?;
    }
    let seconds = cost.time_s;
    // A CTA takes one task: handing out is what its hardware does.
    if !gpu {
        set_chunk(ctx, &mut chosen.schedule, &work, seconds);
    }
    whys.push(Why {
        pass: "schedule".into(),
        subject: kernel.name.clone(),
        choice: chosen.what.clone(),
        reason: format!(
            "predicted {:.1} us, bound by {}{}",
            seconds * 1e6,
            cost.bound,
            match reused {
                true => "; its weights are packed like this already",
                false => "",
            }
        ),
        alternatives,
    });
    Ok(Choice {
        kernel: chosen.kernel,
        schedule: chosen.schedule,
        packed: chosen.packed,
        parts: None,
        work,
        cost,
        taken: false,
    })
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
    whys: &mut Vec<Why>,
) -> Choice {
    let seconds = found.parts.first.cost.time_s + found.second.cost.time_s;
    whys.push(Why {
        pass: "schedule".into(),
        subject: kernel.name.clone(),
        choice: found.what,
        reason: format!(
            "predicted {:.1} us, bound by {}: the whole has too few tasks for its sums",
            seconds * 1e6,
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
        packed: vec![],
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

/// What is compared, the candidate's number in `list`, its work and its cost.
type Rank = (f64, usize, Work, Cost);

/// Those of `list[from..]` that make valid programs, cheapest first; where instructions are counted, only
/// the best few. There is code for the first.
///
/// # Errors
/// Why there is no code for any of them.
fn ranked(
    ctx: Ctx,
    list: &[Candidate],
    from: usize,
    constant: &dyn Fn(OperandId) -> bool,
    prints: Option<Prints>,
) -> Result<Vec<Rank>, String> {
    let all = from..list.len();
    let mut numbers: Vec<usize> = all.clone().collect();
    let mut few = numbers.len();
    if counter(ctx).is_some() && few > COUNTED {
        let sketched = sketched(ctx, list, from, constant);
        numbers = sketched.into_iter().map(|r| r.1).collect();
        few = COUNTED;
    }
    let mut refused = None;
    for numbers in numbers.chunks(few.max(1)) {
        let mut best = ranked_by(predict_step, ctx, list, numbers.iter().copied(), constant);
        while let (Some(prints), Some(first)) = (prints, best.first()) {
            let c = &list[first.1];
            let program = TileProgram::new(c.kernel.clone(), c.schedule.clone());
            let printed = program.map_err(|e| e.to_string());
            match printed.and_then(|p| prints(&p, ctx.target)) {
                Ok(()) => break,
                Err(why) => refused.get_or_insert(why),
            };
            best.remove(0);
        }
        if !best.is_empty() {
            return Ok(best);
        }
    }
    match refused {
        Some(why) => Err(why),
        None => Ok(vec![]),
    }
}

/// As [`ranked`], all of them, by arithmetic and bytes alone.
fn sketched(
    ctx: Ctx,
    list: &[Candidate],
    from: usize,
    constant: &dyn Fn(OperandId) -> bool,
) -> Vec<Rank> {
    ranked_by(sketch_step, ctx, list, from..list.len(), constant)
}

/// Ranks candidates: [`ranked`], where there is code for one, or [`sketched`].
type Ranked = fn(Ctx, &[Candidate], usize, &dyn Fn(OperandId) -> bool) -> Vec<Rank>;

/// How a step is predicted.
type Predict = fn(Ctx, &Arc<Kernel>, &Arc<Schedule>) -> Option<(Work, Cost)>;

/// The candidates of these numbers that make valid programs, cheapest first.
fn ranked_by(
    predict: Predict,
    ctx: Ctx,
    list: &[Candidate],
    numbers: impl Iterator<Item = usize>,
    constant: &dyn Fn(OperandId) -> bool,
) -> Vec<Rank> {
    let mut best: Vec<Rank> = numbers
        .filter_map(|i| {
            let c = &list[i];
            let (w, cost) = predict(ctx, &c.kernel, &c.schedule)?;
            let overlap = OVERLAP * cost.time_s + (1.0 - OVERLAP) * cost.interval.1;
            // What is no constant is packed by every request.
            let packing: Option<f64> = c
                .packed
                .iter()
                .filter(|(o, _)| !constant(*o))
                .map(|(_, p)| Some(predict(ctx, &p.kernel, &p.schedule)?.1.time_s))
                .sum();
            Some((overlap + packing?, i, w, cost))
        })
        .collect();
    best.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    best
}

/// The kernel with every fill and load right before the first statement that needs it, fills first:
/// a product then stands behind its two factors, which lets an executor take the three as one.
fn ordered(kernel: &Kernel) -> Kernel {
    let mut out = kernel.clone();
    out.body.clear();
    let mut waiting: Vec<Stmt> = Vec::new();
    let late = |s: &Stmt| s.as_fill().is_some() || matches!(s, Stmt::Load { .. });
    for s in &kernel.body {
        // A tile that is defined a second time keeps its order.
        let defined = |t: &TileId| {
            kernel
                .body
                .iter()
                .filter(|s| late(s) && s.writes().contains(t))
                .count()
        };
        if late(s) && s.writes().iter().all(|t| defined(t) == 1) {
            waiting.push(s.clone());
            continue;
        }
        let needs = |w: &Stmt| {
            w.writes()
                .iter()
                .any(|t| s.reads().contains(t) || s.writes().contains(t))
        };
        let (now, later): (Vec<Stmt>, Vec<Stmt>) = waiting.into_iter().partition(needs);
        waiting = later;
        let (fills, loads): (Vec<Stmt>, Vec<Stmt>) =
            now.into_iter().partition(|s| s.as_fill().is_some());
        out.body.extend(fills);
        out.body.extend(loads);
        out.body.push(s.clone());
    }
    out.body.extend(waiting);
    out
}

/// A ticket takes enough tasks to be worth fetching, and leaves enough tickets for balance.
fn set_chunk(ctx: Ctx, schedule: &mut Arc<Schedule>, work: &Work, seconds: f64) {
    let tasks = work.tasks.max(1) as f64;
    let active = (ctx.workers as f64).min(tasks);
    let each = (seconds * active / tasks).max(1e-12);
    let wanted = (WORTH_A_TICKET * ctx.machine.costs.handoff_s.value / each).ceil();
    let most = (tasks / (4.0 * ctx.workers as f64)).floor().max(1.0);
    let chunk = wanted.min(most).max(1.0) as i64;
    if schedule.chunk != chunk {
        Arc::make_mut(schedule).chunk = chunk;
    }
}

/// Tasks that a step of `elements`-like size should have at least: 1 when it is not worth sharing,
/// else several per worker, so that the last one does not leave the others idle for long.
pub(crate) fn wanted_tasks(ctx: Ctx, kernel: &Kernel, whole: &Schedule) -> i64 {
    if let Some(n) = ctx.forced {
        return n.max(1);
    }
    let single = Ctx { workers: 1, ..ctx };
    let busy = busy_seconds(single, kernel, whole).unwrap_or(0.0);
    if ctx.workers <= 1 || busy < WORTH_SHARING * ctx.machine.costs.handoff_s.value {
        1
    } else {
        4 * ctx.workers as i64
    }
}

/// A schedule without cuts but those that the kernel's ordered axes ask for.
pub(crate) fn whole(kernel: &Kernel) -> Schedule {
    Schedule {
        grid: vec![],
        loops: kernel.ordered_loops(),
        places: vec![Place::Register; kernel.tiles.len()],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping::default()),
    }
}

/// Whether a tile is used by contractions only, `b` role or `a` role.
fn only_contracted(kernel: &Kernel, tile: TileId) -> bool {
    let mut used = false;
    for s in &kernel.body {
        match s {
            Stmt::Contract { a, b, acc, .. } if *acc != tile && (*a == tile || *b == tile) => {
                used = true
            }
            s if s.reads().contains(&tile) => return false,
            _ => {}
        }
    }
    used
}

/// Places that follow from the accesses alone: loads whose elements can be read where they are, and
/// stored tiles that can be written where they belong. `lanes` is the vector axis.
pub(crate) fn places(space: &Space, lanes: Option<AxisId>) -> Vec<Place> {
    let k = space.kernel;
    let mut out = vec![Place::Register; k.tiles.len()];
    for s in &k.body {
        let Stmt::Load { dst, operand } = s else {
            continue;
        };
        let o = &k.operands[*operand as usize];
        let contracted = only_contracted(k, *dst);
        // Lanes of a product may read a few neighbours in turn, as many as there are such lanes side by side.
        let in_turn = |t: &Term| match t.leaves.as_slice() {
            [outer, inner] => inner.stride.is_zero() && outer.stride == inner.extent && contracted,
            _ => false,
        };
        let plain = |t: &Term| t.leaves.len() == 1 || Some(t.axis) == lanes && in_turn(t);
        let affine = o.access.indexed.is_empty() && o.access.terms.iter().all(plain);
        let bounds = o.access.bounds.is_empty()
            || (contracted && (o.access.outside == 0.0 || o.dtype.bits() == 8));
        // Lanes that lie apart are brought together once instead of at each use.
        let near = lanes.is_none_or(|l| matches!(space.stride(*operand, l), 0 | 1));
        let moved = k.family == Family::Move;
        // What is carried on is no operand's memory.
        let alone = k.body.iter().filter(|s| s.writes().contains(dst)).count() == 1;
        if alone && affine && bounds && (near || contracted || moved) {
            out[*dst as usize] = Place::InPlace;
        }
    }
    for (operand, src) in space.stores() {
        let o = &k.operands[operand as usize];
        let plain = o.access.indexed.is_empty()
            && o.access.bounds.is_empty()
            && o.access.terms.iter().all(|t| t.leaves.len() == 1);
        let near = lanes.is_none_or(|l| space.stride(operand, l) <= 1);
        let tile = &k.tiles[src as usize];
        let covers = tile
            .axes
            .iter()
            .all(|a| space.stride(operand, *a) != 0 || space.extent(*a) == 1);
        let loaded = space.source(src).is_some();
        let readers = k
            .body
            .iter()
            .filter(|s| s.reads().contains(&src) && !s.writes().contains(&src))
            .count();
        let writers = k
            .body
            .iter()
            .filter(|s| s.writes().contains(&src) && s.as_fill().is_none())
            .count();
        let folded = k
            .body
            .iter()
            .any(|s| matches!(s, Stmt::Fold { .. }) && s.writes().contains(&src));
        if plain
            && near
            && covers
            && !loaded
            && readers == 1
            && writers <= 1
            && !folded
            && o.role == Role::Write
        {
            out[src as usize] = Place::InPlace;
        }
    }
    out
}

/// The axes numbered so that the vector axis is the last one of every tile that has memory of its
/// own: tiles are stored in the order of their axes. `None` where it is already.
fn lanes_last(
    kernel: &Arc<Kernel>,
    schedule: &Arc<Schedule>,
) -> Option<(Arc<Kernel>, Arc<Schedule>)> {
    let Mapping::Cpu(CpuMapping {
        lanes: Some(lane), ..
    }) = schedule.mapping
    else {
        return None;
    };
    let wrong = |t: usize| {
        let axes = &kernel.tiles[t].axes;
        let loaded = kernel
            .body
            .iter()
            .any(|s| matches!(s, Stmt::Load { dst, .. } if *dst as usize == t));
        axes.contains(&lane)
            && axes.last() != Some(&lane)
            && !(loaded && schedule.place(t as TileId) == Place::InPlace)
    };
    if !(0..kernel.tiles.len()).any(wrong) {
        return None;
    }
    let new = moved_last(kernel.axes.len(), lane);
    Some((
        with_lanes_last(Kernel::clone(kernel), lane).into(),
        renumbered_schedule(Schedule::clone(schedule), &new).into(),
    ))
}

/// New numbers of `axes` axes, of which `lane` comes last.
fn moved_last(axes: usize, lane: AxisId) -> impl Fn(AxisId) -> AxisId {
    let last = axes.saturating_sub(1) as AxisId;
    move |a| match a {
        a if a == lane => last,
        a if a > lane => a - 1,
        a => a,
    }
}

/// `kernel` with its axes numbered as those of `chosen`, the same kernel under a schedule that may have
/// moved its lanes; `None` where no axis was moved so.
pub(crate) fn numbered_as(kernel: &Kernel, chosen: &Kernel) -> Option<Kernel> {
    let n = kernel.axes.len();
    let alike = |&lane: &AxisId| {
        let new = moved_last(n, lane);
        let mut axes = kernel.axes.iter().enumerate();
        axes.all(|(i, a)| chosen.axes.get(new(i as AxisId) as usize) == Some(a))
    };
    let lane = (0..n as AxisId).find(alike)?;
    (chosen.axes.len() == n).then(|| with_lanes_last(kernel.clone(), lane))
}

/// `kernel` with its axes numbered so that `lane` is the last.
pub(crate) fn with_lanes_last(kernel: Kernel, lane: AxisId) -> Kernel {
    let new = moved_last(kernel.axes.len(), lane);
    renumbered(kernel, &new)
}

fn renumbered(mut k: Kernel, new: &dyn Fn(AxisId) -> AxisId) -> Kernel {
    let old = k.axes.clone();
    for (i, a) in old.into_iter().enumerate() {
        k.axes[new(i as AxisId) as usize] = a;
    }
    let all = |v: &mut Vec<AxisId>| v.iter_mut().for_each(|a| *a = new(*a));
    for o in &mut k.operands {
        o.access.terms.iter_mut().for_each(|t| t.axis = new(t.axis));
        o.access.terms.sort_by_key(|t| t.axis);
        o.access
            .bounds
            .iter_mut()
            .flat_map(|b| &mut b.terms)
            .for_each(|t| t.0 = new(t.0));
    }
    for t in &mut k.tiles {
        all(&mut t.axes);
        t.axes.sort_unstable();
    }
    for s in &mut k.body {
        match s {
            Stmt::Map { expr, .. } => {
                for i in &mut expr.insts {
                    if let expr::Inst::Index { axis } = i {
                        *axis = u32::from(new(*axis as AxisId));
                    }
                }
            }
            // A fold's own index counts its reduced axes, whose order stays.
            Stmt::Contract { over, .. } | Stmt::Fold { over, .. } => all(over),
            Stmt::Relabel { labels, along, .. } => {
                labels.iter_mut().for_each(|l| {
                    l.from = new(l.from);
                    l.to = new(l.to);
                });
                *along = along.map(new);
            }
            Stmt::Load { .. } | Stmt::Store { .. } => {}
        }
    }
    k
}

fn renumbered_schedule(mut s: Schedule, new: &dyn Fn(AxisId) -> AxisId) -> Schedule {
    s.grid
        .iter_mut()
        .chain(&mut s.loops)
        .for_each(|t| t.axis = new(t.axis));
    if let Mapping::Cpu(m) = &mut s.mapping {
        m.rows.iter_mut().for_each(|a| *a = new(*a));
        m.lanes = m.lanes.map(new);
    }
    s
}

/// Reorders statements so that those inside loops over `axes` stand together: what they need
/// before them, the rest after. `None` when a statement outside stands between two inside for good
/// reason.
pub(crate) fn gather_loops(kernel: &Kernel, axes: &[AxisId]) -> Option<Vec<Stmt>> {
    let inside: Vec<bool> = kernel
        .body
        .iter()
        .map(|s| {
            axes.iter().any(|x| {
                s.over().contains(x)
                    || s.reads()
                        .iter()
                        .chain(&s.writes())
                        .any(|&t| kernel.tiles[t as usize].axes.contains(x))
            })
        })
        .collect();
    // A statement outside that depends on one inside must come after all of them.
    let depends = |i: usize, j: usize| {
        let (a, b) = (&kernel.body[i], &kernel.body[j]);
        a.reads().iter().any(|t| b.writes().contains(t))
            || a.writes()
                .iter()
                .any(|t| b.writes().contains(t) || b.reads().contains(t))
    };
    let n = kernel.body.len();
    let mut after = vec![false; n];
    for i in 0..n {
        if !inside[i] {
            after[i] = (0..i).any(|j| (inside[j] || after[j]) && depends(i, j));
        } else if (0..i).any(|j| after[j] && depends(i, j)) {
            return None;
        }
    }
    let pick = |f: &dyn Fn(usize) -> bool| {
        (0..n)
            .filter(|&i| f(i))
            .map(|i| kernel.body[i].clone())
            .collect::<Vec<_>>()
    };
    let mut out = pick(&|i| !inside[i] && !after[i]);
    out.extend(pick(&|i| inside[i]));
    out.extend(pick(&|i| after[i]));
    Some(out)
}
