//! Writes a body: folds constants, names each value once, and computes what does not change in a loop
//! before it.
use super::ir::{Inst, Op, Reg, Ty, Var};
use expr::{Binary, Compare, Unary};
use foldhash::fast::FixedState;
use kernel::OperandId;
use layout::Arrange;
use layout::{DType, Dim};
use std::collections::HashMap;

/// What a value is made of.
type Key = (Ty, Op);

/// Neighbours of an operand: their first element, whether they are loaded, how many they are, and where the CTAs of a
/// cluster keep them the array and whose they are.
type RunKey = ((OperandId, Reg, Option<Reg>), usize, Option<(u32, Reg)>);

/// Neighbours of a shared array: their first element, and how many they are.
type SharedRunKey = ((u32, Reg), usize);

/// Instructions of a block.
#[derive(Default)]
struct Block {
    insts: Vec<Inst>,
    /// Neighbours that were loaded in it.
    runs: Vec<RunKey>,
    shared_runs: Vec<SharedRunKey>,
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
    /// Sums that values are: of a value and another.
    sums: HashMap<Reg, (Reg, Reg), FixedState>,
    /// Number of the innermost loop in which each value changes, 0 for none.
    levels: Vec<u32>,
    /// The block of every open loop's body.
    loops: Vec<usize>,
    blocks: Vec<Block>,
    /// Products of f32 that values are.
    products: HashMap<Reg, (Reg, Reg), FixedState>,
    /// Values that are others rounded to a type.
    rounded: HashMap<Reg, (DType, Reg), FixedState>,
    /// What was computed in the open blocks: only looked up, never walked.
    known: HashMap<Key, Reg, FixedState>,
    /// What of it was read of shared memory.
    shared: Vec<Key>,
    /// Variables that were read since [`Build::read_once`] and not written since, while that is on.
    gets: Option<HashMap<Var, Reg, FixedState>>,
    /// Neighbours that were loaded in the open blocks, by where and how many.
    runs: HashMap<RunKey, Vec<Reg>, FixedState>,
    /// The same of shared memory.
    shared_runs: HashMap<SharedRunKey, Vec<Reg>, FixedState>,
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
        self.levels.push(self.loops.len() as u32);
        (self.regs.len() - 1) as Reg
    }

    /// Number of the innermost loop in which `r` changes.
    fn level(&self, r: Reg) -> u32 {
        self.levels[r as usize]
    }

    /// Begins a loop's body; gives its counter.
    pub fn open_loop(&mut self) -> Reg {
        self.open();
        self.loops.push(self.blocks.len() - 1);
        self.fresh(Ty::I32)
    }

    /// Ends the body of the loop with counter `i`, which runs from, to and in steps of `range`.
    pub fn close_loop(&mut self, i: Reg, (from, to, step): (Reg, Reg, Reg)) {
        let body = self.close();
        self.loops.pop();
        self.push(Inst::For {
            i,
            from,
            to,
            step,
            body,
        });
    }

    /// Ends the body of a pipeline's side, which [`Build::open_loop`] began, with the number of its piece and its stage.
    pub fn close_side(&mut self, piece: Reg, stage: Reg) {
        let body = self.close_walk();
        self.push(Inst::Side { piece, stage, body });
    }

    /// Ends a body that is gone through several times, which [`Build::open_loop`] began.
    pub fn close_walk(&mut self) -> Vec<Inst> {
        self.loops.pop();
        self.close()
    }

    /// Whether a variable that was read, and not written since, is not read again: its value stays in a register.
    pub fn read_once(&mut self, on: bool) {
        self.gets = on.then(HashMap::default);
    }

    pub fn push(&mut self, i: Inst) {
        if let Some(gets) = &mut self.gets {
            match &i {
                Inst::Let(..) => {}
                Inst::Set(v, _) => {
                    gets.remove(v);
                }
                _ => gets.clear(),
            }
        }
        if let Some(b) = self.blocks.last_mut() {
            b.insts.push(i);
        }
    }

    pub fn open(&mut self) {
        self.gets.iter_mut().for_each(HashMap::clear);
        self.blocks.push(Block::default());
    }

    pub fn close(&mut self) -> Vec<Inst> {
        self.gets.iter_mut().for_each(HashMap::clear);
        let b = self.blocks.pop().unwrap_or_default();
        for key in &b.own {
            self.known.remove(key);
        }
        for key in &b.runs {
            self.runs.remove(key);
        }
        for key in &b.shared_runs {
            self.shared_runs.remove(key);
        }
        b.insts
    }

    /// Whether the block at hand has no loop.
    pub fn is_straight(&self) -> bool {
        fn straight(list: &[Inst]) -> bool {
            list.iter().all(|i| match i {
                Inst::For { .. } | Inst::Side { .. } => false,
                Inst::If { body, .. } | Inst::Pipeline { body, .. } => straight(body),
                _ => true,
            })
        }
        self.blocks.last().is_none_or(|b| straight(&b.insts))
    }

    /// Whether an instruction of the open blocks is such.
    pub fn has(&self, f: impl Fn(&Inst) -> bool) -> bool {
        self.blocks.iter().flat_map(|b| &b.insts).any(f)
    }

    /// Whether the block at hand is gone through several times.
    pub fn in_loop(&self) -> bool {
        !self.loops.is_empty()
    }

    /// Forgets what was read of shared memory: another thread may have written to it.
    pub fn forget_shared(&mut self) {
        for key in self.shared.drain(..) {
            self.known.remove(&key);
        }
        self.shared_runs.clear();
    }

    /// A value that depends on its arguments alone, or on memory that does not change meanwhile.
    pub fn op(&mut self, ty: Ty, op: Op) -> Reg {
        if let (Op::Get(v), Some(gets)) = (&op, &self.gets) {
            let (v, before) = (*v, gets.get(v).copied());
            return before.unwrap_or_else(|| {
                let r = self.define(ty, op);
                self.gets.iter_mut().for_each(|g| {
                    g.insert(v, r);
                });
                r
            });
        }
        if matches!(op, Op::Get(_) | Op::Shuffle(..) | Op::AnyLane(_)) {
            return self.define(ty, op);
        }
        let key = (ty, self.shorter(op));
        if let Some(&r) = self.known.get(&key) {
            return r;
        }
        let (level, block) = self.home(&key.1);
        let r = self.fresh(ty);
        self.levels[r as usize] = level;
        match key.1 {
            Op::Const(v) if !ty.is_float() => self.numbers[r as usize] = Some(v as i64),
            Op::Binary(Binary::Add, x, y) if ty == Ty::I32 => {
                self.sums.insert(r, (x, y));
            }
            Op::Binary(Binary::Mul, x, y) if ty == Ty::F32 => {
                self.products.insert(r, (x, y));
            }
            Op::Narrow(d, x) => {
                self.rounded.insert(r, (d, x));
            }
            _ => {}
        }
        if let Some(b) = self.blocks.get_mut(block) {
            b.insts.push(Inst::Let(r, key.1.clone()));
            b.own.push(key.clone());
        }
        if matches!(key.1, Op::LoadShared { .. }) {
            self.shared.push(key.clone());
        }
        self.known.insert(key, r);
        r
    }

    /// The same with arguments that need not be rounded before, where `op` rounds them.
    fn shorter(&self, op: Op) -> Op {
        let bare = |d: DType, r: Reg| match self.rounded.get(&r) {
            Some(&(to, x)) if to == d => x,
            _ => r,
        };
        match op {
            Op::Pack(d, x, y) => Op::Pack(d, bare(d, x), bare(d, y)),
            op => op,
        }
    }

    /// The innermost loop in which what `op` makes changes, and the block that it is computed in.
    fn home(&self, op: &Op) -> (u32, usize) {
        let (now, here) = (self.loops.len() as u32, self.blocks.len().saturating_sub(1));
        let of = |list: &[Reg]| list.iter().map(|&r| self.level(r)).max().unwrap_or(0);
        let level = match *op {
            Op::Const(_) | Op::Thread | Op::Task | Op::Dim(_) => 0,
            // Out of a loop that has no turn, or of a condition, a divisor may be 0.
            Op::Binary(Binary::Div | Binary::Fmod, x, y) => match self.number(y) {
                Some(n) if n != 0 => of(&[x, y]),
                _ => now,
            },
            Op::Unary(_, x)
            | Op::Power(x)
            | Op::Convert(x)
            | Op::Bits(x)
            | Op::Half(x, _)
            | Op::Narrow(_, x) => of(&[x]),
            Op::Binary(_, x, y)
            | Op::Compare(_, x, y)
            | Op::Pack(_, x, y)
            | Op::PackNear(x, y)
            | Op::Halves(_, x, y) => of(&[x, y]),
            Op::Select(x, y, z) | Op::MulAdd(x, y, z) => of(&[x, y, z]),
            Op::Get(_)
            | Op::Load { .. }
            | Op::LoadShared { .. }
            | Op::Shuffle(..)
            | Op::AnyLane(_) => now,
        };
        match self.loops.get(level as usize) {
            Some(&body) => (level, body - 1),
            None => (now, here),
        }
    }

    /// `base` and coordinates times factors: what changes least often is added first, what is known last, so
    /// that loops and neighbours share what they can.
    pub fn linear(&mut self, base: Reg, terms: &[(Reg, Reg)]) -> Reg {
        let one = self.int(1);
        let mut parts: Vec<(Reg, Reg)> = vec![];
        let mut known = 0i64;
        let mut open: Vec<(Reg, Reg)> = vec![(base, one)];
        open.extend(terms);
        open.reverse();
        while let Some((c, by)) = open.pop() {
            match (self.number(c), self.number(by), self.sums.get(&c)) {
                (Some(0), ..) | (_, Some(0), _) => {}
                (Some(c), Some(by), _) => known = known.wrapping_add(c.wrapping_mul(by)),
                (_, _, Some(&(x, y))) => open.extend([(y, by), (x, by)]),
                _ => parts.push((c, by)),
            }
        }
        // Coordinates that change in the same loop and have the same factor are multiplied together, and what
        // changes in the same loop is added up by itself.
        let level = |b: &Self, p: &(Reg, Reg)| b.level(p.0).max(b.level(p.1));
        parts.arrange_by_key(|p| (level(self, p), p.1));
        let mut sum = self.int(0);
        for own in parts
            .chunk_by(|p, q| level(self, p) == level(self, q))
            .collect::<Vec<_>>()
        {
            let mut whole = self.int(0);
            for same in own.chunk_by(|p, q| p.1 == q.1) {
                let first = self.int(0);
                let coordinate = same.iter().fold(first, |c, p| self.add(c, p.0));
                let part = self.mul(coordinate, same[0].1);
                whole = self.add(whole, part);
            }
            sum = self.add(sum, whole);
        }
        // Indices wrap, as they do where each part is added by itself.
        let known = self.int(i64::from(known as i32));
        self.add(sum, known)
    }

    /// `count` neighbours of an operand, of type `ty`, from an element on; 0 where the guard fails. Those that a CTA of the
    /// cluster keeps, `of` which array and rank.
    pub fn load_run(
        &mut self,
        from: (OperandId, Reg, Option<Reg>),
        of: Option<(u32, Reg)>,
        ty: Ty,
        count: usize,
    ) -> Vec<Reg> {
        let key = (from, count, of);
        if let Some(found) = self.runs.get(&key) {
            return found.clone();
        }
        let list: Vec<Reg> = (0..count).map(|_| self.fresh(ty)).collect();
        let (dst, (operand, index, guard)) = (list.clone(), from);
        self.push(match of {
            None => Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            },
            Some((array, rank)) => Inst::LoadPart {
                dst,
                array,
                rank,
                index,
                guard,
            },
        });
        if let Some(b) = self.blocks.last_mut() {
            b.runs.push(key);
        }
        self.runs.insert(key, list.clone());
        list
    }

    /// `count` neighbours of a shared array, of type `ty`, from an element on.
    pub fn load_shared_run(&mut self, from: (u32, Reg), ty: Ty, count: usize) -> Vec<Reg> {
        if let Some(found) = self.shared_runs.get(&(from, count)) {
            return found.clone();
        }
        let dst: Vec<Reg> = (0..count).map(|_| self.fresh(ty)).collect();
        let (array, index) = from;
        self.push(Inst::LoadSharedRun {
            dst: dst.clone(),
            array,
            index,
        });
        if let Some(b) = self.blocks.last_mut() {
            b.shared_runs.push((from, count));
        }
        self.shared_runs.insert((from, count), dst.clone());
        dst
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
        match (d.known(), self.know(d)) {
            (None, Some(at)) => self.op(ty, Op::Dim(at)),
            (known, _) => self.constant(known.unwrap_or(0), ty),
        }
    }

    /// Which of the program's numbers `d` is, from here on; `None` where it is known.
    pub fn know(&mut self, d: &Dim) -> Option<u32> {
        if d.known().is_some() {
            return None;
        }
        let at = self.dims.iter().position(|x| x == d).unwrap_or_else(|| {
            self.dims.push(d.clone());
            self.dims.len() - 1
        });
        Some(at as u32)
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
        // A position is its axis' first one and so many more.
        match self.sums.get(&a) {
            Some(&(x, y)) if x == b => return y,
            Some(&(x, y)) if y == b => return x,
            _ => {}
        }
        self.binary(Binary::Sub, a, b)
    }

    /// `a - b` of f32, where a product goes into it as it is, not rounded before.
    pub fn sub_of_product(&mut self, a: Reg, b: Reg) -> Reg {
        match self.products.get(&a) {
            Some(&(x, y)) => {
                let less = self.op(Ty::F32, Op::Unary(Unary::Neg, b));
                self.op(Ty::F32, Op::MulAdd(x, y, less))
            }
            None => self.sub(a, b),
        }
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

/// A whole program's instructions without values that nothing reads, of so many values.
pub(crate) fn without_unread(body: Vec<Inst>, values: usize) -> Vec<Inst> {
    fn sweep(body: Vec<Inst>, read: &mut [bool]) -> Vec<Inst> {
        let mut kept = Vec::with_capacity(body.len());
        // A value is read behind its definition alone, there or in bodies.
        for mut i in body.into_iter().rev() {
            if matches!(i, Inst::Let(r, _) if !read[r as usize]) {
                continue;
            }
            if let Some(inner) = i.body_mut() {
                *inner = sweep(std::mem::take(inner), read);
            }
            i.reads(&mut |r, _| read[r as usize] = true);
            kept.push(i);
        }
        kept.reverse();
        kept
    }
    sweep(body, &mut vec![false; values])
}
