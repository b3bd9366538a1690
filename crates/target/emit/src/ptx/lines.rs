//! A printed text as its lines, each looked at once: those who count its instructions and those who count its
//! registers read this. A plan for a GPU looks at hundreds of texts of thousands of lines.
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::ops::Range;

/// What an instruction says beside its name and its registers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    /// It is obeyed where a truth value holds.
    pub guarded: bool,
    /// Registers or numbers stand in braces.
    pub braces: bool,
    /// It reads the number of its thread or CTA.
    pub special: bool,
    /// The integer that its last operand is, where its name is one of [`asks_number`].
    pub number: Option<i64>,
}

/// A line that is an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The number of its name among [`Lines::ops`].
    pub op: u16,
    pub form: Form,
    /// The number of the label that it jumps to.
    pub label: Option<u32>,
    /// Where its registers stand among [`Lines::registers`]: written ones, from `uses` on read ones, and at `guard`
    /// that of the truth value.
    first: u32,
    uses: u32,
    guard: u32,
    /// First byte of the line.
    at: u32,
}

/// The lines of a text.
#[derive(Default)]
pub(super) struct Lines {
    pub lines: Vec<Line>,
    /// Names of instructions, with all that follows them before the first space.
    pub ops: Vec<String>,
    /// Registers of the lines, one after the other.
    registers: Vec<u32>,
    pub names: Names,
    /// The line that each label stands before, by the label's number, where it stands anywhere.
    pub labels: Vec<Option<usize>>,
}

impl Lines {
    /// The lines of `text`.
    pub fn of(text: &str) -> Lines {
        let mut out = Lines::default();
        let mut known = Known::default();
        let mut at = 0;
        for whole in text.split_inclusive('\n') {
            out.line(whole.trim(), at, &mut known);
            at += whole.len();
        }
        out
    }

    fn line<'t>(&mut self, line: &'t str, at: usize, known: &mut Known<'t>) {
        if let Some(declared) = line.strip_prefix(".reg .") {
            return self.names.declare(declared);
        }
        if let Some(label) = line.strip_suffix(':') {
            let label = self.label(label, known);
            self.labels[label as usize] = Some(self.lines.len());
            return;
        }
        match line.strip_suffix(';') {
            Some(code) if !code.starts_with('.') => self.instruction(code, at, known),
            _ => {}
        }
    }

    fn label<'t>(&mut self, name: &'t str, known: &mut Known<'t>) -> u32 {
        let next = self.labels.len() as u32;
        let label = *known.labels.entry(name).or_insert(next);
        if label == next {
            self.labels.push(None);
        }
        label
    }

    fn instruction<'t>(&mut self, code: &'t str, at: usize, known: &mut Known<'t>) {
        let (guard, code) = match code.strip_prefix('@') {
            None => (None, code),
            Some(rest) => {
                let (p, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let name = p.trim_start_matches(['!', '%']);
                (Some(self.names.number(name)), rest.trim_start())
            }
        };
        let (op, args) = code.split_once(' ').unwrap_or((code, ""));
        let next = self.ops.len() as u16;
        let op = *known.ops.entry(op).or_insert_with(|| {
            self.ops.push(op.to_string());
            next
        });
        let name = &self.ops[op as usize];
        let label = match name.starts_with("bra") {
            true => Some(args.trim()),
            false => None,
        };
        let number = asks_number(name).then(|| args.rsplit(',').next()?.trim().parse().ok());
        // What is written stands first.
        let written = match args.strip_prefix('{') {
            _ if defines_none(name) => 0,
            Some(inner) => inner.find('}').map_or(args.len(), |e| e + 1),
            None => args.find(',').unwrap_or(args.len()),
        };
        let place = |list: &[u32]| list.len() as u32;
        let first = place(&self.registers);
        let mut uses = None;
        let mut special = false;
        let mut rest = 0;
        while let Some(next) = args[rest..].find('%') {
            let from = rest + next + 1;
            let end = args[from..]
                .bytes()
                .position(|c| !c.is_ascii_alphanumeric() && c != b'_');
            rest = end.map_or(args.len(), |e| from + e);
            if from > written {
                uses.get_or_insert(place(&self.registers));
            }
            let name = &args[from..rest];
            special |= matches!(name, "tid" | "ctaid");
            self.registers.push(self.names.number(name));
        }
        let end = place(&self.registers);
        self.registers.extend(guard);
        let label = label.map(|l| self.label(l, known));
        self.lines.push(Line {
            op,
            form: Form {
                guarded: guard.is_some(),
                braces: args.contains('{'),
                special,
                number: number.flatten(),
            },
            label,
            first,
            uses: uses.unwrap_or(end),
            guard: end,
            at: at as u32,
        });
    }

    pub fn op(&self, l: &Line) -> &str {
        &self.ops[l.op as usize]
    }

    /// Registers that `l` writes.
    pub fn defs(&self, l: &Line) -> &[u32] {
        &self.registers[l.first as usize..l.uses as usize]
    }

    /// Registers that its operands read.
    pub fn operands(&self, l: &Line) -> &[u32] {
        &self.registers[l.uses as usize..l.guard as usize]
    }

    /// The truth value where it is obeyed.
    pub fn guard(&self, l: &Line) -> Option<u32> {
        l.form.guarded.then(|| self.registers[l.guard as usize])
    }

    /// Registers whose values matter for what is there behind `l`: what a guarded one does not write stays.
    pub fn uses(&self, l: &Line) -> &[u32] {
        match l.form.guarded {
            true => &self.registers[l.first as usize..=l.guard as usize],
            false => self.operands(l),
        }
    }

    /// Which of the lines stand in this part of the text.
    pub fn within(&self, part: Range<usize>) -> Range<usize> {
        let before = |at: usize| self.lines.partition_point(|l| (l.at as usize) < at);
        before(part.start)..before(part.end)
    }
}

