//! Changes of a machine description for what-if questions: twice the L2, half as much bandwidth again.

use crate::{Bandwidth, Machine, Sourced, UnitClass};
use std::str::FromStr;

/// By how much.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// A factor on what there is.
    Times(f64),
    /// A value in SI units.
    To(f64),
}

impl How {
    fn of(self, old: f64) -> f64 {
        match self {
            How::Times(f) => old * f,
            How::To(v) => v,
        }
    }
}

/// A change of one property: `l2=2x`, `bandwidth=+50%`, `memory=141GB`, `launch=2us`, `sms=132`.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    text: String,
    what: String,
    part: String,
    how: How,
}

/// What can be set, for people.
pub const CHANGES: &str = "bandwidth, latency and memory (those of the main memory), a level (l2, shared, ...: its size; l2.bandwidth, l2.latency), workers, clock, a unit (tensor, fma, ... or tensor.f16), a link (pcie, nvlink; pcie.latency), registers, launch, step, task, handoff, wake or overhead (all of these)";

/// Factors that are asked about lie between these; further off is a slip.
const FACTORS: std::ops::RangeInclusive<f64> = 1e-6..=1e6;

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A number with a unit, in SI units.
fn quantity(text: &str) -> Option<f64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let v: f64 = digits.parse().ok()?;
    let unit = unit.trim();
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "s" | "hz" | "flops" => 1.0,
        "k" | "kb" | "khz" => 1e3,
        "m" | "mb" | "mhz" | "mflops" => 1e6,
        "g" | "gb" | "ghz" | "gflops" => 1e9,
        "t" | "tb" | "tflops" => 1e12,
        "pflops" => 1e15,
        "kib" => 1024.0,
        "mib" => 1048576.0,
        "gib" => 1073741824.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    Some(v * scale)
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Change, String> {
        let wrong = || {
            format!(
                "'{text}' should be NAME=FACTORx, NAME=+PERCENT% or NAME=VALUE, such as l2=2x, bandwidth=+50% or memory=141GB"
            )
        };
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        let how = if let Some(f) = value.strip_suffix(['x', 'X']) {
            How::Times(f.trim().parse().map_err(|_| wrong())?)
        } else if let Some(p) = value.strip_suffix('%') {
            let p: f64 = p.trim().parse().map_err(|_| wrong())?;
            How::Times(1.0 + p / 100.0)
        } else {
            How::To(quantity(value).ok_or_else(wrong)?)
        };
        let fits = match how {
            How::Times(f) => FACTORS.contains(&f),
            How::To(v) => v.is_finite() && (0.0..1e21).contains(&v),
        };
        if name.is_empty() || !fits {
            return Err(wrong());
        }
        let (what, part) = match name.split_once('.') {
            Some((a, b)) => (a.to_string(), b.to_string()),
            None => (name, String::new()),
        };
        Ok(Change {
            text: text.to_string(),
            what,
            part,
            how,
        })
    }
}

fn scale(v: &mut Sourced, f: f64) {
    *v = Sourced::assumed(v.value * f);
}

fn scale_rates(b: &mut Bandwidth, f: f64) {
    scale(&mut b.per_worker, f);
    scale(&mut b.all, f);
    for p in &mut b.curve {
        p.1 *= f;
    }
}

/// Scales both rates of a level, and the pins behind it.
fn scale_level(m: &mut Machine, i: usize, f: f64) {
    let l = &mut m.levels[i];
    scale_rates(&mut l.read, f);
    scale_rates(&mut l.write, f);
    if let Some(bus) = &mut l.bus {
        scale(&mut bus.pin_bits_per_s, f);
    }
}

fn scale_count(v: &mut Option<Sourced<u64>>, f: f64) {
    if let Some(v) = v {
        *v = Sourced::assumed(((v.value as f64 * f) as u64).max(1));
    }
}

impl Change {
    /// Changes `m`.
    ///
    /// # Errors
    /// The machine has nothing of that name, or would be none any more; in one sentence.
    pub fn apply(&self, m: &mut Machine) -> Result<(), String> {
        let before = m.clone();
        if !self.try_apply(m) {
            *m = before;
            let levels: Vec<&str> = m.levels.iter().map(|l| l.name.as_str()).collect();
            return Err(format!(
                "'{}': {} has nothing that is called so; its levels are {}, and what can be set is {CHANGES}",
                self.text,
                m.name,
                levels.join(", ")
            ));
        }
        if let Err(e) = m.check() {
            *m = before;
            return Err(format!("'{}' leaves no machine: {e}", self.text));
        }
        Ok(())
    }

    /// Whether there was something to change.
    fn try_apply(&self, m: &mut Machine) -> bool {
        let memory = m.memory_index();
        match (self.what.as_str(), self.part.as_str()) {
            ("bandwidth", "") => self.bandwidth(m, memory),
            ("latency", "") => self.latency(m, memory),
            ("memory" | "dram", part) => self.level(m, memory, part),
            ("workers" | "sms" | "cores" | "sm", "") => self.workers(m),
            ("clock", "") => self.clock(m),
            ("registers", "") => self.registers(m),
            ("launch", "") => self.cost(&mut m.costs.launch_s),
            ("step", "") => self.cost(&mut m.costs.step_s),
            ("task", "") => self.cost(&mut m.costs.task_s),
            ("handoff", "") => self.cost(&mut m.costs.handoff_s),
            ("wake", "") => self.cost(&mut m.costs.wake_s),
            ("overhead", "") => {
                m.costs.ways = m.way_costs();
                let c = &mut m.costs;
                let ways = c.ways.iter_mut().flat_map(|w| w.seconds_mut());
                ways.chain([
                    &mut c.launch_s,
                    &mut c.step_s,
                    &mut c.task_s,
                    &mut c.tile_s,
                    &mut c.row_s,
                    &mut c.call_s,
                    &mut c.handoff_s,
                    &mut c.wake_s,
                ])
                .all(|v| self.cost(v))
            }
            (name, part) => {
                if let Some(i) = m.level_index(name) {
                    return self.level(m, i, part);
                }
                self.link(m, name, part) || self.unit(m, name, part)
            }
        }
    }

