//! The order that an assembler gives instructions: loads early, so that what needs them waits less.
//!
//! A stretch of text without branches and barriers is put in another order: among the instructions whose
//! operands are there and whose pipe is free, the one goes first from which the longest chain hangs, as long
//! as no more values are under way than half of a thread's registers hold; then the first in the text. Loads
//! stay behind stores that may write what they read.

use super::cost::{Ask, PIPES, Pipe};
use crate::parse::ast::Space;
use crate::program::{Inst, Kernel, Op};

/// Most instructions that are ordered together.
const MOST: usize = 512;
/// Cycles that an instruction keeps its pipe from the next: a warp's 32 lanes through 16.
const TURN: u32 = 2;
/// The same of memory, which the schedulers of an SM take in turns.
const MEMORY: u32 = 4;

/// For each instruction with which such a stretch begins, the places of its instructions in their order.
pub(crate) type Orders = Vec<Option<Box<[u16]>>>;

/// Whether nothing moves past it.
fn fixed(i: &Inst) -> bool {
    matches!(
        i.op,
        Op::Bra(..)
            | Op::Brx(_)
            | Op::Call(_)
            | Op::Return
            | Op::Exit
            | Op::Trap
            | Op::Bar(..)
            | Op::Fence(_)
            | Op::CpCommit
            | Op::CpWait(_)
            | Op::Warp(_)
            | Op::Nanosleep
            | Op::ReadSpecial(..)
            | Op::CopyLocal(..)
            | Op::Sm90(_)
    )
}

/// The memory that it reads (false) or writes (true).
fn memory(op: &Op) -> Option<(Space, bool)> {
    Some(match op {
        Op::Ld(a) if a.sem == crate::program::Sem::Weak => (a.space, false),
        Op::Ld(a) => (a.space, true),
        Op::St(a) => (a.space, true),
        Op::Atom(a) => (a.space, true),
        Op::CpAsync(_) => (Space::Generic, true),
        Op::Matrix(m) => (Space::Shared, m.0),
        _ => return None,
    })
}

/// Whether the two may touch the same bytes and one writes them.
fn clash(a: (Space, bool), b: (Space, bool)) -> bool {
    let same = a.0 == b.0 || a.0 == Space::Generic || b.0 == Space::Generic;
    same && (a.1 || b.1)
}

/// About how many cycles until what it gives is there.
fn latency(i: &Inst, a: &Ask) -> u32 {
    match (&i.op, a.pipe) {
        (_, Pipe::Free) => 0,
        (Op::Ld(l), Pipe::Memory) if l.space != Space::Shared => 400,
        (_, Pipe::Memory) => 30,
        (_, Pipe::Matrix | Pipe::Special) => 24,
        (_, _) => 4 + a.slots,
    }
}

/// The orders of all stretches of `k`, of whose threads each has `registers`.
pub(crate) fn orders(k: &Kernel, asks: &[Ask], registers: u32) -> Orders {
    let n = k.code.len();
    let mut begins = vec![false; n + 1];
    let mut mark = |at: u32| {
        if let Some(b) = begins.get_mut(at as usize) {
            *b = true;
        }
    };
    for (at, i) in k.code.iter().enumerate() {
        match &i.op {
            Op::Bra(to, meet) => [*to, *meet].into_iter().for_each(&mut mark),
            Op::Brx(b) => b.0.iter().copied().chain([b.2]).for_each(&mut mark),
            Op::Call(to) => mark(*to),
            _ => {}
        }
        if fixed(i) {
            mark(at as u32);
            mark(at as u32 + 1);
        }
    }
    let mut out: Orders = vec![None; n];
    let mut at = 0;
    while at < n {
        let mut end = at + 1;
        while end < n && !begins[end] && end - at < MOST {
            end += 1;
        }
        if end - at > 2 {
            out[at] = Some(stretch(k, asks, at..end, registers as usize / 2));
        }
        at = end;
    }
    out
}

/// The longest chain that hangs from each instruction, in cycles, of what must go after each.
fn chains(after: &[Vec<(usize, u32)>]) -> Vec<u32> {
    let mut chain = vec![0; after.len()];
    for (a, behind) in after.iter().enumerate().rev() {
        let longest = behind.iter().map(|(b, c)| c + chain[*b]).max();
        chain[a] = longest.unwrap_or(0);
    }
    chain
}

