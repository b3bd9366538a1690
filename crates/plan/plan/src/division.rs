//! Batch, instances and workers per instance, chosen from predictions.
use crate::{Alternative, Goal, Why};
use layout::Arrange;
use serde::{Deserialize, Serialize};

/// A gain in throughput below this share does not pay for a larger batch or more instances.
const WORTH: f64 = 0.02;
/// Ways whose throughputs are predicted closer than this cannot be told apart: whole models are predicted
/// about so well.
const UNSURE: f64 = 0.1;

/// What one way to run a model is predicted to take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Items of a run.
    pub batch: u32,
    /// Workers of a run.
    pub workers: u32,
    /// Seconds of a run that has the machine for itself.
    pub seconds: f64,
    /// Seconds that the run's traffic with main memory takes at the rate of the whole machine: what
    /// instances share, however many workers each has.
    pub memory_s: f64,
}

impl Prediction {
    /// Seconds of one of `instances` runs at once.
    pub fn beside(&self, instances: u32) -> f64 {
        self.seconds.max(f64::from(instances) * self.memory_s)
    }
}

/// Seconds that a worker which shares its core is off it at a stretch: a scheduler's time slice.
const SLICE_S: f64 = 3e-3;

/// Seconds of a run of `steps` steps that takes `seconds` on workers that have their cores for
/// themselves, on the best `workers` of those that have these `shares` of them: tasks go to who is free,
/// and at the end of each step everybody waits for the one that may be off its core. No longer than if all
/// stood still whenever that one is off: while they wait for it, no further step can.
pub fn on_shares(seconds: f64, workers: u32, shares: &[f64], steps: u64) -> f64 {
    let mut best: Vec<f64> = shares.iter().map(|s| s.clamp(0.0, 1.0)).collect();
    best.arrange_by(|a, b| b.total_cmp(a));
    best.truncate(workers.max(1) as usize);
    let Some(least) = best.last().copied() else {
        return seconds;
    };
    let sum: f64 = best.iter().sum();
    let stalls = match best.len() > 1 {
        true => steps as f64 * (1.0 - least) * 0.5 * SLICE_S,
        false => 0.0,
    };
    let helped = seconds * best.len() as f64 / sum.max(1e-3) + stalls;
    helped.min(seconds / least.max(1e-3))
}

/// Numbers worth trying up to `most`: powers of two, and `most` itself.
pub fn ladder(most: u32) -> Vec<u32> {
    let mut v: Vec<u32> = (0..32)
        .map(|i| 1u32 << i)
        .take_while(|n| *n < most)
        .collect();
    v.push(most.max(1));
    v
}

/// How good a division is for a goal; more is better.
pub fn value(goal: &Goal, d: &Division) -> f64 {
    match goal {
        Goal::Latency => 1.0 / d.latency_s.max(1e-12),
        Goal::Throughput { .. } => d.throughput,
    }
}

/// How a model is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Division {
    /// Items of a run at most.
    pub batch: u32,
    /// Runs at once.
    pub instances: u32,
    /// Workers of each.
    pub workers: u32,
    /// Predicted items per second when there is always something to do.
    pub throughput: f64,
    /// Predicted seconds from a request's arrival to its end at that rate.
    pub latency_s: f64,
    /// Seconds that a request may be held back so that a batch fills and the bound is kept; 0
    /// without a bound.
    pub max_delay_s: f64,
    /// What a further item adds to a run, as a share of what an item takes alone.
    pub marginal: f64,
    /// The reason.
    pub why: Why,
}

/// Seconds from arrival to end where runs follow each other without a gap: a request of a batch waits
/// for the next run to begin, one of `instances` that begin in turn, and then for its own.
fn latency(run_s: f64, batch: u32, instances: u32) -> f64 {
    match batch {
        0 | 1 => run_s,
        _ => run_s * (1.0 + 1.0 / f64::from(instances.max(1))),
    }
}

struct Way {
    p: Prediction,
    instances: u32,
    run_s: f64,
    latency_s: f64,
    throughput: f64,
}

impl Way {
    fn text(&self) -> String {
        format!(
            "batch {}, {} x {} workers",
            self.p.batch, self.instances, self.p.workers
        )
    }
}

