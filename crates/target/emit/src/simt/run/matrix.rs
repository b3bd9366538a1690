//! Copies beside what follows, and matrix instructions.
use super::super::ir::{Inst, Reg, Ty, Var};
use super::{Machine, Memory, R, StopReason, strange};
use crate::simt::arith::TF32;
use kernel::{Fragment, OperandId};
use layout::{DType, Dim};
use std::collections::VecDeque;

/// A copy under way: shared array, first element, and what is written there.
pub(super) struct Copy {
    array: u32,
    to: i64,
    values: Vec<u64>,
}

/// Copies of one thread: those that are in no group yet, and groups, the oldest first.
#[derive(Default)]
pub(super) struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

/// Lanes of a warp, lines of a block that it loads, and bits of such a line.
const WARP: usize = 32;
const LINES: usize = 8;
const LINE_BITS: u32 = 128;
/// Elements of such a line at most, and of a row or column of a fragment.
const MOST: usize = 16;
const DEEPEST: usize = 32;

/// The bits of a 16-bit float, to which `v` is rounded.
pub(super) fn half_bits(v: f32, d: DType) -> u16 {
    match d {
        DType::BF16 => half::bf16::from_f32(v).to_bits(),
        _ => half::f16::from_f32(v).to_bits(),
    }
}

/// The bits of a bf16 near `v`: `v` and [`kernel::NEAR_BF16`] of it, rounded towards zero, which no finite number leads
/// beyond the greatest.
pub(super) fn near_bf16(v: f32) -> u16 {
    // Exact.
    let sum = f64::from(v) * (1.0 + kernel::NEAR_BF16);
    let near = sum as f32;
    let bits = match f64::from(near).abs() > sum.abs() {
        true => near.to_bits() - 1,
        false => near.to_bits(),
    };
    (bits >> 16) as u16
}

pub(super) fn half_value(bits: u16, d: DType) -> f64 {
    match d {
        DType::BF16 => half::bf16::from_bits(bits).into(),
        _ => half::f16::from_bits(bits).into(),
    }
}

/// A sum, as a variable has it, and products; sums of integers wrap.
pub(super) fn added<'a>(
    f: &Fragment,
    before: u64,
    products: impl Iterator<Item = (&'a f64, &'a f64)>,
) -> u64 {
    let whole = f.acc == DType::I32;
    let before = match whole {
        true => before as i64 as f64,
        false => f64::from(f32::from_bits(before as u32)),
    };
    let sum = products.fold(before, |s, (x, y)| s + x * y);
    match whole {
        true => i64::from(sum as i64 as i32) as u64,
        false => u64::from((sum as f32).to_bits()),
    }
}

