//! CTAs that do not depend on each other, on several threads.

use super::run::{Run, Stand};
use super::{Launch, Outcome, Plan, summary};
use crate::memory::{Kind, Memory};
use std::sync::atomic::AtomicU32;

/// Most bytes copied so that a run in which something is found can be repeated in order.
const MOST_COPIED: u64 = 1 << 28;

/// Runs the launch that way, if it is one of those and nothing is found; leaves memory as it was
/// otherwise.
pub(crate) fn run(mem: &Memory, plan: &Plan, l: &Launch) -> Option<Outcome> {
    let threads = match l.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let threads = threads.min(plan.ctas as usize);
    if plan.kernel.communicates || threads < 2 || mem.in_use() > MOST_COPIED {
        return None;
    }
    let live = || {
        mem.allocations
            .iter()
            .filter(|a| !a.freed && a.kind != Kind::Const)
    };
    let copies: Vec<_> = live().map(|a| a.snapshot()).collect();
    let next = AtomicU32::new(0);
    let (limit, next) = (l.step_limit / threads as u64, &next);
    let runs: Vec<(Run, Stand)> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let plan = plan.clone();
                s.spawn(move || {
                    let mut run = Run::new(plan, l, 1, true);
                    let stand = run.go(mem, limit, next);
                    (run, stand)
                })
            })
            .collect();
        workers.into_iter().filter_map(|w| w.join().ok()).collect()
    });
    let clean = runs.len() == threads
        && runs
            .iter()
            .all(|(r, s)| *s == Stand::Done && r.world.reports.list.is_empty());
    let clash = l.checks.races
        && runs.iter().enumerate().any(|(k, (a, _))| {
            let mut others = runs[k + 1..].iter();
            others.any(|(b, _)| a.world.clash(&b.world))
        });
    if !clean || clash {
        // Once more, interleaved on one thread: the same seed then finds the same.
        for (a, c) in live().zip(&copies) {
            a.restore(c);
        }
        return None;
    }
    let mut counts = runs[0].0.world.counts.clone();
    for (r, _) in &runs[1..] {
        for (c, o) in counts.iter_mut().zip(&r.world.counts) {
            c.add(o);
        }
    }
    Some(Outcome {
        reports: Vec::new(),
        counters: summary(&plan.kernel, &counts),
        threads,
    })
}
