//! Floating-point arithmetic.

use super::{Builder, mods::Mods};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;

/// Format of a type, and whether registers hold two.
pub(crate) fn format(ty: Ty) -> Option<(Fmt, bool)> {
    Some(match ty {
        Ty::F16 => (Fmt::F16, false),
        Ty::BF16 => (Fmt::BF16, false),
        Ty::F16x2 => (Fmt::F16, true),
        Ty::BF16x2 => (Fmt::BF16, true),
        Ty::F32 => (Fmt::F32, false),
        Ty::F64 => (Fmt::F64, false),
        _ => return None,
    })
}

fn class(f: Fmt) -> Class {
    match f {
        Fmt::F16 | Fmt::BF16 => Class::Half,
        Fmt::F32 => Class::Float,
        Fmt::F64 => Class::Double,
    }
}

impl Builder<'_> {
    pub(crate) fn floating(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, PtxError> {
        match m.op() {
            "add" | "sub" | "mul" | "div" | "min" | "max" | "copysign" => {
                if m.see_ty() == Some(Ty::Pred) || m.has("cc") {
                    return Ok(false);
                }
                self.float_two(m, o)?;
            }
            "fma" | "mad" => self.float_fma(m, o)?,
            "neg" | "abs" | "sqrt" | "rsqrt" | "rcp" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => {
                self.float_one(m, o)?;
            }
            "testp" => {
                let test = match m.one_of(&[
                    "finite",
                    "infinite",
                    "number",
                    "notanumber",
                    "normal",
                    "subnormal",
                ]) {
                    Some("finite") => Test::Finite,
                    Some("infinite") => Test::Infinite,
                    Some("number") => Test::Number,
                    Some("notanumber") => Test::NotANumber,
                    Some("normal") => Test::Normal,
                    Some(_) => Test::Subnormal,
                    None => return text(m.line(), "testp does not say what it asks"),
                };
                let ty = m.ty()?;
                self.count(o, &[2])?;
                let Some((f, false)) = format(ty) else {
                    return text(m.line(), "testp is for f32 and f64");
                };
                let Operand::Name(d) = &o[0] else {
                    return text(m.line(), "testp gives a predicate");
                };
                let d = self.pred_dst(d)?;
                let a = self.src(&o[1], ty)?;
                self.emit(Op::Testp(f, test, d, a), Class::Compare);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn float_two(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let mut mode = m.mode();
        // `.approx` and `.full` of div may differ from the nearest by 2 ulp: the nearest is
        // within that.
        let _ = m.take("approx") || m.take("full");
        mode.nan = m.take("NaN");
        mode.abs = m.take("abs");
        mode.xorsign = m.take("xorsign");
        let ty = m.ty()?;
        let Some((f, pair)) = format(ty) else {
            return unsupported(m.line(), format!("'{}'", m.all()));
        };
        if m.first(Ty::parse).is_some() {
            return unsupported(m.line(), format!("two types in '{}'", m.all()));
        }
        let what = match m.op() {
            "add" => F2::Add,
            "sub" => F2::Sub,
            "mul" => F2::Mul,
            "div" => F2::Div,
            "min" => F2::Min,
            "max" => F2::Max,
            _ => F2::Copysign,
        };
        if o.len() == 4 && matches!(what, F2::Min | F2::Max) {
            return unsupported(m.line(), "min and max of three");
        }
        self.count(o, &[3])?;
        let d = self.dst(&o[0], ty)?;
        let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
        let op = match pair {
            true => Op::H2(f, what, mode, d, a, b),
            false => Op::F2(f, what, mode, d, a, b),
        };
        self.emit(op, class(f));
        Ok(())
    }

    fn float_fma(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let mode = m.mode();
        if m.take("oob") {
            return unsupported(m.line(), "fma with .oob");
        }
        let ty = m.ty()?;
        let Some((f, pair)) = format(ty) else {
            return unsupported(m.line(), format!("'{}'", m.all()));
        };
        self.count(o, &[4])?;
        let d = self.dst(&o[0], ty)?;
        let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
        let c = self.src(&o[3], ty)?;
        let op = match pair {
            true => Op::HFma(f, mode, d, a, b, c),
            false => Op::Fma(f, mode, d, a, b, c),
        };
        self.emit(op, class(f));
        Ok(())
    }

    fn float_one(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let mode = m.mode();
        let _ = m.take("approx");
        let ty = m.ty()?;
        let Some((f, pair)) = format(ty) else {
            return unsupported(m.line(), format!("'{}'", m.all()));
        };
        let what = match m.op() {
            "neg" => F1::Neg,
            "abs" => F1::Abs,
            "sqrt" => F1::Sqrt,
            "rsqrt" => F1::Rsqrt,
            "rcp" => F1::Rcp,
            "ex2" => F1::Ex2,
            "lg2" => F1::Lg2,
            "sin" => F1::Sin,
            "cos" => F1::Cos,
            _ => F1::Tanh,
        };
        self.count(o, &[2])?;
        let d = self.dst(&o[0], ty)?;
        let a = self.src(&o[1], ty)?;
        let class = match what {
            F1::Neg | F1::Abs => class(f),
            _ => Class::Special,
        };
        let op = match pair {
            true => Op::H1(f, what, mode, d, a),
            false => Op::F1(f, what, mode, d, a),
        };
        self.emit(op, class);
        Ok(())
    }
}
