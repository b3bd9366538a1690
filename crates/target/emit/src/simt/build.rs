//! Writes a body: folds constants, and names each value once.
use super::ir::{Inst, Op, Reg, Ty, Var};
use expr::{Binary, Compare};
use foldhash::fast::FixedState;
use layout::Dim;
use std::collections::HashMap;

/// What a value is made of.
type Key = (Ty, Op);

/// Instructions of a block.
#[derive(Default)]
struct Block {
    insts: Vec<Inst>,
    /// What was computed in it, and is not known beyond it.
    own: Vec<Key>,
}

/// A body under construction.
#[derive(Default)]
pub(crate) struct Build {
    pub regs: Vec<Ty>,
    pub vars: Vec<Ty>,
    pub dims: Vec<Dim>,
    /// Value of integer constants.
    numbers: Vec<Option<i64>>,
    blocks: Vec<Block>,
    /// What was computed in the open blocks: only looked up, never walked.
    known: HashMap<Key, Reg, FixedState>,
    /// What of it was read of shared memory.
    shared: Vec<Key>,
}

impl Build {
    pub fn new() -> Build {
        Build {
            blocks: vec![Block::default()],
            ..Build::default()
        }
    }

    pub fn ty(&self, r: Reg) -> Ty {
        self.regs[r as usize]
    }

    /// The integer that `r` is known to be.
    pub fn number(&self, r: Reg) -> Option<i64> {
        self.numbers[r as usize]
    }

    pub fn fresh(&mut self, ty: Ty) -> Reg {
        self.regs.push(ty);
        self.numbers.push(None);
        (self.regs.len() - 1) as Reg
    }

    pub fn push(&mut self, i: Inst) {
        if let Some(b) = self.blocks.last_mut() {
            b.insts.push(i);
        }
    }

    pub fn open(&mut self) {
        self.blocks.push(Block::default());
    }

    pub fn close(&mut self) -> Vec<Inst> {
        let b = self.blocks.pop().unwrap_or_default();
        for key in &b.own {
            self.known.remove(key);
        }
        b.insts
    }

    /// Whether the block at hand has no loop.
    pub fn is_straight(&self) -> bool {
        fn straight(list: &[Inst]) -> bool {
            list.iter().all(|i| match i {
                Inst::For { .. } => false,
                Inst::If { body, .. } => straight(body),
                _ => true,
            })
        }
        self.blocks.last().is_none_or(|b| straight(&b.insts))
    }

    /// Forgets what was read of shared memory: another thread may have written to it.
    pub fn forget_shared(&mut self) {
        for key in self.shared.drain(..) {
            self.known.remove(&key);
        }
    }

    /// A value that depends on its arguments alone, or on memory that does not change meanwhile.
    pub fn op(&mut self, ty: Ty, op: Op) -> Reg {
        if matches!(op, Op::Get(_) | Op::Shuffle(..)) {
            return self.define(ty, op);
        }
        let key = (ty, op);
        if let Some(&r) = self.known.get(&key) {
            return r;
        }
        let r = self.define(ty, key.1.clone());
        if let (Op::Const(v), false) = (&key.1, ty.is_float()) {
            self.numbers[r as usize] = Some(*v as i64);
        }
        if let Some(b) = self.blocks.last_mut() {
            b.own.push(key.clone());
        }
        if matches!(key.1, Op::LoadShared { .. }) {
            self.shared.push(key.clone());
        }
        self.known.insert(key, r);
        r
    }

    fn define(&mut self, ty: Ty, op: Op) -> Reg {
        let r = self.fresh(ty);
        self.push(Inst::Let(r, op));
        r
    }

    pub fn var(&mut self, ty: Ty) -> Var {
        self.vars.push(ty);
        (self.vars.len() - 1) as Var
    }

    pub fn get(&mut self, v: Var) -> Reg {
        self.op(self.vars[v as usize], Op::Get(v))
    }

