//! What a step costs under a schedule.
use super::ctx::{Ctx, Space};
use kernel::{Family, Kernel, Mapping, Place, Schedule, TileId, TileProgram, work};
use machine::calc;
use machine::{Cost, MachineKind, NumType, UnitClass, Work, predict};

/// Work and predicted cost of `kernel` under `schedule` at the top of the box; `None` when the two
/// do not make a program. `fma` is the share of the multiply-add rate that the micro-kernel reaches
/// on this shape (1 when there is none).
pub(crate) fn predict_step(
    ctx: Ctx,
    kernel: &Kernel,
    schedule: &Schedule,
    fma: f64,
) -> Option<(Work, Cost)> {
    let program = TileProgram::new(kernel.clone(), schedule.clone()).ok()?;
    let lookup = |s: &str| ctx.dims.get(s).map(|r| r.hi);
    let mut w = work::work(&program, ctx.machine, &lookup)?;
    work::resident(&mut w, ctx.machine, ctx.footprint);
    if w.tasks > 1 && ctx.workers > 1 && ctx.machine.kind == MachineKind::Cpu {
        // The others hear of the step, and the next one of its end.
        w.handoffs += 2;
    }
    if let Mapping::Gpu(g) = &schedule.mapping {
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
    }
    let mut eff = ctx
        .target
        .efficiencies
        .family(family_name(kernel.family))
        .clone();
    if fma > 0.0 && fma < 1.0 {
        let unit = ctx
            .machine
            .unit(UnitClass::Fma, NumType::F32)
            .map_or("fma".to_string(), |u| u.name.clone());
        let share = eff.unit(&unit, UnitClass::Fma) * fma;
        eff = eff.with_unit(&unit, share);
    }
    let cost = predict(ctx.machine, &eff, &w, ctx.workers);
    Some((w, cost))
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
