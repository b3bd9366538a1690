//! What an instruction asks of an SM: which pipe, how many instructions an assembler makes of it, and
//! which registers come of it.

use crate::parse::ast::{Space, Ty};
use crate::program::*;
use crate::sm90::Sm90;
use crate::writes::writes;

/// What executes an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pipe {
    /// None: an assembler renames registers or folds it into others.
    Free,
    /// None but the scheduler's slot: branches, barriers, waits.
    Slot,
    Fma,
    Half,
    Double,
    Alu,
    Special,
    Memory,
    Matrix,
}

/// Pipes that each scheduler has for itself.
pub(crate) const PIPES: usize = 6;

impl Pipe {
    /// Its place among a scheduler's own pipes.
    pub fn own(self) -> Option<usize> {
        Some(match self {
            Pipe::Fma => 0,
            Pipe::Half => 1,
            Pipe::Double => 2,
            Pipe::Alu => 3,
            Pipe::Special => 4,
            Pipe::Matrix => 5,
            Pipe::Free | Pipe::Slot | Pipe::Memory => return None,
        })
    }
}

/// An instruction as an SM sees it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub pipe: Pipe,
    /// Machine instructions: slots of the scheduler, and turns of the pipe.
    pub slots: u32,
    /// Registers that it writes, by [`row`].
    pub writes: Vec<u32>,
    /// Registers that it reads.
    pub reads: Vec<u32>,
    /// Operations of a matrix instruction: multiply-adds counted twice; bits of a factor.
    pub matrix: Option<(f64, MmaTy)>,
}

/// The number of a register over all files.
pub(crate) fn row(k: &Kernel, w: Width, r: R) -> u32 {
    match w {
        Width::P => k.rows32 + k.rows64 + r,
        Width::W64 => k.rows32 + r,
        _ => r,
    }
}

/// Registers of all files.
pub(crate) fn rows(k: &Kernel) -> usize {
    (k.rows32 + k.rows64 + k.preds) as usize
}

/// Every instruction of `k`.
pub(crate) fn asks(k: &Kernel) -> Vec<Ask> {
    k.code.iter().map(|i| ask(k, i)).collect()
}

fn ask(k: &Kernel, i: &Inst) -> Ask {
    let (pipe, slots) = pipe(k, i);
    let (first, count) = i.reads;
    let reads = &k.reads[first as usize..first as usize + usize::from(count)];
    let mut own = Vec::new();
    // Sums of `wgmma` are waited for in groups, not by register.
    if !matches!(&i.op, Op::Sm90(s) if product(s).is_some()) {
        writes(&i.op, &mut own);
    }
    let fits = |(w, r): &(Width, R)| *r & CONST == 0 && (*r as usize) < count_of(k, *w);
    Ask {
        pipe,
        slots,
        writes: own
            .iter()
            .filter(|x| fits(x))
            .map(|(w, r)| row(k, *w, *r))
            .collect(),
        reads: reads.iter().map(|(w, r)| row(k, *w, *r)).collect(),
        matrix: match &i.op {
            Op::Mma(m) => Some((2.0 * 16.0 * 8.0 * f64::from(m.k), m.a_ty)),
            Op::Sm90(s) => product(s),
            _ => None,
        },
    }
}

/// A warp's part of a `wgmma`, as for 64 columns at least: with fewer, A's way from shared memory is longer.
fn product(op: &Sm90) -> Option<(f64, MmaTy)> {
    match op {
        Sm90::Wgmma(w) => {
            let flop = 2.0 * 16.0 * f64::from(w.n.max(64)) * f64::from(w.k);
            Some((flop, w.a_ty))
        }
        _ => None,
    }
}

fn count_of(k: &Kernel, w: Width) -> usize {
    match w {
        Width::P => k.preds as usize,
        Width::W64 => k.rows64 as usize,
        _ => k.rows32 as usize,
    }
}

/// Whether all lanes have the same constant in `r`, a power of two or any.
fn constant(k: &Kernel, w: Width, r: R) -> Option<u64> {
    if r & CONST == 0 || r == SINK {
        return None;
    }
    let at = (r & !CONST) as usize;
    match w {
        Width::W64 => k.const64.get(at).map(|v| v[0]),
        _ => k.const32.get(at).map(|v| u64::from(v[0])),
    }
}

fn float(f: Fmt) -> Pipe {
    match f {
        Fmt::F16 | Fmt::BF16 => Pipe::Half,
        Fmt::F32 => Pipe::Fma,
        Fmt::F64 => Pipe::Double,
    }
}

