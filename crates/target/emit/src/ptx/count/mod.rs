//! What the warps of a kernel do, read off the instructions that are printed for it: the machine's
//! [`Warps`], without which a prediction sees arithmetic and bytes only.
//!
//! A warp's time is that of one warp alone: instruction after instruction in the order that an assembler gives
//! them, each behind what it reads, with nothing moved past loops, barriers and jumps.
mod item;
mod least;
mod order;
mod sides;
mod words;

use super::arch::{ARCHS, arch_of, caps, limits};
use super::lines::Lines;
use super::threads;
use crate::simt::{self, lanes};
use item::waits;
pub(in crate::ptx) use item::{Item, Reader, Sides};
use kernel::{Mapping, TileProgram};
use least::Least;
use machine::{Machine, Pipe, WarpRates, Warps, Work, calc};
use std::collections::VecDeque;
use words::{Kind, Word};

/// What `program`'s warps do on `machine`, whose levels `work` crosses; `None` where it has no PTX that a CTA of the
/// machine can run, or the machine no figures for warps. Where what they do at least is not `below` what is of interest
/// it is that, see [`kernel::CountWarps`].
pub fn warps(
    program: &TileProgram,
    machine: &Machine,
    work: &Work,
    dims: &dyn Fn(&str) -> Option<i64>,
    below: &dyn Fn(&Warps) -> bool,
) -> Option<Warps> {
    let arch = arch_of(machine.limits.cc).unwrap_or(ARCHS[0]);
    let code = Code {
        arch,
        caps: caps(arch),
        shared_bytes: limits(arch).shared_bytes,
    };
    counted(program, machine, work, dims, below, code)
}

/// The code of a program whose instructions are counted.
pub(crate) struct Code {
    /// The architecture as whose PTX they are printed.
    pub arch: &'static str,
    /// What the threads of the program can do.
    pub caps: simt::Caps,
    /// Shared memory of a CTA at most.
    pub shared_bytes: u64,
}

/// As [`warps`], for `code`.
pub(crate) fn counted(
    program: &TileProgram,
    machine: &Machine,
    work: &Work,
    dims: &dyn Fn(&str) -> Option<i64>,
    below: &dyn Fn(&Warps) -> bool,
    code: Code,
) -> Option<Warps> {
    let Mapping::Gpu(map) = &program.schedule().mapping else {
        return None;
    };
    let rates = machine.warp_rates()?;
    let tasks = kernel::work::tasks(program.kernel(), program.schedule()).eval(dims)?;
    let tasks = u64::try_from(tasks).ok()?.max(1);
    let p = simt::lower(program, code.caps).ok()?;
    let counted = threads::counted(&p, code.arch).ok()?;
    if u64::from(counted.shared_bytes) > code.shared_bytes {
        return None;
    }
    let mut reader = Reader::new(&counted.lines);
    let rounds = tasks.div_ceil(kernel::ctas(map.walkers, tasks).max(1)) as f64;
    let seen = lanes::seen(&p, dims, work.uneven > 0.0);
    let mut items = counted.items(&p, &seen, rounds, &mut reader);
    let resident = |registers: u32| {
        let block = calc::Block {
            threads: map.threads.into(),
            registers: registers.into(),
            shared: counted.shared_bytes.into(),
        };
        calc::occupancy(&machine.limits, block).map_or(1, |o| o.ctas.max(1))
    };
    let per_task = u64::from(map.threads.div_ceil(32));
    let all = |items: &[Item]| {
        let mut sum = Sum {
            rates,
            out: Warps::default(),
        };
        sum.items(items, 1.0);
        let turns = sum.out.turns;
        let mut out = sum.out.times((per_task * tasks) as f64);
        out.per_task = per_task;
        (out, turns)
    };
    let (mut least, mut turns) = all(&items);
    // Some of these are points where a warp waits.
    turns[Pipe::Slot as usize] = 0.0;
    let answers = rates.answers(machine, work, least.loaded);
    let answers = answers.iter().filter(|a| a.0 > 0.0).map(|a| a.1);
    let load = answers.fold(f64::INFINITY, f64::min).min(rates.memory);
    let alone = Least::cycles(rates, &counted.lines, load, &items);
    least.alone = alone.max(rates.least_alone(&turns));
    least.resident = resident(1);
    if !below(&least) {
        return Some(least);
    }
    let held = threads::held(&p, code.arch, &counted.lines);
    order::arrange(&mut items, &counted.lines, &rates, held);
    let (mut out, _) = all(&items);
    out.resident = resident(held);
    let active = machine
        .worker_count()
        .clamp(1, usize::try_from(tasks).unwrap_or(usize::MAX));
    let own = tasks.div_ceil(active as u64).min(out.resident);
    let [fetch, store] = rates.beyond(machine, work, out.stored, active);
    let fetch = fetch / out.loaded.max(1.0);
    let store = store / out.stored.max(1.0);
    let clock = |warps: f64| {
        let mut c = Clock {
            rates,
            lines: &counted.lines,
            answers: rates.answers(machine, work, out.loaded),
            // A byte of all is a byte of one of so many multiprocessors.
            fetch: fetch * active as f64,
            store: store * active as f64,
            stores: 0.0,
            warps,
            at: vec![0.0; counted.lines.names.len()],
            passes: vec![None; reader.parts],
            copies: Groups::default(),
            products: Groups::default(),
            fetching: 0.0,
            free: [0.0; Pipe::ALL.len()],
            now: 0.0,
            sided: false,
        };
        c.items(&items);
        let beside = c.copies.last().max(c.products.last());
        c.at.iter()
            .fold(c.now.max(c.stores).max(beside), |a, b| a.max(*b))
    };
    out.alone = clock(1.0);
    out.in_step = clock((own * per_task) as f64);
    Some(out)
}

