//! What warps do when nothing goes on, in words.

use super::Run;
use crate::checks::{Kind, Report};
use crate::machine::cta::lanes;
use crate::machine::warp::GroupState;
use crate::memory::Memory;

impl Run {
    /// What every warp in flight is doing, a line each.
    pub fn dump(&self, mem: &Memory) -> Vec<String> {
        let mut out = Vec::new();
        for cta in self.slots.iter().flatten() {
            let [x, y, z] = cta.core.id;
            for w in &cta.warps {
                for f in &w.fragments {
                    let line = self.world.line_of(&self.plan.kernel, f.pc);
                    let doing = match f.doing {
                        GroupState::Ready => "ready".to_string(),
                        GroupState::Warp(m) => format!("waits for the lanes {m:#010x} of its warp"),
                        GroupState::Barrier(id) => {
                            let b = &cta.core.barriers[id as usize];
                            let alive: u32 = cta.warps.iter().map(|w| w.alive.count_ones()).sum();
                            format!(
                                "waits at barrier {id}, where {} of {} threads are",
                                b.arrived,
                                b.expected.unwrap_or(alive)
                            )
                        }
                        GroupState::Warpgroup => {
                            "waits for the other warps of its warpgroup".to_string()
                        }
                        GroupState::Registers => {
                            "waits for registers that other warps give back".to_string()
                        }
                        GroupState::Align => "waits for all lanes of its warp".to_string(),
                        GroupState::Parked => self.polling(cta.core.index, w.index, mem),
                    };
                    out.push(format!(
                        "CTA {x},{y},{z} warp {} lanes {:#010x} line {line}: {doing}",
                        w.index, f.mask
                    ));
                }
            }
        }
        out
    }

    fn polling(&self, cta: u32, warp: u32, mem: &Memory) -> String {
        let words = self.world.waits_for(cta, warp);
        let show = |w: &u64| match w >> 63 {
            _ if w >> 62 == 1 => "the barrier of its cluster".to_string(),
            1 => {
                let (at, owner) = ((w & 0xff_ffff) * 4, (w >> 24) as u32);
                let mut all = self.slots.iter().flatten();
                let core = all.find(|c| c.core.index == owner).map(|c| &c.core);
                match core.and_then(|c| c.mbarriers.get(&(at as u32))) {
                    Some(b) => format!("the mbarrier at shared {at:#x}, {}", b.stands()),
                    None => format!("shared {at:#x}"),
                }
            }
            _ => match mem.resolve(w * 4, 4) {
                Ok((id, offset)) => {
                    let v = mem.allocations[id].load(offset, 4)[0];
                    format!("{:#x}, which is {v}", w * 4)
                }
                Err(_) => format!("{:#x}", w * 4),
            },
        };
        let some: Vec<String> = words.iter().take(4).map(show).collect();
        format!("polls {}", some.join("; "))
    }

    /// Ends the run because nothing can go on, or because it went on too long.
    pub fn give_up(&mut self, mem: &Memory, kind: Kind, why: &str) {
        let lines = self.dump(mem);
        let total = lines.len();
        let mut message = why.to_string();
        if self.started < self.plan.ctas && kind == Kind::Deadlock {
            message += &format!(
                "; {} CTAs have not started, as {} are in flight at most",
                self.plan.ctas - self.started,
                self.slots.len()
            );
        }
        for l in lines.iter().take(64) {
            message += "\n  ";
            message += l;
        }
        if total > 64 {
            message += &format!("\n  and {} more", total - 64);
        }
        let first = self.slots.iter().flatten().next();
        let at = first.and_then(|c| {
            let w = c.warps.iter().find(|w| !w.fragments.is_empty())?;
            let f = w.fragments.first()?;
            Some((c.core.id, w.index, lanes(f.mask).next().unwrap_or(0), f.pc))
        });
        let (cta, warp, lane, pc) = at.unwrap_or(([0; 3], 0, 0, 0));
        let line = self.world.line_of(&self.plan.kernel, pc);
        self.world.reports.add(Report {
            kind,
            line,
            other_line: None,
            kernel: self.plan.kernel.name.clone(),
            cta: Some(cta),
            warp,
            lane,
            message,
            count: 1,
        });
    }
}
