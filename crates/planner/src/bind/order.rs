//! The order of a block's items, chosen for the peak of what is alive.
//!
//! The program's order is kept unless another one lowers the peak by a stated share: neighbours in
//! the program hand values on while they are near.
use layout::DimBox;
use plan::{Item, Program, ValueIx, ValueOrigin};
use std::collections::{BTreeMap, BTreeSet};

/// The peak must fall below this share of the program's own order to be worth leaving that order.
const WORTH: f64 = 0.9;

/// What is alive between a block's items.
struct Lives {
    /// Values that lie in the arena, with their bytes.
    bytes: BTreeMap<ValueIx, u64>,
    reads: Vec<Vec<ValueIx>>,
    writes: Vec<Vec<ValueIx>>,
    /// Items that must come before each item.
    before: Vec<BTreeSet<usize>>,
}

/// The items in the order that they should run in: `None` when the program's own order stays.
/// `ports` are values that lie in the caller's memory. With `tight` any lower peak is taken.
pub(crate) fn order(
    program: &Program,
    items: &[Item],
    ports: &BTreeSet<ValueIx>,
    dims: &DimBox,
    tight: bool,
) -> Option<Vec<usize>> {
    let l = Lives::new(program, items, ports, dims);
    let own: Vec<usize> = (0..items.len()).collect();
    let other = l.greedy();
    let (a, b) = (l.peak(&own), l.peak(&other));
    let share = if tight { 1.0 } else { WORTH };
    ((b as f64) < a as f64 * share).then_some(other)
}

impl Lives {
    fn new(program: &Program, items: &[Item], ports: &BTreeSet<ValueIx>, dims: &DimBox) -> Lives {
        let reads: Vec<Vec<ValueIx>> = items.iter().map(Item::reads).collect();
        let writes: Vec<Vec<ValueIx>> = items.iter().map(Item::writes).collect();
        let mut bytes = BTreeMap::new();
        for &v in reads.iter().chain(&writes).flatten() {
            let value = program.value(v);
            if value.origin == ValueOrigin::Made && !ports.contains(&v) {
                let n = dims.at_top(&value.storage).unwrap_or(0).max(0) as u64;
                bytes.insert(v, n.saturating_mul(u64::from(value.dtype.bits())) / 8);
            }
        }
        // Readers come after all writers that stand before them, writers after readers before them.
        let mut writers: BTreeMap<ValueIx, Vec<usize>> = BTreeMap::new();
        let mut readers: BTreeMap<ValueIx, Vec<usize>> = BTreeMap::new();
        let mut before = vec![BTreeSet::new(); items.len()];
        for i in 0..items.len() {
            for v in &reads[i] {
                before[i].extend(writers.get(v).into_iter().flatten());
            }
            for v in &writes[i] {
                before[i].extend(readers.get(v).into_iter().flatten());
            }
            reads[i]
                .iter()
                .for_each(|&v| readers.entry(v).or_default().push(i));
            writes[i]
                .iter()
                .for_each(|&v| writers.entry(v).or_default().push(i));
            before[i].remove(&i);
        }
        Lives {
            bytes,
            reads,
            writes,
            before,
        }
    }

    fn touched(&self, i: usize) -> BTreeSet<ValueIx> {
        self.reads[i]
            .iter()
            .chain(&self.writes[i])
            .copied()
            .filter(|v| self.bytes.contains_key(v))
            .collect()
    }

    /// Uses of every value.
    fn uses(&self) -> BTreeMap<ValueIx, usize> {
        let mut out = BTreeMap::new();
        for i in 0..self.reads.len() {
            for v in self.touched(i) {
                *out.entry(v).or_insert(0) += 1;
            }
        }
        out
    }

    /// The largest sum of live bytes.
    fn peak(&self, order: &[usize]) -> u64 {
        let mut left = self.uses();
        let mut live: BTreeSet<ValueIx> = BTreeSet::new();
        let (mut now, mut peak) = (0u64, 0u64);
        for &i in order {
            for v in self.touched(i) {
                if live.insert(v) {
                    now += self.bytes[&v];
                }
            }
            peak = peak.max(now);
            for v in self.touched(i) {
                if let Some(n) = left.get_mut(&v) {
                    *n -= 1;
                    if *n == 0 && live.remove(&v) {
                        now -= self.bytes[&v];
                    }
                }
            }
        }
        peak
    }

    /// Always the ready item after which least is alive; of equals the first of the program.
    fn greedy(&self) -> Vec<usize> {
        let n = self.reads.len();
        let mut left = self.uses();
        let mut live: BTreeSet<ValueIx> = BTreeSet::new();
        let mut waiting: Vec<usize> = self.before.iter().map(BTreeSet::len).collect();
        let mut after = vec![Vec::new(); n];
        for (i, b) in self.before.iter().enumerate() {
            b.iter().for_each(|&j| after[j].push(i));
        }
        let mut ready: BTreeSet<usize> = (0..n).filter(|&i| waiting[i] == 0).collect();
        let mut out = Vec::with_capacity(n);
        while !ready.is_empty() {
            let growth = |i: usize| -> i64 {
                self.touched(i)
                    .into_iter()
                    .map(|v| {
                        let b = self.bytes[&v] as i64;
                        let (new, last) = (!live.contains(&v), left[&v] == 1);
                        b * (i64::from(new) - i64::from(last))
                    })
                    .sum()
            };
            let Some(i) = ready.iter().copied().min_by_key(|&i| (growth(i), i)) else {
                break;
            };
            ready.remove(&i);
            out.push(i);
            for v in self.touched(i) {
                live.insert(v);
                if let Some(n) = left.get_mut(&v) {
                    *n -= 1;
                    if *n == 0 {
                        live.remove(&v);
                    }
                }
            }
            for &j in &after[i] {
                waiting[j] -= 1;
                if waiting[j] == 0 {
                    ready.insert(j);
                }
            }
        }
        out
    }
}
