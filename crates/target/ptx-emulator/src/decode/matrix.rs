//! `ldmatrix`, `stmatrix` and `mma.sync`; `wgmma` stands beside.

use super::{Builder, mods::Mods, moves::space};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;

impl Builder<'_> {
    pub(crate) fn matrix(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, PtxError> {
        match m.op() {
            "ldmatrix" | "stmatrix" => self.fragments(m, o)?,
            "mma" => self.mma(m, o)?,
            "wgmma" => self.wgmma(m, o)?,
            "wmma" | "tcgen05" => {
                return unsupported(m.line(), format!("'{}'; mma.sync and wgmma are", m.all()));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn fragments(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let store = m.op() == "stmatrix";
        m.take("sync");
        m.take("aligned");
        if !m.take("m8n8") {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        let n = match m.one_of(&["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2,
            Some(_) => 4,
            None => {
                return text(
                    m.line(),
                    format!("'{}' lacks a number of matrices", m.all()),
                );
            }
        };
        let transposed = m.take("trans");
        if !matches!(m.first(space), None | Some(Space::Shared)) {
            return text(m.line(), "matrices are loaded from shared memory");
        }
        if m.ty()? != Ty::B16 {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        self.count(o, &[2])?;
        let (value, address) = if store {
            (&o[1], &o[0])
        } else {
            (&o[0], &o[1])
        };
        let regs = self.rows(value, n, !store, Ty::B32)?;
        let (addr, _) = self.addr(address)?;
        self.emit(
            Op::Matrix(Box::new((store, transposed, regs, addr))),
            if store { Class::Store } else { Class::Load },
        );
        Ok(())
    }

    pub(crate) fn rows(
        &mut self,
        o: &Operand,
        n: usize,
        dst: bool,
        ty: Ty,
    ) -> Result<Vec<R>, PtxError> {
        let list = match o {
            Operand::Vector(v) => v.clone(),
            o => vec![o.clone()],
        };
        if list.len() != n {
            return text(
                self.line,
                format!("{} registers where {n} belong", list.len()),
            );
        }
        list.iter()
            .map(|r| {
                if dst {
                    self.dst(r, ty)
                } else {
                    self.src(r, ty)
                }
            })
            .collect()
    }

    fn mma(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        m.take("sync");
        m.take("aligned");
        if m.has("sp") {
            return unsupported(m.line(), "sparse mma");
        }
        let shape = m.one_of(&["m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"]);
        let rows = (m.take("row"), m.take("col"));
        let sat = m.take("satfinite");
        let (d_ty, a_ty, b_ty, c_ty) = (m.ty()?, m.ty()?, m.ty()?, m.ty()?);
        let element = |t| match t {
            Ty::F16 => Some(MmaTy::F16),
            Ty::BF16 => Some(MmaTy::BF16),
            Ty::TF32 => Some(MmaTy::TF32),
            Ty::S8 => Some(MmaTy::S8),
            Ty::U8 => Some(MmaTy::U8),
            _ => None,
        };
        let (Some(a_ty), Some(b_ty), Some(shape), (true, true)) =
            (element(a_ty), element(b_ty), shape, rows)
        else {
            return unsupported(m.line(), format!("'{}'", m.all()));
        };
        let k: u32 = shape[6..].parse().unwrap_or(0);
        let integer = matches!(a_ty, MmaTy::S8 | MmaTy::U8);
        let fits = match a_ty {
            MmaTy::F16 => matches!(k, 8 | 16) && b_ty == a_ty,
            MmaTy::BF16 => matches!(k, 8 | 16) && b_ty == a_ty,
            MmaTy::TF32 => matches!(k, 4 | 8) && b_ty == a_ty,
            _ => matches!(k, 16 | 32) && matches!(b_ty, MmaTy::S8 | MmaTy::U8),
        };
        let half = |t| t == Ty::F16;
        let accumulators = match integer {
            true => d_ty == Ty::S32 && c_ty == Ty::S32,
            false => [d_ty, c_ty]
                .iter()
                .all(|t| *t == Ty::F32 || (half(*t) && a_ty == MmaTy::F16)),
        };
        if !fits || !accumulators {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        let size = match a_ty {
            MmaTy::TF32 => 4,
            MmaTy::S8 | MmaTy::U8 => 1,
            _ => 2,
        };
        let (na, nb) = (
            (16 * k * size / 128) as usize,
            (8 * k * size / 128) as usize,
        );
        self.count(o, &[4])?;
        let count = |t: Ty| if half(t) { 2 } else { 4 };
        let d = self.rows(&o[0], count(d_ty), true, Ty::B32)?;
        let a = self.rows(&o[1], na, false, Ty::B32)?;
        let b = self.rows(&o[2], nb, false, Ty::B32)?;
        let c = self.rows(&o[3], count(c_ty), false, Ty::B32)?;
        fn fixed<const N: usize>(v: &[R]) -> [R; N] {
            let mut r = [SINK; N];
            r[..v.len()].copy_from_slice(v);
            r
        }
        self.emit(
            Op::Mma(Box::new(Mma {
                k,
                a_ty,
                b_ty,
                d_half: half(d_ty),
                c_half: half(c_ty),
                sat,
                a: fixed(&a),
                b: fixed(&b),
                c: fixed(&c),
                d: fixed(&d),
            })),
            Class::Matrix,
        );
        Ok(())
    }
}
