//! `wgmma`: products of warpgroups that run beside their warps.

use super::descriptor::Descriptor;
use super::proxy::Agent;
use super::round::*;
use super::{Ctx, Flow, simd};
use crate::checks::Kind;
use crate::clocks::{LaneSync, join};
use crate::machine::cta::lanes;
use crate::machine::warp::GroupState;
use crate::machine::warpgroup::{Held, Tiles};
use crate::program::*;
use crate::sm90::{FactorA, Wgmma};
use std::sync::Arc;

/// Rows of D.
const ROWS: usize = 64;

impl Ctx<'_> {
    pub(crate) fn wgmma(&mut self, m: &Wgmma, act: u32) -> Flow {
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
            FactorA::Descriptor(_) => self.tile(m, &agent, a, (0, k, 1)),
            FactorA::Registers(_) => Vec::new(),
        };
        let b = self.tile(m, &agent, b, (1, 1, n));
        Tiles { a, b }
    }

    /// One factor, A (0) or B (1), with the distances at which m or n, and k, are to lie.
    fn tile(
        &mut self,
        m: &Wgmma,
        agent: &Agent,
        bits: u64,
        (which, by_row, by_k): (usize, usize, usize),
    ) -> Vec<f32> {
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
        let (by_outer, by_inner) = if across {
            (by_k, by_row)
        } else {
            (by_row, by_k)
        };
        let sign = if m.negated[which] { -1.0 } else { 1.0 };
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
                let first = i * by_outer + c * e * by_inner;
                for (j, v) in opened(ty, &words)[..e].iter().enumerate() {
                    out[first + j * by_inner] = sign * v;
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
        let mut c = self.sums(m, n, p != 0);
        simd::wide_product(&own, &tiles.b, &mut c, k, n);
        if m.integer() || m.d_half {
            // Integers fit in an f32 as far as one product goes; halves are rounded after each.
            return self.scatter(m, n, &c, p != 0, act);
        }
        for r in m.d.iter().filter(|r| **r != SINK) {
            self.w.init32[*r as usize] |= act;
        }
        let product = self.w.flight.newest;
        self.w.flight.held.push(Held {
            registers: m.d.clone(),
            sums: c,
            product,
        });
    }

    /// What a product adds to: the sums in flight of the same registers, or what these hold.
    fn sums(&mut self, m: &Wgmma, n: usize, add: bool) -> Vec<f32> {
        let own = |h: &Held| h.registers == m.d;
        let mut c = match self.w.flight.held.iter().position(own) {
            Some(k) => {
                let h = self.w.flight.held.swap_remove(k);
                if add {
                    return h.sums;
                }
                h.sums
            }
            None => Vec::new(),
        };
        c.clear();
        c.resize(16 * n, 0.0);
        if add && !m.integer() {
            // Others may hold some of its registers: a mistake, and reported.
            self.release(u32::MAX);
            self.gather(m, n, &mut c);
        }
        c
    }

    /// Sums of products up to this one go into their registers.
    pub(crate) fn release(&mut self, product: u32) {
        let mut k = 0;
        while let Some(h) = self.w.flight.held.get(k) {
            if h.product > product {
                k += 1;
                continue;
            }
            let h = self.w.flight.held.swap_remove(k);
            let n = 2 * h.registers.len();
            let lanes = lane_places(n);
            for (i, r) in h.registers.iter().enumerate().filter(|r| *r.1 != SINK) {
                let own = &h.sums[register_place(i, n, false)..];
                let row = &mut self.w.r32[*r as usize];
                for l in 0..32 {
                    row[l] = canonical(own[lanes[l]]);
                }
            }
        }
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
                for (j, x) in opened(m.a_ty, &[*v; 4])[..e].iter().enumerate() {
                    a[row * k + at + j] = if m.negated[0] { -x } else { *x };
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
        let lanes = lane_places(n);
        for (i, r) in m.d.iter().enumerate().filter(|r| *r.1 != SINK) {
            let v = self.w.a32(self.k, *r);
            let at = register_place(i, n, m.d_half);
            for l in 0..32 {
                let to = at + lanes[l];
                if m.d_half {
                    c[to] = from_f16(v[l] & 0xffff);
                    c[to + 1] = from_f16(v[l] >> 16);
                } else {
                    c[to] = f32::from_bits(v[l]);
                }
            }
        }
    }

    /// New sums of integers or halves, into registers.
    fn scatter(&mut self, m: &Wgmma, n: usize, c: &[f32], add: bool, act: u32) {
        let lanes = lane_places(n);
        for (i, r) in m.d.iter().enumerate().filter(|r| *r.1 != SINK) {
            let at = register_place(i, n, m.d_half);
            let mut v = [0u32; 32];
            if m.integer() {
                let before = self.w.r32[*r as usize];
                for l in 0..32 {
                    let old = if add { i64::from(before[l] as i32) } else { 0 };
                    let sum = old + c[at + lanes[l]] as i64;
                    v[l] = match m.sat {
                        true => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32,
                        false => sum as u32,
                    };
                }
            } else {
                let half = |x: f32| to_f16(f64::from(f32::from_bits(canonical(x))), Rnd::Near);
                for l in 0..32 {
                    let from = at + lanes[l];
                    v[l] = half(c[from]) | half(c[from + 1]) << 16;
                }
            }
            self.w.put32(*r, act, &v);
        }
    }
}

/// Where the lanes' sums lie among 16 rows of `n`, from their register's place on.
fn lane_places(n: usize) -> [usize; 32] {
    std::array::from_fn(|l| l / 4 * n + l % 4 * 2)
}

/// Where the sums of register `i` lie, those of lane 0 first; a register of halves has two.
fn register_place(i: usize, n: usize, half: bool) -> usize {
    let i = if half { 2 * i } else { i };
    i / 2 % 2 * 8 * n + 8 * (i / 4) + i % 2
}

/// The elements of some words.
fn opened(ty: MmaTy, words: &[u32; 4]) -> [f32; 16] {
    let mut out = [0f32; 16];
    let half = |j: usize| words[j / 2] >> (16 * (j % 2)) & 0xffff;
    let byte = |j: usize| (words[j / 4] >> (8 * (j % 4))) as u8;
    match ty {
        MmaTy::F16 => (0..8).for_each(|j| out[j] = from_f16(half(j))),
        MmaTy::BF16 => (0..8).for_each(|j| out[j] = f32::from_bits(half(j) << 16)),
        // Only the upper 19 bits take part.
        MmaTy::TF32 => (0..4).for_each(|j| out[j] = f32::from_bits(words[j] & 0xffff_e000)),
        MmaTy::S8 => (0..16).for_each(|j| out[j] = f32::from(byte(j) as i8)),
        MmaTy::U8 => (0..16).for_each(|j| out[j] = f32::from(byte(j))),
    }
    out
}
