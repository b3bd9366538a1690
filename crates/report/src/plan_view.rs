use crate::table::{Align, Style, Table};
use crate::{StepView, units};
use plan::{BufferKind, Goal, Plan, PlanSegment, Program, Segment, Why};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The memory that a plan takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MemoryView {
    /// Constants read where the file lies mapped.
    pub weights: u64,
    /// Packed weights and other results of the init segment, shared by all requests.
    pub packed: u64,
    /// Arena of one request.
    pub arena: u64,
    /// Requests that may run at once.
    pub requests: u64,
    /// Scratch of one worker.
    pub scratch: u64,
    /// Workers.
    pub workers: u64,
    /// State of one stream.
    pub state: u64,
    /// The caller's inputs and outputs of one request.
    pub ports: u64,
    /// Packed weights, arenas and scratch together.
    pub total: u64,
}

/// A plan as a table shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanView {
    /// Model.
    pub model: String,
    /// Machine it was made for.
    pub machine: String,
    /// Hash of that description.
    pub machine_hash: String,
    /// Target.
    pub target: String,
    /// Workers.
    pub workers: u32,
    /// Box of dims (`batch=1..8`), empty when there are none.
    pub dims: String,
    /// Goal.
    pub goal: Goal,
    /// Steps that run for every request.
    pub steps: Vec<StepView>,
    /// Steps that run once at load.
    pub init: Vec<StepView>,
    /// Control flow and late parts: number of the step that follows, and what stands there.
    pub control: Vec<(u32, String)>,
    /// Memory.
    pub memory: MemoryView,
    /// What a reader must know about the figures, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Predicted time of a request, microseconds (control flow left out).
    pub predicted_us: f64,
    /// Where the prediction may lie, microseconds.
    pub interval_us: (f64, f64),
    /// Contraction FLOP of a request.
    pub flop: f64,
    /// Distinct bytes of all steps.
    pub unique_bytes: f64,
    /// Decisions.
    pub whys: Vec<Why>,
}

fn control_text(program: Option<&Program>, segment: u32, deferred: bool) -> String {
    let Some(s) = program.and_then(|p| p.segments.get(segment as usize)) else {
        return format!("segment {segment}");
    };
    let what = match s {
        Segment::If {
            node,
            then_branch,
            else_branch,
            ..
        } => {
            format!(
                "if {node}: {} kernels, else {}",
                kernels(then_branch),
                kernels(else_branch)
            )
        }
        Segment::Loop { node, body, .. } => {
            format!("loop {node}: {} kernels each time", kernels(body))
        }
        Segment::Late(i) => format!(
            "host {}: its output sizes are known only when it has run",
            i.name
        ),
        Segment::Straight(items) => format!("{} kernels", items.len()),
    };
    if deferred {
        format!("planned when sizes are known, from here on: {what}")
    } else {
        what
    }
}

fn kernels(p: &Program) -> usize {
    p.segments
        .iter()
        .map(|s| match s {
            Segment::Straight(i) => i.len(),
            Segment::Late(_) => 1,
            Segment::If {
                then_branch,
                else_branch,
                ..
            } => kernels(then_branch) + kernels(else_branch),
            Segment::Loop { body, .. } => kernels(body),
        })
        .sum()
}

/// What `of` says of the plan's devices, the host first.
fn names(plan: &Plan, of: &dyn Fn(&plan::DeviceRef) -> &String) -> String {
    let list: Vec<&str> = plan.devices.iter().map(|d| of(d).as_str()).collect();
    list.join(" + ")
}

