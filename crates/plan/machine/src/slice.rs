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

#[cfg(test)]
mod tests {
    use crate::Machine;

    #[test]
    fn a_slice_has_its_share_and_a_worker_no_more_than_that() {
        let m = Machine::load("a100").unwrap();
        let s = m.slice(4);
        assert_eq!(s.worker_count(), 4);
        for (a, b) in m.levels.iter().zip(&s.levels) {
            let own = a.read.per_worker.value.min(b.read.all.value);
            assert_eq!(b.read.per_worker.value, own, "{}", a.name);
            assert!(b.read.at(4) <= b.read.all.value, "{}", a.name);
            let f = b.read.all.value / a.read.all.value;
            assert!((f - 4.0 / 108.0).abs() < 1e-12, "{}", a.name);
        }
        let l2 = |m: &Machine| m.level("L2").unwrap().bytes.value;
        assert!((l2(&s) / l2(&m) - 4.0 / 108.0).abs() < 1e-12);
        assert_eq!(
            s.level("shared").unwrap().bytes,
            m.level("shared").unwrap().bytes
        );
        assert_eq!(m.slice(0).worker_count(), 1);
        assert_eq!(m.slice(1000), m);
    }
}
