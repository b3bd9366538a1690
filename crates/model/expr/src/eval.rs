//! Evaluation of scalar programs, one element at a time. Constant folding and the reference interpreters use
//! it; the CPU backend has compiled forms of its own.
use crate::{Binary, Compare, Expr, ExprError, Inst, Ref, Scalar, Unary};
use layout::{DType, Dim};

/// What a program sees beside its arguments.
pub struct EvalContext<'a> {
    /// Arguments by slot.
    pub inputs: &'a [Scalar],
    /// Coordinates by axis.
    pub index: &'a [i64],
    /// Values of symbols.
    pub symbols: &'a dyn Fn(&str) -> Option<i64>,
}

/// Why a program gave no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The program itself is wrong.
    #[error(transparent)]
    Invalid(#[from] ExprError),
    /// An argument is missing.
    #[error("argument {slot} of the program is missing; give one value per slot")]
    Input {
        /// Its slot.
        slot: u32,
    },
    /// A coordinate is missing.
    #[error(
        "the program reads the coordinate along axis {axis}, which is not there; give one coordinate per axis"
    )]
    Index {
        /// The axis.
        axis: u32,
    },
    /// A dimension has no value.
    #[error(
        "dimension '{dim}' has no value; give every symbol a number that keeps it within 64 bits"
    )]
    Dim {
        /// The expression.
        dim: String,
    },
}

#[derive(Clone, Debug)]
enum Op {
    Const(Scalar),
    Input(u32),
    Index(u32),
    Dim(Box<Dim>),
    Unary(Unary, Ref),
    Binary(Binary, Ref, Ref),
    Compare(Compare, Ref, Ref),
    Select(Ref, Ref, Ref),
    /// Argument and its type.
    Cast(Ref, DType),
}

/// A program with its types resolved once, for evaluation at many elements.
#[derive(Clone, Debug)]
pub struct CompiledExpr {
    /// Operations with the type that they work in (for casts: the result's).
    ops: Vec<(Op, DType)>,
    outputs: Vec<Ref>,
    output_types: Vec<DType>,
}

impl CompiledExpr {
    /// Checks `e` and resolves its types.
    pub fn new(e: &Expr) -> Result<CompiledExpr, ExprError> {
        let t = e.types()?;
        let of = |r: &Ref| t[*r as usize];
        let ops = e
            .insts
            .iter()
            .zip(&t)
            .map(|(inst, &own)| match inst {
                Inst::Input { slot, dtype } => (Op::Input(*slot), *dtype),
                Inst::Float { bits, dtype } => (
                    Op::Const(Scalar::Float(f64::from_bits(*bits)).of(*dtype)),
                    *dtype,
                ),
                Inst::Int { value, dtype } => (Op::Const(Scalar::Int(*value).of(*dtype)), *dtype),
                Inst::Index { axis } => (Op::Index(*axis), own),
                Inst::Dim(Dim::Known(n)) => (Op::Const(Scalar::Int(*n)), own),
                Inst::Dim(d) => (Op::Dim(Box::new(d.clone())), own),
                Inst::Unary(f, a) => (Op::Unary(*f, *a), of(a)),
                Inst::Binary(f, a, b) => (Op::Binary(*f, *a, *b), of(a)),
                Inst::Compare(f, a, b) => (Op::Compare(*f, *a, *b), of(a)),
                Inst::Select(c, a, b) => (Op::Select(*c, *a, *b), own),
                Inst::Cast(a, to) => (Op::Cast(*a, of(a)), *to),
            })
            .collect();
        let output_types = e.outputs.iter().map(of).collect();
        Ok(CompiledExpr {
            ops,
            outputs: e.outputs.clone(),
            output_types,
        })
    }