    fn cost(&self, v: &mut Sourced) -> bool {
        *v = Sourced::assumed(self.how.of(v.value));
        true
    }

    fn level(&self, m: &mut Machine, i: usize, part: &str) -> bool {
        match part {
            "" | "size" | "bytes" => self.size(m, i),
            "bandwidth" => self.bandwidth(m, i),
            "latency" => self.latency(m, i),
            _ => false,
        }
    }

    /// Another level is the same memory: it changes with it.
    fn same(m: &Machine, i: usize) -> Vec<usize> {
        let (own, place) = (&m.levels[i].name, m.levels[i].same_place_as.as_ref());
        let also =
            |l: &crate::Level| place == Some(&l.name) || l.same_place_as.as_ref() == Some(own);
        let others = (0..m.levels.len()).filter(|&j| j != i && also(&m.levels[j]));
        std::iter::once(i).chain(others).collect()
    }

    fn size(&self, m: &mut Machine, i: usize) -> bool {
        let old = m.levels[i].bytes.value;
        let f = self.how.of(old) / old;
        let l = &mut m.levels[i];
        scale(&mut l.bytes, f);
        if let Some(u) = &mut l.usable {
            scale(u, f);
        }
        if l.name == "shared" {
            let l = &mut m.limits;
            scale_count(&mut l.shared_per_sm, f);
            scale_count(&mut l.shared_per_cta, f);
            for c in &mut l.shared_carveouts {
                *c = (*c as f64 * f) as u64;
            }
        }
        true
    }

    fn bandwidth(&self, m: &mut Machine, i: usize) -> bool {
        let old = m.levels[i].peak();
        let f = self.how.of(old) / old;
        for j in Change::same(m, i) {
            scale_level(m, j, f);
        }
        true
    }

    fn latency(&self, m: &mut Machine, i: usize) -> bool {
        for j in Change::same(m, i) {
            let v = &mut m.levels[j].latency_s;
            *v = Sourced::assumed(self.how.of(v.value));
        }
        true
    }

    /// More workers have more units and more private memories; what they share stays as it is.
    fn workers(&self, m: &mut Machine) -> bool {
        let old = m.workers.count.value.max(1) as f64;
        let new = self.how.of(old).round().min(1e6);
        let f = new / old;
        m.workers.count = Sourced::assumed(new as u64);
        for u in &mut m.units {
            scale(&mut u.all, f);
        }
        for l in &mut m.levels {
            if l.is_private() {
                scale(&mut l.read.all, f);
                scale(&mut l.write.all, f);
                l.read.curve.clear();
                l.write.curve.clear();
            } else {
                l.shared_by = ((l.shared_by as f64 * f).round() as u64).max(1);
            }
        }
        true
    }

    /// A faster clock makes units and everything on the chip faster; the memory keeps its own.
    fn clock(&self, m: &mut Machine) -> bool {
        let old = m.workers.clock_hz.value;
        let f = self.how.of(old) / old;
        scale(&mut m.workers.clock_hz, f);
        for u in &mut m.units {
            scale(&mut u.per_worker, f);
            scale(&mut u.all, f);
        }
        for i in 0..m.memory_index() {
            scale_level(m, i, f);
            scale(&mut m.levels[i].latency_s, 1.0 / f);
        }
        true
    }

    fn registers(&self, m: &mut Machine) -> bool {
        let Some(old) = m.limits.registers_per_sm else {
            return false;
        };
        let f = self.how.of(old.value as f64) / old.value.max(1) as f64;
        scale_count(&mut m.limits.registers_per_sm, f);
        if let Some(i) = m.level_index("register") {
            scale(&mut m.levels[i].bytes, f);
        }
        true
    }

    fn link(&self, m: &mut Machine, name: &str, part: &str) -> bool {
        let Some(l) = m
            .links
            .iter_mut()
            .find(|l| l.name.eq_ignore_ascii_case(name))
        else {
            return false;
        };
        match part {
            "" | "bandwidth" => {
                let f = self.how.of(l.bandwidth.value) / l.bandwidth.value;
                scale(&mut l.bandwidth, f);
                let to = l.to.clone();
                if let Some(i) = m.level_index(&to).filter(|&i| i > m.memory_index()) {
                    scale_level(m, i, f);
                }
                true
            }
            "latency" => self.cost(&mut l.latency_s),
            _ => false,
        }
    }

    fn unit(&self, m: &mut Machine, name: &str, part: &str) -> bool {
        let class = |u: &crate::Unit| u.class.to_string() == name;
        let known = |u: &crate::Unit| u.name.eq_ignore_ascii_case(name) || class(u);
        let format = |u: &crate::Unit| part.is_empty() || u.dtype_in.to_string() == part;
        let fastest = m
            .units
            .iter()
            .filter(|u| known(u) && format(u) && u.class != UnitClass::Element)
            .map(|u| u.all.value)
            .fold(0.0, f64::max);
        if fastest <= 0.0 {
            return false;
        }
        // A rate given as such is that of the fastest; the others keep their ratios to it.
        let f = self.how.of(fastest) / fastest;
        for u in m.units.iter_mut().filter(|u| known(u) && format(u)) {
            scale(&mut u.per_worker, f);
            scale(&mut u.all, f);
        }
        true
    }
}
