//! Offsets in the arena: buffers whose lives do not meet may share bytes.

/// A buffer's life, in step numbers (both inclusive), and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// First step that touches it.
    pub first: u32,
    /// Last step that touches it.
    pub last: u32,
    /// Bytes.
    pub bytes: u64,
}

impl Life {
    fn meets(&self, o: &Life) -> bool {
        self.first <= o.last && o.first <= self.last
    }
}

/// Rounds up to a multiple of `align`.
pub(crate) fn align_up(bytes: u64, align: u64) -> u64 {
    bytes.div_ceil(align.max(1)).saturating_mul(align.max(1))
}

/// The largest sum of bytes that live at one time: no arena can be smaller.
pub(crate) fn least(lives: &[Life], align: u64) -> u64 {
    let mut changes: Vec<(u32, bool, u64)> = Vec::new();
    for l in lives {
        let size = align_up(l.bytes, align);
        changes.push((l.first, true, size));
        changes.push((l.last.saturating_add(1), false, size));
    }
    // What ends makes room before what begins.
    changes.sort_unstable();
    let (mut now, mut most) = (0u64, 0u64);
    for (_, begins, size) in changes {
        now = match begins {
            true => now.saturating_add(size),
            false => now.saturating_sub(size),
        };
        most = most.max(now);
    }
    most
}

/// An offset for every buffer, multiples of `align`, and the arena's size: the best of a few orders
/// in which buffers are placed, each into the tightest gap among those already placed that live at
/// the same time (ties: the lowest offset). The result depends on nothing but the arguments.
pub(crate) fn assign(lives: &[Life], align: u64) -> (Vec<u64>, u64) {
    let bound = least(lives, align);
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
        order.sort_by_key(|&i| (key(&lives[i]), i));
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
fn placed(lives: &[Life], order: &[usize], align: u64) -> (Vec<u64>, u64) {
    let mut offsets = vec![0u64; lives.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut top = 0u64;
    for &i in order {
        let size = align_up(lives[i].bytes, align);
        if size == 0 {
            continue;
        }
        // Bytes taken by others that live at the same time, by offset.
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&j| lives[j].meets(&lives[i]))
            .map(|&j| (offsets[j], offsets[j] + align_up(lives[j].bytes, align)))
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
        placed.push(i);
    }
    (offsets, top)
}
