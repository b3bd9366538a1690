//! What the warps of a kernel do, read off the instructions that are printed for it: the machine's
//! [`Warps`], without which a prediction sees arithmetic and bytes only.
//!
//! A warp's time is that of one warp alone: instruction after instruction in the order of its operands, each
//! behind what it reads, with nothing moved past loops, barriers and jumps.
mod words;

use super::threads;
use crate::simt::{self, lanes};
use kernel::{Mapping, TileProgram};
use machine::{Machine, Pipe, WarpRates, Warps, Work};
use words::{Kind, Names, Word};

/// What a stretch of text is made of.
pub(in crate::ptx) enum Item {
    /// An instruction, and what its lanes touch.
    Word(Word, lanes::Touch),
    /// A part that is jumped over where a condition fails, or run so often.
    Part {
        /// Which of the text's parts it is.
        number: usize,
        times: f64,
        looped: bool,
        body: Vec<Item>,
    },
}

/// Reads lines into items.
#[derive(Default)]
pub(in crate::ptx) struct Reader {
    names: Names,
    parts: usize,
}

impl Reader {
    /// The part of the text that `body` is.
    pub fn part(&mut self, times: f64, looped: bool, body: Vec<Item>) -> Item {
        self.parts += 1;
        Item::Part {
            number: self.parts - 1,
            times,
            looped,
            body,
        }
    }

    /// The instructions of `text`, a stretch without jumps; those that touch memory touch `touch`.
    pub fn read(&mut self, text: &str, touch: lanes::Touch, out: &mut Vec<Item>) {
        for line in text.lines() {
            if let Some(w) = words::word(line, &mut self.names) {
                out.push(Item::Word(w, touch));
            }
        }
    }
}

/// What `program`'s warps do on `machine`, whose levels `work` crosses; `None` where it has no PTX or the
/// machine no figures for warps.
pub fn warps(
    program: &TileProgram,
    machine: &Machine,
    work: &Work,
    dims: &dyn Fn(&str) -> Option<i64>,
) -> Option<Warps> {
    let Mapping::Gpu(map) = &program.schedule().mapping else {
        return None;
    };
    if map.fragment.is_some() {
        return None;
    }
    let rates = machine.warp_rates()?;
    let tasks = kernel::work::tasks(program.kernel(), program.schedule()).eval(dims)?;
    let tasks = u64::try_from(tasks).ok()?.max(1);
    let p = simt::lower(program, super::CAPS).ok()?;
    let mut reader = Reader::default();
    let items = threads::items(&p, &lanes::seen(&p, dims), &mut reader)?;
    let mut sum = Sum {
        rates,
        out: Warps::default(),
    };
    sum.items(&items, 1.0);
    let per_task = u64::from(map.threads.div_ceil(32));
    let mut out = sum.out.times((per_task * tasks) as f64);
    out.per_task = per_task;
    let active = machine
        .worker_count()
        .clamp(1, usize::try_from(tasks).unwrap_or(usize::MAX));
    let own = tasks
        .div_ceil(active as u64)
        .min(work.ctas_per_worker.max(1));
    let [fetch, store] = rates.beyond(machine, work, out.stored, active);
    let fetch = fetch / out.loaded.max(1.0);
    let store = store / out.stored.max(1.0);
    let clock = |warps: f64| {
        let mut c = Clock {
            rates,
            names: &reader.names,
            answered: rates.answered(machine, work, out.loaded),
            // A byte of all is a byte of one of so many multiprocessors.
            fetch: fetch * active as f64,
            store: store * active as f64,
            stores: 0.0,
            warps,
            at: vec![0.0; reader.names.len()],
            passes: vec![None; reader.parts],
            now: 0.0,
        };
        c.items(&items);
        c.at.iter().fold(c.now.max(c.stores), |a, b| a.max(*b))
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
                Item::Word(w, t) => self.word(w, t, times),
            }
        }
    }

    fn word(&mut self, w: &Word, t: &lanes::Touch, times: f64) {
        let Some(pipe) = w.pipe else { return };
        self.out.add(pipe, f64::from(w.turns) * times);
        match w.kind {
            Kind::Load => {
                self.out.loaded += t.sectors * lanes::SECTOR as f64 * times;
                self.out.wanted += t.bytes * times;
            }
            Kind::Store => self.out.stored += t.sectors * lanes::SECTOR as f64 * times,
            _ => {}
        }
        self.out.near += near(w, t, &self.rates) * times;
    }
}

