//! Warnings about figures of a machine that contradict one another: legal, but most often a slip.

use crate::{Machine, MachineKind, NumType, UnitClass};

impl Machine {
    /// What looks like a slip, a sentence each; empty when the figures agree: bandwidth against the bus,
    /// arithmetic against lanes and clock, units against workers, and levels from near to far.
    pub fn oddities(&self) -> Vec<String> {
        let mut out = Vec::new();
        let off = |a: f64, b: f64| (a - b).abs() > 0.03 * b.abs();
        let w = &self.workers;
        let peak = crate::calc::vector_peak(w.lanes.value, w.count.value, w.clock_hz.value);
        if self.kind == MachineKind::Gpu
            && let Some(u) = self.unit(UnitClass::Fma, NumType::F32)
            && off(u.all.value, peak)
        {
            out.push(format!(
                "the f32 rate of {:.3e} is not twice {} lanes x {} workers x {:.3e} Hz = {peak:.3e}",
                u.all.value, w.lanes.value, w.count.value, w.clock_hz.value
            ));
        }
        for l in self.levels.iter().filter(|l| l.bus.is_some()) {
            if l.read.all.value > l.peak() * 1.001 {
                out.push(format!(
                    "level {} is read at {:.3e} B/s, more than its bus carries ({:.3e})",
                    l.name,
                    l.read.all.value,
                    l.peak()
                ));
            }
        }
        for u in &self.units {
            if u.per_worker.value > u.all.value * 1.001
                || u.all.value > u.per_worker.value * w.count.value as f64 * 1.03
            {
                out.push(format!(
                    "unit {} {} does {:.3e} on all workers and {:.3e} on one of {}",
                    u.name, u.dtype_in, u.all.value, u.per_worker.value, w.count.value
                ));
            }
        }
        let path: Vec<_> = self.caches().map(|c| c.1).chain([self.memory()]).collect();
        for pair in path.windows(2) {
            let (near, far) = (pair[0], pair[1]);
            if near.latency_s.value > far.latency_s.value {
                out.push(format!(
                    "level {} answers later than {}, which is farther away",
                    near.name, far.name
                ));
            }
            // Measured rates of neighbouring caches scatter by a few per cent.
            if near.read.all.value < far.read.all.value * 0.95 {
                out.push(format!(
                    "level {} is read more slowly than {}, which is farther away",
                    near.name, far.name
                ));
            }
        }
        out
    }
}
