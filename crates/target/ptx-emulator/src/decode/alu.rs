//! Integers and bits.

use super::{Builder, mods::Mods, operand::width};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;

impl Builder<'_> {
    pub(crate) fn alu(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, PtxError> {
        let float = m.see_ty().is_some_and(Ty::float);
        match m.op() {
            "add" | "sub" | "mul" | "mad" | "div" | "min" | "max" | "neg" | "abs" if float => {
                return Ok(false);
            }
            "add" | "sub" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" => {
                if m.see_ty() == Some(Ty::Pred) {
                    return Ok(false);
                }
                self.two(m, o)?;
            }
            "shl" | "shr" => self.shift(m, o)?,
            "mul" | "mul24" => self.mul(m, o)?,
            "mad" | "mad24" => self.mad(m, o)?,
            "not" | "neg" | "abs" | "cnot" | "popc" | "clz" | "brev" | "bfind" => {
                if m.see_ty() == Some(Ty::Pred) {
                    return Ok(false);
                }
                self.one(m, o)?;
            }
            "addc" | "subc" => {
                let out = m.take("cc");
                self.carry(m, o, true, out)?;
            }
            "madc" => self.mad_carry(m, o, true)?,
            "sad" => {
                let ty = m.ty()?;
                let f = if ty.signed() { I3::SadS } else { I3::SadU };
                self.three(o, ty, [ty; 3], f)?;
            }
            "bfe" => self.bfe(m, o)?,
            "bfi" => {
                let ty = m.ty()?;
                self.count(o, &[5])?;
                let d = self.dst(&o[0], ty)?;
                let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
                let (p, n) = (self.src(&o[3], Ty::U32)?, self.src(&o[4], Ty::U32)?);
                self.emit(Op::Bfi(width(ty), d, a, b, p, n), Class::Integer);
            }
            "lop3" => self.lop3(m, o)?,
            "prmt" => {
                m.ty()?;
                let mode = match m.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
                    Some("f4e") => Prmt::F4e,
                    Some("b4e") => Prmt::B4e,
                    Some("rc8") => Prmt::Rc8,
                    Some("ecl") => Prmt::Ecl,
                    Some("ecr") => Prmt::Ecr,
                    Some(_) => Prmt::Rc16,
                    None => Prmt::Index,
                };
                self.three(o, Ty::B32, [Ty::B32; 3], I3::Prmt(mode))?;
            }
            "shf" => {
                let f = match (m.one_of(&["l", "r"]), m.one_of(&["wrap", "clamp"])) {
                    (Some("l"), Some("wrap")) => I3::ShfLeftWrap,
                    (Some("l"), Some(_)) => I3::ShfLeftClamp,
                    (Some(_), Some("wrap")) => I3::ShfRightWrap,
                    (Some(_), Some(_)) => I3::ShfRightClamp,
                    _ => return text(m.line(), "shf needs .l or .r and .wrap or .clamp"),
                };
                m.ty()?;
                self.three(o, Ty::B32, [Ty::B32, Ty::B32, Ty::U32], f)?;
            }
            "dp4a" => {
                let (a, b) = (m.ty()?, m.ty()?);
                let f = I3::Dp4a(a.signed(), b.signed());
                self.three(o, Ty::B32, [Ty::B32; 3], f)?;
            }
            "slct" => {
                let (ty, c) = (m.ty()?, m.ty()?);
                if c.float() {
                    return Ok(false);
                }
                self.count(o, &[4])?;
                let d = self.dst(&o[0], ty)?;
                let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
                let c = self.src(&o[3], Ty::S32)?;
                self.emit(Op::I3(width(ty), I3::Slct, d, a, b, c), Class::Compare);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn two(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let carry = m.take("cc");
        if carry {
            return self.carry(m, o, false, true);
        }
        let ty = m.ty()?;
        let s = ty.signed();
        let f = match m.op() {
            "add" if m.take("sat") => I2::AddSat,
            "sub" if m.take("sat") => I2::SubSat,
            "add" => I2::Add,
            "sub" => I2::Sub,
            "div" if s => I2::DivS,
            "div" => I2::DivU,
            "rem" if s => I2::RemS,
            "rem" => I2::RemU,
            "min" if s => I2::MinS,
            "min" => I2::MinU,
            "max" if s => I2::MaxS,
            "max" => I2::MaxU,
            "and" => I2::And,
            "or" => I2::Or,
            _ => I2::Xor,
        };
        if matches!(f, I2::MinS | I2::MaxS) && m.has("relu") {
            return unsupported(m.line(), "min and max with .relu");
        }
        self.count(o, &[3])?;
        let d = self.dst(&o[0], ty)?;
        let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
        if matches!(ty, Ty::U16x2 | Ty::S16x2) {
            self.emit(Op::Pair16(f, d, a, b), Class::Integer);
        } else {
            self.emit(Op::I2(width(ty), f, d, a, b), Class::Integer);
        }
        Ok(())
    }

    fn carry(
        &mut self,
        m: &mut Mods<'_>,
        o: &[Operand],
        cin: bool,
        cout: bool,
    ) -> Result<(), PtxError> {
        let sub = m.op().starts_with("sub");
        let ty = m.ty()?;
        self.count(o, &[3])?;
        let d = self.dst(&o[0], ty)?;
        let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
        self.emit(
            Op::Carry(sub, cin, cout, width(ty), d, a, b),
            Class::Integer,
        );
        Ok(())
    }

    fn shift(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let ty = m.ty()?;
        let f = match (m.op(), ty.signed()) {
            ("shl", _) => I2::Shl,
            (_, true) => I2::ShrS,
            _ => I2::ShrU,
        };
        self.count(o, &[3])?;
        let d = self.dst(&o[0], ty)?;
        let a = self.src(&o[1], ty)?;
        let b = self.src(&o[2], Ty::U32)?;
        let op = match width(ty) {
            Width::W64 => Op::Shift64(f, d, a, b),
            w => Op::I2(w, f, d, a, b),
        };
        self.emit(op, Class::Integer);
        Ok(())
    }

    fn mul(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let short = m.op() == "mul24";
        let part = m.one_of(&["lo", "hi", "wide"]);
        let ty = m.ty()?;
        self.count(o, &[3])?;
        let s = ty.signed();
        if part == Some("wide") {
            let wide = if ty.bytes() == 2 { Ty::B32 } else { Ty::B64 };
            if ty.bytes() == 8 {
                return text(m.line(), "mul.wide of 64-bit numbers");
            }
            let d = self.dst(&o[0], wide)?;
            let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
            self.emit(Op::MulWide(s, width(ty), d, a, b), Class::Integer);
            return Ok(());
        }
        let f = match (short, part, s) {
            (true, Some("hi"), true) => I2::Mul24HiS,
            (true, Some("hi"), false) => I2::Mul24HiU,
            (true, _, true) => I2::Mul24S,
            (true, _, false) => I2::Mul24U,
            (_, Some("hi"), true) => I2::MulHiS,
            (_, Some("hi"), false) => I2::MulHiU,
            (_, Some(_), _) => I2::Mul,
            _ => return text(m.line(), "mul of integers needs .lo, .hi or .wide"),
        };
        let d = self.dst(&o[0], ty)?;
        let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
        self.emit(Op::I2(width(ty), f, d, a, b), Class::Integer);
        Ok(())
    }

    fn mad(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        if m.has("cc") {
            return self.mad_carry(m, o, false);
        }
        let short = m.op() == "mad24";
        let part = m.one_of(&["lo", "hi", "wide"]);
        let sat = m.take("sat");
        let ty = m.ty()?;
        let s = ty.signed();
        if part == Some("wide") {
            if ty.bytes() == 8 {
                return text(m.line(), "mad.wide of 64-bit numbers");
            }
            self.count(o, &[4])?;
            let wide = if ty.bytes() == 2 { Ty::B32 } else { Ty::B64 };
            let d = self.dst(&o[0], wide)?;
            let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
            let c = self.src(&o[3], wide)?;
            self.emit(Op::MadWide(s, width(ty), d, a, b, c), Class::Integer);
            return Ok(());
        }
        let f = match (short, part, s) {
            (true, Some("hi"), _) => return unsupported(m.line(), "mad24.hi"),
            (true, _, true) => I3::Mad24S,
            (true, _, false) => I3::Mad24U,
            (_, Some("hi"), true) if sat => I3::MadHiSat,
            (_, Some("hi"), true) => I3::MadHiS,
            (_, Some("hi"), false) => I3::MadHiU,
            (_, Some(_), _) => I3::MadLo,
            _ => return text(m.line(), "mad of integers needs .lo, .hi or .wide"),
        };
        self.three(o, ty, [ty; 3], f)
    }

    fn mad_carry(&mut self, m: &mut Mods<'_>, o: &[Operand], cin: bool) -> Result<(), PtxError> {
        let high = m.one_of(&["lo", "hi"]) == Some("hi");
        let cout = m.take("cc");
        let ty = m.ty()?;
        if ty.bytes() != 4 {
            return unsupported(m.line(), "mad with carry of other than 32 bits");
        }
        self.count(o, &[4])?;
        let d = self.dst(&o[0], ty)?;
        let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
        let c = self.src(&o[3], ty)?;
        self.emit(
            Op::MadCarry(high, ty.signed(), cin, cout, d, a, b, c),
            Class::Integer,
        );
        Ok(())
    }

    fn three(&mut self, o: &[Operand], d: Ty, s: [Ty; 3], f: I3) -> Result<(), PtxError> {
        self.count(o, &[4])?;
        let w = width(d);
        let d = self.dst(&o[0], d)?;
        let (a, b) = (self.src(&o[1], s[0])?, self.src(&o[2], s[1])?);
        let c = self.src(&o[3], s[2])?;
        self.emit(Op::I3(w, f, d, a, b, c), Class::Integer);
        Ok(())
    }

    fn bfe(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let ty = m.ty()?;
        self.count(o, &[4])?;
        let d = self.dst(&o[0], ty)?;
        let a = self.src(&o[1], ty)?;
        let (p, n) = (self.src(&o[2], Ty::U32)?, self.src(&o[3], Ty::U32)?);
        let s = ty.signed();
        let op = match width(ty) {
            Width::W64 => Op::Bfe64(s, d, a, p, n),
            w => Op::I3(w, if s { I3::BfeS } else { I3::BfeU }, d, a, p, n),
        };
        self.emit(op, Class::Integer);
        Ok(())
    }

    fn lop3(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        m.ty()?;
        self.count(o, &[5])?;
        match &o[4] {
            Operand::Imm(Imm::Int(lut)) => {
                let lut = *lut as u8;
                self.three(&o[..4], Ty::B32, [Ty::B32; 3], I3::Lop3(lut))
            }
            _ => text(m.line(), "lop3 needs its table as a number"),
        }
    }

    fn one(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let amount = m.take("shiftamt");
        let ty = m.ty()?;
        let f = match (m.op(), ty.signed(), amount) {
            ("not", ..) => I1::Not,
            ("neg", ..) => I1::Neg,
            ("abs", ..) => I1::Abs,
            ("cnot", ..) => I1::Cnot,
            ("popc", ..) => I1::Popc,
            ("clz", ..) => I1::Clz,
            ("brev", ..) => I1::Brev,
            (_, true, true) => I1::FindShiftS,
            (_, false, true) => I1::FindShiftU,
            (_, true, _) => I1::FindS,
            _ => I1::FindU,
        };
        self.count(o, &[2])?;
        let counts = !matches!(f, I1::Not | I1::Neg | I1::Abs | I1::Cnot | I1::Brev);
        let d = self.dst(&o[0], if counts { Ty::U32 } else { ty })?;
        let a = self.src(&o[1], ty)?;
        self.emit(Op::I1(width(ty), f, d, a), Class::Integer);
        Ok(())
    }
}
