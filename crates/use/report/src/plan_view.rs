//! A plan as a table: steps, decisions, division.
use crate::bodies::{bodies_text, bodies_us, counted_inside, with_steps};
use crate::step::kinds;
use crate::table::{Align, Style, Table};
use crate::{BodyView, HowRun, MemoryView, StepView, units};
use machine::WayTime;
use plan::{Decisions, Goal, Plan, PlanSegment, Program, Segment, Why};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;

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
    /// Whose kernels, where the machine need not be here: `ours` or `vendor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// Whether nothing was ever compared with their predictions.
    pub unvalidated: bool,
    /// The device that runs it, as `--on` names it; `None` for a machine that is planned for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How steps reach the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// What a request is predicted to take by each way that there is, the shortest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<WayView>,
    /// Workers.
    pub workers: u32,
    /// Box of dims (`batch=1..8`), empty when there are none.
    pub dims: String,
    /// Goal.
    pub goal: Goal,
    /// Steps that run for every request, those of branches and loop bodies aside.
    pub steps: Vec<StepView>,
    /// Steps that run once at load.
    pub init: Vec<StepView>,
    /// Control flow and late parts: number of the step that follows, and what stands there.
    pub control: Vec<(u32, String)>,
    /// Memory.
    pub memory: MemoryView,
    /// Branches and loop bodies, planned on their own.
    pub bodies: Vec<BodyView>,
    /// How requests are run side by side, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub division: Option<DivisionView>,
    /// What a reader must know about the figures, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Predicted time of a request, microseconds, with branches and loop bodies.
    pub predicted_us: f64,
    /// What leads from the times of the steps, one after the other, to that of a request: they add up to it.
    pub parts: Vec<PartView>,
    /// Where the prediction may lie, microseconds.
    pub interval_us: (f64, f64),
    /// Contraction FLOP of a request, with branches and loop bodies as they are counted.
    pub flop: f64,
    /// Distinct bytes of all steps of a request, counted in the same way.
    pub unique_bytes: f64,
    /// Decisions.
    pub whys: Vec<Why>,
}

/// What a request takes by one way of launching its steps, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayView {
    /// `steps`, `graph` or `resident`.
    pub way: String,
    /// All of it.
    pub predicted_us: f64,
    /// Of that, bodies of steps.
    pub bodies_us: f64,
    /// Of that, copies of what the host gives and takes.
    pub copies_us: f64,
}

impl WayView {
    /// What it is made of, in words.
    fn parts_text(&self) -> String {
        let seconds = |us: f64| units::seconds(us * 1e-6);
        format!(
            "{} in kernels and host steps, {} copying, {} between and around them",
            seconds(self.bodies_us),
            seconds(self.copies_us),
            seconds((self.predicted_us - self.bodies_us - self.copies_us).max(0.0))
        )
    }
}

impl From<&WayTime> for WayView {
    fn from(t: &WayTime) -> WayView {
        WayView {
            way: t.way.to_string(),
            predicted_us: t.with_copies_s() * 1e6,
            bodies_us: t.bodies_s * 1e6,
            copies_us: t.copies_s * 1e6,
        }
    }
}

/// A part of a request's predicted time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartView {
    /// What it is, in words.
    pub what: String,
    /// Microseconds; less than none where something is saved.
    pub us: f64,
}

