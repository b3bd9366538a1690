//! The order that an assembler gives instructions: loads early, and pipes in turns.
//!
//! Between labels, jumps and points where warps wait, the instruction goes next whose operands are there and
//! whose pipe is free, of several the one from which the longest chain hangs, as long as no more values are
//! under way than half of a thread's registers hold; then the first in the text. Loads stay behind stores
//! that may write what they read. The emulator orders what it runs by the same rule in code of its own: it
//! reads the text alone, and predictions are judged by it.
use super::item::{Item, waits};
use super::words::{Kind, Word};
use crate::ptx::lines::Lines;
use layout::Few;
use machine::{Pipe, WarpRates};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Most instructions that are ordered together.
const MOST: usize = 512;

/// Puts the instructions of `items`, a body of loops and all, in order.
pub(super) fn arrange(items: &mut Vec<Item>, lines: &Lines, rates: &WarpRates, registers: u32) {
    let mut seen = Seen::new(lines.names.len());
    arranged(items, lines, rates, registers, &mut seen);
}

fn arranged(
    items: &mut Vec<Item>,
    lines: &Lines,
    rates: &WarpRates,
    registers: u32,
    seen: &mut Seen,
) {
    let mut out = Vec::with_capacity(items.len());
    let mut stretch = vec![];
    for item in items.drain(..) {
        match item {
            Item::Word(w, t) if !waits(w.kind) => {
                stretch.push((w, t));
                if stretch.len() == MOST {
                    ordered(&mut stretch, lines, rates, registers, seen, &mut out);
                }
            }
            item => {
                ordered(&mut stretch, lines, rates, registers, seen, &mut out);
                out.push(match item {
                    Item::Part {
                        number,
                        times,
                        looped,
                        mut body,
                    } => {
                        arranged(&mut body, lines, rates, registers, seen);
                        Item::Part {
                            number,
                            times,
                            looped,
                            body,
                        }
                    }
                    Item::Sides(mut s) => {
                        let rest = s.walk.iter_mut().map(|w| &mut w.0);
                        for side in [&mut s.copy, &mut s.compute].into_iter().chain(rest) {
                            arranged(side, lines, rates, registers, seen);
                        }
                        Item::Sides(s)
                    }
                    word => word,
                });
            }
        }
    }
    ordered(&mut stretch, lines, rates, registers, seen, &mut out);
    *items = out;
}

type Instruction = (Word, crate::simt::lanes::Touch);

/// Whether it touches an operand's memory, and whether shared memory, and whether it writes.
fn memory(kind: Kind) -> Option<(bool, bool, bool)> {
    Some(match kind {
        Kind::Load => (true, false, false),
        Kind::Store => (true, false, true),
        Kind::LoadShared => (false, true, false),
        Kind::StoreShared => (false, true, true),
        Kind::Copy => (true, true, true),
        _ => return None,
    })
}

/// About how many cycles until what it gives is there.
fn latency(w: &Word, rates: &WarpRates) -> f64 {
    match (w.kind, w.pipe) {
        (_, None) => 0.0,
        (Kind::Load, _) => rates.far,
        (Kind::LoadShared, _) => rates.shared,
        (_, Some(p)) => f64::from(w.turns) * rates.turn(p) - 1.0 + rates.latency(p),
    }
}

/// Instructions of a stretch, by their places.
type Places = Few<u32, 4>;

/// What stands between instructions.
struct Follows {
    /// Who must go after each, and how many cycles later at least.
    after: Vec<Few<(u32, f64), 4>>,
    /// How many must go before each.
    before: Vec<u32>,
    /// Those whose results each reads.
    sources: Vec<Places>,
    /// How often the results of each are read.
    readers: Vec<u32>,
}

/// What the instructions of a stretch did with each register so far.
struct Seen {
    writer: Vec<Option<u32>>,
    read: Vec<Places>,
}

impl Seen {
    fn new(registers: usize) -> Seen {
        Seen {
            writer: vec![None; registers],
            read: vec![Places::new(); registers],
        }
    }

    fn forget(&mut self, list: &[Instruction], lines: &Lines) {
        let all = list
            .iter()
            .flat_map(|(w, _)| w.uses(lines).iter().chain(w.defs(lines)));
        for &r in all {
            self.writer[r as usize] = None;
            self.read[r as usize].clear();
        }
    }
}

