//! How many registers a text needs: what is alive at once, read off the text itself.
//!
//! Constants, parameters and what is made of parameters alone by a change of address space are
//! operands of instructions on the machine and take no register; truth values have a file of their
//! own, and what does not fit it takes registers after all. For kernels in threads it is looked at as an assembler would leave it: short guarded parts
//! become guarded instructions, and loads of a stretch without stores come before what uses them, as
//! many as are kept under way at once ([`ahead`]).
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

struct Parsed {
    lines: Vec<Line>,
    labels: HashMap<String, usize>,
    /// 32-bit registers of each name.
    width: Vec<u32>,
    /// 1 for the name of a truth value.
    truth: Vec<u32>,
}

fn parse(text: &str) -> Parsed {
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
            let list: &mut Vec<u32> = if free { &mut fixed } else { &mut computed };
            list.extend(&line.defs);
        }
        lines.push(line);
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
    let p = parse(text);
    (pressure(&p, &p.width).saturating_mul(AHEAD) / 100).min(most)
}

/// What ptxas takes for each register that is alive at once, in percent: over the GEMM, convolution
/// and attention that tests assemble it loads that far ahead of use (fitted).
const AHEAD: u32 = 136;

/// As [`estimate`] for kernels without tensor cores, whose loads the assembler moves ahead of use.
pub(super) fn estimate_threads(text: &str, most: u32) -> u32 {
    let p = parse(text);
    let (calm, eager) = (guarded(&p), ahead(&p));
    let least = pressure(&calm, &p.width);
    let more = pressure(&eager, &p.width).saturating_sub(least);
    let truths = pressure(&calm, &p.truth).saturating_sub(TRUTHS) / 2;
    // In hundredths of a register.
    let taken = least
        .saturating_mul(LEAST)
        .saturating_add(more.saturating_mul(EARLY));
    (taken.saturating_add(50) / 100 + truths + OWN).min(most)
}

/// Registers per thread that a kernel is given whose estimate is `estimate`: what an assembler takes is
/// then at most a sixth more than was counted on. Below 32 they limit nothing, all threads that a
/// multiprocessor can have find room; and an assembler that is asked for fewer than 24 takes 24.
pub(super) fn given(estimate: u32, most: u32) -> u32 {
    (estimate.saturating_mul(100) / 86).max(32).min(most)
}

/// What ptxas takes, in percent: for each register that is alive at once in the order of the text, and
/// for each more when loads are ahead of use as far as they can be; and what it takes besides. A plane
/// through what it took for 398 kernels of four models on three architectures, laid low: what it takes
/// beyond it is kept from it by [`given`], what it leaves cannot be given to it.
const LEAST: u32 = 104;
const EARLY: u32 = 65;
const OWN: u32 = 6;
/// Truth values alive at once from which on every other one takes a register.
const TRUTHS: u32 = 24;
/// Lines of a guarded part that becomes guarded instructions.
const SHORT: usize = 8;
/// Loads, and functions of the special unit, under way at once.
const LOADS: usize = 16;
/// Registers that a division's or root's subroutine takes where it is called.
const SLOW: u32 = 7;

/// `p` as an assembler would leave it.
fn ahead(p: &Parsed) -> Parsed {
    let mut out = guarded(p);
    let starts = starts(&out);
    let mut lines = Vec::with_capacity(out.lines.len());
    for (b, &from) in starts.iter().enumerate() {
        let to = starts.get(b + 1).copied().unwrap_or(out.lines.len());
        for part in out.lines[from..to].split_inclusive(|l| l.kind == Kind::Fence) {
            lines.extend(loads_first(part));
        }
    }
    out.lines = lines;
    out
}

/// `p` with short parts that are jumped over as instructions that depend on the condition.
fn guarded(p: &Parsed) -> Parsed {
    let n = p.lines.len();
    // End of the part that the jump in a line skips, where it is short and only runs through.
    let end = |i: usize| -> Option<usize> {
        let l = &p.lines[i];
        let to = *p.labels.get(l.jump.as_ref()?)?;
        let inside = l.partial && to > i && to - i - 1 <= SHORT;
        let through = |l: &Line| match &l.jump {
            Some(j) => l.partial && p.labels.get(j).is_some_and(|&t| t > i && t <= to),
            None => !l.ends && !l.uses.is_empty() | !l.defs.is_empty(),
        };
        (inside && p.lines[i + 1..to].iter().all(through)).then_some(to)
    };
    let ends: Vec<Option<usize>> = (0..n).map(end).collect();
    // Where each register is defined first and last.
    let mut defined = vec![(usize::MAX, 0); p.width.len()];
    for (i, l) in p.lines.iter().enumerate() {
        for &d in &l.defs {
            let at = &mut defined[d as usize];
            *at = (at.0.min(i), at.1.max(i));
        }
    }
    let (mut lines, mut place) = (vec![], vec![0; n + 1]);
    // Parts that a line is in: their ends and the jump's number.
    let mut open: Vec<(usize, usize)> = vec![];
    for (i, l) in p.lines.iter().enumerate() {
        place[i] = lines.len();
        open.retain(|o| o.0 > i);
        if let Some(to) = ends[i] {
            open.push((to, i));
            continue;
        }
        let mut l = l.clone();
        for &(_, jump) in &open {
            l.uses.extend(&p.lines[jump].uses);
        }
        if let Some(&(to, jump)) = open.last() {
            // What is defined nowhere else has no value to keep.
            let own = |&d: &u32| defined[d as usize].0 > jump && defined[d as usize].1 < to;
            l.partial |= !l.defs.iter().all(own);
        }
        lines.push(l);
    }
    place[n] = lines.len();
    let left = |name: &str| {
        let mut jumps = p.lines.iter().zip(&ends);
        jumps.any(|(l, e)| e.is_none() && l.jump.as_deref() == Some(name))
    };
    let labels = p.labels.iter().filter(|(name, _)| left(name));
    Parsed {
        labels: labels.map(|(n, &at)| (n.clone(), place[at])).collect(),
        width: p.width.clone(),
        truth: p.truth.clone(),
        lines,
    }
}

