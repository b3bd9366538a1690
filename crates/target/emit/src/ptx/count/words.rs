//! What a line of PTX asks of an SM, by its words: the pipe that runs it, the machine instructions that an
//! assembler makes of it, and the registers that it reads and writes.
//!
//! Machine instructions are those of sm_80 as nvdisasm shows them for such lines: moves, parameters and
//! addresses' spaces are folded into others, 64-bit integers go by halves, a division by a register is a
//! routine.
use crate::ptx::lines::{Form, Lines};
use machine::Pipe;

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
    /// A warpgroup's product, beside what follows.
    Product,
    /// The products since the last such line are a group.
    ProductCommit,
    /// Waits until so many groups of products at most are under way.
    ProductWait(u32),
    /// Nothing is moved past it.
    Fence,
}

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub(in crate::ptx) struct Word {
    /// What runs it; `None`: nothing, an assembler folds it into others.
    pub pipe: Option<Pipe>,
    /// Machine instructions.
    pub turns: u32,
    pub kind: Kind,
    /// Its line among those of the text.
    pub line: u32,
}

impl Word {
    /// Registers that it writes.
    pub fn defs<'l>(&self, lines: &'l Lines) -> &'l [u32] {
        lines.defs(&lines.lines[self.line as usize])
    }

    /// Registers that it reads.
    pub fn uses<'l>(&self, lines: &'l Lines) -> &'l [u32] {
        lines.uses(&lines.lines[self.line as usize])
    }
}

/// The lines of a text as instructions.
pub(super) struct Words<'a> {
    lines: &'a Lines,
    /// What each name says: of what an instruction does, and of what runs it, which of some depends on the form.
    names: Vec<(Kind, Option<Issued>)>,
}

/// The pipe that runs an instruction, and machine instructions.
type Issued = (Option<Pipe>, u32);

impl<'a> Words<'a> {
    pub fn of(lines: &'a Lines) -> Words<'a> {
        let name = |op: &String| {
            let plain = Form::default();
            let asks = ["mov", "div", "rem"].iter().any(|n| op.starts_with(n));
            (kind(op), (!asks).then(|| pipe(op, plain)))
        };
        Words {
            lines,
            names: lines.ops.iter().map(name).collect(),
        }
    }

    /// The instruction in line `at`.
    pub fn word(&self, at: usize) -> Word {
        let l = &self.lines.lines[at];
        let (kind, issued) = self.names[l.op as usize];
        let of_form = || pipe(self.lines.op(l), l.form);
        let (pipe, turns) = issued.unwrap_or_else(of_form);
        let kind = match (kind, l.form.number) {
            (Kind::Wait(_), Some(n)) => Kind::Wait(u32::try_from(n).unwrap_or(0)),
            (Kind::ProductWait(_), Some(n)) => Kind::ProductWait(u32::try_from(n).unwrap_or(0)),
            _ => kind,
        };
        Word {
            pipe,
            turns,
            kind,
            line: at as u32,
        }
    }
}

fn kind(op: &str) -> Kind {
    let mut parts = op.split('.');
    match (parts.next().unwrap_or(""), parts.next().unwrap_or("")) {
        ("cp", _) => match parts.next() {
            Some("commit_group") => Kind::Commit,
            Some("wait_group" | "wait_all") => Kind::Wait(0),
            _ => Kind::Copy,
        },
        ("wgmma", "mma_async") => Kind::Product,
        ("wgmma", "commit_group") => Kind::ProductCommit,
        ("wgmma", "wait_group") => Kind::ProductWait(0),
        ("wgmma", _) | ("fence", "proxy") => Kind::Fence,
        ("mbarrier" | "setmaxnreg" | "griddepcontrol", _) => Kind::Fence,
        ("ldmatrix", _) => Kind::LoadShared,
        // Another CTA's shared memory is as far as the L2.
        ("ld", "global" | "shared::cluster") => Kind::Load,
        ("ld", "shared") | ("shfl", _) => Kind::LoadShared,
        ("st", "global") | ("red", _) => Kind::Store,
        ("st", _) => Kind::StoreShared,
        // Lanes of a warp alone.
        ("bar", "warp") => Kind::Fence,
        ("bar" | "barrier", _) => Kind::Barrier,
        _ => Kind::Plain,
    }
}

fn pipe(op: &str, form: Form) -> Issued {
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
        "mov" if form.braces || form.special => (Some(Pipe::Alu), 1),
        "mov" if form.guarded => (Some(Pipe::Alu), wide),
        "mov" => (None, 0),
        "ld" if op.starts_with("ld.param") => (None, 0),
        "cp" if op.contains("group") || op.contains("wait") => (Some(Pipe::Slot), 1),
        "ld" | "st" | "red" | "shfl" | "cp" | "ldmatrix" | "mbarrier" => (Some(Pipe::Memory), 1),
        "setmaxnreg" | "griddepcontrol" => (Some(Pipe::Slot), 1),
        // One of TF32 has half the products of one of 16 bits, and half its rate.
        "mma" => (Some(Pipe::Matrix), 1),
        "wgmma" if op.contains("mma_async") => (Some(Pipe::Warpgroup), columns(op) / 8),
        "wgmma" => (Some(Pipe::Slot), 1),
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
        "div" | "rem" => match form.number {
            Some(n) if n.count_ones() == 1 => (Some(Pipe::Alu), wide),
            // A high product, a shift, and a product to take away for what remains.
            Some(_) => (Some(Pipe::Fma), 4 * wide),
            None => (Some(Pipe::Alu), 20 * wide * wide),
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

/// The columns of `wgmma.mma_async.sync.aligned.m64n128k16`.
fn columns(op: &str) -> u32 {
    let of = |part: &str| part.strip_prefix("m64n")?.split('k').next()?.parse().ok();
    op.split('.').find_map(of).unwrap_or(8)
}

fn convert(op: &str) -> (Option<Pipe>, u32) {
    let types: Vec<&str> = op.split('.').rev().take(2).collect();
    let [from, to] = types[..] else {
        return (Some(Pipe::Alu), 1);
    };
    // Of a pair it is that of one.
    let size = |t: &str| -> u32 {
        let digits = t.trim_start_matches(|c: char| !c.is_ascii_digit());
        let one = digits.split('x').next().unwrap_or("");
        one.parse().unwrap_or(32)
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
        let of = |line: &str| {
            let lines = Lines::of(line);
            let w = Words::of(&lines).word(0);
            let l = &lines.lines[0];
            let counts = (lines.defs(l).len(), lines.uses(l).len());
            (w.pipe, w.turns, w.kind, counts.0, counts.1)
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
        let pair = "\tcvt.rn.f16x2.f32 %r1, %f1, %f2;";
        assert_eq!(of(pair), (Some(Pipe::Alu), 1, Kind::Plain, 1, 2));
        assert_eq!(of("\tbar.sync 0;").2, Kind::Barrier);
        assert_eq!(of("\tcp.async.wait_group 2;").2, Kind::Wait(2));
        let product = "\twgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%f1, %f2}, %l1, %l2, %p1, 1, 1, 0, 0;";
        assert_eq!(of(product), (Some(Pipe::Warpgroup), 2, Kind::Product, 2, 3));
        let wait = "\twgmma.wait_group.sync.aligned 1;";
        assert_eq!(of(wait).2, Kind::ProductWait(1));
    }
}
