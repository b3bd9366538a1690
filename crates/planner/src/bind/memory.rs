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

/// An offset for every buffer, multiples of `align`, and the arena's size.
///
/// Largest first, each into the tightest gap among those already placed that live at the same time
/// (ties: the lowest offset); the order of equal sizes is that of their lives, so the result
/// depends on nothing else.
pub(crate) fn assign(lives: &[Life], align: u64) -> (Vec<u64>, u64) {
    let mut order: Vec<usize> = (0..lives.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(lives[i].bytes), lives[i].first, i));
    let mut offsets = vec![0u64; lives.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut top = 0u64;
    for &i in &order {
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