/// A stretch that nothing moves out of, with its loads, some at a time, before what uses them.
fn loads_first(part: &[Line]) -> Vec<Line> {
    let n = part.len();
    let mut needs: Vec<Vec<usize>> = vec![vec![]; n];
    // Last definition and the uses since, by register; only looked up.
    let mut last: HashMap<u32, usize> = HashMap::new();
    let mut uses: HashMap<u32, Vec<usize>> = HashMap::new();
    for (i, l) in part.iter().enumerate() {
        needs[i].extend(l.uses.iter().filter_map(|u| last.get(u)));
        for d in &l.defs {
            needs[i].extend(last.get(d));
            needs[i].extend(uses.get(d).into_iter().flatten().filter(|&&u| u != i));
        }
        for &u in &l.uses {
            uses.entry(u).or_default().push(i);
        }
        for &d in &l.defs {
            last.insert(d, i);
            let kept = if l.partial { vec![i] } else { vec![] };
            uses.insert(d, kept);
        }
        needs[i].sort_unstable();
        needs[i].dedup();
    }
    let mut done = vec![false; n];
    let mut order: Vec<usize> = Vec::with_capacity(n);
    let mut take = |i: usize| {
        let mut stack = vec![i];
        while let Some(&at) = stack.last() {
            let missing = needs[at].iter().find(|&&d| !done[d]);
            match missing {
                Some(&d) if !done[at] => stack.push(d),
                _ => {
                    stack.pop();
                    if !done[at] {
                        done[at] = true;
                        order.push(at);
                    }
                }
            }
        }
    };
    let loads: Vec<usize> = (0..n).filter(|&i| part[i].kind == Kind::Load).collect();
    for (g, group) in loads.chunks(LOADS).enumerate() {
        for &i in group {
            needs[i].iter().for_each(|&d| take(d));
        }
        group.iter().for_each(|&i| take(i));
        let next = loads.get((g + 1) * LOADS).copied().unwrap_or(n);
        (0..next).for_each(&mut take);
    }
    (0..n).for_each(&mut take);
    order.into_iter().map(|i| part[i].clone()).collect()
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

/// The most that is alive at once, where every name counts as `width` says.
fn pressure(p: &Parsed, width: &[u32]) -> u32 {
    let (lines, labels) = (&p.lines, &p.labels);
    let starts = starts(p);
    let block_of = |line: usize| starts.partition_point(|&s| s <= line).saturating_sub(1);
    let words = width.len().div_ceil(64);
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
    let step = |live: &mut [u64], l: &Line| {
        let bit = |r: u32| (r as usize / 64, 1u64 << (r % 64));
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
    let count = |live: &[u64]| -> u32 {
        let mut n = 0;
        for (w, &bits) in live.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                n += width[w * 64 + bits.trailing_zeros() as usize];
                bits &= bits - 1;
            }
        }
        n
    };
    let mut most = 0;
    for b in 0..starts.len() {
        let mut live = live_out(b, &live_in);
        // Counting costs as much as all registers: the sum is kept instead.
        let mut now = count(&live);
        most = most.max(now);
        for l in lines[starts[b]..end(b)].iter().rev() {
            let has = |live: &[u64], r: u32| live[r as usize / 64] >> (r % 64) & 1 == 1;
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
    use super::{ahead, parse};

    fn pressure(text: &str) -> u32 {
        alive(&parse(text))
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
            parse(&(t + "\tst.global.f32 [%d1], %f0;\n\tret;\n"))
        };
        // One after the other: two addresses, a sum and a value; together: five values.
        assert_eq!(alive(&text(false)), 6);
        for guarded in [false, true] {
            let p = ahead(&text(guarded));
            assert!(alive(&p) >= 8);
            assert!(p.labels.is_empty());
        }
    }
}
