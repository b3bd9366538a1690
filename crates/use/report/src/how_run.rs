//! How the steps of a request reach their device and how exactly they multiply: what every page with times says
//! at its head.
use machine::Way;
use plan::{Plan, Program};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
}

impl HowRun {
    /// For requests of `program` by `plan`, whose steps reach the device by `ways`.
    pub fn of(plan: &Plan, program: Option<&Program>, ways: &BTreeSet<Way>) -> HowRun {
        let asked = program.map_or_else(Default::default, |p| p.precision);
        let names: Vec<&str> = ways.iter().map(|w| w.name()).collect();
        HowRun {
            launch: match names.is_empty() {
                false => Some(names.join(" + ")),
                true => plan.leaves_gpu_idle().then(|| "none".into()),
            },
            precision: crate::precision_text(plan, asked),
        }
    }

    /// Workers of the device, for a headline: multiprocessors of a GPU that steps reach in a way of their own.
    pub fn workers(&self, count: usize) -> String {
        let one = match self.launch {
            Some(_) => "multiprocessor",
            None => "thread",
        };
        crate::units::plural(count as u64, one)
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
