//! A step as every report shows it: schedule, traffic, bound.
use crate::units;
use kernel::{Mapping, Schedule};
use layout::{DimBox, Inserted};
use machine::Work;
use plan::{Decisions, Step, StepWork};
use serde::Serialize;
use std::collections::BTreeSet;

/// The number of the step that `text` names by its number, its name or a node in it; `steps` are the names and nodes of
/// a plan's steps in the order of their numbers.
///
/// # Errors
/// There is none: a sentence that says what names one.
pub fn step_number<'s>(
    text: &str,
    steps: impl IntoIterator<Item = (&'s str, &'s [String])>,
) -> Result<usize, String> {
    let steps: Vec<_> = steps.into_iter().collect();
    let number = text.parse().ok().filter(|n| *n < steps.len());
    let named = || steps.iter().position(|(name, _)| *name == text);
    let node = || {
        steps
            .iter()
            .position(|(_, nodes)| nodes.iter().any(|n| n == text))
    };
    number.or_else(named).or_else(node).ok_or_else(|| match steps.len().checked_sub(1) {
        Some(last) => format!(
            "the plan has no step '{text}'; give a number up to {last}, or a name or node that `shopfloor plan --json` lists"
        ),
        None => format!("the plan has no step '{text}': nothing of the model is computed"),
    })
}

/// A step of a plan as tables show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepView {
    /// Number in the plan, counted over its blocks.
    pub number: u32,
    /// Name.
    pub name: String,
    /// Model nodes it stands for.
    pub nodes: Vec<String>,
    /// Kernel family, or `host`.
    pub family: String,
    /// Kernel's or host operator's name.
    pub kernel: String,
    /// Extents of the kernel's axes at the top of the box (`m=16 n=64 k=288`), or a host step's shapes.
    pub shapes: String,
    /// Schedule in short form.
    pub schedule: String,
    /// Tasks at the top of the box.
    pub tasks: i64,
    /// Predicted time in microseconds at the top of the box.
    pub predicted_us: f64,
    /// Contraction FLOP (a multiply-add counts as two).
    pub flop: f64,
    /// Operations of every kind.
    pub ops: f64,
    /// Distinct bytes read.
    pub unique_read: f64,
    /// Distinct bytes written.
    pub unique_written: f64,
    /// Bytes loaded from the level next to the registers.
    pub loaded: f64,
    /// Bytes stored to it.
    pub stored: f64,
    /// What bounds it.
    pub bound: String,
    /// Why it is a host step, or why it has this schedule.
    pub reason: String,
}

/// What kernels of a family do, in words; nothing for what says it by its name.
fn meaning(family: &str) -> Option<&'static str> {
    Some(match family {
        "contract" => "a matrix product",
        "map" => "elementwise",
        "row" => "a reduction of rows such as softmax or a norm",
        "move" => "a copy or another order of elements",
        "select" => "sorting or top-k",
        "host" => "plain code on the CPU",
        _ => return None,
    })
}

/// What the kinds of kernels in a table are, each once; a sentence and a blank, or nothing.
pub(crate) fn kinds<'f>(families: impl Iterator<Item = &'f str>) -> String {
    let families: BTreeSet<&str> = families.inserted();
    let each = families
        .iter()
        .filter_map(|f| Some(format!("{f} is {}", meaning(f)?)));
    match each.collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        each => format!("kind: {}. ", each.join(", ")),
    }
}

/// Tiles of a schedule: grid axes with their tiles, `|` and the looped axes, `|` and the micro-kernel
/// or warp layout (`m:96 n:512 | k:256 | 6x16`). An empty grid is one task.
pub fn schedule_text(kernel: &kernel::Kernel, s: &Schedule) -> String {
    let axes = |list: &[kernel::AxisTile]| {
        let parts: Vec<String> = list
            .iter()
            .map(|t| {
                format!(
                    "{}:{}",
                    kernel
                        .axes
                        .get(t.axis as usize)
                        .map_or("?", |a| a.name.as_str()),
                    t.tile
                )
            })
            .collect();
        parts.join(" ")
    };
    let mut parts = vec![if s.grid.is_empty() {
        "1 task".to_string()
    } else {
        axes(&s.grid)
    }];
    if !s.loops.is_empty() {
        parts.push(axes(&s.loops));
    }
    match &s.mapping {
        Mapping::Cpu(c) => {
            if let Some(m) = c.micro {
                parts.push(format!("{}x{}", m.mr, m.nr));
            }
        }
        Mapping::Gpu(g) => {
            parts.push(format!("{} threads {}", g.threads, g.warps_text()));
            if g.walkers > 0 {
                parts.push(format!("{} CTAs walk", g.walkers));
            }
            if g.cluster > 1 {
                let what = match s.among() {
                    1 => ", a part each",
                    _ => "",
                };
                parts.push(format!("clusters of {}{what}", g.cluster));
            }
        }
    }
    parts.join(" | ")
}

