//! What is measured, point by point, and what comes of it.

use super::error::CalibrateError;
use super::loops::{self, Memory};
use super::rate::Rate;
use super::{kernels, team};
use crate::isa::Isa;
use layout::Arrange;
use machine::{
    BandwidthPoint, Contradiction, Extent, LatencyPoint, LevelMeasure, Machine, Measurements,
    OpRate, Subject, WorkerPoint,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Operations of a level, in the order in which they are measured.
const OPS: [Memory; 3] = [Memory::Read, Memory::Write, Memory::Copy];

/// One thing to measure: indices of [`Points`], and numbers of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Point {
    Clock,
    Rate(usize, usize),
    Bandwidth(usize, usize),
    Latency(usize),
    CurveBandwidth(usize, usize),
    CurveLatency(usize),
    Handoff,
    Wake,
    Tickets,
}

/// Everything found so far: for each point one list of numbers per repetition.
#[derive(Default)]
pub(super) struct Findings(BTreeMap<Point, Vec<Vec<f64>>>);

impl Findings {
    fn each(&self, p: Point, number: usize) -> impl Iterator<Item = f64> {
        let all = self.0.get(&p).into_iter().flatten();
        all.filter_map(move |v| v.get(number).copied())
    }

    fn most(&self, p: Point, number: usize) -> Option<f64> {
        self.each(p, number).reduce(f64::max)
    }

    fn least(&self, p: Point, number: usize) -> Option<f64> {
        self.each(p, number).reduce(f64::min)
    }

    /// How far repetitions lie apart, as a share of the greatest: the median over rates and bandwidths that were
    /// repeated.
    pub(super) fn spread(&self) -> Option<f64> {
        let mut all = Vec::new();
        for (p, found) in &self.0 {
            if found.len() > 1 && matches!(p, Point::Rate(..) | Point::Bandwidth(..)) {
                let (least, most) = (self.least(*p, 0)?, self.most(*p, 0)?);
                all.push(1.0 - least / most.max(f64::MIN_POSITIVE));
            }
        }
        all.arrange_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }
}

pub(super) struct Points<'a> {
    cpus: &'a [usize],
    /// The widest instruction set.
    isa: Isa,
    rates: Vec<Rate>,
    levels: Vec<LevelPlan>,
    /// Working sets of the curve.
    curve: Vec<f64>,
    /// In the order in which they are measured: what matters most first.
    pub(super) list: Vec<Point>,
}

