//! A text as its lines: those who count its instructions and those who count its registers read this. A plan for a GPU
//! looks at hundreds of texts of thousands of lines, so that whoever prints one can say what a line is without printing it.
use foldhash::fast::FixedState;
use std::collections::HashMap;

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
}

/// Bytes of a text for each line that is an instruction, and for each register that one names: no more than most have.
const BYTES_OF_LINE: usize = 24;
const BYTES_OF_REGISTER: usize = 9;

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
        let mut reader = LineReader::new(text.len());
        text.lines().for_each(|line| reader.line(line));
        reader.lines
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
}

/// Takes in lines one after the other.
#[derive(Default)]
pub(super) struct LineReader {
    pub lines: Lines,
    /// Names and labels that there were so far; only looked up.
    ops: HashMap<Box<str>, KnownOp, FixedState>,
    labels: HashMap<Box<str>, u32, FixedState>,
    /// The name of the instruction at hand, where it is put together of several.
    name: String,
}

/// A register by what stands before its number, and that.
#[derive(Clone, Copy)]
pub(super) struct RegisterName<'n> {
    pub kind: &'n str,
    pub number: u32,
}

/// An operand of an instruction, as far as it is looked at.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    /// It names registers: one, or several in braces.
    Registers { braces: bool },
    /// It is an integer.
    Number(i64),
    /// It is something else, without a register.
    Other,
}

/// An instruction that is taken in.
pub(super) struct Begun {
    op: KnownOp,
    guard: Option<u32>,
    first: u32,
    uses: Option<u32>,
    operands: u32,
    braces: bool,
    number: Option<i64>,
}

impl LineReader {
    /// One for a text of about so many bytes.
    pub fn new(bytes: usize) -> LineReader {
        LineReader {
            lines: Lines {
                lines: Vec::with_capacity(bytes / BYTES_OF_LINE),
                registers: Vec::with_capacity(bytes / BYTES_OF_REGISTER),
                ..Lines::default()
            },
            ..LineReader::default()
        }
    }

    /// Takes in a line as it is printed.
    pub fn line(&mut self, line: &str) {
        let line = line.trim_ascii();
        match line.as_bytes() {
            [b'.', ..] => {
                if let Some(declared) = line.strip_prefix(".reg .") {
                    self.lines.names.declare(declared);
                }
            }
            [.., b':'] => {
                let label = self.label(&line[..line.len() - 1]);
                self.lines.labels[label as usize] = Some(self.lines.lines.len());
            }
            [.., b';'] => self.instruction(&line[..line.len() - 1]),
            _ => {}
        }
    }

    fn label(&mut self, name: &str) -> u32 {
        if let Some(known) = self.labels.get(name) {
            return *known;
        }
        let next = self.lines.labels.len() as u32;
        self.labels.insert(name.into(), next);
        self.lines.labels.push(None);
        next
    }

    /// The name of an instruction, from what it is put together of.
    fn op(&mut self, parts: &[&str]) -> KnownOp {
        self.name.clear();
        parts.iter().for_each(|p| self.name.push_str(p));
        let op = self.name.as_str();
        if let Some(known) = self.ops.get(op) {
            return *known;
        }
        let known = KnownOp {
            number: self.lines.ops.len() as u16,
            jumps: op.starts_with("bra"),
            asks_number: asks_number(op),
            defines_none: defines_none(op),
        };
        self.ops.insert(op.into(), known);
        self.lines.ops.push(op.to_string());
        known
    }

    /// Begins an instruction whose name is put together of `op`, obeyed where `guard` holds.
    pub fn begin(&mut self, guard: Option<RegisterName>, op: &[&str]) -> Begun {
        let guard = guard.map(|g| {
            self.lines
                .names
                .number(kind_of(g.kind), g.number as usize + 1)
        });
        Begun {
            op: self.op(op),
            guard,
            first: self.lines.registers.len() as u32,
            uses: None,
            operands: 0,
            braces: false,
            number: None,
        }
    }

    /// Adds an operand, whose registers follow.
    pub fn operand(&mut self, begun: &mut Begun, operand: Operand) {
        // What is written stands first.
        if begun.operands > 0 || begun.op.defines_none {
            begun.uses.get_or_insert(self.lines.registers.len() as u32);
        }
        begun.operands += 1;
        begun.braces |= matches!(operand, Operand::Registers { braces: true });
        begun.number = match operand {
            Operand::Number(n) if begun.op.asks_number => Some(n),
            _ => None,
        };
    }

    /// A register of the operand at hand.
    pub fn register(&mut self, r: RegisterName) {
        let number = self
            .lines
            .names
            .number(kind_of(r.kind), r.number as usize + 1);
        self.lines.registers.push(number);
    }