/// Adds up what is issued and touched.
struct Sum {
    rates: WarpRates,
    out: Warps,
}

impl Sum {
    fn items(&mut self, items: &[Item], times: f64) {
        for i in items {
            match i {
                Item::Part {
                    times: own, body, ..
                } => self.items(body, times * own),
                Item::Sides(s) => {
                    let pieces = times * s.pieces;
                    self.items(&s.copy, pieces / f64::from(s.warps));
                    self.items(&s.before, times * s.computing());
                    self.items(&s.compute, pieces * s.computing());
                    if let Some((rest, _)) = &s.walk {
                        self.items(rest, times * s.computing());
                    }
                }
                Item::Word(w, t) => self.word(w, t, times),
            }
        }
    }

    fn word(&mut self, w: &Word, t: &lanes::Footprint, times: f64) {
        let Some(pipe) = w.pipe else { return };
        self.out.add(pipe, f64::from(w.turns) * times);
        match w.kind {
            Kind::Load | Kind::Copy => {
                self.out.loaded += t.sectors * lanes::SECTOR as f64 * times;
                self.out.wanted += t.bytes * times;
            }
            Kind::Store => self.out.stored += t.sectors * lanes::SECTOR as f64 * times,
            _ => {}
        }
        self.out.l1 += bytes_in_l1(w, t, &self.rates) * times;
    }
}

/// Bytes that shared memory and L1 are busy for: a line's tag is looked up in the time of one full line at
/// most.
fn bytes_in_l1(w: &Word, t: &lanes::Footprint, rates: &WarpRates) -> f64 {
    match w.kind {
        Kind::Load | Kind::Store => (t.lines * rates.line).max(t.sectors * lanes::SECTOR as f64),
        Kind::LoadShared | Kind::StoreShared | Kind::Copy => t.passes.max(1.0) * lanes::LINE as f64,
        _ => 0.0,
    }
}

/// Whether copies are made in it.
fn copies(item: &Item) -> bool {
    match item {
        Item::Word(w, _) => w.kind == Kind::Copy,
        Item::Part { body, .. } => body.iter().any(copies),
        Item::Sides(_) => true,
    }
}

/// Sectors that an instruction asks operands for.
fn sectors(item: &Item) -> f64 {
    match item {
        Item::Word(w, t) if matches!(w.kind, Kind::Load | Kind::Copy) => t.sectors,
        _ => 0.0,
    }
}

/// When what goes on beside a warp's instructions is there: groups, the oldest first, and what is in none yet.
#[derive(Default)]
struct Groups {
    done: VecDeque<f64>,
    open: f64,
}

impl Groups {
    fn add(&mut self, there: f64) {
        self.open = self.open.max(there);
    }

    fn commit(&mut self) {
        self.done.push_back(std::mem::take(&mut self.open));
    }

    /// When at most `left` groups are under way.
    fn wait(&mut self, left: u32) -> f64 {
        let over = self.done.len().saturating_sub(left as usize);
        self.done.drain(..over).fold(0.0, f64::max)
    }

    /// When all of it is there.
    fn last(&self) -> f64 {
        self.done.iter().fold(self.open, |a, b| a.max(*b))
    }

    fn later(&mut self, more: f64) {
        self.done.iter_mut().for_each(|a| *a += more);
        self.open += more;
    }
}

/// Cycles of an instruction that a warp may have to wait at, once it need not.
fn wait_cycles(rates: &WarpRates, kind: Kind) -> f64 {
    match kind {
        Kind::Barrier => rates.barrier,
        _ => 1.0,
    }
}

