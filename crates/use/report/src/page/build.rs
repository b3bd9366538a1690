//! Builds the report page's data from a plan and a measured run.
use super::{
    Lane, LaneSpan, MachineData, MeasuredRun, MeasuredStep, PageBuffer, PageData, PageInit,
    PageNodes, PageRoofs, PageStep, PageTimeline, PageWhy, sentence,
};
use crate::calc::RooflineView;
use crate::step::near_traffic;
use crate::{AdviceView, PlanView, Profile, StepView};
use kernel::Role;
use layout::{Arrange, Inserted};
use machine::{Machine, Work, calc};
use plan::{
    Activity, Block, BufferKind, Decisions, Fate, NodeFate, Plan, Step, StepWork, Timeline, Wait,
};
use std::collections::{BTreeMap, BTreeSet};

/// Spans kept at most: a loop of many short steps would fill the page.
const SPANS: usize = 20_000;
/// Alternatives kept of one decision.
const ALTERNATIVES: usize = 6;

/// What a page is made of.
pub struct PageInput<'a> {
    /// Plans whose steps ran, the request's own first; a plan alone for a prediction.
    pub plans: &'a [&'a Plan],
    /// The machines that the plans' devices are, found by name.
    pub machines: &'a [Machine],
    /// The first plan as a table shows it.
    pub view: &'a PlanView,
    /// What became of the model's nodes.
    pub fates: &'a [NodeFate],
    /// What was measured, and the last request.
    pub measured: Option<(&'a Profile, &'a Timeline)>,
    /// Work for the dims that ran, by step, where it is known.
    pub works: BTreeMap<String, Work>,
    /// Where nodes come from in the exporter's module tree, by node; others go by their names.
    pub modules: BTreeMap<String, String>,
    /// What would help.
    pub advice: Option<AdviceView>,
    /// What makes the page, with its version.
    pub tool: &'a str,
}

/// The modules that a node's name tells of: what stands before its last slash, or dot where it has none.
fn module_of(node: &str) -> String {
    match node.rfind('/') {
        Some(_) => {
            let parts: Vec<&str> = node.split('/').filter(|p| !p.is_empty()).collect();
            parts[..parts.len().saturating_sub(1)].join("/")
        }
        None => String::new(),
    }
}

/// The modules of `node`: its own where the exporter left them, else those of the function's call that it
/// comes out of (`call/node`) and the call, else what its name tells.
pub fn module_in(modules: &BTreeMap<String, String>, node: &str) -> String {
    if let Some(own) = modules.get(node) {
        return own.clone();
    }
    let slashes = node.rmatch_indices('/').map(|(at, _)| &node[..at]);
    let call = slashes.filter(|call| !call.is_empty());
    let call = call
        .filter_map(|call| Some((call, modules.get(call)?)))
        .next();
    match call {
        Some((call, path)) => {
            let last = call.rsplit('/').next().unwrap_or(call);
            let inside = module_of(&node[call.len() + 1..]);
            let parts = [path.as_str(), last, inside.as_str()];
            let some: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
            some.join("/")
        }
        None => module_of(node),
    }
}

fn buffers_of(step: &Step) -> (Vec<u32>, Vec<u32>) {
    match &step.work {
        StepWork::Kernel { kernel, args, .. } => {
            let of = |role: Role| {
                let both = kernel.operands.iter().zip(args);
                let own = both.filter(|(o, _)| o.role == role).map(|(_, &b)| b);
                own.inserted::<BTreeSet<u32>>().into_iter().collect()
            };
            (of(Role::Read), of(Role::Write))
        }
        StepWork::Host {
            inputs, outputs, ..
        } => (
            inputs.iter().flatten().map(|a| a.buffer).collect(),
            outputs.iter().map(|a| a.buffer).collect(),
        ),
    }
}

