//! `cp.async.bulk.tensor`: boxes of tensors by their maps.

use super::Ctx;
use super::bulk::Source;
use crate::checks::Kind;
use crate::machine::cta::lanes;
use crate::machine::later::Piece;
use crate::memory::PARAM_WINDOW;
use crate::sm90::TensorCopy;
use crate::tensor_map::{BYTES, TensorMap, decode};

/// Bytes that a swizzle moves together.
const CHUNK: u32 = 16;

impl Ctx<'_> {
    pub(crate) fn tensor_load(&mut self, t: &TensorCopy, act: u32) {
        let (maps, to) = (self.addresses(&t.map), self.shared_addresses(&t.shared));
        let bars = self.shared_addresses(&t.barrier);
        for l in lanes(act) {
            let (d, bar) = (to[l as usize], bars[l as usize]);
            let Some(m) = self.tensor_map(l, maps[l as usize], t) else {
                continue;
            };
            let at = self.coordinates(t, l);
            for (nth, to) in self.targets(l, t.ranks, d).into_iter().enumerate() {
                self.placed(to, |c, d| {
                    if let Some(pieces) = c.tensor_box(l, &m, at, d, false) {
                        let source = Source {
                            bytes: m.box_bytes(),
                            convert: m.convert(),
                            again: nth > 0,
                        };
                        c.begin_load(l, pieces, source, bar & 0xff_ffff);
                    }
                });
            }
        }
        self.cta.clock += 1;
        self.effect();
    }

    pub(crate) fn tensor_store(&mut self, t: &TensorCopy, act: u32) {
        let (maps, from) = (self.addresses(&t.map), self.shared_addresses(&t.shared));
        for l in lanes(act) {
            let Some(m) = self.tensor_map(l, maps[l as usize], t) else {
                continue;
            };
            let at = self.coordinates(t, l);
            if let Some(pieces) = self.tensor_box(l, &m, at, from[l as usize], true) {
                self.begin_store(l, pieces);
            }
        }
        self.cta.clock += 1;
        self.effect();
    }

    fn coordinates(&self, t: &TensorCopy, lane: u32) -> [i64; 5] {
        let mut at = [0; 5];
        for (a, r) in at.iter_mut().zip(&t.coordinates) {
            *a = i64::from(self.w.a32(self.k, *r)[lane as usize] as i32);
        }
        at
    }

    /// The map at an address, in parameters or in global memory.
    fn tensor_map(&mut self, lane: u32, at: u64, t: &TensorCopy) -> Option<TensorMap> {
        let params = at.wrapping_sub(PARAM_WINDOW);
        let mut bytes = vec![0; BYTES];
        if !at.is_multiple_of(64) {
            self.report(Kind::Misaligned, lane, None, || {
                format!("a tensor map at {at:#x}, which is no multiple of 64")
            });
            return None;
        }
        if params < 1 << 20 {
            let from = params as usize;
            if let Some(own) = self.world.params.get(from..from + BYTES) {
                bytes.copy_from_slice(own);
            }
        } else {
            let (id, offset) = self.global_range(lane, at, BYTES as u32, "a tensor map")?;
            let m = &self.mem.allocations[id];
            for (k, word) in bytes.chunks_exact_mut(4).enumerate() {
                let v = m.load(offset + 4 * k as u64, 4)[0];
                word.copy_from_slice(&v.to_le_bytes());
            }
        }
        let map = decode(&bytes).filter(|m| m.rank as usize == t.coordinates.len());
        if map.is_none() {
            self.report(Kind::Undefined, lane, None, || {
                format!(
                    "there is no tensor map of {} dimensions at {at:#x}",
                    t.coordinates.len()
                )
            });
        }
        map
    }

    /// A box at its coordinates: where each part of it lies, zeros for what is outside of the tensor; for
    /// stores only what is inside.
    fn tensor_box(
        &mut self,
        lane: u32,
        m: &TensorMap,
        at: [i64; 5],
        shared: u64,
        store: bool,
    ) -> Option<Vec<Piece>> {
        if !shared.is_multiple_of(128) {
            self.report(Kind::Misaligned, lane, None, || {
                format!("a box at shared {shared:#x}, which is no multiple of 128")
            });
            return None;
        }
        let what = "an asynchronous copy";
        if !self.shared_range(lane, shared, m.box_bytes(), what) {
            return None;
        }
        let row = m.count(0) * m.element();
        let rows = m.box_bytes() / row;
        let mut pieces = Vec::new();
        for r in 0..rows {
            let from = row_of(m, at, r);
            let inside = from.map_or(0..0, |_| valid(m, at[0]));
            let start = shared as u32 + r * row;
            let mut global = None;
            if !inside.is_empty() {
                let first = from?.wrapping_add_signed(
                    (at[0] + i64::from(inside.start / m.element())) * i64::from(m.element()),
                );
                global = Some(self.global_range(lane, first, inside.len() as u32, what)?);
            }
            for c in (0..row).step_by(CHUNK as usize) {
                let to = m.swizzled(start + c);
                parts(&mut pieces, (c, to), &inside, global, store);
            }
        }
        Some(pieces)
    }
}

/// Where the row's element with the innermost coordinate 0 would lie; none where the row is outside.
fn row_of(m: &TensorMap, at: [i64; 5], row: u32) -> Option<u64> {
    let (mut left, mut address) = (row, m.address);
    for k in 1..m.rank as usize {
        let n = m.count(k);
        let x = at[k] + i64::from(left % n * m.step(k));
        left /= n;
        if x < 0 || x as u64 >= m.dims[k] {
            return None;
        }
        address += x as u64 * m.strides[k - 1];
    }
    Some(address)
}

/// The bytes of a row that lie inside of the tensor.
fn valid(m: &TensorMap, x: i64) -> std::ops::Range<u32> {
    let n = i64::from(m.count(0));
    let from = (-x).clamp(0, n);
    let to = (m.dims[0] as i64 - x).clamp(from, n);
    from as u32 * m.element()..to as u32 * m.element()
}

/// The parts of 16 bytes of a row, of which those `inside` lie in global memory from `global` on.
fn parts(
    out: &mut Vec<Piece>,
    (c, to): (u32, u32),
    inside: &std::ops::Range<u32>,
    global: Option<(usize, u64)>,
    store: bool,
) {
    let a = inside.start.clamp(c, c + CHUNK);
    let b = inside.end.clamp(a, c + CHUNK);
    for (from, to_end, real) in [(c, a, false), (a, b, true), (b, c + CHUNK, false)] {
        if from == to_end || (store && !real) {
            continue;
        }
        let place = |(id, o): (usize, u64)| (id, o + u64::from(from - inside.start));
        let p = Piece {
            global: if real { global.map(place) } else { None },
            shared: to + from - c,
            bytes: to_end - from,
        };
        match out.last_mut() {
            Some(last) if follows(last, &p) => last.bytes += p.bytes,
            _ => out.push(p),
        }
    }
}

/// Whether `p` goes on where `last` ends.
fn follows(last: &Piece, p: &Piece) -> bool {
    last.shared + last.bytes == p.shared
        && match (last.global, p.global) {
            (None, None) => true,
            (Some((a, x)), Some((b, y))) => a == b && x + u64::from(last.bytes) == y,
            _ => false,
        }
}
