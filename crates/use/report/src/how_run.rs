//! How the steps of a request reach their device and how exactly they multiply: what every page with times says
//! at its head.
use machine::{Machine, Way};
use plan::{Plan, Program};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What times of an emulated device are.
pub const EMULATED: &str = "these are the emulated device's times, in which calls of its driver and the host's own \
work take none; predictions count them";

/// What times are: an emulated device's, or measured.
pub(crate) fn clock(emulated: bool) -> &'static str {
    match emulated {
        true => "emulated",
        false => "measured",
    }
}

/// How requests run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HowRun {
    /// How steps reach a GPU: `steps`, `graph` or `resident`, or `none` where all of them are the host's; several
    /// where blocks differ (`steps + resident`). Nothing for a device that has one way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<String>,
    /// How exactly f32 is multiplied: what was asked for, and what the steps do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<String>,
    /// Workers of each device that computed something, the host's first: what they are and how many. Nothing where
    /// nobody asked a device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran_on: Vec<(Worker, u32)>,
}

/// What a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Worker {
    /// A thread of a CPU.
    Thread,
    /// A part of a GPU that holds CTAs.
    Multiprocessor,
}

impl Worker {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Worker::Thread => "thread",
            Worker::Multiprocessor => "multiprocessor",
        }
    }
}

impl HowRun {
    /// For requests of `program` by a plan, and by those of its branches and loop bodies, whose steps reach the device by
    /// `ways`.
    pub fn of(
        (plan, inside): (&Plan, &[&Plan]),
        program: Option<&Program>,
        ways: &BTreeSet<Way>,
    ) -> HowRun {
        let all: Vec<&Plan> = std::iter::once(plan)
            .chain(inside.iter().copied())
            .collect();
        let asked = program.map_or_else(Default::default, |p| p.precision);
        let names: Vec<&str> = ways.iter().map(|w| w.name()).collect();
        HowRun {
            launch: match names.is_empty() {
                false => Some(names.join(" + ")),
                true => plan.leaves_gpu_idle().then(|| "none".into()),
            },
            precision: crate::precision_text(&all, asked),
            ran_on: Vec::new(),
        }
    }

    /// The same, run as `plan` says by a device that `machine` describes and that has so many workers.
    #[must_use]
    pub fn run_by(mut self, plan: &Plan, machine: &Machine, workers: usize) -> HowRun {
        let last = plan.devices.len().saturating_sub(1) as u32;
        let of = |d: u32| match (d == last, plan.devices.get(d as usize)) {
            (true, _) if machine.is_gpu() => Some((Worker::Multiprocessor, workers as u32)),
            (true, _) => Some((Worker::Thread, workers as u32)),
            (false, host) => host.map(|h| (Worker::Thread, h.workers)),
        };
        self.ran_on = plan.computing().into_iter().filter_map(of).collect();
        self
    }

    /// Workers of the last device that computed something; `all`, the device's own, where that is not known.
    pub fn threads(&self, all: usize) -> usize {
        self.ran_on.last().map_or(all, |w| w.1 as usize)
    }

    /// Workers of every device that computed something, for a headline: `2 threads and 108 multiprocessors`; `all`
    /// threads where that is not known.
    pub fn workers(&self, all: usize) -> String {
        let of = |&(worker, n): &(Worker, u32)| crate::units::plural(n.into(), worker.name());
        match self.ran_on.is_empty() {
            true => of(&(Worker::Thread, all as u32)),
            false => self.ran_on.iter().map(of).collect::<Vec<_>>().join(" and "),
        }
    }

    /// For a headline, behind the device: `, launch graph, precision f32`, or that nothing ran on it.
    pub fn headline(&self) -> String {
        let mut out = String::new();
        match self.launch.as_deref() {
            Some("none") => out += ", every step on the CPU and none on the GPU",
            Some(l) => out += &format!(", launch {l}"),
            None => {}
        }
        if let Some(p) = &self.precision {
            let asked = p.split(':').next().unwrap_or(p);
            out += &format!(", precision {asked}");
        }
        out
    }
}