impl<'a> Points<'a> {
    pub(super) fn new(m: &Machine, cpus: &'a [usize], extent: Extent) -> Points<'a> {
        let short = extent == Extent::Short;
        let isas: Vec<Isa> = Isa::ALL.into_iter().filter(|i| i.available()).collect();
        let levels = level_plans(m, cpus.len(), short);
        let mut out = Points {
            cpus,
            isa: isas.first().copied().unwrap_or(Isa::Portable),
            rates: kernels::rates(&isas),
            curve: if short {
                Vec::new()
            } else {
                curve_sizes(&levels)
            },
            levels,
            list: vec![Point::Clock],
        };
        let counts = match short {
            true => counts(cpus.len())
                .into_iter()
                .filter(|&n| n == 1 || n == cpus.len())
                .collect(),
            false => counts(cpus.len()),
        };
        for i in 0..out.rates.len() {
            out.list.extend(counts.iter().map(|&n| Point::Rate(i, n)));
        }
        for i in 0..out.levels.len() {
            out.list
                .extend(counts.iter().map(|&n| Point::Bandwidth(i, n)));
            out.list.push(Point::Latency(i));
        }
        if cpus.len() > 1 {
            out.list.extend([Point::Handoff, Point::Wake]);
        }
        out.list.push(Point::Tickets);
        for i in 0..out.curve.len() {
            out.list.push(Point::CurveBandwidth(i, 1));
            if cpus.len() > 1 {
                out.list.push(Point::CurveBandwidth(i, cpus.len()));
            }
            out.list.push(Point::CurveLatency(i));
        }
        out
    }

    /// Loops that one sweep measures.
    pub(super) fn loops(&self) -> usize {
        let of = |p: &Point| match p {
            Point::Bandwidth(..) => OPS.len(),
            Point::Handoff | Point::Wake => 2,
            _ => 1,
        };
        self.list.iter().map(of).sum::<usize>().max(1)
    }

    pub(super) fn name(&self, p: Point) -> String {
        let cores = |n: usize| {
            if n == 1 {
                "one core".into()
            } else {
                format!("{n} cores")
            }
        };
        let kib = |i: usize| self.curve[i] / 1024.0;
        match p {
            Point::Clock => "frequency".into(),
            Point::Rate(i, n) => {
                let r = &self.rates[i];
                format!("{} {} {} on {}", r.class, r.dtype, r.isa, cores(n))
            }
            Point::Bandwidth(i, n) => format!("{} on {}", self.levels[i].name, cores(n)),
            Point::Latency(i) => format!("{} latency", self.levels[i].name),
            Point::CurveBandwidth(i, n) => format!("{:.0} KiB on {}", kib(i), cores(n)),
            Point::CurveLatency(i) => format!("latency of {:.0} KiB", kib(i)),
            Point::Handoff => "hand-off between two cores".into(),
            Point::Wake => "wake-up of a parked thread".into(),
            Point::Tickets => "tickets".into(),
        }
    }

    /// Whether one of `wrong` is about what this point measures.
    pub(super) fn is_of(&self, p: Point, wrong: &[Contradiction]) -> bool {
        let of = match p {
            Point::Rate(i, _) => Subject::Rate(i),
            Point::Bandwidth(i, _) | Point::Latency(i) => Subject::Level(i),
            Point::Handoff | Point::Wake => Subject::Threads,
            _ => return false,
        };
        wrong.iter().any(|c| c.of == of)
    }

    /// Measures a point once more.
    pub(super) fn measure(
        &self,
        p: Point,
        slice: Duration,
        found: &mut Findings,
    ) -> Result<(), CalibrateError> {
        let first = self.cpus[0];
        let values = match p {
            Point::Clock => {
                let per_pass = loops::CHAIN as f64;
                let run = |_, passes| {
                    loops::chain(passes);
                };
                match loops::chain(1) {
                    true => team::measure(&self.cpus[..1], slice, 1, per_pass, &|| Box::new(run))?,
                    false => Vec::new(),
                }
            }
            Point::Rate(i, n) => {
                let r = &self.rates[i];
                team::measure(&self.cpus[..n], slice, 1, r.ops_per_pass, &|| {
                    let mut run = (r.make)();
                    Box::new(move |_, passes| run(passes))
                })?
            }
            Point::Bandwidth(i, n) => self.bandwidth(n, slice, &OPS, (self.levels[i].bytes)(n))?,
            Point::CurveBandwidth(i, n) => self.bandwidth(n, slice, &OPS[..1], self.curve[i])?,
            Point::Latency(i) => vec![team::latency(first, slice, self.levels[i].latency_bytes)?],
            Point::CurveLatency(i) => vec![team::latency(first, slice, self.curve[i])?],
            Point::Handoff => vec![team::handoff(first, self.cpus[1], slice * 2)?],
            Point::Wake => {
                let (wake, call) = team::wake(first, self.cpus[1], slice * 2)?;
                vec![wake, call]
            }
            Point::Tickets => vec![team::ticket(self.cpus, slice)?],
        };
        found.0.entry(p).or_default().push(values);
        Ok(())
    }

    fn bandwidth(
        &self,
        workers: usize,
        slice: Duration,
        ops: &'static [Memory],
        bytes: f64,
    ) -> Result<Vec<f64>, CalibrateError> {
        let lines = ((bytes / 64.0) as usize / 32 * 32).max(32);
        let (moved, isa) = ((lines * 64) as f64, self.isa);
        team::measure(&self.cpus[..workers], slice, ops.len(), moved, &|| {
            let mut buffer = loops::Buffer::new(lines);
            Box::new(move |op, passes| buffer.run(isa, ops[op], passes))
        })
    }

    /// What was found, without how it was found.
    pub(super) fn assemble(&self, found: &Findings) -> Measurements {
        let mut out = Measurements {
            clock_hz: found.most(Point::Clock, 0),
            handoff_s: found.least(Point::Handoff, 0),
            wake_s: found.least(Point::Wake, 0),
            wake_call_s: found.least(Point::Wake, 1),
            ticket_s: found.least(Point::Tickets, 0),
            ..Measurements::default()
        };
        let curve = |make: &dyn Fn(usize) -> Point, number: usize| -> Vec<WorkerPoint> {
            let of = |n: usize| {
                found.most(make(n), number).map(|per_s| WorkerPoint {
                    workers: n as u64,
                    per_s,
                })
            };
            (1..=self.cpus.len()).filter_map(of).collect()
        };
        for (i, r) in self.rates.iter().enumerate() {
            out.ops.push(OpRate {
                class: r.class,
                dtype: r.dtype,
                isa: r.isa.to_string(),
                lanes: r.lanes,
                rate: curve(&|n| Point::Rate(i, n), 0),
            });
        }
        for (i, plan) in self.levels.iter().enumerate() {
            let of = |op: usize| curve(&|n| Point::Bandwidth(i, n), op);
            out.levels.push(LevelMeasure {
                name: plan.name.clone(),
                bytes: (plan.bytes)(self.cpus.len()),
                read: of(0),
                write: of(1),
                copy: of(2),
                latency_s: found.least(Point::Latency(i), 0),
            });
        }
        self.curves(found, &mut out);
        out
    }

    /// The whole curves, levels and what lies between them.
    fn curves(&self, found: &Findings, out: &mut Measurements) {
        let point = |op: Memory, bytes: f64, n: usize, bytes_per_s: f64| BandwidthPoint {
            op: op.name().into(),
            bytes,
            workers: n as u64,
            bytes_per_s,
        };
        for &p in found.0.keys() {
            match p {
                Point::Bandwidth(i, n) => {
                    let bytes = (self.levels[i].bytes)(n);
                    let each = OPS.iter().enumerate();
                    out.bandwidth.extend(each.filter_map(|(number, op)| {
                        Some(point(*op, bytes, n, found.most(p, number)?))
                    }));
                }
                Point::CurveBandwidth(i, n) => {
                    let most = found.most(p, 0);
                    let read = most.map(|v| point(Memory::Read, self.curve[i], n, v));
                    out.bandwidth.extend(read);
                }
                Point::Latency(_) | Point::CurveLatency(_) => {
                    let bytes = match p {
                        Point::Latency(i) => self.levels[i].latency_bytes,
                        Point::CurveLatency(i) => self.curve[i],
                        _ => continue,
                    };
                    let least = found.least(p, 0);
                    out.latency
                        .extend(least.map(|seconds| LatencyPoint { bytes, seconds }));
                }
                _ => {}
            }
        }
        out.bandwidth.arrange_by(|a, b| {
            (&a.op, a.workers)
                .cmp(&(&b.op, b.workers))
                .then(a.bytes.total_cmp(&b.bytes))
        });
        out.latency.arrange_by(|a, b| a.bytes.total_cmp(&b.bytes));
    }
}

/// Numbers of active workers to measure: 1, the powers of two, and all.
fn counts(n: usize) -> Vec<usize> {
    let mut out: Vec<usize> = std::iter::successors(Some(1usize), |c| c.checked_mul(2))
        .take_while(|c| *c < n)
        .collect();
    out.push(n.max(1));
    out
}

struct LevelPlan {
    name: String,
    /// Working set of one worker when `n` are active.
    bytes: Box<dyn Fn(usize) -> f64>,
    latency_bytes: f64,
}

/// Working sets that stand for each level: half of a private cache; of a shared one what a worker can
/// count on, but clear of the level before; of memory a multiple of the last cache.
fn level_plans(m: &Machine, workers: usize, short: bool) -> Vec<LevelPlan> {
    let mut out = Vec::new();
    let mut nearer = 0.0f64;
    for (_, l) in m.caches() {
        let (capacity, shared_by) = (l.capacity(), l.shared_by.max(1) as usize);
        let floor = nearer * 2.0;
        let bytes = move |n: usize| {
            let share = capacity / n.min(shared_by) as f64;
            if shared_by == 1 {
                capacity * 0.5
            } else {
                (share * 0.75).max(floor)
            }
        };
        out.push(LevelPlan {
            name: l.name.clone(),
            latency_bytes: (capacity * 0.5).max(floor),
            bytes: Box::new(bytes),
        });
        nearer = l.bytes.value;
    }
    let memory = m.memory();
    let mib = 1048576.0;
    // Touching memory takes longer than reading it.
    let (times, most) = if short { (2.0, 256.0) } else { (4.0, 512.0) };
    let total = (nearer * times)
        .clamp(64.0 * mib, most * mib)
        .min((memory.bytes.value / 8.0).max(16.0 * mib));
    let per = total / workers.max(1) as f64;
    out.push(LevelPlan {
        name: memory.name.clone(),
        bytes: Box::new(move |n| (total / n.max(1) as f64).max(per)),
        latency_bytes: total,
    });
    out
}

/// Working sets between and beyond those of the levels, so that the curve shows where each level ends.
fn curve_sizes(plans: &[LevelPlan]) -> Vec<f64> {
    let low = plans
        .first()
        .map_or(16384.0, |p| p.latency_bytes / 2.0)
        .max(4096.0);
    let high = plans
        .last()
        .map_or(low, |p| p.latency_bytes / 2.0)
        .min(64.0 * 1048576.0);
    let mut out = Vec::new();
    let mut size = (low / 4096.0).round() * 4096.0;
    while size <= high {
        let known = |p: &LevelPlan| (p.bytes)(1) == size && p.latency_bytes == size;
        if !plans.iter().any(known) {
            out.push(size);
        }
        size *= 2.0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_counts_are_powers_of_two_and_all() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }
}
