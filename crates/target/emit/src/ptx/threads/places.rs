//! Where elements lie: the shared arrays of a CTA, and elements' numbers that are a value and a number.
use crate::simt::ir::{Inst, LeftFactor, Op, Program, Reg, Ty, Warpgroup};
use layout::DType;

/// Bytes of an element in shared memory.
pub(super) fn size(d: DType) -> u32 {
    d.bits().max(8) / 8
}

/// First bytes of the shared arrays, and bytes of all of them.
pub(super) fn shared_arrays(p: &Program) -> Result<(Vec<u32>, u32), String> {
    let mut shared = vec![];
    let mut bytes = 0u32;
    for (a, alignment) in p.shared.iter().zip(alignments(p)) {
        let begin = bytes.checked_next_multiple_of(alignment);
        let n = bytes_of(a.dtype, a.elements);
        let end = begin.zip(n).and_then(|(at, n)| at.checked_add(n));
        bytes = end
            .and_then(|n| n.checked_next_multiple_of(16))
            .ok_or("shared memory leaves 32 bits")?;
        shared.extend(begin);
    }
    Ok((shared, bytes))
}

/// Bytes of so many elements in shared memory.
fn bytes_of(d: DType, elements: u32) -> Option<u32> {
    match d.bits() {
        4 => Some(elements.div_ceil(2)),
        _ => elements.checked_mul(size(d)),
    }
}

/// By shared array the bytes of which its first byte is a multiple: swizzles of what warpgroups read are those of
/// addresses.
fn alignments(p: &Program) -> Vec<u32> {
    fn read(body: &[Inst], out: &mut [u32]) {
        for i in body {
            if let Inst::Warpgroup(Warpgroup::Multiply { a, b, .. }) = i {
                let left = match a {
                    LeftFactor::Lines(a) => Some(a.array),
                    LeftFactor::Words(_) => None,
                };
                left.into_iter()
                    .chain([b.array])
                    .for_each(|a| out[a as usize] = 1024);
            }
            read(i.body(), out);
        }
    }
    let mut out = vec![16; p.shared.len()];
    read(&p.body, &mut out);
    out
}

/// Sums of a value and a number that are elements' numbers and nothing else: an instruction that touches memory
/// has the number in it.
pub(super) fn beyond(p: &Program) -> Vec<Option<(Reg, i64)>> {
    fn look(
        p: &Program,
        body: &[Inst],
        numbers: &mut [Option<i64>],
        sums: &mut [Option<(Reg, i64)>],
        plain: &mut [bool],
    ) {
        for i in body {
            match i {
                Inst::Let(r, Op::Const(v)) => {
                    numbers[*r as usize] = Some(*v as i64);
                }
                Inst::Let(r, Op::Binary(expr::Binary::Add, x, y))
                    if p.regs[*r as usize] == Ty::I32 =>
                {
                    sums[*r as usize] = numbers[*y as usize].map(|n| (*x, n));
                }
                _ => {}
            }
            let small = |o: &u16| p.operands[*o as usize].dtype.bits() < 8;
            let shared = |a: &u32| p.shared[*a as usize].dtype.bits() < 8;
            let nibbles = match i {
                Inst::Let(_, Op::Load { operand, .. }) | Inst::Store { operand, .. } => {
                    small(operand)
                }
                Inst::Let(_, Op::LoadShared { array, .. }) => shared(array),
                // An even number of them is whole bytes.
                Inst::LoadRun { operand, index, .. } => {
                    let sum = sums[*index as usize];
                    small(operand) && sum.is_some_and(|s| s.1 % 2 != 0)
                }
                Inst::LoadSharedRun { array, index, .. } | Inst::LoadPart { array, index, .. } => {
                    let sum = sums[*index as usize];
                    shared(array) && sum.is_some_and(|s| s.1 % 2 != 0)
                }
                _ => false,
            };
            i.reads(&mut |r, element| {
                plain[r as usize] |= !element || nibbles;
            });
            look(p, i.body(), numbers, sums, plain);
        }
    }
    let values = p.regs.len();
    let (mut sums, mut plain) = (vec![None; values], vec![false; values]);
    look(p, &p.body, &mut vec![None; values], &mut sums, &mut plain);
    for (sum, plain) in sums.iter_mut().zip(plain) {
        sum.take_if(|_| plain);
    }
    sums
}