/// What stands between the instructions of `list`, by registers and by memory.
fn follows(list: &[Instruction], lines: &Lines, rates: &WarpRates, seen: &mut Seen) -> Follows {
    let n = list.len();
    let mut out = Follows {
        after: vec![Few::new(); n],
        before: vec![0u32; n],
        sources: vec![Places::new(); n],
        readers: vec![0u32; n],
    };
    let Follows {
        after,
        before,
        sources,
        readers,
    } = &mut out;
    let mut edge = |a: u32, b: u32, cycles: f64| {
        if a != b {
            after[a as usize].push((b, cycles));
            before[b as usize] += 1;
        }
    };
    let mut touched: Vec<(u32, (bool, bool, bool))> = vec![];
    for (b, (w, _)) in (0u32..).zip(list) {
        for &r in w.uses(lines) {
            if let Some(a) = seen.writer[r as usize] {
                edge(a, b, latency(&list[a as usize].0, rates));
                readers[a as usize] += 1;
                sources[b as usize].push(a);
            }
            seen.read[r as usize].push(b);
        }
        for &d in w.defs(lines) {
            for &a in &seen.read[d as usize] {
                edge(a, b, 0.0);
            }
            seen.read[d as usize].clear();
            if let Some(a) = seen.writer[d as usize].replace(b) {
                edge(a, b, 0.0);
            }
        }
        if let Some(own) = memory(w.kind) {
            let clash = |o: (bool, bool, bool)| {
                ((o.0 && own.0) || (o.1 && own.1)) && (o.2 || own.2) && w.kind != Kind::Copy
            };
            for &(a, _) in touched.iter().filter(|t| clash(t.1)) {
                edge(a, b, 0.0);
            }
            touched.push((b, own));
        }
    }
    seen.forget(list, lines);
    out
}

fn ordered(
    stretch: &mut Vec<Instruction>,
    lines: &Lines,
    rates: &WarpRates,
    registers: u32,
    seen: &mut Seen,
    out: &mut Vec<Item>,
) {
    let list = std::mem::take(stretch);
    let n = list.len();
    let Follows {
        after,
        mut before,
        sources,
        mut readers,
    } = follows(&list, lines, rates, seen);
    let mut chain = vec![0.0f64; n];
    for a in (0..n).rev() {
        let longest = after[a].iter().map(|(b, c)| c + chain[*b as usize]);
        chain[a] = longest.fold(0.0, f64::max);
    }
    let room = (registers / 2) as usize;
    let pipe = |b: usize| list[b].0.pipe.map_or(UNISSUED, |p| p as usize);
    let mut open = Open::new(&chain);
    (0..n).filter(|b| before[*b] == 0).for_each(|b| {
        open.push(b, pipe(b), 0.0);
    });
    let (mut now, mut live) = (0.0f64, 0usize);
    let mut there = vec![0.0f64; n];
    let mut order = Vec::with_capacity(n);
    loop {
        let next = match live >= room {
            true => open.first(),
            false => open.best(&mut now),
        };
        let Some(next) = next else { break };
        let own = pipe(next);
        now = now.max(there[next]).max(open.free[own]);
        let began = now;
        let w = &list[next].0;
        if let Some(p) = w.pipe {
            let turns = f64::from(w.turns);
            // The schedulers of a multiprocessor take turns at memory.
            let turn = match p {
                Pipe::Memory => rates.turn(p) * rates.schedulers,
                p => rates.turn(p),
            };
            open.free[own] = now + turn * turns;
            now += turns;
        }
        order.push(next);
        live += usize::from(readers[next] > 0 && w.pipe.is_some());
        for a in &sources[next] {
            let a = *a as usize;
            readers[a] -= 1;
            if readers[a] == 0 && list[a].0.pipe.is_some() {
                live = live.saturating_sub(1);
            }
        }
        for (b, cycles) in &after[next] {
            let b = *b as usize;
            there[b] = there[b].max(began + cycles);
            before[b] -= 1;
            if before[b] == 0 {
                open.push(b, pipe(b), there[b]);
            }
        }
    }
    out.extend(order.into_iter().map(|k| Item::Word(list[k].0, list[k].1)));
}

/// The pipe, so to say, of what an assembler folds into others: it is always free.
const UNISSUED: usize = Pipe::ALL.len();

/// A number that is ordered.
#[derive(PartialEq)]
struct Cycles(f64);

impl Eq for Cycles {}

