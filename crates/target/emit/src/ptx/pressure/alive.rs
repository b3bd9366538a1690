//! What is alive at once.

use super::line::{Kind, Line, Parsed, starts};

/// Registers that a division's or root's subroutine takes where it is called, and truth values.
pub(super) const SLOW: u32 = 7;
pub(super) const SLOW_TRUTHS: u32 = 3;

/// What is alive where blocks begin and end.
pub(super) struct Alive {
    /// First lines of the blocks.
    pub(super) starts: Vec<usize>,
    /// Names behind each block, a bit each.
    pub(super) out: Vec<Vec<u64>>,
}

/// A name's place among bits.
fn bit(r: u32) -> (usize, u64) {
    (r as usize / 64, 1 << (r % 64))
}

pub(super) fn has(live: &[u64], r: u32) -> bool {
    let (w, b) = bit(r);
    live[w] & b != 0
}

/// `live`, which is so behind `l`, as it is before it.
pub(super) fn step(live: &mut [u64], l: &Line) {
    if !l.partial {
        for &d in &l.defs {
            let (w, b) = bit(d);
            live[w] &= !b;
        }
    }
    for &u in &l.uses {
        let (w, b) = bit(u);
        live[w] |= b;
    }
}

/// [`step`]; gives how many registers are alive before `l`, where `now` are behind it.
pub(super) fn stepped(live: &mut [u64], l: &Line, width: &[u32], mut now: u32) -> u32 {
    if !l.partial {
        for &d in &l.defs {
            let (w, b) = bit(d);
            if live[w] & b != 0 {
                live[w] &= !b;
                now -= width[d as usize];
            }
        }
    }
    for &u in &l.uses {
        let (w, b) = bit(u);
        if live[w] & b == 0 {
            live[w] |= b;
            now += width[u as usize];
        }
    }
    now
}

/// Registers of all that is alive.
pub(super) fn count(live: &[u64], width: &[u32]) -> u32 {
    let mut n = 0;
    for (w, &bits) in live.iter().enumerate() {
        let mut bits = bits;
        while bits != 0 {
            n += width[w * 64 + bits.trailing_zeros() as usize];
            bits &= bits - 1;
        }
    }
    n
}

pub(super) fn alive(p: &Parsed) -> Alive {
    let lines = &p.lines;
    let starts = starts(p);
    let block_of = |line: usize| starts.partition_point(|&s| s <= line).saturating_sub(1);
    let words = p.width.len().div_ceil(64);
    let end = |b: usize| starts.get(b + 1).copied().unwrap_or(lines.len());
    let mut live_in = vec![vec![0u64; words]; starts.len()];
    let live_out = |b: usize, live_in: &[Vec<u64>]| {
        let mut out = vec![0u64; words];
        let last = &lines[end(b) - 1];
        let mut join = |n: usize| {
            for (o, i) in out.iter_mut().zip(&live_in[n]) {
                *o |= i;
            }
        };
        if let Some(to) = p.target(last)
            && to < lines.len()
        {
            join(block_of(to));
        }
        if !last.ends && b + 1 < starts.len() {
            join(b + 1);
        }
        out
    };
    loop {
        let mut changed = false;
        for b in (0..starts.len()).rev() {
            let mut live = live_out(b, &live_in);
            for l in lines[starts[b]..end(b)].iter().rev() {
                step(&mut live, l);
            }
            if live != live_in[b] {
                live_in[b] = live;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let out = (0..starts.len()).map(|b| live_out(b, &live_in)).collect();
    Alive { starts, out }
}

/// The most that is alive at once, where every name counts as `width` says, and a subroutine as `called`.
pub(super) fn pressure(p: &Parsed, width: &[u32], called: u32) -> u32 {
    alive(p).most(p, width, called)
}

impl Alive {
    /// [`pressure`] of `p`, which this is of.
    pub(super) fn most(&self, p: &Parsed, width: &[u32], called: u32) -> u32 {
        let lines = &p.lines;
        let ends = self.starts.iter().skip(1).copied().chain([lines.len()]);
        let mut most = 0;
        let mut live = vec![];
        for ((&from, to), out) in self.starts.iter().zip(ends).zip(&self.out) {
            live.clone_from(out);
            // Counting costs as much as all registers: the sum is kept instead.
            let mut now = count(&live, width);
            most = most.max(now);
            for l in lines[from..to].iter().rev() {
                // A result that nobody reads still needs a place.
                most = most.max(now + unread(&live, l, width));
                now = stepped(&mut live, l, width, now);
                let called = if l.kind == Kind::Slow { called } else { 0 };
                most = most.max(now + called);
            }
        }
        most
    }
}

/// Registers of what `l` puts out and nobody reads.
pub(super) fn unread(live: &[u64], l: &Line, width: &[u32]) -> u32 {
    let unread = l.defs.iter().filter(|&&d| !has(live, d));
    unread.map(|&d| width[d as usize]).sum()
}
