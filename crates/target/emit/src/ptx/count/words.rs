//! What a line of PTX asks of an SM, by its words: the pipe that runs it, the machine instructions that an
//! assembler makes of it, and the registers that it reads and writes.
//!
//! Machine instructions are those of sm_80 as nvdisasm shows them for such lines: moves, parameters and
//! addresses' spaces are folded into others, 64-bit integers go by halves, a division by a register is a
//! routine.
use machine::Pipe;

/// Registers by name, and which of them each instruction reads and writes.
#[derive(Default)]
pub(super) struct Names {
    /// The bytes of what stands before a register's number, with the registers by that number, or 0 for a name
    /// without one, plus 1.
    kinds: Vec<(u128, Vec<Option<u32>>)>,
    count: u32,
    lists: Vec<u32>,
}

/// Numbers of registers that a name may have; what is beyond counts as one register.
const NUMBERS: usize = 1 << 24;

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[kind.len()..].parse().map_or(0, |n: usize| n + 1);
        // Printed names begin with less than 16 bytes.
        let bytes = kind.bytes();
        let kind = bytes.fold(1u128, |all, b| all << 8 | u128::from(b));
        let at = self.kinds.iter().position(|k| k.0 == kind);
        let at = at.unwrap_or_else(|| {
            self.kinds.push((kind, vec![]));
            self.kinds.len() - 1
        });
        let (list, number) = (&mut self.kinds[at].1, number.min(NUMBERS));
        if list.len() <= number {
            list.resize(number + 1, None);
        }
        *list[number].get_or_insert_with(|| {
            self.count += 1;
            self.count - 1
        })
    }

    /// Lists the registers in `text`.
    fn all(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find('%') {
            let tail = &rest[at + 1..];
            let end = tail
                .bytes()
                .position(|c| !c.is_ascii_alphanumeric() && c != b'_');
            let end = end.unwrap_or(tail.len());
            let number = self.number(&tail[..end]);
            self.lists.push(number);
            rest = &tail[end..];
        }
    }

    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// What `w` writes.
    pub fn defs(&self, w: &Word) -> &[u32] {
        &self.lists[w.first..w.uses]
    }

    /// What `w` reads.
    pub fn uses(&self, w: &Word) -> &[u32] {
        &self.lists[w.uses..w.end]
    }
}

/// What a line does with memory or with other warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ptx) enum Kind {
    /// Neither.
    Plain,
    /// Loads from an operand.
    Load,
    /// Stores to an operand, or changes it.
    Store,
    /// Reads shared memory, or another lane's register.
    LoadShared,
    /// Writes shared memory.
    StoreShared,
    /// Meets the CTA's other warps.
    Barrier,
    /// Copies from an operand into shared memory, beside what follows.
    Copy,
    /// The copies since the last such line are a group.
    Commit,
    /// Waits until so many groups at most are under way.
    Wait(u32),
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(in crate::ptx) struct Word {
    /// What runs it; `None`: nothing, an assembler folds it into others.
    pub pipe: Option<Pipe>,
    /// Machine instructions.
    pub turns: u32,
    pub kind: Kind,
    /// Where its registers stand in [`Names::lists`]: written ones, and from `uses` on read ones.
    first: usize,
    uses: usize,
    end: usize,
}

