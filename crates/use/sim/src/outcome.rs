//! What came out of a simulation.
use report::{Align, Style, Table, units};
use serde::Serialize;
use supervisor::stats::quantile;
use supervisor::supervise::Decision;

/// Decisions that are printed; the JSON has all.
const PRINTED: usize = 24;

/// A stretch of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// From, seconds.
    pub from: f64,
    /// Until.
    pub until: f64,
}

/// A request that was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub session: u32,
    pub arrived: f64,
    pub latency: f32,
    pub in_time: bool,
}

/// A request that was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    Rejected,
    Expired,
    Failed,
}

/// A session's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionOutcome {
    /// Name.
    pub name: String,
    /// Requests that came.
    pub arrived: u64,
    /// Done.
    pub finished: u64,
    /// Turned away at once.
    pub rejected: u64,
    /// Given up while they waited.
    pub expired: u64,
    /// Failed with their run.
    pub failed: u64,
    /// Done, but after their deadline.
    pub late: u64,
    /// Neither of these: always 0, or the scheduler is wrong.
    pub lost: u64,
    /// Requests done per second.
    pub throughput: f64,
    /// Latency of half of the requests, milliseconds.
    pub p50_ms: f64,
    /// Of 90 of 100.
    pub p90_ms: f64,
    /// Of 99 of 100.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Runs it took.
    pub runs: u64,
}

/// A device's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceOutcome {
    /// Name.
    pub name: String,
    /// What it is described as.
    pub machine: String,
    /// Workers.
    pub workers: u32,
    /// Share of the workers' time in which they were granted to a run.
    pub utilisation: f64,
    /// How its sessions are run at the end, one text for each.
    pub ways: Vec<String>,
}

/// A decision of the supervisor of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceDecision {
    /// Device.
    pub device: String,
    /// Decision.
    #[serde(flatten)]
    pub decision: Decision,
}

/// Everything that came out.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Scenario.
    pub scenario: String,
    /// What it is about.
    pub about: String,
    /// Seed.
    pub seed: u64,
    /// Virtual seconds until the last request was answered.
    pub seconds: f64,
    /// Sessions.
    pub sessions: Vec<SessionOutcome>,
    /// Devices.
    pub devices: Vec<DeviceOutcome>,
    /// Decisions, in order.
    pub decisions: Vec<DeviceDecision>,
    /// Changes promoted.
    pub promotions: u64,
    /// Swaps of plans, those forced by the scenario among them.
    pub swaps: u64,
    /// A number that differs when anything differs: every time, count and decision is in it.
    pub digest: String,
    #[serde(skip)]
    pub(crate) done: Vec<Done>,
    #[serde(skip)]
    pub(crate) undone: Vec<(u32, f64, Unfinished)>,
}

impl Outcome {
    /// Index of a session; `None` for all.
    pub(crate) fn session(&self, name: &str) -> Option<u32> {
        let at = self.sessions.iter().position(|s| s.name == name)?;
        u32::try_from(at).ok()
    }

    /// Latencies in milliseconds of requests of a session (all where `None`) that came in `span`.
    pub fn latencies_ms(&self, session: Option<u32>, span: Span) -> Vec<f64> {
        self.within(session, span)
            .map(|d| 1e3 * f64::from(d.latency))
            .collect()
    }

    pub(crate) fn within(&self, session: Option<u32>, span: Span) -> impl Iterator<Item = &Done> {
        self.done.iter().filter(move |d| {
            session.is_none_or(|s| s == d.session)
                && d.arrived >= span.from
                && d.arrived < span.until
        })
    }

    pub(crate) fn fill(&mut self, seconds: f64) {
        for (i, s) in self.sessions.iter_mut().enumerate() {
            let own: Vec<f64> = self
                .done
                .iter()
                .filter(|d| d.session as usize == i)
                .map(|d| 1e3 * f64::from(d.latency))
                .collect();
            s.throughput = s.finished as f64 / seconds.max(1e-9);
            let q = |q| quantile(&own, q).unwrap_or(0.0);
            (s.p50_ms, s.p90_ms, s.p99_ms, s.max_ms) = (q(0.5), q(0.9), q(0.99), q(1.0));
        }
    }

    /// As text.
    pub fn render(&self, style: Style) -> String {
        let mut out = vec![style.heading(&format!(
            "{}: {} of virtual time, seed {}",
            self.scenario,
            units::seconds(self.seconds),
            self.seed
        ))];
        if !self.about.is_empty() {
            out.extend(units::wrapped(&self.about, style.width));
        }
        out.push(String::new());
        use Align::{Right, Wrap};
        let mut t = Table::new(&[
            ("session", Wrap),
            ("came", Right),
            ("done", Right),
            ("refused", Right),
            ("late", Right),
            ("failed", Right),
            ("per s", Right),
            ("p50", Right),
            ("p90", Right),
            ("p99", Right),
            ("longest", Right),
        ]);
        let ms = |v: f64| units::seconds(1e-3 * v);
        for s in &self.sessions {
            t.row(vec![
                s.name.clone(),
                s.arrived.to_string(),
                s.finished.to_string(),
                (s.rejected + s.expired).to_string(),
                s.late.to_string(),
                s.failed.to_string(),
                units::number(s.throughput),
                ms(s.p50_ms),
                ms(s.p90_ms),
                ms(s.p99_ms),
                ms(s.max_ms),
            ]);
        }
        out.push(t.render(style));
        let mut t = Table::new(&[
            ("device", Wrap),
            ("machine", Wrap),
            ("workers", Right),
            ("in use", Right),
            ("run as, at the end", Wrap),
        ]);
        for d in &self.devices {
            for (i, way) in d.ways.iter().enumerate() {
                let first = |s: String| if i == 0 { s } else { String::new() };
                t.row(vec![
                    first(d.name.clone()),
                    first(d.machine.clone()),
                    first(d.workers.to_string()),
                    first(units::percent(d.utilisation)),
                    way.clone(),
                ]);
            }
        }
        out.push(t.render(style));
        let lost: u64 = self.sessions.iter().map(|s| s.lost).sum();
        out.push(format!(
            "{} promoted, {}; {} lost. digest {}",
            units::plural(self.promotions, "change"),
            units::plural(self.swaps, "swap"),
            units::plural(lost, "request"),
            self.digest
        ));
        if !self.decisions.is_empty() {
            out.push(String::new());
            out.push(style.heading("Decisions"));
            let skipped = self.decisions.len().saturating_sub(PRINTED);
            for (i, d) in self.decisions.iter().enumerate() {
                if skipped > 0 && i == PRINTED / 2 {
                    out.push(style.faint(&format!("  ... {skipped} more, in --json")));
                }
                if skipped > 0 && (PRINTED / 2..PRINTED / 2 + skipped).contains(&i) {
                    continue;
                }
                let w = &d.decision.why;
                let text = format!("{} {}: {} ({})", w.pass, w.subject, w.choice, w.reason);
                let mut lines = units::wrapped(&text, style.width.saturating_sub(12)).into_iter();
                let first = lines.next().unwrap_or_default();
                out.push(format!("{:>8.2} s  {first}", d.decision.at));
                out.extend(lines.map(|l| format!("            {l}")));
            }
        }
        out.join("\n")
    }
}