    /// This program with every dimension replaced by its value, so that evaluation looks no
    /// symbol up.
    pub fn bound(&self, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<CompiledExpr, EvalError> {
        let mut out = self.clone();
        for (op, _) in &mut out.ops {
            if let Op::Dim(d) = op {
                *op = Op::Const(Scalar::Int(dim_value(d, symbols)?));
            }
        }
        Ok(out)
    }

    /// Number of results.
    pub fn output_len(&self) -> usize {
        self.outputs.len()
    }

    /// Types of the results.
    pub fn output_types(&self) -> &[DType] {
        &self.output_types
    }

    /// Evaluates the program and writes its results to the front of `out` (which holds at least
    /// [`CompiledExpr::output_len`] values). `scratch` is any vector; it is kept between calls so
    /// that only the first one allocates. Arguments are taken as values of their slots' types.
    pub fn eval_into(
        &self,
        ctx: &EvalContext,
        scratch: &mut Vec<Scalar>,
        out: &mut [Scalar],
    ) -> Result<(), EvalError> {
        self.run(ctx, scratch)?;
        for (o, &r) in out.iter_mut().zip(&self.outputs) {
            *o = scratch[r as usize];
        }
        Ok(())
    }

    /// Result 0; a program without results gives integer 0.
    pub fn eval_one(
        &self,
        ctx: &EvalContext,
        scratch: &mut Vec<Scalar>,
    ) -> Result<Scalar, EvalError> {
        self.run(ctx, scratch)?;
        Ok(self
            .outputs
            .first()
            .map_or(Scalar::Int(0), |&r| scratch[r as usize]))
    }

    fn run(&self, ctx: &EvalContext, v: &mut Vec<Scalar>) -> Result<(), EvalError> {
        v.clear();
        v.reserve(self.ops.len());
        for (op, d) in &self.ops {
            let x = match op {
                Op::Const(s) => *s,
                Op::Input(slot) => ctx
                    .inputs
                    .get(*slot as usize)
                    .ok_or(EvalError::Input { slot: *slot })?
                    .of(*d),
                Op::Index(axis) => Scalar::Int(
                    *ctx.index
                        .get(*axis as usize)
                        .ok_or(EvalError::Index { axis: *axis })?,
                ),
                Op::Dim(dim) => Scalar::Int(dim_value(dim, ctx.symbols)?),
                Op::Unary(f, a) => v[*a as usize].unary(*f, *d),
                Op::Binary(f, a, b) => v[*a as usize].binary(*f, v[*b as usize], *d),
                Op::Compare(f, a, b) => {
                    Scalar::truth(v[*a as usize].compare(*f, v[*b as usize], *d))
                }
                Op::Select(c, a, b) => {
                    v[if v[*c as usize] != Scalar::Int(0) {
                        *a
                    } else {
                        *b
                    } as usize]
                }
                Op::Cast(a, from) => v[*a as usize].cast(*from, *d),
            };
            v.push(x);
        }
        Ok(())
    }
}

fn dim_value(d: &Dim, symbols: &dyn Fn(&str) -> Option<i64>) -> Result<i64, EvalError> {
    d.eval(symbols)
        .ok_or_else(|| EvalError::Dim { dim: d.to_string() })
}

impl Expr {
    /// The results, one per output. For many elements use [`CompiledExpr`].
    pub fn eval(&self, ctx: &EvalContext) -> Result<Vec<Scalar>, EvalError> {
        let c = CompiledExpr::new(self)?;
        let mut scratch = Vec::new();
        c.run(ctx, &mut scratch)?;
        Ok(c.outputs.iter().map(|&r| scratch[r as usize]).collect())
    }

