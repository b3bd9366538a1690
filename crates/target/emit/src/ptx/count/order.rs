//! The order that an assembler gives instructions: loads early, and pipes in turns.
//!
//! Between labels, jumps and points where warps wait, the instruction goes next whose operands are there and
//! whose pipe is free, of several the one from which the longest chain hangs, as long as no more values are
//! under way than half of a thread's registers hold; then the first in the text. Loads stay behind stores
//! that may write what they read. The emulator orders what it runs by the same rule in code of its own: it
//! reads the text alone, and predictions are judged by it.
use super::item::{Item, Sides, waits};
use super::words::{Kind, Word};
use crate::ptx::lines::Lines;
use layout::Few;
use machine::{Pipe, WarpRates};
use std::cell::Cell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

/// Most instructions that are ordered together.
const MOST: usize = 512;

/// Puts the instructions of `items`, a body of loops and all, in order.
pub(super) fn arrange(items: &mut Vec<Item>, lines: &Lines, rates: &WarpRates, registers: u32) {
    let mut scratch = SCRATCH.take();
    scratch.seen.fit(lines.names.len());
    arranged(items, lines, rates, registers, &mut scratch);
    SCRATCH.set(scratch);
}

thread_local! {
    /// What this thread orders with. A table of all registers of a text is long, and clean after every stretch: it serves
    /// for the next text.
    static SCRATCH: Cell<Scratch> = Cell::default();
}

fn arranged(
    items: &mut Vec<Item>,
    lines: &Lines,
    rates: &WarpRates,
    registers: u32,
    scratch: &mut Scratch,
) {
    let mut out = Vec::with_capacity(items.len());
    let mut stretch = vec![];
    for item in items.drain(..) {
        match item {
            Item::Word(w, t) if !waits(w.kind) => {
                stretch.push((w, t));
                if stretch.len() == MOST {
                    ordered(&mut stretch, lines, rates, registers, scratch, &mut out);
                }
            }
            item => {
                ordered(&mut stretch, lines, rates, registers, scratch, &mut out);
                out.push(match item {
                    Item::Part {
                        number,
                        times,
                        looped,
                        mut body,
                    } => {
                        arranged(&mut body, lines, rates, registers, scratch);
                        Item::Part {
                            number,
                            times,
                            looped,
                            body,
                        }
                    }
                    Item::Sides(mut s) => {
                        let Sides {
                            copy,
                            before,
                            compute,
                            walk,
                            ..
                        } = &mut *s;
                        let rest = walk.iter_mut().map(|w| &mut w.0);
                        for side in [copy, before, compute].into_iter().chain(rest) {
                            arranged(side, lines, rates, registers, scratch);
                        }
                        Item::Sides(s)
                    }
                    word => word,
                });
            }
        }
    }
    ordered(&mut stretch, lines, rates, registers, scratch, &mut out);
    *items = out;
}

type Instruction = (Word, crate::simt::lanes::Footprint);

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
        (Kind::Load, _) => rates.memory,
        (Kind::LoadShared, _) => rates.shared,
        (_, Some(p)) => f64::from(w.turns) * rates.turn(p) - 1.0 + rates.latency(p),
    }
}

/// Instructions of a stretch, by their places.
type Places = Few<u32, 4>;

/// What stands between the instructions of a stretch.
#[derive(Default)]
struct Follows {
    /// Who goes first, who after it, and how many cycles later at least.
    edges: Vec<(u32, u32, f64)>,
    /// By who goes first where those behind it begin in `after`.
    first: Vec<u32>,
    after: Vec<(u32, f64)>,
    /// How many must go before each.
    before: Vec<u32>,
    /// Those whose results each reads, and by reader where its own begin.
    sources: Vec<u32>,
    begin: Vec<u32>,
    /// How often the results of each are read.
    readers: Vec<u32>,
}

impl Follows {
    fn clear(&mut self, n: usize) {
        self.edges.clear();
        self.sources.clear();
        self.begin.clear();
        for list in [&mut self.before, &mut self.readers] {
            list.clear();
            list.resize(n, 0);
        }
    }

    fn edge(&mut self, a: u32, b: u32, cycles: f64) {
        if a != b {
            self.edges.push((a, b, cycles));
            self.before[b as usize] += 1;
        }
    }

