//! Offsets in the arena: buffers whose lives do not meet may share bytes.
use layout::Arrange;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// A buffer's life, in step numbers (both inclusive), and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// First step that touches it.
    pub first: u32,
    /// Last step that touches it.
    pub last: u32,
    /// Bytes.
    pub bytes: u64,
}

/// Rounds up to a multiple of `align`.
pub(crate) fn align_up(bytes: u64, align: u64) -> u64 {
    bytes.div_ceil(align.max(1)).saturating_mul(align.max(1))
}

/// The largest sum of bytes that live at one time: no arena can be smaller.
pub(crate) fn least(lives: &[Life], align: u64) -> u64 {
    alive(lives, align).0
}

/// The largest sum of bytes that live at one time, and the pairs of buffers that do.
fn alive(lives: &[Life], align: u64) -> (u64, u64) {
    let mut changes: Vec<(u32, bool, u64)> = Vec::new();
    for l in lives {
        let size = align_up(l.bytes, align);
        changes.push((l.first, true, size));
        changes.push((l.last.saturating_add(1), false, size));
    }
    // What ends makes room before what begins.
    changes.arrange();
    let (mut now, mut most) = (0u64, 0u64);
    let (mut count, mut pairs) = (0u64, 0u64);
    for (_, begins, size) in changes {
        if begins {
            now = now.saturating_add(size);
            pairs = pairs.saturating_add(count);
            count += 1;
        } else {
            now = now.saturating_sub(size);
            count = count.saturating_sub(1);
        }
        most = most.max(now);
    }
    (most, pairs)
}

/// Pairs of buffers that live at one time, above which buffers are placed in the order of their lives only:
/// in any other order each is compared with all that it meets.
const PAIRS: u64 = 1 << 23;

/// An offset for every buffer, multiples of `align`, and the arena's size: the best of a few orders
/// in which buffers are placed, each into the tightest gap among those already placed that live at
/// the same time (ties: the lowest offset). The result depends on nothing but the arguments.
pub fn assign(lives: &[Life], align: u64) -> (Vec<u64>, u64) {
    let (bound, pairs) = alive(lives, align);
    if pairs > PAIRS {
        return in_time(lives, align);
    }
    type Key = fn(&Life) -> (u64, u64, u64);
    const ORDERS: [Key; 4] = [
        |l| (u64::MAX - l.bytes, l.first.into(), 0),
        |l| {
            (
                u64::MAX - l.bytes.saturating_mul(u64::from(l.last - l.first + 1)),
                l.first.into(),
                0,
            )
        },
        |l| {
            (
                u64::MAX - u64::from(l.last - l.first),
                u64::MAX - l.bytes,
                l.first.into(),
            )
        },
        |l| (l.first.into(), u64::MAX - l.bytes, l.last.into()),
    ];
    let mut best: Option<(Vec<u64>, u64)> = None;
    for key in ORDERS {
        let mut order: Vec<usize> = (0..lives.len()).collect();
        order.arrange_by_key(|&i| (key(&lives[i]), i));
        let found = placed(lives, &order, align);
        if best.as_ref().is_none_or(|b| found.1 < b.1) {
            best = Some(found);
        }
        if best.as_ref().is_some_and(|b| b.1 <= bound) {
            break;
        }
    }
    best.unwrap_or_default()
}

/// Offsets of buffers placed one after another in `order`.
pub fn placed(lives: &[Life], order: &[usize], align: u64) -> (Vec<u64>, u64) {
    let mut offsets = vec![0u64; lives.len()];
    let mut placed = Placed::new(lives);
    let mut top = 0u64;
    for &i in order {
        let size = align_up(lives[i].bytes, align);
        if size == 0 {
            continue;
        }
        // Bytes taken by others that live at the same time, by offset.
        let mut taken: Vec<(u64, u64)> = placed
            .meeting(&lives[i])
            .map(|j| (offsets[j], offsets[j] + align_up(lives[j].bytes, align)))
            .collect();
        taken.sort_unstable();
        let mut best: Option<(u64, u64)> = None;
        let mut at = 0;
        for &(lo, hi) in &taken {
            if lo >= at + size && best.is_none_or(|b| lo - at < b.0) {
                best = Some((lo - at, at));
            }
            at = at.max(hi);
        }
        offsets[i] = best.map_or(at, |b| b.1);
        top = top.max(offsets[i] + size);
        placed.add(i, &lives[i]);
    }
    (offsets, top)
}

