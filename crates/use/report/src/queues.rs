//! What a device's queues were at, by its own clock.
use crate::units;
use plan::{Activity, Timeline};
use serde::Serialize;

/// A queue of a device during one request; times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueView {
    /// Name.
    pub name: String,
    /// Running steps.
    pub kernels_us: f64,
    /// Copying, either way.
    pub copies_us: f64,
    /// Bytes copied to the device, and from it.
    pub uploaded: u64,
    /// Likewise.
    pub downloaded: u64,
    /// Waiting for another queue.
    pub waits_us: f64,
    /// Time of its copies during which another queue ran steps.
    pub overlapped_us: f64,
}

/// The queues of `t`; none for devices without a clock of their own.
pub fn queues(t: &Timeline) -> Vec<QueueView> {
    let us = |ns: u64| ns as f64 * 1e-3;
    let mut out: Vec<QueueView> = t
        .lanes
        .iter()
        .map(|name| QueueView {
            name: name.clone(),
            ..QueueView::default()
        })
        .collect();
    let kernels: Vec<_> = t
        .device
        .iter()
        .filter(|s| s.what == Activity::Kernel)
        .collect();
    for s in &t.device {
        let Some(q) = out.get_mut(s.lane as usize) else {
            continue;
        };
        let took = us(s.end_ns.saturating_sub(s.start_ns));
        match s.what {
            Activity::Kernel => q.kernels_us += took,
            Activity::Wait => q.waits_us += took,
            Activity::Upload | Activity::Download => {
                q.copies_us += took;
                if s.what == Activity::Upload {
                    q.uploaded += s.bytes;
                } else {
                    q.downloaded += s.bytes;
                }
                for k in kernels.iter().filter(|k| k.lane != s.lane) {
                    let (from, to) = (k.start_ns.max(s.start_ns), k.end_ns.min(s.end_ns));
                    q.overlapped_us += us(to.saturating_sub(from));
                }
            }
        }
    }
    out
}

impl QueueView {
    /// One line for people.
    pub fn line(&self) -> String {
        let time = |v: f64| units::seconds(v * 1e-6);
        let mut parts = vec![];
        if self.kernels_us > 0.0 {
            parts.push(format!("steps {}", time(self.kernels_us)));
        }
        if self.copies_us > 0.0 {
            parts.push(format!(
                "copies {} ({} in, {} out, {} of it beside steps)",
                time(self.copies_us),
                units::bytes(self.uploaded as f64),
                units::bytes(self.downloaded as f64),
                time(self.overlapped_us)
            ));
        }
        if self.waits_us > 0.0 {
            parts.push(format!("waits {}", time(self.waits_us)));
        }
        if parts.is_empty() {
            parts.push("idle".into());
        }
        format!("{}: {}", self.name, parts.join(", "))
    }
}
