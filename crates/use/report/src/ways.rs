//! A GPU's two ways of running a plan, beside each other.
use crate::bench::BenchReport;
use crate::how_run::clock;
use crate::table::{Align, Style, Table};
use crate::{HowRun, units};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What is aimed at on an H100, in microseconds: the median of the acknowledged round trip.
pub const ROUND_TRIP_AIM_US: f64 = 3.0;

/// The acknowledged round trip, with its definition and the aim.
fn round_trip(out: &mut String, us: Option<f64>, emulated: bool) {
    let Some(us) = us else {
        out.push_str("\nno kernel stays for this plan: both times are of steps that were launched, and there is no round\n\
             trip\n");
        return;
    };
    let _ = writeln!(
        out,
        "\nacknowledged round trip of a request without work: {} {}, median; its clock\n\
         starts before the host's store and stops when the host has read the answer;\n\
         the aim on an H100 is {}",
        units::seconds(us * 1e-6),
        clock(emulated),
        units::seconds(ROUND_TRIP_AIM_US * 1e-6)
    );
}

/// What emulated times are worth.
fn worth(out: &mut String, emulated: bool) {
    if emulated {
        out.push_str(
            "emulated: what the emulated GPU's clock says, from counts of what its warps executed and\n\
             moved and from its figures; calls of its driver and the host's own work take none of it, which\n\
             predictions count, and how long emulating takes here is no part of it\n",
        );
    }
}

/// Step by step and resident.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaysReport {
    /// A launch per step, a copy per input and output.
    pub steps: BenchReport,
    /// A kernel that stays.
    pub resident: BenchReport,
}

impl WaysReport {
    /// As a table.
    pub fn render(&self, style: Style) -> String {
        let (a, b) = (&self.steps, &self.resident);
        let clock = clock(a.emulated);
        let p50 = format!("{clock} p50");
        let mut t = Table::new(&[
            ("launch", Align::Left),
            ("predicted", Align::Right),
            (&p50, Align::Right),
            ("p90", Align::Right),
            ("p99", Align::Right),
            ("requests/s", Align::Right),
            ("requests", Align::Right),
        ]);
        for r in [a, b] {
            t.row(vec![
                r.how.launch.clone().unwrap_or_default(),
                units::seconds((r.predicted_ms + r.predicted_copies_ms) * 1e-3),
                units::seconds(r.latency_ms.p50 * 1e-3),
                units::seconds(r.latency_ms.p90 * 1e-3),
                units::seconds(r.latency_ms.p99 * 1e-3),
                units::count(r.throughput_per_s).trim().into(),
                r.iterations.to_string(),
            ]);
        }
        let how = HowRun {
            launch: None,
            ..a.how.clone()
        };
        let head = format!("{} on {}{}", a.model, a.device, how.headline());
        let mut out = style.headline(&head);
        out.push('\n');
        out.push_str(&t.render(style));
        let ratio = a.latency_ms.p50 / b.latency_ms.p50.max(1e-12);
        let said = a.predicted_ms + a.predicted_copies_ms;
        let then = b.predicted_ms + b.predicted_copies_ms;
        let _ = writeln!(
            out,
            "\nresident is {ratio:.2} times as fast by medians, {:.2} times as predicted; copies of inputs\nand outputs are in both",
            said / then.max(1e-12)
        );
        round_trip(&mut out, b.round_trip_us, b.emulated);
        worth(&mut out, a.emulated);
        out
    }
}

/// Many batches of one short kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PersistentReport {
    /// Device and target.
    pub device: String,
    /// How exactly its kernel multiplies.
    #[serde(flatten)]
    pub how: HowRun,
    /// Whether times are an emulated GPU's own.
    pub emulated: bool,
    /// Batches.
    pub batches: usize,
    /// What one computes, and what one moves to the device and back, in bytes.
    pub kernel: String,
    /// Bytes to the device and back.
    pub bytes: (u64, u64),
    /// What the kernel alone takes, microseconds.
    pub kernel_us: f64,
    /// All batches, microseconds: copy, launch, copy in turn, and by a kernel that stays.
    pub launched_us: f64,
    /// The same by a kernel that stays.
    pub resident_us: f64,
    /// What is predicted for both.
    pub predicted_us: (f64, f64),
    /// Median acknowledged round trip.
    pub round_trip_us: Option<f64>,
}

impl PersistentReport {
    /// As a table.
    pub fn render(&self, style: Style) -> String {
        let mut out = style.headline(&format!(
            "{} batches of a kernel of {} on {}{}",
            self.batches,
            units::seconds(self.kernel_us * 1e-6),
            self.device,
            self.how.headline()
        ));
        let _ = writeln!(
            out,
            "\n{}; {} to the device, {} back",
            self.kernel,
            units::bytes(self.bytes.0 as f64),
            units::bytes(self.bytes.1 as f64)
        );
        let mut t = Table::new(&[
            ("launch", Align::Left),
            ("predicted", Align::Right),
            (clock(self.emulated), Align::Right),
            ("a batch", Align::Right),
            ("beside the kernel", Align::Right),
        ]);
        let (a, b) = self.predicted_us;
        for (name, predicted, all) in [
            ("steps", a, self.launched_us),
            ("resident", b, self.resident_us),
        ] {
            let each = all / self.batches.max(1) as f64;
            t.row(vec![
                name.into(),
                units::seconds(predicted * 1e-6),
                units::seconds(all * 1e-6),
                units::seconds(each * 1e-6),
                units::seconds((each - self.kernel_us).max(0.0) * 1e-6),
            ]);
        }
        out.push_str(&t.render(style));
        let _ = writeln!(
            out,
            "\nresident is {:.2} times as fast, {:.2} times as predicted; one batch after the other both ways;\nsteps copies, launches and copies",
            self.launched_us / self.resident_us.max(1e-9),
            a / b.max(1e-9)
        );
        round_trip(&mut out, self.round_trip_us, self.emulated);
        worth(&mut out, self.emulated);
        out
    }
}