/// Bytes that shared memory and L1 are busy for: a line's tag is looked up in the time of one full line at
/// most.
fn near(w: &Word, t: &lanes::Touch, rates: &WarpRates) -> f64 {
    match w.kind {
        Kind::Load | Kind::Store => (t.lines * rates.line).max(t.sectors * lanes::SECTOR as f64),
        Kind::LoadShared | Kind::StoreShared => t.passes.max(1.0) * lanes::LINE as f64,
        _ => 0.0,
    }
}

/// Warps that go in step, in cycles.
struct Clock<'a> {
    rates: WarpRates,
    names: &'a Names,
    /// Cycles until a load from an operand is answered, and those that the levels beyond a multiprocessor's
    /// own take for each byte that it loads, and that it stores.
    answered: f64,
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
    now: f64,
}

impl Clock<'_> {
    fn items(&mut self, items: &[Item]) {
        let mut from = 0;
        while from < items.len() {
            match &items[from] {
                Item::Word(..) => {
                    let meets = |i: &Item| matches!(i, Item::Word(w, _) if w.kind == Kind::Barrier);
                    if meets(&items[from]) {
                        self.now += self.rates.barrier;
                        from += 1;
                        continue;
                    }
                    let fixed = |i: &Item| matches!(i, Item::Part { .. }) || meets(i);
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
            }
        }
    }

    /// Once, and again: what the second pass takes, the others do, also when the loop is met anew in the
    /// next pass of one around it.
    fn part(&mut self, number: usize, (times, looped): (f64, bool), body: &[Item]) {
        if times <= 0.0 {
            return;
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
            Some(pass) => (pass, times - 1.0),
            None => {
                let first = self.now;
                self.items(body);
                let pass = self.now - first;
                self.passes[number] = Some(pass);
                (pass, times - 2.0)
            }
        };
        let more = pass * left.max(0.0);
        self.now += more;
        self.at.iter_mut().for_each(|a| *a += more);
        self.stores += more;
    }

    /// Instructions without jumps: each goes when what it reads is there, all in as many cycles as they
    /// have turns at least.
    fn stretch(&mut self, items: &[Item]) {
        let (from, mut last) = (self.now, self.now);
        let (mut turns, mut lines, mut fetched) = ([0.0; 8], 0.0, 0.0);
        for i in items {
            let Item::Word(w, t) = i else { continue };
            let uses = self.names.uses(w).iter();
            let ready = uses.fold(0.0f64, |a, u| a.max(self.at[*u as usize]));
            let defs = self.names.defs(w).iter();
            let Some(pipe) = w.pipe else {
                defs.for_each(|d| self.at[*d as usize] = ready);
                continue;
            };
            let begin = ready.max(from);
            let own = f64::from(w.turns);
            turns[pipe as usize] += own;
            lines += near(w, t, &self.rates) / self.rates.line;
            last = last.max(begin + own);
            let there = match w.kind {
                Kind::Load => {
                    // What came before it goes through first.
                    fetched += t.sectors * lanes::SECTOR as f64 * self.fetch;
                    begin.max(from + self.warps * fetched) + self.answered
                }
                Kind::LoadShared => begin.max(from + self.warps * lines) + self.rates.shared,
                _ => begin + own * self.rates.turn(pipe) - 1.0 + self.rates.latency(pipe),
            };
            match w.kind {
                Kind::Store => {
                    let own = t.sectors * lanes::SECTOR as f64 * self.store * self.warps;
                    self.stores = self.stores.max(begin) + own;
                }
                _ => defs.for_each(|d| self.at[*d as usize] = there),
            }
        }
        // A warp alone has one scheduler, and its pipes, for itself.
        let sharing = self.warps.max(self.rates.schedulers);
        let memory = std::mem::take(&mut turns[Pipe::Memory as usize]);
        let lines = lines.max(memory * self.rates.turn(Pipe::Memory));
        turns[Pipe::Slot as usize] += memory;
        let issue = self.rates.issue(&turns) * sharing;
        self.now = last.max(from + issue).max(from + self.warps * lines);
    }
}