/// Bytes loaded and stored at the first level that has traffic.
pub(crate) fn near_traffic(w: &Work) -> (f64, f64) {
    w.traffic
        .iter()
        .find(|t| t.loaded + t.stored > 0.0)
        .map_or((0.0, 0.0), |t| (t.loaded, t.stored))
}

impl StepView {
    /// What a plan says about a step; `number` counts over blocks, `decisions` are the plan's.
    pub fn new(number: u32, step: &Step, dims: &DimBox, decisions: &Decisions<'_>) -> StepView {
        let w = &step.cost_work;
        let top = |d: &layout::Dim| dims.at_top(d).or(d.known());
        let extent = |d: &layout::Dim| top(d).map_or_else(|| d.to_string(), |n| n.to_string());
        let why = |pass: &str| {
            let y = decisions.last(pass, &step.name)?;
            let next = y.alternatives.first();
            let next = next.map_or_else(String::new, |a| {
                format!("; next best: {}, {}", a.what, units::seconds(a.predicted_s))
            });
            Some(format!("{}: {}{next}", y.choice, y.reason))
        };
        let (family, kernel, shapes, schedule, reason) = match &step.work {
            StepWork::Kernel {
                kernel, schedule, ..
            } => {
                let shapes: Vec<String> = kernel
                    .axes
                    .iter()
                    .map(|a| format!("{}={}", a.name, extent(&a.extent)))
                    .collect();
                let family = format!("{:?}", kernel.family).to_lowercase();
                let reason = why("schedule").or_else(|| why("fuse")).unwrap_or_default();
                (
                    family,
                    kernel.name.clone(),
                    shapes.join(" "),
                    match step.joined {
                        true => format!(
                            "{} | in the launch of step {}",
                            schedule_text(kernel, schedule),
                            number.saturating_sub(1)
                        ),
                        false => schedule_text(kernel, schedule),
                    },
                    reason,
                )
            }
            StepWork::Host {
                op,
                inputs,
                outputs,
            } => {
                let shape = |a: &plan::HostArg| {
                    format!(
                        "[{}]",
                        a.shape.iter().map(extent).collect::<Vec<_>>().join(",")
                    )
                };
                let from: Vec<String> = inputs.iter().flatten().map(shape).collect();
                let to: Vec<String> = outputs.iter().map(shape).collect();
                (
                    "host".into(),
                    op.name.clone(),
                    format!("{} -> {}", from.join(" "), to.join(" ")),
                    "host".into(),
                    op.reason.clone(),
                )
            }
        };
        let (loaded, stored) = near_traffic(w);
        StepView {
            number,
            name: step.name.clone(),
            nodes: step.nodes.clone(),
            family,
            kernel,
            shapes,
            schedule,
            tasks: top(&step.tasks).unwrap_or(1),
            predicted_us: step.predicted.time_s * 1e6,
            flop: w.flop() + 0.0,
            ops: w.ops_total() + 0.0,
            unique_read: w.unique_read,
            unique_written: w.unique_written,
            loaded,
            stored,
            bound: step.predicted.bound.to_string(),
            reason,
        }
    }

    /// Distinct bytes read and written.
    pub fn unique_bytes(&self) -> f64 {
        self.unique_read + self.unique_written
    }

    /// Bytes loaded from and stored to the level next to the registers.
    pub fn all_bytes(&self) -> f64 {
        self.loaded + self.stored
    }

    /// The nodes in short: the first one, without the path `shared` by all, and how many more.
    pub fn nodes_text(&self, shared: &str) -> String {
        let first = self.nodes.first().unwrap_or(&self.name);
        let first = first
            .strip_prefix(shared)
            .filter(|s| !s.is_empty())
            .unwrap_or(first);
        match self.nodes.len() {
            0 | 1 => first.to_string(),
            n => format!("{first} +{}", n - 1),
        }
    }
}
