//! How many registers a text needs: what is alive at once, read off the text itself.
//!
//! Constants, parameters and what is made of parameters alone by a change of address space are
//! operands of instructions on the machine and take no register; truth values have a file of their
//! own. What an assembler adds by loading ahead of use, and saves by computing again, is not known
//! here.
use std::collections::HashMap;

/// An instruction: registers it defines and uses, whether it defines them wholly.
#[derive(Default)]
struct Line {
    defs: Vec<u32>,
    uses: Vec<u32>,
    partial: bool,
    jump: Option<String>,
    /// Nothing runs into the next one.
    ends: bool,
}

/// Names to numbers, and 32-bit registers that each takes.
#[derive(Default)]
struct Names {
    declared: Vec<(String, u32)>,
    /// Only looked up, never walked.
    known: HashMap<String, u32>,
    width: Vec<u32>,
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

fn parse(text: &str) -> (Vec<Line>, HashMap<String, usize>, Vec<u32>) {
    let mut names = Names::default();
    let mut lines = vec![];
    let mut labels = HashMap::new();
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
        if op.starts_with("bra") {
            line.jump = Some(args.trim().to_string());
        }
        line.ends = !line.partial && (op.starts_with("bra") || op.starts_with("ret"));
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
            if free {
                for &d in &line.defs {
                    names.width[d as usize] = 0;
                }
            }
        }
        lines.push(line);
    }
    (lines, labels, names.width)
}

/// What ptxas takes for each register that is alive at once, in percent: over the GEMM, convolution
/// and attention that tests assemble it loads that far ahead of use (126 to 141, fitted).
const AHEAD: u32 = 136;

/// Registers per thread that an assembler is expected to take for `text`, which allows `most`.
pub(super) fn estimate(text: &str, most: u32) -> u32 {
    (pressure(text).saturating_mul(AHEAD) / 100).min(most)
}

/// As [`estimate`] for kernels without tensor cores, whose loops the assembler unrolls and whose loads
/// it moves ahead as it likes: a line through what it took for the kernels of four models on three
/// architectures, half of which lie within 15% of it.
pub(super) fn estimate_threads(text: &str, most: u32) -> u32 {
    (pressure(text).saturating_mul(215) / 100 + 3).min(most)
}

/// 32-bit registers alive at once at most in the entry `text` (declarations and instructions).
fn pressure(text: &str) -> u32 {
    let (lines, labels, width) = parse(text);
    // Basic blocks: first line of each.
    let mut starts = vec![0];
    for (i, l) in lines.iter().enumerate() {
        if l.jump.is_some() || l.ends {
            starts.push(i + 1);
        }
    }
    starts.extend(labels.values().copied());
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|&s| s < lines.len());
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
            most = most.max(now);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::pressure;

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
}
