//! CTAs that do not depend on each other, on several threads.

use super::run::{Run, RunState};
use super::{Launch, Outcome, Plan, Unfinished, summary};
use crate::checks::{Kind as Finding, Report};
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
    if plan.together()
        || l.requests
        || threads < 2
        || l.repeat_findings && mem.in_use() > MOST_COPIED
    {
        return None;
    }
    let live = || {
        mem.allocations
            .iter()
            .filter(|a| !a.freed && a.kind != Kind::Const)
    };
    let copies: Vec<_> = match l.repeat_findings {
        true => live().map(|a| a.snapshot()).collect(),
        false => vec![],
    };
    let next = AtomicU32::new(0);
    let (limit, next) = (l.step_limit / threads as u64, &next);
    let mut runs: Vec<(Run, RunState)> = std::thread::scope(|s| {
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
            .all(|(r, s)| *s == RunState::Done && r.world.reports.list.is_empty());
    let clash = l.checks.races
        && runs.iter().enumerate().any(|(k, (a, _))| {
            let mut others = runs[k + 1..].iter();
            others.any(|(b, _)| a.world.clash(&b.world))
        });
    if (!clean || clash) && l.repeat_findings {
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
    if runs.len() < threads {
        return None;
    }
    let mut reports = Vec::new();
    for (r, s) in runs.iter_mut().filter(|_| !clean) {
        match s {
            RunState::Stuck => r.give_up(mem, Finding::Deadlock, "no warp can go on"),
            RunState::Going => {
                let why = format!("{limit} instructions were not enough");
                r.give_up(mem, Finding::StepLimit, &why);
            }
            RunState::Done | RunState::Fault => {}
        }
        reports.extend(r.world.reports.list.iter().cloned());
    }
    if clash {
        reports.push(Report {
            kind: Finding::GlobalRace,
            line: 0,
            other_line: None,
            kernel: plan.kernel.name.clone(),
            cta: None,
            warp: 0,
            lane: 0,
            message: "CTAs touch the same words, one of them writing, and nothing orders them; \
                      run it again in order to see where"
                .into(),
            count: 1,
        });
    }
    Some(Outcome {
        reports,
        counters: summary(&plan.kernel, &counts),
        threads,
        requests: Vec::new(),
        unfinished: Unfinished(runs.iter().fold(0, |all, r| all | r.0.world.under_way())),
    })
}
