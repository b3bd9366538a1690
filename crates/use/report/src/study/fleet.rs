//! One model over several machines.
use super::{because, label, times};
use crate::table::{Align, Style, Table};
use crate::{BodyView, HowRun, counted, units};
use layout::Arrange;
use plan::{BufferKind, Plan, StepWork};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A model on a machine with one batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetPoint {
    /// The batch; `None` when the model fixes it.
    pub batch: Option<i64>,
    /// How steps reach the machine, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Predicted seconds of a request, copies between host and device included.
    pub latency_s: f64,
    /// Items a second with one request after the other; requests a second where the batch is fixed.
    pub per_s: f64,
    /// What most of the time is bound by.
    pub bound: String,
    /// The share of the time that is.
    pub bound_share: f64,
    /// Seconds of copies between host and device.
    pub copies_s: f64,
    /// Steps that run on the host for want of a form on the device.
    pub on_host: usize,
    /// Bytes needed in the device's memory: weights, packed ones, arena, inputs and outputs.
    pub memory: u64,
    /// Whether they are there.
    pub fits: bool,
}

/// A model on a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetRow {
    /// Machine as `--on` names it, such as `h100`.
    pub name: String,
    /// Machine name.
    pub machine: String,
    /// Whose kernels: `ours` or `vendor`.
    pub kernels: String,
    /// Whether nothing was ever compared with their predictions.
    pub unvalidated: bool,
    /// Target's name.
    pub target: String,
    /// Bytes of the machine's memory.
    pub memory_has: u64,
    /// One for each batch.
    pub points: Vec<FleetPoint>,
    /// Why there are none.
    pub error: Option<String>,
}

impl FleetRow {
    /// The batch with most items a second of those that fit, the smallest of equals.
    pub fn best(&self) -> Option<&FleetPoint> {
        let mut best: Option<&FleetPoint> = None;
        for p in self.points.iter().filter(|p| p.fits) {
            if best.is_none_or(|b| p.per_s > b.per_s) {
                best = Some(p);
            }
        }
        best.or(self.points.first())
    }
}

/// One model over several machines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetView {
    /// Model.
    pub model: String,
    /// Dims other than the batch, empty when there are none.
    pub dims: String,
    /// The dimension that is the batch, if the model leaves it open.
    pub batch: Option<String>,
    /// One for each machine and kind of kernels.
    pub rows: Vec<FleetRow>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// Shares of a plan's predicted time, with what is counted of `bodies`, by what bounds its steps, the
/// largest first.
pub fn bounds_of(plan: &Plan, bodies: &[BodyView]) -> Vec<(String, f64)> {
    let mut by: BTreeMap<String, f64> = BTreeMap::new();
    for s in plan.blocks().flat_map(|b| &b.steps) {
        *by.entry(s.predicted.bound.to_string()).or_default() += s.predicted.time_s;
    }
    for (b, n) in counted(bodies) {
        for (bound, us) in &b.bounds_us {
            *by.entry(bound.clone()).or_default() += us * n * 1e-6;
        }
    }
    let total: f64 = by.values().sum();
    let mut out: Vec<(String, f64)> = by
        .into_iter()
        .map(|(b, s)| (b, if total > 0.0 { s / total } else { 0.0 }))
        .collect();
    out.arrange_by(|a, b| b.1.total_cmp(&a.1));
    out
}

