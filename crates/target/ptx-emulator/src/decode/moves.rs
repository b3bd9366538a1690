//! Moves, comparisons, selections and conversions.

use super::{Builder, float::format, mods::Mods, operand::width};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;

impl Builder<'_> {
    pub(crate) fn moving(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, PtxError> {
        match m.op() {
            "mov" => self.mov(m, o)?,
            "setp" => self.setp(m, o)?,
            "set" => self.set(m, o)?,
            "selp" => {
                let ty = m.ty()?;
                self.count(o, &[4])?;
                let d = self.dst(&o[0], ty)?;
                let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
                let (p, negated) = self.pred_src(&o[3])?;
                self.emit(Op::Selp(width(ty), d, a, b, p, negated), Class::Compare);
            }
            "slct" => return unsupported(m.line(), "slct by a floating-point number"),
            "and" | "or" | "xor" | "not" => {
                m.ty()?;
                let logic = match m.op() {
                    "and" => Logic::And,
                    "or" => Logic::Or,
                    _ => Logic::Xor,
                };
                let Some(Operand::Name(d)) = o.first() else {
                    return text(m.line(), "a predicate is wanted as destination");
                };
                let not = m.op() == "not";
                self.count(o, if not { &[2] } else { &[3] })?;
                let d = self.pred_dst(d)?;
                let (a, na) = self.pred_src(&o[1])?;
                // not p = p xor true
                let (b, nb) = if not {
                    (CONST, false)
                } else {
                    self.pred_src(&o[2])?
                };
                self.emit(Op::Pred(logic, d, a, na, b, nb), Class::Compare);
            }
            "cvt" => self.cvt(m, o)?,
            "cvta" => {
                let to = m.take("to");
                let Some(space) = m.first(space) else {
                    return text(m.line(), "cvta needs a state space");
                };
                let ty = m.ty()?;
                self.count(o, &[2])?;
                let d = self.dst(&o[0], ty)?;
                let a = self.src(&o[1], ty)?;
                let w = width(ty);
                self.emit(Op::Cvta(!to, space, w, w, d, a), Class::Integer);
            }
            "isspacep" => {
                let Some(space) = m.first(space) else {
                    return text(m.line(), "isspacep needs a state space");
                };
                self.count(o, &[2])?;
                let Operand::Name(d) = &o[0] else {
                    return text(m.line(), "isspacep gives a predicate");
                };
                let d = self.pred_dst(d)?;
                let (w, a) = self.wide_src(&o[1], Ty::U32)?;
                self.emit(Op::IsSpace(space, d, w, a), Class::Compare);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn mov(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let ty = m.ty()?;
        self.count(o, &[2])?;
        let w = width(ty);
        match (&o[0], &o[1]) {
            (Operand::Vector(d), a) => {
                let part = part(ty, d.len(), m.line())?;
                let a = self.src(a, ty)?;
                let mut pieces = Vec::new();
                for p in d {
                    pieces.push((width(part), self.dst(p, part)?));
                }
                self.emit(Op::Pack(Box::new((false, (w, a), pieces))), Class::Move);
            }
            (d, Operand::Vector(s)) => {
                let part = part(ty, s.len(), m.line())?;
                let mut pieces = Vec::new();
                for p in s {
                    pieces.push((width(part), self.src(p, part)?));
                }
                let d = self.dst(d, ty)?;
                self.emit(Op::Pack(Box::new((true, (w, d), pieces))), Class::Move);
            }
            (d, a) if ty == Ty::Pred => {
                let Operand::Name(d) = d else {
                    return text(m.line(), "a predicate is wanted as destination");
                };
                let d = self.pred_dst(d)?;
                let (a, negated) = self.pred_src(a)?;
                self.emit(
                    Op::Pred(Logic::And, d, a, negated, CONST, false),
                    Class::Move,
                );
            }
            (d, Operand::Name(n)) if self.ast.functions.iter().any(|f| f.name == *n) => {
                let _ = d;
                return unsupported(m.line(), format!("the address of function '{n}'"));
            }
            (d, a) => {
                // Variables of 32-bit spaces may be taken into 32-bit registers; clocks of 64 bits
                // into registers of 32 take their low half.
                if let Operand::Name(n) = a
                    && let Some((have, row)) = self.register(n)?
                    && have != w
                    && n.starts_with('%')
                    && self.find(n).is_none()
                {
                    self.read(have, row);
                    let d = self.dst(d, ty)?;
                    let from = if have == Width::W64 { Ty::U64 } else { Ty::U32 };
                    self.emit(
                        Op::Cvt(Cvt {
                            to: ty,
                            from,
                            integer: false,
                            mode: Mode::default(),
                            d,
                            a: row,
                            d_width: w,
                            a_width: have,
                        }),
                        Class::Move,
                    );
                    return Ok(());
                }
                let a = self.src(a, ty)?;
                let d = self.dst(d, ty)?;
                self.emit(Op::Mov(w, d, a), Class::Move);
            }
        }
        Ok(())
    }

    fn combination(
        &mut self,
        m: &mut Mods<'_>,
        o: Option<&Operand>,
    ) -> Result<Option<(Logic, R, bool)>, PtxError> {
        let logic = match m.one_of(&["and", "or", "xor"]) {
            Some("and") => Logic::And,
            Some("or") => Logic::Or,
            Some(_) => Logic::Xor,
            None => return Ok(None),
        };
        match o {
            Some(o) => {
                let (p, negated) = self.pred_src(o)?;
                Ok(Some((logic, p, negated)))
            }
            None => text(m.line(), "the predicate to combine with is missing"),
        }
    }

    fn compare(&self, m: &mut Mods<'_>) -> Result<Cmp, PtxError> {
        let unsigned = m.see_ty().is_some_and(|t| !t.signed() && !t.float());
        let c = m.one_of(&[
            "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu",
            "gtu", "geu", "num", "nan",
        ]);
        Ok(match c {
            Some("eq") => Cmp::Eq,
            Some("ne") => Cmp::Ne,
            Some("lt") => Cmp::Lt,
            Some("le") => Cmp::Le,
            Some("gt") => Cmp::Gt,
            Some("ge") => Cmp::Ge,
            Some("lo") if unsigned => Cmp::Lt,
            Some("ls") if unsigned => Cmp::Le,
            Some("hi") if unsigned => Cmp::Gt,
            Some("hs") if unsigned => Cmp::Ge,
            Some("equ") => Cmp::Equ,
            Some("neu") => Cmp::Neu,
            Some("ltu") => Cmp::Ltu,
            Some("leu") => Cmp::Leu,
            Some("gtu") => Cmp::Gtu,
            Some("geu") => Cmp::Geu,
            Some("num") => Cmp::Num,
            Some("nan") => Cmp::Nan,
            _ => {
                return text(
                    m.line(),
                    format!("'{}' lacks a comparison that fits", m.all()),
                );
            }
        })
    }

    fn setp(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let cmp = self.compare(m)?;
        let ftz = m.take("ftz");
        let with = self.combination(m, o.get(3))?;
        let ty = m.ty()?;
        self.count(o, if with.is_some() { &[4] } else { &[3] })?;
        let (p, q) = match &o[0] {
            Operand::Name(p) => (self.pred_dst(p)?, SINK),
            Operand::Pair(p, q) => (self.pred_dst(p)?, self.pred_dst(q)?),
            _ => return text(m.line(), "setp gives predicates"),
        };
        let (a, b) = (self.src(&o[1], ty)?, self.src(&o[2], ty)?);
        self.emit(Op::Setp(ty, cmp, ftz, p, q, a, b, with), Class::Compare);
        Ok(())
    }

    fn set(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        // The unsigned comparisons are about the second type.
        let cmp = match m.one_of(&["lo", "ls", "hi", "hs"]) {
            Some("lo") => Cmp::Lt,
            Some("ls") => Cmp::Le,
            Some("hi") => Cmp::Gt,
            Some(_) => Cmp::Ge,
            None => self.compare(m)?,
        };
        let ftz = m.take("ftz");
        let with = self.combination(m, o.get(3))?;
        let (to, from) = (m.ty()?, m.ty()?);
        if matches!(from, Ty::F16x2 | Ty::BF16x2) {
            return unsupported(m.line(), "set of pairs of halves");
        }
        self.count(o, if with.is_some() { &[4] } else { &[3] })?;
        let d = self.dst(&o[0], to)?;
        let (a, b) = (self.src(&o[1], from)?, self.src(&o[2], from)?);
        self.emit(
            Op::Set(Box::new(SetOp {
                from,
                to,
                cmp,
                ftz,
                d,
                a,
                b,
                with,
            })),
            Class::Compare,
        );
        Ok(())
    }

    fn cvt(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let integral = m.one_of(&["rni", "rzi", "rmi", "rpi"]);
        let mut mode = m.mode();
        if let Some(r) = integral {
            mode.rnd = match r {
                "rni" => Rnd::Near,
                "rzi" => Rnd::Zero,
                "rmi" => Rnd::Down,
                _ => Rnd::Up,
            };
        }
        let (to, from) = (m.ty()?, m.ty()?);
        if let (Some((f, true)), Ty::F32) = (format(to), from) {
            self.count(o, &[3])?;
            let d = self.dst(&o[0], to)?;
            let (high, low) = (self.src(&o[1], Ty::F32)?, self.src(&o[2], Ty::F32)?);
            self.emit(Op::CvtPair(f, mode, d, high, low), Class::Convert);
            return Ok(());
        }
        let pairs = |t| matches!(t, Ty::F16x2 | Ty::BF16x2 | Ty::U16x2 | Ty::S16x2 | Ty::Pred);
        if pairs(to) || pairs(from) || from == Ty::TF32 {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        self.count(o, &[2])?;
        let (a_width, a) = self.wide_src(&o[1], from)?;
        let (d_width, d) = self.wide_dst(&o[0], to)?;
        self.emit(
            Op::Cvt(Cvt {
                to,
                from,
                integer: integral.is_some(),
                mode,
                d,
                a,
                d_width,
                a_width,
            }),
            Class::Convert,
        );
        Ok(())
    }
}

fn part(ty: Ty, n: usize, line: u32) -> Result<Ty, PtxError> {
    match (ty.bytes() as usize).checked_div(n) {
        Some(1) => Ok(Ty::B8),
        Some(2) => Ok(Ty::B16),
        Some(4) => Ok(Ty::B32),
        _ => text(line, format!("{n} parts do not make such a register")),
    }
}

/// The space that a modifier names.
pub(crate) fn space(name: &str) -> Option<Space> {
    Some(match name {
        "global" => Space::Global,
        "shared" | "shared::cta" | "shared::cluster" => Space::Shared,
        "local" => Space::Local,
        "const" => Space::Const,
        "param" | "param::entry" | "param::func" => Space::Param,
        _ => return None,
    })
}