/// The instruction of a line that is no label, directive or jump.
pub(super) fn word(line: &str, names: &mut Names) -> Option<Word> {
    let code = line.trim().strip_suffix(';')?;
    if code.starts_with('.') {
        return None;
    }
    let mut code = code;
    let mut guard = None;
    if let Some(rest) = code.strip_prefix('@') {
        let (p, rest) = rest.split_once(' ')?;
        guard = Some(names.number(p.trim_start_matches(['!', '%'])));
        code = rest.trim_start();
    }
    let (op, args) = code.split_once(' ').unwrap_or((code, ""));
    let kind = kind(op, args);
    let gives = matches!(kind, Kind::Plain | Kind::Load | Kind::LoadShared);
    let cut = match args.trim_start().strip_prefix('{') {
        _ if !gives => 0,
        Some(inner) => inner
            .find('}')
            .map_or(args.len(), |e| e + 2)
            .min(args.len()),
        None => args.find(',').unwrap_or(args.len()),
    };
    let (to, from) = args.split_at(cut);
    let first = names.lists.len();
    names.all(to);
    let uses = names.lists.len();
    if let Some(g) = guard {
        // What it does not write stays.
        names.lists.extend_from_within(first..);
        names.lists.push(g);
    }
    names.all(from);
    let (pipe, turns) = pipe(op, args, guard.is_some());
    Some(Word {
        pipe,
        turns,
        kind,
        first,
        uses,
        end: names.lists.len(),
    })
}

fn kind(op: &str, args: &str) -> Kind {
    let mut parts = op.split('.');
    match (parts.next().unwrap_or(""), parts.next().unwrap_or("")) {
        ("cp", _) => match parts.next() {
            Some("commit_group") => Kind::Commit,
            Some("wait_group") => Kind::Wait(args.trim().parse().unwrap_or(0)),
            Some("wait_all") => Kind::Wait(0),
            _ => Kind::Copy,
        },
        ("ldmatrix", _) => Kind::LoadShared,
        ("ld", "global") => Kind::Load,
        ("ld", "shared") | ("shfl", _) => Kind::LoadShared,
        ("st", "global") | ("red", _) => Kind::Store,
        ("st", _) => Kind::StoreShared,
        ("bar" | "barrier", _) => Kind::Barrier,
        _ => Kind::Plain,
    }
}

fn pipe(op: &str, args: &str, guarded: bool) -> (Option<Pipe>, u32) {
    let mut parts = op.split('.');
    let name = parts.next().unwrap_or("");
    let last = op.rsplit('.').next().unwrap_or("");
    let wide = if matches!(last, "b64" | "u64" | "s64") {
        2
    } else {
        1
    };
    let float = match last {
        "f16" | "bf16" | "f16x2" | "bf16x2" => Some(Pipe::Half),
        "f32" => Some(Pipe::Fma),
        "f64" => Some(Pipe::Double),
        _ => None,
    };
    let approx = op.contains(".approx");
    match name {
        "cvta" => (None, 0),
        "mov" if args.contains('{') => (Some(Pipe::Alu), 1),
        "mov" if args.contains("%tid") || args.contains("%ctaid") => (Some(Pipe::Alu), 1),
        "mov" if guarded => (Some(Pipe::Alu), wide),
        "mov" => (None, 0),
        "ld" if op.starts_with("ld.param") => (None, 0),
        "cp" if op.contains("group") || op.contains("wait") => (Some(Pipe::Slot), 1),
        "ld" | "st" | "red" | "shfl" | "cp" | "ldmatrix" => (Some(Pipe::Memory), 1),
        // One of TF32 has half the products of one of 16 bits, and half its rate.
        "mma" => (Some(Pipe::Matrix), 1),
        "bar" | "barrier" | "fence" | "membar" | "bra" | "ret" | "exit" => (Some(Pipe::Slot), 1),
        // Signs are part of the operand that reads them.
        "neg" | "abs" if float.is_some() => (None, 0),
        "fma" | "add" | "sub" | "mul" if float.is_some() => (float, 1),
        "mul" if op.contains("wide") => (Some(Pipe::Fma), 1),
        "mad" if op.contains("wide") => (Some(Pipe::Fma), 1),
        "mul" if op.contains(".hi") => (Some(Pipe::Fma), 2 * wide * wide),
        "mul" if wide == 2 => (Some(Pipe::Fma), 4),
        "mul" | "mad" | "dp4a" => (Some(Pipe::Fma), 1),
        "min" | "max" if float == Some(Pipe::Double) => (Some(Pipe::Alu), 2),
        "min" | "max" => (Some(Pipe::Alu), 2 * wide - 1),
        "div" if float == Some(Pipe::Double) => (float, 16),
        "div" if float.is_some() && approx => (Some(Pipe::Special), 1),
        "div" if float.is_some() => (float, 9),
        "div" | "rem" => match args.rsplit(',').next().map(|a| a.trim().parse::<i64>()) {
            Some(Ok(n)) if n.count_ones() == 1 => (Some(Pipe::Alu), wide),
            // A high product, a shift, and a product to take away for what remains.
            Some(Ok(_)) => (Some(Pipe::Fma), 4 * wide),
            _ => (Some(Pipe::Alu), 20 * wide * wide),
        },
        "sqrt" | "rcp" if float == Some(Pipe::Double) => (float, 12),
        "sqrt" | "rcp" if !approx => (Some(Pipe::Fma), 8),
        "sqrt" | "rcp" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
            (Some(Pipe::Special), 1)
        }
        "cvt" => convert(op),
        "bfe" | "bfi" => (Some(Pipe::Alu), 2),
        "clz" | "popc" | "brev" => (Some(Pipe::Special), wide),
        "setp" if float.is_some_and(|f| f != Pipe::Fma) => (float, 1),
        _ => (Some(Pipe::Alu), wide),
    }
}