/// Warps that go in step, in cycles.
struct Clock<'a> {
    rates: WarpRates,
    lines: &'a Lines,
    /// From where loads from operands are answered, [`WarpRates::answers`].
    answers: Vec<(f64, f64)>,
    /// Cycles that the levels beyond a multiprocessor's own take for each byte that it loads, and that it
    /// stores.
    fetch: f64,
    store: f64,
    /// When everything stored is there.
    stores: f64,
    /// Warps of a multiprocessor.
    warps: f64,
    /// When each register is there.
    at: Vec<f64>,
    /// What a pass of each loop takes once it has begun.
    passes: Vec<Option<f64>>,
    /// Copies, and a warpgroup's products.
    copies: Groups,
    products: Groups,
    /// When the levels beyond are through with the copies that were asked of them.
    fetching: f64,
    /// When each pipe takes the next instruction.
    free: [f64; Pipe::ALL.len()],
    now: f64,
    /// Whether one side of two is gone through.
    sided: bool,
}

/// Passes of a loop that are gone through where copies run ahead of them: more than those are.
const AHEAD: f64 = 8.0;

/// Passes of a loop within a side that are all gone through, at most.
const MOST_PASSES: f64 = 16.0;

impl Clock<'_> {
    fn items(&mut self, items: &[Item]) {
        let mut from = 0;
        while from < items.len() {
            match &items[from] {
                Item::Word(w, _) if waits(w.kind) => {
                    self.wait(w.kind);
                    from += 1;
                }
                Item::Word(..) => {
                    let fixed = |i: &Item| match i {
                        Item::Word(w, _) => waits(w.kind),
                        Item::Part { .. } | Item::Sides(_) => true,
                    };
                    let to = items[from..].iter().position(fixed);
                    let to = to.map_or(items.len(), |n| from + n);
                    self.stretch(&items[from..to]);
                    from = to;
                }
                Item::Part {
                    number,
                    times,
                    looped,
                    body,
                } => {
                    self.part(*number, (*times, *looped), body);
                    from += 1;
                }
                Item::Sides(s) => {
                    self.sides(s);
                    from += 1;
                }
            }
        }
    }

    fn wait(&mut self, kind: Kind) {
        self.now += wait_cycles(&self.rates, kind);
        match kind {
            Kind::Commit => self.copies.commit(),
            Kind::Wait(left) => self.now = self.now.max(self.copies.wait(left)),
            Kind::ProductCommit => self.products.commit(),
            Kind::ProductWait(left) => self.now = self.now.max(self.products.wait(left)),
            _ => {}
        }
    }

    /// Once, and again: what the second pass takes, the others do, also when the loop is met anew in the
    /// next pass of one around it. Where copies run ahead [`AHEAD`] passes go first.
    fn part(&mut self, number: usize, (times, looped): (f64, bool), body: &[Item]) {
        if times <= 0.0 {
            return;
        }
        if looped && times < 1.0 {
            return self.share(times, body);
        }
        let before = self.now;
        self.items(body);
        if !looped {
            return;
        }
        if times < 1.5 {
            self.now = before + (self.now - before) * times;
            return;
        }
        let (pass, left) = match self.passes[number] {
            // Where two sides go on together their clocks do not move as one.
            _ if self.sided && times <= MOST_PASSES => {
                for _ in 1..times.round() as u64 {
                    self.items(body);
                }
                return;
            }
            Some(pass) => (pass, times - 1.0),
            None => {
                let begun = match body.iter().any(copies) {
                    true => AHEAD.min(times - 1.0).floor(),
                    false => 1.0,
                };
                let mut pass = 0.0;
                for _ in 0..begun as u64 {
                    let first = self.now;
                    self.items(body);
                    pass = self.now - first;
                }
                self.passes[number] = Some(pass);
                (pass, times - 1.0 - begun)
            }
        };
        self.later(pass * left.max(0.0));
    }

    /// A part that a share of the passes of the loop around it run, as if each ran as much of it.
    fn share(&mut self, times: f64, body: &[Item]) {
        let (now, at, free) = (self.now, self.at.clone(), self.free);
        self.items(body);
        let less = (self.now - now) * (1.0 - times);
        self.now -= less;
        let all = self.at.iter_mut().chain(&mut self.free);
        for (own, before) in all.zip(at.iter().chain(&free)) {
            if own != before {
                *own -= less;
            }
        }
    }

    /// What is under way, and everything else, is so much later.
    fn later(&mut self, more: f64) {
        self.now += more;
        self.at.iter_mut().for_each(|a| *a += more);
        self.copies.later(more);
        self.products.later(more);
        self.free.iter_mut().for_each(|a| *a += more);
        for v in [&mut self.stores, &mut self.fetching] {
            *v += more;
        }
    }

    /// Cycles until a load is answered that asks for the bytes between these shares of what its stretch
    /// does: what lies far away is met first, and what follows finds it nearer.
    fn answered(&self, from: f64, to: f64) -> f64 {
        let (mut begin, mut cycles) = (0.0, 0.0);
        for (share, latency) in &self.answers {
            let end = begin + share;
            cycles += (to.min(end) - from.max(begin)).max(0.0) * latency;
            begin = end;
        }
        match to > from {
            true => cycles / (to - from),
            false => 0.0,
        }
    }

    /// Instructions without jumps, one after the other: each goes when what it reads is there and its pipe is
    /// free, once for every warp of a scheduler.
    fn stretch(&mut self, items: &[Item]) {
        let from = self.now;
        // A warp alone has one scheduler, and its pipes, for itself.
        let own_warps = self.warps / self.rates.schedulers;
        let each = own_warps.max(WarpRates::LONE);
        let mut fetched = 0.0;
        let asks = items.iter().map(sectors).sum::<f64>();
        let mut asked = 0.0;
        for i in items {
            let Item::Word(w, t) = i else { continue };
            let uses = w.uses(self.lines).iter();
            let ready = uses.fold(0.0f64, |a, u| a.max(self.at[*u as usize]));
            let defs = w.defs(self.lines).iter();
            let Some(pipe) = w.pipe else {
                defs.for_each(|d| self.at[*d as usize] = ready);
                continue;
            };
            let own = f64::from(w.turns);
            let begin = ready.max(self.now).max(self.free[pipe as usize]);
            // A product of a warpgroup is issued once.
            let issued = if w.kind == Kind::Product { 1.0 } else { own };
            self.now = begin + issued * each;
            let answered = self.answered(asked / asks, (asked + sectors(i)) / asks);
            asked += sectors(i);
            let mut turn = own * self.rates.turn(pipe);
            if pipe == Pipe::Memory {
                // All schedulers take turns at it, for addresses and for lines.
                let lines = bytes_in_l1(w, t, &self.rates) / self.rates.line;
                turn = turn.max(lines) * self.warps.min(self.rates.schedulers);
            }
            // Pipes that take an instruction for many cycles go on while a warp alone issues nothing.
            let each_turn = match pipe {
                Pipe::Special | Pipe::Warpgroup => own_warps.max(1.0),
                _ => each,
            };
            self.free[pipe as usize] = begin + each_turn * turn;
            let there = match w.kind {
                Kind::Load => {
                    // What came before it goes through first.
                    fetched += t.sectors * lanes::SECTOR as f64 * self.fetch;
                    begin.max(from + self.warps * fetched) + answered
                }
                Kind::Copy => {
                    let own = t.sectors * lanes::SECTOR as f64 * self.fetch * self.warps;
                    self.fetching = self.fetching.max(begin) + own;
                    self.copies.add(self.fetching + answered);
                    begin
                }
                Kind::LoadShared => begin + turn + self.rates.shared,
                Kind::Product => {
                    let there = self.free[pipe as usize] + self.rates.latency(pipe);
                    self.products.add(there);
                    there
                }
                _ => begin + turn - 1.0 + self.rates.latency(pipe),
            };
            match w.kind {
                Kind::Store => {
                    let own = t.sectors * lanes::SECTOR as f64 * self.store * self.warps;
                    self.stores = self.stores.max(begin) + own;
                }
                _ => defs.for_each(|d| self.at[*d as usize] = there),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::warps;
    use crate::ptx::programs::tried;
    use machine::Machine;

    #[test]
    fn what_warps_do_at_least_is_no_more_than_what_they_do() {
        let machine = Machine::load("h100").unwrap();
        let mut counted = 0;
        for t in tried(2) {
            let dims = |n: &str| t.value(n);
            let Some(work) = kernel::work::work(&t.program, &machine, &dims) else {
                continue;
            };
            let all = |below| warps(&t.program, &machine, &work, &dims, &|_| below);
            let (Some(least), Some(whole)) = (all(false), all(true)) else {
                continue;
            };
            let name = &t.program.kernel().name;
            assert!(least.alone <= 1.000_001 * whole.alone, "{name}");
            assert!(least.in_step <= whole.in_step, "{name}");
            assert!(least.resident >= whole.resident, "{name}");
            let more = |(a, b): (&f64, &f64)| (a - b).abs() > 1e-6 * b.abs();
            assert!(!least.turns.iter().zip(&whole.turns).any(more), "{name}");
            counted += 1;
        }
        assert!(counted > 100, "{counted} programs");
    }
}