fn kind(k: BufferKind) -> &'static str {
    match k {
        BufferKind::Input(_) => "input",
        BufferKind::Output(_) => "output",
        BufferKind::Weight(_) => "weight",
        BufferKind::Init => "init",
        BufferKind::Arena => "arena",
        BufferKind::State(_) => "state",
    }
}

#[derive(Default)]
struct Build {
    steps: Vec<PageStep>,
    buffers: Vec<PageBuffer>,
    whys: Vec<PageWhy>,
    seen: BTreeSet<String>,
    /// Plans so far.
    plans: u32,
}

impl Build {
    /// The steps and buffers of a plan, without steps of a name that is there.
    fn plan(
        &mut self,
        plan: &Plan,
        input: &PageInput<'_>,
        measured: &BTreeMap<&str, MeasuredStep>,
    ) {
        let from = self.steps.len();
        let decisions = Decisions::of(&plan.whys);
        for block in plan.blocks() {
            self.block(plan, block, &decisions, input, measured);
        }
        self.plans += 1;
        // Decisions are about steps, or about nodes that are in steps.
        let mut of: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, s) in self.steps.iter().enumerate().skip(from) {
            let names: BTreeSet<&str> = s.view.nodes.iter().map(String::as_str).inserted();
            for n in names.into_iter().chain([s.view.name.as_str()]) {
                of.entry(n).or_default().push(i);
            }
        }
        let mut found: Vec<(usize, Vec<usize>)> = Vec::new();
        for (w, why) in plan.whys.iter().enumerate() {
            if let Some(steps) = of.get(why.subject.as_str()) {
                let mut steps: Vec<usize> = match why.pass.as_str() {
                    // A schedule belongs to the step of this name, not to a node called alike.
                    "schedule" => {
                        let own = |i: &&usize| self.steps[**i].view.name == why.subject;
                        steps.iter().filter(own).copied().collect()
                    }
                    _ => steps.clone(),
                };
                steps.dedup();
                found.push((w, steps));
            }
        }
        for (w, steps) in found {
            let why = &plan.whys[w];
            let at = self.whys.len() as u32;
            self.whys.push(PageWhy {
                pass: why.pass.clone(),
                subject: why.subject.clone(),
                choice: why.choice.clone(),
                reason: why.reason.clone(),
                alternatives: why
                    .alternatives
                    .iter()
                    .take(ALTERNATIVES)
                    .map(|a| (a.what.clone(), a.predicted_s * 1e6))
                    .collect(),
            });
            for s in steps {
                self.steps[s].whys.push(at);
            }
        }
    }

    fn block(
        &mut self,
        plan: &Plan,
        block: &Block,
        decisions: &Decisions<'_>,
        input: &PageInput<'_>,
        measured: &BTreeMap<&str, MeasuredStep>,
    ) {
        let base = self.buffers.len() as u32;
        self.buffers
            .extend(block.buffers.iter().map(|b| PageBuffer {
                name: b.name.clone(),
                kind: kind(b.kind),
                plan: self.plans,
                place: b.place,
                dtype: b.dtype.to_string(),
                bytes: b.bytes,
                offset: b.offset,
                first: None,
                last: None,
            }));
        // Where each step of the block went, for waits.
        let mut at: Vec<Option<u32>> = Vec::with_capacity(block.steps.len());
        for step in &block.steps {
            if !self.seen.insert(step.name.clone()) {
                at.push(None);
                continue;
            }
            let number = self.steps.len() as u32;
            let mut view = StepView::new(number, step, &plan.dims, decisions);
            let work = input.works.get(&step.name).unwrap_or(&step.cost_work);
            if input.works.contains_key(&step.name) {
                view.flop = work.flop() + 0.0;
                view.ops = work.ops_total() + 0.0;
                (view.unique_read, view.unique_written) = (work.unique_read, work.unique_written);
                (view.loaded, view.stored) = near_traffic(work);
            }
            let machine = plan
                .devices
                .get(step.device as usize)
                .and_then(|d| input.machines.iter().find(|m| m.name == d.machine));
            let kernel = matches!(step.work, StepWork::Kernel { .. });
            let roof = machine
                .filter(|_| kernel && !block.is_transfer(step))
                .map(|m| calc::roofline(m, work));
            let (reads, writes) = buffers_of(step);
            for &b in reads.iter().chain(&writes) {
                if let Some(b) = self.buffers.get_mut((base + b) as usize) {
                    b.first.get_or_insert(number);
                    b.last = Some(number);
                }
            }
            let waits = step.waits.iter().filter_map(|w| {
                let (Wait::Step(s) | Wait::Tiles { step: s, .. }) = w;
                at.get(*s as usize).copied().flatten()
            });
            let c = &step.predicted;
            let micro = |l: &[machine::Share]| {
                l.iter()
                    .map(|s| (s.name.to_string(), s.seconds * 1e6))
                    .collect()
            };
            self.steps.push(PageStep {
                device: step.device,
                waits: waits.collect(),
                module: step
                    .nodes
                    .first()
                    .map_or_else(String::new, |n| module_in(&input.modules, n)),
                measured: measured.get(step.name.as_str()).copied(),
                interval_us: (c.interval.0 * 1e6, c.interval.1 * 1e6),
                latency_us: c.latency_s * 1e6,
                launch_us: c.launch_s * 1e6,
                levels: micro(&c.levels),
                units: micro(&c.units),
                traffic: work.traffic.iter().map(|t| (t.loaded, t.stored)).collect(),
                ops_by: work
                    .ops
                    .iter()
                    .map(|(c, d, n)| (c.to_string(), d.to_string(), *n))
                    .collect(),
                roof_us: roof.as_ref().map(|r| r.seconds * 1e6),
                roof_bound: roof.as_ref().map(|r| match r.bound {
                    machine::Bound::Launch => "nothing".into(),
                    ref b => b.to_string(),
                }),
                reads: reads.iter().map(|b| base + b).collect(),
                writes: writes.iter().map(|b| base + b).collect(),
                whys: vec![],
                view,
            });
            at.push(Some(number));
        }
    }
}