    pub fn set(&mut self, v: Var, r: Reg) {
        self.push(Inst::Set(v, r));
    }

    pub fn int(&mut self, v: i64) -> Reg {
        self.constant(v, Ty::I32)
    }

    pub fn constant(&mut self, v: i64, ty: Ty) -> Reg {
        self.op(ty, Op::Const(v as u64))
    }

    pub fn float(&mut self, v: f64, ty: Ty) -> Reg {
        self.op(ty, Op::Const(v.to_bits()))
    }

    pub fn dim(&mut self, d: &Dim, ty: Ty) -> Reg {
        if let Some(v) = d.known() {
            return self.constant(v, ty);
        }
        let at = self.dims.iter().position(|x| x == d).unwrap_or_else(|| {
            self.dims.push(d.clone());
            self.dims.len() - 1
        });
        self.op(ty, Op::Dim(at as u32))
    }

    pub fn binary(&mut self, f: Binary, a: Reg, b: Reg) -> Reg {
        let ty = self.ty(a);
        let (x, y) = (self.number(a), self.number(b));
        if ty == Ty::I32 {
            let folded = match (f, x, y) {
                (Binary::Add, Some(0), _) => return b,
                (Binary::Add | Binary::Sub, _, Some(0)) => return a,
                (Binary::Mul | Binary::Div, _, Some(1)) => return a,
                (Binary::Mul, Some(1), _) => return b,
                (Binary::Mul, Some(0), _) | (Binary::Mul, _, Some(0)) => Some(0),
                (Binary::Fmod, _, Some(1)) => Some(0),
                (Binary::Add, Some(x), Some(y)) => x.checked_add(y),
                (Binary::Sub, Some(x), Some(y)) => x.checked_sub(y),
                (Binary::Mul, Some(x), Some(y)) => x.checked_mul(y),
                (Binary::Div, Some(x), Some(y)) if y != 0 => x.checked_div(y),
                (Binary::Fmod, Some(x), Some(y)) if y != 0 => x.checked_rem(y),
                (Binary::Min, Some(x), Some(y)) => Some(x.min(y)),
                (Binary::Max, Some(x), Some(y)) => Some(x.max(y)),
                _ => None,
            };
            if let Some(v) = folded.filter(|v| i32::try_from(*v).is_ok()) {
                return self.int(v);
            }
        }
        if ty == Ty::Bool {
            match (f, x, y) {
                (Binary::And, Some(v), _) => return if v != 0 { b } else { a },
                (Binary::And, _, Some(v)) => return if v != 0 { a } else { b },
                _ => {}
            }
        }
        self.op(ty, Op::Binary(f, a, b))
    }

    pub fn add(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Add, a, b)
    }

    pub fn sub(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Sub, a, b)
    }

    pub fn mul(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Mul, a, b)
    }

    /// Quotient of numbers that are not negative.
    pub fn div(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Div, a, b)
    }

    /// Remainder of numbers that are not negative.
    pub fn rem(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Fmod, a, b)
    }

    pub fn compare(&mut self, f: Compare, a: Reg, b: Reg) -> Reg {
        if let (Some(x), Some(y)) = (self.number(a), self.number(b)) {
            let v = match f {
                Compare::Eq => x == y,
                Compare::Ne => x != y,
                Compare::Lt => x < y,
                Compare::Le => x <= y,
                Compare::Gt => x > y,
                Compare::Ge => x >= y,
            };
            return self.constant(v.into(), Ty::Bool);
        }
        self.op(Ty::Bool, Op::Compare(f, a, b))
    }

    pub fn select(&mut self, c: Reg, a: Reg, b: Reg) -> Reg {
        match self.number(c) {
            Some(0) => b,
            Some(_) => a,
            None if a == b => a,
            None => self.op(self.ty(a), Op::Select(c, a, b)),
        }
    }

    /// Both, where there are both.
    pub fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.binary(Binary::And, a, b)),
            (a, b) => a.or(b),
        }
    }
}
