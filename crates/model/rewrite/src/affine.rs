//! Programs that are `x * scale + shift` in one of their arguments.
use expr::{Binary, Expr, ExprBuilder, Inst, Ref, Unary};
use layout::DType;

/// `scale` and `shift` as programs of the other arguments; `None` stands for 1 and 0.
pub(crate) struct Affine {
    pub scale: Option<Expr>,
    pub shift: Option<Expr>,
}

#[derive(Clone, Copy)]
enum Part {
    /// Does not depend on the argument.
    Free(Ref),
    Linear(Option<Ref>, Option<Ref>),
}

/// `e`'s only result as an affine function of argument `slot`, whose type is `d`.
pub(crate) fn affine(e: &Expr, slot: u32, d: DType) -> Option<Affine> {
    let [out] = e.outputs.as_slice() else {
        return None;
    };
    if !d.is_float() {
        return None;
    }
    let mut b = ExprBuilder::new();
    let mut parts: Vec<Part> = Vec::with_capacity(e.insts.len());
    for inst in &e.insts {
        let at = |r: Ref| parts[r as usize];
        let free = |r: Ref| match parts[r as usize] {
            Part::Free(x) => Some(x),
            Part::Linear(..) => None,
        };
        let part = match *inst {
            Inst::Input { slot: s, dtype } if s == slot => {
                if dtype != d {
                    return None;
                }
                Part::Linear(None, None)
            }
            Inst::Index { .. } => return None,
            Inst::Unary(Unary::Neg, a) => match at(a) {
                Part::Free(x) => Part::Free(b.unary(Unary::Neg, x)),
                Part::Linear(s, t) => {
                    let s = match s {
                        Some(s) => b.unary(Unary::Neg, s),
                        None => b.constant(-1.0, d),
                    };
                    Part::Linear(Some(s), t.map(|t| b.unary(Unary::Neg, t)))
                }
            },
            Inst::Binary(f, x, y) => match (f, at(x), at(y)) {
                (f, Part::Free(x), Part::Free(y)) => Part::Free(b.binary(f, x, y)),
                (Binary::Add, Part::Linear(s, t), Part::Free(y))
                | (Binary::Add, Part::Free(y), Part::Linear(s, t)) => {
                    Part::Linear(s, Some(t.map_or(y, |t| b.add(t, y))))
                }
                (Binary::Sub, Part::Linear(s, t), Part::Free(y)) => {
                    let t = match t {
                        Some(t) => b.sub(t, y),
                        None => b.unary(Unary::Neg, y),
                    };
                    Part::Linear(s, Some(t))
                }
                (Binary::Mul, Part::Linear(s, t), Part::Free(y))
                | (Binary::Mul, Part::Free(y), Part::Linear(s, t)) => {
                    let s = s.map_or(y, |s| b.mul(s, y));
                    Part::Linear(Some(s), t.map(|t| b.mul(t, y)))
                }
                (Binary::Div, Part::Linear(s, t), Part::Free(y)) => {
                    let one = b.constant(1.0, d);
                    let s = s.unwrap_or(one);
                    Part::Linear(Some(b.div(s, y)), t.map(|t| b.div(t, y)))
                }
                _ => return None,
            },
            Inst::Unary(f, a) => Part::Free(b.unary(f, free(a)?)),
            Inst::Compare(f, x, y) => Part::Free(b.compare(f, free(x)?, free(y)?)),
            Inst::Select(c, x, y) => Part::Free(b.select(free(c)?, free(x)?, free(y)?)),
            Inst::Cast(a, to) => Part::Free(b.cast(free(a)?, to)),
            ref leaf => Part::Free(b.push(leaf.clone())),
        };
        parts.push(part);
    }
    match parts.get(*out as usize)? {
        Part::Free(_) => None,
        Part::Linear(s, t) => Some(Affine {
            scale: s.map(|s| b.clone().finish(&[s]).simplified()),
            shift: t.map(|t| b.clone().finish(&[t]).simplified()),
        }),
    }
}
