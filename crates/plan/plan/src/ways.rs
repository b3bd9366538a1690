//! What of a plan its ways of running on a GPU are priced by ([`machine::Machine::request`]).

use crate::{Block, BufferKind, Plan, Step, StepWork};
use kernel::{Mapping, Role, work};
use layout::Arrange;
use machine::{KernelSpan, Leg, Machine, RequestSteps, Way, WayTime};
use std::collections::BTreeSet;

/// A step as the GPU that is device `own` of its plan has it; `None` where it is no kernel of that GPU.
fn span(step: &Step, own: u32) -> Option<KernelSpan> {
    let StepWork::Kernel {
        kernel, schedule, ..
    } = &step.work
    else {
        return None;
    };
    match (&schedule.mapping, step.device == own) {
        (Mapping::Gpu(g), true) => Some(KernelSpan {
            joined: step.joined,
            handovers: match step.joined {
                true => step.cost_work.handoffs,
                false => 0,
            },
            ahead: match step.joined {
                true => 0.0,
                false => work::bytes_ahead(kernel, schedule),
            },
            triggers: g.triggers,
            ..KernelSpan::of(&step.cost_work, &step.predicted, g.threads.into())
        }),
        _ => None,
    }
}

/// Why a kernel that stays cannot take `step`, one of the GPU's.
fn not_staying(step: &Step) -> Option<&'static str> {
    match &step.work {
        StepWork::Kernel { schedule, .. } => match &schedule.mapping {
            Mapping::Gpu(g) if g.code.is_some() => Some("it runs PTX that its kernel's text gives"),
            _ if step.cost_work.warps.is_none() => Some("its kernel is of the vendor's library"),
            _ => None,
        },
        StepWork::Host { .. } => None,
    }
}

/// A step that copies what a request gives or takes: its bytes, and whether it gives them.
fn carried(block: &Block, step: &Step) -> Option<(f64, bool)> {
    let StepWork::Kernel { kernel, args, .. } = &step.work else {
        return None;
    };
    if !block.is_transfer(step) {
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
                    out.may_stay &= not_staying(step).is_none();
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
    /// Its steps for its last device, block by block.
    fn requests(&self) -> Vec<RequestSteps> {
        let own = self.devices.len().saturating_sub(1) as u32;
        self.blocks().map(|b| b.request_steps(own)).collect()
    }

    /// Whether any step is a kernel of a GPU, its last device.
    pub fn runs_kernels(&self) -> bool {
        let own = self.devices.len().saturating_sub(1) as u32;
        let mut steps = self.blocks().flat_map(|b| &b.steps);
        steps.any(|s| span(s, own).is_some())
    }

    /// The devices that compute something: those of steps that do more than copy from one to another.
    pub fn computing(&self) -> BTreeSet<u32> {
        let of = |b: &Block| {
            let own = b.steps.iter().filter(|s| !b.is_transfer(s));
            own.map(|s| s.device).collect::<Vec<_>>()
        };
        self.blocks().flat_map(of).collect()
    }

    /// Whether the plan is over a GPU and the host, and every step is the host's: nothing reaches the GPU.
    pub fn leaves_gpu_idle(&self) -> bool {
        self.devices.len() > 1 && !self.runs_kernels()
    }

    /// What a request takes by every way that its last device, `machine`, has for all its blocks, the
    /// shortest first; none for a machine without such ways, and where nothing reaches it.
    pub fn request_ways(&self, machine: &Machine) -> Vec<WayTime> {
        if self.leaves_gpu_idle() {
            return vec![];
        }
        let blocks = self.requests();
        let of = |way: Way| {
            let mut all = blocks.iter().map(|b| machine.request(b, way));
            let mut sum = all.next()??;
            for more in all {
                add(&mut sum, &more?);
            }
            Some(sum)
        };
        let mut out: Vec<WayTime> = Way::ALL.into_iter().filter_map(of).collect();
        out.arrange_by(|a, b| a.with_copies_s().total_cmp(&b.with_copies_s()));
        out
    }

    /// The way by which `machine` runs the plan when `asked` for one, else when the plan was made for one, or
    /// of its own accord: launched or as a graph, what is predicted to take less. A kernel that stays has the
    /// GPU to itself, so that it is for who asks for it. `None` where there is no such way.
    pub fn request_way(&self, machine: &Machine, asked: Option<Way>) -> Option<WayTime> {
        let asked = asked.or(self.launch);
        let mut all = self.request_ways(machine).into_iter();
        all.find(|t| asked.map_or(t.way != Way::Resident, |way| t.way == way))
    }

    /// Why `machine` cannot run the plan by `way`, and what to do; `None` where it can.
    pub fn why_not(&self, machine: &Machine, way: Way) -> Option<String> {
        let ways = self.request_ways(machine);
        if ways.iter().any(|t| t.way == way) {
            return None;
        }
        if self.leaves_gpu_idle() {
            return Some(format!(
                "every step of {} runs on the host and nothing reaches {}; leave --launch out",
                self.model, machine.name
            ));
        }
        let own = self.devices.len().saturating_sub(1) as u32;
        let steps = self.blocks().flat_map(|b| &b.steps).enumerate();
        let mut kernels = steps.filter(|(_, s)| span(s, own).is_some());
        let prevents = kernels.find_map(|(n, s)| Some((n, s, not_staying(s)?)));
        Some(match prevents {
            _ if ways.is_empty() => format!(
                "{} has one way to launch steps; leave --launch out",
                machine.name
            ),
            Some((n, s, why)) => format!(
                "step {n} '{}' of {} cannot run by --launch {way}, since {why}; give --launch steps or graph",
                s.name, self.model
            ),
            None => format!(
                "no kernel can stay on {}, which shares one memory with the host; give --launch steps or graph",
                machine.name
            ),
        })
    }
}
