//! What of a plan its ways of running on a GPU are priced by ([`machine::Machine::request`]).

use crate::{Block, BufferKind, Plan, Step, StepWork};
use kernel::{Mapping, Role};
use machine::{KernelSpan, Leg, Machine, RequestSteps, Way, WayTime};

/// A step as the GPU that is device `own` of its plan has it; `None` where it is no kernel of that GPU.
fn span(step: &Step, own: u32) -> Option<KernelSpan> {
    let StepWork::Kernel { schedule, .. } = &step.work else {
        return None;
    };
    match (&schedule.mapping, step.device == own) {
        (Mapping::Gpu(g), true) => Some(KernelSpan::of(
            &step.cost_work,
            &step.predicted,
            g.threads.into(),
        )),
        _ => None,
    }
}

/// Whether a kernel that stays can take the step: one of ours, of no text of the user's.
fn may_stay(step: &Step) -> bool {
    match &step.work {
        StepWork::Kernel { schedule, .. } => {
            let text = matches!(&schedule.mapping, Mapping::Gpu(g) if g.code.is_some());
            step.cost_work.warps.is_some() && !text
        }
        StepWork::Host { .. } => false,
    }
}

/// A step that copies what a request gives or takes: its bytes, and whether it gives them.
fn carried(block: &Block, step: &Step) -> Option<(f64, bool)> {
    let StepWork::Kernel { kernel, args, .. } = &step.work else {
        return None;
    };
    if !block.is_road(step) {
        return None;
    }
    let of = |role: Role| {
        let mut both = kernel.operands.iter().zip(args);
        let at = both.find(|(o, _)| o.role == role)?.1;
        block.buffers.get(*at as usize)
    };
    let (from, to) = (of(Role::Read)?, of(Role::Write)?);
    match (&from.kind, &to.kind) {
        (BufferKind::Input(_), _) => Some((to.bytes as f64, true)),
        (_, BufferKind::Output(_)) => Some((from.bytes as f64, false)),
        _ => None,
    }
}

impl Block {
    /// The block's steps for the GPU that is device `own` of its plan, at the top of the box: what lies on
    /// another device is waited for, and so are copies between the two but those of what a request gives
    /// and takes.
    pub fn request_steps(&self, own: u32) -> RequestSteps {
        let mut out = RequestSteps {
            may_stay: true,
            ..RequestSteps::default()
        };
        for port in &self.inputs {
            let buffer = self.buffers.get(port.buffer as usize);
            let here = buffer.filter(|b| b.place == own && !matches!(b.kind, BufferKind::State(_)));
            out.inputs.extend(here.map(|b| b.bytes as f64));
        }
        for step in &self.steps {
            match (carried(self, step), span(step, own)) {
                (Some((bytes, true)), _) => out.inputs.push(bytes),
                (Some((bytes, false)), _) => out.outputs.push(bytes),
                (None, Some(k)) => {
                    out.may_stay &= may_stay(step);
                    out.legs.push(Leg::Kernel(k));
                }
                (None, None) => out.legs.push(Leg::Host(step.predicted.time_s)),
            }
        }
        for port in &self.outputs {
            let buffer = self.buffers.get(port.buffer as usize);
            let here = buffer.filter(|b| b.place == own && !matches!(b.kind, BufferKind::State(_)));
            out.outputs.extend(here.map(|b| b.bytes as f64));
        }
        out
    }
}

/// Adds a block's time to that of those before it.
fn add(sum: &mut WayTime, more: &WayTime) {
    sum.seconds += more.seconds;
    sum.copies_s += more.copies_s;
    sum.bodies_s += more.bodies_s;
}

impl Plan {
    /// What a request takes by every way that its last device, `machine`, has for all its blocks, the
    /// shortest first; none for a machine without such ways.
    pub fn request_ways(&self, machine: &Machine) -> Vec<WayTime> {
        let own = self.devices.len().saturating_sub(1) as u32;
        let blocks: Vec<RequestSteps> = self.blocks().map(|b| b.request_steps(own)).collect();
        let of = |way: Way| {
            let mut all = blocks.iter().map(|b| machine.request(b, way));
            let mut sum = all.next()??;
            for more in all {
                add(&mut sum, &more?);
            }
            Some(sum)
        };
        let mut out: Vec<WayTime> = Way::ALL.into_iter().filter_map(of).collect();
        out.sort_by(|a, b| a.with_copies_s().total_cmp(&b.with_copies_s()));
        out
    }

    /// The way by which `machine` runs the plan when `asked` for one, or of its own accord: launched or as a
    /// graph, what is predicted to take less. A kernel that stays has the GPU to itself, so that it is for
    /// who asks for it. `None` where there is no such way.
    pub fn request_way(&self, machine: &Machine, asked: Option<Way>) -> Option<WayTime> {
        let mut all = self.request_ways(machine).into_iter();
        all.find(|t| asked.map_or(t.way != Way::Resident, |way| t.way == way))
    }
}
