//! A part of a machine: some of its workers, with their share of what all of them use.

use crate::{Bandwidth, Machine, Sourced};

fn scaled(v: &Sourced, f: f64) -> Sourced {
    Sourced::new(v.value * f, v.source)
}

impl Machine {
    /// The same machine with `workers` of its workers (at least one, at most all) and their share of levels,
    /// units and main memory: what one of them sees of the whole when all are busy alike.
    #[must_use]
    pub fn slice(&self, workers: u64) -> Machine {
        let all = self.workers.count.value.max(1);
        let workers = workers.clamp(1, all);
        let f = workers as f64 / all as f64;
        let mut m = self.clone();
        if workers == all {
            return m;
        }
        m.name = format!("{}, {workers} of {all} workers", self.name);
        m.aliases.clear();
        m.workers.count.value = workers;
        let rates = |b: &mut Bandwidth| {
            b.all = scaled(&b.all, f);
            if b.per_worker.value > b.all.value {
                // One alone has no more than the share of all.
                b.per_worker = b.all;
            }
            for p in &mut b.curve {
                *p = (p.0 * f, p.1 * f);
            }
        };
        for l in &mut m.levels {
            rates(&mut l.read);
            rates(&mut l.write);
            if l.shared_by > 1 {
                l.bytes = scaled(&l.bytes, f);
                l.usable = l.usable.as_ref().map(|u| scaled(u, f));
                l.shared_by = ((l.shared_by as f64 * f) as u64).max(1);
            }
            // The bus is that of the whole.
            l.bus = None;
        }
        for u in &mut m.units {
            u.all = scaled(&u.all, f);
        }
        m
    }
}