/// Names and labels that a text has had so far; only looked up.
#[derive(Default)]
struct Known<'t> {
    ops: HashMap<&'t str, u16, FixedState>,
    labels: HashMap<&'t str, u32, FixedState>,
}

/// Whether it matters which number the last operand of an instruction is: a divisor, a factor, how many groups of
/// copies it waits for.
fn asks_number(op: &str) -> bool {
    ["div", "rem", "mul.wide", "cp.", "wgmma.wait"]
        .iter()
        .any(|n| op.starts_with(n))
}

/// Whether an instruction of this name writes no register.
pub(super) fn defines_none(op: &str) -> bool {
    let name = op.split('.').next().unwrap_or("");
    let none = [
        "st", "bar", "barrier", "bra", "cp", "red", "ret", "membar", "fence", "exit", "trap",
    ];
    none.contains(&name)
}

/// Registers by name.
#[derive(Default)]
pub(super) struct Names {
    kinds: Vec<Kind>,
    /// 32-bit registers that each takes, 0 for a truth value; `None`: it is not declared, and no register of the
    /// text.
    pub width: Vec<Option<u32>>,
}

/// Registers whose names are the same but for their numbers.
struct Kind {
    /// The bytes of what stands before the number.
    name: u128,
    width: Option<u32>,
    /// Registers by their number, or 0 for a name without one, plus 1.
    list: Vec<Option<u32>>,
}

/// Numbers that the names of registers may have; what is beyond counts as one register.
const NUMBERS: usize = 1 << 24;

/// What stands before a name's number, and that, or 0 for a name without one, plus 1.
fn parts(name: &str) -> (u128, usize) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (kind, number) = name.split_at(name.len() - digits);
    // Printed names begin with less than 16 bytes.
    let kind = kind.bytes();
    let kind = kind.fold(1u128, |all, b| all << 8 | u128::from(b));
    let number = number.parse().map_or(0, |n: usize| n.saturating_add(1));
    (kind, number.min(NUMBERS))
}

impl Names {
    pub fn len(&self) -> usize {
        self.width.len()
    }

    /// Registers whose names are `kind` and a number.
    pub fn of_kind(&self, kind: &str) -> Vec<u32> {
        let kind = self.kinds.iter().filter(|k| k.name == parts(kind).0);
        kind.flat_map(|k| k.list.iter().flatten().copied())
            .collect()
    }

    fn kind(&mut self, name: u128) -> &mut Kind {
        let at = self.kinds.iter().position(|k| k.name == name);
        let at = at.unwrap_or_else(|| {
            self.kinds.push(Kind {
                name,
                width: None,
                list: vec![],
            });
            self.kinds.len() - 1
        });
        &mut self.kinds[at]
    }

    /// Takes note of what stands behind `.reg .`: a type and names.
    fn declare(&mut self, line: &str) {
        let Some((ty, names)) = line.split_once(' ') else {
            return;
        };
        let width = match ty {
            "pred" => 0,
            "b64" | "f64" => 2,
            _ => 1,
        };
        for n in names.trim_end_matches(';').split(',') {
            let name = n.trim().trim_start_matches('%');
            let name = name.split('<').next().unwrap_or("");
            self.kind(parts(name).0).width = Some(width);
        }
    }

    fn number(&mut self, name: &str) -> u32 {
        let (kind, number) = parts(name);
        let next = self.width.len() as u32;
        let kind = self.kind(kind);
        if kind.list.len() <= number {
            kind.list.resize(number + 1, None);
        }
        let found = *kind.list[number].get_or_insert(next);
        if found == next {
            let width = kind.width;
            self.width.push(width);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn a_line_says_what_it_writes_and_reads() {
        let text = "\t.reg .b32 %r<9>;\n\t.reg .pred %p<3>;\n\
            $top:\n\
            \t.pragma \"nounroll\";\n\
            \t@!%p1 ld.global.v2.b32 {%r1, %r2}, [%r3+8];\n\
            \tdiv.s32 %r4, %r1, -12;\n\
            \tmov.u32 %r5, %tid.x;\n\
            \tst.shared.b32 [%r4], %r5;\n\
            \tbra $top;\n";
        let all = Lines::of(text);
        let [load, division, thread, store, jump] = &all.lines[..] else {
            panic!("{} lines", all.lines.len());
        };
        let counts = |l| (all.defs(l).len(), all.operands(l).len(), all.uses(l).len());
        assert_eq!(counts(load), (2, 1, 4));
        assert_eq!(all.guard(load), Some(0));
        assert!(load.form.braces && load.form.guarded);
        assert_eq!(
            (division.form.number, counts(division)),
            (Some(-12), (1, 1, 1))
        );
        assert!(thread.form.special && !store.form.special);
        let tid = all.operands(thread)[0] as usize;
        assert_eq!(all.names.width[tid], None);
        assert_eq!(counts(store), (0, 2, 2));
        assert_eq!(all.labels[jump.label.unwrap() as usize], Some(0));
        assert_eq!(all.op(store), "st.shared.b32");
        let at = |of: &str| text.find(of).unwrap();
        assert_eq!(all.within(at("\tdiv")..at("\tst")), 1..3);
        assert_eq!(all.names.of_kind("r").len(), 5);
    }
}
