//! What a step costs under a schedule.
use super::ctx::{Ctx, Space};
use super::known::{Predicted, compared_s};
use super::products;
use super::schedule::reach;
use kernel::{
    AxisId, CountWarps, Family, GpuMapping, Kernel, Mapping, Place, Role, Schedule, Stmt, TileId,
    TileProgram, VerifiedKernel, work,
};
use machine::calc;
use machine::{
    COPIED, Cost, EXCHANGED, Efficiencies, NumType, Phase, Pipe, Traffic, UnitClass, Warps, Work,
    predict, predict_phases, predict_seconds,
};
use std::cell::Cell;
use std::sync::Arc;

/// Tasks per worker that share out evenly enough.
const LEVEL: u64 = 1 << 10;

/// Work and predicted cost of `kernel` under `schedule` at the top of the box; `None` when the two
/// do not make a program.
pub(crate) fn predict_step(
    ctx: Ctx,
    kernel: &Arc<Kernel>,
    schedule: &Arc<Schedule>,
) -> Option<(Work, Cost)> {
    let p = predict_below(ctx, kernel, schedule, f64::INFINITY)?;
    Some((p.work, p.cost))
}

/// As [`predict_step`], as far as it is seen that it takes `limit`, as candidates are compared.
pub(crate) fn predict_below(
    ctx: Ctx,
    kernel: &Arc<Kernel>,
    schedule: &Arc<Schedule>,
    limit: f64,
) -> Option<Predicted> {
    plan::pause();
    let whole = || {
        let program = TileProgram::new(kernel.clone(), schedule.clone()).ok()?;
        predict_by(ctx, &program, counter(ctx), limit)
    };
    match ctx.known.filter(|_| counter(ctx).is_some()) {
        Some(known) => known.of((kernel, schedule), found_in(ctx, kernel), limit, whole),
        None => whole(),
    }
}

/// The level that each operand is found in: all that matters of how far away it is.
fn found_in(ctx: Ctx, kernel: &Kernel) -> Vec<u8> {
    let far = (0..kernel.operands.len()).map(|o| ctx.far.get(o).copied().unwrap_or(ctx.footprint));
    far.map(|f| ctx.machine.nearest_holding_index(f) as u8)
        .collect()
}

/// As [`predict_step`], by arithmetic and bytes only, whatever instructions are printed: a sketch that
/// takes far less time.
pub(crate) fn sketch_step(
    ctx: Ctx,
    kernel: &VerifiedKernel,
    schedule: &Arc<Schedule>,
) -> Option<Predicted> {
    plan::pause();
    let program = kernel.scheduled(schedule.clone()).ok()?;
    predict_by(ctx, &program, None, f64::INFINITY)
}

/// Whether what is stored has an axis that a product in it has not: code may make the product once for all of that axis.
fn spreads_products(kernel: &Kernel) -> bool {
    let axes = |t: TileId| &kernel.tiles[t as usize].axes;
    let stored = |acc: TileId| {
        kernel.body.iter().any(|s| match s {
            Stmt::Store { src, .. } => axes(*src).iter().any(|a| !axes(acc).contains(a)),
            _ => false,
        })
    };
    kernel.body.iter().any(|s| match s {
        Stmt::Contract { acc, .. } => stored(*acc),
        _ => false,
    })
}