/// Bytes that a request of `plan` needs in the memory of its device `place`.
pub fn memory_on(plan: &Plan, place: u32) -> u64 {
    let (mut weights, mut bytes) = (BTreeMap::new(), 0u64);
    let mut arena = 0u64;
    for b in plan.blocks() {
        let own = |i: &u32| {
            let b = b.buffers.get(*i as usize)?;
            (b.place == place).then_some(b)
        };
        for s in &b.steps {
            let args: Vec<u32> = match &s.work {
                StepWork::Kernel { args, .. } => args.clone(),
                StepWork::Host {
                    inputs, outputs, ..
                } => inputs
                    .iter()
                    .flatten()
                    .chain(outputs)
                    .map(|a| a.buffer)
                    .collect(),
            };
            for buffer in args.iter().filter_map(own) {
                if let BufferKind::Weight(id) = buffer.kind {
                    weights.insert(id, buffer.bytes);
                }
            }
        }
        for buffer in b.buffers.iter().filter(|b| b.place == place) {
            match buffer.kind {
                BufferKind::Arena | BufferKind::Weight(_) => {}
                _ => bytes = bytes.saturating_add(buffer.bytes),
            }
        }
        arena = arena.max(b.arena(place));
    }
    let weights: u64 = weights.values().sum();
    bytes.saturating_add(weights).saturating_add(arena)
}

fn rate(v: f64, what: &str) -> String {
    format!("{}{what}", units::count(v))
}

