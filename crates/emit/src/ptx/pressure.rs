//! How many registers a text needs: what is alive at once, read off the text itself.
//!
//! Constants, parameters and what is made of parameters alone by a change of address space are
//! operands of instructions on the machine and take no register; truth values have a file of their
//! own, and what does not fit it takes registers after all. Kernels in threads are looked at as an
//! assembler would leave them ([`order`]): short guarded parts become guarded instructions; loads of a
//! stretch without stores come before what uses them, as many as are kept under way at once; what is
//! short of registers is put in the order that needs fewest; and a value that one instruction makes of
//! another and a number is made again where it is used.
mod order;

use order::{ahead, guarded, lean, remade};
use std::collections::HashMap;

/// What matters of an instruction beside its registers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Other,
    /// What others wait for: a load, or a function of the special unit.
    Load,
    /// Nothing moves across it: a store, a barrier, a jump.
    Fence,
    /// A division or root with a subroutine for the odd cases.
    Slow,
}

/// How a value can be had a second time.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Again {
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
    again: Again,
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

/// Gives each of `pointers` a register of its own in every loop that uses it, made before the loop.
fn pointers_in_loops(
    (lines, labels): (&mut [Line], &HashMap<String, usize>),
    pointers: &[u32],
    names: &mut Names,
) {
    let back = |(j, l): (usize, &Line)| {
        let to = *labels.get(l.jump.as_ref()?)?;
        (to <= j).then_some((to, j))
    };
    let mut loops: Vec<(usize, usize)> = lines.iter().enumerate().filter_map(back).collect();
    loops.sort_unstable();
    let mut outer: Vec<(usize, usize)> = vec![];
    for (from, to) in loops {
        match outer.last_mut() {
            Some(o) if from <= o.1 => o.1 = o.1.max(to),
            _ => outer.push((from, to)),
        }
    }
    for (from, to) in outer.into_iter().filter(|l| l.0 > 0) {
        for p in pointers {
            if !lines[from..=to].iter().any(|l| l.uses.contains(p)) {
                continue;
            }
            let own = names.width.len() as u32;
            names.width.push(2);
            names.truth.push(0);
            let uses = lines[from..=to].iter_mut().flat_map(|l| &mut l.uses);
            uses.filter(|u| *u == p).for_each(|u| *u = own);
            lines[to].uses.push(own);
            lines[from - 1].defs.push(own);
        }
    }
}

/// Lines of `text`; `held`: pointers that are parameters lie in registers where a loop uses them.
fn parse(text: &str, held: bool) -> Parsed {
    let mut names = Names::default();
    let mut lines = vec![];
    let mut labels = HashMap::new();
    // Registers that something other than a constant or a parameter is put into.
    let (mut fixed, mut computed) = (vec![], vec![]);
    for l in text.lines().map(str::trim) {
        if l.starts_with(".reg") {
            names.declare(l);
            continue;
        }
        if let Some(label) = l.strip_suffix(':') {
            labels.insert(label.to_string(), lines.len());
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
            // What an instruction takes from the constant bank, or as a number, has no register.
            let free = op.starts_with("ld.param")
                || op.starts_with("cvta")
                || (op.starts_with("mov") && !from.contains('%') && !line.partial);
            let number = ["add.s32", "add.u32", "sub.s32", "mul.lo.s32", "shl.b32"];
            line.again = match op {
                "mov.u32" if from.contains("%tid.") || from.contains("%ctaid.") => Again::Special,
                _ if number.contains(&op) => Again::Number,
                _ => Again::No,
            };
            let list: &mut Vec<u32> = if free { &mut fixed } else { &mut computed };
            list.extend(&line.defs);
        }
        lines.push(line);
    }
    if held {
        let known = names.known.iter();
        let known = known.filter(|(n, _)| n.starts_with(POINTERS));
        let mut pointers: Vec<u32> = known.map(|(_, &n)| n).collect();
        pointers.sort_unstable();
        pointers_in_loops((&mut lines, &labels), &pointers, &mut names);
    }
    let (mut width, truth) = (names.width, names.truth);
    computed.sort_unstable();
    for d in fixed {
        // A variable that begins with a constant is one all the same.
        if computed.binary_search(&d).is_err() {
            width[d as usize] = 0;
        }
    }
    Parsed {
        lines,
        labels,
        width,
        truth,
    }
}

/// Registers per thread that an assembler is expected to take for `text`, which allows `most`.
pub(super) fn estimate(text: &str, most: u32) -> u32 {
    let p = parse(text, false);
    (pressure(&p, &p.width).saturating_mul(AHEAD) / 100).min(most)
}

