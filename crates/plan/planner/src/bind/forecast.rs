//! Predictions for the steps of an existing plan on another machine description or with other workers.
//! `propose` and `reassign` compare plans with it.
use super::ctx::Ctx;
use super::predict::predict_program;
use super::recency::Recency;
use kernel::{Role, Target, TileProgram};
use layout::DimBox;
use machine::{Cost, Machine};
use plan::{Block, BufferKind, Plan, Step, StepWork};

/// What of a step's prediction does not depend on the machine.
#[derive(Clone, Debug)]
pub(crate) struct StepForecast {
    program: TileProgram,
    far: Vec<f64>,
    footprint: f64,
    /// Hand-overs of a step that is part of the launch before it.
    handovers: Option<u64>,
}

impl StepForecast {
    /// The prediction for `machine` with the kernels of `target`, at the top of `dims`.
    pub fn cost(
        &self,
        machine: &Machine,
        target: &Target,
        dims: &DimBox,
        workers: usize,
    ) -> Option<Cost> {
        let ctx = Ctx {
            machine,
            target,
            dims,
            workers,
            effort: 1,
            footprint: self.footprint,
            pack: true,
            precision: plan::Precision::default(),
            sweep: None,
            forced: None,
            far: &self.far,
            known: None,
        };
        let (mut work, mut cost) = predict_program(ctx, &self.program)?;
        if let Some(times) = self.handovers {
            cost.joined(&mut work, machine, times);
        }
        Some(cost)
    }
}

/// The steps of a block; `None` for host steps.
pub(crate) fn steps(plan: &Plan, block: &Block) -> Vec<Option<StepForecast>> {
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
    let footprint = recency.everything;
    let mut out = Vec::with_capacity(all.len());
    for (step, operands) in block.steps.iter().zip(&all) {
        plan::pause();
        let far = operands
            .iter()
            .map(|&(b, n, written, made)| recency.distance(b, n, written && made))
            .collect();
        let list: Vec<(u32, f64)> = operands.iter().map(|t| (t.0, t.1)).collect();
        recency.touch(&list);
        out.push(match &step.work {
            StepWork::Kernel {
                kernel, schedule, ..
            } => TileProgram::new(kernel.clone(), schedule.clone())
                .ok()
                .map(|program| StepForecast {
                    program,
                    far,
                    footprint,
                    handovers: step.joined.then_some(step.cost_work.handoffs),
                }),
            StepWork::Host { .. } => None,
        });
    }
    out
}

/// What the cost model says of every step of `plan` on `machine` with the kernels of `target`; host steps
/// keep what they were predicted to take.
pub fn predict_steps(plan: &Plan, machine: &Machine, target: &Target, workers: usize) -> Vec<Cost> {
    let mut out = Vec::new();
    for block in plan.blocks() {
        for (step, again) in block.steps.iter().zip(steps(plan, block)) {
            plan::pause();
            let cost = again.and_then(|a| a.cost(machine, target, &plan.dims, workers));
            out.push(cost.unwrap_or_else(|| step.predicted.clone()));
        }
    }
    out
}

/// How many of the workers may be at different steps at once: on a GPU a step begins when the one before it is
/// over.
pub(super) fn concurrency(target: &Target, workers: usize) -> u32 {
    match target.gpu {
        Some(_) => 1,
        None => workers.max(1) as u32,
    }
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
    let block = plan.blocks().find(|b| b.steps.contains(step))?;
    let at = block.steps.iter().position(|s| s == step)?;
    let again = steps(plan, block).swap_remove(at)?;
    again.cost(machine, target, &plan.dims, workers)
}