fn stretch(k: &Kernel, asks: &[Ask], range: std::ops::Range<usize>, room: usize) -> Box<[u16]> {
    let (from, n) = (range.start, range.len());
    let (code, asks) = (&k.code[range.clone()], &asks[range]);
    // Who must go before whom, the reader's cycles after.
    let mut after: Vec<Vec<(usize, u32)>> = vec![Vec::new(); n];
    let mut before = vec![0u32; n];
    // How many readers a value has yet.
    let mut readers = vec![0u32; n];
    let mut sources: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut writer: std::collections::HashMap<u32, usize> = Default::default();
    let mut read: std::collections::HashMap<u32, Vec<usize>> = Default::default();
    let mut touched: Vec<(usize, (Space, bool))> = Vec::new();
    let mut edge = |a: usize, b: usize, cycles: u32| {
        if a != b {
            after[a].push((b, cycles));
            before[b] += 1;
        }
    };
    for b in 0..n {
        // A guarded write keeps what was there.
        let keeps = code[b].guard != crate::program::ALWAYS;
        let own = asks[b].reads.iter();
        let kept: &[u32] = if keeps { &asks[b].writes } else { &[] };
        for r in own.chain(kept) {
            if let Some(&a) = writer.get(r) {
                edge(a, b, latency(&code[a], &asks[a]));
                readers[a] += 1;
                sources[b].push(a);
            }
            read.entry(*r).or_default().push(b);
        }
        for w in &asks[b].writes {
            for a in read.remove(w).unwrap_or_default() {
                edge(a, b, 0);
            }
            if let Some(a) = writer.insert(*w, b) {
                edge(a, b, 0);
            }
        }
        if let Some(own) = memory(&code[b].op) {
            for &(a, _) in touched.iter().filter(|t| clash(t.1, own)) {
                edge(a, b, 0);
            }
            touched.push((b, own));
        }
    }
    let chain = chains(&after);
    let mut open = std::collections::BTreeSet::new();
    open.extend((0..n).filter(|b| before[*b] == 0));
    let (mut out, mut live) = (Vec::with_capacity(n), 0usize);
    // The cycle at hand, when what each instruction reads is there, and when each pipe takes the next.
    let (mut now, mut there, mut free) = (0u32, vec![0u32; n], [0u32; PIPES + 1]);
    let pipe = |b: usize| match asks[b].pipe {
        Pipe::Memory => Some((PIPES, MEMORY)),
        p => p.own().map(|p| (p, TURN)),
    };
    let begins = |b: usize, there: &[u32], free: &[u32; PIPES + 1]| {
        there[b].max(pipe(b).map_or(0, |p| free[p.0]))
    };
    while let Some(&first) = open.first() {
        let next = if live >= room {
            first
        } else {
            let soonest = open.iter().map(|b| begins(*b, &there, &free)).min();
            now = now.max(soonest.unwrap_or(now));
            let can = open.iter().copied();
            let can = can.filter(|b| begins(*b, &there, &free) <= now);
            can.max_by_key(|b| (chain[*b], std::cmp::Reverse(*b)))
                .unwrap_or(first)
        };
        open.remove(&next);
        out.push(next as u16);
        now = now.max(begins(next, &there, &free));
        if let Some((p, turn)) = pipe(next) {
            free[p] = now + turn * asks[next].slots;
        }
        let began = now;
        now += asks[next].slots;
        live += usize::from(readers[next] > 0 && asks[next].pipe != Pipe::Free);
        for a in &sources[next] {
            readers[*a] -= 1;
            if readers[*a] == 0 && asks[*a].pipe != Pipe::Free {
                live = live.saturating_sub(1);
            }
        }
        for (b, cycles) in &after[next] {
            there[*b] = there[*b].max(began + cycles);
            before[*b] -= 1;
            if before[*b] == 0 {
                open.insert(*b);
            }
        }
    }
    assert_eq!(out.len(), n, "at {from}");
    out.into()
}