/// Seconds that counting the instructions of `kernel` under `schedule` finds at least, by its sketched work `w`: a warp
/// alone issues its share of the products, whatever else it does. `None` where nothing is counted.
pub(crate) fn least_counted(
    ctx: Ctx,
    kernel: &Kernel,
    schedule: &Schedule,
    w: &Work,
) -> Option<f64> {
    let Mapping::Gpu(g) = &schedule.mapping else {
        return None;
    };
    // Of tasks that differ the sketch and what is counted look at other ones, and of attention the sketch has more
    // products than are counted.
    let products = kernel.body.iter();
    let products = products.filter(|s| matches!(s, Stmt::Contract { .. }));
    if w.uneven > 0.0 || products.count() > 1 || spreads_products(kernel) {
        return None;
    }
    let rates = counter(ctx).and_then(|_| ctx.machine.warp_rates())?;
    let per_task = u64::from(g.computing().div_ceil(WARP));
    let mut own = Warps {
        per_task,
        ..Warps::default()
    };
    for &(class, number, n) in &w.ops {
        match (class, g.fragment) {
            (UnitClass::Tensor, Some(f)) => {
                let pipe = match f.warps() {
                    1 => Pipe::Matrix,
                    _ => Pipe::Warpgroup,
                };
                own.add(pipe, n / (2.0 * MATRIX * f64::from(f.k)));
            }
            // Integers are multiplied several at a time.
            (UnitClass::Fma, None) if number == NumType::F32 => {
                own.add(Pipe::Fma, n / (2.0 * f64::from(WARP)));
            }
            _ => {}
        }
    }
    let own = own.times(1.0 / (w.tasks.max(1) * per_task.max(1)) as f64);
    let alone = rates.least_alone(&own.turns);
    let block = calc::Block {
        threads: g.threads.into(),
        registers: 1,
        shared: shared_bytes(ctx, kernel, schedule),
    };
    let held = calc::occupancy(&ctx.machine.limits, block);
    let resident = held.map_or(1, |o| o.ctas.max(1));
    let least = Work {
        tasks: w.tasks,
        steps: w.steps,
        ctas_per_worker: resident,
        warps: Some(Box::new(Warps {
            per_task,
            resident,
            alone,
            ..Warps::default()
        })),
        ..Work::default()
    };
    let eff = efficiencies(ctx, kernel.family, g);
    Some(predict_seconds(ctx.machine, eff, &least, ctx.workers))
}

/// What a kernel of a family reaches on a GPU.
fn efficiencies<'a>(ctx: Ctx<'a>, family: Family, g: &GpuMapping) -> &'a Efficiencies {
    let table = &ctx.target.efficiencies;
    table.family(match (g.copiers, g.store_bytes) {
        (0, _) => family_name(family),
        (_, 0) => COPIED,
        _ => EXCHANGED,
    })
}

/// Threads of a warp, and sums of which a warp adds products at once.
const WARP: u32 = 32;
const MATRIX: f64 = 16.0 * 8.0;

/// Bytes of shared memory of a CTA.
fn shared_bytes(ctx: Ctx, kernel: &Kernel, schedule: &Schedule) -> u64 {
    let space = Space::new(ctx, kernel);
    let shared = schedule.places.iter().enumerate().map(|(t, p)| {
        let bytes = space.tile_bytes(schedule, t as TileId);
        bytes.saturating_mul(u64::from(p.stages().unwrap_or(0)))
    });
    shared.fold(kernel::kept_bytes(kernel, schedule), u64::saturating_add)
}

/// Workers that have CTAs of `schedule` at once: not all can where these form large clusters.
fn workers(ctx: Ctx, schedule: &Schedule) -> usize {
    ctx.machine
        .limits
        .clustered(schedule.cluster(), ctx.workers)
}

/// As [`predict_step`] for a program that is there.
pub(crate) fn predict_program(ctx: Ctx, program: &TileProgram) -> Option<(Work, Cost)> {
    let p = predict_by(ctx, program, counter(ctx), f64::INFINITY)?;
    Some((p.work, p.cost))
}

/// What counts the instructions of the target's programs, where something does and the machine has the figures that
/// say how long they take.
pub(crate) fn counter(ctx: Ctx) -> Option<CountWarps> {
    let counts = ctx.target.gpu.as_ref()?.printer.counts?;
    ctx.machine.warp_rates().map(|_| counts)
}

