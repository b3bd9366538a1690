//! A measured run beside its prediction, step by step and by node.
use crate::median::median;
use crate::step::near_traffic;
use crate::table::{Align, Style, Table};
use crate::{HowRun, Overhead, StepView, units};
use layout::Arrange;
use machine::{Way, Work};
use plan::{Fate, NodeFate, Timeline};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A step with what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepProfile {
    /// What the plan says.
    #[serde(flatten)]
    pub step: StepView,
    /// How often it runs in one request (more than once in loops).
    pub runs: f64,
    /// Most workers that took part.
    pub workers: u32,
    /// Wall time in one request, microseconds: the median over requests.
    pub time_us: f64,
    /// Share of the sum over all steps.
    pub share: f64,
    /// Achieved contraction rate, 1e9 FLOP per second.
    pub gflops: f64,
    /// Distinct bytes over time, 1e9 bytes per second.
    pub unique_gb_per_s: f64,
    /// All bytes loaded and stored over time, 1e9 bytes per second.
    pub all_gb_per_s: f64,
    /// Operations per distinct byte.
    pub intensity: f64,
    /// Measured over predicted, less 1.
    pub error: f64,
}

/// What became of one node of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeAccount {
    /// Node.
    pub node: String,
    /// Operator type.
    pub op_type: String,
    /// `step`, `view`, `folded`, `dead` or `control`.
    pub fate: &'static str,
    /// Steps it is part of.
    pub steps: Vec<String>,
}

/// Every node of the model, once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Accounting {
    /// Nodes.
    pub total: usize,
    /// Part of steps.
    pub in_steps: usize,
    /// Views that cost nothing.
    pub views: usize,
    /// Done at import or load.
    pub folded: usize,
    /// Not needed.
    pub dead: usize,
    /// Part of control flow.
    pub control: usize,
    /// Each node.
    pub nodes: Vec<NodeAccount>,
}

impl Accounting {
    /// As text, with `nodes` each of them.
    fn text(&self, style: Style, nodes: bool) -> String {
        let mut out = String::new();
        let nodes_text = format!(
            "nodes of the model: {} = {} in steps + {} views + {} folded at load + {} not needed + {} control flow",
            self.total, self.in_steps, self.views, self.folded, self.dead, self.control
        );
        for line in units::wrapped(&nodes_text, style.width.saturating_sub(2)) {
            let _ = writeln!(out, "  {line}");
        }
        if nodes {
            let mut t = Table::new(&[
                ("  node", Align::Wrap),
                ("operator", Align::Left),
                ("became", Align::Left),
                ("steps", Align::Wrap),
            ]);
            for n in &self.nodes {
                t.row(vec![
                    format!("  {}", n.node),
                    n.op_type.clone(),
                    n.fate.into(),
                    n.steps.join(", "),
                ]);
            }
            out.push('\n');
            out.push_str(&t.render(style));
        }
        out
    }

    /// Counts `fates`.
    pub fn new(fates: &[NodeFate]) -> Accounting {
        let mut a = Accounting {
            total: fates.len(),
            ..Accounting::default()
        };
        for f in fates {
            let (fate, steps) = match &f.fate {
                Fate::Items(s) => {
                    a.in_steps += 1;
                    ("step", s.clone())
                }
                Fate::View => {
                    a.views += 1;
                    ("view", vec![])
                }
                Fate::Folded => {
                    a.folded += 1;
                    ("folded", vec![])
                }
                Fate::Dead => {
                    a.dead += 1;
                    ("dead", vec![])
                }
                Fate::Control => {
                    a.control += 1;
                    ("control", vec![])
                }
            };
            a.nodes.push(NodeAccount {
                node: f.node.clone(),
                op_type: f.op_type.clone(),
                fate,
                steps,
            });
        }
        a
    }
}

/// What a profile is made of.
pub struct ProfileInput<'a> {
    /// Model.
    pub model: &'a str,
    /// Device and target.
    pub device: &'a str,
    /// Machine planned for.
    pub machine: &'a str,
    /// Workers.
    pub threads: usize,
    /// Requests before measuring.
    pub warmup: usize,
    /// Steps of every plan that ran, with the work for the dims that ran where it is known.
    pub steps: Vec<(StepView, Option<Work>)>,
    /// One per measured request.
    pub timelines: &'a [Timeline],
    /// What became of the model's nodes.
    pub fates: &'a [NodeFate],
    /// Box of dims that the prediction is for the top of, when it is not a point.
    pub dims: String,
}