    /// Ends an instruction that neither jumps nor reads a special register.
    pub fn end(&mut self, begun: Begun) {
        let end = self.lines.registers.len() as u32;
        self.lines.registers.extend(begun.guard);
        self.lines.lines.push(Line {
            op: begun.op.number,
            form: Form {
                guarded: begun.guard.is_some(),
                braces: begun.braces,
                special: false,
                number: begun.number,
            },
            label: None,
            first: begun.first,
            uses: begun.uses.unwrap_or(end),
            guard: end,
        });
    }

    fn instruction(&mut self, code: &str) {
        let (guard, code) = match code.strip_prefix('@') {
            None => (None, code),
            Some(rest) => {
                let (p, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let name = p.trim_start_matches(['!', '%']);
                (Some(self.lines.names.named(name)), rest.trim_start())
            }
        };
        let (op, args) = match code.bytes().position(|b| b == b' ') {
            Some(end) => (&code[..end], &code[end + 1..]),
            None => (code, ""),
        };
        let name = self.op(&[op]);
        let label = match name.jumps {
            true => Some(args.trim()),
            false => None,
        };
        let number = match name.asks_number {
            true => args.rsplit(',').next().and_then(|n| n.trim().parse().ok()),
            false => None,
        };
        let bytes = args.as_bytes();
        let place_of = |what: u8| bytes.iter().position(|b| *b == what);
        let braces = place_of(b'{');
        // What is written stands first.
        let written = match braces {
            _ if name.defines_none => 0,
            Some(0) => place_of(b'}').unwrap_or(args.len()),
            _ => place_of(b',').unwrap_or(args.len()),
        };
        let Lines {
            registers, names, ..
        } = &mut self.lines;
        let first = registers.len() as u32;
        let mut uses = None;
        let mut special = false;
        let mut rest = 0;
        while let Some(next) = bytes[rest..].iter().position(|b| *b == b'%') {
            let from = rest + next + 1;
            let end = bytes[from..]
                .iter()
                .position(|c| !c.is_ascii_alphanumeric() && *c != b'_');
            rest = end.map_or(args.len(), |e| from + e);
            if from > written {
                uses.get_or_insert(registers.len() as u32);
            }
            let register = &args[from..rest];
            special |= matches!(register, "tid" | "ctaid");
            registers.push(names.named(register));
        }
        let end = registers.len() as u32;
        registers.extend(guard);
        let label = label.map(|l| self.label(l));
        self.lines.lines.push(Line {
            op: name.number,
            form: Form {
                guarded: guard.is_some(),
                braces: braces.is_some(),
                special,
                number,
            },
            label,
            first,
            uses: uses.unwrap_or(end),
            guard: end,
        });
    }
}

/// What the name of an instruction says of its lines.
#[derive(Clone, Copy)]
struct KnownOp {
    /// Its number among [`Lines::ops`].
    number: u16,
    jumps: bool,
    asks_number: bool,
    defines_none: bool,
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

/// The bytes of what stands before a name's number: less than 16 in printed names.
fn kind_of(name: &str) -> u128 {
    let bytes = name.bytes();
    bytes.fold(1u128, |all, b| all << 8 | u128::from(b))
}

/// What stands before a name's number, and that, or 0 for a name without one, plus 1.
fn parts(name: &str) -> (u128, usize) {
    let bytes = name.as_bytes();
    let letters = bytes.iter().rposition(|b| !b.is_ascii_digit());
    let (kind, digits) = name.split_at(letters.map_or(0, |at| at + 1));
    let (kind, digits) = (kind_of(kind), digits.as_bytes());
    let number = digits.iter().fold(0usize, |all, b| {
        all.saturating_mul(10).saturating_add(usize::from(b - b'0'))
    });
    let number = match digits {
        [] => 0,
        _ => number.saturating_add(1),
    };
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
        let at = match at {
            // What is asked for often is soon among the first.
            Some(at @ 1..) => {
                self.kinds.swap(at, at - 1);
                at - 1
            }
            Some(at) => at,
            None => {
                self.kinds.push(Kind {
                    name,
                    width: None,
                    list: vec![],
                });
                self.kinds.len() - 1
            }
        };
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

    /// The register of this name.
    fn named(&mut self, name: &str) -> u32 {
        let (kind, number) = parts(name);
        self.number(kind, number)
    }

    /// The register of a kind and of a number, or 0 where its name has none, plus 1.
    fn number(&mut self, kind: u128, number: usize) -> u32 {
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
        assert_eq!(all.names.of_kind("r").len(), 5);
    }
}
