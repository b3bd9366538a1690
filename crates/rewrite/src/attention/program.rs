//! The softmax in the program of the weights.
use super::walk::{Slot, Walk};
use expr::{Binary, Expr, ExprBuilder, Inst, Ref, Unary};

pub(super) struct Found {
    /// What enters the softmax, a program of the walk's slots.
    pub score: Expr,
    /// NaN weights are replaced by 0.
    pub guarded: bool,
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

    fn is_zero(&self, r: Ref) -> bool {
        matches!(self.at(r), Inst::Float { bits, .. } if f64::from_bits(*bits) == 0.0)
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
    let mut r = p.bare(all.outputs[0]);
    let mut guarded = false;
    if let Inst::Select(c, yes, no) = *p.at(r) {
        let (nan_of, zero, x) = match *p.at(c) {
            Inst::Unary(Unary::IsNan, a) => (a, yes, no),
            Inst::Unary(Unary::Not, a) => match *p.at(a) {
                Inst::Unary(Unary::IsNan, a) => (a, no, yes),
                _ => return Err("a choice stands after the softmax".into()),
            },
            _ => return Err("a choice stands after the softmax".into()),
        };
        if p.bare(nan_of) != p.bare(x) || !p.is_zero(zero) {
            return Err("a choice stands after the softmax".into());
        }
        guarded = true;
        r = p.bare(x);
    }
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
    let whole = Expr {
        insts: p.insts,
        outputs: vec![score],
    };
    // Inlining into an empty program drops what the score does not need.
    let mut b = ExprBuilder::new();
    let mut args: Vec<Ref> = Vec::new();
    let mut dtypes = vec![None; w.slots.len()];
    for i in &whole.insts {
        if let Inst::Input { slot, dtype } = i {
            dtypes[*slot as usize] = Some(*dtype);
        }
    }
    for (i, d) in dtypes.iter().enumerate() {
        args.push(match d {
            Some(d) => b.input(i as u32, *d),
            None => 0,
        });
    }
    let out = b.inline(&whole, &args, None);
    Ok(Found {
        score: b.finish(&out),
        guarded,
    })
}
