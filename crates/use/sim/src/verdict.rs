//! What a scenario expects against what came out, beside the best static plan where it says so.
use crate::SimError;
use crate::backend::Backend;
use crate::outcome::{Outcome, Span, Unfinished};
use crate::scenario::{Expect, Metric, Scenario};
use crate::world::{Setup, run};
use layout::Arrange;
use plan::division::ladder;
use report::{Align, Style, Table};
use serde::Serialize;
use std::sync::Arc;
use supervisor::stats::quantile;
use supervisor::supervise::Mode;

/// One expectation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// In words.
    pub what: String,
    /// What came out.
    pub got: f64,
    /// What the best static plan reaches, where the bounds are shares of it.
    pub oracle: Option<f64>,
    /// How that plan runs.
    pub oracle_way: String,
    /// What the bounds are compared with.
    pub value: f64,
    /// At least.
    pub least: Option<f64>,
    /// At most.
    pub most: Option<f64>,
    /// Whether it holds.
    pub holds: bool,
}

/// All expectations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Each.
    pub checks: Vec<Check>,
}

impl Verdict {
    /// Whether all hold.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|c| c.holds)
    }

    /// As text; empty without expectations.
    pub fn render(&self, style: Style) -> String {
        if self.checks.is_empty() {
            return String::new();
        }
        use Align::{Right, Wrap};
        let mut t = Table::new(&[
            ("expected", Wrap),
            ("got", Right),
            ("best static", Right),
            ("got/best", Right),
            ("bound", Right),
            ("", Right),
        ]);
        for c in &self.checks {
            let of = c.oracle.map_or("", |_| "got/best ");
            let bound = match (c.least, c.most) {
                (Some(a), Some(b)) => format!("{of}{a} to {b}"),
                (Some(a), None) => format!("{of}>= {a}"),
                (None, Some(b)) => format!("{of}<= {b}"),
                (None, None) => String::new(),
            };
            t.row(vec![
                c.what.clone(),
                number(c.got),
                c.oracle.map_or(String::new(), number),
                c.oracle
                    .map_or(String::new(), |_| format!("{:.2}", c.value)),
                bound,
                if c.holds { "holds" } else { "MISSED" }.into(),
            ]);
        }
        format!("{}\n{}", style.heading("Expected"), t.render(style))
    }
}

fn number(v: f64) -> String {
    match v.abs() {
        x if x >= 1000.0 => format!("{v:.0}"),
        x if x >= 10.0 => format!("{v:.1}"),
        _ => format!("{v:.3}"),
    }
}

/// The figure of `e` in `o`.
fn figure(e: &Expect, s: &Scenario, o: &Outcome) -> f64 {
    let session = o.session(&e.session);
    let span = Span {
        from: e.from,
        until: e.until.unwrap_or(s.seconds),
    };
    let own = |i: usize| session.is_none_or(|s| s as usize == i);
    let sum = |f: &dyn Fn(&crate::SessionOutcome) -> u64| -> f64 {
        let all = o.sessions.iter().enumerate().filter(|(i, _)| own(*i));
        all.map(|(_, s)| f(s)).sum::<u64>() as f64
    };
    let undone = |kinds: &[Unfinished]| {
        let all = o.undone.iter().filter(|u| {
            session.is_none_or(|s| s == u.0)
                && u.1 >= span.from
                && u.1 < span.until
                && kinds.contains(&u.2)
        });
        all.count() as f64
    };
    match e.metric {
        Metric::Throughput => {
            // Of requests done in the stretch, whenever they came.
            let done = o.done.iter().filter(|d| {
                let at = d.arrived + f64::from(d.latency);
                session.is_none_or(|s| s == d.session) && at >= span.from && at < span.until
            });
            done.count() as f64 / (span.until - span.from).max(1e-9)
        }
        Metric::P50Ms => quantile(&o.latencies_ms(session, span), 0.5).unwrap_or(0.0),
        Metric::P99Ms => quantile(&o.latencies_ms(session, span), 0.99).unwrap_or(0.0),
        Metric::Kept => {
            let (mut all, mut kept) = (undone(&[Unfinished::Expired]), 0.0);
            for d in o.within(session, span) {
                all += 1.0;
                kept += f64::from(u8::from(d.in_time));
            }
            if all > 0.0 { kept / all } else { 1.0 }
        }
        Metric::Lost => sum(&|s| s.lost),
        Metric::Rejected => undone(&[Unfinished::Rejected]),
        Metric::Failed => sum(&|s| s.failed),
        Metric::Promotions => o.promotions as f64,
    }
}

