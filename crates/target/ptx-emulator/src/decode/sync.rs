//! Barriers, fences and exchanges inside a warp.

use super::{Builder, mods::Mods, operand::width};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;
use crate::sm90::Sm90;

impl Builder<'_> {
    pub(crate) fn synchronising(
        &mut self,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, PtxError> {
        match m.op() {
            "bar" | "barrier" => self.bar(m, o)?,
            "membar" | "fence" => self.fence(m, o)?,
            "shfl" => self.shfl(m, o)?,
            "vote" => self.vote(m, o)?,
            "match" => self.matching(m, o)?,
            "redux" => {
                self.must_sync(m)?;
                let op = match m.one_of(&["add", "min", "max", "and", "or", "xor"]) {
                    Some("add") => AtomOp::Add,
                    Some("min") => AtomOp::Min,
                    Some("max") => AtomOp::Max,
                    Some("and") => AtomOp::And,
                    Some("or") => AtomOp::Or,
                    Some(_) => AtomOp::Xor,
                    None => return text(m.line(), "redux lacks an operation"),
                };
                let ty = m.ty()?;
                if ty.float() || ty.bytes() != 4 {
                    return unsupported(m.line(), format!("'{}'", m.all()));
                }
                self.count(o, &[3])?;
                let d = self.dst(&o[0], ty)?;
                let a = self.src(&o[1], ty)?;
                let mask = self.src(&o[2], Ty::U32)?;
                self.warp(Gather::Redux(op, ty.signed(), d, a), mask);
            }
            "elect" => {
                self.must_sync(m)?;
                self.count(o, &[2])?;
                let Operand::Pair(d, p) = &o[0] else {
                    return text(m.line(), "elect gives a register and a predicate");
                };
                let d = self.dst(&Operand::Name(d.clone()), Ty::U32)?;
                let p = self.pred_dst(p)?;
                let mask = self.src(&o[1], Ty::U32)?;
                self.warp(Gather::Elect(d, p), mask);
            }
            "activemask" => {
                m.ty()?;
                self.count(o, &[1])?;
                let d = self.dst(&o[0], Ty::B32)?;
                self.emit(Op::ActiveMask(d), Class::Warp);
            }
            "mbarrier" => self.mbarrier(m, o)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn warp(&mut self, g: Gather, mask: R) {
        self.emit(Op::Warp(Box::new((g, mask))), Class::Warp);
    }

    fn must_sync(&self, m: &mut Mods<'_>) -> Result<(), PtxError> {
        if m.take("sync") {
            return Ok(());
        }
        unsupported(
            m.line(),
            format!(
                "'{}' without .sync, which devices since sm_70 have not",
                m.op()
            ),
        )
    }

    fn bar(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        if m.take("warp") {
            self.must_sync(m)?;
            self.count(o, &[1])?;
            let mask = self.src(&o[0], Ty::U32)?;
            self.warp(Gather::Sync, mask);
            return Ok(());
        }
        if m.take("cluster") {
            return self.cluster_barrier(m, o);
        }
        m.take("cta");
        // `bar` is `barrier` with .aligned.
        let aligned = m.op() == "bar" || m.has("aligned");
        m.take("aligned");
        match m.one_of(&["sync", "arrive", "red"]) {
            Some("red") => self.bar_red(m, o, aligned),
            Some(k) => {
                let arrive = k == "arrive";
                self.count(o, if arrive { &[2] } else { &[1, 2] })?;
                let id = self.src(&o[0], Ty::U32)?;
                let n = match o.get(1) {
                    Some(n) => self.src(n, Ty::U32)?,
                    None => SINK,
                };
                let kind = if arrive {
                    BarKind::Arrive
                } else {
                    BarKind::Sync
                };
                self.emit(Op::Bar(aligned, kind, id, n), Class::Barrier);
                Ok(())
            }
            None => text(
                m.line(),
                format!("'{}' says neither sync, arrive nor red", m.all()),
            ),
        }
    }

    fn bar_red(&mut self, m: &mut Mods<'_>, o: &[Operand], aligned: bool) -> Result<(), PtxError> {
        let what = m.one_of(&["popc", "and", "or"]);
        let ty = m.ty()?;
        self.count(o, &[3, 4])?;
        let id = self.src(&o[1], Ty::U32)?;
        let n = match o.len() {
            4 => self.src(&o[2], Ty::U32)?,
            _ => SINK,
        };
        let (p, negated) = self.pred_src(&o[o.len() - 1])?;
        let kind = match (what, &o[0]) {
            (Some("popc"), d) => BarKind::Popc(self.dst(d, ty)?, p, negated),
            (Some(w), Operand::Name(d)) => BarKind::Vote(self.pred_dst(d)?, p, negated, w == "and"),
            _ => return text(m.line(), "bar.red gives popc, and, or or"),
        };
        self.emit(Op::Bar(aligned, kind, id, n), Class::Barrier);
        Ok(())
    }

    fn fence(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        self.count(o, &[0])?;
        if m.take("proxy") {
            if !m.take("async") {
                return unsupported(m.line(), format!("'{}'", m.all()));
            }
            m.one_of(&["shared::cta", "shared::cluster", "global"]);
            self.sm90(Sm90::ProxyFence, Class::Fence);
            return Ok(());
        }
        if m.take("mbarrier_init") {
            m.take("release");
            m.take("cluster");
            self.sm90(Sm90::InitFence, Class::Fence);
            return Ok(());
        }
        let scope = if m.op() == "membar" {
            match m.one_of(&["cta", "gl", "sys"]) {
                Some("cta") => Scope::Cta,
                Some("gl") => Scope::Gpu,
                Some(_) => Scope::Sys,
                None => return text(m.line(), "membar lacks a level"),
            }
        } else {
            m.one_of(&["sc", "acq_rel", "acquire", "release"]);
            match m.scope()? {
                Some(s) => s,
                None => return text(m.line(), "fence lacks a scope"),
            }
        };
        if scope != Scope::Cta {
            self.k.communicates = true;
        }
        self.emit(Op::Fence(scope), Class::Fence);
        Ok(())
    }

    fn shfl(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        self.must_sync(m)?;
        let mode = match m.one_of(&["up", "down", "bfly", "idx"]) {
            Some("up") => ShflMode::Up,
            Some("down") => ShflMode::Down,
            Some("bfly") => ShflMode::Bfly,
            Some(_) => ShflMode::Idx,
            None => return text(m.line(), "shfl lacks a mode"),
        };
        let ty = m.ty()?;
        self.count(o, &[5])?;
        let (d, p) = match &o[0] {
            Operand::Pair(d, p) => (self.dst(&Operand::Name(d.clone()), ty)?, self.pred_dst(p)?),
            d => (self.dst(d, ty)?, SINK),
        };
        let a = self.src(&o[1], ty)?;
        let (b, c) = (self.src(&o[2], Ty::U32)?, self.src(&o[3], Ty::U32)?);
        let mask = self.src(&o[4], Ty::U32)?;
        self.warp(Gather::Shfl(mode, d, p, a, b, c), mask);
        Ok(())
    }

    fn vote(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        self.must_sync(m)?;
        let mode = match m.one_of(&["all", "any", "uni", "ballot"]) {
            Some("all") => VoteMode::All,
            Some("any") => VoteMode::Any,
            Some("uni") => VoteMode::Uni,
            Some(_) => VoteMode::Ballot,
            None => return text(m.line(), "vote lacks a mode"),
        };
        let ty = m.ty()?;
        self.count(o, &[3])?;
        let d = match (&o[0], mode) {
            (d, VoteMode::Ballot) => self.dst(d, ty)?,
            (Operand::Name(d), _) => self.pred_dst(d)?,
            _ => return text(m.line(), "vote gives a predicate"),
        };
        let (a, negated) = self.pred_src(&o[1])?;
        let mask = self.src(&o[2], Ty::U32)?;
        self.warp(Gather::Vote(mode, d, a, negated), mask);
        Ok(())
    }

    fn matching(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let all = match m.one_of(&["any", "all"]) {
            Some(k) => k == "all",
            None => return text(m.line(), "match needs .any or .all"),
        };
        self.must_sync(m)?;
        let ty = m.ty()?;
        self.count(o, &[3])?;
        let (d, p) = match &o[0] {
            Operand::Pair(d, p) => (
                self.dst(&Operand::Name(d.clone()), Ty::B32)?,
                self.pred_dst(p)?,
            ),
            d => (self.dst(d, Ty::B32)?, SINK),
        };
        let a = self.src(&o[1], ty)?;
        let mask = self.src(&o[2], Ty::U32)?;
        let wide = width(ty) == Width::W64;
        self.warp(Gather::Match(d, p, a, wide, all), mask);
        Ok(())
    }
}
