//! Which registers come of an instruction.

use crate::program::*;
use crate::sm90::Sm90;

/// The registers that come of an exchange between the lanes of a warp.
fn gathers(g: &Gather, out: &mut Vec<(Width, R)>) {
    match g {
        Gather::Shfl(_, d, p, ..) => out.extend([(Width::W32, *d), (Width::P, *p)]),
        Gather::Vote(VoteMode::Ballot, d, ..) | Gather::Redux(_, _, d, _) => {
            out.push((Width::W32, *d));
        }
        Gather::Vote(_, d, ..) => out.push((Width::P, *d)),
        Gather::Match(d, p, ..) | Gather::Elect(d, p) => {
            out.extend([(Width::W32, *d), (Width::P, *p)]);
        }
        Gather::Sync => {}
    }
}

/// The registers that come of `op`.
pub(crate) fn writes(op: &Op, out: &mut Vec<(Width, R)>) {
    let file = |f: Fmt| match f {
        Fmt::F64 => Width::W64,
        _ => Width::W32,
    };
    match op {
        Op::I1(w, _, d, _)
        | Op::I2(w, _, d, ..)
        | Op::I3(w, _, d, ..)
        | Op::Bfi(w, d, ..)
        | Op::Carry(_, _, _, w, d, ..)
        | Op::Selp(w, d, ..)
        | Op::Mov(w, d, _)
        | Op::Cvta(_, _, _, w, d, _) => out.push((*w, *d)),
        Op::Shift64(_, d, ..) | Op::Bfe64(_, d, ..) => out.push((Width::W64, *d)),
        Op::MulWide(_, w, d, ..) | Op::MadWide(_, w, d, ..) => out.push((
            match w {
                Width::W16 => Width::W32,
                _ => Width::W64,
            },
            *d,
        )),
        Op::MadCarry(_, _, _, _, d, ..) | Op::Pair16(_, d, ..) | Op::CvtPair(_, _, d, ..) => {
            out.push((Width::W32, *d));
        }
        Op::F1(f, _, _, d, _) | Op::F2(f, _, _, d, ..) | Op::Fma(f, _, d, ..) => {
            out.push((file(*f), *d));
        }
        Op::H1(_, _, _, d, _) | Op::H2(_, _, _, d, ..) | Op::HFma(_, _, d, ..) => {
            out.push((Width::W32, *d));
        }
        Op::Testp(_, _, d, _) | Op::Pred(_, d, ..) | Op::IsSpace(_, d, ..) => {
            out.push((Width::P, *d));
        }
        Op::Setp(_, _, _, p, q, ..) => out.extend([(Width::P, *p), (Width::P, *q)]),
        Op::Set(s) => out.push((Width::W32, s.d)),
        Op::Pack(p) => {
            let (pack, whole, pieces) = &**p;
            match pack {
                true => out.push(*whole),
                false => out.extend(pieces.iter().copied()),
            }
        }
        Op::ReadSpecial(s, d) => out.push((
            match s {
                Special::Clock64 | Special::GlobalTimer => Width::W64,
                _ => Width::W32,
            },
            *d,
        )),
        Op::Cvt(c) => out.push((c.d_width, c.d)),
        Op::Ld(a) => out.extend(
            a.regs[..a.lanes as usize]
                .iter()
                .map(|r| (if a.bytes == 8 { Width::W64 } else { a.width }, *r)),
        ),
        Op::Atom(a) => out.push((
            if a.ty.bytes() == 8 {
                Width::W64
            } else {
                Width::W32
            },
            a.d,
        )),
        Op::Matrix(m) if !m.0 => out.extend(m.2.iter().map(|r| (Width::W32, *r))),
        Op::Mma(m) => {
            let n = if m.d_half { 2 } else { 4 };
            out.extend(m.d[..n].iter().map(|r| (Width::W32, *r)));
        }
        Op::Warp(g) => gathers(&g.0, out),
        Op::ActiveMask(d) => out.push((Width::W32, *d)),
        Op::Bar(_, kind, ..) => match kind {
            BarKind::Popc(d, ..) => out.push((Width::W32, *d)),
            BarKind::Vote(d, ..) => out.push((Width::P, *d)),
            BarKind::Sync | BarKind::Arrive => {}
        },
        Op::Sm90(s) => asynchronous(s, out),
        Op::Matrix(_)
        | Op::St(_)
        | Op::Fence(_)
        | Op::CpAsync(_)
        | Op::CpCommit
        | Op::CpWait(_)
        | Op::Bra(..)
        | Op::Brx(_)
        | Op::Call(_)
        | Op::Return
        | Op::Exit
        | Op::Trap
        | Op::Nanosleep
        | Op::Nop
        | Op::CopyLocal(..) => {}
    }
}

/// Those of instructions of sm_90.
fn asynchronous(op: &Sm90, out: &mut Vec<(Width, R)>) {
    match op {
        Sm90::Wgmma(w) => out.extend(w.d.iter().map(|r| (Width::W32, *r))),
        Sm90::MbarrierArrive(m) => out.push((Width::W64, m.state)),
        Sm90::MbarrierWait(p, ..) => out.push((Width::P, *p)),
        Sm90::Mapa(wide, d, ..) => {
            out.push((if *wide { Width::W64 } else { Width::W32 }, *d));
        }
        Sm90::CtaRank(_, d, _) => out.push((Width::W32, *d)),
        _ => {}
    }
}