/// Predicted beside measured for every step, and what became of every node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Model.
    pub model: String,
    /// Device and target.
    pub device: String,
    /// Machine planned for.
    pub machine: String,
    /// Workers.
    pub threads: usize,
    /// Requests before measuring.
    pub warmup: usize,
    /// Requests measured.
    pub active: usize,
    /// Box that predictions are for the top of; empty for a point.
    pub dims: String,
    /// How the steps of the measured requests reached the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Whether times are an emulated device's own, not this machine's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
    /// How steps reach it where nobody takes their times, if that is another way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_untimed: Option<String>,
    /// Median time of a request, microseconds.
    pub request_us: f64,
    /// Sum of the steps' medians, microseconds.
    pub steps_us: f64,
    /// Sum of the steps' predictions, microseconds.
    pub predicted_us: f64,
    /// What requests take beside their steps, and why the slowest did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// Share of the steps' time that is not contract or conv.
    pub other_share: f64,
    /// Contraction FLOP of a request.
    pub flop: f64,
    /// Steps in plan order.
    pub steps: Vec<StepProfile>,
    /// Every node of the model.
    pub accounting: Accounting,
    /// What the device's queues were at in the last request, by its own clock.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<crate::QueueView>,
}

/// How many times a request's time the sum of its steps is where some run side by side.
const ABREAST: f64 = 1.05;

impl Profile {
    /// Joins plans and timelines by the steps' names; a step that runs several times in a request
    /// (a loop's body) counts with the sum.
    pub fn new(input: ProfileInput<'_>) -> Profile {
        let active = input.timelines.len();
        // Per name: wall time of each request, runs in all, most workers.
        let mut seen: BTreeMap<&str, (Vec<f64>, usize, u32)> = BTreeMap::new();
        for (r, t) in input.timelines.iter().enumerate() {
            let wall = t.step_runs_ns();
            let mut workers: Vec<u64> = vec![0; t.steps.len()];
            for s in &t.spans {
                if let Some(w) = workers.get_mut(s.step as usize) {
                    *w |= 1u64 << s.worker.min(63);
                }
            }
            for (i, name) in t.steps.iter().enumerate() {
                let e = seen
                    .entry(name)
                    .or_insert_with(|| (vec![0.0; active], 0, 0));
                e.0[r] += wall[i].1 as f64 * 1e-3;
                e.1 += wall[i].0.max(1) as usize;
                e.2 = e.2.max(workers[i].count_ones());
            }
        }
        let mut steps = Vec::new();
        for (mut step, work) in input.steps {
            let Some((times, runs, workers)) = seen.get_mut(step.name.as_str()) else {
                continue;
            };
            if let Some(w) = work {
                step.flop = w.flop() + 0.0;
                step.ops = w.ops_total() + 0.0;
                (step.unique_read, step.unique_written) = (w.unique_read, w.unique_written);
                (step.loaded, step.stored) = near_traffic(&w);
            }
            let runs = *runs as f64 / active.max(1) as f64;
            let time_us = median(times);
            let per_s = |amount: f64| {
                if time_us > 0.0 {
                    amount * runs / (time_us * 1e3)
                } else {
                    0.0
                }
            };
            let predicted = step.predicted_us * runs;
            steps.push(StepProfile {
                runs,
                workers: *workers,
                time_us,
                share: 0.0,
                gflops: per_s(step.flop),
                unique_gb_per_s: per_s(step.unique_bytes()),
                all_gb_per_s: per_s(step.all_bytes()),
                intensity: if step.unique_bytes() > 0.0 {
                    step.ops / step.unique_bytes()
                } else {
                    0.0
                },
                error: if predicted > 0.0 {
                    time_us / predicted - 1.0
                } else {
                    0.0
                },
                step,
            });
        }
        let steps_us: f64 = steps.iter().map(|s| s.time_us).sum();
        let mut other = 0.0;
        for s in &mut steps {
            s.share = if steps_us > 0.0 {
                s.time_us / steps_us
            } else {
                0.0
            };
            if !matches!(s.step.family.as_str(), "contract" | "conv") {
                other += s.share;
            }
        }
        let totals = input.timelines.iter().map(|t| t.total_ns as f64 * 1e-3);
        let mut totals: Vec<f64> = totals.collect();
        Profile {
            model: input.model.into(),
            device: input.device.into(),
            machine: input.machine.into(),
            threads: input.threads,
            warmup: input.warmup,
            active,
            dims: input.dims,
            how: HowRun::default(),
            emulated: false,
            launch_untimed: None,
            request_us: median(&mut totals),
            steps_us,
            predicted_us: steps.iter().map(|s| s.step.predicted_us * s.runs).sum(),
            overhead: Overhead::of(input.timelines),
            other_share: other,
            flop: steps.iter().map(|s| s.step.flop * s.runs).sum(),
            steps,
            accounting: Accounting::new(input.fates),
            queues: input.timelines.last().map_or(vec![], crate::queues),
        }
    }

