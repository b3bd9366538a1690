//! Operands: addresses, bounds, gathered parts.
use super::state::{At, Lower, Result, Run};
use crate::simt::ir::{Inst, Op, Reg, Ty};
use expr::{Binary, Compare};
use kernel::{Access, OperandId};
use layout::DType;

/// Where an element is, whether it is inside its bounds, and whether it can be touched at all.
pub(super) struct Place {
    pub index: Reg,
    pub inside: Option<Reg>,
    pub exists: Option<Reg>,
}

impl Lower<'_> {
    /// Where the element of operand `o` at `at` is.
    pub fn place(&mut self, o: OperandId, at: &At) -> Result<Place> {
        let kernel = self.kernel;
        let operand = &kernel.operands[o as usize];
        let a = &operand.access;
        let mut exists = None;
        for &x in &self.depends[o as usize] {
            exists = self.b.both(exists, at.valid[x as usize]);
        }
        let inside = self.inside(a, at);
        let offset = self.b.dim(&a.offset, Ty::I32);
        let mut terms = vec![];
        for t in &a.terms {
            let mut rank = at.coord[t.axis as usize];
            for (i, l) in t.leaves.iter().enumerate().rev() {
                let stride = self.b.dim(&l.stride, Ty::I32);
                let mut part = rank;
                // The outermost part is what is left.
                if i > 0 {
                    let extent = self.b.dim(&l.extent, Ty::I32);
                    part = self.b.rem(rank, extent);
                    rank = self.b.div(rank, extent);
                }
                terms.push((part, stride));
            }
        }
        if let Some(kept) = &self.kept[o as usize] {
            // Elements are counted from those of the cluster's first position on.
            let first = kept.first;
            let first = first.map_or(offset, |f| self.b.sub(offset, f));
            let index = self.b.linear(first, &terms);
            return Ok(Place {
                index,
                inside,
                exists,
            });
        }
        let mut index = self.b.linear(offset, &terms);
        for i in &a.indexed {
            let name = self.kernel.operands[i.by as usize].name.clone();
            let raw = self.load_guarded(i.by, at, inside)?;
            let ty = self.b.ty(raw);
            let extent = self.b.dim(&i.extent, ty);
            let zero = self.b.constant(0, ty);
            let low = self.b.sub(zero, extent);
            // Below 0 it counts from the end; an unsigned number is never below 0.
            let mut fine = self.b.compare(Compare::Lt, raw, extent);
            let mut found = raw;
            if ty != Ty::U32 {
                let above = self.b.compare(Compare::Ge, raw, low);
                fine = self.b.binary(Binary::And, fine, above);
                let negative = self.b.compare(Compare::Lt, raw, zero);
                let turned = self.b.add(raw, extent);
                found = self.b.select(negative, turned, raw);
            }
            let wrong = self.b.op(Ty::Bool, Op::Unary(expr::Unary::Not, fine));
            let asked = self.b.both(exists, inside);
            let wrong = match asked {
                Some(a) => self.b.binary(Binary::And, wrong, a),
                None => wrong,
            };
            let what = format!(
                "operand '{}' is indexed by '{name}' outside its extent",
                operand.name
            );
            let code = match self.faults.iter().position(|f| *f == what) {
                Some(c) => c,
                None => {
                    self.faults.push(what);
                    self.faults.len() - 1
                }
            };
            self.b.push(Inst::Fault {
                cond: wrong,
                code: code as u32,
            });
            exists = self.b.both(exists, Some(fine));
            let found = match ty {
                Ty::I32 => found,
                _ => self.b.op(Ty::I32, Op::Convert(found)),
            };
            let stride = self.b.dim(&i.stride, Ty::I32);
            let part = self.b.mul(found, stride);
            index = self.b.add(index, part);
        }
        Ok(Place {
            index,
            inside,
            exists,
        })
    }

    /// Whether a position is inside the bounds of an access, where that is not certain.
    fn inside(&mut self, a: &Access, at: &At) -> Option<Reg> {
        let mut inside = None;
        for bound in &a.bounds {
            let base = self.b.dim(&bound.base, Ty::I32);
            let mut terms = vec![];
            for (axis, by) in &bound.terms {
                terms.push((at.coord[*axis as usize], self.b.dim(by, Ty::I32)));
            }
            let sum = self.b.linear(base, &terms);
            if self.b.number(sum).is_none() {
                // As a natural number, what is below 0 is beyond every end.
                let sum = self.b.op(Ty::U32, Op::Bits(sum));
                let end = self.b.dim(&bound.extent, Ty::I32);
                let end = match self.b.number(end) {
                    Some(n) => self.b.constant(n, Ty::U32),
                    None => self.b.op(Ty::U32, Op::Bits(end)),
                };
                let fine = self.b.compare(Compare::Lt, sum, end);
                inside = self.b.both(inside, Some(fine));
                continue;
            }
            let zero = self.b.int(0);
            let end = self.b.dim(&bound.extent, Ty::I32);
            let low = self.b.compare(Compare::Ge, sum, zero);
            let high = self.b.compare(Compare::Lt, sum, end);
            inside = self.b.both(inside, Some(low));
            inside = self.b.both(inside, Some(high));
        }
        inside
    }

    /// Whether neighbours of `run` lie together in operand `o`, all of them inside or outside.
    fn together(&self, o: OperandId, run: &Run) -> bool {
        let operand = &self.kernel.operands[o as usize];
        let extent = &self.kernel.axes[run.axis as usize].extent;
        let tile = self.axis(run.axis).bound.unwrap_or(1);
        let of = u32::try_from(run.of).unwrap_or(1);
        i64::from(operand.dtype.bits()) * run.of <= 128
            && operand.access.indexed.is_empty()
            && operand.access.run(run.axis, extent, tile, of) == of
    }

    /// [`Lower::together`] of those of a position's neighbours that are read at once.
    pub fn read_together(&mut self, o: OperandId, at: &At) -> Option<Run> {
        self.longest_part(at, |l, run| l.together(o, run))
    }

    /// [`Lower::together`] of those of a position's neighbours that are written at once: bytes, since threads share
    /// those of less.
    pub fn stored_together(&mut self, o: OperandId, at: &At) -> Option<Run> {
        let bytes = self.kernel.operands[o as usize].dtype.bits() >= 8;
        self.longest_part(at, |l, run| bytes && run.innermost && l.together(o, run))
    }

    /// The longest part of a position's neighbours, a power of two of them from a multiple of their number on, that
    /// `fits`.
    pub fn longest_part(&mut self, at: &At, fits: impl Fn(&Self, &Run) -> bool) -> Option<Run> {
        at.runs.iter().find_map(|run| {
            // Parts of those of which some may not exist would need to know which.
            let least = match self.whole(run.axis, run.of) {
                true => 2,
                false => run.of,
            };
            let mut of = run.of;
            while of >= least {
                let part = Run { of, ..*run };
                if fits(self, &part) {
                    return Some(self.part(run, of));
                }
                of /= 2;
            }
            None
        })
    }

    /// `of` of the neighbours of `run`, the one at hand among them.
    fn part(&mut self, run: &Run, of: i64) -> Run {
        let before = self.b.int(run.number / of * of);
        Run {
            number: run.number % of,
            of,
            first: (self.b.add(run.first.0, before), run.first.1),
            ..*run
        }
    }

    /// The position of the first of the neighbours that `at` is one of.
    pub fn first_of(&self, at: &At, run: &Run) -> At {
        let mut first = at.clone();
        let i = run.axis as usize;
        (first.coord[i], first.valid[i]) = run.first;
        first
    }

    /// The element of operand `o` at `at`: the access' value outside its bounds.
    pub fn load(&mut self, o: OperandId, at: &At) -> Result<Reg> {
        let Some(run) = self.read_together(o, at) else {
            return self.load_guarded(o, at, None);
        };
        let first = self.first_of(at, &run);
        let p = self.place(o, &first)?;
        let guard = self.guard(&p);
        let operand = &self.kernel.operands[o as usize];
        let (dtype, outside) = (operand.dtype, operand.access.outside);
        let ty = Ty::of(dtype).unwrap_or(Ty::F32);
        let of = self.part_of(o, at);
        let all = self
            .b
            .load_run((o, p.index, guard), of, ty, run.of as usize);
        let v = all[run.number as usize];
        Ok(match p.inside {
            Some(inside) if outside != 0.0 => {
                let other = self.literal(outside, dtype);
                self.b.select(inside, v, other)
            }
            _ => v,
        })
    }

    /// Whether what lies at `p` may be touched, where that is not certain.
    pub fn guard(&mut self, p: &Place) -> Option<Reg> {
        let guard = self.b.both(p.exists, p.inside);
        guard.filter(|&g| self.b.number(g) != Some(1))
    }

    fn load_guarded(&mut self, o: OperandId, at: &At, also: Option<Reg>) -> Result<Reg> {
        let p = self.place(o, at)?;
        let operand = &self.kernel.operands[o as usize];
        let (dtype, outside) = (operand.dtype, operand.access.outside);
        let Some(ty) = Ty::of(dtype) else {
            return self.fail(
                "element type",
                format!("operands of {dtype} have no form here"),
            );
        };
        let guard = self.b.both(p.exists, p.inside);
        let guard = self
            .b
            .both(guard, also)
            .filter(|&g| self.b.number(g) != Some(1));
        if let Some(of) = self.part_of(o, at) {
            return Ok(self.b.load_run((o, p.index, guard), Some(of), ty, 1)[0]);
        }
        let v = self.b.op(
            ty,
            Op::Load {
                operand: o,
                index: p.index,
                guard,
            },
        );
        match p.inside {
            Some(inside) if outside != 0.0 => {
                let other = self.literal(outside, dtype);
                Ok(self.b.select(inside, v, other))
            }
            _ => Ok(v),
        }
    }

    /// Where the part of `at` is that a CTA of the cluster keeps of operand `o`: its array, and the CTA's number.
    fn part_of(&self, o: OperandId, at: &At) -> Option<(u32, Reg)> {
        let kept = self.kept[o as usize].as_ref()?;
        Some((kept.array, at.coord[kept.part as usize]))
    }

    /// A constant of type `d`.
    pub fn literal(&mut self, v: f64, d: DType) -> Reg {
        let ty = Ty::of(d).unwrap_or(Ty::F32);
        match expr::Scalar::Float(v).cast(DType::F64, d) {
            expr::Scalar::Float(x) => self.b.float(x, ty),
            expr::Scalar::Int(x) => self.b.constant(x, ty),
        }
    }

    /// Writes `value` to operand `o` at `at`, if `also` holds.
    pub fn write(&mut self, o: OperandId, at: &At, value: Reg, also: Option<Reg>) -> Result<()> {
        self.write_run(o, at, vec![value], also)
    }

    /// Writes neighbours to operand `o` from `at` on, if `also` holds.
    pub fn write_run(
        &mut self,
        o: OperandId,
        at: &At,
        values: Vec<Reg>,
        also: Option<Reg>,
    ) -> Result<()> {
        let p = self.place(o, at)?;
        let guard = self.b.both(p.exists, p.inside);
        let guard = self
            .b
            .both(guard, also)
            .filter(|&g| self.b.number(g) != Some(1));
        if let Some(array) = self.kept[o as usize].as_ref().map(|k| k.array) {
            return self.guarded(guard, |l| {
                l.b.push(Inst::StoreShared {
                    array,
                    index: p.index,
                    values,
                });
                Ok(())
            });
        }
        self.b.push(Inst::Store {
            operand: o,
            index: p.index,
            values,
            guard,
        });
        Ok(())
    }
}