fn convert(op: &str) -> (Option<Pipe>, u32) {
    let types: Vec<&str> = op.split('.').rev().take(2).collect();
    let [from, to] = types[..] else {
        return (Some(Pipe::Alu), 1);
    };
    let size = |t: &str| -> u32 {
        t.trim_start_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .unwrap_or(32)
    };
    let float = |t: &str| t.starts_with('f') || t.starts_with("bf");
    match (float(from), float(to)) {
        // The upper half is zero.
        (false, false) if size(to) == 64 && from.starts_with('u') => (None, 0),
        (false, false) => (Some(Pipe::Alu), 1),
        (true, true) if size(from) == 64 || size(to) == 64 => (Some(Pipe::Double), 1),
        (true, true) if size(from) != size(to) => (Some(Pipe::Alu), 1),
        _ => (Some(Pipe::Special), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_ask_what_an_assembler_makes_of_them() {
        let mut names = Names::default();
        let mut of = |line: &str| {
            let w = word(line, &mut names).unwrap();
            (
                w.pipe,
                w.turns,
                w.kind,
                names.defs(&w).len(),
                names.uses(&w).len(),
            )
        };
        let fma = Some(Pipe::Fma);
        assert_eq!(
            of("\tfma.rn.f32 %f3, %f1, %f2, %f3;"),
            (fma, 1, Kind::Plain, 1, 3)
        );
        assert_eq!(
            of("\tdiv.s32 %r1, %r2, 8;"),
            (Some(Pipe::Alu), 1, Kind::Plain, 1, 1)
        );
        assert_eq!(of("\trem.s32 %r1, %r2, 7;").1, 4);
        assert_eq!(of("\tdiv.s32 %r1, %r2, %r3;").1, 20);
        assert_eq!(of("\tmov.b32 %r1, 7;"), (None, 0, Kind::Plain, 1, 0));
        // What a guarded load does not write stays.
        assert_eq!(
            of("\t@%p1 ld.global.v2.b32 {%r1, %r2}, [%l3+8];"),
            (Some(Pipe::Memory), 1, Kind::Load, 2, 4)
        );
        assert_eq!(
            of("\tst.shared.f32 [%r1+4], %f1;"),
            (Some(Pipe::Memory), 1, Kind::StoreShared, 0, 2)
        );
        assert_eq!(of("\tcvt.u64.u32 %l1, %r1;").0, None);
        assert_eq!(of("\tcvt.rn.f32.s32 %f1, %r1;").0, Some(Pipe::Special));
        assert_eq!(of("\tbar.sync 0;").2, Kind::Barrier);
        assert!(word("\t.pragma \"nounroll\";", &mut names).is_none());
    }
}