impl PlanView {
    /// What there is to show of `plan`; `program` names its control flow, `requests` may run at once.
    pub fn new(plan: &Plan, program: Option<&Program>, requests: u64) -> PlanView {
        let device = plan.devices.first();
        let (mut steps, mut init, mut control) = (Vec::new(), Vec::new(), Vec::new());
        let mut memory = MemoryView {
            requests,
            workers: device.map_or(1, |d| u64::from(d.workers)),
            ..MemoryView::default()
        };
        let mut weights = BTreeMap::new();
        let (mut flop, mut unique) = (0.0, 0.0);
        for s in &plan.segments {
            match s {
                PlanSegment::Block(b) => {
                    for step in &b.init {
                        init.push(StepView::new(
                            init.len() as u32,
                            step,
                            &plan.dims,
                            &plan.whys,
                        ));
                    }
                    for step in &b.steps {
                        let v = StepView::new(steps.len() as u32, step, &plan.dims, &plan.whys);
                        flop += v.flop;
                        unique += v.unique_bytes();
                        steps.push(v);
                    }
                    for buffer in &b.buffers {
                        match buffer.kind {
                            BufferKind::Weight(id) => {
                                weights.insert(id, buffer.bytes);
                            }
                            BufferKind::Init => memory.packed += buffer.bytes,
                            BufferKind::State(_) => memory.state += buffer.bytes,
                            BufferKind::Input(_) | BufferKind::Output(_) => {
                                memory.ports += buffer.bytes
                            }
                            BufferKind::Arena => {}
                        }
                    }
                    memory.arena += b.arena_bytes + b.far_arenas.iter().sum::<u64>();
                    memory.scratch = memory.scratch.max(b.scratch_bytes);
                }
                PlanSegment::Control { segment } => {
                    control.push((steps.len() as u32, control_text(program, *segment, false)))
                }
                PlanSegment::Deferred { segment } => {
                    control.push((steps.len() as u32, control_text(program, *segment, true)))
                }
            }
        }
        memory.weights = weights.values().sum();
        memory.total = memory
            .packed
            .saturating_add(memory.arena.saturating_mul(requests))
            .saturating_add(memory.scratch.saturating_mul(memory.workers));
        PlanView {
            model: plan.model.clone(),
            machine: names(plan, &|d| &d.machine),
            machine_hash: device.map_or_else(String::new, |d| d.machine_hash.clone()),
            target: names(plan, &|d| &d.target),
            workers: device.map_or(1, |d| d.workers),
            dims: if plan.dims.is_empty() {
                String::new()
            } else {
                plan.dims.to_string()
            },
            goal: plan.goal,
            steps,
            init,
            control,
            memory,
            note: None,
            predicted_us: plan.predicted.time_s * 1e6,
            interval_us: (
                plan.predicted.interval.0 * 1e6,
                plan.predicted.interval.1 * 1e6,
            ),
            flop,
            unique_bytes: unique,
            whys: plan.whys.clone(),
        }
    }

