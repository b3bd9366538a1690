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
mod alive;
mod banks;
mod division;
mod line;
mod loops;
mod order;

use super::lines::{self, Lines, defines_none};
use alive::{SLOW, SLOW_TRUTHS, alive, pressure};
use banks::banked;
use division::{Divided, Divisor};
use layout::Arrange;
use line::{Kind, Line, Parsed, PredicateSource, Rematerialised};
use loops::{compared_again, compared_early, folded, read_once, settled};
use order::{ahead, guarded, lean, remade};

/// Pointers that are parameters, in kernels in threads.
const POINTERS: &str = "l_";

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
            held: arch.starts_with("sm_90"),
            shared: arch == "sm_75",
        }
    }
}

/// What matters of an instruction by its name.
fn kind_of(op: &str) -> Kind {
    let (name, rest) = op.split_once('.').unwrap_or((op, ""));
    match name {
        "st" | "red" => Kind::Store,
        "mbarrier" | "setmaxnreg" | "griddepcontrol" => Kind::Fence,
        _ if defines_none(op) => Kind::Fence,
        "ld" if rest.starts_with("param") => Kind::Other,
        "ld" | "ex2" | "lg2" | "rsqrt" | "tanh" | "sin" | "cos" => Kind::Load,
        "div" | "sqrt" | "rcp" if rest.starts_with("rn") => Kind::Slow,
        _ => Kind::Other,
    }
}

/// Leaves of `out` what the machine code has: `numbers` are written into instructions, `factors` and `pointers`
/// read into registers.
fn as_assembled(
    out: &mut Parsed,
    numbers: &[u32],
    factors: &[u32],
    mut pointers: Vec<u32>,
    addresses: Addresses,
) {
    folded(out, numbers, factors, &pointers, addresses.shared);
    settled(out);
    compared_again(out);
    compared_early(out);
    settled(out);
    read_once(out, factors, Kind::Other);
    if addresses.held {
        pointers.iter().for_each(|&r| out.width[r as usize] = 2);
        let whole = |l: &&mut Line| l.defs.iter().any(|d| pointers.contains(d));
        let reads = out.lines.iter_mut().filter(whole);
        reads.for_each(|l| *l = Line::default());
        pointers.arrange();
        read_once(out, &pointers, Kind::Read);
    }
}

/// How the truth value comes about that an instruction of this name defines.
fn predicate_of(op: &str) -> PredicateSource {
    match op {
        "and.pred" | "or.pred" => PredicateSource::Joined,
        // Numbers of 64 bits are compared half by half.
        _ if op.starts_with("setp.") && !op.ends_with("64") => PredicateSource::Compared,
        _ => PredicateSource::Otherwise,
    }
}

/// How what an instruction makes of its operands can be had a second time, `special` being the number of the thread.
fn rematerialised(op: &str, special: bool) -> Rematerialised {
    let number = ["add.s32", "add.u32", "sub.s32", "mul.lo.s32", "shl.b32"];
    match op {
        "mov.u32" if special => Rematerialised::Special,
        _ if number.contains(&op) => Rematerialised::Number,
        _ => Rematerialised::No,
    }
}

/// The register of the factor `by`.
fn factor(by: u32, factors: &mut Vec<(u32, u32)>, out: &mut Parsed) -> u32 {
    let at = factors.iter().position(|f| f.0 == by).unwrap_or_else(|| {
        factors.push((by, out.fresh(1)));
        factors.len() - 1
    });
    factors[at].1
}

/// What is put into the registers of a text.
struct Contents {
    /// By register: a constant or a parameter, and something else.
    fixed: Vec<bool>,
    computed: Vec<bool>,
    /// Those that numbers of the text are put into.
    numbers: Vec<u32>,
}

impl Contents {
    fn new(registers: usize) -> Contents {
        Contents {
            fixed: vec![false; registers],
            computed: vec![false; registers],
            numbers: vec![],
        }
    }

    fn fixed(&self, r: u32) -> bool {
        self.fixed[r as usize]
    }

    fn add(&mut self, defs: &[u32], free: bool) {
        let list = match free {
            true => &mut self.fixed,
            false => &mut self.computed,
        };
        defs.iter().for_each(|d| list[*d as usize] = true);
    }

    /// Names that only constants and parameters are put into take no register; gives those of them that are numbers.
    fn without_register(mut self, width: &mut [u32]) -> Vec<u32> {
        // A variable that begins with a constant is one all the same.
        let fixed = self.fixed.iter().zip(&self.computed);
        for (w, _) in width.iter_mut().zip(fixed).filter(|(_, r)| *r.0 && !*r.1) {
            *w = 0;
        }
        self.numbers.retain(|n| !self.computed[*n as usize]);
        self.numbers
    }
}