impl FleetView {
    /// The tables.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        let dims = match self.dims.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.dims),
        };
        let open = self.batch.is_some();
        let first = self.rows.iter().find_map(|r| r.points.first());
        let how = HowRun {
            launch: None,
            ..first.map_or_else(HowRun::default, |p| p.how.clone())
        };
        let head = format!("{}{dims} over machines{}", self.model, how.headline());
        let _ = writeln!(
            out,
            "{}\n  predictions: nothing here was measured\n",
            style.headline(&head)
        );
        let latency = match first.and_then(|p| p.batch) {
            Some(b) => format!("latency, batch {b}"),
            None => "latency".into(),
        };
        let mut columns = vec![
            ("  machine", Align::Wrap),
            ("kernels", Align::Left),
            (latency.as_str(), Align::Right),
        ];
        if open {
            columns.push(("best", Align::Right));
        }
        columns.extend([
            (if open { "items/s" } else { "requests/s" }, Align::Right),
            ("launch", Align::Left),
            (if open { "bound at best" } else { "bound by" }, Align::Wrap),
            ("needs", Align::Right),
            ("fits", Align::Left),
        ]);
        let mut t = Table::new(&columns);
        for r in &self.rows {
            let mut row = vec![format!("  {}", r.name), label(&r.kernels, r.unvalidated)];
            if let (Some(first), Some(best)) = (r.points.first(), r.best()) {
                row.push(units::seconds(first.latency_s));
                if open {
                    row.push(best.batch.map_or("-".into(), |b| b.to_string()));
                }
                row.extend([
                    rate(best.per_s, ""),
                    best.how.launch.clone().unwrap_or_else(|| "-".into()),
                    format!("{} {:.0}%", best.bound, 100.0 * best.bound_share),
                    units::bytes(best.memory as f64),
                    match best.fits {
                        true => "yes".into(),
                        false => format!("no, {}", units::bytes(r.memory_has as f64)),
                    },
                ]);
            } else {
                row.push("-".into());
            }
            t.row(row);
        }
        out.push_str(&t.render(style));
        let several = self.rows.iter().any(|r| r.points.len() > 1);
        if several {
            self.batches(&mut out, style);
        }
        let mut why = self.reasons();
        for r in self.rows.iter().filter(|r| r.error.is_some()) {
            why.push(format!(
                "{} ({}): {}.",
                r.name,
                r.kernels,
                r.error.as_deref().unwrap_or_default().trim_end_matches('.')
            ));
        }
        why.extend(self.notes.iter().cloned());
        let _ = writeln!(out, "\n{}", style.heading("why"));
        out.push_str(&because(&why, style));
        out
    }

    fn batches(&self, out: &mut String, style: Style) {
        let _ = writeln!(
            out,
            "\n{}",
            style.heading("by batch: latency of a request, items a second")
        );
        let mut all: Vec<i64> = self
            .rows
            .iter()
            .flat_map(|r| r.points.iter().filter_map(|p| p.batch))
            .collect();
        all.arrange();
        all.dedup();
        let names: Vec<String> = all.iter().map(|b| format!("batch {b}")).collect();
        let mut columns = vec![("  machine", Align::Wrap), ("kernels", Align::Left)];
        columns.extend(names.iter().map(|n| (n.as_str(), Align::Right)));
        let mut t = Table::new(&columns);
        for r in self.rows.iter().filter(|r| !r.points.is_empty()) {
            let mut row = vec![format!("  {}", r.name), label(&r.kernels, r.unvalidated)];
            for b in &all {
                let p = r.points.iter().find(|p| p.batch == Some(*b));
                row.push(p.map_or("-".into(), |p| {
                    let full = if p.fits { "" } else { ", too large" };
                    format!(
                        "{}, {}{full}",
                        units::seconds(p.latency_s),
                        rate(p.per_s, "/s")
                    )
                }));
            }
            t.row(row);
        }
        out.push_str(&t.render(style));
    }

    fn reasons(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut long: Vec<String> = Vec::new();
        for r in self
            .rows
            .iter()
            .filter(|r| !r.machine.eq_ignore_ascii_case(&r.name))
        {
            let line = format!("{} is {}", r.name, r.machine);
            if !long.contains(&line) {
                long.push(line);
            }
        }
        if !long.is_empty() {
            out.push(format!("Machines: {}.", long.join("; ")));
        }
        let fastest = |f: &dyn Fn(&FleetRow) -> Option<f64>| {
            self.rows
                .iter()
                .filter(|r| r.kernels == "ours")
                .filter_map(|r| Some((r, f(r)?)))
                .min_by(|a, b| a.1.total_cmp(&b.1))
        };
        let several = self.rows.iter().filter(|r| r.kernels == "ours").count() > 1;
        if let Some((r, s)) =
            fastest(&|r| r.points.first().map(|p| p.latency_s)).filter(|_| several)
        {
            out.push(format!(
                "Shortest request with our kernels: {}, {}.",
                r.name,
                units::seconds(s)
            ));
        }
        if let Some((r, s)) =
            fastest(&|r| r.best().filter(|p| p.fits).map(|p| -p.per_s)).filter(|_| several)
        {
            let at = r.best().and_then(|p| p.batch);
            out.push(format!(
                "Most items a second with our kernels: {}, {}{}.",
                r.name,
                rate(-s, ""),
                at.map_or(String::new(), |b| format!(" with a batch of {b}"))
            ));
        }
        for r in self.rows.iter().filter(|r| r.kernels == "ours") {
            let Some(p) = r.points.first() else { continue };
            if p.copies_s > 0.2 * p.latency_s {
                out.push(format!(
                    "{}: {} of its {} are copies between host and device; what stays on the device does not pay them.",
                    r.name,
                    units::seconds(p.copies_s),
                    units::seconds(p.latency_s)
                ));
            }
            if p.on_host > 0 {
                out.push(format!(
                    "{}: {} on the host for want of a kernel of ours there.",
                    r.name,
                    units::plural(p.on_host as u64, "step")
                ));
            }
            let theirs = self
                .rows
                .iter()
                .find(|v| v.kernels == "vendor" && v.machine == r.machine);
            if let Some(q) = theirs.and_then(|v| v.points.first()) {
                out.push(format!(
                    "{}: the vendor's library would take {} where our kernels take {} ({}).",
                    r.name,
                    units::seconds(q.latency_s),
                    units::seconds(p.latency_s),
                    times(p.latency_s, q.latency_s)
                ));
            }
        }
        if self.rows.iter().any(|r| r.kernels == "vendor") {
            out.push(
                "ours: the kernels that our backends emit; on GPUs they are unvalidated: only an H200's were measured, with small models (bench/gpu/h200.md). vendor: the tiles and efficiencies of the vendor's library, fitted to published measurements. Both are costed by the same model."
                    .into(),
            );
        }
        out
    }
}
