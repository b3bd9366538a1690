//! What a step costs under a schedule.
use super::ctx::{Ctx, Space};
use super::recency::Recency;
use super::schedule::reach;
use kernel::{
    Family, Kernel, Mapping, Place, Role, Schedule, Stmt, Target, TileId, TileProgram, work,
};
use machine::calc;
use machine::{
    Cost, Efficiencies, Machine, NumType, Phase, UnitClass, Work, predict, predict_phases,
};
use plan::{BufferKind, Plan, Step, StepWork};
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
    let program = TileProgram::new(kernel.clone(), schedule.clone()).ok()?;
    predict_program(ctx, &program)
}

/// As [`predict_step`] for a program that is there.
pub(crate) fn predict_program(ctx: Ctx, program: &TileProgram) -> Option<(Work, Cost)> {
    let (kernel, schedule) = (program.kernel(), program.schedule());
    program.fits(ctx.target).ok()?;
    let lookup = |s: &str| ctx.dims.get(s).map(|r| r.hi);
    let far = |o: usize| ctx.far.get(o).copied().unwrap_or(ctx.footprint);
    let (mut w, parts) = work::statements(program, ctx.machine, &lookup, &far)?;
    let table = &ctx.target.efficiencies;
    let eff = table.family(family_name(kernel.family));
    let Mapping::Gpu(g) = &schedule.mapping else {
        if w.tasks > 1 && ctx.workers > 1 {
            // The others hear of the step, and the next one of its end.
            w.handoffs += 2;
        }
        let space = Space::new(ctx, kernel);
        let own: Vec<Option<Efficiencies>> = kernel
            .body
            .iter()
            .map(|stmt| {
                if !matches!(stmt, Stmt::Contract { .. }) {
                    return None;
                }
                let Some(fma) = reach(&space, schedule, stmt) else {
                    return Some(table.family("depthwise").clone());
                };
                let unit = ctx.machine.unit(UnitClass::Fma, NumType::F32)?;
                let share = eff.unit(&unit.name, UnitClass::Fma) * fma;
                Some(eff.clone().with_unit(&unit.name, share))
            })
            .collect();
        let phases: Vec<Phase> = parts
            .iter()
            .zip(&own)
            .map(|(w, e)| (w, e.as_ref().unwrap_or(eff)))
            .collect();
        let cost = predict_phases(ctx.machine, &phases, &w, ctx.workers);
        return Some((w, cost));
    };
    let space = Space::new(ctx, kernel);
    let shared = schedule.places.iter().enumerate().map(|(t, p)| match p {
        Place::Shared { stages, .. } => space
            .tile_bytes(schedule, t as TileId)
            .saturating_mul(u64::from(*stages)),
        _ => 0,
    });
    let block = calc::Block {
        threads: g.threads.into(),
        registers: g.registers.into(),
        shared: shared.fold(0, u64::saturating_add),
    };
    let held = calc::occupancy(&ctx.machine.limits, block);
    w.ctas_per_worker = held.map_or(1, |o| o.ctas.max(1));
    let cost = predict(ctx.machine, eff, &w, ctx.workers);
    Some((w, cost))
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

/// What the cost model says of a step of `plan` on `machine` with the kernels of `target`; `None` for a
/// host step.
pub fn predict_again(
    plan: &Plan,
    step: &Step,
    machine: &Machine,
    target: &Target,
    workers: usize,
) -> Option<Cost> {
    let StepWork::Kernel {
        kernel, schedule, ..
    } = &step.work
    else {
        return None;
    };
    let block = plan.blocks().find(|b| b.steps.contains(step))?;
    // Operands of a step as (buffer, bytes, written, made by the request).
    let touched = |s: &Step| -> Vec<(u32, f64, bool, bool)> {
        let StepWork::Kernel { kernel, args, .. } = &s.work else {
            return vec![];
        };
        let one = |(o, &b): (&kernel::Operand, &u32)| {
            let elements = plan.dims.at_top(&o.elements).unwrap_or(0).max(0) as f64;
            let buffer = block.buffers.get(b as usize);
            let made = buffer.is_some_and(|b| b.kind == BufferKind::Arena);
            let bytes = elements * f64::from(o.dtype.bits()) / 8.0;
            (b, bytes, o.role == Role::Write, made)
        };
        kernel.operands.iter().zip(args).map(one).collect()
    };
    let all: Vec<Vec<(u32, f64, bool, bool)>> = block.steps.iter().map(touched).collect();
    let made: Vec<Vec<(u32, f64, bool)>> = all
        .iter()
        .map(|s| s.iter().map(|&(b, n, _, made)| (b, n, made)).collect())
        .collect();
    let mut recency = Recency::of(&made, Some(block.arena_bytes as f64));
    let at = block.steps.iter().position(|s| s == step)?;
    for s in &all[..at] {
        let list: Vec<(u32, f64)> = s.iter().map(|t| (t.0, t.1)).collect();
        recency.touch(&list);
    }
    let far: Vec<f64> = all[at]
        .iter()
        .map(|&(b, n, written, made)| recency.distance(b, n, written && made))
        .collect();
    let ctx = Ctx {
        machine,
        target,
        dims: &plan.dims,
        workers,
        effort: 1,
        footprint: recency.everything,
        pack: true,
        sweep: None,
        forced: None,
        far: &far,
    };
    Some(predict_step(ctx, kernel, schedule)?.1)
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
