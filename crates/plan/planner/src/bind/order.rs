//! The order of a block's items, chosen for the peak of what is alive.
//!
//! The program's order is kept unless another one lowers the peak by a stated share: neighbours in
//! the program hand values on while they are near.
use layout::{DimBox, Inserted};
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
    /// What must come before what: items, and behind them their joins.
    after: Vec<Vec<usize>>,
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

/// Items that others come after together.
#[derive(Default)]
struct SiblingItems(Vec<usize>);

impl SiblingItems {
    /// Lets `i` come after all of them. Of several one join is made, so that many after many are no more than both.
    fn before(&mut self, i: usize, after: &mut Vec<Vec<usize>>) {
        if self.0.len() > 1 {
            let join = after.len();
            after.push(Vec::new());
            self.0.drain(..).for_each(|j| after[j].push(join));
            self.0.push(join);
        }
        self.0.iter().for_each(|&j| after[j].push(i));
    }
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
        let mut after = vec![Vec::new(); items.len()];
        let mut writers: BTreeMap<ValueIx, SiblingItems> = BTreeMap::new();
        let mut readers: BTreeMap<ValueIx, SiblingItems> = BTreeMap::new();
        for i in 0..items.len() {
            for v in &reads[i] {
                if let Some(w) = writers.get_mut(v) {
                    w.before(i, &mut after);
                }
            }
            for v in &writes[i] {
                if let Some(r) = readers.get_mut(v) {
                    r.before(i, &mut after);
                }
            }
            reads[i]
                .iter()
                .for_each(|&v| readers.entry(v).or_default().0.push(i));
            writes[i]
                .iter()
                .for_each(|&v| writers.entry(v).or_default().0.push(i));
        }
        Lives {
            bytes,
            reads,
            writes,
            after,
        }
    }

    fn touched(&self, i: usize) -> BTreeSet<ValueIx> {
        self.reads[i]
            .iter()
            .chain(&self.writes[i])
            .copied()
            .filter(|v| self.bytes.contains_key(v))
            .inserted()
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
        let touched: Vec<BTreeSet<ValueIx>> = (0..n).map(|i| self.touched(i)).collect();
        let mut users: BTreeMap<ValueIx, Vec<usize>> = BTreeMap::new();
        for (i, t) in touched.iter().enumerate() {
            t.iter().for_each(|&v| users.entry(v).or_default().push(i));
        }
        let mut left: BTreeMap<ValueIx, usize> =
            users.iter().map(|(&v, u)| (v, u.len())).inserted();
        let mut live: BTreeSet<ValueIx> = BTreeSet::new();
        // How much more is alive after each item.
        let growth = |v: &ValueIx, new: bool, last: bool| {
            self.bytes[v] as i64 * (i64::from(new) - i64::from(last))
        };
        let at_first =
            |t: &BTreeSet<ValueIx>| t.iter().map(|v| growth(v, true, left[v] == 1)).sum();
        let mut grows: Vec<i64> = touched.iter().map(at_first).collect();
        let mut waiting = vec![0usize; self.after.len()];
        self.after.iter().flatten().for_each(|&j| waiting[j] += 1);
        let mut done = vec![false; n];
        let mut ready: BTreeSet<(i64, usize)> = BTreeSet::new();
        ready.extend((0..n).filter(|&i| waiting[i] == 0).map(|i| (grows[i], i)));
        let mut out = Vec::with_capacity(n);
        while let Some((_, i)) = ready.pop_first() {
            done[i] = true;
            out.push(i);
            for v in &touched[i] {
                let before = (!live.contains(v), left[v] == 1);
                live.insert(*v);
                if let Some(n) = left.get_mut(v) {
                    *n -= 1;
                    if *n == 0 {
                        live.remove(v);
                    }
                }
                let now = (false, left[v] == 1);
                // It changes twice at most: when it comes to life, and when one is left.
                if before == now || left[v] == 0 {
                    continue;
                }
                let more = growth(v, now.0, now.1) - growth(v, before.0, before.1);
                for &u in users[v].iter().filter(|&&u| !done[u]) {
                    let was = ready.remove(&(grows[u], u));
                    grows[u] += more;
                    if was {
                        ready.insert((grows[u], u));
                    }
                }
            }
            let mut over = vec![i];
            while let Some(i) = over.pop() {
                for &j in &self.after[i] {
                    waiting[j] -= 1;
                    match waiting[j] {
                        0 if j < n => drop(ready.insert((grows[j], j))),
                        0 => over.push(j),
                        _ => {}
                    }
                }
            }
        }
        out
    }
}
