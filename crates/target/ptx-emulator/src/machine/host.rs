//! A launch that runs in slices, and the host beside it.

use super::run::{Run, RunState};
use super::{Launch, Outcome, Plan, Unfinished, summary};
use crate::checks::{Kind, Report};
use crate::clocks::{HOST, LaneSync, Party, Vc, fence, strength};
use crate::error::PtxError;
use crate::exec::byte_mask;
use crate::memory::Memory;
use crate::memory::shadow::Actor;
use crate::program::{Scope, Sem};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

/// How a launch in slices stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It has ended.
    Done,
    /// It can go on.
    Running,
    /// Every warp polls words that nobody wrote since, or waits for one that does: only the host
    /// can change that.
    Parked,
    /// A finding ended it.
    Fault,
}

/// How the host means an access; its scope is always the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostOrder {
    /// An ordinary access.
    Weak,
    /// Atomic, without order.
    Relaxed,
    /// A load that later accesses stay behind.
    Acquire,
    /// A store that earlier accesses stay before.
    Release,
}

impl HostOrder {
    fn sem(self) -> Sem {
        match self {
            HostOrder::Weak => Sem::Weak,
            HostOrder::Relaxed => Sem::Relaxed,
            HostOrder::Acquire => Sem::Acquire,
            HostOrder::Release => Sem::Release,
        }
    }
}

/// A launch that goes on when asked to.
pub struct Running {
    run: Run,
    next: AtomicU32,
    limit: u64,
    host: LaneSync,
    clock: u32,
    line: u32,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("kernel", &self.run.plan().kernel.name)
            .field("steps", &self.run.world.steps)
            .finish_non_exhaustive()
    }
}

impl Running {
    pub(crate) fn new(plan: Plan, l: &Launch) -> Running {
        Running {
            run: Run::new(plan, l, l.resident, false),
            next: AtomicU32::new(0),
            limit: l.step_limit,
            host: LaneSync::default(),
            clock: 1,
            line: 0,
        }
    }

    /// Runs about `steps` instructions of warps.
    pub fn slice(&mut self, memory: &Memory, steps: u64) -> Status {
        let left = self.limit.saturating_sub(self.run.world.steps);
        match self.run.go(memory, steps.min(left), &self.next) {
            RunState::Done => Status::Done,
            RunState::Fault => Status::Fault,
            RunState::Stuck if self.run.polls() => Status::Parked,
            RunState::Stuck => {
                self.run
                    .give_up(memory, Kind::Deadlock, "no warp can go on");
                Status::Fault
            }
            RunState::Going if self.run.world.steps >= self.limit => {
                let why = format!("{} instructions were not enough", self.limit);
                self.run.give_up(memory, Kind::StepLimit, &why);
                Status::Fault
            }
            RunState::Going => Status::Running,
        }
    }

    /// Runs to the end; when only the host could help, that is a deadlock.
    pub fn finish(&mut self, memory: &Memory) -> Status {
        loop {
            match self.slice(memory, u64::MAX) {
                Status::Running => {}
                Status::Parked => {
                    let why = "every warp waits for something that nobody is left to do";
                    self.run.give_up(memory, Kind::Deadlock, why);
                    return Status::Fault;
                }
                s => return s,
            }
        }
    }

    /// Every polling warp looks at its words again: for writes that this launch did not see, such
    /// as those of another launch on the same memory.
    pub fn nudge(&mut self) {
        self.run.nudge();
    }

    /// CTAs that have ended.
    pub fn finished(&self) -> u32 {
        self.run.finished
    }

    /// Instructions of warps so far.
    pub fn steps(&self) -> u64 {
        self.run.world.steps
    }

    /// Counts writes to memory, of the launch and of the host beside it: as long as it stands still,
    /// nobody can have seen anything new.
    pub fn writes(&self) -> u64 {
        self.run.world.writes
    }

    /// What every warp in flight is doing, a line each.
    pub fn dump(&self, memory: &Memory) -> Vec<String> {
        self.run.dump(memory)
    }

    /// Findings so far.
    pub fn reports(&self) -> &[Report] {
        &self.run.world.reports.list
    }

    /// Findings and counters so far.
    pub fn outcome(&self) -> Outcome {
        Outcome {
            reports: self.run.world.reports.list.clone(),
            counters: summary(&self.run.plan().kernel, &self.run.world.counts),
            threads: 1,
            requests: self.run.world.requests(),
            unfinished: Unfinished(self.run.world.under_way()),
        }
    }

    /// The host's clock, in nanoseconds, as far as it has waited for what this launch wrote.
    pub fn host_ns(&self) -> f64 {
        self.run.world.clock.host_ns
    }

    /// Sets the host's clock.
    pub fn set_host_ns(&mut self, now: f64) {
        self.run.world.clock.host_ns = now;
    }