    /// Sorts the edges by who goes first.
    fn sorted(&mut self) {
        let n = self.before.len();
        self.first.clear();
        self.first.resize(n + 1, 0);
        for e in &self.edges {
            self.first[e.0 as usize + 1] += 1;
        }
        for a in 0..n {
            self.first[a + 1] += self.first[a];
        }
        self.after.clear();
        self.after.resize(self.edges.len(), (0, 0.0));
        // From the last on, so that each begins where the one before it ends.
        for &(a, b, cycles) in self.edges.iter().rev() {
            let end = &mut self.first[a as usize + 1];
            *end -= 1;
            self.after[*end as usize] = (b, cycles);
        }
        self.first.remove(0);
        self.first.push(self.after.len() as u32);
    }

    fn after(&self, a: usize) -> &[(u32, f64)] {
        &self.after[self.first[a] as usize..self.first[a + 1] as usize]
    }

    fn sources(&self, b: usize) -> Range<usize> {
        let end = self.begin.get(b + 1).copied();
        self.begin[b] as usize..end.map_or(self.sources.len(), |e| e as usize)
    }
}

/// Accesses to a memory since the last one that wrote to it and waits for all before it, and that.
#[derive(Default)]
struct Accesses {
    writer: Option<u32>,
    reads: Vec<u32>,
    /// Copies write, and wait for nobody.
    copies: Vec<u32>,
}

impl Accesses {
    /// Those that `b` goes behind: others go before one of these.
    fn next(&mut self, b: u32, kind: Kind, writes: bool, mut edge: impl FnMut(u32)) {
        if kind == Kind::Copy {
            self.copies.push(b);
            return;
        }
        self.writer.into_iter().for_each(&mut edge);
        self.copies.iter().copied().for_each(&mut edge);
        if writes {
            self.reads.drain(..).for_each(&mut edge);
            self.copies.clear();
            self.writer = Some(b);
        } else {
            self.reads.push(b);
        }
    }
}

/// What the instructions of a stretch did with each register so far.
#[derive(Default)]
struct Seen {
    writer: Vec<Option<u32>>,
    read: Vec<Places>,
}

