//! What others did with the processors meanwhile, as the system accounts for it.

#[cfg(target_os = "linux")]
use crate::shares::processors;
use std::time::Instant;

/// A time from which on others are watched.
pub(super) struct Others {
    cpus: Vec<usize>,
    began: Instant,
    /// Busy ticks, all ticks, and seconds of this process.
    before: Option<(u64, u64, f64)>,
}

impl Others {
    pub(super) fn watch(cpus: &[usize]) -> Others {
        Others {
            cpus: cpus.to_vec(),
            began: Instant::now(),
            before: account(cpus),
        }
    }

    /// Cores that others kept busy since; `None` where the system does not say.
    pub(super) fn since(&self) -> Option<f64> {
        let (busy, all, own) = self.before?;
        let now = account(&self.cpus)?;
        let ticks = now.1.saturating_sub(all);
        if ticks == 0 {
            return None;
        }
        let share = now.0.saturating_sub(busy) as f64 / ticks as f64;
        let used = share * self.cpus.len() as f64;
        let mine = (now.2 - own) / self.began.elapsed().as_secs_f64().max(1e-9);
        Some((used - mine).clamp(0.0, self.cpus.len() as f64))
    }
}

#[cfg(target_os = "linux")]
fn account(cpus: &[usize]) -> Option<(u64, u64, f64)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let (busy, all) = processors(&stat, cpus)
        .into_values()
        .fold((0, 0), |a, c| (a.0 + c.0, a.1 + c.1));
    let own = workers::time_slice::process_time_s()?;
    (all > 0).then_some((busy, all, own))
}

#[cfg(not(target_os = "linux"))]
fn account(_: &[usize]) -> Option<(u64, u64, f64)> {
    None
}
