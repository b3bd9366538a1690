//! What kernels do before those before them are over, where these are launched by one graph: which operands nothing writes
//! while requests run, and which kernels let the one behind them begin before they are over.
use super::block::BlockBuilder;
use kernel::{Combined, GpuMapping, Mapping, OperandId, Role, Schedule, TargetKind};
use plan::{Block, BufferKind, Step, StepWork};
use std::sync::Arc;

/// Operands of a step that are constants: weights, and what the init segment made of them.
fn constants(block: &Block, step: &Step) -> Vec<OperandId> {
    let StepWork::Kernel { kernel, args, .. } = &step.work else {
        return vec![];
    };
    let fixed = |b: u32| {
        let kind = block.buffers.get(b as usize).map(|b| b.kind);
        matches!(kind, Some(BufferKind::Weight(_) | BufferKind::Init))
    };
    let operands = kernel.operands.iter().zip(args).enumerate();
    operands
        .filter(|(_, (o, b))| o.role == Role::Read && fixed(**b))
        .map(|(n, _)| n as OperandId)
        .collect()
}

/// The mapping of a step's schedule, if it is a GPU's.
fn mapping(step: &Step) -> Option<&GpuMapping> {
    match &step.work {
        StepWork::Kernel { schedule, .. } => match &schedule.mapping {
            Mapping::Gpu(g) => Some(g),
            Mapping::Cpu(_) => None,
        },
        StepWork::Host { .. } => None,
    }
}

/// Lets `f` change the mapping of a step, whose schedule others may share.
fn change(step: &mut Step, f: impl FnOnce(&mut GpuMapping)) {
    let StepWork::Kernel { schedule, .. } = &mut step.work else {
        return;
    };
    let own: &mut Schedule = Arc::make_mut(schedule);
    if let Mapping::Gpu(g) = &mut own.mapping {
        f(g);
    }
}

impl BlockBuilder<'_> {
    /// Says of every step of a block that is complete what it does early.
    pub(super) fn early(&mut self) {
        for i in 0..self.block.steps.len() {
            let own = constants(&self.block, &self.block.steps[i]);
            let own = if self.waits(i) { own } else { vec![] };
            let known = mapping(&self.block.steps[i]);
            if known.is_some_and(|g| g.constants != own || g.triggers) {
                change(&mut self.block.steps[i], |g| {
                    (g.constants, g.triggers) = (own, false);
                });
            }
        }
        for i in 1..self.block.steps.len() {
            if self.lets_begin(i) {
                // What the CTAs of a cluster give each other is no result.
                let first = self.launch_of(i - 1);
                let known = mapping(&self.block.steps[first]);
                let gives = known.is_some_and(|g| g.combined == Combined::InCluster);
                let lets = (first + usize::from(gives)).min(i - 1);
                change(&mut self.block.steps[lets], |g| g.triggers = true);
            }
        }
    }

    /// The first step of the launch that step `i` is part of. It lets the next launch begin: the steps
    /// behind it keep few multiprocessors busy.
    fn launch_of(&self, i: usize) -> usize {
        let mut up = (0..=i).rev();
        up.find(|&i| !self.block.steps[i].joined).unwrap_or(i)
    }

    /// Whether kernels of step `i`'s device wait for those before them by themselves.
    fn waits(&self, i: usize) -> bool {
        let target = self.ctxs[self.block.steps[i].device as usize].target;
        let gpu = target.gpu.as_ref();
        target.kind == TargetKind::Ptx && gpu.is_some_and(|g| g.dependents)
    }

    /// Whether the launch before step `i` lets it begin early: its CTAs find the same room as if they came when those before
    /// are over. CTAs that come while others run go where these are not, several to a multiprocessor, and stay there:
    /// requests of vit and unet took 13 and 48 % longer on an H200 (27 November 2026) with all kernels launched like that.
    fn lets_begin(&self, i: usize) -> bool {
        let (before, step) = (&self.block.steps[i - 1], &self.block.steps[i]);
        let own = |s: &Step| {
            let g = mapping(s);
            !self.block.is_transfer(s) && g.is_some_and(|g| g.code.is_none())
        };
        let first = &self.block.steps[self.launch_of(i - 1)];
        let walks = mapping(first).is_some_and(|g| g.walkers > 0);
        let there = before.device == step.device && own(before) && own(step);
        // What is part of the launch before comes with it.
        if !there || step.joined || walks || !self.waits(i) {
            return false;
        }
        let all = self.ctxs[step.device as usize].workers as u64;
        let held = |s: &Step| s.cost_work.warps.as_ref().map_or(0, |w| w.resident);
        let ctas = |s: &Step| {
            let walkers = mapping(s).map_or(0, |g| g.walkers);
            kernel::ctas(walkers, s.cost_work.tasks)
        };
        let (others, own) = (ctas(first), ctas(step));
        let even = others.is_multiple_of(all.max(1)) && others <= all * held(first);
        even || others + own <= all || held(step) == 1 || own >= all * held(step).max(1)
    }
}
