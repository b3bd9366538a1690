//! A warp that goes through its trace: what it waits for, and since when.

use super::cost::{Ask, Pipe};
use super::order::Orders;
use super::trace::{Touch, Trace};
use super::{ByReason, Reason};
use crate::program::{Kernel, Op};
use crate::sm90::Sm90;
use std::collections::VecDeque;

/// When a register is there, for what it waits, and the instruction that it comes of.
#[derive(Debug, Clone, Copy)]
struct Ready {
    at: f64,
    why: Reason,
    pc: u32,
}

const THERE: Ready = Ready {
    at: 0.0,
    why: Reason::Dependency,
    pc: u32::MAX,
};

/// Work beside the warp, waited for in groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// What no group holds yet, and groups of it, oldest first.
    open: Ready,
    closed: VecDeque<Ready>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            open: THERE,
            closed: VecDeque::new(),
        }
    }
}

impl Groups {
    /// Something is done at `at`.
    pub fn add(&mut self, pc: u32, at: f64, why: Reason) {
        if at > self.open.at {
            self.open = Ready { at, why, pc };
        }
    }

    /// What there is so far is a group.
    pub fn commit(&mut self) {
        self.closed
            .push_back(std::mem::replace(&mut self.open, THERE));
    }

    /// When all of it is done that no wait was for yet.
    pub fn last(&self) -> f64 {
        self.closed.iter().fold(self.open.at, |t, g| t.max(g.at))
    }

    /// Waits for all but the newest groups; for everything with [`u32::MAX`].
    fn wait(&mut self, keep: u32, need: &mut Ready) {
        let done = match keep {
            u32::MAX => self.closed.len(),
            n => self.closed.len().saturating_sub(n as usize),
        };
        for g in self.closed.drain(..done) {
            if g.at > need.at {
                *need = g;
            }
        }
        if keep == u32::MAX && self.open.at > need.at {
            *need = std::mem::replace(&mut self.open, THERE);
        }
    }
}

/// Where a warp stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarpState {
    /// Before an instruction.
    Before,
    /// At a barrier.
    Barrier(u32),
    /// At a phase of a barrier object.
    Phase(u32, u32),
    Done,
}

/// A kernel, instruction by instruction, and the order of each stretch.
pub(crate) struct Code<'a> {
    pub k: &'a Kernel,
    pub asks: Vec<Ask>,
    pub orders: Orders,
}

#[derive(Debug)]
pub(crate) struct WarpRun {
    pub cta: u32,
    pub index: u32,
    /// The place of its CTA on the SM.
    pub slot: usize,
    pub scheduler: u32,
    pub trace: Trace,
    /// The record that it issues next.
    pub at: usize,
    /// The stretch that it is in: its first record, the instruction that is, and how many went.
    stretch: Option<(usize, u32, usize)>,
    pub stand: WarpState,
    /// First cycle not accounted for.
    pub since: u64,
    pub start: u64,
    /// When the next instruction's registers are there, what it waits for and where that comes from.
    pub ready: u64,
    pub why: Reason,
    pub from_pc: u32,
    /// It was ready and not taken until then, for this reason.
    pub refused: (u64, Reason),
    pub cycles: ByReason,
    rows: Vec<Ready>,
    /// Copies under way, bulk copies to global memory, and products.
    pub copies: Groups,
    pub bulk: Groups,
    pub products: Groups,
    /// When its stores are seen by others.
    pub stored: f64,
}

impl WarpRun {
    pub fn new(cta: u32, index: u32, trace: Trace, rows: usize, start: u64) -> WarpRun {
        WarpRun {
            cta,
            index,
            slot: 0,
            scheduler: 0,
            trace,
            at: 0,
            stretch: None,
            stand: WarpState::Before,
            since: start,
            start,
            ready: start,
            why: Reason::Dependency,
            from_pc: u32::MAX,
            refused: (0, Reason::Slot),
            cycles: ByReason::default(),
            rows: vec![THERE; rows],
            copies: Groups::default(),
            bulk: Groups::default(),
            products: Groups::default(),
            stored: 0.0,
        }
    }

    /// Goes to record `at`, the first of a stretch where all of one follows.
    pub fn enter(&mut self, code: &Code, at: usize) {
        (self.at, self.stretch) = (at, None);
        let Some(pc) = self.trace.get(at).map(|r| r.pc) else {
            return;
        };
        if let Some(order) = &code.orders[pc as usize] {
            let whole = (0..order.len()).all(|k| {
                let own = self.trace.get(at + k).map(|r| r.pc);
                own == Some(pc + k as u32)
            });
            if whole {
                self.at = at + usize::from(order[0]);
                self.stretch = Some((at, pc, 1));
            }
        }
    }

    /// Goes to the record after the present one.
    pub fn advance(&mut self, code: &Code) {
        let Some((from, pc, done)) = self.stretch else {
            return self.enter(code, self.at + 1);
        };
        match &code.orders[pc as usize] {
            Some(order) if done < order.len() => {
                self.at = from + usize::from(order[done]);
                self.stretch = Some((from, pc, done + 1));
            }
            _ => self.enter(code, from + done),
        }
    }

    /// The last of the registers that `a` reads, and of those that it writes unless they are read too.
    fn needs(&self, a: &Ask, writes: bool) -> Ready {
        let mut last = THERE;
        let own = if writes { &a.writes[..] } else { &[] };
        for r in a.reads.iter().chain(own) {
            let r = self.rows[*r as usize];
            if r.at > last.at {
                last = r;
            }
        }
        last
    }

    /// Goes on to the next instruction that takes a slot, from cycle `now` on.
    pub fn prepare(&mut self, code: &Code, now: u64) {
        loop {
            let Some(r) = self.trace.get(self.at) else {
                self.stand = WarpState::Done;
                return;
            };
            let a = &code.asks[r.pc as usize];
            if a.pipe == Pipe::Free {
                let mut need = self.needs(a, false);
                if need.pc == u32::MAX {
                    need.pc = r.pc;
                }
                for w in &a.writes {
                    self.rows[*w as usize] = need;
                }
                self.advance(code);
                continue;
            }
            let mut need = self.needs(a, true);
            match &code.k.code[r.pc as usize].op {
                Op::CpWait(keep) => self.copies.wait(*keep, &mut need),
                Op::Sm90(s) => match **s {
                    Sm90::WgmmaWait(keep) => self.products.wait(keep, &mut need),
                    Sm90::BulkWait(keep, _) => self.bulk.wait(keep, &mut need),
                    _ => {}
                },
                Op::Fence(_) if self.stored > need.at => {
                    need = Ready {
                        at: self.stored,
                        why: Reason::L2,
                        pc: u32::MAX,
                    };
                }
                _ => {}
            }
            self.ready = now.max(need.at.ceil() as u64);
            self.why = need.why;
            self.from_pc = need.pc;
            self.refused = (0, Reason::Slot);
            return;
        }
    }

    /// The registers that the instruction at `pc` writes are there at `at`.
    pub fn wrote(&mut self, a: &Ask, pc: u32, at: f64, why: Reason) {
        for w in &a.writes {
            self.rows[*w as usize] = Ready { at, why, pc };
        }
    }

    /// The barrier that its next record comes to, if it is one.
    pub fn barrier(&self) -> Option<(u32, u32, u32, bool)> {
        self.trace.touches(self.at).iter().find_map(|t| match *t {
            Touch::Barrier {
                id,
                came,
                expected,
                waits,
            } => Some((id, came, expected, waits)),
            _ => None,
        })
    }
}