/// What an instruction's name says of it.
struct Name<'a> {
    op: &'a str,
    kind: Kind,
    defines_none: bool,
    ends: bool,
    moves: bool,
    divides: bool,
    multiplies_wide: bool,
    truth: PredicateSource,
}

impl Name<'_> {
    fn of(op: &str) -> Name<'_> {
        Name {
            op,
            kind: kind_of(op),
            defines_none: defines_none(op),
            ends: op.starts_with("bra") || op.starts_with("ret"),
            moves: op.starts_with("mov"),
            divides: matches!(op, "div.s32" | "div.u32" | "rem.s32" | "rem.u32"),
            multiplies_wide: op.starts_with("mul.wide"),
            truth: predicate_of(op),
        }
    }

    /// Whether what `line` takes, from the constant bank or, with no `operands`, as a number, has no register.
    fn free(&self, line: &Line, operands: &[u32], known: &Contents) -> bool {
        self.op.starts_with("ld.param")
            || (self.op == "cvt.u32.u64" && line.uses.iter().all(|u| known.fixed(*u)))
            || self.op.starts_with("cvta")
            || (self.moves && operands.is_empty() && !line.partial)
    }
}

/// The lines of a text as registers are counted.
fn parse(text: &Lines, addresses: Addresses) -> Parsed {
    let names: Vec<Name> = text.ops.iter().map(|op| Name::of(op)).collect();
    let width = &text.names.width;
    let mut out = Parsed {
        lines: Vec::with_capacity(text.lines.len()),
        labels: vec![None; text.labels.len()],
        width: width.iter().map(|w| w.unwrap_or(0)).collect(),
        truth: width.iter().map(|w| u32::from(*w == Some(0))).collect(),
    };
    let mut known = Contents::new(width.len());
    let mut divided: Option<Divided> = None;
    // Sizes of elements that numbers of them are multiplied by, and a register for each: also for 1, as an
    // address is made by the same instruction then.
    let mut factors: Vec<(u32, u32)> = vec![];
    let mut labels = labels_in_order(text).peekable();
    for (i, own) in text.lines.iter().enumerate() {
        while let Some((label, _)) = labels.next_if(|l| l.1 == i) {
            out.labels[label] = Some(out.lines.len());
            divided = None;
        }
        let name = &names[own.op as usize];
        let mut line = begun(text, own, name);
        if !name.defines_none {
            if divided.as_ref().is_some_and(|d| d.reads(&line.defs)) {
                divided = None;
            }
            if let (true, false, Some((of, by))) =
                (name.divides, own.form.guarded, operands(own, &line))
            {
                known.add(&line.defs, false);
                Divided::divide(&mut divided, (name.op, &line.defs), of, by, &mut out);
                continue;
            }
            if let (false, true, Some(by @ 1..)) =
                (addresses.held, name.multiplies_wide, own.form.number)
                && let Ok(by) = u32::try_from(by)
            {
                line.uses.push(factor(by, &mut factors, &mut out));
            }
            let free = name.free(&line, text.operands(own), &known);
            if free && name.moves {
                known.numbers.extend(&line.defs);
            }
            known.add(&line.defs, free);
        }
        out.lines.push(line);
    }
    labels.for_each(|(label, _)| out.labels[label] = Some(out.lines.len()));
    let pointers = text.names.of_kind(POINTERS);
    let factors: Vec<u32> = factors.iter().map(|f| f.1).collect();
    let numbers = known.without_register(&mut out.width);
    as_assembled(&mut out, &numbers, &factors, pointers, addresses);
    out
}

/// Labels that stand somewhere, with the lines that they stand before, in the order of these.
fn labels_in_order(text: &Lines) -> impl Iterator<Item = (usize, usize)> + use<> {
    let all = text.labels.iter().enumerate();
    let mut all: Vec<(usize, usize)> = all.filter_map(|(l, at)| Some((l, (*at)?))).collect();
    all.arrange_by_key(|l| l.1);
    all.into_iter()
}

/// `own` with its registers and what its name says of it.
fn begun(text: &Lines, own: &lines::Line, name: &Name) -> Line {
    let width = &text.names.width;
    let declared = |r: &u32| width[*r as usize].is_some();
    let guard = text.guard(own);
    let uses = guard.iter().chain(text.operands(own)).copied();
    Line {
        defs: text.defs(own).iter().copied().filter(declared).collect(),
        uses: uses.filter(declared).collect(),
        partial: own.form.guarded || name.op.starts_with("wgmma.mma"),
        jump: own.label,
        ends: name.ends && !own.form.guarded,
        kind: name.kind,
        rematerialised: rematerialised(name.op, own.form.special),
        copy: name.moves && !own.form.braces && !name.defines_none,
        truth: name.truth,
    }
}