impl Seen {
    /// Makes room for so many registers.
    fn fit(&mut self, registers: usize) {
        if self.writer.len() < registers {
            self.writer.resize(registers, None);
            self.read.resize(registers, Places::new());
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

/// What the stretches of a text are ordered with, one after the other.
#[derive(Default)]
struct Scratch {
    seen: Seen,
    follows: Follows,
    chain: Vec<f64>,
    there: Vec<f64>,
    open: Open,
}

/// What stands between the instructions of `list`, by registers and by memory.
fn follow(
    list: &[Instruction],
    lines: &Lines,
    rates: &WarpRates,
    (seen, out): (&mut Seen, &mut Follows),
) {
    out.clear(list.len());
    let mut memories: [Accesses; 2] = Default::default();
    for (b, (w, _)) in (0u32..).zip(list) {
        out.begin.push(out.sources.len() as u32);
        for &r in w.uses(lines) {
            if let Some(a) = seen.writer[r as usize] {
                out.edge(a, b, latency(&list[a as usize].0, rates));
                out.readers[a as usize] += 1;
                out.sources.push(a);
            }
            seen.read[r as usize].push(b);
        }
        for &d in w.defs(lines) {
            for &a in &seen.read[d as usize] {
                out.edge(a, b, 0.0);
            }
            seen.read[d as usize].clear();
            if let Some(a) = seen.writer[d as usize].replace(b) {
                out.edge(a, b, 0.0);
            }
        }
        if let Some((operand, shared, writes)) = memory(w.kind) {
            let touched = memories.iter_mut().zip([operand, shared]);
            for (m, _) in touched.filter(|t| t.1) {
                m.next(b, w.kind, writes, |a| out.edge(a, b, 0.0));
            }
        }
    }
    out.sorted();
    seen.forget(list, lines);
}

fn ordered(
    stretch: &mut Vec<Instruction>,
    lines: &Lines,
    rates: &WarpRates,
    registers: u32,
    scratch: &mut Scratch,
    out: &mut Vec<Item>,
) {
    let list = &stretch[..];
    let n = list.len();
    let Scratch {
        seen,
        follows,
        chain,
        there,
        open,
    } = scratch;
    follow(list, lines, rates, (seen, follows));
    chain.clear();
    chain.resize(n, 0.0);
    for a in (0..n).rev() {
        let longest = follows.after(a).iter();
        let longest = longest.map(|(b, c)| c + chain[*b as usize]);
        chain[a] = longest.fold(0.0, f64::max);
    }
    let room = (registers / 2) as usize;
    let pipe = |b: usize| list[b].0.pipe.map_or(UNISSUED, |p| p as usize);
    open.clear();
    let Follows {
        before, readers, ..
    } = follows;
    let (mut before, mut readers) = (std::mem::take(before), std::mem::take(readers));
    (0..n).filter(|b| before[*b] == 0).for_each(|b| {
        open.push(b, pipe(b), 0.0);
    });
    let (mut now, mut live) = (0.0f64, 0usize);
    there.clear();
    there.resize(n, 0.0);
    loop {
        let next = match live >= room {
            true => open.first(),
            false => open.best(chain, &mut now),
        };
        let Some(next) = next else { break };
        let own = pipe(next);
        now = now.max(there[next]).max(open.free[own]);
        let began = now;
        let (w, touch) = &list[next];
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
        out.push(Item::Word(*w, *touch));
        live += usize::from(readers[next] > 0 && w.pipe.is_some());
        for a in &follows.sources[follows.sources(next)] {
            let a = *a as usize;
            readers[a] -= 1;
            if readers[a] == 0 && list[a].0.pipe.is_some() {
                live = live.saturating_sub(1);
            }
        }
        for (b, cycles) in follows.after(next) {
            let b = *b as usize;
            there[b] = there[b].max(began + cycles);
            before[b] -= 1;
            if before[b] == 0 {
                open.push(b, pipe(b), there[b]);
            }
        }
    }
    (follows.before, follows.readers) = (before, readers);
    stretch.clear();
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
#[derive(Default)]
struct Open {
    /// When each pipe takes the next instruction.
    free: [f64; UNISSUED + 1],
    /// By pipe, those whose operands were not there yet, with when they are, the soonest first.
    waiting: [BinaryHeap<Reverse<(Cycles, usize)>>; UNISSUED + 1],
    /// By pipe, those whose operands are there, the one with the longest chain first and of several the first in
    /// the text.
    able: [BinaryHeap<(Cycles, Reverse<usize>)>; UNISSUED + 1],
    /// The pipes that have had some, a bit each.
    pipes: u16,
    /// All of them by their places in the text, a bit each: those that were taken are still in a heap.
    all: [u64; MOST / 64],
}

impl Open {
    fn clear(&mut self) {
        self.free = Default::default();
        self.waiting.iter_mut().for_each(BinaryHeap::clear);
        self.able.iter_mut().for_each(BinaryHeap::clear);
        self.all = Default::default();
        self.pipes = 0;
    }

    fn pipes(&self) -> impl Iterator<Item = usize> + use<> {
        let pipes = self.pipes;
        (0..=UNISSUED).filter(move |p| pipes >> p & 1 == 1)
    }

    /// Adds the instruction in place `at`, for `pipe`, whose operands are `there`.
    fn push(&mut self, at: usize, pipe: usize, there: f64) {
        self.waiting[pipe].push(Reverse((Cycles(there), at)));
        self.pipes |= 1 << pipe;
        self.all[at / 64] |= 1 << (at % 64);
    }

    fn take(&mut self, at: usize) {
        self.all[at / 64] &= !(1 << (at % 64));
    }

    /// Takes the first in the text.
    fn first(&mut self) -> Option<usize> {
        let (word, bits) = self.all.iter().enumerate().find(|w| *w.1 != 0)?;
        let at = 64 * word + bits.trailing_zeros() as usize;
        self.take(at);
        Some(at)
    }

    /// Takes, of those that can go at `now`, the one from which the longest chain hangs; where none can it becomes
    /// later until one can.
    fn best(&mut self, chain: &[f64], now: &mut f64) -> Option<usize> {
        self.arrive(chain, *now);
        let soonest = self.pipes().filter_map(|p| self.begins(p, *now));
        let soonest = soonest.min_by(f64::total_cmp)?;
        if soonest > *now {
            *now = soonest;
            self.arrive(chain, *now);
        }
        let can = self.pipes().filter(|&p| self.free[p] <= *now);
        let pipe = can.max_by(|&p, &q| self.able[p].peek().cmp(&self.able[q].peek()))?;
        let (_, Reverse(at)) = self.able[pipe].pop()?;
        self.take(at);
        Some(at)
    }

    /// Finds those whose operands are there at `now`, and forgets those that were taken.
    fn arrive(&mut self, chain: &[f64], now: f64) {
        let taken = |at: usize| self.all[at / 64] >> (at % 64) & 1 == 0;
        for pipe in self.pipes() {
            let (waiting, able) = (&mut self.waiting[pipe], &mut self.able[pipe]);
            while let Some(Reverse((there, at))) = waiting.peek() {
                let (there, at) = (there.0, *at);
                if there > now && !taken(at) {
                    break;
                }
                waiting.pop();
                able.push((Cycles(chain[at]), Reverse(at)));
            }
            while able.peek().is_some_and(|(_, Reverse(at))| taken(*at)) {
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
    use crate::simt::lanes::Footprint;
    use machine::Machine;

    /// The lines of `text` in their order for a thread of so many registers.
    fn order(text: &str, registers: u32) -> Vec<u32> {
        let rates = Machine::load("a100").unwrap().warp_rates().unwrap();
        let (lines, mut items) = (Lines::of(text), vec![]);
        let mut reader = Reader::new(&lines);
        reader.read(0..lines.lines.len(), Footprint::default(), &mut items);
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

    /// The instructions of `text`, and what stands between them.
    fn followed(text: &str, rates: &WarpRates) -> (Vec<Instruction>, Follows) {
        let (lines, mut items) = (Lines::of(text), vec![]);
        Reader::new(&lines).read(0..lines.lines.len(), Footprint::default(), &mut items);
        let word = |i: &Item| match i {
            Item::Word(w, t) => (*w, *t),
            _ => panic!("a part"),
        };
        let list: Vec<Instruction> = items.iter().map(word).collect();
        let (mut seen, mut found) = (Seen::default(), Follows::default());
        seen.fit(lines.names.len());
        follow(&list, &lines, rates, (&mut seen, &mut found));
        (list, found)
    }

    /// Ways to touch memory.
    const ACCESSES: [&str; 5] = [
        "ld.global.f32 %f1, [%l1];\n",
        "st.global.f32 [%l2], %f2;\n",
        "ld.shared.f32 %f3, [%r1];\n",
        "st.shared.f32 [%r2], %f4;\n",
        "cp.async.ca.shared.global [%r3], [%l3], 16;\n",
    ];

    #[test]
    fn accesses_that_may_touch_one_place_stay_in_order_however_few_edges_say_so() {
        let rates = Machine::load("a100").unwrap().warp_rates().unwrap();
        let n = 6;
        for number in 0..ACCESSES.len().pow(n as u32) {
            let digit = |i: usize| number / ACCESSES.len().pow(i as u32) % ACCESSES.len();
            let text: String = (0..n).map(|i| ACCESSES[digit(i)]).collect();
            let (list, found) = followed(&text, &rates);
            // Who comes behind each, by any way, a bit each.
            let mut behind = vec![0u32; n];
            for a in (0..n).rev() {
                let next = found.after(a).iter();
                behind[a] = next.fold(0, |all, e| all | 1 << e.0 | behind[e.0 as usize]);
            }
            for (b, (w, _)) in list.iter().enumerate() {
                let clash = |kind: Kind| {
                    memory(kind).zip(memory(w.kind)).is_some_and(|(o, own)| {
                        let together = o.0 && own.0 || o.1 && own.1;
                        together && (o.2 || own.2) && w.kind != Kind::Copy
                    })
                };
                let mut before = list[..b].iter().zip(&behind);
                let kept = before.all(|((o, _), behind)| !clash(o.kind) || behind >> b & 1 == 1);
                assert!(kept, "line {b} of\n{text}");
            }
        }
    }

    #[test]
    fn edges_do_not_grow_with_the_square_of_a_stretch() {
        let rates = Machine::load("a100").unwrap().warp_rates().unwrap();
        let text = ACCESSES[0].repeat(MOST / 4) + &ACCESSES[1].repeat(MOST / 4);
        let (_, found) = followed(&text, &rates);
        assert!(found.edges.len() <= 3 * MOST, "{}", found.edges.len());
    }
}