impl PartialOrd for Cycles {
    fn partial_cmp(&self, other: &Cycles) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cycles {
    fn cmp(&self, other: &Cycles) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Instructions that wait for no other to go first.
struct Open<'a> {
    /// The longest chain from each instruction of the stretch.
    chain: &'a [f64],
    /// When each pipe takes the next instruction.
    free: [f64; UNISSUED + 1],
    /// By pipe, those whose operands were not there yet, with when they are, the soonest first.
    waiting: [BinaryHeap<Reverse<(Cycles, usize)>>; UNISSUED + 1],
    /// By pipe, those whose operands are there, the one with the longest chain first and of several the first in
    /// the text.
    able: [BinaryHeap<(Cycles, Reverse<usize>)>; UNISSUED + 1],
    /// All of them by their places in the text.
    all: BinaryHeap<Reverse<usize>>,
    /// Those that were taken: they are still in one heap or the other.
    taken: Vec<bool>,
}

impl Open<'_> {
    fn new(chain: &[f64]) -> Open<'_> {
        Open {
            chain,
            free: [0.0; UNISSUED + 1],
            waiting: Default::default(),
            able: Default::default(),
            all: BinaryHeap::new(),
            taken: vec![false; chain.len()],
        }
    }

    /// Adds the instruction in place `at`, for `pipe`, whose operands are `there`.
    fn push(&mut self, at: usize, pipe: usize, there: f64) {
        self.waiting[pipe].push(Reverse((Cycles(there), at)));
        self.all.push(Reverse(at));
    }

    /// Takes the first in the text.
    fn first(&mut self) -> Option<usize> {
        while let Some(Reverse(at)) = self.all.pop() {
            if !std::mem::replace(&mut self.taken[at], true) {
                return Some(at);
            }
        }
        None
    }

    /// Takes, of those that can go at `now`, the one from which the longest chain hangs; where none can it becomes
    /// later until one can.
    fn best(&mut self, now: &mut f64) -> Option<usize> {
        self.arrive(*now);
        let soonest = (0..=UNISSUED).filter_map(|p| self.begins(p, *now));
        *now = now.max(soonest.min_by(f64::total_cmp)?);
        self.arrive(*now);
        let can = (0..=UNISSUED).filter(|&p| self.free[p] <= *now);
        let pipe = can.max_by(|&p, &q| self.able[p].peek().cmp(&self.able[q].peek()))?;
        let (_, Reverse(at)) = self.able[pipe].pop()?;
        self.taken[at] = true;
        Some(at)
    }

    /// Finds those whose operands are there at `now`, and forgets those that were taken.
    fn arrive(&mut self, now: f64) {
        for (waiting, able) in self.waiting.iter_mut().zip(&mut self.able) {
            while let Some(Reverse((there, at))) = waiting.peek() {
                let (there, at) = (there.0, *at);
                if there > now && !self.taken[at] {
                    break;
                }
                waiting.pop();
                able.push((Cycles(self.chain[at]), Reverse(at)));
            }
            while able.peek().is_some_and(|(_, Reverse(at))| self.taken[*at]) {
                able.pop();
            }
        }
    }

    /// When the first for `pipe` begins, from `now` on.
    fn begins(&self, pipe: usize, now: f64) -> Option<f64> {
        let there = match (self.able[pipe].is_empty(), self.waiting[pipe].peek()) {
            (false, _) => now,
            (true, Some(Reverse((there, _)))) => there.0,
            (true, None) => return None,
        };
        Some(there.max(self.free[pipe]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::count::Reader;
    use crate::simt::lanes::Touch;
    use machine::Machine;

    /// The lines of `text` in their order for a thread of so many registers.
    fn order(text: &str, registers: u32) -> Vec<u32> {
        let rates = Machine::load("a100").unwrap().warp_rates().unwrap();
        let (lines, mut items) = (Lines::of(text), vec![]);
        let mut reader = Reader::new(&lines);
        reader.read(0..lines.lines.len(), Touch::default(), &mut items);
        arrange(&mut items, &lines, &rates, registers);
        let line = |i: &Item| match i {
            Item::Word(w, _) => w.line,
            _ => panic!("a part"),
        };
        items.iter().map(line).collect()
    }

    #[test]
    fn loads_go_first_pipes_take_turns_and_nothing_passes_a_barrier() {
        let text = "\
            add.f32 %f1, %f0, %f0;\n\
            ld.global.f32 %f2, [%l1];\n\
            mul.f32 %f3, %f2, %f2;\n\
            st.global.f32 [%l2], %f3;\n\
            ld.global.f32 %f4, [%l3];\n\
            bar.sync 0;\n\
            add.f32 %f5, %f6, %f6;\n\
            add.f32 %f7, %f8, %f8;\n\
            add.s32 %r1, %r2, %r2;\n";
        // The first load, what does not wait for it, its chain, and the load that may read what is stored;
        // behind the barrier an integer goes while the pipe of floats is taken.
        assert_eq!(order(text, 64), [1, 0, 2, 3, 4, 5, 6, 8, 7]);
        assert_eq!(order(text, 0), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
