//! The whole launch: CTAs executed one by one as SMs have room, and the clock over all SMs.

use super::cost::asks;
use super::memory::Far;
use super::order::orders;
use super::result::some;
use super::sm::{Ledger, Sm};
use super::trace::Trace;
use super::warps::Code;
use super::{ByReason, LineStalls, Reason, Stalls, Timing};
use crate::checks::Kind;
use crate::error::PtxError;
use crate::machine::run::{Run, RunState};
use crate::machine::{Launch, Outcome, Plan, Unfinished, summary};
use crate::memory::Memory;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU32;

/// Records and touches of CTAs in flight that are kept at most.
const ROOM: usize = 1 << 25;

/// Executes CTAs in the order of their numbers, each when it is asked for.
struct LaunchClock<'a> {
    run: Run,
    mem: &'a Memory,
    limit: u64,
    next: u32,
    ctas: u32,
    warps: usize,
    /// Records and touches that CTAs in flight hold.
    held: usize,
    /// Those of CTAs that had to be executed together.
    ready: BTreeMap<u32, Vec<Trace>>,
    stopped: bool,
    cut: bool,
}

impl<'a> LaunchClock<'a> {
    fn new(mem: &'a Memory, plan: Plan, l: &Launch) -> LaunchClock<'a> {
        let (ctas, together) = (plan.ctas, plan.together());
        let warps = plan.threads.div_ceil(32).max(1) as usize;
        let resident = if together { l.resident.max(1) } else { 1 };
        let mut feed = LaunchClock {
            run: Run::new(plan, l, resident, !together),
            mem,
            limit: l.step_limit,
            next: 0,
            ctas,
            warps,
            held: 0,
            ready: BTreeMap::new(),
            stopped: false,
            cut: false,
        };
        if together {
            feed.run.tracing(ROOM / (warps * ctas as usize).max(1));
            feed.go(&AtomicU32::new(0));
            feed.ready.extend(std::mem::take(&mut feed.run.traces));
            feed.cut = feed.ready.values().flatten().any(|t| t.cut);
        }
        feed
    }

    fn go(&mut self, next: &AtomicU32) {
        let left = self.limit.saturating_sub(self.run.world.steps);
        match self.run.go(self.mem, left, next) {
            RunState::Done => return,
            RunState::Stuck => self
                .run
                .give_up(self.mem, Kind::Deadlock, "no warp can go on"),
            RunState::Going => {
                let why = format!("{} instructions were not enough", self.limit);
                self.run.give_up(self.mem, Kind::StepLimit, &why);
            }
            RunState::Fault => {}
        }
        self.stopped = true;
    }

    /// What the next CTA executed; none when there is no other.
    fn take(&mut self) -> Option<(u32, Vec<Trace>)> {
        let index = self.next;
        if index >= self.ctas {
            return None;
        }
        self.next += 1;
        if self.run.plan().together() {
            return Some((index, self.ready.remove(&index)?));
        }
        if self.stopped || self.cut {
            return None;
        }
        self.run
            .tracing(ROOM.saturating_sub(self.held) / self.warps);
        self.run.up_to(index + 1);
        self.go(&AtomicU32::new(index));
        let (_, traces) = self.run.traces.pop()?;
        self.held += traces.iter().map(Trace::held).sum::<usize>();
        self.cut |= traces.iter().any(|t| t.cut);
        Some((index, traces))
    }
}

/// Runs the launch on the clock.
pub(crate) fn time(
    mem: &Memory,
    plan: Plan,
    launch: &Launch,
    t: &Timing,
) -> Result<(Outcome, Stalls), PtxError> {
    let k = plan.kernel.clone();
    let refuse = |what: String| PtxError::Launch {
        kernel: launch.kernel.clone(),
        what,
    };
    let no_unit = |line: u32| {
        refuse(format!(
            "it cannot be timed: line {line} needs a unit that the machine has none of"
        ))
    };
    let all = asks(&k);
    let mut l = Ledger {
        k: &k,
        t,
        code: Code {
            k: &k,
            orders: orders(&k, &all, t.registers),
            asks: all,
        },
        far: Far::new(t),
        by_pc: vec![ByReason::default(); k.code.len()],
        links: HashMap::new(),
        total: ByReason::default(),
        warps: 0,
        slots: 0,
        each: Vec::new(),
        intervals: Vec::new(),
    };
    let mut feed = LaunchClock::new(mem, plan, launch);
    let mut sms: Vec<Sm> = (0..t.sms).map(|n| Sm::new(n, t)).collect();
    let start = t.cta_start.ceil() as u64;
    'places: for _ in 0..t.ctas_per_sm {
        for sm in &mut sms {
            let Some((cta, traces)) = feed.take() else {
                break 'places;
            };
            sm.begin(&mut l, cta, traces, start);
        }
    }
    let mut end = 0u64;
    while !feed.cut {
        let now = sms.iter().map(Sm::next).min().unwrap_or(u64::MAX);
        if now == u64::MAX {
            let mut any = false;
            for sm in &mut sms {
                any |= sm.force(&mut l, end);
            }
            any |= refill(&mut sms, &mut feed, &mut l, start, &mut end);
            if any {
                continue;
            }
            break;
        }
        end = end.max(now);
        for sm in &mut sms {
            if sm.next() <= now {
                sm.cycle(&mut l, now).map_err(no_unit)?;
            }
        }
        refill(&mut sms, &mut feed, &mut l, start, &mut end);
    }
    if feed.cut {
        return Err(refuse(format!(
            "its CTAs in flight execute more than {ROOM} instructions and accesses, which is more than \
             is kept to be timed; time a smaller grid or shorter loops"
        )));
    }
    let counters = summary(&k, &feed.run.world.counts);
    let outcome = Outcome {
        reports: feed.run.world.reports.list.clone(),
        counters,
        threads: 1,
        requests: feed.run.world.requests(),
        unfinished: Unfinished(feed.run.world.under_way()),
    };
    let cycles = end.max(l.far.drained().ceil() as u64);
    let mut bytes = [0.0, 0.0, l.far.l2_bytes, l.far.device_bytes];
    for sm in &sms {
        let own = sm.bytes();
        bytes[0] += own[0];
        bytes[1] += own[1];
    }
    Ok((outcome, stalls(l, cycles, bytes)))
}