/// What ptxas takes for each register that is alive at once, in percent: over the GEMM, convolution
/// and attention that tests assemble it loads that far ahead of use (fitted).
const AHEAD: u32 = 136;

/// As [`estimate`] for kernels without tensor cores on `arch`, whose loads the assembler moves ahead of
/// use. Where registers are short it is thrifty: an order that keeps little alive, and values made
/// again rather than kept. Below [`PLENTY`] it keeps what it likes.
pub(super) fn estimate_threads(text: &str, arch: &str, most: u32) -> u32 {
    // An address is a product of two numbers and a pointer, of which one may come from the constant
    // bank: up to sm_80 that is the pointer. The later ones write the factor into the instruction, which
    // leaves the pointer a pair of registers; outside of loops it is read where it is used.
    let p = parse(text, arch == "sm_90");
    let calm = guarded(&p);
    let alive = |p: &Parsed| pressure(p, &p.width);
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
    let few = lean(&remade(&calm, Again::Special));
    let packed = match pressure(&few, &few.truth) {
        0..=TRUTHS => 0,
        _ => PACKED,
    };
    let short = taken(
        SHORT_OF,
        alive(&few),
        alive(&ahead(&remade(&p, Again::Number))),
    );
    let freely = taken(FREELY, alive(&calm), alive(&ahead(&p))) + OWN;
    (short + OWN_LEAST + packed)
        .max(freely.min(PLENTY))
        .min(most)
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
/// are ahead of use as far as they can be; and what it takes besides. Of two planes the one for registers
/// that are short was laid so that of 411 kernels of six programs on three architectures none takes 15%
/// less: what ptxas takes beyond it is kept from it by [`given`], with which none of them spills. The other
/// goes through what the small ones take.
const SHORT_OF: (u32, u32) = (107, 66);
const OWN_LEAST: u32 = 1;
const FREELY: (u32, u32) = (104, 65);
const OWN: u32 = 6;
/// Truth values that have a place of their own, and what it takes to keep more: one register with all of
/// them as bits, and what puts them there and takes them out.
const TRUTHS: u32 = 7;
const PACKED: u32 = 3;
/// Registers that a division's or root's subroutine takes where it is called.
const SLOW: u32 = 7;

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

/// The most that is alive at once, where every name counts as `width` says.
fn pressure(p: &Parsed, width: &[u32]) -> u32 {
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
            let called = if l.kind == Kind::Slow { SLOW } else { 0 };
            most = most.max(now + called);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::{Again, ahead, lean, parse, remade};

    fn pressure(text: &str) -> u32 {
        alive(&parse(text, false))
    }

    fn alive(p: &super::Parsed) -> u32 {
        super::pressure(p, &p.width)
    }

    #[test]
    fn what_is_alive_together_is_counted() {
        let text = "\t.reg .b32 %r<5>;\n\t.reg .b64 %d<3>;\n\t.reg .pred %p<2>;\n\
            \tld.param.u64 %d0, [a];\n\
            \tld.global.b32 %r0, [%d0];\n\
            \tld.global.b32 %r1, [%d0+4];\n\
            \tmov.b32 %r2, 7;\n\
            \tadd.u32 %r3, %r0, %r1;\n\
            \tadd.u32 %r3, %r3, %r2;\n\
            \tst.global.b32 [%d0], %r3;\n\tret;\n";
        // The pointer is a parameter and the 7 a number.
        assert_eq!(pressure(text), 2);
    }

    #[test]
    fn what_a_loop_carries_lives_through_it() {
        let text = "\t.reg .b32 %r<5>;\n\t.reg .pred %p<2>;\n\
            \tmov.u32 %r0, %tid.x;\n\
            \tadd.u32 %r1, %r0, 1;\n\
            $L1:\n\
            \tadd.u32 %r2, %r0, 3;\n\
            \tadd.u32 %r1, %r1, %r2;\n\
            \tsetp.lt.u32 %p0, %r1, 100;\n\
            \t@%p0 bra $L1;\n\
            \tst.global.b32 [%r0], %r1;\n\tret;\n";
        assert_eq!(pressure(text), 3);
    }

    #[test]
    fn a_variable_that_begins_with_a_constant_takes_a_register() {
        let text = "\t.reg .b32 %r<5>;\n\t.reg .f32 %f<5>;\n\
            \tmov.f32 %f0, 0f00000000;\n\tmov.f32 %f1, 0f00000000;\n\
            $L1:\n\
            \tadd.f32 %f0, %f0, %f1;\n\tadd.f32 %f1, %f1, %f0;\n\
            \tsetp.lt.f32 %p0, %f0, 0f00000000;\n\
            \t@%p0 bra $L1;\n\tst.global.f32 [%r0], %f0;\n\tret;\n";
        assert_eq!(pressure(text), 3);
    }

    #[test]
    fn loads_are_under_way_together() {
        let text = |guarded: bool| {
            let mut t = "\t.reg .b64 %d<3>;\n\t.reg .f32 %f<9>;\n\t.reg .pred %p<2>;\n\
                \tld.global.b64 %d0, [%d1];\n\tld.global.f32 %f1, [%d0];\n\tmov.f32 %f0, %f1;\n"
                .to_string();
            for i in 2..6 {
                let load =
                    format!("\tmov.f32 %f{i}, 0f00000000;\n\tld.global.f32 %f{i}, [%d0+{i}];\n");
                let (before, after) = match guarded {
                    true => (format!("\t@!%p0 bra $s{i};\n"), format!("$s{i}:\n")),
                    false => (String::new(), String::new()),
                };
                t += &load.replace("\tld", &format!("{before}\tld"));
                t += &format!("{after}\tadd.f32 %f0, %f0, %f{i};\n");
            }
            parse(&(t + "\tst.global.f32 [%d1], %f0;\n\tret;\n"), false)
        };
        // One after the other: two addresses, a sum and a value; together: five values.
        assert_eq!(alive(&text(false)), 6);
        for guarded in [false, true] {
            let p = ahead(&text(guarded));
            assert!(alive(&p) >= 8);
            assert!(p.labels.is_empty());
        }
    }

    #[test]
    fn the_order_is_one_that_keeps_little_alive() {
        let mut text = "\t.reg .f32 %f<20>;\n\t.reg .b32 %r<5>;\n".to_string();
        for i in 0..8 {
            text += &format!("\tld.shared.f32 %f{i}, [%r0+{}];\n", 4 * i);
        }
        text += "\tadd.f32 %f10, %f0, %f1;\n";
        for i in 2..8 {
            text += &format!("\tadd.f32 %f10, %f10, %f{i};\n");
        }
        text += "\tst.shared.f32 [%r0], %f10;\n\tret;\n";
        let p = parse(&text, false);
        assert_eq!(alive(&p), 9);
        let q = lean(&p);
        // The address, the sum and what is added.
        assert_eq!(alive(&q), 3);
        assert_eq!(q.lines.len(), p.lines.len());
    }

    #[test]
    fn what_one_instruction_makes_of_a_number_is_not_kept() {
        let mut text = "\t.reg .b32 %r<20>;\n\tld.global.b32 %r0, [%r19];\n".to_string();
        text += "\tmov.u32 %r11, %tid.x;\n";
        for i in 1..9 {
            text += &format!("\tadd.s32 %r{i}, %r{}, {i};\n", i % 2 * (i - 1));
        }
        text += "$L1:\n";
        for i in 0..9 {
            text += &format!("\tst.shared.b32 [%r11], %r{i};\n");
        }
        text += "\tsetp.lt.s32 %p0, %r10, 100;\n\t@%p0 bra $L1;\n\tret;\n";
        let p = parse(&text, false);
        // What is counted, nine values, the thread.
        assert_eq!(alive(&p), 11);
        assert_eq!(alive(&remade(&p, Again::Special)), 10);
        // One of them, and a place for what nobody reads any more.
        assert_eq!(alive(&remade(&p, Again::Number)), 3);
    }

    #[test]
    fn a_pointer_has_registers_in_the_loops_that_use_it() {
        let text = "\t.reg .b64 %l_<3>;\n\t.reg .f32 %f<5>;\n\t.reg .b64 %d<5>;\n\t.reg .pred %p<2>;\n\
            \tld.param.u64 %l_0, [a];\n\tld.param.u64 %l_1, [b];\n\
            \tadd.s64 %d0, %d1, %l_1;\n\tld.global.f32 %f0, [%d0];\n\
            $L1:\n\tadd.s64 %d2, %d1, %l_0;\n\tld.global.f32 %f1, [%d2];\n\
            \tadd.f32 %f0, %f0, %f1;\n\tsetp.lt.f32 %p0, %f0, 0f00000000;\n\
            \t@%p0 bra $L1;\n\tst.global.f32 [%d1], %f0;\n\tret;\n";
        let (few, more) = (parse(text, false), parse(text, true));
        // The offset, the sum, and the address.
        assert_eq!(alive(&few), 5);
        assert_eq!(alive(&more), 7);
    }
}
