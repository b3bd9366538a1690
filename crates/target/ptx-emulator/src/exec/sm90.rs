//! Instructions of sm_90, each to its place.

use super::{Ctx, Flow};
use crate::machine::cta::lanes;
use crate::sm90::Sm90;

impl Ctx<'_> {
    pub(crate) fn sm90(&mut self, op: &Sm90, act: u32, mask: u32) -> Flow {
        let aligned = matches!(
            op,
            Sm90::Wgmma(_)
                | Sm90::WgmmaFence
                | Sm90::WgmmaCommit
                | Sm90::WgmmaWait(_)
                | Sm90::SetRegisters(..)
                | Sm90::ClusterArrive(true, _)
                | Sm90::ClusterWait(true, _)
        );
        if aligned && act == mask && self.holds(act) {
            return self.come_again(act);
        }
        match op {
            Sm90::Wgmma(m) => return self.wgmma(m, act),
            Sm90::WgmmaFence => self.w.flight.stretch += 1,
            Sm90::WgmmaCommit => self.w.flight.commit(),
            Sm90::WgmmaWait(keep) => self.wgmma_wait(*keep),
            Sm90::DependencyWait => self.w.waited |= act,
            Sm90::LaunchDependents => self.world.launches_early |= act & !self.w.waited != 0,
            Sm90::ProxyFence => self.proxy_fence(act),
            Sm90::InitFence => self.init_fence(act),
            Sm90::MbarrierInit(a, n) => self.mbarrier_init(a, *n, act),
            Sm90::MbarrierInval(a) => self.mbarrier_inval(a, act),
            Sm90::MbarrierArrive(m) => self.mbarrier_arrive(m, act),
            Sm90::MbarrierExpect(a, n) => self.mbarrier_expect(a, *n, act),
            Sm90::MbarrierWait(p, a, phase, parity, acquire) => {
                self.mbarrier_wait((*p, a, *phase), *parity, *acquire, act);
            }
            Sm90::CpArrive(a, noinc) => self.cp_arrive(a, *noinc, act),
            Sm90::SetRegisters(up, n) => {
                if self.set_registers(*up, *n) == Flow::Blocked {
                    return self.come_again(act);
                }
            }
            Sm90::BulkLoad(d, s, n, b, mask) => self.bulk_load((d, s, *n), b, *mask, act),
            Sm90::BulkPut(d, s, n, b) => self.bulk_put(d, s, *n, b, act),
            Sm90::StoreAsync(a, b) => self.store_async(a, b, act),
            Sm90::Mapa(wide, d, a, rank) => self.mapa(*wide, *d, *a, *rank, act),
            Sm90::CtaRank(wide, d, a) => self.cta_rank(*wide, *d, *a, act),
            Sm90::ClusterArrive(_, release) => self.cluster_arrive(*release, act),
            Sm90::ClusterWait(_, acquire) => return self.cluster_wait(*acquire, act, mask),
            Sm90::BulkStore(d, s, n) => self.bulk_store(d, s, *n, act),
            Sm90::TensorLoad(t) => self.tensor_load(t, act),
            Sm90::TensorStore(t) => self.tensor_store(t, act),
            Sm90::BulkCommit => {
                for l in lanes(act) {
                    self.w.bulk[l as usize].committed += 1;
                }
            }
            Sm90::BulkWait(keep, read) => self.bulk_wait(*keep, *read, act),
        }
        Flow::Next
    }

    /// The instruction is not done yet and counts when it is.
    pub(crate) fn come_again(&mut self, act: u32) -> Flow {
        let c = &mut self.world.counts[self.pc as usize];
        c.issued -= 1;
        c.lanes -= u64::from(act.count_ones());
        Flow::Blocked
    }
}
