//! Barrier objects in shared memory, and registers that warps give to others.

use super::{Builder, mods::Mods};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;
use crate::sm90::{MbarrierArrive, Sm90};

impl Builder<'_> {
    /// An address in shared memory, of a 32-bit or a generic one.
    pub(crate) fn shared_addr(&mut self, o: &Operand) -> Result<Addr, PtxError> {
        match self.addr(o)? {
            (a, None | Some(Space::Shared)) => Ok(a),
            _ => text(self.line, "an address in shared memory is wanted"),
        }
    }

    /// Semantics of a barrier's operation: whether it orders anything.
    fn ordered(&mut self, m: &mut Mods<'_>) -> bool {
        let sem = m.sem();
        m.one_of(&["cta", "cluster"]);
        m.one_of(&["shared::cta", "shared::cluster", "shared"]);
        sem != Some(Sem::Relaxed)
    }

    pub(crate) fn mbarrier(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let what = m.one_of(&[
            "init",
            "inval",
            "arrive",
            "arrive_drop",
            "expect_tx",
            "test_wait",
            "try_wait",
        ]);
        let Some(what) = what else {
            return unsupported(m.line(), format!("'{}'", m.all()));
        };
        let more = m.take("expect_tx");
        m.take("noComplete");
        let parity = m.take("parity");
        let ordered = self.ordered(m);
        if m.ty()? != Ty::B64 {
            return text(m.line(), "barriers are .b64");
        }
        let op = match what {
            "init" => {
                self.count(o, &[2])?;
                Sm90::MbarrierInit(self.shared_addr(&o[0])?, self.src(&o[1], Ty::U32)?)
            }
            "inval" => {
                self.count(o, &[1])?;
                Sm90::MbarrierInval(self.shared_addr(&o[0])?)
            }
            "expect_tx" => {
                self.count(o, &[2])?;
                Sm90::MbarrierExpect(self.shared_addr(&o[0])?, self.src(&o[1], Ty::U32)?)
            }
            "test_wait" | "try_wait" => {
                self.count(o, if what == "try_wait" { &[3, 4] } else { &[3] })?;
                let Operand::Name(p) = &o[0] else {
                    return text(m.line(), "a predicate is wanted as destination");
                };
                let p = self.pred_dst(p)?;
                let addr = self.shared_addr(&o[1])?;
                let phase = self.src(&o[2], if parity { Ty::U32 } else { Ty::B64 })?;
                if let Some(hint) = o.get(3) {
                    self.src(hint, Ty::U32)?;
                }
                Sm90::MbarrierWait(p, addr, phase, parity, ordered)
            }
            _ => self.mbarrier_arrive(o, more, what == "arrive_drop", ordered)?,
        };
        self.sm90(op, Class::Barrier);
        Ok(())
    }

    fn mbarrier_arrive(
        &mut self,
        o: &[Operand],
        more: bool,
        drops: bool,
        release: bool,
    ) -> Result<Sm90, PtxError> {
        self.count(o, if more { &[3] } else { &[2, 3] })?;
        let state = self.dst(&o[0], Ty::B64)?;
        let addr = self.shared_addr(&o[1])?;
        let last = match o.get(2) {
            Some(n) => self.src(n, Ty::U32)?,
            None => self.const32(1),
        };
        let (count, tx) = match more {
            true => (self.const32(1), last),
            false => (last, SINK),
        };
        Ok(Sm90::MbarrierArrive(MbarrierArrive {
            addr,
            state,
            count,
            tx,
            drops,
            release,
        }))
    }

    /// `cp.async.mbarrier.arrive`.
    pub(crate) fn cp_arrive(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        if !m.take("arrive") {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        let noinc = m.take("noinc");
        m.one_of(&["shared::cta", "shared"]);
        if m.ty()? != Ty::B64 {
            return text(m.line(), "barriers are .b64");
        }
        self.count(o, &[1])?;
        let addr = self.shared_addr(&o[0])?;
        self.sm90(Sm90::CpArrive(addr, noinc), Class::Async);
        Ok(())
    }

    pub(crate) fn set_registers(
        &mut self,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<(), PtxError> {
        self.only_sm_90a(m)?;
        let way = m.one_of(&["inc", "dec"]);
        if !m.take("sync") || !m.take("aligned") || m.ty()? != Ty::U32 || way.is_none() {
            return text(m.line(), format!("'{}' is no form of it", m.all()));
        }
        self.count(o, &[1])?;
        let n = match o[0] {
            Operand::Imm(Imm::Int(n @ 24..=256)) if n % 8 == 0 => n as u32,
            _ => return text(m.line(), "setmaxnreg takes 24 to 256, a multiple of 8"),
        };
        self.sm90(Sm90::SetRegisters(way == Some("inc"), n), Class::Control);
        Ok(())
    }
}
