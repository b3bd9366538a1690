//! Shared memory through the async proxy: what products and bulk copies read and write.

use super::Ctx;
use crate::checks::Kind;
use crate::clocks::{AGENTS, LaneSync, Vc};
use crate::machine::cta::lanes;
use crate::memory::shadow::Actor;
use std::sync::Arc;

/// On whose behalf shared memory is accessed: a party of its own, at a moment of its own, that knows
/// what each of those knew who started it.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    pub id: u32,
    pub clock: u32,
    pub knows: Vec<LaneSync>,
}

impl Ctx<'_> {
    /// `fence.proxy.async`: what these lanes wrote so far may be read by products and bulk copies.
    pub(crate) fn proxy_fence(&mut self, act: u32) {
        let clock = self.cta.clock + 1;
        let whole = (act == self.w.alive).then_some(self.w.global);
        let first = self.cta.thread(self.w.index, 0);
        self.learn(act, Vc::proxied_copies);
        match whole {
            Some(warp) => self.learn(act, |vc| vc.set_proxied_warp(warp, clock)),
            None => lanes(act).for_each(|l| {
                self.learn(1 << l, |vc| vc.set_proxied_thread(first + l, clock));
            }),
        }
        self.cta.clock += 1;
        self.effect();
    }

    /// Adds the same to what lanes know; those that know the same share it on.
    pub(crate) fn learn(&mut self, act: u32, add: impl Fn(&mut Vc)) {
        let mut last: Option<(Arc<Vc>, Arc<Vc>)> = None;
        for l in lanes(act) {
            let own = &mut self.w.sync[l as usize].vc;
            let new = match &last {
                Some((before, after)) if Arc::ptr_eq(before, own) => after.clone(),
                _ => {
                    let mut new = (**own).clone();
                    add(&mut new);
                    Arc::new(new)
                }
            };
            last = Some((own.clone(), new.clone()));
            *own = new;
        }
    }

    /// Reads 16 bytes of the CTA's shared memory for an agent; none where there are none.
    pub(crate) fn async_read(&mut self, agent: &Agent, at: u64) -> Option<[u32; 4]> {
        if !self.shared_at(0, at, 16, "an asynchronous read") {
            return None;
        }
        self.settled(0, at, 16);
        let w = (at / 4) as usize;
        if self.cta.shared_written[w..w + 4] != [15; 4] && self.world.checks.uninitialised {
            self.report(Kind::UninitialisedShared, 0, None, || {
                format!("16 bytes at {at:#x} of shared memory were never written")
            });
        }
        if self.world.checks.races {
            self.async_reads(agent, w);
        }
        let v = &self.cta.shared[w..w + 4];
        Some([v[0], v[1], v[2], v[3]])
    }

    /// Notes an agent's reads of four words and judges them.
    fn async_reads(&mut self, agent: &Agent, word: usize) {
        let mut ordinary = false;
        for sync in &agent.knows {
            let actor = self.actor(agent, sync);
            let (found, some) = self.cta.shadow.read_four(word, &actor);
            if let Some((w, c)) = found {
                return self.race(0, None, w as u64, c, false);
            }
            ordinary = some;
        }
        if ordinary {
            for w in word..word + 4 {
                self.proxied(agent, w);
            }
        }
    }

    fn actor<'s>(&self, agent: &Agent, sync: &'s LaneSync) -> Actor<'s> {
        Actor {
            thread: agent.id,
            clock: agent.clock,
            cta: (
                self.cta.first_thread,
                self.cta.first_thread + self.cta.threads,
            ),
            sync,
            threads_per_cta: self.cta.threads,
            pc: self.pc,
            strength: 0,
        }
    }

    /// Notes an agent's access to a word and judges it; whether it races.
    pub(crate) fn async_touch(
        &mut self,
        agent: &Agent,
        word: usize,
        mask: u8,
        write: bool,
    ) -> bool {
        let mut found = None;
        for sync in &agent.knows {
            let actor = self.actor(agent, sync);
            let c = self.cta.shadow.touch(word, mask, &actor, write);
            found = found.or(c);
        }
        if let Some(c) = found {
            self.race(0, None, word as u64, c, write);
        }
        found.is_some()
    }

    /// Reports a word that an ordinary instruction wrote, without a proxy fence that the agent
    /// knows of behind it.
    fn proxied(&mut self, agent: &Agent, word: usize) {
        let (first, end) = (
            self.cta.first_thread,
            self.cta.first_thread + self.cta.threads,
        );
        let Some((stamp, pc)) = self.cta.shadow.writes(word).iter().find_map(|c| {
            let s = c.write;
            // Copies of `cp.async` are ordinary writes too.
            let copy = s.thread >= AGENTS && s.thread & 1 == 1;
            let own = copy || (first..end).contains(&s.thread);
            let fenced = |k: &LaneSync| k.vc.proxied(s, (s.thread - 1) / 32);
            (own && !agent.knows.iter().all(fenced)).then_some((s, c.write_pc))
        }) else {
            return;
        };
        let who = self.world.who(stamp.thread, self.cta.threads);
        let line = self.world.line_of(self.k, pc);
        self.report(Kind::MissingProxyFence, 0, Some(pc), || {
            format!(
                "reads shared {:#x} through the async proxy, which {who} wrote at line {line} without \
                 fence.proxy.async and a barrier behind it",
                word * 4
            )
        });
    }
}