    /// The latest that a CTA has come to by its own clock, in nanoseconds.
    pub fn latest_ns(&self) -> f64 {
        self.run.world.clock.latest_ns
    }

    fn known(&self) -> Arc<Vc> {
        let mut vc = (*self.host.vc).clone();
        vc.set_thread(HOST, self.clock + 1);
        Arc::new(vc)
    }

    /// Judges an access of the host to `bytes` bytes at `address`.
    fn note(&mut self, m: &Memory, address: u64, bytes: usize, order: HostOrder, write: bool) {
        let Ok((id, offset)) = m.resolve(address, bytes as u64) else {
            return;
        };
        let sem = order.sem();
        let key = m.allocations[id].base / 4 + offset / 4;
        let world = &mut self.run.world;
        if sem != Sem::Weak && !write {
            world.clock.host_reads(key);
            world
                .messages
                .read(key, HOST, &mut self.host, sem, Scope::Sys);
        }
        if world.checks.races {
            let mut at = offset;
            let end = offset + bytes as u64;
            while at < end {
                let n = if at.is_multiple_of(4) && end - at >= 4 {
                    4
                } else {
                    1
                };
                let actor = Actor {
                    thread: HOST,
                    clock: self.clock,
                    cta: (0, 0),
                    sync: &self.host,
                    threads_per_cta: self.run.plan().threads_per_cta(),
                    pc: u32::MAX,
                    strength: strength(sem, Scope::Sys),
                };
                let world = &mut self.run.world;
                let mask = byte_mask(at, n);
                let found = world
                    .shadow(id)
                    .touch((at / 4) as usize, mask, &actor, write);
                if let Some(c) = found {
                    self.race(m.allocations[id].base + at, write, c);
                    break;
                }
                at += u64::from(n);
            }
        }
        if !write {
            return;
        }
        let known = if sem.releases() {
            self.known()
        } else {
            Arc::default()
        };
        let world = &mut self.run.world;
        if sem == Sem::Weak {
            for k in 0..(bytes as u64).div_ceil(4) {
                world.messages.overwrite(key + k);
            }
        } else {
            let p = Party {
                cta: HOST,
                known,
                sync: &mut self.host,
            };
            world.messages.write(key, &p, sem, Scope::Sys, false);
            world.clock.host_writes(key);
            self.clock += u32::from(sem.releases());
        }
        world.writes += 1;
        for k in 0..(bytes as u64 + offset % 4).div_ceil(4) {
            world.wake(key + k);
        }
    }

    fn race(&mut self, address: u64, write: bool, c: crate::memory::shadow::Conflict) {
        let k = self.run.plan().kernel.clone();
        let per = self.run.plan().threads_per_cta();
        let world = &mut self.run.world;
        let line = world.line_of(&k, c.other_pc);
        let who = world.who(c.other.thread, per);
        let own = if write { "writes" } else { "reads" };
        let theirs = if c.other_writes { "wrote" } else { "read" };
        let why = match c.scope {
            true => "their scopes do not include each other",
            false => "nothing orders the two",
        };
        self.line = line;
        world.reports.add(Report {
            kind: if c.scope {
                Kind::NarrowScope
            } else {
                Kind::GlobalRace
            },
            line,
            other_line: None,
            kernel: k.name.clone(),
            cta: None,
            warp: 0,
            lane: 0,
            message: format!(
                "the host {own} {address:#x}, which {who} {theirs} at line {line}, and {why}"
            ),
            count: 1,
        });
    }

    /// The host reads `bytes` bytes while the launch stands between two slices. Atomic loads are
    /// of 4 or 8 bytes.
    ///
    /// # Errors
    /// When they are not allocated.
    pub fn load(
        &mut self,
        memory: &Memory,
        address: u64,
        bytes: usize,
        order: HostOrder,
    ) -> Result<Vec<u8>, PtxError> {
        let out = memory.read(address, bytes)?;
        self.note(memory, address, bytes, order, false);
        Ok(out)
    }

    /// The host writes while the launch stands between two slices. Atomic stores are of 4 or 8
    /// bytes.
    ///
    /// # Errors
    /// When what it writes to is not allocated.
    pub fn store(
        &mut self,
        memory: &Memory,
        address: u64,
        data: &[u8],
        order: HostOrder,
    ) -> Result<(), PtxError> {
        memory.write(address, data)?;
        self.note(memory, address, data.len(), order, true);
        Ok(())
    }

    /// A fence of the host, which orders relaxed accesses around it.
    pub fn fence(&mut self) {
        let known = self.clock;
        fence(&mut self.host, Scope::Sys, |s| {
            let mut vc = (*s.vc).clone();
            vc.set_thread(HOST, known + 1);
            Arc::new(vc)
        });
        self.clock += 1;
    }
}