    /// The results for `inputs` alone: no coordinates, no symbols.
    pub fn eval_plain(&self, inputs: &[Scalar]) -> Result<Vec<Scalar>, EvalError> {
        self.eval(&EvalContext {
            inputs,
            index: &[],
            symbols: &|_| None,
        })
    }
}

impl Expr {
    /// The results as far as they follow from the arguments that are known, one per output.
    pub fn eval_known(&self, inputs: &[Option<Scalar>]) -> Vec<Option<Scalar>> {
        let Ok(types) = self.types() else {
            return vec![None; self.outputs.len()];
        };
        let mut v: Vec<Option<Scalar>> = Vec::with_capacity(self.insts.len());
        for (inst, &own) in self.insts.iter().zip(&types) {
            let at = |r: &Ref| v[*r as usize];
            let of = |r: &Ref| types[*r as usize];
            let known = match inst {
                Inst::Input { slot, .. } => inputs.get(*slot as usize).copied().flatten(),
                Inst::Float { bits, dtype } => {
                    Some(Scalar::Float(f64::from_bits(*bits)).of(*dtype))
                }
                Inst::Int { value, dtype } => Some(Scalar::Int(*value).of(*dtype)),
                Inst::Dim(d) => d.known().map(Scalar::Int),
                Inst::Index { .. } => None,
                Inst::Unary(f, a) => at(a).map(|x| x.unary(*f, of(a))),
                Inst::Binary(f, a, b) => at(a).zip(at(b)).map(|(x, y)| x.binary(*f, y, of(a))),
                Inst::Compare(f, a, b) => {
                    let both = at(a).zip(at(b));
                    both.map(|(x, y)| Scalar::truth(x.compare(*f, y, of(a))))
                }
                Inst::Select(c, a, b) => match at(c) {
                    Some(c) if c.as_i64() != 0 => at(a),
                    Some(_) => at(b),
                    None => None,
                },
                Inst::Cast(a, to) => at(a).map(|x| x.cast(of(a), *to)),
            };
            v.push(known.map(|x| x.of(own)));
        }
        self.outputs.iter().map(|&o| v[o as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExprBuilder;

    #[test]
    fn what_follows_from_known_arguments() {
        let mut b = ExprBuilder::new();
        let (s, m) = (b.input(0, DType::F32), b.input(1, DType::F32));
        let none = b.constant(f64::NEG_INFINITY, DType::F32);
        let unseen = b.compare(Compare::Eq, s, none);
        let d = b.sub(s, m);
        let p = b.unary(Unary::Exp, d);
        let zero = b.constant(0.0, DType::F32);
        let p = b.select(unseen, zero, p);
        let e = b.finish(&[p, d]);
        let low = Some(Scalar::Float(f64::NEG_INFINITY));
        assert_eq!(e.eval_known(&[low, None]), [Some(Scalar::Float(0.0)), None]);
        assert_eq!(e.eval_known(&[Some(Scalar::Float(1.0)), None]), [None; 2]);
    }

    #[test]
    fn program_with_everything() {
        let mut b = ExprBuilder::new();
        let x = b.input(0, DType::F32);
        let half = b.constant(0.5, DType::F32);
        let m = b.mul(x, half);
        let i = b.index(1);
        let n = b.dim(&(Dim::sym("n") * Dim::Known(2)));
        let c = b.compare(Compare::Lt, i, n);
        let zero = b.constant(0.0, DType::F32);
        let s = b.select(c, m, zero);
        let k = b.cast(i, DType::U8);
        let e = b.finish(&[s, k]);
        let run = |i1| {
            e.eval(&EvalContext {
                inputs: &[Scalar::Float(0.1)],
                index: &[0, i1],
                symbols: &|s| (s == "n").then_some(3),
            })
        };
        assert_eq!(
            run(5),
            Ok(vec![Scalar::Float((0.1f32 * 0.5) as f64), Scalar::Int(5)])
        );
        assert_eq!(run(262), Ok(vec![Scalar::Float(0.0), Scalar::Int(6)]));
        let bad = e.eval(&EvalContext {
            inputs: &[],
            index: &[0, 0],
            symbols: &|_| Some(1),
        });
        assert_eq!(bad, Err(EvalError::Input { slot: 0 }));
        let c = CompiledExpr::new(&e).map(|c| c.bound(&|_| None));
        assert!(matches!(c, Ok(Err(EvalError::Dim { .. }))));
    }
}
