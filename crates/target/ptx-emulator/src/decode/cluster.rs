//! Clusters: addresses in other CTAs, their barrier, stores that come later.

use super::{Builder, bulk::COUNTED, mods::Mods, moves::space, operand::width};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;
use crate::sm90::Sm90;

impl Builder<'_> {
    /// `mapa` and `getctarank`.
    pub(crate) fn mapa(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        m.take("shared::cluster");
        let ty = m.ty()?;
        if !matches!(ty, Ty::U32 | Ty::U64) {
            return text(m.line(), format!("'{}' is no form of it", m.all()));
        }
        if m.op() == "getctarank" {
            // The type is that of the result; the address says itself how wide it is.
            self.count(o, &[2])?;
            let d = self.dst(&o[0], Ty::U32)?;
            let (w, a) = self.wide_src(&o[1], Ty::U32)?;
            self.sm90(Sm90::CtaRank(w == Width::W64, d, a), Class::Integer);
            return Ok(());
        }
        self.count(o, &[3])?;
        let d = self.dst(&o[0], ty)?;
        let a = self.src(&o[1], ty)?;
        let rank = self.src(&o[2], Ty::U32)?;
        self.sm90(Sm90::Mapa(ty == Ty::U64, d, a, rank), Class::Integer);
        Ok(())
    }

    /// `barrier.cluster`.
    pub(crate) fn cluster_barrier(
        &mut self,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<(), PtxError> {
        self.count(o, &[0])?;
        let what = m.one_of(&["arrive", "wait"]);
        let sem = m.sem();
        let aligned = m.take("aligned");
        let op = match (what, sem) {
            (Some("arrive"), None | Some(Sem::Release)) => Sm90::ClusterArrive(aligned, true),
            (Some("arrive"), Some(Sem::Relaxed)) => Sm90::ClusterArrive(aligned, false),
            (Some("wait"), None | Some(Sem::Acquire)) => Sm90::ClusterWait(aligned, true),
            _ => return text(m.line(), format!("'{}' is no form of it", m.all())),
        };
        self.sm90(op, Class::Barrier);
        Ok(())
    }

    /// `st.async`.
    pub(crate) fn store_async(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        m.take("async");
        m.take("weak");
        if !matches!(m.first(space), None | Some(Space::Shared)) || !m.take(COUNTED) {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        let lanes = match m.one_of(&["v2", "v4"]) {
            Some("v2") => 2,
            Some(_) => 4,
            None => 1,
        };
        let ty = m.ty()?;
        if !matches!(ty.bytes(), 4 | 8) || ty.bytes() * lanes > 16 {
            return text(m.line(), format!("'{}' is no form of it", m.all()));
        }
        self.count(o, &[3])?;
        let addr = self.shared_addr(&o[0])?;
        let values = match &o[1] {
            Operand::Vector(v) => v.clone(),
            v => vec![v.clone()],
        };
        if values.len() != lanes as usize {
            return text(
                m.line(),
                format!("{} values where {lanes} belong", values.len()),
            );
        }
        let mut regs = [SINK; 8];
        for (r, v) in regs.iter_mut().zip(&values) {
            *r = self.src(v, ty)?;
        }
        let barrier = self.shared_addr(&o[2])?;
        let a = Access {
            space: Space::Shared,
            bytes: ty.bytes(),
            lanes,
            signed: false,
            regs,
            width: width(ty),
            addr,
            sem: Sem::Weak,
            scope: Scope::Cta,
        };
        self.sm90(Sm90::StoreAsync(a, barrier), Class::Async);
        Ok(())
    }
}