impl<M: Memory> Machine<'_, M> {
    /// A copy, its groups, or a matrix instruction.
    pub(super) fn together(&mut self, i: &Inst, active: &[usize]) -> Result<(), StopReason> {
        match i {
            Inst::Copy {
                array,
                to,
                operand,
                index,
                elements,
                guard,
            } => {
                for &l in active {
                    let asked = guard.is_none_or(|g| self.get(g, l) != 0);
                    let from = (*operand, self.int(*index, l), *elements);
                    let copy = self.copy((*array, self.int(*to, l)), from, asked, l)?;
                    self.copies[l].open.push(copy);
                }
            }
            Inst::Bulk {
                array,
                to,
                operand,
                index,
                elements,
                ..
            } => {
                // Alone, the CTA copies the others' shares as well.
                for first in self.warps(active)? {
                    let from = (*operand, self.int(*index, first), *elements);
                    let copy = self.copy((*array, self.int(*to, first)), from, true, first)?;
                    self.copies[first].open.push(copy);
                }
            }
            Inst::Box {
                array,
                to,
                tensor,
                at,
                ..
            } => {
                for first in self.warps(active)? {
                    let corner: Vec<i64> = at.iter().map(|&r| self.int(r, first)).collect();
                    let to = (*array, self.int(*to, first));
                    self.copy_box(to, (*tensor, &corner), first)?;
                }
            }
            Inst::Commit => {
                for &l in active {
                    let group = std::mem::take(&mut self.copies[l].open);
                    self.copies[l].groups.push_back(group);
                }
            }
            Inst::Wait(left) => {
                for &l in active {
                    self.wait(*left as usize, l)?;
                }
            }
            Inst::LoadMatrix {
                dst,
                array,
                index,
                transposed,
            } => self.load_matrix(*dst, (*array, *index, *transposed), active)?,
            Inst::Multiply {
                fragment,
                sums,
                a,
                b,
            } => self.multiply(fragment, *sums, (*a, *b), active)?,
            _ => {}
        }
        Ok(())
    }

    /// What a copy will write, which is not to be read meanwhile.
    fn copy(
        &mut self,
        (array, to): (u32, i64),
        (operand, from, elements): (OperandId, i64, u32),
        asked: bool,
        lane: usize,
    ) -> R<Copy> {
        let n = i64::from(elements);
        if to % n != 0 || asked && from % n != 0 {
            return Err(format!("{n} elements are copied from {from} to {to}"));
        }
        let d = self.p.shared[array as usize].dtype;
        let ty = Ty::of(d).ok_or("a copy of what no thread holds")?;
        let mut values = vec![];
        for k in 0..n {
            values.push(match asked {
                true => self.load(operand, from + k, ty)?,
                false => 0,
            });
            self.store_shared(array, to + k, lane, strange(d))?;
        }
        Ok(Copy { array, to, values })
    }

    /// Begins to copy a box of a tensor, line by line as it lies in shared memory.
    fn copy_box(
        &mut self,
        (array, to): (u32, i64),
        (tensor, corner): (u32, &[i64]),
        lane: usize,
    ) -> R<()> {
        let t = &self.p.tensors[tensor as usize];
        let d = self.p.shared[array as usize].dtype;
        let ty = Ty::of(d).ok_or("a copy of what no thread holds")?;
        if to * i64::from(d.bits()) % 1024 != 0 {
            return Err(format!(
                "a box is copied to element {to}, which 128 bytes do not begin at"
            ));
        }
        let value = |d: &Dim| -> R<i64> {
            let at = || self.p.dims.iter().position(|x| x == d);
            let own = d.known().or_else(|| self.dims.get(at()?).copied());
            own.ok_or_else(|| format!("'{d}' of a tensor is no number of the program"))
        };
        let first = value(&t.view.offset)?;
        let sizes = t.view.dims.iter().map(|d| {
            let size = (value(&d.extent)?, value(&d.stride)?);
            Ok((size, d.count, d.step))
        });
        let sizes: Vec<((i64, i64), i64, i64)> = sizes.collect::<R<_>>()?;
        let swizzle = t.swizzle;
        for n in 0..t.view.elements() {
            let (mut rest, mut from, mut inside) = (n, first, true);
            for (((extent, stride), count, step), corner) in sizes.iter().zip(corner) {
                let x = corner + rest % count * step;
                rest /= count;
                inside &= (0..*extent).contains(&x);
                from += x * stride;
            }
            let value = match inside {
                true => self.load(self.p.tensors[tensor as usize].operand, from, ty)?,
                false => 0,
            };
            let moved = n ^ (n >> swizzle.shift & ((1 << swizzle.bits) - 1) << swizzle.base);
            let to = to + moved;
            self.store_shared(array, to, lane, strange(d))?;
            self.copies[lane].open.push(Copy {
                array,
                to,
                values: vec![value],
            });
        }
        Ok(())
    }

    /// Ends the oldest groups of a thread's copies until `left` are under way.
    fn wait(&mut self, left: usize, lane: usize) -> R<()> {
        while self.copies[lane].groups.len() > left {
            for c in self.copies[lane].groups.pop_front().unwrap_or_default() {
                for (k, v) in c.values.into_iter().enumerate() {
                    self.store_shared(c.array, c.to + k as i64, lane, v)?;
                }
            }
        }
        Ok(())
    }

    /// The first lanes of the warps in `active`, all of whose lanes come by.
    fn warps(&self, active: &[usize]) -> R<Vec<usize>> {
        let whole = |w: &[usize]| {
            w.len() == WARP && w[0].is_multiple_of(WARP) && w[WARP - 1] - w[0] == WARP - 1
        };
        match active.chunks(WARP).all(whole) {
            true => Ok(active.iter().copied().step_by(WARP).collect()),
            false => Err("a matrix instruction where not all threads of a warp come by".into()),
        }
    }

    /// Elements of a line of a block of a shared array.
    pub(super) fn line_of(&self, array: u32) -> usize {
        (LINE_BITS / self.p.shared[array as usize].dtype.bits().max(8)) as usize
    }

    /// Whether a truth value holds in any lane of the warp.
    pub(super) fn any_lane(&mut self, r: Reg, x: Reg, active: &[usize]) -> R<()> {
        for first in self.warps(active)? {
            let lanes = first..first + WARP;
            let any = lanes.clone().any(|l| self.get(x, l) != 0);
            lanes.for_each(|l| self.set(r, l, u64::from(any)));
        }
        Ok(())
    }

    fn load_matrix(
        &mut self,
        dst: [Reg; 4],
        (array, index, transposed): (u32, Reg, bool),
        active: &[usize],
    ) -> R<()> {
        let d = self.p.shared[array as usize].dtype;
        let wide = self.line_of(array);
        for first in self.warps(active)? {
            for (n, r) in dst.into_iter().enumerate() {
                let mut block = [[0u32; MOST]; LINES];
                for (line, out) in block.iter_mut().enumerate() {
                    let from = first + n * LINES + line;
                    let at = self.int(index, from);
                    for (k, v) in out.iter_mut().take(wide).enumerate() {
                        // Which lanes read is of no account: none of them may race with a writer.
                        let x = self.load_shared(array, at + k as i64, from)? as u32;
                        *v = match d.bits() {
                            16 => half_bits(f32::from_bits(x), d).into(),
                            8 => x & 0xff,
                            _ => x,
                        };
                    }
                }
                for lane in 0..WARP {
                    let (line, k) = (lane / 4, lane % 4);
                    let word = match (wide, transposed) {
                        (_, true) => block[2 * k][line] | block[2 * k + 1][line] << 16,
                        (n, false) => {
                            let own = block[line][k * n / 4..].iter().take(n / 4);
                            own.rev()
                                .fold(0, |w, v| (u64::from(w) << (128 / n)) as u32 | v)
                        }
                    };
                    self.set(r, first + lane, word.into());
                }
            }
        }
        Ok(())
    }

    /// The factors' elements in a word of a lane.
    fn elements(&self, d: DType, word: u32) -> Vec<f64> {
        match d {
            DType::F32 => vec![f32::from_bits(word & TF32).into()],
            DType::I8 => word.to_le_bytes().map(|b| f64::from(b as i8)).to_vec(),
            DType::U8 => word.to_le_bytes().map(f64::from).to_vec(),
            d => [word, word >> 16].map(|h| half_value(h as u16, d)).to_vec(),
        }
    }

    fn multiply(
        &mut self,
        f: &Fragment,
        sums: [Var; 4],
        (a, b): ([Reg; 4], [Reg; 2]),
        active: &[usize],
    ) -> R<()> {
        // Elements in a word, and lanes that have a row's or column's.
        let [left_type, right_type] = f.multiplied();
        let each = 32 / left_type.bits() as usize;
        let half = 4 * each;
        for first in self.warps(active)? {
            let mut left = [[0f64; DEEPEST]; 16];
            let mut right = [[0f64; DEEPEST]; LINES];
            for lane in 0..WARP {
                let (g, p) = (lane / 4, lane % 4 * each);
                for (n, r) in a.into_iter().enumerate() {
                    let at = (g + n % 2 * 8, p + n / 2 * half);
                    let word = self.get(r, first + lane) as u32;
                    for (k, v) in self.elements(left_type, word).into_iter().enumerate() {
                        left[at.0][at.1 + k] = v;
                    }
                }
                for (n, r) in b.into_iter().enumerate() {
                    let word = self.get(r, first + lane) as u32;
                    for (k, v) in self.elements(right_type, word).into_iter().enumerate() {
                        right[g][p + n * half + k] = v;
                    }
                }
            }
            for lane in 0..WARP {
                let (g, p) = (lane / 4, lane % 4 * 2);
                for (n, v) in sums.into_iter().enumerate() {
                    let (row, column) = (g + n / 2 * 8, p + n % 2);
                    let at = v as usize * self.lanes + first + lane;
                    let products = left[row].iter().zip(&right[column]).take(f.k as usize);
                    self.vars[at] = added(f, self.vars[at], products);
                }
            }
        }
        Ok(())
    }
}