/// CTAs for the places that became free; whether there was one.
fn refill(
    sms: &mut [Sm],
    feed: &mut LaunchClock,
    l: &mut Ledger,
    start: u64,
    end: &mut u64,
) -> bool {
    let mut any = false;
    for sm in sms {
        while let Some((at, held)) = sm.freed.pop() {
            *end = (*end).max(at);
            feed.held = feed.held.saturating_sub(held);
            if let Some((cta, traces)) = feed.take() {
                sm.begin(l, cta, traces, at + start);
                any = true;
            }
        }
    }
    any
}

fn stalls(mut l: Ledger, cycles: u64, bytes: [f64; 4]) -> Stalls {
    let k = l.k;
    let mut lines: BTreeMap<u32, (u64, ByReason)> = BTreeMap::new();
    for (i, own) in k.code.iter().zip(&l.by_pc) {
        if own.iter().all(|c| *c == 0) {
            continue;
        }
        let line = lines.entry(i.line).or_default();
        for r in Reason::ALL {
            match r {
                Reason::Issued => line.0 += own[r as usize],
                _ => line.1[r as usize] += own[r as usize],
            }
        }
    }
    // By line, where values came from.
    let mut from: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let line_of = |pc: u32| k.code.get(pc as usize).map(|i| i.line);
    for ((pc, source), n) in &l.links {
        if let (Some(a), Some(b)) = (line_of(*pc), line_of(*source)) {
            *from.entry((a, b)).or_insert(0) += n;
        }
    }
    let waits_for = |line: u32| {
        let own = from.range((line, 0)..=(line, u32::MAX));
        own.max_by_key(|e| e.1).map(|e| e.0.1)
    };
    l.each.sort_by_key(|w| (w.cta, w.warp));
    let schedulers = f64::from(l.t.sms) * f64::from(l.t.schedulers);
    Stalls {
        cycles,
        warps: l.warps,
        warp_cycles: l.total.iter().sum(),
        reasons: Reason::ALL
            .into_iter()
            .map(|r| (r, l.total[r as usize]))
            .collect(),
        issue: match cycles {
            0 => 0.0,
            c => l.slots as f64 / (c as f64 * schedulers),
        },
        bytes,
        lines: lines
            .into_iter()
            .map(|(line, (issued, lost))| LineStalls {
                line,
                issued,
                lost: some(&lost, |r| r != Reason::Issued),
                waits_for: waits_for(line),
            })
            .collect(),
        each: l.each,
        intervals: l.intervals,
    }
}