fn predict_by(
    ctx: Ctx,
    program: &TileProgram,
    counts: Option<CountWarps>,
    limit: f64,
) -> Option<Predicted> {
    let known = |work, cost| {
        Some(Predicted {
            work,
            cost,
            least: false,
        })
    };
    let (kernel, schedule) = (program.kernel(), program.schedule());
    program.fits(ctx.target).ok()?;
    let lookup = |s: &str| ctx.dims.get(s).map(|r| r.hi);
    let far = |o: usize| ctx.far.get(o).copied().unwrap_or(ctx.footprint);
    let (mut w, parts) = work::statements(program, ctx.machine, &lookup, &far)?;
    if w.unique_written == 0.0 {
        // Where nothing is written nothing is read for it.
        return known(Work::default(), Cost::zero());
    }
    let Mapping::Gpu(g) = &schedule.mapping else {
        let (work, cost) = by_workers(ctx, program, w, &parts);
        return known(work, cost);
    };
    let table = &ctx.target.efficiencies;
    let eff = efficiencies(ctx, kernel.family, g);
    let space = Space::new(ctx, kernel);
    let block = calc::Block {
        threads: g.threads.into(),
        registers: g.registers.into(),
        shared: shared_bytes(ctx, kernel, schedule),
    };
    let held = calc::occupancy(&ctx.machine.limits, block);
    w.ctas_per_worker = held.map_or(1, |o| o.ctas.max(1));
    if let Some(count) = counts {
        let counted = |warps: Warps| {
            let mut w = w.clone();
            touched(ctx, &mut w, &warps);
            w.ctas_per_worker = warps.resident;
            w.warps = Some(warps.into());
            // What is counted is not guessed as well.
            let mut own = eff.clone();
            own.units.clear();
            own.levels.remove("shared");
            let mut cost = predict(ctx.machine, &own, &w, workers(ctx, schedule));
            cost.wait(meeting_s(ctx, schedule));
            (w, cost)
        };
        let stopped = Cell::new(false);
        let below = |least: &Warps| {
            let below = limit.is_infinite() || compared_s(&counted(least.clone()).1) < limit;
            stopped.set(!below);
            below
        };
        if let Some(warps) = count(program, ctx.machine, &w, &lookup, &below) {
            let (work, cost) = counted(warps);
            return Some(Predicted {
                work,
                cost,
                least: stopped.get(),
            });
        }
    }
    let (mut own, mut waits_s) = (None, 0.0);
    if let Some(costs) = &table.products
        && let Some(tiled) = products::tiled(&space, schedule, g)
    {
        let mut tiled_eff = eff.clone();
        let share = costs.share(&tiled);
        tiled_eff.units.values_mut().for_each(|u| *u *= share);
        own = Some(tiled_eff);
        let slots = w.ctas_per_worker.saturating_mul(ctx.workers as u64);
        waits_s = w.tasks.div_ceil(slots.max(1)) as f64 * costs.round_s;
    } else if table.products.is_some() && kernel.family == Family::Recurrent {
        waits_s = library_recurrence(&space, program, &mut w)?;
    }
    let own = own.as_ref().unwrap_or(eff);
    let mut cost = predict(ctx.machine, own, &w, workers(ctx, schedule));
    if counter(ctx).is_some() {
        // Counting will know; a sketch decides what is counted.
        let busy = cost.time_s - cost.launch_s;
        waits_s += (requested_s(&space, schedule, g, &w) - busy).max(0.0);
    }
    cost.wait(waits_s + meeting_s(ctx, schedule));
    known(w, cost)
}

/// Seconds until the largest factor of a product has come, where threads read it as they multiply: so many bytes are under
/// way at once as all threads that there are room for ask for, and each of these takes the latency of where it lies.
fn requested_s(space: &Space, schedule: &Schedule, g: &GpuMapping, w: &Work) -> f64 {
    let (ctx, kernel) = (space.ctx, space.kernel);
    let read = |t: TileId| {
        space
            .source(t)
            .filter(|_| schedule.place(t) == Place::InPlace)
    };
    let factors = kernel.body.iter().flat_map(|s| match s {
        Stmt::Contract { a, b, .. } => [read(*a), read(*b)],
        _ => [None, None],
    });
    let largest = space.main_input();
    let Some(o) = factors.flatten().find(|&o| Some(o) == largest) else {
        return 0.0;
    };
    let operand = &kernel.operands[o as usize];
    let element = f64::from(operand.dtype.bits()) / 8.0;
    let beside = g.spread.iter().filter(|s| space.stride(o, s.axis) == 1);
    let each = beside.map(|s| s.each).max().unwrap_or(1);
    let slots = w
        .tasks
        .min(w.ctas_per_worker.saturating_mul(ctx.workers as u64));
    let threads = slots.saturating_mul(g.threads.into()).max(1) as f64;
    let under_way = threads * f64::from(each * g.unroll.max(1)) * element;
    let far = ctx.far.get(o as usize).copied().unwrap_or(ctx.footprint);
    let level = &ctx.machine.levels[ctx.machine.nearest_holding_index(far)];
    ctx.top(&operand.elements).max(0) as f64 * element * level.latency_s.value / under_way
}

