//! How many registers a text needs: what is alive at once, read off the text itself.
//!
//! Constants, parameters and what is made of parameters alone by a change of address space are
//! operands of instructions on the machine and take no register; truth values have a file of their
//! own, and what does not fit it takes registers after all. A division of integers is many instructions with
//! registers of their own ([`division`]); a copy is none, what is made of numbers alone is a number, a comparison
//! stands where it can be made first and again where it is joined with another, and what an address is
//! multiplied by or added to is read into registers ([`loops`]). Kernels in threads are
//! looked at as an assembler would leave them ([`order`]): short guarded parts, and some that stand beside
//! others, become guarded instructions; loads of a stretch come before what uses them, as many as are kept
//! under way at once, and the addresses of what comes next are made meanwhile; what is short of registers is
//! put in the order that needs fewest; and a value that one instruction makes of another and a number is made
//! again where it is used. Where there are plenty of registers the two operands of an instruction are in
//! different banks ([`banks`]), which leaves some unused.
mod banks;
mod division;
mod loops;
mod order;

use banks::banked;
use division::Divided;
use loops::{compared_again, compared_early, folded, read_once, settled};
use order::{ahead, guarded, lean, remade};
use std::collections::HashMap;

/// What matters of an instruction beside its registers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Other,
    /// What others wait for: a load, or a function of the special unit.
    Load,
    /// What comes out of the constant bank into registers.
    Read,
    /// A store: other accesses to memory do not move across it.
    Store,
    /// Nothing moves across it: a barrier, a jump.
    Fence,
    /// A division or root with a subroutine for the odd cases.
    Slow,
}

/// How a value can be had a second time.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Rematerialised {
    #[default]
    No,
    /// It is a special register, which can be read at any time.
    Special,
    /// By one instruction that adds a number, or multiplies by one.
    Number,
}

/// An instruction: registers it defines and uses, whether it defines them wholly.
#[derive(Clone, Default)]
struct Line {
    defs: Vec<u32>,
    uses: Vec<u32>,
    partial: bool,
    jump: Option<String>,
    /// Nothing runs into the next one.
    ends: bool,
    kind: Kind,
    again: Rematerialised,
    /// Nothing but another name for what it reads.
    copy: bool,
    truth: PredicateSource,
}

/// How a truth value comes about.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum PredicateSource {
    #[default]
    Otherwise,
    /// By one comparison.
    Compared,
    /// From two truth values.
    Joined,
}

/// Names to numbers, and 32-bit registers that each takes.
#[derive(Default)]
struct Names {
    declared: Vec<(String, u32)>,
    /// Only looked up, never walked.
    known: HashMap<String, u32>,
    width: Vec<u32>,
    /// 1 for a truth value.
    truth: Vec<u32>,
}

impl Names {
    fn declare(&mut self, line: &str) {
        let Some((ty, names)) = line.trim_start_matches(".reg .").split_once(' ') else {
            return;
        };
        let width = match ty {
            "pred" => 0,
            "b64" | "f64" => 2,
            _ => 1,
        };
        for n in names.trim_end_matches(';').split(',') {
            let name = n.trim().split('<').next().unwrap_or("").to_string();
            self.declared.push((name, width));
        }
    }

    fn number(&mut self, name: &str) -> Option<u32> {
        if let Some(&n) = self.known.get(name) {
            return Some(n);
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let found = self
            .declared
            .iter()
            .find(|d| d.0 == name)
            .or(self.declared.iter().find(|d| d.0 == stem))?;
        let n = self.width.len() as u32;
        self.width.push(found.1);
        self.truth.push(u32::from(found.1 == 0));
        self.known.insert(name.to_string(), n);
        Some(n)
    }

    /// A register of the assembler's own.
    fn fresh(&mut self, width: u32) -> u32 {
        self.width.push(width);
        self.truth.push(0);
        self.width.len() as u32 - 1
    }

    fn all(&mut self, text: &str) -> Vec<u32> {
        let mut out = vec![];
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            let tail = &rest[at..];
            let end = tail[1..]
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .map_or(tail.len(), |e| e + 1);
            out.extend(self.number(&tail[..end]));
            rest = &tail[end..];
        }
        out
    }
}