/// Machine instructions are those of sm_80 as nvdisasm shows them for such lines: 64-bit integers go by
/// halves, division by a register is a routine, exact functions add Newton steps to the approximation.
fn pipe(k: &Kernel, i: &Inst) -> (Pipe, u32) {
    let wide = |w: &Width| if *w == Width::W64 { 2 } else { 1 };
    match &i.op {
        Op::Nop | Op::Cvta(..) | Op::CopyLocal(..) | Op::Return => (Pipe::Free, 0),
        // A guarded move is a selection; others are renamed.
        Op::Mov(w, ..) if i.guard != ALWAYS => (Pipe::Alu, wide(w)),
        Op::Mov(..) => (Pipe::Free, 0),
        Op::Ld(a) if a.space == Space::Param => (Pipe::Free, 0),
        Op::I1(w, f, ..) => match f {
            I1::Not | I1::Neg | I1::Abs | I1::Cnot => (Pipe::Alu, wide(w)),
            _ => (Pipe::Special, wide(w)),
        },
        Op::I2(w, f, _, _, b) => match f {
            I2::Mul | I2::Mul24U | I2::Mul24S if *w == Width::W64 => (Pipe::Fma, 4),
            I2::Mul | I2::Mul24U | I2::Mul24S | I2::Mul24HiU | I2::Mul24HiS => (Pipe::Fma, 1),
            I2::MulHiU | I2::MulHiS => (Pipe::Fma, 2 * wide(w) * wide(w)),
            I2::DivU | I2::RemU | I2::DivS | I2::RemS => match constant(k, *w, *b) {
                Some(c) if c.is_power_of_two() => (Pipe::Alu, wide(w)),
                // A high product, a shift, and a product to take away for what remains.
                Some(_) => (Pipe::Fma, 4 * wide(w)),
                None => (Pipe::Alu, 20 * wide(w) * wide(w)),
            },
            I2::MinU | I2::MinS | I2::MaxU | I2::MaxS => (Pipe::Alu, 2 * wide(w) - 1),
            _ => (Pipe::Alu, wide(w)),
        },
        Op::Shift64(..) => (Pipe::Alu, 2),
        Op::I3(_, f, ..) => match f {
            I3::MadLo | I3::Mad24U | I3::Mad24S | I3::Dp4a(..) => (Pipe::Fma, 1),
            I3::MadHiU | I3::MadHiS | I3::MadHiSat => (Pipe::Fma, 2),
            I3::BfeU | I3::BfeS | I3::SadU | I3::SadS => (Pipe::Alu, 2),
            _ => (Pipe::Alu, 1),
        },
        Op::Bfi(..) | Op::Bfe64(..) => (Pipe::Alu, 3),
        Op::MulWide(_, w, ..) | Op::MadWide(_, w, ..) => (Pipe::Fma, 4 * wide(w) - 3),
        Op::Carry(_, _, _, w, ..) => (Pipe::Alu, wide(w)),
        Op::MadCarry(..) => (Pipe::Fma, 2),
        Op::Pair16(..) => (Pipe::Alu, 2),
        Op::F1(f, what, ..) | Op::H1(f, what, ..) => match what {
            // Signs are part of the operand that reads them.
            F1::Neg | F1::Abs => (Pipe::Free, 0),
            _ if *f == Fmt::F64 => (Pipe::Double, 12),
            _ if i.approx => (Pipe::Special, 1),
            F1::Sqrt | F1::Rcp => (Pipe::Fma, 8),
            _ => (Pipe::Special, 1),
        },
        Op::F2(f, what, ..) | Op::H2(f, what, ..) => match what {
            F2::Min | F2::Max | F2::Copysign => (Pipe::Alu, 1 + u32::from(*f == Fmt::F64)),
            F2::Div if *f == Fmt::F64 => (Pipe::Double, 16),
            F2::Div if i.approx => (Pipe::Special, 1),
            F2::Div => (Pipe::Fma, 9),
            _ => (float(*f), 1),
        },
        Op::Fma(f, ..) | Op::HFma(f, ..) => (float(*f), 1),
        Op::Setp(ty, ..) => compare(*ty),
        Op::Set(s) => compare(s.from),
        Op::Selp(w, ..) => (Pipe::Alu, wide(w)),
        Op::Testp(..) | Op::Pred(..) | Op::IsSpace(..) => (Pipe::Alu, 1),
        Op::Pack(p) => {
            // Words side by side are a pair of registers; halves are shuffled into one.
            let small = p.2.iter().filter(|(w, _)| *w == Width::W16).count() as u32;
            match small {
                0 => (Pipe::Free, 0),
                n => (Pipe::Alu, if p.0 { n.div_ceil(2) } else { n }),
            }
        }
        Op::ReadSpecial(..) => (Pipe::Alu, 1),
        Op::Cvt(c) => match (c.from.float(), c.to.float()) {
            (false, false) => match c.d_width == Width::W64 && !c.from.signed() {
                // The upper half is zero.
                true => (Pipe::Free, 0),
                false => (Pipe::Alu, 1),
            },
            (true, true) if c.from == Ty::F64 || c.to == Ty::F64 => (Pipe::Double, 1),
            (true, true) if c.from.bytes() != c.to.bytes() => (Pipe::Alu, 1),
            _ => (Pipe::Special, 1),
        },
        Op::CvtPair(..) => (Pipe::Alu, 1),
        Op::Ld(_) | Op::St(_) | Op::Atom(_) | Op::CpAsync(_) | Op::Matrix(_) => (Pipe::Memory, 1),
        Op::Fence(_) => (Pipe::Slot, 1),
        Op::CpCommit | Op::CpWait(_) => (Pipe::Slot, 1),
        Op::Mma(_) => (Pipe::Matrix, 1),
        Op::Warp(g) => match &g.0 {
            Gather::Shfl(..) | Gather::Match(..) => (Pipe::Memory, 1),
            Gather::Redux(..) => (Pipe::Alu, 2),
            _ => (Pipe::Alu, 1),
        },
        Op::ActiveMask(_) => (Pipe::Alu, 1),
        Op::Bar(..) | Op::Bra(..) | Op::Brx(_) | Op::Call(_) | Op::Exit | Op::Trap => {
            (Pipe::Slot, 1)
        }
        Op::Nanosleep | Op::Sm90(_) => (Pipe::Slot, 1),
    }
}

fn compare(ty: Ty) -> (Pipe, u32) {
    match ty {
        Ty::F64 => (Pipe::Double, 1),
        Ty::F16 | Ty::BF16 | Ty::F16x2 | Ty::BF16x2 => (Pipe::Half, 1),
        t => (Pipe::Alu, if t.bytes() == 8 { 2 } else { 1 }),
    }
}
