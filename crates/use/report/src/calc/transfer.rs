//! The transfer calculator's report: ways across a link, stage by stage.
use super::because;
use crate::table::{Align, Style, Table};
use crate::units;
use machine::calc::{self, Batches};
use serde::Serialize;
use std::fmt::Write;

/// One way of running batches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WayView {
    /// Its name.
    pub name: String,
    /// Seconds for all batches.
    pub total_s: f64,
    /// Seconds for one more batch.
    pub per_batch_s: f64,
    /// How much faster than copy-launch-copy.
    pub speedup: f64,
    /// What one more batch waits for.
    pub bound: String,
}

/// A stage of a launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageView {
    /// What happens.
    pub name: String,
    /// Seconds.
    pub seconds: f64,
}

/// Ways of feeding a device from the host, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransferView {
    /// Machine name.
    pub machine: String,
    /// Bytes each way.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Copy to the device, seconds a batch.
    pub copy_in_s: f64,
    /// Copy back.
    pub copy_out_s: f64,
    /// The kernel.
    pub kernel_s: f64,
    /// A launch.
    pub launch_s: f64,
    /// A hand-off through a ring, one way.
    pub handoff_s: f64,
    /// Every way.
    pub ways: Vec<WayView>,
    /// Batches from which the resident kernel beats copy-launch-copy.
    pub breakeven_batches: Option<u64>,
    /// Kernels shorter than this cost less than their launch.
    pub launch_bound_below_s: f64,
    /// Kernels longer than this hide the copies.
    pub hidden_above_s: f64,
    /// The launch by stages.
    pub stages: Vec<StageView>,
    /// The reasons.
    pub explanation: Vec<String>,
}

impl TransferView {
    /// Compares the ways for batches of `bytes` each way.
    pub fn new(machine: &str, bytes: u64, b: &Batches) -> TransferView {
        let c = calc::compare_transfers(b);
        let base = c.ways.first().map_or(0.0, |w| w.total_s);
        let ways: Vec<WayView> = c
            .ways
            .iter()
            .map(|w| WayView {
                name: w.name.into(),
                total_s: w.total_s,
                per_batch_s: w.per_batch_s,
                speedup: if w.total_s > 0.0 {
                    base / w.total_s
                } else {
                    1.0
                },
                bound: w.bound.into(),
            })
            .collect();
        let t = units::seconds;
        let serial = b.copy_in_s + b.launch_s + b.kernel_s + b.copy_out_s;
        let useful = if serial > 0.0 {
            b.kernel_s / serial
        } else {
            1.0
        };
        let mut why = vec![format!(
            "One by one a batch is {} of copy, {} of launch, {} of kernel, {} of copy back: {}, of which {} is the kernel.",
            t(b.copy_in_s),
            t(b.launch_s),
            t(b.kernel_s),
            t(b.copy_out_s),
            t(serial),
            units::percent(useful)
        )];
        if b.copy_in_s == 0.0 && b.copy_out_s == 0.0 {
            why.push(
                "Nothing is copied: host and device memory are one place, or there are no bytes."
                    .into(),
            );
        } else {
            let hidden = match c.hidden_above_s > 0.0 {
                true => format!(
                    "Kernels longer than {} hide the copies.",
                    t(c.hidden_above_s)
                ),
                false => "A launch takes longer than a copy: any kernel hides the copies.".into(),
            };
            why.push(format!(
                "On streams copies in, kernels and copies back of neighbouring batches run side by side: one more batch takes as long as the slowest of the three. {hidden}"
            ));
        }
        why.push("A graph submits all launches at once, so only a gap of about a microsecond stays between kernels.".into());
        why.push(format!(
            "A kernel that stays is launched once and takes each batch from a ring in memory that host and device both see, {} each way; data that stays on the device is not copied at all.",
            t(b.handoff_s)
        ));
        if b.kernel_s < c.launch_bound_below_s {
            why.push(format!(
                "The launch ({}) costs more than the kernel: fewer, larger launches or a resident kernel pay.",
                t(b.launch_s)
            ));
        }
        why.push(match c.breakeven_batches {
            Some(1) => {
                "A resident kernel takes less than launches one by one from the first batch on."
                    .into()
            }
            Some(n) => format!(
                "A resident kernel takes less than launches one by one from {n} batches on."
            ),
            None => "A resident kernel never takes less than launches one by one here.".into(),
        });
        why.push(
            "The split of the launch into stages is assumed; its sum is what is measured.".into(),
        );
        TransferView {
            machine: machine.into(),
            bytes,
            batches: b.batches,
            copy_in_s: b.copy_in_s,
            copy_out_s: b.copy_out_s,
            kernel_s: b.kernel_s,
            launch_s: b.launch_s,
            handoff_s: b.handoff_s,
            ways,
            breakeven_batches: c.breakeven_batches,
            launch_bound_below_s: c.launch_bound_below_s,
            hidden_above_s: c.hidden_above_s,
            stages: calc::launch_stages(b.launch_s)
                .into_iter()
                .map(|s| StageView {
                    name: s.name.into(),
                    seconds: s.seconds,
                })
                .collect(),
            explanation: why,
        }
    }

    /// The table, the launch by stages and the reasons.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.heading(&format!(
                "{}: {} batches of {} each way, a kernel of {}, a launch of {}",
                self.machine,
                self.batches,
                units::bytes(self.bytes as f64),
                units::seconds(self.kernel_s),
                units::seconds(self.launch_s)
            ))
        );
        let mut t = Table::new(&[
            ("  way", Align::Left),
            ("all batches", Align::Right),
            ("one more", Align::Right),
            ("faster", Align::Right),
            ("waits for", Align::Left),
        ]);
        for w in &self.ways {
            t.row(vec![
                format!("  {}", w.name),
                units::seconds(w.total_s),
                units::seconds(w.per_batch_s),
                format!("{}x", units::number(w.speedup)),
                w.bound.clone(),
            ]);
        }
        out.push_str(&t.render(style));
        let _ = writeln!(out, "\n{}", style.heading("a launch by stages"));
        let longest = self.stages.iter().map(|s| s.seconds).fold(0.0, f64::max);
        for s in &self.stages {
            let share = if longest > 0.0 {
                s.seconds / longest
            } else {
                0.0
            };
            let _ = writeln!(
                out,
                "  {:<16} {:>9}  {}",
                s.name,
                units::seconds(s.seconds),
                "=".repeat((share * 40.0) as usize)
            );
        }
        let _ = writeln!(out, "\n{}", style.heading("why"));
        out.push_str(&because(&self.explanation, style));
        out
    }
}