/// Buffers by their lives, so that those that meet another one are found without a look at the rest.
struct Placed {
    /// By first step.
    begun: BTreeSet<(u32, usize)>,
    /// A tree over the steps, as a heap: each life stands at the fewest nodes that make it up.
    tree: Vec<Vec<usize>>,
    steps: usize,
}

impl Placed {
    fn new(lives: &[Life]) -> Placed {
        let steps = lives.iter().map(|l| l.last as usize + 1).max().unwrap_or(1);
        Placed {
            begun: BTreeSet::new(),
            tree: vec![Vec::new(); 2 * steps],
            steps,
        }
    }

    fn add(&mut self, i: usize, life: &Life) {
        self.begun.insert((life.first, i));
        let (mut lo, mut hi) = (
            life.first as usize + self.steps,
            life.last as usize + 1 + self.steps,
        );
        while lo < hi {
            if lo % 2 == 1 {
                self.tree[lo].push(i);
                lo += 1;
            }
            if hi % 2 == 1 {
                hi -= 1;
                self.tree[hi].push(i);
            }
            (lo, hi) = (lo / 2, hi / 2);
        }
    }

    /// Those that live when `life` begins, and those that begin later in it.
    fn meeting(&self, life: &Life) -> impl Iterator<Item = usize> {
        let leaf = life.first as usize + self.steps;
        let nodes = std::iter::successors(Some(leaf), |&n| (n > 1).then_some(n / 2));
        let alive = nodes.flat_map(|n| &self.tree[n]).copied();
        let later = (life.first, usize::MAX)..=(life.last, usize::MAX);
        alive.chain(self.begun.range(later).map(|k| k.1))
    }
}

/// Offsets of buffers placed in the order in which they begin to live.
pub fn in_time(lives: &[Life], align: u64) -> (Vec<u64>, u64) {
    let mut offsets = vec![0u64; lives.len()];
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.arrange_by_key(|&i| (lives[i].first, u64::MAX - lives[i].bytes, lives[i].last, i));
    // What is free below the last byte in use: by offset with its end, and by size.
    let mut free: BTreeMap<u64, u64> = BTreeMap::new();
    let mut sizes: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut ends: BinaryHeap<Reverse<(u32, u64, u64)>> = BinaryHeap::new();
    let (mut end, mut top) = (0u64, 0u64);
    for i in order {
        let size = align_up(lives[i].bytes, align);
        if size == 0 {
            continue;
        }
        while let Some(&Reverse((last, mut lo, mut hi))) = ends.peek()
            && last < lives[i].first
        {
            ends.pop();
            if let Some((&at, &to)) = free.range(..lo).next_back()
                && to == lo
            {
                free.remove(&at);
                sizes.remove(&(to - at, at));
                lo = at;
            }
            if let Some(to) = free.remove(&hi) {
                sizes.remove(&(to - hi, hi));
                hi = to;
            }
            if hi == end {
                end = lo;
            } else {
                free.insert(lo, hi);
                sizes.insert((hi - lo, lo));
            }
        }
        let at = match sizes.range((size, 0)..).next().copied() {
            Some((room, at)) => {
                sizes.remove(&(room, at));
                free.remove(&at);
                if room > size {
                    free.insert(at + size, at + room);
                    sizes.insert((room - size, at + size));
                }
                at
            }
            None => {
                end += size;
                end - size
            }
        };
        offsets[i] = at;
        top = top.max(at + size);
        ends.push(Reverse((lives[i].last, at, at + size)));
    }
    (offsets, top)
}