/// The best division of `workers` workers for `goal`, out of what was predicted; the bound of
/// [`Goal::Throughput`] counts. `None` when nothing was predicted that `workers` can run.
///
/// For latency: one item, the workers with the shortest run, and as many instances as fit. For
/// throughput: most items per second among the ways within the bound; where none is within it, the
/// one with the shortest latency, and the reason says so.
pub fn choose(
    model: &str,
    predictions: &[Prediction],
    goal: &Goal,
    workers: u32,
) -> Option<Division> {
    let workers = workers.max(1);
    let sound = |p: &&Prediction| {
        p.batch > 0
            && (1..=workers).contains(&p.workers)
            && p.seconds.is_finite()
            && p.seconds > 0.0
            && p.memory_s.is_finite()
    };
    let mut ways: Vec<Way> = Vec::new();
    for p in predictions.iter().filter(sound) {
        for instances in 1..=workers / p.workers {
            let run_s = p.beside(instances);
            ways.push(Way {
                p: *p,
                instances,
                run_s,
                latency_s: latency(run_s, p.batch, instances),
                throughput: f64::from(instances) * f64::from(p.batch) / run_s,
            });
        }
    }
    let (chosen, reason) = match goal {
        Goal::Latency => shortest(&mut ways, workers)?,
        Goal::Throughput { max_latency_s } => fastest(&mut ways, *max_latency_s)?,
    };
    let w = ways.get(chosen)?;
    let alternatives = ways
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != chosen)
        .take(4)
        .map(|(_, w)| Alternative {
            what: format!(
                "{}: {} items/s",
                w.text(),
                machine::units::count(w.throughput)
            ),
            predicted_s: w.latency_s,
        })
        .collect();
    let marginal = marginal(w, predictions);
    let max_delay_s = match goal {
        Goal::Throughput {
            max_latency_s: Some(b),
        } if w.p.batch > 1 => ((b - w.latency_s) / 2.0).clamp(0.0, w.run_s),
        _ => 0.0,
    };
    Some(Division {
        batch: w.p.batch,
        instances: w.instances,
        workers: w.p.workers,
        throughput: w.throughput,
        latency_s: w.latency_s,
        max_delay_s,
        marginal,
        why: Why {
            pass: "division".into(),
            subject: model.into(),
            choice: w.text(),
            alternatives,
            reason,
        },
    })
}

/// Sorts ways by two numbers, then so that equal ones have one order.
fn sort_by(key: &dyn Fn(&Way) -> (f64, f64), list: &mut [Way]) {
    list.arrange_by(|a, b| {
        let (x, y) = (key(a), key(b));
        (x.0.total_cmp(&y.0))
            .then(x.1.total_cmp(&y.1))
            .then(a.p.batch.cmp(&b.p.batch))
            .then(a.instances.cmp(&b.instances))
            .then(a.p.workers.cmp(&b.p.workers))
    });
}

/// The way with the shortest run of the smallest batch, by its place among those, and why.
fn shortest(ways: &mut Vec<Way>, workers: u32) -> Option<(usize, String)> {
    let least = ways.iter().map(|w| w.p.batch).min()?;
    ways.retain(|w| w.p.batch == least);
    sort_by(&|w| (w.p.seconds, -f64::from(w.instances)), ways);
    // Workers that bring next to nothing are better left to other requests.
    let best = ways.first()?.p.seconds;
    let enough = |w: &&Way| w.p.seconds <= best * (1.0 + WORTH);
    let fewest = ways.iter().filter(enough).map(|w| w.p.workers).min()?;
    let at = (0..ways.len())
        .filter(|&i| enough(&&ways[i]) && ways[i].p.workers == fewest)
        .max_by_key(|&i| ways[i].instances)?;
    let reason = format!(
        "a request alone is predicted to take {:.3} ms with {fewest} of {workers} workers, which is the least or within {:.0}% of it",
        1e3 * ways[at].p.seconds,
        100.0 * WORTH
    );
    Some((at, reason))
}

/// The way with most items per second within the bound, or else the shortest latency, by its place, and why.
fn fastest(ways: &mut Vec<Way>, max_latency_s: Option<f64>) -> Option<(usize, String)> {
    let bound = max_latency_s.unwrap_or(f64::INFINITY);
    let within = |w: &Way| w.latency_s <= bound;
    if !ways.iter().any(within) {
        sort_by(&|w| (w.latency_s, -w.throughput), ways);
        let reason = format!(
            "no way keeps a latency of {:.3} ms; this one comes closest",
            1e3 * bound
        );
        return Some((0, reason));
    }
    ways.retain(within);
    sort_by(&|w| (-w.throughput, w.latency_s), ways);
    let most = ways.first()?.throughput;
    // What workers of one run lose to each other is predicted worst: where no latency asks for
    // several of them, each has a run of its own.
    let (near, few): (f64, &dyn Fn(&Way) -> u32) = match max_latency_s {
        Some(_) => (WORTH, &|_| 0),
        None => (UNSURE, &|w| w.p.workers),
    };
    let key = |i: usize| (few(&ways[i]), ways[i].latency_s);
    let at = (0..ways.len())
        .filter(|&i| ways[i].throughput >= most * (1.0 - near))
        .min_by(|&a, &b| {
            let ((f, l), (g, m)) = (key(a), key(b));
            f.cmp(&g).then(l.total_cmp(&m))
        })?;
    let reason = match max_latency_s {
        Some(b) => format!(
            "most items per second of what keeps a latency of {:.3} ms, within {:.0}%",
            1e3 * b,
            100.0 * WORTH
        ),
        None => format!(
            "most items per second, within {:.0}% the fewest workers for each run",
            100.0 * UNSURE
        ),
    };
    Some((at, reason))
}

/// What each further item of a batch takes, as a share of the first one's time.
fn marginal(w: &Way, predictions: &[Prediction]) -> f64 {
    let alike = predictions
        .iter()
        .filter(|p| p.workers == w.p.workers && p.batch > 0);
    alike.min_by_key(|p| p.batch).map_or(1.0, |s| {
        let one = s.seconds / f64::from(s.batch);
        match w.p.batch {
            0 | 1 => 1.0,
            b => ((w.p.seconds / one - 1.0) / f64::from(b - 1)).clamp(0.0, 1.0),
        }
    })
}