/// What a division is of, and by.
fn operands<'l>(own: &lines::Line, line: &'l Line) -> Option<(&'l [u32], Divisor)> {
    if let Some(by) = own.form.number {
        return Some((&line.uses, Divisor::Number(by)));
    }
    let (by, of) = line.uses.split_last()?;
    Some((of, Divisor::Register(*by)))
}

/// Registers per thread that an assembler is expected to take for `text`, which allows `most`.
pub(super) fn estimate(text: &Lines, most: u32) -> u32 {
    let p = parse(text, Addresses::default());
    (pressure(&p, &p.width, SLOW).saturating_mul(AHEAD) / 100).min(most)
}

/// What ptxas takes for each register that is alive at once, in percent: over the GEMM, convolution
/// and attention that tests assemble it loads that far ahead of use (fitted).
const AHEAD: u32 = 128;

/// Registers of a thread of a kernel without tensor cores.
pub(super) struct Held {
    /// That an assembler is expected to take.
    pub estimate: u32,
    /// That it takes if all loads are as far ahead of use as they can be.
    ahead: u32,
}

/// As [`estimate`] for kernels without tensor cores on `arch`, whose loads the assembler moves ahead of
/// use. Where registers are short it is thrifty: an order that keeps little alive, and values made
/// again rather than kept. Below [`PLENTY`] it keeps what it likes.
pub(super) fn estimate_threads(text: &Lines, arch: &str, most: u32) -> Held {
    // An address is a product of two numbers and a pointer, of which one may come from the constant
    // bank: up to sm_80 that is the pointer, and the factor takes a register. The later ones write the factor
    // into the instruction, which leaves the pointer a pair of registers.
    let p = parse(text, Addresses::of(arch));
    let calm = guarded(&p);
    let most_alive = |p: &Parsed| pressure(p, &p.width, SLOW);
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
    let (few, live) = lean(remade(calm.clone(), Rematerialised::Special), TRUTHS);
    let packed = match live.most(&few, &few.truth, SLOW_TRUTHS) {
        0..=TRUTHS => 0,
        _ => PACKED,
    };
    let least = live.most(&few, &few.width, SLOW);
    let again = ahead(guarded(&remade(p, Rematerialised::Number)));
    let again_most = most_alive(&again);
    let short = packed + taken(SHORT_OF, least, again_most);
    let ahead_of_use = packed + taken(SHORT_OF, again_most, again_most) + ON_TOP;
    let held = |estimate: u32| Held {
        estimate: estimate.min(most),
        ahead: ahead_of_use,
    };
    if short >= PLENTY {
        return held(short);
    }
    let calm_most = most_alive(&calm);
    let ahead = ahead(calm);
    let live = alive(&ahead);
    let pairs: Vec<u32> = ahead.width.iter().map(|&w| u32::from(w == 2)).collect();
    let between = live.most(&ahead, &pairs, 0).min(BETWEEN);
    let ahead_most = live.most(&ahead, &ahead.width, SLOW);
    let freely = taken(FREELY, calm_most, ahead_most) + OWN + between;
    let freely = packed + freely.max(banked(&ahead, &live) + ON_TOP);
    held(short.max(freely.min(PLENTY)))
}

/// Registers per thread that a kernel is given whose estimate is `estimate`: what an assembler takes is
/// then at most so much more than was counted on that this is 15% less. Below [`PLENTY`] they limit
/// nothing; and an assembler that is asked for fewer than 24 takes 24.
pub(super) fn given(estimate: u32, most: u32) -> u32 {
    (estimate.saturating_mul(100) / 85).max(PLENTY).min(most)
}

impl Held {
    /// As [`given`] for what an assembler may take with all loads ahead of use: one that lacks a few registers for that
    /// has the loads so all the same, and spills what is needed behind the loop.
    pub(super) fn given(&self, most: u32) -> u32 {
        given(self.estimate, most).max(self.ahead.min(most))
    }
}

/// Registers of a thread with which all threads that a multiprocessor can have find room.
const PLENTY: u32 = 32;
/// What ptxas takes, in percent: for each register that is alive at once, and for each more when loads
/// are ahead of use as far as they can be. Of two planes the one for registers that are short was laid so that
/// of kernels of six programs on three architectures none took 15% less: what ptxas takes beyond it is kept
/// from it by [`given`]. Since what does not change in a loop stands before it in
/// the text, of which ptxas makes some again in the loop, two of forty take 15 to 19% less.
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

#[cfg(test)]
mod tests;
