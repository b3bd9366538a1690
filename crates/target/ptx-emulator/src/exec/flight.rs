//! Registers that products of the warpgroup use while warps go on.

use super::Ctx;
use crate::checks::Kind;
use crate::program::*;
use crate::sm90::{FactorA, Sm90, Wgmma};

impl Ctx<'_> {
    /// An instruction that is no product reads and writes registers.
    pub(crate) fn check_flight(&mut self, inst: &Inst) {
        if matches!(&inst.op, Op::Sm90(s) if matches!(**s, Sm90::Wgmma(_))) {
            return;
        }
        let k = self.k;
        let busy = self.w.flight.newest > self.w.flight.retired;
        if busy {
            let (first, count) = inst.reads;
            for (w, r) in &k.reads[first as usize..first as usize + usize::from(count)] {
                if matches!(w, Width::W16 | Width::W32) {
                    self.in_flight(*r, "is read");
                }
            }
        }
        for r in &k.hazards[self.pc as usize] {
            if busy {
                self.in_flight(*r, "is written");
            }
            let stretch = self.w.flight.stretch;
            self.w.flight.rows[*r as usize].written = stretch;
        }
    }

    fn in_flight(&mut self, r: R, what: &str) {
        let f = &self.w.flight;
        let row = f.rows[r as usize];
        if row.sum.max(row.factor) <= f.retired || !self.world.checks.races {
            return;
        }
        let how = if row.sum > f.retired {
            "adds to it"
        } else {
            "reads it"
        };
        let name = &self.k.names[0][r as usize];
        let line = self.world.line_of(self.k, row.pc);
        let message = format!(
            "register {name} {what} while the wgmma at line {line} {how}; no wgmma.wait_group covers it"
        );
        self.report(Kind::RegisterInFlight, 0, Some(row.pc), || message);
    }

    /// A product takes its registers.
    pub(crate) fn claim(&mut self, m: &Wgmma, product: u32) {
        let (pc, retired, stretch) = (self.pc, self.w.flight.retired, self.w.flight.stretch);
        let mut unfenced = None;
        for r in m.d.iter().filter(|r| **r != SINK) {
            let row = self.w.flight.rows[*r as usize];
            // Products of one shape add to the same sums in turn.
            if row.factor > retired || (row.sum > retired && row.n != m.n) {
                self.in_flight(*r, "is added to");
            }
            if row.written == stretch {
                unfenced.get_or_insert(*r);
            }
            let row = &mut self.w.flight.rows[*r as usize];
            (row.sum, row.n, row.pc) = (product, m.n, pc);
        }
        if let FactorA::Registers(a) = &m.a {
            for r in a.iter().filter(|r| **r & CONST == 0) {
                let row = self.w.flight.rows[*r as usize];
                if row.sum > retired {
                    self.in_flight(*r, "is a factor");
                }
                if row.written == stretch {
                    unfenced.get_or_insert(*r);
                }
                let row = &mut self.w.flight.rows[*r as usize];
                (row.factor, row.pc) = (product, pc);
            }
        }
        self.w.flight.newest = product;
        if !self.world.checks.races {
            return;
        }
        if let Some(r) = unfenced {
            let name = &self.k.names[0][r as usize];
            let message = format!("register {name} was written, and no wgmma.fence stands between");
            self.report(Kind::MissingWgmmaFence, 0, None, || message);
        } else if stretch == 1 {
            self.report(Kind::MissingWgmmaFence, 0, None, || {
                "no wgmma.fence stands before the warp's first wgmma".into()
            });
        }
    }

    /// `wgmma.wait_group`: what those products read and wrote is done.
    pub(crate) fn wgmma_wait(&mut self, keep: u32) {
        let done = self.w.flight.wait(keep);
        self.release(done);
        let agent = self.cta.groups[(self.w.index / 4) as usize].agent;
        if agent != 0 {
            self.learn(self.w.alive, |vc| vc.set_thread(agent, done + 1));
        }
        self.effect();
    }
}