    /// Why a request takes what it takes, in a sentence: its slowest step, and what bounds it.
    pub fn why(&self) -> String {
        let request = units::seconds(self.request_us * 1e-6);
        let slowest = self
            .steps
            .iter()
            .max_by(|a, b| a.time_us.total_cmp(&b.time_us));
        let Some(s) = slowest else {
            return format!("It takes {request}.");
        };
        format!(
            "It takes {request}: {} of its steps' time is step {} ({}, {}), which is bound by {}.",
            units::percent(s.share),
            s.step.number,
            s.step.nodes_text(""),
            s.step.family,
            crate::page::words(&s.step.bound)
        )
    }

    /// What its times are: measured here, or emulated.
    pub fn clock(&self) -> &'static str {
        crate::how_run::clock(self.emulated)
    }

    fn shared(&self) -> &str {
        if self.steps.len() < 2 {
            return "";
        }
        units::common_path(
            self.steps
                .iter()
                .flat_map(|s| s.step.nodes.first())
                .map(String::as_str),
        )
    }

    /// As text: the `top` steps by time, sums, and the nodes' accounting (each one with `nodes`).
    pub fn render(&self, style: Style, top: usize, nodes: bool) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.headline(&format!(
                "profile of {} on {}{}, {}",
                self.model,
                self.device,
                self.how.headline(),
                self.how.workers(self.threads)
            ))
        );
        let _ = writeln!(
            out,
            "  planned for {}; {} requests measured after {}",
            self.machine, self.active, self.warmup
        );
        if !self.dims.is_empty() {
            let _ = writeln!(
                out,
                "  the plan covers {}; predictions are for the largest",
                self.dims
            );
        }
        if let Some(p) = &self.how.precision {
            let _ = writeln!(out, "  precision {p}");
        }
        if self.emulated {
            for line in units::wrapped(crate::EMULATED, style.width.saturating_sub(2).max(20)) {
                let _ = writeln!(out, "  {line}");
            }
        }
        if let Some(l) = &self.launch_untimed {
            let _ = writeln!(
                out,
                "  launched step by step, to take the times of each; requests that nobody profiles go by launch {l}"
            );
        }
        if self.how.launch.as_deref() == Some(Way::Resident.name()) {
            let _ = writeln!(
                out,
                "  a kernel that stays launches no step, which predictions of single steps count"
            );
        }
        let mut order: Vec<&StepProfile> = self.steps.iter().collect();
        order.arrange_by(|a, b| {
            b.time_us
                .total_cmp(&a.time_us)
                .then(a.step.number.cmp(&b.step.number))
        });
        order.truncate(top);
        let shared = self.shared();
        if !shared.is_empty() {
            let _ = writeln!(out, "  names of nodes begin with {shared}");
        }
        let _ = writeln!(
            out,
            "\n{}",
            style.heading(&format!(
                "the {} steps that take most time, of {}",
                order.len(),
                self.steps.len()
            ))
        );
        out.push_str(&self.times_text(&order, style));
        out.push_str(&schedules_text(&order, style));
        out.push_str(&reasons_text(&order, style));
        out.push_str(&self.request_text(style));
        out.push_str(&self.accounting.text(style, nodes));
        out
    }

    /// The table of what steps take.
    fn times_text(&self, order: &[&StepProfile], style: Style) -> String {
        let shared = self.shared();
        let us = |v: f64| units::seconds(v * 1e-6);
        let mut t = Table::new(&[
            ("step", Align::Right),
            ("nodes", Align::Wrap),
            ("kind", Align::Left),
            ("time", Align::Right),
            ("share", Align::Right),
            ("predicted", Align::Right),
            ("error", Align::Right),
            ("GFLOPS", Align::Right),
            ("GB/s unique|all", Align::Right),
        ]);
        for s in order {
            t.row(vec![
                s.step.number.to_string(),
                s.step.nodes_text(shared),
                s.step.family.clone(),
                us(s.time_us),
                units::percent(s.share),
                us(s.step.predicted_us * s.runs),
                units::signed_percent(s.error),
                units::number(s.gflops),
                format!(
                    "{}|{}",
                    units::number(s.unique_gb_per_s),
                    units::number(s.all_gb_per_s)
                ),
            ]);
        }
        t.render(style)
    }

    /// What a request takes, beside what was predicted.
    fn request_text(&self, style: Style) -> String {
        let mut out = String::new();
        let us = |v: f64| units::seconds(v * 1e-6);
        let _ = writeln!(out, "\n{}", style.heading("one request"));
        let rate = if self.steps_us > 0.0 {
            self.flop / (self.steps_us * 1e-6)
        } else {
            0.0
        };
        let off = if self.predicted_us > 0.0 {
            self.steps_us / self.predicted_us - 1.0
        } else {
            0.0
        };
        let _ = writeln!(
            out,
            "  {} {}; its steps {}{}, predicted {} ({}), {}",
            self.clock(),
            us(self.request_us),
            us(self.steps_us),
            // Their times add up to more than the request's.
            match self.steps_us > ABREAST * self.request_us {
                true => ", some side by side",
                false => "",
            },
            us(self.predicted_us),
            units::signed_percent(off),
            units::flop_rate(rate)
        );
        if let Some(o) = &self.overhead {
            for line in units::wrapped(&o.sentence(), style.width.saturating_sub(2).max(20)) {
                let _ = writeln!(out, "  {line}");
            }
        }
        let _ = writeln!(
            out,
            "  {} of the steps' time is neither matrix products nor convolutions",
            units::percent(self.other_share)
        );
        for q in &self.queues {
            let line = format!("{} (its own clock)", q.line());
            for line in units::wrapped(&line, style.width.saturating_sub(2).max(20)) {
                let _ = writeln!(out, "  {line}");
            }
        }
        out
    }

    /// Per step, predicted beside measured in a short table.
    pub fn render_short(&self, style: Style) -> String {
        let shared = self.shared();
        let mut t = Table::new(&[
            ("step", Align::Right),
            ("nodes", Align::Wrap),
            ("kind", Align::Left),
            ("tiles", Align::Wrap),
            ("predicted", Align::Right),
            (self.clock(), Align::Right),
            ("error", Align::Right),
            ("bound", Align::Left),
        ]);
        for s in &self.steps {
            t.row(vec![
                s.step.number.to_string(),
                s.step.nodes_text(shared),
                s.step.family.clone(),
                s.step.schedule.clone(),
                units::seconds(s.step.predicted_us * s.runs * 1e-6),
                units::seconds(s.time_us * 1e-6),
                units::signed_percent(s.error),
                s.step.bound.clone(),
            ]);
        }
        t.row(vec![
            "".into(),
            "all steps".into(),
            "".into(),
            "".into(),
            units::seconds(self.predicted_us * 1e-6),
            units::seconds(self.steps_us * 1e-6),
            units::signed_percent(if self.predicted_us > 0.0 {
                self.steps_us / self.predicted_us - 1.0
            } else {
                0.0
            }),
        ]);
        t.render(style)
    }
}

