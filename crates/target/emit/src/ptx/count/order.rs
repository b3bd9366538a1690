//! The order that an assembler gives instructions: loads early, and pipes in turns.
//!
//! Between labels, jumps and points where warps wait, the instruction goes next whose operands are there and
//! whose pipe is free, of several the one from which the longest chain hangs, as long as no more values are
//! under way than half of a thread's registers hold; then the first in the text. Loads stay behind stores
//! that may write what they read. The emulator orders what it runs by the same rule in code of its own: it
//! reads the text alone, and predictions are judged by it.
use super::item::{Item, waits};
use super::words::{Kind, Names, Word};
use crate::few::Few;
use machine::{Pipe, WarpRates};

/// Most instructions that are ordered together.
const MOST: usize = 512;

/// Puts the instructions of `items`, a body of loops and all, in order.
pub(super) fn arrange(items: &mut Vec<Item>, names: &Names, rates: &WarpRates, registers: u32) {
    let mut seen = Seen::new(names.len());
    arranged(items, names, rates, registers, &mut seen);
}

fn arranged(
    items: &mut Vec<Item>,
    names: &Names,
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
                    ordered(&mut stretch, names, rates, registers, seen, &mut out);
                }
            }
            item => {
                ordered(&mut stretch, names, rates, registers, seen, &mut out);
                out.push(match item {
                    Item::Part {
                        number,
                        times,
                        looped,
                        mut body,
                    } => {
                        arranged(&mut body, names, rates, registers, seen);
                        Item::Part {
                            number,
                            times,
                            looped,
                            body,
                        }
                    }
                    word => word,
                });
            }
        }
    }
    ordered(&mut stretch, names, rates, registers, seen, &mut out);
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

    fn forget(&mut self, list: &[Instruction], names: &Names) {
        let all = list
            .iter()
            .flat_map(|(w, _)| names.uses(w).iter().chain(names.defs(w)));
        for &r in all {
            self.writer[r as usize] = None;
            self.read[r as usize].clear();
        }
    }
}

/// What stands between the instructions of `list`, by registers and by memory.
fn follows(list: &[Instruction], names: &Names, rates: &WarpRates, seen: &mut Seen) -> Follows {
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
        for &r in names.uses(w) {
            if let Some(a) = seen.writer[r as usize] {
                edge(a, b, latency(&list[a as usize].0, rates));
                readers[a as usize] += 1;
                sources[b as usize].push(a);
            }
            seen.read[r as usize].push(b);
        }
        for &d in names.defs(w) {
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
    seen.forget(list, names);
    out
}

fn ordered(
    stretch: &mut Vec<Instruction>,
    names: &Names,
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
    } = follows(&list, names, rates, seen);
    let mut chain = vec![0.0f64; n];
    for a in (0..n).rev() {
        let longest = after[a].iter().map(|(b, c)| c + chain[*b as usize]);
        chain[a] = longest.fold(0.0, f64::max);
    }
    let room = (registers / 2) as usize;
    // In no order: which goes next depends on the place in the text alone where all else is equal.
    let mut open: Vec<usize> = (0..n).filter(|b| before[*b] == 0).collect();
    let (mut now, mut live) = (0.0f64, 0usize);
    let (mut there, mut free) = (vec![0.0f64; n], [0.0f64; Pipe::ALL.len()]);
    let mut order = Vec::with_capacity(n);
    while !open.is_empty() {
        let begins = |b: usize| {
            let pipe = list[b].0.pipe.map_or(0.0, |p| free[p as usize]);
            there[b].max(pipe)
        };
        let all = || open.iter().copied().enumerate();
        let first = all().min_by_key(|o| o.1);
        let next = if live >= room {
            first
        } else {
            let soonest = all().map(|(_, b)| begins(b)).fold(f64::MAX, f64::min);
            now = now.max(soonest);
            let can = all().filter(|o| begins(o.1) <= now);
            can.max_by(|(_, a), (_, b)| chain[*a].total_cmp(&chain[*b]).then(b.cmp(a)))
                .or(first)
        };
        let Some((at, next)) = next else { break };
        open.swap_remove(at);
        now = now.max(begins(next));
        let began = now;
        let w = &list[next].0;
        if let Some(p) = w.pipe {
            let turns = f64::from(w.turns);
            // The schedulers of a multiprocessor take turns at memory.
            let turn = match p {
                Pipe::Memory => rates.turn(p) * rates.schedulers,
                p => rates.turn(p),
            };
            free[p as usize] = now + turn * turns;
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
                open.push(b);
            }
        }
    }
    out.extend(order.into_iter().map(|k| Item::Word(list[k].0, list[k].1)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::count::Reader;
    use crate::simt::lanes::Touch;
    use machine::Machine;

    /// The lines of `text` in their order for a thread of so many registers, by the last register each names.
    fn order(text: &str, registers: u32) -> Vec<u32> {
        let rates = Machine::load("a100").unwrap().warp_rates().unwrap();
        let (mut reader, mut items) = (Reader::default(), vec![]);
        reader.read(text, Touch::default(), &mut items);
        let before: Vec<Vec<u32>> = items.iter().map(|i| of(i, &reader.names)).collect();
        arrange(&mut items, &reader.names, &rates, registers);
        let place = |i: &Item| before.iter().position(|b| *b == of(i, &reader.names));
        items.iter().map(|i| place(i).unwrap() as u32).collect()
    }

    fn of(item: &Item, names: &Names) -> Vec<u32> {
        match item {
            Item::Word(w, _) => [names.defs(w), names.uses(w)].concat(),
            Item::Part { .. } => vec![],
        }
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