/// The last request, neighbours of one step joined.
pub fn timeline(t: &Timeline, numbers: &BTreeMap<&str, u32>) -> PageTimeline {
    let number = |s: u32| {
        let name = t.steps.get(s as usize);
        name.and_then(|n| numbers.get(n.as_str()))
            .map_or(-1, |&n| i64::from(n))
    };
    let workers: BTreeSet<u32> = t.spans.iter().map(|s| s.worker).inserted();
    let lane_of: BTreeMap<u32, u32> = workers.iter().copied().zip(0..).inserted();
    let mut lanes: Vec<Lane> = workers
        .iter()
        .map(|w| Lane {
            name: match w {
                0 => "worker 0 (caller)".into(),
                w => format!("worker {w}"),
            },
            kind: "worker",
        })
        .collect();
    let first = lanes.len() as u32;
    lanes.extend(t.lanes.iter().map(|l| Lane {
        name: l.clone(),
        kind: "device",
    }));
    // Lane, occurrence of the step, begin and end in nanoseconds, tasks, what.
    let mut raw: Vec<(u32, u32, u64, u64, u32, &'static str)> = Vec::new();
    for s in &t.spans {
        let lane = lane_of.get(&s.worker).copied().unwrap_or(0);
        raw.push((lane, s.step, s.start_ns, s.end_ns, s.tasks, "kernel"));
    }
    for s in &t.device {
        let what = match s.what {
            Activity::Kernel => "kernel",
            Activity::Upload => "to device",
            Activity::Download => "from device",
            Activity::Wait => "wait",
        };
        raw.push((first + s.lane, s.step, s.start_ns, s.end_ns, 0, what));
    }
    raw.arrange_by_key(|s| (s.0, s.2, s.3));
    let mut joined: Vec<(u32, u32, u64, u64, u32, &'static str)> = Vec::new();
    for s in raw {
        match joined.last_mut() {
            Some(l) if (l.0, l.1, l.5) == (s.0, s.1, s.5) => {
                l.3 = l.3.max(s.3);
                l.4 = l.4.saturating_add(s.4);
            }
            _ => joined.push(s),
        }
    }
    // Of too many, the longest are what one sees.
    if joined.len() > SPANS {
        let mut lengths: Vec<u64> = joined.iter().map(|s| s.3.saturating_sub(s.2)).collect();
        lengths.arrange_by(|a, b| b.cmp(a));
        let least = lengths[SPANS];
        joined.retain(|s| s.3.saturating_sub(s.2) > least);
    }
    let us = |ns: u64| ns as f64 * 1e-3;
    let span = |s: &(u32, u32, u64, u64, u32, &'static str)| -> LaneSpan {
        (
            s.0,
            number(s.1),
            us(s.2),
            us(s.3.saturating_sub(s.2)),
            s.4,
            s.5,
        )
    };
    PageTimeline {
        total_us: us(t
            .total_ns
            .max(joined.iter().map(|s| s.3).max().unwrap_or(0))),
        lanes,
        spans: joined.iter().map(span).collect(),
    }
}

/// `of_node`: steps by the nodes that they stand for, where a plan has other steps than the program's items.
fn accounting(
    fates: &[NodeFate],
    numbers: &BTreeMap<&str, u32>,
    of_node: &BTreeMap<&str, Vec<u32>>,
) -> PageNodes {
    let counted = crate::Accounting::new(fates);
    let nodes = fates.iter().zip(counted.nodes).map(|(f, n)| {
        let steps = match &f.fate {
            Fate::Items(names) => {
                let own = names
                    .iter()
                    .filter_map(|n| numbers.get(n.as_str()).copied());
                let own: Vec<u32> = own.collect();
                match own.is_empty() {
                    true => of_node.get(f.node.as_str()).cloned().unwrap_or_default(),
                    false => own,
                }
            }
            _ => vec![],
        };
        (n.node, n.op_type, n.fate, steps)
    });
    PageNodes {
        nodes: nodes.collect(),
        total: counted.total,
        in_steps: counted.in_steps,
        views: counted.views,
        folded: counted.folded,
        dead: counted.dead,
        control: counted.control,
    }
}

impl PageData {
    /// Joins plans, machines and what was measured.
    pub fn new(input: PageInput<'_>) -> PageData {
        let (profile, last) = match input.measured {
            Some((p, t)) => (Some(p), Some(t)),
            None => (None, None),
        };
        let measured: BTreeMap<&str, MeasuredStep> = profile
            .iter()
            .flat_map(|p| &p.steps)
            .map(|s| {
                let m = MeasuredStep {
                    runs: s.runs,
                    workers: s.workers,
                    time_us: s.time_us,
                    error: s.error,
                };
                (s.step.name.as_str(), m)
            })
            .inserted();
        let mut b = Build::default();
        for plan in input.plans {
            b.plan(plan, &input, &measured);
        }
        let numbers: BTreeMap<&str, u32> = b
            .steps
            .iter()
            .map(|s| (s.view.name.as_str(), s.view.number))
            .inserted();
        let mut of_node: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for s in &b.steps {
            for n in &s.view.nodes {
                of_node.entry(n).or_default().push(s.view.number);
            }
        }
        let (timeline, accounting) = (
            last.map(|t| timeline(t, &numbers)),
            accounting(input.fates, &numbers, &of_node),
        );
        let devices: Vec<&str> = input.plans.first().map_or(vec![], |p| {
            p.devices.iter().map(|d| d.machine.as_str()).collect()
        });
        let machines: Vec<&Machine> = devices
            .iter()
            .filter_map(|d| input.machines.iter().find(|m| m.name == *d))
            .collect();
        let roofs = match (machines.last(), input.plans.first()) {
            (Some(m), Some(p)) => RooflineView::of_plan(m, p, &[]),
            _ => return PageData::empty(input, b, accounting),
        };
        let machines = machines.into_iter().map(MachineData::from).collect();
        PageData {
            timeline,
            machines,
            roofline: PageRoofs {
                ceilings: roofs.ceilings,
                roofs: roofs.roofs,
            },
            ..PageData::empty(input, b, accounting)
        }
        .counted()
    }

    /// What all plans of a request take together: parts of it may be planned when the data gives sizes.
    fn memory(input: &PageInput<'_>) -> crate::MemoryView {
        let mut m = input.view.memory;
        if input.plans.len() > 1 && input.view.bodies.is_empty() {
            (m.weights, m.late) = (m.weights.saturating_sub(m.late), 0);
            for p in &input.plans[1..] {
                m = m.with_body(&crate::MemoryView::of(p, m.requests));
            }
        }
        m
    }

    /// Without what needs a machine's description or a request.
    fn empty(input: PageInput<'_>, b: Build, accounting: PageNodes) -> PageData {
        let (view, profile) = (input.view, input.measured.map(|m| m.0));
        let last = input.plans.first().and_then(|p| p.devices.last());
        PageData {
            schema: PageData::SCHEMA,
            version: PageData::VERSION,
            tool: input.tool.into(),
            sentence: String::new(),
            model: view.model.clone(),
            dims: view.dims.clone(),
            device: profile.map(|p| p.device.clone()),
            how: profile.map_or_else(|| view.how.clone(), |p| p.how.clone()),
            machine: last.map_or_else(|| view.machine.clone(), |d| d.machine.clone()),
            target: view.target.clone(),
            threads: profile.map_or(view.workers, |p| p.threads as u32),
            goal: view.goal,
            note: match profile {
                Some(p) => {
                    let emulated = p.emulated.then(|| crate::EMULATED.to_string());
                    let both = view.note.clone().into_iter().chain(emulated);
                    let both = both.collect::<Vec<_>>().join("; ");
                    Some(both).filter(|b| !b.is_empty())
                }
                None => view.note_and_parts(),
            },
            predicted_us: profile.map_or(view.predicted_us, |p| p.predicted_us),
            interval_us: view.interval_us,
            measured: profile.map(|p| MeasuredRun {
                warmup: p.warmup,
                active: p.active,
                request_us: p.request_us,
                steps_us: p.steps_us,
                overhead: p.overhead,
            }),
            flop: profile.map_or(view.flop, |p| p.flop),
            bounds: vec![],
            machines: vec![],
            kinds: crate::step::kinds(b.steps.iter().map(|s| s.view.family.as_str())),
            steps: b.steps,
            control: view.control.clone(),
            init: PageInit {
                steps: view.init.len(),
                predicted_us: view.init.iter().map(|s| s.predicted_us).sum::<f64>() + 0.0,
            },
            buffers: b.buffers,
            memory: PageData::memory(&input),
            timeline: None,
            roofline: PageRoofs::default(),
            whys: b.whys,
            advice: input.advice,
            accounting,
            against: None,
        }
    }

    /// With shares by bound and the sentence that they make.
    fn counted(mut self) -> PageData {
        let total: f64 = self.steps.iter().map(|s| self.step_us(s)).sum();
        let mut by: BTreeMap<&str, f64> = BTreeMap::new();
        for s in &self.steps {
            *by.entry(&s.view.bound).or_default() += self.step_us(s);
        }
        let mut bounds: Vec<(String, f64)> = by
            .into_iter()
            .map(|(b, t)| (b.to_string(), if total > 0.0 { t / total } else { 0.0 }))
            .collect();
        bounds.arrange_by(|a, b| b.1.total_cmp(&a.1));
        self.bounds = bounds;
        self.sentence = sentence::of(&self);
        self
    }
}
