//! A benchmark's report: latencies, throughput, resources.
use crate::table::Style;
use crate::{HowRun, units};
use layout::Arrange;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Latency of requests in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names are the statistics
pub struct LatencyMs {
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
}

impl LatencyMs {
    /// Statistics of `ms`; percentiles are nearest ranks (the smallest value that so large a share
    /// does not exceed). All 0 without values.
    pub fn of(ms: &[f64]) -> LatencyMs {
        let mut v = ms.to_vec();
        v.arrange_by(f64::total_cmp);
        let n = v.len();
        if n == 0 {
            return LatencyMs::default();
        }
        let rank = |p: f64| v[((p * n as f64).ceil() as usize).clamp(1, n) - 1];
        LatencyMs {
            min: v[0],
            mean: v.iter().sum::<f64>() / n as f64,
            p50: rank(0.5),
            p90: rank(0.9),
            p99: rank(0.99),
            p999: rank(0.999),
        }
    }
}

/// What a benchmark of a model or operator found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// Model's name, or the operator as given.
    pub model: String,
    /// Device and target.
    pub device: String,
    /// Workers.
    pub threads: usize,
    /// How its steps reached the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Whether inputs and outputs stayed in the device's memory, so that no request copied any.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bound_to_device: bool,
    /// Requests measured.
    pub iterations: usize,
    /// From a request's start to its end, as its caller sees it.
    pub latency_ms: LatencyMs,
    /// Requests per second of all callers together.
    pub throughput_per_s: f64,
    /// What the plan predicts for one request: of branches the larger, loop bodies as often as they
    /// run (once where only the request says).
    pub predicted_ms: f64,
    /// What copies of inputs and outputs to and from another memory are predicted to take beside that.
    #[serde(default, skip_serializing_if = "none")]
    pub predicted_copies_ms: f64,
    /// Whether latencies are an emulated device's own time, not this machine's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
    /// Of an emulated device: what emulating one request took here, on average.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation_ms: Option<f64>,
    /// Of resident workers on a GPU: the median acknowledged round trip of a request without work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<f64>,
    /// Reading, importing and making ready (weights packed), planning left out.
    pub load_ms: f64,
    /// Planning.
    pub plan_ms: f64,
    /// Symbolic dimensions whose sizes nobody gave: they were taken as 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// Most memory that the process ever had; none where the system does not say.
    pub peak_rss_bytes: Option<u64>,
}

/// What only some devices have is left out for the others.
fn none(v: &f64) -> bool {
    *v == 0.0
}

impl BenchReport {
    /// The figures as text.
    pub fn render(&self, style: Style) -> String {
        let ms = |v: f64| units::seconds(v * 1e-3);
        let l = &self.latency_ms;
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.headline(&format!(
                "{} on {}{}, {}{}, {} requests",
                self.model,
                self.device,
                self.how.headline(),
                match self.bound_to_device {
                    true => "inputs and outputs stay there, ",
                    false => "",
                },
                self.how.workers(self.threads),
                self.iterations
            ))
        );
        let _ = writeln!(
            out,
            "  {} p50 {}, min {}, mean {}, p90 {}, p99 {}, p99.9 {}",
            if self.emulated {
                "emulated   "
            } else {
                "latency    "
            },
            ms(l.p50),
            ms(l.min),
            ms(l.mean),
            ms(l.p90),
            ms(l.p99),
            ms(l.p999)
        );
        let all = self.predicted_ms + self.predicted_copies_ms;
        let copies = match self.predicted_copies_ms > 0.0 {
            true => format!(", copies {}", ms(self.predicted_copies_ms)),
            false => String::new(),
        };
        let ratio = if all > 0.0 {
            format!("{copies} (p50 is {:.2} times that)", l.p50 / all)
        } else {
            String::new()
        };
        let _ = writeln!(out, "  predicted   {}{ratio}", ms(self.predicted_ms));
        let _ = writeln!(
            out,
            "  throughput  {} requests/s",
            units::count(self.throughput_per_s).trim_end()
        );
        if let Some(v) = self.emulation_ms {
            let said = format!(
                "{}; emulating a request took {} here",
                crate::EMULATED,
                ms(v)
            );
            for line in units::wrapped(&said, style.width.saturating_sub(2)) {
                let _ = writeln!(out, "  {line}");
            }
        }
        if let Some(p) = &self.how.precision {
            let _ = writeln!(out, "  precision   {p}");
        }
        let _ = writeln!(
            out,
            "  load {}, plan {}",
            ms(self.load_ms),
            ms(self.plan_ms)
        );
        if let Some(b) = self.peak_rss_bytes {
            let _ = writeln!(out, "  peak memory {}", units::bytes(b as f64));
        }
        out
    }
}