/// Seconds that a launch takes more whose CTAs form clusters. Those that add parts are of the launch that makes them.
fn meeting_s(ctx: Ctx, s: &Schedule) -> f64 {
    let meets = s.cluster() > 1 && !s.adds_parts();
    let ways = ctx.machine.way_costs().filter(|_| meets);
    ways.map_or(0.0, |w| w.cluster_s.value)
}

/// What a CPU's workers take for `w`, of which each statement of `program` has one of `parts`.
fn by_workers(ctx: Ctx, program: &TileProgram, mut w: Work, parts: &[Work]) -> (Work, Cost) {
    let (kernel, schedule) = (program.kernel(), program.schedule());
    let table = &ctx.target.efficiencies;
    let eff = table.family(family_name(kernel.family));
    if w.tasks > 1 && ctx.workers > 1 {
        // The others hear of the step, and the next one of its end.
        w.handoffs += 2;
    }
    let space = Space::new(ctx, kernel);
    let own = |stmt: &Stmt| {
        if !matches!(stmt, Stmt::Contract { .. }) {
            return None;
        }
        let Some(fma) = reach(&space, schedule, stmt) else {
            return Some(table.family("depthwise").clone());
        };
        let unit = ctx.machine.unit(UnitClass::Fma, NumType::F32)?;
        let share = eff.unit(&unit.name, UnitClass::Fma) * fma;
        Some(eff.clone().with_unit(&unit.name, share))
    };
    let own: Vec<Option<Efficiencies>> = kernel.body.iter().map(own).collect();
    let phases: Vec<Phase> = parts
        .iter()
        .zip(&own)
        .map(|(w, e)| (w, e.as_ref().unwrap_or(eff)))
        .collect();
    let cost = predict_phases(ctx.machine, &phases, &w, ctx.workers);
    (w, cost)
}

/// Makes `w` what a library's recurrence asks for, and says how long it waits: for each position it launches two kernels
/// on the whole GPU, the product of all sequences and its gates. The step's own launch is the first.
fn library_recurrence(space: &Space, program: &TileProgram, w: &mut Work) -> Option<f64> {
    let ctx = space.ctx;
    let schedule = Schedule {
        grid: vec![],
        ..program.schedule().clone()
    };
    let whole = TileProgram::new(space.kernel.clone(), schedule).ok()?;
    let lookup = |s: &str| ctx.dims.get(s).map(|r| r.hi);
    let far = |o: usize| ctx.far.get(o).copied().unwrap_or(ctx.footprint);
    let ordered = space.kernel.ordered();
    let positions = space.points(&ordered);
    *w = Work {
        tasks: ctx.workers as u64,
        largest: 0.0,
        waves: 0,
        ctas_per_worker: w.ctas_per_worker,
        ..work::statements(&whole, ctx.machine, &lookup, &far)?.0
    };
    // Its products are tiled: what is near the units gives no more than they multiply, and the L2 gives weights once for
    // every position.
    let again = space.kernel.operands.iter().filter(|o| {
        let moves = |a: &AxisId| o.access.term(*a).is_some();
        o.role == Role::Read && !ordered.iter().any(moves)
    });
    let again: f64 = again
        .map(|o| ctx.top(&o.elements) as f64 * f64::from(o.dtype.bits()) / 8.0)
        .sum();
    let read = w.unique_read + (positions - 1).max(0) as f64 * again;
    let memory = ctx.machine.memory_index();
    w.traffic
        .resize(w.traffic.len().max(memory), Traffic::default());
    for (t, level) in w.traffic[..memory].iter_mut().zip(&ctx.machine.levels) {
        *t = match level.is_private() {
            true => Traffic::default(),
            false => Traffic {
                loaded: read,
                stored: w.unique_written,
            },
        };
    }
    Some((2 * positions - 1).max(0) as f64 * ctx.machine.costs.step_s.value)
}

