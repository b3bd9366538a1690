//! The softmax in the program of the weights.
use super::walk::{Slot, Walk};
use expr::{Binary, Compare, Expr, ExprBuilder, Inst, Ref, Unary};
use graph::Undefined;

pub(super) struct Found {
    /// What enters the softmax, a program of the walk's slots.
    pub score: Expr,
    /// What stands for weights that are NaN.
    pub undefined: Undefined,
}

struct Program {
    insts: Vec<Inst>,
}

impl Program {
    fn at(&self, r: Ref) -> &Inst {
        &self.insts[r as usize]
    }

    /// `r` without conversions between float types around it.
    fn bare(&self, mut r: Ref) -> Ref {
        while let Inst::Cast(a, d) = self.at(r) {
            if !d.is_float() {
                break;
            }
            r = *a;
        }
        r
    }

    fn is(&self, r: Ref, x: f64) -> bool {
        matches!(self.at(r), Inst::Float { bits, .. } if f64::from_bits(*bits) == x)
    }

    /// The weights at `r` without a choice of 0 for those that are NaN; with it, where the choice is
    /// made by the scores' maximum being -inf, that maximum.
    fn unguarded(&self, r: Ref) -> Option<(Ref, Undefined, Option<Ref>)> {
        let Inst::Select(mut c, mut yes, mut no) = *self.at(r) else {
            return Some((r, Undefined::Nan, None));
        };
        if let Inst::Unary(Unary::Not, a) = *self.at(c) {
            (c, yes, no) = (a, no, yes);
        }
        let (weights, none) = (self.bare(no), f64::NEG_INFINITY);
        if !self.is(yes, 0.0) {
            return None;
        }
        match *self.at(c) {
            Inst::Unary(Unary::IsNan, a) if self.bare(a) == weights => {
                Some((weights, Undefined::Zero, None))
            }
            Inst::Compare(Compare::Eq, a, b) if self.is(b, none) => {
                Some((weights, Undefined::ZeroUnseen, Some(a)))
            }
            Inst::Compare(Compare::Eq, a, b) if self.is(a, none) => {
                Some((weights, Undefined::ZeroUnseen, Some(b)))
            }
            _ => None,
        }
    }
}

/// `exp(score - max(score)) / sum(exp(score - max(score)))`, with or without the maximum.
pub(super) fn softmax(w: &mut Walk, root: Ref) -> Result<Found, String> {
    // One program holds the weights and the reductions' arguments, so that equal parts are one
    // instruction.
    let mut outs = vec![root];
    let mut lifted_at = vec![None; w.slots.len()];
    for (i, s) in w.slots.iter().enumerate() {
        if let Slot::Reduced(_, lifted) = s {
            lifted_at[i] = Some(outs.len());
            outs.push(*lifted);
        }
    }
    let all = w.b.clone().finish(&outs);
    let p = Program { insts: all.insts };
    let reduced = |r: Ref, f: Binary| -> Option<Ref> {
        let Inst::Input { slot, .. } = p.at(p.bare(r)) else {
            return None;
        };
        match w.slots[*slot as usize] {
            Slot::Reduced(g, _) if g == f => {
                lifted_at[*slot as usize].map(|o| p.bare(all.outputs[o]))
            }
            _ => None,
        }
    };
    let (r, undefined, guard) = p
        .unguarded(p.bare(all.outputs[0]))
        .ok_or("a choice stands after the softmax")?;
    let (num, den) = match *p.at(r) {
        Inst::Binary(Binary::Div, a, b) => (a, b),
        Inst::Binary(Binary::Mul, a, b) => match (p.at(p.bare(a)), p.at(p.bare(b))) {
            (_, Inst::Unary(Unary::Reciprocal, s)) => (a, *s),
            (Inst::Unary(Unary::Reciprocal, s), _) => (b, *s),
            _ => return Err("the weights are no quotient".into()),
        },
        _ => return Err("the weights are no quotient".into()),
    };
    let num = p.bare(num);
    let summed = reduced(den, Binary::Add).ok_or("the divisor is no sum")?;
    if summed != num {
        return Err("the divisor does not sum what is divided".into());
    }
    let Inst::Unary(Unary::Exp, z) = *p.at(num) else {
        return Err("what is divided is no exponential".into());
    };
    let z = p.bare(z);
    let score = match *p.at(z) {
        Inst::Binary(Binary::Sub, x, m) => match reduced(m, Binary::Max) {
            Some(largest) if largest == p.bare(x) => x,
            Some(_) => return Err("the maximum is not that of the scores".into()),
            None => z,
        },
        _ => z,
    };
    if let Some(max) = guard
        && reduced(max, Binary::Max) != Some(p.bare(score))
    {
        return Err("a choice stands after the softmax".into());
    }
    let whole = Expr {
        insts: p.insts,
        outputs: vec![score],
    };
    // Inlining into an empty program drops what the score does not need.
    let mut b = ExprBuilder::new();
    let out = b.append(&whole, None);
    Ok(Found {
        score: b.finish(&out),
        undefined,
    })
}
