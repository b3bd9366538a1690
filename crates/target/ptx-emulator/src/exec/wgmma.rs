//! `wgmma`: products of warpgroups that run beside their warps.

use super::descriptor::Descriptor;
use super::proxy::Agent;
use super::round::*;
use super::{Ctx, Flow, simd};
use crate::checks::Kind;
use crate::clocks::{LaneSync, join};
use crate::machine::cta::lanes;
use crate::machine::warp::GroupState;
use crate::machine::warpgroup::Tiles;
use crate::program::*;
use crate::sm90::{FactorA, Sm90, Wgmma};
use std::sync::Arc;

/// Rows of D.
const ROWS: usize = 64;

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
            Sm90::ProxyFence => self.proxy_fence(act),
            Sm90::InitFence => self.fence(Scope::Gpu, act),
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

    fn wgmma(&mut self, m: &Wgmma, act: u32) -> Flow {
        let Some((tiles, product)) = self.together_at(m, act) else {
            return self.come_again(act);
        };
        self.whole_warp(act, "wgmma");
        self.claim(m, product);
        self.multiply(m, &tiles, act);
        self.effect();
        Flow::Next
    }

    /// The factors and number of the product, once all warps of the warpgroup have come to it: the last of
    /// them reads shared memory for all.
    fn together_at(&mut self, m: &Wgmma, act: u32) -> Option<(Arc<Tiles>, u32)> {
        let (id, own) = ((self.w.index / 4) as usize, 1u8 << (self.w.index % 4));
        let g = &mut self.cta.groups[id];
        if g.go & own != 0 {
            g.go &= !own;
            return Some((g.tiles.clone(), g.products));
        }
        let there = self.cta.threads / 32 - 4 * id as u32;
        let wanted = if there >= 4 { 15 } else { (1u8 << there) - 1 };
        let descriptors = self.descriptors(m, act);
        let knows = self.warp_knows();
        let lane = act.trailing_zeros();
        let g = &mut self.cta.groups[id];
        let (first, at, before) = (g.came == 0, g.pc, g.descriptors);
        g.came |= own;
        if first {
            g.pc = self.pc;
            g.descriptors = descriptors;
            g.knows.clear();
        }
        let same = |k: &LaneSync| k.cta_seen == knows.cta_seen && k.vc == knows.vc;
        if !g.knows.iter().any(same) {
            g.knows.push(knows);
        }
        let complete = g.came & wanted == wanted;
        if !first && at != self.pc {
            self.report(Kind::Undefined, lane, Some(at), || {
                "the warps of a warpgroup are at different wgmma".into()
            });
        } else if !first && before != descriptors {
            self.report(Kind::Undefined, lane, None, || {
                "the warps of a warpgroup have different matrix descriptors".into()
            });
        }
        if !complete {
            let cur = self.w.current;
            self.w.fragments[cur].doing = GroupState::Warpgroup;
            return None;
        }
        if wanted != 15 {
            self.report(Kind::Undefined, lane, None, || {
                format!("wgmma needs a warpgroup of four warps; here are {there}")
            });
        }
        let tiles = Arc::new(self.tiles(m, id));
        let g = &mut self.cta.groups[id];
        g.tiles = tiles.clone();
        g.came = 0;
        g.go = wanted & !own;
        self.cta.look = true;
        Some((tiles, self.cta.groups[id].products))
    }

    /// The descriptors of A and B, 0 for A in registers.
    fn descriptors(&mut self, m: &Wgmma, act: u32) -> [u64; 2] {
        let mut one = |r: R| {
            let v = *self.w.a64(self.k, r);
            let first = v[act.trailing_zeros() as usize & 31];
            if let Some(l) = lanes(act).find(|l| v[*l as usize] != first) {
                self.report(Kind::Undefined, l, None, || {
                    "the lanes of a warp have different matrix descriptors".into()
                });
            }
            first
        };
        let a = match m.a {
            FactorA::Descriptor(r) => one(r),
            FactorA::Registers(_) => 0,
        };
        [a, one(m.b)]
    }

    /// What the lanes of the warp know together.
    pub(crate) fn warp_knows(&self) -> LaneSync {
        let mut all = LaneSync::default();
        for l in lanes(self.w.alive) {
            let s = &self.w.sync[l as usize];
            join(&mut all.vc, &s.vc);
            all.cta_seen = all.cta_seen.max(s.cta_seen);
            all.warp_seen = all.warp_seen.max(s.warp_seen);
        }
        if all.warp_seen > all.cta_seen {
            Arc::make_mut(&mut all.vc).set_warp(self.w.global, all.warp_seen);
        }
        all.warp_seen = 0;
        all
    }

    /// Reads the factors from shared memory.
    fn tiles(&mut self, m: &Wgmma, id: usize) -> Tiles {
        let g = &mut self.cta.groups[id];
        g.products += 1;
        if g.agent == 0 {
            g.agent = self.world.agent(false);
        }
        let agent = Agent {
            id: g.agent,
            clock: g.products,
            knows: std::mem::take(&mut g.knows),
        };
        let [a, b] = g.descriptors;
        let (n, k) = (m.n as usize, m.k as usize);
        let a = match m.a {
            FactorA::Descriptor(_) => self.tile(m, &agent, a, 0),
            FactorA::Registers(_) => Vec::new(),
        };
        let by_n = self.tile(m, &agent, b, 1);
        let mut b = vec![0.0; n * k];
        for (j, row) in by_n.chunks_exact(k).enumerate() {
            for (x, v) in row.iter().enumerate() {
                b[x * n + j] = *v;
            }
        }
        Tiles { a, b }
    }

    /// One factor, A (0) or B (1), by rows of k.
    fn tile(&mut self, m: &Wgmma, agent: &Agent, bits: u64, which: usize) -> Vec<f32> {
        let (rows, k) = ([ROWS, m.n as usize][which], m.k as usize);
        let ty = [m.a_ty, m.b_ty][which];
        let mut out = vec![0.0; rows * k];
        let Some(d) = Descriptor::decode(bits) else {
            self.report(Kind::Undefined, 0, None, || {
                format!("the matrix descriptor {bits:#018x} has bits that mean nothing")
            });
            return out;
        };
        // Elements of a piece of 16 bytes.
        let e = 16 / m.bytes() as usize;
        let across = m.transposed[which];
        let (outer, inner) = if across { (k, rows / e) } else { (rows, k / e) };
        for i in 0..outer {
            for c in 0..inner {
                let (x, y) = (i as u64, c as u64);
                let at = if across {
                    d.along_mn(x, y)
                } else {
                    d.along_k(x, y)
                };
                let Some(words) = self.async_read(agent, at) else {
                    return out;
                };
                for j in 0..e {
                    let v = open(ty, &words, j);
                    let to = if across {
                        (c * e + j) * k + i
                    } else {
                        i * k + c * e + j
                    };
                    out[to] = if m.negated[which] { -v } else { v };
                }
            }
        }
        out
    }

    /// The warp's 16 rows.
    fn multiply(&mut self, m: &Wgmma, tiles: &Tiles, act: u32) {
        let (n, k) = (m.n as usize, m.k as usize);
        let own = match m.a {
            FactorA::Registers(regs) => self.factor(m, &regs),
            FactorA::Descriptor(_) => {
                let from = (self.w.index % 4) as usize * 16 * k;
                tiles.a[from..from + 16 * k].to_vec()
            }
        };
        let p = self.w.ap(m.scale_d.0, m.scale_d.1) & act;
        if p != 0 && p != act {
            self.report(Kind::Undefined, (act & !p).trailing_zeros(), None, || {
                "the lanes of a warp have different scale-d".into()
            });
        }
        if p != 0 {
            self.check_sums(m, act);
        }
        // Sums of integers fit in an f32 as far as one product goes.
        let add = p != 0 && !m.integer();
        let mut c = vec![0f32; 16 * n];
        if add {
            self.gather(m, n, &mut c);
        }
        simd::wide_product(&own, &tiles.b, &mut c, k, n);
        self.scatter(m, n, &c, p != 0, act);
    }

    /// A's 16 rows from registers.
    fn factor(&self, m: &Wgmma, regs: &[R; 4]) -> Vec<f32> {
        let k = m.k as usize;
        let e = 4 / m.bytes() as usize;
        let mut a = vec![0f32; 16 * k];
        for (r, reg) in regs.iter().enumerate() {
            let v = self.w.a32(self.k, *reg);
            for (l, v) in v.iter().enumerate() {
                let (row, at) = (l / 4 + 8 * (r & 1), e * (l % 4) + 4 * e * (r >> 1));
                for j in 0..e {
                    let x = open(m.a_ty, &[*v; 4], j);
                    a[row * k + at + j] = if m.negated[0] { -x } else { x };
                }
            }
        }
        a
    }

    fn check_sums(&mut self, m: &Wgmma, act: u32) {
        if !self.world.checks.uninitialised {
            return;
        }
        for r in m.d.iter().filter(|r| **r != SINK) {
            let missing = act & !self.w.init32[*r as usize];
            if missing != 0 {
                let name = self.k.names[0][*r as usize].clone();
                let lane = missing.trailing_zeros();
                self.report(Kind::UninitialisedRegister, lane, None, || {
                    format!("register {name} is added to, but nothing wrote it")
                });
                return;
            }
        }
    }

    /// The sums so far, from registers.
    fn gather(&self, m: &Wgmma, n: usize, c: &mut [f32]) {
        for (i, r) in m.d.iter().enumerate() {
            if *r == SINK {
                continue;
            }
            let v = self.w.a32(self.k, *r);
            for (l, v) in v.iter().enumerate() {
                if m.d_half {
                    let (row, col) = place(2 * i, l);
                    c[row * n + col] = from_f16(v & 0xffff);
                    c[row * n + col + 1] = from_f16(v >> 16);
                } else {
                    let (row, col) = place(i, l);
                    c[row * n + col] = f32::from_bits(*v);
                }
            }
        }
    }

    /// The new sums, into registers.
    fn scatter(&mut self, m: &Wgmma, n: usize, c: &[f32], add: bool, act: u32) {
        for (i, r) in m.d.iter().enumerate() {
            if *r == SINK {
                continue;
            }
            let before = self.w.r32[*r as usize];
            let mut v = [0u32; 32];
            for (l, v) in v.iter_mut().enumerate() {
                let half = |x: f32| to_f16(f64::from(f32::from_bits(canonical(x))), Rnd::Near);
                let (row, col) = place(if m.d_half { 2 * i } else { i }, l);
                let x = c[row * n + col];
                *v = if m.integer() {
                    let old = if add { i64::from(before[l] as i32) } else { 0 };
                    let sum = old + x as i64;
                    match m.sat {
                        true => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32,
                        false => sum as u32,
                    }
                } else if m.d_half {
                    half(x) | half(c[row * n + col + 1]) << 16
                } else {
                    canonical(x)
                };
            }
            self.w.put32(*r, act, &v);
        }
    }
}

/// Row and column of element `i` of lane `l`'s sums, inside the warp's 16 rows.
fn place(i: usize, l: usize) -> (usize, usize) {
    (l / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + l % 4 * 2 + i % 2)
}

/// Element `j` of some words.
fn open(ty: MmaTy, words: &[u32; 4], j: usize) -> f32 {
    let half = |j: usize| words[j / 2] >> (16 * (j % 2)) & 0xffff;
    let byte = |j: usize| (words[j / 4] >> (8 * (j % 4))) as u8;
    match ty {
        MmaTy::F16 => from_f16(half(j)),
        MmaTy::BF16 => f32::from_bits(half(j) << 16),
        // Only the upper 19 bits take part.
        MmaTy::TF32 => f32::from_bits(words[j] & 0xffff_e000),
        MmaTy::S8 => f32::from(byte(j) as i8),
        MmaTy::U8 => f32::from(byte(j)),
    }
}
