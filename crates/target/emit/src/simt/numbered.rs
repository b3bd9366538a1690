//! A program's instructions with other numbers, for one that goes on where another ends.
use super::ir::{Inst, LeftFactor, Lines, Op, Program, Reg, Var, Warpgroup};
use kernel::OperandId;

/// What numbers become.
struct Numbers {
    regs: Reg,
    vars: Var,
    operands: OperandId,
    faults: u32,
    /// Shared arrays below this number are the other program's, too; others are so many further on.
    common: u32,
    arrays: u32,
    dims: Vec<u32>,
}

/// Numbers everything in `q` behind what `p` has, but its first `common` shared arrays, which are those of `p`, and
/// dimensions, which are found in `p` or added to it.
pub(super) fn numbered(q: &mut Program, p: &mut Program, common: u32) {
    let mut dims = vec![];
    for d in &q.dims {
        let at = p.dims.iter().position(|x| x == d).unwrap_or(p.dims.len());
        if at == p.dims.len() {
            p.dims.push(d.clone());
        }
        dims.push(at as u32);
    }
    let n = Numbers {
        regs: p.regs.len() as Reg,
        vars: p.vars.len() as Var,
        operands: p.operands.len() as OperandId,
        faults: p.faults.len() as u32,
        common,
        arrays: p.shared.len() as u32 - common,
        dims,
    };
    n.body(&mut q.body);
}

impl Numbers {
    fn reg(&self, r: &mut Reg) {
        *r += self.regs;
    }

    fn all<'r>(&self, list: impl IntoIterator<Item = &'r mut Reg>) {
        list.into_iter().for_each(|r| self.reg(r));
    }

    fn array(&self, a: &mut u32) {
        if *a >= self.common {
            *a += self.arrays;
        }
    }

    fn body(&self, body: &mut [Inst]) {
        body.iter_mut().for_each(|i| self.inst(i));
    }

    fn op(&self, op: &mut Op) {
        match op {
            Op::Const(_) | Op::Thread | Op::Task => {}
            Op::Dim(d) => *d = self.dims[*d as usize],
            Op::Get(v) => *v += self.vars,
            Op::Unary(_, x)
            | Op::Power(x)
            | Op::Convert(x)
            | Op::Bits(x)
            | Op::Narrow(_, x)
            | Op::AnyLane(x)
            | Op::Half(x, _)
            | Op::Shuffle(x, _) => self.reg(x),
            Op::Binary(_, x, y)
            | Op::Compare(_, x, y)
            | Op::Pack(_, x, y)
            | Op::PackNear(x, y)
            | Op::Halves(_, x, y) => self.all([x, y]),
            Op::Select(x, y, z) | Op::MulAdd(x, y, z) => self.all([x, y, z]),
            Op::Load {
                operand,
                index,
                guard,
            } => {
                *operand += self.operands;
                self.all([index].into_iter().chain(guard));
            }
            Op::LoadShared { array, index } => {
                self.array(array);
                self.reg(index);
            }
        }
    }

    fn lines(&self, l: &mut Lines) {
        self.array(&mut l.array);
        self.reg(&mut l.index);
    }

    fn warpgroup(&self, w: &mut Warpgroup) {
        if let Warpgroup::Multiply { sums, a, b, .. } = w {
            sums.iter_mut().for_each(|v| *v += self.vars);
            match a {
                LeftFactor::Lines(a) => self.lines(a),
                LeftFactor::Words(a) => self.all(a),
            }
            self.lines(b);
        }
    }

    /// What goes between memories.
    fn copied(&self, i: &mut Inst) {
        match i {
            Inst::Copy {
                array,
                to,
                operand,
                index,
                guard,
                ..
            } => {
                self.array(array);
                *operand += self.operands;
                self.all([to, index].into_iter().chain(guard));
            }
            Inst::Bulk {
                array,
                to,
                operand,
                index,
                ..
            } => {
                self.array(array);
                *operand += self.operands;
                self.all([to, index]);
            }
            Inst::Box {
                array,
                to,
                operand,
                at,
                ..
            } => {
                self.array(array);
                *operand += self.operands;
                self.all(at.iter_mut().chain([to]));
            }
            _ => {}
        }
    }

    fn memory(&self, i: &mut Inst) {
        match i {
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => {
                *operand += self.operands;
                self.all(dst.iter_mut().chain([index]).chain(guard));
            }
            Inst::LoadSharedRun { dst, array, index } => {
                self.array(array);
                self.all(dst.iter_mut().chain([index]));
            }
            Inst::LoadPart {
                dst,
                array,
                rank,
                index,
                guard,
            } => {
                self.array(array);
                self.all(dst.iter_mut().chain([rank, index]).chain(guard));
            }
            Inst::Store {
                operand,
                index,
                values,
                guard,
            } => {
                *operand += self.operands;
                self.all(values.iter_mut().chain([index]).chain(guard));
            }
            Inst::StoreShared {
                array,
                index,
                values,
            } => {
                self.array(array);
                self.all(values.iter_mut().chain([index]));
            }
            Inst::LoadMatrix {
                dst, array, index, ..
            } => {
                self.array(array);
                self.all(dst.iter_mut().chain([index]));
            }
            i => self.copied(i),
        }
    }

    fn inst(&self, i: &mut Inst) {
        match i {
            Inst::Let(r, op) => {
                self.reg(r);
                self.op(op);
            }
            Inst::Set(v, r) => {
                *v += self.vars;
                self.reg(r);
            }
            Inst::For {
                i, from, to, step, ..
            } => self.all([i, from, to, step]),
            Inst::If { cond, .. } => self.reg(cond),
            Inst::Fault { cond, code } => {
                self.reg(cond);
                *code += self.faults;
            }
            Inst::Multiply { sums, a, b, .. } => {
                sums.iter_mut().for_each(|v| *v += self.vars);
                self.all(a.iter_mut().chain(b));
            }
            Inst::Warpgroup(w) => self.warpgroup(w),
            Inst::Pipeline { pipeline, .. } => {
                self.array(&mut pipeline.barriers);
                self.all([&mut pipeline.pieces].into_iter().chain(&mut pipeline.walk));
            }
            Inst::Side { piece, stage, .. } => self.all([piece, stage]),
            Inst::Commit
            | Inst::Wait(_)
            | Inst::Barrier
            | Inst::ClusterArrive
            | Inst::ClusterWait
            | Inst::DependencyWait
            | Inst::LaunchDependents
            | Inst::Freed => {}
            _ => self.memory(i),
        }
        if let Some(body) = i.body_mut() {
            self.body(body);
        }
    }
}
