//! What a step waits for: everything earlier that touches the same bytes, one of the two a write.
use super::memory::Life;
use plan::{BufferId, TileMap, Wait};
use std::collections::BTreeMap;

/// Buffers that a step reads and writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touch {
    /// Read.
    pub reads: Vec<BufferId>,
    /// Written.
    pub writes: Vec<BufferId>,
}

/// A set of steps.
#[derive(Clone)]
pub(crate) struct Steps(Vec<u64>);

impl Steps {
    fn new(n: usize) -> Steps {
        Steps(vec![0; n.div_ceil(64)])
    }
    fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }
    fn add(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }
    /// The last step that `o` does not have.
    fn last_outside(&self, o: &Steps) -> Option<usize> {
        let words = self.0.iter().zip(&o.0).enumerate().rev();
        let mut left = words.map(|(at, (a, b))| (at, a & !b)).filter(|w| w.1 != 0);
        left.next().map(|(at, w)| at * 64 + w.ilog2() as usize)
    }
    fn join(&mut self, o: &Steps) {
        self.0.iter_mut().zip(&o.0).for_each(|(a, b)| *a |= b);
    }
}

/// First and last step that touches each buffer.
pub(crate) fn lives(touches: &[Touch]) -> BTreeMap<BufferId, (u32, u32)> {
    let mut out: BTreeMap<BufferId, (u32, u32)> = BTreeMap::new();
    for (i, t) in touches.iter().enumerate() {
        for &b in t.reads.iter().chain(&t.writes) {
            out.entry(b)
                .and_modify(|l| l.1 = i as u32)
                .or_insert((i as u32, i as u32));
        }
    }
    out
}

/// Pairs of arena buffers that share bytes, as a list per buffer. `arena` gives id, offset and life.
pub(crate) fn sharing(arena: &[(BufferId, u64, Life)]) -> BTreeMap<BufferId, Vec<BufferId>> {
    let mut by_offset: Vec<&(BufferId, u64, Life)> =
        arena.iter().filter(|a| a.2.bytes > 0).collect();
    by_offset.sort_by_key(|a| (a.1, a.0));
    let mut out: BTreeMap<BufferId, Vec<BufferId>> = BTreeMap::new();
    for (i, a) in by_offset.iter().enumerate() {
        for b in by_offset[i + 1..]
            .iter()
            .take_while(|b| b.1 < a.1 + a.2.bytes)
        {
            out.entry(a.0).or_default().push(b.0);
            out.entry(b.0).or_default().push(a.0);
        }
    }
    out
}

/// Waits of every step, without those that others imply, and the steps that each needs. `disjoint(i, j, b)` says that steps `i`
/// and `j` are known to write different bytes of buffer `b`.
pub(crate) fn waits(
    touches: &[Touch],
    shared: &BTreeMap<BufferId, Vec<BufferId>>,
    disjoint: &dyn Fn(usize, usize, BufferId) -> bool,
) -> (Vec<Vec<Wait>>, Vec<Steps>) {
    let n = touches.len();
    let mut needs: Vec<Steps> = Vec::with_capacity(n);
    let mut before: Vec<Steps> = Vec::with_capacity(n);
    let mut readers: BTreeMap<BufferId, Vec<usize>> = BTreeMap::new();
    let mut writers: BTreeMap<BufferId, Vec<usize>> = BTreeMap::new();
    let mut out = Vec::with_capacity(n);
    let none = Vec::new();
    for (i, t) in touches.iter().enumerate() {
        let mut need = Steps::new(n);
        for b in &t.reads {
            writers
                .get(b)
                .unwrap_or(&none)
                .iter()
                .for_each(|&j| need.add(j));
        }
        for b in &t.writes {
            readers
                .get(b)
                .unwrap_or(&none)
                .iter()
                .for_each(|&j| need.add(j));
            for &j in writers.get(b).unwrap_or(&none) {
                if !disjoint(j, i, *b) {
                    need.add(j);
                }
            }
            for o in shared.get(b).into_iter().flatten() {
                readers
                    .get(o)
                    .unwrap_or(&none)
                    .iter()
                    .for_each(|&j| need.add(j));
                writers
                    .get(o)
                    .unwrap_or(&none)
                    .iter()
                    .for_each(|&j| need.add(j));
            }
        }
        // Latest first: whatever a kept step waits for is implied.
        let mut reach = Steps::new(n);
        let mut kept = Vec::new();
        while let Some(j) = need.last_outside(&reach) {
            kept.push(Wait::Step(j as u32));
            reach.add(j);
            reach.join(&before[j]);
        }
        kept.reverse();
        needs.push(need);
        before.push(reach);
        out.push(kept);
        for &b in &t.reads {
            readers.entry(b).or_default().push(i);
        }
        for &b in &t.writes {
            writers.entry(b).or_default().push(i);
        }
    }
    (out, needs)
}

/// Turns waits for whole steps into waits for tiles where `map` gives one and nothing that a step
/// needs besides is lost: such a wait no longer says that the step waited for is over.
pub(crate) fn tiled(
    waits: &mut [Vec<Wait>],
    needs: &[Steps],
    map: &dyn Fn(usize, usize) -> Option<TileMap>,
) {
    let n = waits.len();
    let mut before: Vec<Steps> = Vec::with_capacity(n);
    let mut done: Vec<Steps> = Vec::with_capacity(n);
    for i in 0..n {
        let start = |list: &[Wait]| {
            let mut s = Steps::new(n);
            for w in list {
                match w {
                    Wait::Step(j) => s.join(&done[*j as usize]),
                    Wait::Tiles { step, .. } => s.join(&before[*step as usize]),
                }
            }
            s
        };
        for at in 0..waits[i].len() {
            let Wait::Step(j) = waits[i][at] else {
                continue;
            };
            // Only neighbours: whoever is further away is over long before.
            if j as usize + 1 != i {
                continue;
            }
            let Some(map) = map(j as usize, i) else {
                continue;
            };
            let mut list = waits[i].clone();
            list[at] = Wait::Tiles { step: j, map };
            let reach = start(&list);
            if (0..i).all(|k| !needs[i].has(k) || k == j as usize || reach.has(k)) {
                waits[i] = list;
            }
        }
        let mut end = start(&waits[i]);
        before.push(end.clone());
        for w in &waits[i] {
            if let Wait::Tiles { step, .. } = w {
                end.join(&done[*step as usize]);
            }
        }
        end.add(i);
        done.push(end);
    }
}
