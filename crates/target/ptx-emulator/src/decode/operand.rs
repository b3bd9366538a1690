//! Operands to rows of register files.

use super::{Builder, Sym};
use crate::error::{PtxError, text};
use crate::parse::ast::*;
use crate::program::*;

/// The file that values of a type live in.
pub(crate) fn width(ty: Ty) -> Width {
    match ty {
        Ty::Pred => Width::P,
        _ => match ty.bytes() {
            1 | 2 => Width::W16,
            4 => Width::W32,
            _ => Width::W64,
        },
    }
}

fn bits(w: Width) -> &'static str {
    match w {
        Width::P => "a predicate",
        Width::W16 => "16 bits",
        Width::W32 => "32 bits",
        Width::W64 => "64 bits",
    }
}

impl Builder<'_> {
    pub(crate) fn const32(&mut self, v: u32) -> R {
        let k = &mut self.k;
        let row = *self.consts32.entry(v).or_insert_with(|| {
            k.const32.push([v; 32]);
            k.const32.len() as u32 - 1
        });
        row | CONST
    }

    pub(crate) fn const64(&mut self, v: u64) -> R {
        let k = &mut self.k;
        let row = *self.consts64.entry(v).or_insert_with(|| {
            k.const64.push([v; 32]);
            k.const64.len() as u32 - 1
        });
        row | CONST
    }

    /// The row of a register that is set when warps start.
    pub(crate) fn start(&mut self, s: Start, wide: bool) -> Result<R, PtxError> {
        if let Some(row) = self.starts.get(&(s, wide)) {
            return Ok(*row);
        }
        let ty = if wide { Ty::U64 } else { Ty::U32 };
        let row = self.new_reg(ty, "a special register")?;
        self.starts.insert((s, wide), row);
        match wide {
            true => self.k.start64.push((s, row)),
            false => self.k.start32.push((s, row)),
        }
        Ok(row)
    }

    fn special(&mut self, name: &str) -> Result<Option<(Width, R)>, PtxError> {
        let axis = |s: &str| match s {
            "x" => Some(0),
            "y" => Some(1),
            "z" => Some(2),
            _ => None,
        };
        let (stem, part) = name.split_once('.').unwrap_or((name, ""));
        let start = match (stem, axis(part)) {
            ("%tid", Some(a)) => Start::Tid(a),
            ("%ntid", Some(a)) => Start::Ntid(a),
            ("%ctaid", Some(a)) => Start::Ctaid(a),
            ("%nctaid", Some(a)) => Start::Nctaid(a),
            ("%tid" | "%ntid" | "%ctaid" | "%nctaid", None) if part == "w" => Start::Zero,
            ("%cluster_ctarank", _) => Start::ClusterRank,
            ("%cluster_nctarank", _) => Start::ClusterSize,
            ("%clusterid", Some(a)) => Start::ClusterId(a),
            ("%nclusterid", Some(a)) => Start::ClusterCount(a),
            ("%cluster_ctaid", Some(a)) => Start::ClusterCtaid(a),
            ("%cluster_nctaid", Some(a)) => Start::ClusterNctaid(a),
            ("%laneid", _) => Start::Lane,
            ("%warpid", _) => Start::Warp,
            ("%nwarpid", _) => Start::Nwarp,
            ("%smid", _) => Start::Smid,
            ("%nsmid", _) => Start::Nsmid,
            ("%lanemask_eq", _) => Start::MaskEq,
            ("%lanemask_lt", _) => Start::MaskLt,
            ("%lanemask_le", _) => Start::MaskLe,
            ("%lanemask_gt", _) => Start::MaskGt,
            ("%lanemask_ge", _) => Start::MaskGe,
            ("%dynamic_smem_size", _) => Start::DynamicShared,
            ("%total_smem_size", _) => Start::TotalShared,
            ("%gridid", _) => {
                return Ok(Some((Width::W64, self.start(Start::Gridid, true)?)));
            }
            (
                "%clock" | "%clock_hi" | "%clock64" | "%globaltimer" | "%globaltimer_lo"
                | "%globaltimer_hi",
                _,
            ) => {
                let (s, ty) = match stem {
                    "%clock" => (Special::Clock, Ty::U32),
                    "%clock64" => (Special::Clock64, Ty::U64),
                    "%globaltimer" => (Special::GlobalTimer, Ty::U64),
                    "%globaltimer_lo" => (Special::Clock, Ty::U32),
                    _ => (Special::GlobalTimerHi, Ty::U32),
                };
                let row = self.new_reg(ty, stem)?;
                let reads = std::mem::take(&mut self.pending_reads);
                self.emit(Op::ReadSpecial(s, row), crate::counters::Class::Move);
                self.pending_reads = reads;
                return Ok(Some((width(ty), row)));
            }
            _ => return Ok(None),
        };
        Ok(Some((Width::W32, self.start(start, false)?)))
    }

    /// File and row of a name that is a register.
    pub(crate) fn register(&mut self, name: &str) -> Result<Option<(Width, R)>, PtxError> {
        match self.find(name) {
            Some(Sym::Reg(ty, row)) => Ok(Some((width(*ty), *row))),
            Some(_) => Ok(None),
            None if name.starts_with('%') => match self.special(name)? {
                Some(s) => Ok(Some(s)),
                None => text(self.line, format!("register '{name}' is not declared")),
            },
            None => Ok(None),
        }
    }

    pub(crate) fn predicate(&mut self, name: &str) -> Result<u32, PtxError> {
        match self.register(name)? {
            Some((Width::P, row)) => Ok(row),
            _ => text(self.line, format!("'{name}' is no predicate")),
        }
    }

    pub(crate) fn read(&mut self, w: Width, row: R) {
        if row & CONST == 0 {
            self.pending_reads.push((w, row));
        }
    }

    /// The address of a variable, as a number.
    pub(crate) fn address_of(&mut self, name: &str) -> Result<Option<u64>, PtxError> {
        Ok(match self.find(name) {
            Some(Sym::Local(o)) => Some(u64::from(*o)),
            Some(Sym::Shared(o)) => Some(u64::from(*o)),
            Some(Sym::Global(_, a)) => Some(*a),
            Some(Sym::Param(o, _)) => Some(u64::from(*o)),
            _ => None,
        })
    }

    /// A source of type `ty`.
    pub(crate) fn src(&mut self, o: &Operand, ty: Ty) -> Result<R, PtxError> {
        let w = width(ty);
        match o {
            Operand::Name(n) => {
                if let Some((have, row)) = self.register(n)? {
                    if have != w {
                        return text(
                            self.line,
                            format!("'{n}' has {}, but {} are wanted", bits(have), bits(w)),
                        );
                    }
                    self.read(w, row);
                    return Ok(row);
                }
                match self.address_of(n)? {
                    Some(a) => self.number(a, w),
                    None => text(self.line, format!("'{n}' is not declared")),
                }
            }
            Operand::Offset(n, by) => match self.address_of(n)? {
                Some(a) => self.number(a.wrapping_add_signed(*by), w),
                None => text(self.line, format!("'{n}' is no variable")),
            },
            Operand::Imm(i) => {
                let v = self.immediate(*i, ty)?;
                self.number(v, w)
            }
            _ => text(self.line, "an operand of another kind is wanted"),
        }
    }

    fn number(&mut self, v: u64, w: Width) -> Result<R, PtxError> {
        Ok(match w {
            Width::P => return text(self.line, "a predicate is wanted"),
            Width::W16 => self.const32(v as u32 & 0xffff),
            Width::W32 => self.const32(v as u32),
            Width::W64 => self.const64(v),
        })
    }

    fn immediate(&self, i: Imm, ty: Ty) -> Result<u64, PtxError> {
        Ok(match (i, ty) {
            (Imm::Int(_), t) if t.float() => {
                return text(
                    self.line,
                    "an integer where a floating-point number is wanted",
                );
            }
            (Imm::Int(v), _) => v,
            (Imm::F32(v), Ty::F64) => f64::from(f32::from_bits(v)).to_bits(),
            (Imm::F32(v), t) if t.bytes() == 4 => u64::from(v),
            (Imm::F64(v), Ty::F64 | Ty::B64) => v,
            (Imm::F64(v), Ty::F32 | Ty::B32) => u64::from((f64::from_bits(v) as f32).to_bits()),
            _ => {
                return text(
                    self.line,
                    "a floating-point number where an integer is wanted",
                );
            }
        })
    }

    /// A destination of type `ty`; `_` is [`SINK`].
    pub(crate) fn dst(&mut self, o: &Operand, ty: Ty) -> Result<R, PtxError> {
        let Operand::Name(n) = o else {
            return text(self.line, "a register is wanted as destination");
        };
        if n == "_" {
            return Ok(SINK);
        }
        match self.find(n) {
            Some(Sym::Reg(t, row)) if width(*t) == width(ty) => Ok(*row),
            Some(Sym::Reg(t, _)) => text(
                self.line,
                format!(
                    "'{n}' has {}, but {} are written",
                    bits(width(*t)),
                    bits(width(ty))
                ),
            ),
            _ => text(self.line, format!("register '{n}' is not declared")),
        }
    }

    /// Register of a type at least as wide as `ty`, as loads and conversions allow.
    pub(crate) fn wide_dst(&mut self, o: &Operand, ty: Ty) -> Result<(Width, R), PtxError> {
        let Operand::Name(n) = o else {
            return text(self.line, "a register is wanted as destination");
        };
        if n == "_" {
            return Ok((width(ty), SINK));
        }
        match self.find(n) {
            Some(Sym::Reg(t, row)) if t.bytes() >= ty.bytes() && *t != Ty::Pred => {
                Ok((width(*t), *row))
            }
            Some(Sym::Reg(..)) => text(self.line, format!("'{n}' is too narrow")),
            _ => text(self.line, format!("register '{n}' is not declared")),
        }
    }

    /// A source at least as wide as `ty`.
    pub(crate) fn wide_src(&mut self, o: &Operand, ty: Ty) -> Result<(Width, R), PtxError> {
        if let Operand::Name(n) = o
            && let Some((w, row)) = self.register(n)?
        {
            let enough = match w {
                Width::P => false,
                Width::W16 => ty.bytes() <= 2,
                Width::W32 => ty.bytes() <= 4,
                Width::W64 => true,
            };
            if !enough {
                return text(self.line, format!("'{n}' is too narrow"));
            }
            self.read(w, row);
            return Ok((w, row));
        }
        Ok((width(ty), self.src(o, ty)?))
    }

    /// A predicate source: its row, and whether it is negated.
    pub(crate) fn pred_src(&mut self, o: &Operand) -> Result<(R, bool), PtxError> {
        let (n, negated) = match o {
            Operand::Name(n) => (n, false),
            Operand::Not(n) => (n, true),
            Operand::Imm(Imm::Int(v)) => return Ok((CONST, *v == 0)),
            _ => return text(self.line, "a predicate is wanted"),
        };
        let row = self.predicate(n)?;
        self.read(Width::P, row);
        Ok((row, negated))
    }

    pub(crate) fn pred_dst(&mut self, n: &str) -> Result<R, PtxError> {
        if n == "_" {
            return Ok(SINK);
        }
        self.predicate(n)
    }

    /// Checks the number of operands.
    pub(crate) fn count(&self, o: &[Operand], allowed: &[usize]) -> Result<(), PtxError> {
        if allowed.contains(&o.len()) {
            return Ok(());
        }
        text(
            self.line,
            format!("{} operands are not what this takes", o.len()),
        )
    }

    /// An address.
    pub(crate) fn addr(&mut self, o: &Operand) -> Result<(Addr, Option<Space>), PtxError> {
        let Operand::Mem(base, offset) = o else {
            return text(self.line, "an address in brackets is wanted");
        };
        let Some(n) = base else {
            return Ok((
                Addr {
                    base: Base::None,
                    offset: *offset,
                },
                None,
            ));
        };
        if let Some((w, row)) = self.register(n)? {
            self.read(w, row);
            let base = match w {
                Width::W32 => Base::R32(row),
                Width::W64 => Base::R64(row),
                _ => return text(self.line, format!("'{n}' is too narrow for an address")),
            };
            return Ok((
                Addr {
                    base,
                    offset: *offset,
                },
                None,
            ));
        }
        let (at, space) = match self.find(n) {
            Some(Sym::Local(o)) => (u64::from(*o), Space::Local),
            Some(Sym::Shared(o)) => (u64::from(*o), Space::Shared),
            Some(Sym::Global(s, a)) => (*a, *s),
            Some(Sym::Param(o, bytes)) => {
                if *offset < 0 || *offset >= i64::from(*bytes) {
                    return text(
                        self.line,
                        format!("offset {offset} lies outside parameter '{n}'"),
                    );
                }
                (u64::from(*o), Space::Param)
            }
            _ => return text(self.line, format!("'{n}' is not declared")),
        };
        Ok((
            Addr {
                base: Base::None,
                offset: (at as i64).wrapping_add(*offset),
            },
            Some(space),
        ))
    }
}