/// The table of how steps run.
fn schedules_text(order: &[&StepProfile], style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n{}", style.heading("how they run"));
    let mut t = Table::new(&[
        ("step", Align::Right),
        ("shapes", Align::Wrap),
        ("tiles", Align::Wrap),
        ("tasks/workers", Align::Right),
        ("FLOP", Align::Right),
        ("bytes unique|all", Align::Right),
        ("ops/B", Align::Right),
        ("bound", Align::Left),
    ]);
    for s in order {
        t.row(vec![
            s.step.number.to_string(),
            s.step.shapes.clone(),
            s.step.schedule.clone(),
            format!("{}/{}", s.step.tasks, s.workers),
            units::count(s.step.flop),
            format!(
                "{}|{}",
                units::bytes(s.step.unique_bytes()),
                units::bytes(s.step.all_bytes())
            ),
            units::number(s.intensity),
            s.step.bound.clone(),
        ]);
    }
    out.push_str(&t.render(style));
    out
}

/// Why steps run as they do.
fn reasons_text(order: &[&StepProfile], style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n{}", style.heading("why they run so"));
    for s in order {
        let reason = if s.step.reason.is_empty() {
            "no decision is recorded"
        } else {
            s.step.reason.as_str()
        };
        for (i, l) in units::wrapped(reason, style.width.saturating_sub(6).max(20))
            .iter()
            .enumerate()
        {
            let number = if i == 0 {
                s.step.number.to_string()
            } else {
                String::new()
            };
            let _ = writeln!(out, "{number:>4}  {l}");
        }
    }
    out
}
