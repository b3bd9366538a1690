//! Building scalar programs: [`ExprBuilder`] appends instructions and shares equal ones. Import, rewrites and
//! the planner build their programs with it; it changes none that exists.
use crate::{Binary, Compare, Expr, Inst, Ref, Unary};
use foldhash::HashMap;
use layout::{DType, Dim};

/// Gives the value that stands for the coordinate along an axis.
pub type IndexMap<'a> = &'a dyn Fn(&mut ExprBuilder, u32) -> Ref;

/// Builds an [`Expr`] instruction by instruction; equal instructions are shared.
#[derive(Clone, Debug, Default)]
pub struct ExprBuilder {
    insts: Vec<Inst>,
    /// Where each instruction is; looked up only, never walked.
    seen: HashMap<Inst, Ref>,
}

impl ExprBuilder {
    /// An empty program.
    pub fn new() -> ExprBuilder {
        ExprBuilder::default()
    }

    /// Appends `inst` unless an equal one is there; gives its reference.
    pub fn push(&mut self, inst: Inst) -> Ref {
        if let Some(&at) = self.seen.get(&inst) {
            return at;
        }
        let at = self.insts.len() as Ref;
        self.seen.insert(inst.clone(), at);
        self.insts.push(inst);
        at
    }

    /// The instruction at `r`, if there is one.
    pub fn get(&self, r: Ref) -> Option<&Inst> {
        self.insts.get(r as usize)
    }

    /// Argument `slot`.
    pub fn input(&mut self, slot: u32, dtype: DType) -> Ref {
        self.push(Inst::Input { slot, dtype })
    }

    /// A constant of any type: floats round, integers truncate.
    pub fn constant(&mut self, value: f64, dtype: DType) -> Ref {
        self.push(if dtype.is_float() {
            Inst::Float {
                bits: value.to_bits(),
                dtype,
            }
        } else {
            Inst::Int {
                value: value as i64,
                dtype,
            }
        })
    }

    /// An integer or boolean constant.
    pub fn int(&mut self, value: i64, dtype: DType) -> Ref {
        self.push(Inst::Int { value, dtype })
    }

    /// Coordinate along `axis` (I64).
    pub fn index(&mut self, axis: u32) -> Ref {
        self.push(Inst::Index { axis })
    }

    /// A dimension's value (I64).
    pub fn dim(&mut self, d: &Dim) -> Ref {
        self.push(Inst::Dim(d.clone()))
    }

    /// Function of one argument.
    pub fn unary(&mut self, f: Unary, a: Ref) -> Ref {
        self.push(Inst::Unary(f, a))
    }

    /// Function of two arguments.
    pub fn binary(&mut self, f: Binary, a: Ref, b: Ref) -> Ref {
        self.push(Inst::Binary(f, a, b))
    }

    /// Sum.
    pub fn add(&mut self, a: Ref, b: Ref) -> Ref {
        self.binary(Binary::Add, a, b)
    }

    /// Difference.
    pub fn sub(&mut self, a: Ref, b: Ref) -> Ref {
        self.binary(Binary::Sub, a, b)
    }

    /// Product.
    pub fn mul(&mut self, a: Ref, b: Ref) -> Ref {
        self.binary(Binary::Mul, a, b)
    }

    /// Quotient.
    pub fn div(&mut self, a: Ref, b: Ref) -> Ref {
        self.binary(Binary::Div, a, b)
    }

    /// Comparison.
    pub fn compare(&mut self, f: Compare, a: Ref, b: Ref) -> Ref {
        self.push(Inst::Compare(f, a, b))
    }

    /// Choice.
    pub fn select(&mut self, c: Ref, a: Ref, b: Ref) -> Ref {
        self.push(Inst::Select(c, a, b))
    }

    /// Conversion.
    pub fn cast(&mut self, a: Ref, dtype: DType) -> Ref {
        self.push(Inst::Cast(a, dtype))
    }

    /// Appends `e` with arguments of its own, as [`ExprBuilder::inline`] does otherwise.
    pub fn append(&mut self, e: &Expr, index: Option<IndexMap>) -> Vec<Ref> {
        let mut types = vec![None; e.arity()];
        for i in &e.insts {
            if let Inst::Input { slot, dtype } = i {
                types[*slot as usize] = Some(*dtype);
            }
        }
        // A slot that is not read has no argument.
        let slots = (0u32..).zip(types);
        let args: Vec<Ref> = slots
            .map(|(slot, dtype)| dtype.map_or(0, |d| self.input(slot, d)))
            .collect();
        self.inline(e, &args, index)
    }

    /// Appends `e` with its arguments replaced by `args` (one per slot) and `Index(axis)` by
    /// `index(axis)` when given; gives the references of its outputs. Used to fuse programs.
    pub fn inline(&mut self, e: &Expr, args: &[Ref], index: Option<IndexMap>) -> Vec<Ref> {
        let mut map: Vec<Ref> = Vec::with_capacity(e.insts.len());
        for inst in &e.insts {
            let m = |r: &Ref| map[*r as usize];
            let r = match inst {
                Inst::Input { slot, .. } => args[*slot as usize],
                Inst::Index { axis } => match index {
                    Some(f) => f(self, *axis),
                    None => self.push(inst.clone()),
                },
                Inst::Unary(f, a) => self.push(Inst::Unary(*f, m(a))),
                Inst::Binary(f, a, b) => self.push(Inst::Binary(*f, m(a), m(b))),
                Inst::Compare(f, a, b) => self.push(Inst::Compare(*f, m(a), m(b))),
                Inst::Select(a, b, c) => self.push(Inst::Select(m(a), m(b), m(c))),
                Inst::Cast(a, d) => self.push(Inst::Cast(m(a), *d)),
                other => self.push(other.clone()),
            };
            map.push(r);
        }
        e.outputs.iter().map(|&o| map[o as usize]).collect()
    }

    /// The program with `outputs` as results; instructions that no output needs are dropped.
    pub fn finish(self, outputs: &[Ref]) -> Expr {
        let mut live = vec![false; self.insts.len()];
        for &o in outputs {
            live[o as usize] = true;
        }
        for at in (0..self.insts.len()).rev() {
            if live[at] {
                for a in self.insts[at].args() {
                    live[a as usize] = true;
                }
            }
        }
        let mut to = vec![0; live.len()];
        let mut insts = Vec::new();
        for (at, mut inst) in self.insts.into_iter().enumerate() {
            if !live[at] {
                continue;
            }
            match &mut inst {
                Inst::Unary(_, a) | Inst::Cast(a, _) => *a = to[*a as usize],
                Inst::Binary(_, a, b) | Inst::Compare(_, a, b) => {
                    (*a, *b) = (to[*a as usize], to[*b as usize]);
                }
                Inst::Select(a, b, c) => {
                    (*a, *b, *c) = (to[*a as usize], to[*b as usize], to[*c as usize]);
                }
                _ => {}
            }
            to[at] = insts.len() as Ref;
            insts.push(inst);
        }
        Expr {
            insts,
            outputs: outputs.iter().map(|&o| to[o as usize]).collect(),
        }
    }
}
