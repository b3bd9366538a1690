//! `wgmma`: products of warpgroups.

use super::{Builder, mods::Mods};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;
use crate::sm90::{FactorA, Sm90, Wgmma};

/// N and K of a shape such as `m64n128k16`.
fn shape(part: &str) -> Option<(u32, u32)> {
    let (n, k) = part.strip_prefix("m64n")?.split_once('k')?;
    Some((n.parse().ok()?, k.parse().ok()?))
}

impl Builder<'_> {
    pub(crate) fn sm90(&mut self, op: Sm90, class: Class) {
        self.emit(Op::Sm90(Box::new(op)), class);
    }

    /// Instructions that only the architecture's own target has.
    pub(crate) fn only_sm_90a(&self, m: &Mods<'_>) -> Result<(), PtxError> {
        match self.ast.target.as_str() {
            "sm_90a" => Ok(()),
            t => text(
                m.line(),
                format!("'{}' needs .target sm_90a, not {t}", m.all()),
            ),
        }
    }

    pub(crate) fn wgmma(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        self.only_sm_90a(m)?;
        let what = m.one_of(&["fence", "commit_group", "wait_group", "mma_async"]);
        if !m.take("sync") || !m.take("aligned") {
            return text(m.line(), format!("'{}' lacks .sync.aligned", m.all()));
        }
        match what {
            Some("fence") => {
                self.count(o, &[0])?;
                self.sm90(Sm90::WgmmaFence, Class::Fence);
            }
            Some("commit_group") => {
                self.count(o, &[0])?;
                self.sm90(Sm90::WgmmaCommit, Class::Async);
            }
            Some("wait_group") => {
                self.count(o, &[1])?;
                let Operand::Imm(Imm::Int(n @ 0..=7)) = o[0] else {
                    return text(m.line(), "wgmma.wait_group takes a number from 0 to 7");
                };
                self.sm90(Sm90::WgmmaWait(n as u32), Class::Async);
            }
            Some(_) => self.wgmma_product(m, o)?,
            None => return unsupported(m.line(), format!("'{}'", m.all())),
        }
        Ok(())
    }

    fn wgmma_product(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        if m.has("sp") {
            return unsupported(m.line(), "sparse wgmma");
        }
        let Some((n, k)) = m.first(shape) else {
            return text(m.line(), format!("'{}' lacks a shape", m.all()));
        };
        let sat = m.take("satfinite");
        let mut types = [Ty::Pred; 3];
        for t in &mut types {
            match m.first(Ty::parse) {
                Some(ty) => *t = ty,
                None => return unsupported(m.line(), format!("'{}'", m.all())),
            }
        }
        let [d_ty, a, b] = types;
        let (a_ty, b_ty) = match (a, b) {
            (Ty::F16, Ty::F16) => (MmaTy::F16, MmaTy::F16),
            (Ty::BF16, Ty::BF16) => (MmaTy::BF16, MmaTy::BF16),
            (Ty::TF32, Ty::TF32) => (MmaTy::TF32, MmaTy::TF32),
            (Ty::S8 | Ty::U8, Ty::S8 | Ty::U8) => {
                let of = |t| if t == Ty::S8 { MmaTy::S8 } else { MmaTy::U8 };
                (of(a), of(b))
            }
            _ => return unsupported(m.line(), format!("'{}'", m.all())),
        };
        if a != b && self.ast.version < (8, 4) {
            let (major, minor) = self.ast.version;
            return text(
                m.line(),
                format!("'{}' needs .version 8.4, not {major}.{minor}", m.all()),
            );
        }
        let integer = matches!(a_ty, MmaTy::S8 | MmaTy::U8);
        let d_half = d_ty == Ty::F16;
        let deep = match a_ty {
            MmaTy::TF32 => 8,
            MmaTy::S8 | MmaTy::U8 => 32,
            _ => 16,
        };
        // Integers have fewer widths.
        let step = if integer && n > 32 { 16 } else { 8 };
        let wide = (8..=256).contains(&n) && n % step == 0;
        let sums = match integer {
            true => d_ty == Ty::S32,
            false => d_ty == Ty::F32 || (d_half && a_ty == MmaTy::F16),
        };
        if k != deep || !wide || !sums || (sat && !integer) {
            return text(m.line(), format!("'{}' is no form of wgmma", m.all()));
        }
        let mut w = Wgmma {
            n,
            k,
            a_ty,
            b_ty,
            d_half,
            sat,
            d: Vec::new(),
            a: FactorA::Descriptor(SINK),
            b: SINK,
            scale_d: (SINK, false),
            negated: [false; 2],
            transposed: [false; 2],
        };
        self.wgmma_operands(m, o, &mut w)?;
        self.sm90(Sm90::Wgmma(w), Class::Matrix);
        Ok(())
    }

    fn wgmma_operands(
        &mut self,
        m: &Mods<'_>,
        o: &[Operand],
        w: &mut Wgmma,
    ) -> Result<(), PtxError> {
        let registers = matches!(o.get(1), Some(Operand::Vector(_)));
        let count = 4 + match (w.integer(), w.bytes(), registers) {
            (true, ..) => 0,
            (_, 4, _) => 2,
            (_, _, true) => 3,
            _ => 4,
        };
        self.count(o, &[count])?;
        let sums = if w.d_half { w.n / 4 } else { w.n / 2 };
        w.d = self.rows(&o[0], sums as usize, true, Ty::B32)?;
        w.a = match registers {
            true => {
                let a = self.rows(&o[1], 4, false, Ty::B32)?;
                FactorA::Registers([a[0], a[1], a[2], a[3]])
            }
            false => FactorA::Descriptor(self.src(&o[1], Ty::B64)?),
        };
        w.b = self.src(&o[2], Ty::B64)?;
        w.scale_d = self.pred_src(&o[3])?;
        let number = |o: &Operand| match o {
            Operand::Imm(Imm::Int(v)) => Some(*v as i64),
            _ => None,
        };
        for (k, x) in o[4..].iter().enumerate() {
            let v = number(x);
            match (k, v) {
                (0 | 1, Some(v @ (1 | -1))) => w.negated[k] = v < 0,
                (2 | 3, Some(v @ (0 | 1))) => {
                    // With A in registers only B may be transposed.
                    let of = if registers { 1 } else { k - 2 };
                    w.transposed[of] = v == 1;
                }
                _ => return text(m.line(), "scales are 1 or -1 and transpositions 0 or 1"),
            }
        }
        Ok(())
    }
}