    /// The plan as text; with `why` also the decisions, by pass.
    pub fn render(&self, style: Style, why: bool) -> String {
        let mut out = String::new();
        let goal = match self.goal {
            Goal::Latency => "latency".to_string(),
            Goal::Throughput {
                max_latency_s: None,
            } => "throughput".to_string(),
            Goal::Throughput {
                max_latency_s: Some(s),
            } => format!("throughput within {}", units::seconds(s)),
        };
        let _ = writeln!(out, "{}", style.heading(&format!("plan of {}", self.model)));
        let _ = writeln!(
            out,
            "  machine  {} ({}), {}",
            self.machine,
            self.target,
            units::plural(u64::from(self.workers), "worker")
        );
        if !self.dims.is_empty() {
            let range = if self.dims.contains("..") {
                " (figures below are for the largest)"
            } else {
                ""
            };
            let _ = writeln!(out, "  dims     {}{range}", self.dims);
        }
        let _ = writeln!(out, "  goal     {goal}");
        if let Some(note) = &self.note {
            let _ = writeln!(out, "  note     {note}");
        }
        out.push('\n');
        let mut t = Table::new(&[
            ("step", Align::Right),
            ("nodes", Align::Shrink),
            ("family", Align::Left),
            ("tiles", Align::Shrink),
            ("tasks", Align::Right),
            ("predicted", Align::Right),
            ("bytes", Align::Right),
            ("bound", Align::Left),
        ]);
        let mut control = self.control.iter().peekable();
        let shared = units::common_path(
            self.steps
                .iter()
                .flat_map(|s| s.nodes.first())
                .map(String::as_str),
        );
        if !shared.is_empty() && self.steps.len() > 1 {
            let _ = writeln!(out, "  names of nodes begin with {shared}\n");
        }
        let row = |t: &mut Table, s: &StepView| {
            t.row(vec![
                s.number.to_string(),
                s.nodes_text(shared),
                s.family.clone(),
                s.schedule.clone(),
                s.tasks.to_string(),
                units::seconds(s.predicted_us * 1e-6),
                units::bytes(s.unique_bytes()),
                s.bound.clone(),
            ]);
        };
        for s in &self.steps {
            while let Some((_, text)) = control.next_if(|c| c.0 <= s.number) {
                t.row(vec!["".into(), text.clone(), "control".into()]);
            }
            row(&mut t, s);
        }
        for (_, text) in control {
            t.row(vec!["".into(), text.clone(), "control".into()]);
        }
        out.push_str(&t.render(style));
        let init: f64 = self.init.iter().map(|s| s.predicted_us).sum();
        if !self.init.is_empty() {
            let _ = writeln!(
                out,
                "\n{} more steps run once at load (packing, constants), predicted {}.",
                self.init.len(),
                units::seconds(init * 1e-6)
            );
        }
        let _ = writeln!(
            out,
            "\n{}\n  predicted {} ({} .. {}), {}, {} of distinct bytes in {}",
            style.heading("one request"),
            units::seconds(self.predicted_us * 1e-6),
            units::seconds(self.interval_us.0 * 1e-6),
            units::seconds(self.interval_us.1 * 1e-6),
            units::flop(self.flop),
            units::bytes(self.unique_bytes),
            units::plural(self.steps.len() as u64, "step"),
        );
        let m = &self.memory;
        let size = |n: u64| units::bytes(n as f64);
        let _ = writeln!(out, "\n{}", style.heading("memory"));
        let mut t = Table::new(&[
            ("what", Align::Left),
            ("bytes", Align::Right),
            ("", Align::Left),
        ]);
        t.row(vec![
            "  packed weights".into(),
            size(m.packed),
            "made at load, shared by all requests".into(),
        ]);
        t.row(vec![
            "  arena".into(),
            size(m.arena),
            format!("per request; up to {} run at once", m.requests),
        ]);
        t.row(vec![
            "  scratch".into(),
            size(m.scratch),
            format!("per worker; {}", units::plural(m.workers, "worker")),
        ]);
        t.row(vec![
            "  at most".into(),
            size(m.total),
            "the above together".into(),
        ]);
        t.row(vec![
            "  weights in the file".into(),
            size(m.weights),
            "mapped, not copied".into(),
        ]);
        t.row(vec![
            "  inputs and outputs".into(),
            size(m.ports),
            "the caller's".into(),
        ]);
        if m.state > 0 {
            t.row(vec!["  state".into(), size(m.state), "per stream".into()]);
        }
        out.push_str(&t.render(style));
        if why {
            out.push_str(&whys_text(&self.whys, style));
        }
        out
    }
}

/// Decisions grouped by pass, in the order in which passes first decided.
fn whys_text(whys: &[Why], style: Style) -> String {
    let mut passes: Vec<(&str, Vec<&Why>)> = Vec::new();
    for w in whys {
        match passes.iter_mut().find(|p| p.0 == w.pass) {
            Some(p) => p.1.push(w),
            None => passes.push((&w.pass, vec![w])),
        }
    }
    let mut out = String::new();
    for (pass, list) in passes {
        let _ = writeln!(
            out,
            "\n{} ({})",
            style.heading(&format!("why: {pass}")),
            units::plural(list.len() as u64, "decision")
        );
        for w in list {
            let _ = writeln!(out, "  {}: {}", w.subject, w.choice);
            for line in units::wrapped(&w.reason, style.width.saturating_sub(6).max(20)) {
                let _ = writeln!(out, "      {line}");
            }
            for a in &w.alternatives {
                let _ = writeln!(
                    out,
                    "      {} {}, predicted {}",
                    style.faint("instead:"),
                    a.what,
                    units::seconds(a.predicted_s)
                );
            }
        }
    }
    out
}