#[derive(Clone)]
struct Parsed {
    lines: Vec<Line>,
    labels: HashMap<String, usize>,
    /// 32-bit registers of each name.
    width: Vec<u32>,
    /// 1 for the name of a truth value.
    truth: Vec<u32>,
}

/// Pointers that are parameters, in kernels in threads.
const POINTERS: &str = "%l_";

/// How the machine code of an architecture has its addresses.
#[derive(Clone, Copy, Default)]
struct Addresses {
    /// Pointers that are parameters lie in registers where they are used, numbers that they are multiplied by
    /// do not.
    held: bool,
    /// One that is the same for all threads is in registers that all threads share.
    shared: bool,
}

impl Addresses {
    fn of(arch: &str) -> Addresses {
        Addresses {
            held: arch == "sm_90",
            shared: arch == "sm_75",
        }
    }
}

/// Lines of `text`.
fn parse(text: &str, addresses: Addresses) -> Parsed {
    let held = addresses.held;
    let mut names = Names::default();
    let mut lines = vec![];
    let mut labels = HashMap::new();
    // Registers that something other than a constant or a parameter is put into.
    let (mut fixed, mut computed) = (vec![], vec![]);
    // Those of them that are numbers in the text.
    let mut numbers = vec![];
    let mut divided = Divided::default();
    // Sizes of elements that numbers of them are multiplied by, and a register for each: also for 1, as an
    // address is made by the same instruction then.
    let mut factors: Vec<(u32, u32)> = vec![];
    for l in text.lines().map(str::trim) {
        if l.starts_with(".reg") {
            names.declare(l);
            continue;
        }
        if let Some(label) = l.strip_suffix(':') {
            labels.insert(label.to_string(), lines.len());
            divided = Divided::default();
            continue;
        }
        let Some(code) = l.strip_suffix(';') else {
            continue;
        };
        let mut line = Line::default();
        let mut code = code;
        if let Some(rest) = code.strip_prefix('@') {
            let (p, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            line.uses = names.all(p);
            line.partial = true;
            code = rest.trim_start();
        }
        let (op, args) = code.split_once(' ').unwrap_or((code, ""));
        let none = [
            "st.", "bar.", "bra", "cp.", "red.", "ret", "membar", "fence", "exit", "trap",
        ];
        let long = ["ld.", "ex2.", "lg2.", "rsqrt.", "tanh.", "sin.", "cos."];
        if op.starts_with("bra") {
            line.jump = Some(args.trim().to_string());
        }
        line.ends = !line.partial && (op.starts_with("bra") || op.starts_with("ret"));
        line.kind = match op {
            _ if ["st.", "red."].iter().any(|n| op.starts_with(n)) => Kind::Store,
            _ if none.iter().any(|n| op.starts_with(n)) => Kind::Fence,
            _ if op.starts_with("ld.param") => Kind::Other,
            _ if long.iter().any(|n| op.starts_with(n)) => Kind::Load,
            _ if ["div.rn", "sqrt.rn", "rcp.rn"]
                .iter()
                .any(|n| op.starts_with(n)) =>
            {
                Kind::Slow
            }
            _ => Kind::Other,
        };
        if none.iter().any(|n| op.starts_with(n)) {
            line.uses.extend(names.all(args));
        } else {
            let cut = match args.strip_prefix('{') {
                Some(inner) => inner.find('}').map_or(args.len(), |e| e + 2),
                None => args.find(',').unwrap_or(args.len()),
            };
            let (to, from) = args.split_at(cut);
            line.defs = names.all(to);
            line.uses.extend(names.all(from));
            divided.forget(&line.defs);
            if let ("div.s32" | "div.u32" | "rem.s32" | "rem.u32", false) = (op, line.partial)
                && let Some((of, by)) = from.trim_start_matches(',').split_once(',')
            {
                computed.extend(&line.defs);
                let of = names.all(of);
                lines.extend(divided.lines((op, &line.defs), &of, by.trim(), &mut names));
                continue;
            }
            if !held
                && op.starts_with("mul.wide")
                && let Some((_, by)) = from.rsplit_once(',')
                && let Ok(by @ 1..) = by.trim().parse::<u32>()
            {
                let at = factors.iter().position(|f| f.0 == by).unwrap_or_else(|| {
                    factors.push((by, names.fresh(1)));
                    factors.len() - 1
                });
                line.uses.push(factors[at].1);
            }
            line.copy = op.starts_with("mov") && !from.contains('{');
            line.truth = match op {
                "and.pred" | "or.pred" => PredicateSource::Joined,
                // Numbers of 64 bits are compared half by half.
                _ if op.starts_with("setp.") && !op.ends_with("64") => PredicateSource::Compared,
                _ => PredicateSource::Otherwise,
            };
            // What an instruction takes from the constant bank, or as a number, has no register.
            let free = op.starts_with("ld.param")
                || (op == "cvt.u32.u64" && line.uses.iter().all(|u| fixed.contains(u)))
                || op.starts_with("cvta")
                || (op.starts_with("mov") && !from.contains('%') && !line.partial);
            let number = ["add.s32", "add.u32", "sub.s32", "mul.lo.s32", "shl.b32"];
            line.again = match op {
                "mov.u32" if from.contains("%tid.") || from.contains("%ctaid.") => {
                    Rematerialised::Special
                }
                _ if number.contains(&op) => Rematerialised::Number,
                _ => Rematerialised::No,
            };
            if free && op.starts_with("mov") {
                numbers.extend(&line.defs);
            }
            let list: &mut Vec<u32> = if free { &mut fixed } else { &mut computed };
            list.extend(&line.defs);
        }
        lines.push(line);
    }
    let known = names.known.iter();
    let known = known.filter(|(n, _)| n.starts_with(POINTERS));
    let mut pointers: Vec<u32> = known.map(|(_, &n)| n).collect();
    let (mut width, truth) = (names.width, names.truth);
    let factors: Vec<u32> = factors.iter().map(|f| f.1).collect();
    computed.sort_unstable();
    for d in fixed {
        // A variable that begins with a constant is one all the same.
        if computed.binary_search(&d).is_err() {
            width[d as usize] = 0;
        }
    }
    let mut out = Parsed {
        lines,
        labels,
        width,
        truth,
    };
    numbers.retain(|n| computed.binary_search(n).is_err());
    folded(&mut out, &numbers, &factors, &pointers, addresses.shared);
    settled(&mut out);
    compared_again(&mut out);
    compared_early(&mut out);
    settled(&mut out);
    read_once(&mut out, &factors, Kind::Other);
    if held {
        pointers.iter().for_each(|&r| out.width[r as usize] = 2);
        let whole = |l: &&mut Line| l.defs.iter().any(|d| pointers.contains(d));
        let reads = out.lines.iter_mut().filter(whole);
        reads.for_each(|l| *l = Line::default());
        pointers.sort_unstable();
        read_once(&mut out, &pointers, Kind::Read);
    }
    out
}

/// Registers per thread that an assembler is expected to take for `text`, which allows `most`.
pub(super) fn estimate(text: &str, most: u32) -> u32 {
    let p = parse(text, Addresses::default());
    (pressure(&p, &p.width, SLOW).saturating_mul(AHEAD) / 100).min(most)
}

/// What ptxas takes for each register that is alive at once, in percent: over the GEMM, convolution
/// and attention that tests assemble it loads that far ahead of use (fitted).
const AHEAD: u32 = 136;

/// As [`estimate`] for kernels without tensor cores on `arch`, whose loads the assembler moves ahead of
/// use. Where registers are short it is thrifty: an order that keeps little alive, and values made
/// again rather than kept. Below [`PLENTY`] it keeps what it likes.
pub(super) fn estimate_threads(text: &str, arch: &str, most: u32) -> u32 {
    // An address is a product of two numbers and a pointer, of which one may come from the constant
    // bank: up to sm_80 that is the pointer, and the factor takes a register. The later ones write the factor
    // into the instruction, which leaves the pointer a pair of registers.
    let p = parse(text, Addresses::of(arch));
    let calm = guarded(&p);
    let alive = |p: &Parsed| pressure(p, &p.width, SLOW);
    // Hundredths of a register, from what is alive at least and with loads ahead.
    let taken = |by: (u32, u32), least: u32, more: u32| {
        let least = least.min(more);
        let extra = (more - least).saturating_mul(by.1);
        least
            .saturating_mul(by.0)
            .saturating_add(extra)
            .saturating_add(50)
            / 100
    };
    let few = lean(&remade(&calm, Rematerialised::Special));
    let packed = match pressure(&few, &few.truth, SLOW_TRUTHS) {
        0..=TRUTHS => 0,
        _ => PACKED,
    };
    let short = packed
        + taken(
            SHORT_OF,
            alive(&few),
            alive(&ahead(&remade(&p, Rematerialised::Number))),
        );
    if short >= PLENTY {
        return short.min(most);
    }
    let ahead = ahead(&p);
    let pairs: Vec<u32> = ahead.width.iter().map(|&w| u32::from(w == 2)).collect();
    let between = pressure(&ahead, &pairs, 0).min(BETWEEN);
    let freely = taken(FREELY, alive(&calm), alive(&ahead)) + OWN + between;
    let freely = packed + freely.max(banked(&ahead) + ON_TOP);
    short.max(freely.min(PLENTY)).min(most)
}

/// Registers per thread that a kernel is given whose estimate is `estimate`: what an assembler takes is
/// then at most so much more than was counted on that this is 15% less. Below [`PLENTY`] they limit
/// nothing; and an assembler that is asked for fewer than 24 takes 24.
pub(super) fn given(estimate: u32, most: u32) -> u32 {
    (estimate.saturating_mul(100) / 85).max(PLENTY).min(most)
}

/// Registers of a thread with which all threads that a multiprocessor can have find room.
const PLENTY: u32 = 32;
/// What ptxas takes, in percent: for each register that is alive at once, and for each more when loads
/// are ahead of use as far as they can be. Of two planes the one for registers that are short was laid so that
/// of kernels of six programs on three architectures none takes 15% less: what ptxas takes beyond it is kept
/// from it by [`given`], with which none of them spills.
const SHORT_OF: (u32, u32) = (107, 66);
/// The other plane goes through what the small ones take.
const FREELY: (u32, u32) = (96, 80);
/// What is taken besides where registers are not short: the stack's address, and what is counted on top of the
/// highest in use.
const OWN: u32 = 1 + ON_TOP;
const ON_TOP: u32 = 2;
/// Registers that nothing fits into: beside the stack's address and between aligned pairs. Where fewer pairs are
/// alive at once there are fewer of them.
const BETWEEN: u32 = 2;
/// Truth values that have a place of their own, and what it takes to keep more: one register with all of
/// them as bits, and what puts them there and takes them out.
const TRUTHS: u32 = 7;
const PACKED: u32 = 3;
/// Registers that a division's or root's subroutine takes where it is called.
const SLOW: u32 = 7;
/// Truth values that it takes.
const SLOW_TRUTHS: u32 = 3;

/// How many lines put something into each name.
fn written(p: &Parsed) -> Vec<u32> {
    let mut out = vec![0; p.width.len()];
    for &d in p.lines.iter().flat_map(|l| &l.defs) {
        out[d as usize] += 1;
    }
    out
}

/// First line of every basic block.
fn starts(p: &Parsed) -> Vec<usize> {
    let mut starts = vec![0];
    for (i, l) in p.lines.iter().enumerate() {
        if l.jump.is_some() || l.ends {
            starts.push(i + 1);
        }
    }
    starts.extend(p.labels.values().copied());
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|&s| s < p.lines.len());
    starts
}

/// What is alive where blocks begin and end.
struct Alive {
    /// First lines of the blocks.
    starts: Vec<usize>,
    /// Names behind each block, a bit each.
    out: Vec<Vec<u64>>,
}

/// A name's place among bits.
fn bit(r: u32) -> (usize, u64) {
    (r as usize / 64, 1 << (r % 64))
}

fn has(live: &[u64], r: u32) -> bool {
    let (w, b) = bit(r);
    live[w] & b != 0
}

/// `live`, which is so behind `l`, as it is before it.
fn step(live: &mut [u64], l: &Line) {
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
fn count(live: &[u64], width: &[u32]) -> u32 {
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

fn alive(p: &Parsed) -> Alive {
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
fn pressure(p: &Parsed, width: &[u32], called: u32) -> u32 {
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

#[cfg(test)]
mod tests;