fn more_is_better(m: Metric) -> bool {
    matches!(m, Metric::Throughput | Metric::Kept)
}

/// Holds `outcome` against what `scenario` expects. Where a bound is on the share of the oracle, every
/// static way of the session is simulated, with the supervisor off and workers that others use taken
/// last, and the best of them in that stretch is the oracle.
///
/// # Errors
/// As [`crate::simulate`].
pub fn judge(
    scenario: &Arc<Scenario>,
    outcome: &Outcome,
    backend: &mut dyn Backend,
) -> Result<Verdict, SimError> {
    let mut checks = Vec::new();
    let mut statics: Vec<(String, String, Outcome)> = Vec::new();
    for e in &scenario.expect {
        let got = figure(e, scenario, outcome);
        let (mut oracle, mut way) = (None, String::new());
        if e.of_oracle {
            if !statics.iter().any(|s| s.0 == e.session) {
                statics.extend(static_runs(scenario, &e.session, backend)?);
            }
            for (_, text, o) in statics.iter().filter(|s| s.0 == e.session) {
                let v = figure(e, scenario, o);
                let better = |old: f64| match more_is_better(e.metric) {
                    true => v > old,
                    false => v > 0.0 && v < old,
                };
                if oracle.is_none_or(better) {
                    (oracle, way) = (Some(v), text.clone());
                }
            }
        }
        let value = oracle.map_or(got, |o| got / o.max(1e-12));
        let span = format!("{} to {} s", e.from, e.until.unwrap_or(scenario.seconds));
        let who = if e.session.is_empty() {
            "all"
        } else {
            &e.session
        };
        let metric = match e.metric {
            Metric::Throughput => "requests/s",
            Metric::P50Ms => "median, ms",
            Metric::P99Ms => "p99, ms",
            Metric::Kept => "deadlines kept",
            Metric::Lost => "requests lost",
            Metric::Rejected => "requests refused",
            Metric::Failed => "requests failed",
            Metric::Promotions => "changes promoted",
        };
        checks.push(Check {
            what: format!("{who}, {metric}, {span}"),
            got,
            oracle,
            oracle_way: way,
            value,
            least: e.least,
            most: e.most,
            holds: e.least.is_none_or(|b| value >= b) && e.most.is_none_or(|b| value <= b),
        });
    }
    Ok(Verdict { checks })
}

/// Every static way of a session (of each session in turn, where none is named).
fn static_runs(
    scenario: &Arc<Scenario>,
    session: &str,
    backend: &mut dyn Backend,
) -> Result<Vec<(String, String, Outcome)>, SimError> {
    let mut out = Vec::new();
    for (i, spec) in scenario.sessions.iter().enumerate() {
        if !session.is_empty() && spec.name != session {
            continue;
        }
        let model = scenario
            .models
            .iter()
            .position(|m| m.name == spec.model)
            .unwrap_or(0);
        let most = (0..scenario.devices.len())
            .map(|d| scenario.workers(d))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .max()
            .unwrap_or(1);
        let mut sizes: Vec<u32> = spec
            .traffic
            .iter()
            .map(|t| t.size.unwrap_or(scenario.models[model].size))
            .collect();
        sizes.arrange();
        sizes.dedup();
        for variant in 0..backend.variants(model).max(1) {
            for workers in ladder(most) {
                for items in ladder(spec.max_items) {
                    for &size in &sizes {
                        let mut s = (**scenario).clone();
                        s.supervise = Mode::Off;
                        let own = &mut s.sessions[i];
                        own.workers = Some(workers);
                        own.items = Some(items);
                        own.size = Some(size);
                        let setup = Setup {
                            informed: true,
                            log: false,
                            variants: vec![(i, variant)],
                        };
                        let o = run(&Arc::new(s), backend, &setup)?.0;
                        let way = format!(
                            "variant {variant}, size {size}, batch {items}, {workers} workers"
                        );
                        out.push((session.to_string(), way, o));
                    }
                }
            }
        }
    }
    Ok(out)
}