/// How requests are run side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DivisionView {
    /// Batch, runs at once, workers of each.
    pub choice: String,
    /// Predicted items per second.
    pub throughput_per_s: f64,
    /// Predicted milliseconds from arrival to end.
    pub latency_ms: f64,
    /// Why.
    pub reason: String,
    /// What else there was.
    pub others: Vec<String>,
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
        let mut memory = MemoryView::of(plan, requests);
        if let Some(p) = program {
            memory = memory.with_late(plan, p);
        }
        let (mut flop, mut unique) = (0.0, 0.0);
        let decisions = Decisions::of(&plan.whys);
        for s in &plan.segments {
            match s {
                PlanSegment::Block(b) => {
                    for step in &b.init {
                        let number = init.len() as u32;
                        init.push(StepView::new(number, step, &plan.dims, &decisions));
                    }
                    for step in &b.steps {
                        let v = StepView::new(steps.len() as u32, step, &plan.dims, &decisions);
                        flop += v.flop;
                        unique += v.unique_bytes();
                        steps.push(v);
                    }
                }
                PlanSegment::Control { segment } => {
                    control.push((steps.len() as u32, control_text(program, *segment, false)))
                }
                PlanSegment::Deferred { segment } => {
                    control.push((steps.len() as u32, control_text(program, *segment, true)))
                }
            }
        }
        let view = PlanView {
            model: plan.model.clone(),
            machine: names(plan, &|d| &d.machine),
            machine_hash: device.map_or_else(String::new, |d| d.machine_hash.clone()),
            target: names(plan, &|d| &d.target),
            kernels: None,
            unvalidated: false,
            device: None,
            how: HowRun::of((plan, &[]), program, &BTreeSet::new()),
            ways: vec![],
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
            bodies: vec![],
            division: None,
            note: None,
            predicted_us: plan.predicted.time_s * 1e6,
            parts: vec![],
            interval_us: (
                plan.predicted.interval.0 * 1e6,
                plan.predicted.interval.1 * 1e6,
            ),
            flop,
            unique_bytes: unique,
            whys: plan.whys.clone(),
        };
        view.with_parts()
    }

    /// The same with the parts of its predicted time.
    fn with_parts(mut self) -> PlanView {
        let steps: f64 = self.steps.iter().map(|s| s.predicted_us).sum();
        let inside = bodies_us(&self.bodies);
        let rest = self.predicted_us - inside - steps;
        let (of_steps, of_rest) = match (self.ways.is_empty(), &self.how.launch) {
            (false, Some(way)) => (
                ", each with a launch of its own",
                format!("by --launch {way}, with its copies and waits, in place of those launches"),
            ),
            _ if rest < 0.0 => (
                "",
                "steps that do not wait for each other run side by side".into(),
            ),
            _ => ("", "waits between steps".into()),
        };
        let all = [
            (format!("the steps, one after the other{of_steps}"), steps),
            (of_rest, rest),
            ("branches and loop bodies".into(), inside),
        ];
        let told = |us: f64| us.abs() > TOLD * self.predicted_us;
        self.parts = match told(rest) || told(inside) {
            true => all
                .into_iter()
                .filter(|(_, us)| told(*us))
                .map(|(what, us)| PartView { what, us })
                .collect(),
            false => vec![],
        };
        self
    }

    /// The same with branches and loop bodies: their memory is added, and their time to the
    /// prediction, the larger branch and known trip counts taken.
    pub fn with_bodies(mut self, mut bodies: Vec<BodyView>) -> PlanView {
        with_steps(&mut bodies, &mut (self.steps.len() as u32), &mut self.whys);
        for (body, times) in counted_inside(&bodies) {
            for step in &body.steps {
                self.flop += times * step.flop;
                self.unique_bytes += times * step.unique_bytes();
            }
        }
        for b in &bodies {
            if let Some(m) = &b.memory {
                self.memory = self.memory.with_body(m);
            }
        }
        let more = bodies_us(&bodies);
        self.predicted_us += more;
        self.interval_us.0 += more;
        self.interval_us.1 += more;
        self.bodies = bodies;
        self.with_parts()
    }

    /// The same with steps that reach the GPU by the way `chosen`, one of `all`, branches and loop bodies left out.
    pub fn with_way(mut self, chosen: &WayTime, all: &[WayTime]) -> PlanView {
        let steps: f64 = self.predicted_us - bodies_us(&self.bodies);
        let more = chosen.with_copies_s() * 1e6 - steps;
        self.predicted_us += more;
        // Bodies bound a request from below however its steps reach the GPU.
        let least = self.interval_us.0.min(chosen.bodies_s * 1e6);
        self.interval_us.0 = (self.interval_us.0 + more.min(0.0)).max(least);
        self.interval_us.1 = (self.interval_us.1 + more).max(self.predicted_us);
        self.how.launch = Some(chosen.way.to_string());
        self.ways = all.iter().map(WayView::from).collect();
        self.with_parts()
    }

    /// The note, and the parts of the predicted time where it is not the sum of the steps.
    pub(crate) fn note_and_parts(&self) -> Option<String> {
        let part = |p: &PartView| format!("{} {}", units::seconds(p.us * 1e-6), p.what);
        let parts: Vec<String> = self.parts.iter().map(part).collect();
        let sum = (!parts.is_empty()).then(|| {
            let all = units::seconds(self.predicted_us * 1e-6);
            format!("{all} is {}", parts.join(", "))
        });
        let all: Vec<String> = self.note.iter().cloned().chain(sum).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// How steps reach the GPU, and what each way is predicted to take; with `why` what of it is what.
    fn launch_text(&self, launch: &str, why: bool) -> String {
        let what = match launch {
            "resident" => "one kernel stays and takes all steps",
            "graph" => "the host launches steps in graphs",
            "none" => {
                return format!(
                    "{launch}: every step runs on the host, and nothing reaches the GPU"
                );
            }
            _ => "the host launches steps one by one",
        };
        let one = |w: &WayView| {
            let seconds = |us: f64| units::seconds(us * 1e-6);
            let all = format!("{} {}", w.way, seconds(w.predicted_us));
            match why {
                false => all,
                true => format!("{all} ({})", w.parts_text()),
            }
        };
        let ways: Vec<String> = self.ways.iter().map(one).collect();
        format!("{launch}: {what}; predicted by {}", ways.join(", "))
    }

    /// The plan as text; with `why` also the decisions, grouped by what was decided.
    pub fn render(&self, style: Style, why: bool) -> String {
        let mut out = self.head_text(style, why);
        out.push('\n');
        out.push_str(&self.steps_text(style));
        out.push_str(&self.request_text(style));
        let _ = writeln!(out, "\n{}", style.heading("memory"));
        out.push_str(&self.memory.render(style));
        if why {
            out.push_str(&crate::whys::grouped(&self.whys, style));
        }
        out
    }

    fn goal_text(&self) -> String {
        match self.goal {
            Goal::Latency => "latency".to_string(),
            Goal::Throughput {
                max_latency_s: None,
            } => "throughput".to_string(),
            Goal::Throughput {
                max_latency_s: Some(s),
            } => format!("throughput within {}", units::seconds(s)),
        }
    }

    /// What is planned for what.
    fn head_text(&self, style: Style, why: bool) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}", style.heading(&format!("plan of {}", self.model)));
        let workers = units::plural(u64::from(self.workers), "worker");
        let machine = format!("{} ({}), {workers}", self.machine, self.target);
        let said = |out: &mut String, what: &str, text: &str| said(out, style, what, text);
        match &self.device {
            Some(d) => said(&mut out, "device", &format!("{d} runs it: {machine}")),
            None => said(
                &mut out,
                "machine",
                &format!("{machine}: planned for, not run"),
            ),
        }
        if let Some(l) = &self.how.launch {
            said(&mut out, "launch", &self.launch_text(l, why));
        }
        if !self.dims.is_empty() {
            let range = if self.dims.contains("..") {
                " (figures below are for the largest)"
            } else {
                ""
            };
            let _ = writeln!(out, "  dims       {}{range}", self.dims);
        }
        if let Some(k) = &self.kernels {
            let _ = writeln!(
                out,
                "  kernels    {}",
                crate::study::label(k, self.unvalidated)
            );
        }
        let _ = writeln!(out, "  goal       {}", self.goal_text());
        if let Some(p) = &self.how.precision {
            said(&mut out, "precision", p);
        }
        if let Some(d) = &self.division {
            let _ = writeln!(
                out,
                "  division   {}: predicted {} items/s, {} from arrival to end",
                d.choice,
                units::count(d.throughput_per_s),
                units::seconds(1e-3 * d.latency_ms)
            );
            if why {
                let _ = writeln!(out, "             {}", d.reason);
                for o in &d.others {
                    let _ = writeln!(out, "             not {o}");
                }
            }
        }
        if let Some(note) = &self.note {
            said(&mut out, "note", note);
        }
        out
    }

    /// All steps in the order of their numbers: those of branches and loop bodies follow the others.
    pub fn all_steps(&self) -> impl Iterator<Item = &StepView> {
        let bodies = self.bodies.iter().flat_map(BodyView::all);
        self.steps.iter().chain(bodies.flat_map(|b| &b.steps))
    }

    /// The table of steps, with the control flow between them.
    fn steps_text(&self, style: Style) -> String {
        let mut out = String::new();
        let mut t = Table::new(&[
            ("step", Align::Right),
            ("nodes", Align::Wrap),
            ("kind", Align::Left),
            ("tiles", Align::Wrap),
            ("tasks", Align::Right),
            ("predicted", Align::Right),
            ("bytes", Align::Right),
            ("bound by", Align::Left),
        ]);
        let mut control = self.control.iter().peekable();
        let all: Vec<&StepView> = self.all_steps().collect();
        let nodes = all.iter().flat_map(|s| s.nodes.first());
        let shared = units::common_path(nodes.map(String::as_str));
        if !shared.is_empty() && all.len() > 1 {
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
        for body in self.bodies.iter().flat_map(BodyView::all) {
            let text = format!("{} of {}:", body.which, body.node);
            t.row(vec!["".into(), text, "control".into()]);
            body.steps.iter().for_each(|s| row(&mut t, s));
        }
        out.push_str(&t.render(style));
        let legend = format!(
            "{}tiles: extents of one task | of a pass of its loops | registers of a CPU's inner loop \
             (rows x lanes), or threads of a CTA and its warps (rows x columns). bound by: what takes longest; compute is \
             arithmetic on the unit named, memory bytes through the level named, launch what starting a step costs, latency \
             what its first access and hand-offs do.",
            kinds(all.iter().map(|s| s.family.as_str()))
        );
        for line in units::wrapped(&legend, style.width) {
            let _ = writeln!(out, "{}", style.faint(&line));
        }
        out
    }

    /// What one request takes.
    fn request_text(&self, style: Style) -> String {
        let mut out = String::new();
        let init: f64 = self.init.iter().map(|s| s.predicted_us).sum();
        if !self.init.is_empty() {
            let _ = writeln!(
                out,
                "\n{} at load, once (packing, constants), predicted {}.",
                match self.init.len() {
                    1 => "1 more step runs".into(),
                    n => format!("{n} more steps run"),
                },
                units::seconds(init * 1e-6)
            );
        }
        let _ = writeln!(out, "\n{}", style.heading("one request"));
        let head = format!(
            "predicted {} ({} .. {}), {}, {} of distinct bytes in {}{}",
            units::seconds(self.predicted_us * 1e-6),
            units::seconds(self.interval_us.0 * 1e-6),
            units::seconds(self.interval_us.1 * 1e-6),
            units::flop(self.flop),
            units::bytes(self.unique_bytes),
            units::plural(self.steps.len() as u64, "step"),
            match self.bodies.is_empty() {
                true => "",
                false => " and in branches and loop bodies",
            }
        );
        let indented = |out: &mut String, text: &str| {
            for line in units::wrapped(text, style.width.saturating_sub(2)) {
                let _ = writeln!(out, "  {line}");
            }
        };
        indented(&mut out, &head);
        for p in &self.parts {
            let _ = writeln!(out, "  {:>10}  {}", units::seconds(p.us * 1e-6), p.what);
        }
        let way = self
            .ways
            .iter()
            .find(|w| Some(&w.way) == self.how.launch.as_ref());
        if let Some(w) = way {
            indented(&mut out, &format!("of it {}", w.parts_text()));
        }
        for line in bodies_text(&self.bodies) {
            indented(&mut out, &line);
        }
        out
    }
}

/// A line of `what`, wrapped: names of processors may be long, and there may be two of them.
fn said(out: &mut String, style: Style, what: &str, text: &str) {
    let lines = units::wrapped(text, style.width.saturating_sub(13));
    for (i, line) in lines.iter().enumerate() {
        let what = if i == 0 { what } else { "" };
        let _ = writeln!(out, "  {what:9}  {line}");
    }
}

/// Share of a request below which what is beside its steps is not told: figures have three digits.
const TOLD: f64 = 0.005;
