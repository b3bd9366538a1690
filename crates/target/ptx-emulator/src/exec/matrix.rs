//! Fragments of matrices, and their products.

use super::access::{How, shared_key};
use super::round::*;
use super::{Ctx, simd};
use crate::checks::Kind;
use crate::machine::warp::Divergence;
use crate::memory::SHARED_WINDOW;
use crate::program::*;

impl Ctx<'_> {
    pub(crate) fn whole_warp(&mut self, act: u32, what: &str) {
        self.w.fragments[self.w.current].apart = Divergence::No;
        if act != u32::MAX && self.world.checks.divergence {
            self.report(
                Kind::WarpMask,
                (!act).trailing_zeros().min(31),
                None,
                || format!("{what} needs all 32 lanes; {} are here", act.count_ones()),
            );
        }
    }

    pub(crate) fn fragments(
        &mut self,
        (store, transposed, regs, addr): &(bool, bool, Vec<R>, Addr),
        act: u32,
    ) {
        self.whole_warp(act, if *store { "stmatrix" } else { "ldmatrix" });
        let at = self.addresses(addr);
        let at = at.map(|v| {
            if v >= SHARED_WINDOW {
                v - SHARED_WINDOW
            } else {
                v
            }
        });
        for (i, r) in regs.iter().enumerate() {
            // Lanes 8i to 8i + 7 say where the rows are.
            let rows = 0xffu32 << (8 * i);
            self.count_shared(&at, 16, rows);
            if i > 0 {
                // All matrices are one request.
                self.world.counts[self.pc as usize].shared_requests -= 1;
            }
            // m[row][column]
            let mut m = [[0u32; 8]; 8];
            if *store {
                let v = *self.w.a32(self.k, *r);
                for (l, v) in v.iter().enumerate() {
                    let (a, b) = (l / 4, l % 4 * 2);
                    for (k, h) in [v & 0xffff, v >> 16].into_iter().enumerate() {
                        match transposed {
                            true => m[b + k][a] = h,
                            false => m[a][b + k] = h,
                        }
                    }
                }
            }
            for (row, cells) in m.iter_mut().enumerate() {
                let l = (8 * i + row) as u32;
                let a = at[l as usize];
                let what = if *store { "a write" } else { "a read" };
                if !self.shared_at(l, a, 16, what) {
                    continue;
                }
                self.settled(l, a, 16);
                let w = (a / 4) as usize;
                for k in 0..4 {
                    if *store {
                        self.cta.shared[w + k] = cells[2 * k] | cells[2 * k + 1] << 16;
                        self.cta.shared_written[w + k] = 15;
                        continue;
                    }
                    if self.cta.shared_written[w + k] != 15 && self.world.checks.uninitialised {
                        self.report(Kind::UninitialisedShared, l, None, || {
                            format!("16 bytes at {a:#x} of shared memory were never written")
                        });
                    }
                    let v = self.cta.shared[w + k];
                    cells[2 * k] = v & 0xffff;
                    cells[2 * k + 1] = v >> 16;
                }
                self.note(l, None, a, 16, How::WEAK, *store);
                if *store {
                    self.wrote(None, a, 16);
                } else {
                    self.polled(shared_key(self.cta.owner, a / 4), cells[0]);
                }
            }
            if !*store {
                let mut v = [0u32; 32];
                for (l, v) in v.iter_mut().enumerate() {
                    let (a, b) = (l / 4, l % 4 * 2);
                    *v = match transposed {
                        true => m[b][a] | m[b + 1][a] << 16,
                        false => m[a][b] | m[a][b + 1] << 16,
                    };
                }
                self.w.put32(*r, act, &v);
            }
        }
        if *store {
            self.effect();
        }
    }

    pub(crate) fn mma(&mut self, m: &Mma, act: u32) {
        self.whole_warp(act, "mma.sync");
        match m.a_ty {
            MmaTy::S8 | MmaTy::U8 => self.mma_int(m, act),
            _ => self.mma_float(m, act),
        }
    }

    fn mma_float(&mut self, m: &Mma, act: u32) {
        let mut a = [[0f32; 16]; 16];
        let mut b = [[0f32; 8]; 16];
        let mut c = [[0f32; 8]; 16];
        // Elements in one register.
        let e = if m.a_ty == MmaTy::TF32 { 1 } else { 2 };
        let k = m.k as usize;
        let regs_b = k / (4 * e);
        let open = |row: &[u32; 32]| -> [[f32; 32]; 2] {
            match m.a_ty {
                MmaTy::F16 => {
                    let (lo, hi) = simd::halves(row);
                    [lo, hi]
                }
                MmaTy::BF16 => [
                    row.map(|v| f32::from_bits(v << 16)),
                    row.map(|v| f32::from_bits(v & 0xffff_0000)),
                ],
                // Only the upper 19 bits take part.
                _ => [row.map(|v| f32::from_bits(v & 0xffff_e000)), [0.0; 32]],
            }
        };
        for r in 0..2 * regs_b {
            let v = open(self.w.a32(self.k, m.a[r]));
            for l in 0..32 {
                let (row, at) = (l / 4 + 8 * (r & 1), e * (l % 4) + 4 * e * (r >> 1));
                for j in 0..e {
                    a[row][at + j] = v[j][l];
                }
            }
        }
        for r in 0..regs_b {
            let v = open(self.w.a32(self.k, m.b[r]));
            for l in 0..32 {
                let at = e * (l % 4) + 4 * e * r;
                for j in 0..e {
                    b[at + j][l / 4] = v[j][l];
                }
            }
        }
        for r in 0..2 {
            let pair = match m.c_half {
                true => {
                    let (lo, hi) = simd::halves(self.w.a32(self.k, m.c[r]));
                    [lo, hi]
                }
                false => [
                    self.w.a32(self.k, m.c[2 * r]).map(f32::from_bits),
                    self.w.a32(self.k, m.c[2 * r + 1]).map(f32::from_bits),
                ],
            };
            for l in 0..32 {
                for (j, p) in pair.iter().enumerate() {
                    c[l / 4 + 8 * r][l % 4 * 2 + j] = p[l];
                }
            }
        }
        simd::product(&a, &b, &mut c, k);
        for r in 0..2 {
            let mut pair = [[0u32; 32]; 2];
            for l in 0..32 {
                for (j, p) in pair.iter_mut().enumerate() {
                    p[l] = canonical(c[l / 4 + 8 * r][l % 4 * 2 + j]);
                }
            }
            if m.d_half {
                let of = |v: u32| to_f16(f64::from(f32::from_bits(v)), Rnd::Near);
                let mut row = [0u32; 32];
                for l in 0..32 {
                    row[l] = of(pair[0][l]) | of(pair[1][l]) << 16;
                }
                self.w.put32(m.d[r], act, &row);
            } else {
                self.w.put32(m.d[2 * r], act, &pair[0]);
                self.w.put32(m.d[2 * r + 1], act, &pair[1]);
            }
        }
    }

    fn mma_int(&mut self, m: &Mma, act: u32) {
        let mut a = [[0i32; 32]; 16];
        let mut b = [[0i32; 8]; 32];
        let mut c = [[0i64; 8]; 16];
        let k = m.k as usize;
        let open = |v: u32, j: usize, ty: MmaTy| {
            let byte = (v >> (8 * j)) as u8;
            match ty {
                MmaTy::S8 => i32::from(byte as i8),
                _ => i32::from(byte),
            }
        };
        for r in 0..k / 8 {
            let v = self.w.a32(self.k, m.a[r]);
            for l in 0..32 {
                for j in 0..4 {
                    a[l / 4 + 8 * (r & 1)][4 * (l % 4) + j + 16 * (r >> 1)] = open(v[l], j, m.a_ty);
                }
            }
        }
        for r in 0..k / 16 {
            let v = self.w.a32(self.k, m.b[r]);
            for l in 0..32 {
                for j in 0..4 {
                    b[4 * (l % 4) + j + 16 * r][l / 4] = open(v[l], j, m.b_ty);
                }
            }
        }
        for r in 0..4 {
            let v = self.w.a32(self.k, m.c[r]);
            for l in 0..32 {
                c[l / 4 + 8 * (r >> 1)][l % 4 * 2 + (r & 1)] = i64::from(v[l] as i32);
            }
        }
        for (row, c) in a.iter().zip(c.iter_mut()) {
            for (x, b) in row.iter().zip(&b).take(k) {
                for n in 0..8 {
                    c[n] += i64::from(x * b[n]);
                }
            }
        }
        for r in 0..4 {
            let mut v = [0u32; 32];
            for (l, v) in v.iter_mut().enumerate() {
                let sum = c[l / 4 + 8 * (r >> 1)][l % 4 * 2 + (r & 1)];
                *v = match m.sat {
                    true => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32,
                    false => sum as u32,
                };
            }
            self.w.put32(m.d[r], act, &v);
        }
    }
}