/// Traffic of `w` as its warps ask for it: of the nearest level in whole lines and turns of its banks, of the
/// caches behind it, which stores go through to, in whole sectors.
fn touched(ctx: Ctx, w: &mut Work, warps: &Warps) {
    let m = ctx.machine;
    let memory = m.memory_index();
    let mut near = true;
    for i in 0..=memory {
        let l = &m.levels[i];
        if l.name == "register" || l.same_place_as.is_some() {
            continue;
        }
        let now = w.traffic_at(i);
        let (mut loaded, mut stored) = (now.loaded, now.stored);
        if near {
            (loaded, stored) = (warps.l1, 0.0);
            near = false;
        } else if i < memory {
            stored = warps.stored.max(stored);
        }
        w.add_traffic(i, loaded - now.loaded, stored - now.stored);
    }
}

/// Seconds of arithmetic and traffic of `kernel` under `schedule`, all of it overlapped and however its
/// elements lie: what is there to share out, before anything is known of how it will be done.
pub(crate) fn busy_seconds(ctx: Ctx, kernel: &Kernel, schedule: &Schedule) -> Option<f64> {
    let program = TileProgram::new(kernel.clone(), schedule.clone()).ok()?;
    let lookup = |s: &str| ctx.dims.get(s).map(|r| r.hi);
    let far = |o: usize| ctx.far.get(o).copied().unwrap_or(ctx.footprint);
    let (mut w, _) = work::statements(&program, ctx.machine, &lookup, &far)?;
    w.ops.retain(|o| o.0 != UnitClass::Element);
    let eff = ctx.target.efficiencies.family(family_name(kernel.family));
    let c = predict(ctx.machine, eff, &w, ctx.workers);
    Some((c.time_s - c.launch_s - c.latency_s).max(0.0))
}

/// Seconds that a step takes which does nothing.
pub(crate) fn idle_seconds(ctx: Ctx) -> f64 {
    let w = Work {
        tasks: 1,
        steps: 1,
        ..Work::default()
    };
    let eff = &ctx.target.efficiencies.default;
    predict_seconds(ctx.machine, eff, &w, ctx.workers)
}

/// Seconds of the least that a kernel with the work `w` takes: its operations and every byte that it
/// touches once, however its schedule lays them out, shared out evenly, without fixed costs.
pub(crate) fn least_seconds(ctx: Ctx, family: Family, w: &Work) -> f64 {
    let mut least = Work {
        ops: w.ops.clone(),
        tasks: LEVEL * ctx.workers as u64,
        ..Work::default()
    };
    least.ops.retain(|o| o.0 != UnitClass::Element);
    for (level, t) in w.traffic.iter().enumerate() {
        let (read, written) = (t.loaded.min(w.unique_read), t.stored.min(w.unique_written));
        least.add_traffic(level, read, written);
    }
    let eff = ctx.target.efficiencies.family(family_name(family));
    let c = predict(ctx.machine, eff, &least, ctx.workers);
    (c.time_s - c.launch_s - c.latency_s).max(0.0)
}

/// Name of a family as efficiencies list it.
pub(crate) fn family_name(f: Family) -> &'static str {
    match f {
        Family::Contract => "contract",
        Family::Conv => "conv",
        Family::Map => "map",
        Family::Row => "row",
        Family::Pool => "pool",
        Family::Move => "move",
        Family::Attention => "attention",
        Family::Recurrent => "recurrent",
        Family::Select => "select",
    }
}
