//! What is alive at once.

use super::line::{Kind, Line, Parsed, starts};

/// Registers that a division's or root's subroutine takes where it is called.
pub(super) const SLOW: u32 = 7;

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
    let (lines, labels) = (&p.lines, &p.labels);
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
        if let Some(&to) = last.jump.as_ref().and_then(|j| labels.get(j))
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
    let lines = &p.lines;
    let Alive { starts, out } = alive(p);
    let end = |b: usize| starts.get(b + 1).copied().unwrap_or(lines.len());
    let mut most = 0;
    for b in 0..starts.len() {
        let mut live = out[b].clone();
        // Counting costs as much as all registers: the sum is kept instead.
        let mut now = count(&live, width);
        most = most.max(now);
        for l in lines[starts[b]..end(b)].iter().rev() {
            let mut dead = 0;
            let mut touched: Vec<u32> = l.defs.iter().chain(&l.uses).copied().collect();
            touched.sort_unstable();
            touched.dedup();
            let before: u32 = touched
                .iter()
                .filter(|&&r| has(&live, r))
                .map(|&r| width[r as usize])
                .sum();
            // A result that nobody reads still needs a place.
            for &d in &l.defs {
                if !has(&live, d) {
                    dead += width[d as usize];
                }
            }
            most = most.max(now + dead);
            step(&mut live, l);
            let after: u32 = touched
                .iter()
                .filter(|&&r| has(&live, r))
                .map(|&r| width[r as usize])
                .sum();
            now = now - before + after;
            let called = if l.kind == Kind::Slow { called } else { 0 };
            most = most.max(now + called);
        }
    }
    most
}
