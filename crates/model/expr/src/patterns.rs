//! Programs that targets know a shorter form of.
use crate::build::ExprBuilder;
use crate::expr::{Binary, Compare, Expr, Inst, Ref, Unary};
use layout::DType;

/// `x` and `m` where `r` is `x == -inf ? 0 : exp(x - m)`, as the weights of a softmax are, with all values of one type.
pub fn shifted_exp(insts: &[Inst], r: Ref) -> Option<(Ref, Ref)> {
    let at = |r: Ref| insts.get(r as usize);
    let exact = |r: Ref, v: f64| matches!(at(r), Some(Inst::Float { bits, .. }) if f64::from_bits(*bits) == v);
    let Inst::Select(masked, zero, weight) = *at(r)? else {
        return None;
    };
    let Inst::Compare(Compare::Eq, x, none) = *at(masked)? else {
        return None;
    };
    let Inst::Unary(Unary::Exp, d) = *at(weight)? else {
        return None;
    };
    let Inst::Binary(Binary::Sub, y, m) = *at(d)? else {
        return None;
    };
    (x == y && exact(none, f64::NEG_INFINITY) && exact(zero, 0.0)).then_some((x, m))
}

/// `x` and `y` where `r` is `x == y ? 1 : exp(x - y)`, as the factors of a softmax are whose maximum changes.
pub fn changed_exp(insts: &[Inst], r: Ref) -> Option<(Ref, Ref)> {
    let at = |r: Ref| insts.get(r as usize);
    let Inst::Select(same, one, factor) = *at(r)? else {
        return None;
    };
    let (Inst::Compare(Compare::Eq, x, y), Inst::Unary(Unary::Exp, d)) = (at(same)?, at(factor)?)
    else {
        return None;
    };
    let shifted = matches!(at(*d)?, Inst::Binary(Binary::Sub, p, q) if (p, q) == (x, y));
    let unit = matches!(at(one)?, Inst::Float { bits, .. } if f64::from_bits(*bits) == 1.0);
    (shifted && unit).then_some((*x, *y))
}

impl Expr {
    /// The program with argument `wide` given in f32 and what it gives in f32, where all that it does with floats of 16
    /// bits is to multiply, divide and choose: nothing is rounded to them on the way. `None` where it does more: a sum
    /// with a mask's least number, say, is another one when it is rounded.
    pub fn unrounded(&self, wide: u32) -> Option<Expr> {
        let types = self.types().ok()?;
        let narrow = |r: Ref| matches!(types.get(r as usize), Some(DType::F16 | DType::BF16));
        let mut b = ExprBuilder::new();
        let mut to: Vec<Ref> = Vec::with_capacity(self.insts.len());
        for (n, inst) in (0..).zip(&self.insts) {
            let at = |r: Ref| to[r as usize];
            let touches = narrow(n) || inst.args().any(narrow);
            let new = match *inst {
                Inst::Input { slot, .. } if slot == wide => b.input(slot, DType::F32),
                Inst::Input { slot, dtype } if narrow(n) => {
                    let x = b.input(slot, dtype);
                    b.cast(x, DType::F32)
                }
                Inst::Float { bits, .. } if narrow(n) => {
                    b.constant(f64::from_bits(bits), DType::F32)
                }
                Inst::Unary(f @ Unary::Neg, x) => b.unary(f, at(x)),
                Inst::Binary(f @ (Binary::Mul | Binary::Div), x, y) => b.binary(f, at(x), at(y)),
                Inst::Select(c, x, y) => b.select(at(c), at(x), at(y)),
                Inst::Cast(x, DType::F16 | DType::BF16 | DType::F32)
                    if narrow(x) || types[x as usize] == DType::F32 =>
                {
                    at(x)
                }
                _ if touches => return None,
                Inst::Unary(f, x) => b.unary(f, at(x)),
                Inst::Binary(f, x, y) => b.binary(f, at(x), at(y)),
                Inst::Compare(f, x, y) => b.compare(f, at(x), at(y)),
                Inst::Cast(x, d) => b.cast(at(x), d),
                ref free => b.push(free.clone()),
            };
            to.push(new);
        }
        let outputs: Vec<Ref> = self.outputs.iter().map(|&o| to[o as usize]).collect();
        Some(b.finish(&outputs))
    }
}
