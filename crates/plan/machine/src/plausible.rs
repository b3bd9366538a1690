//! What measurements cannot be: rates that no core has, and all cores together slower than one of them.

use crate::{Machine, Measurements, NumType, OpRate, UnitClass, WorkerPoint};
use layout::Arrange;
use std::fmt;

/// Of repeated measurements on a machine that is in use this much is left to chance.
const LESS: f64 = 0.9;
const MORE: f64 = 1.15;
/// A share of the curve between two levels belongs to either.
const BETWEEN_LEVELS: f64 = 1.5;
/// How far a core runs beyond its nominal frequency at most, where its frequency was not measured.
const BOOST: f64 = 1.8;
/// Bytes that a core loads and stores in a cycle at most: three and two vectors of 64 bytes.
const LOADED: f64 = 192.0;
const STORED: f64 = 128.0;

/// What a contradiction is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The rate at this index of [`Measurements::ops`].
    Rate(usize),
    /// The bandwidths and the latency of the level at this index of [`Measurements::levels`].
    Level(usize),
    /// What threads cost one another.
    Threads,
}

/// Something that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// What has to be measured again.
    pub of: Subject,
    why: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

struct Check<'a> {
    out: Vec<Contradiction>,
    hz: f64,
    m: &'a Measurements,
}

impl Check<'_> {
    fn say(&mut self, of: &Subject, why: String) {
        // One is enough to measure it again.
        if !self.out.iter().any(|c| c.of == *of) {
            self.out.push(Contradiction {
                of: of.clone(),
                why,
            });
        }
    }

    /// Rates of `what` with more and more workers, of which one alone has at most `most` a second.
    fn curve(&mut self, of: &Subject, what: &str, points: &[WorkerPoint], most: f64) {
        let giga = |v: f64| format!("{:.2}", v * 1e-9);
        if let Some(p) = points.iter().find(|p| !(p.per_s > 0.0 && p.per_s < 1e18)) {
            let why = format!("{what} is {} a second with {}", p.per_s, cores(p.workers));
            return self.say(of, why);
        }
        let mut sorted: Vec<&WorkerPoint> = points.iter().collect();
        sorted.arrange_by_key(|p| p.workers);
        let Some((first, more)) = sorted.split_first() else {
            return;
        };
        let one = first.per_s / first.workers.max(1) as f64;
        if one > most * MORE {
            let why = format!(
                "{what} of one core is {} G/s, and {} GHz times its width are {} G/s",
                giga(one),
                giga(self.hz),
                giga(most)
            );
            self.say(of, why);
        }
        for p in more {
            let all = one * p.workers as f64;
            if p.per_s < first.per_s * LESS || p.per_s > all * MORE {
                let than = match p.per_s > all {
                    true => format!("more than {} times", p.workers),
                    false => "less than".into(),
                };
                let why = format!(
                    "{what} of {} is {} G/s, {than} the {} G/s of {}",
                    cores(p.workers),
                    giga(p.per_s),
                    giga(first.per_s),
                    cores(first.workers)
                );
                self.say(of, why);
            }
        }
    }

    fn rates(&mut self) {
        for (i, r) in self.m.ops.iter().enumerate() {
            let isa = if r.isa.is_empty() { "" } else { " with " };
            let what = format!("the rate of {} {}{isa}{}", r.class, r.dtype, r.isa);
            let most = per_cycle(r) * self.hz;
            self.curve(&Subject::Rate(i), &what, &r.rate, most);
        }
    }

    fn levels(&mut self) {
        let mut before: Option<(f64, f64, &str)> = None;
        for (i, l) in self.m.levels.iter().enumerate() {
            let of = Subject::Level(i);
            let (read, write) = (LOADED * self.hz, STORED * self.hz);
            for (op, list, most) in [
                ("reading", &l.read, read),
                ("writing", &l.write, write),
                ("copying", &l.copy, read),
            ] {
                self.curve(&of, &format!("{op} {}", l.name), list, most);
            }
            let one = |list: &[WorkerPoint]| list.iter().find(|p| p.workers == 1).map(|p| p.per_s);
            let (Some(read), Some(latency)) = (one(&l.read), l.latency_s) else {
                continue;
            };
            if latency * self.hz * MORE < 1.0 {
                let why = format!(
                    "a load from {} takes {:.2} ns, less than a cycle",
                    l.name,
                    latency * 1e9
                );
                self.say(&of, why);
            }
            if let Some((faster, sooner, name)) = before
                && (read > faster * BETWEEN_LEVELS || latency * BETWEEN_LEVELS < sooner)
            {
                self.say(&of, format!("{} is nearer than {name}", l.name));
            }
            before = Some((read, latency, &l.name));
        }
    }

    fn threads(&mut self) {
        if let (Some(running), Some(parked)) = (self.m.handoff_s, self.m.wake_s)
            && running > parked * BETWEEN_LEVELS
        {
            let why = format!(
                "a running thread hears of its work after {:.2} us, a parked one after {:.2} us",
                running * 1e6,
                parked * 1e6
            );
            self.say(&Subject::Threads, why);
        }
    }
}

fn cores(n: u64) -> String {
    match n {
        1 => "one core".into(),
        n => format!("{n} cores"),
    }
}

/// Operations that one core does in a cycle at most: two of the widest vector instructions, four of narrow ones
/// and of comparisons and sums.
fn per_cycle(r: &OpRate) -> f64 {
    let lanes = r.lanes.max(1) as f64;
    let bytes = lanes
        * match r.dtype {
            NumType::F64 => 8.0,
            NumType::F32 => 4.0,
            NumType::I8 => 1.0,
            _ => 2.0,
        };
    match r.class {
        UnitClass::Fma | UnitClass::Tensor => 2.0 * lanes * if bytes >= 32.0 { 2.0 } else { 4.0 },
        UnitClass::Simple => 4.0 * lanes,
        UnitClass::Divsqrt | UnitClass::Transcendental => lanes,
        UnitClass::Element => 4.0,
    }
}

impl Measurements {
    /// What of these measurements cannot be on `m`, as it was described before it was measured; nothing where
    /// all is well.
    pub fn contradictions(&self, m: &Machine) -> Vec<Contradiction> {
        let nominal = m.workers.clock_hz.value * BOOST;
        let mut check = Check {
            out: Vec::new(),
            hz: self.clock_hz.unwrap_or(nominal),
            m: self,
        };
        check.rates();
        check.levels();
        check.threads();
        check.out
    }

    /// The same without what `contradictions` are about.
    pub fn without(&self, contradictions: &[Contradiction]) -> Measurements {
        let about = |of: Subject| contradictions.iter().any(|c| c.of == of);
        let mut out = self.clone();
        let mut i = 0..;
        out.ops
            .retain(|_| !about(Subject::Rate(i.next().unwrap_or(usize::MAX))));
        let mut i = 0..;
        out.levels
            .retain(|_| !about(Subject::Level(i.next().unwrap_or(usize::MAX))));
        if about(Subject::Threads) {
            (out.handoff_s, out.wake_s, out.wake_call_s) = (None, None, None);
        }
        out
    }
}
