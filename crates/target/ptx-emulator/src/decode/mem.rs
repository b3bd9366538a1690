//! Loads, stores, atomics and asynchronous copies.

use super::{Builder, mods::Mods, moves::space, operand::width};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;

impl Builder<'_> {
    pub(crate) fn memory(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, PtxError> {
        match m.op() {
            "ld" | "ldu" => self.access(m, o, true)?,
            "st" if m.has("async") => self.store_async(m, o)?,
            "st" => self.access(m, o, false)?,
            "atom" | "red" => self.atom(m, o)?,
            "cp" => self.cp(m, o)?,
            "prefetch" | "prefetchu" | "discard" | "applypriority" => {
                while m.first(|_| Some(())).is_some() {}
                if let Some(a @ Operand::Mem(..)) = o.first() {
                    self.addr(a)?;
                }
                self.emit(Op::Nop, Class::Load);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn access(&mut self, m: &mut Mods<'_>, o: &[Operand], load: bool) -> Result<(), PtxError> {
        let volatile = m.take("volatile");
        let mmio = m.take("mmio");
        let sem = m.sem();
        let scope = m.scope()?;
        let said = m.first(space);
        m.caching();
        if m.take("unified") || m.has("L2::cache_hint") {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        let lanes = match m.one_of(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
            None => 1,
        };
        let ty = m.ty()?;
        if ty == Ty::B128 || ty == Ty::Pred {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        if ty.bytes() * lanes > 16 {
            return unsupported(m.line(), "accesses of more than 16 bytes");
        }
        self.count(o, &[2])?;
        let (value, address) = if load { (&o[0], &o[1]) } else { (&o[1], &o[0]) };
        let (addr, known) = self.addr(address)?;
        let space = match (said, known) {
            // Parameters of functions, and of calls, lie in local memory.
            (Some(Space::Param), Some(s @ (Space::Local | Space::Param))) => s,
            (Some(Space::Param), None) => {
                return unsupported(m.line(), "parameters by address");
            }
            (Some(s), None) => s,
            (Some(s), Some(k)) if s == k => s,
            (None, Some(k)) => k,
            (None, None) => Space::Generic,
            _ => return text(m.line(), "the variable lies in another state space"),
        };
        if !load && matches!(space, Space::Param | Space::Const) {
            return text(m.line(), "stores cannot go there");
        }
        let (sem, scope) = match (volatile, mmio, sem, scope) {
            (true, ..) => (Sem::Relaxed, Scope::Sys),
            (_, _, None | Some(Sem::Weak), _) => (Sem::Weak, Scope::Cta),
            (_, _, Some(s), Some(scope)) => (s, scope),
            (_, true, Some(s), None) => (s, Scope::Sys),
            (_, _, Some(_), None) => {
                return text(m.line(), format!("'{}' needs a scope", m.all()));
            }
        };
        if (load && sem.releases()) || (!load && sem.acquires()) {
            return text(
                m.line(),
                "a load does not release and a store does not acquire",
            );
        }
        let values: Vec<&Operand> = match value {
            Operand::Vector(v) => v.iter().collect(),
            v => vec![v],
        };
        if values.len() != lanes as usize {
            return text(
                m.line(),
                format!("{} values where {lanes} belong", values.len()),
            );
        }
        let (mut regs, mut file) = ([SINK; 8], None);
        for (k, v) in values.iter().enumerate() {
            let (w, r) = if load {
                self.wide_dst(v, ty)?
            } else {
                self.wide_src(v, ty)?
            };
            regs[k] = r;
            if r != SINK && *file.get_or_insert(w) != w {
                return unsupported(m.line(), "a vector of registers of several widths");
            }
        }
        let a = Access {
            space,
            bytes: ty.bytes(),
            lanes,
            signed: ty.signed(),
            regs,
            width: file.unwrap_or(width(ty)),
            addr,
            sem,
            scope,
        };
        if sem != Sem::Weak && scope != Scope::Cta && !matches!(space, Space::Shared | Space::Local)
        {
            self.k.communicates = true;
        }
        match load {
            true => self.emit(Op::Ld(Box::new(a)), Class::Load),
            false => self.emit(Op::St(Box::new(a)), Class::Store),
        }
        Ok(())
    }

    fn atom(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        let red = m.op() == "red";
        let sem = m.sem().unwrap_or(Sem::Relaxed);
        let scope = m.scope()?.unwrap_or(Scope::Gpu);
        let space = m.first(space).unwrap_or(Space::Generic);
        m.take("noftz");
        let op = match m.one_of(&[
            "add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec",
        ]) {
            Some("add") => AtomOp::Add,
            Some("min") => AtomOp::Min,
            Some("max") => AtomOp::Max,
            Some("and") => AtomOp::And,
            Some("or") => AtomOp::Or,
            Some("xor") => AtomOp::Xor,
            Some("exch") => AtomOp::Exch,
            Some("cas") => AtomOp::Cas,
            Some("inc") => AtomOp::Inc,
            Some("dec") => AtomOp::Dec,
            _ => return text(m.line(), format!("'{}' lacks an operation", m.all())),
        };
        let ty = m.ty()?;
        let fits = match op {
            AtomOp::Exch | AtomOp::Cas => !ty.float() && ty.bytes() >= 2,
            AtomOp::And | AtomOp::Or | AtomOp::Xor => matches!(ty, Ty::B32 | Ty::B64),
            AtomOp::Inc | AtomOp::Dec => ty == Ty::U32,
            AtomOp::Add => ty.bytes() >= 4 || ty.float(),
            _ => {
                matches!(ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64)
                    || (ty.float() && ty.bytes() <= 4 && ty != Ty::F32)
            }
        };
        if !fits || ty == Ty::B128 {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        let cas = op == AtomOp::Cas;
        let want = 2 + usize::from(!red) + usize::from(cas);
        self.count(o, &[want])?;
        let (d, rest) = match red {
            true => (SINK, o),
            false => (self.dst(&o[0], ty)?, &o[1..]),
        };
        let (addr, known) = self.addr(&rest[0])?;
        let space = match (space, known) {
            (Space::Generic, Some(k)) => k,
            (s, _) => s,
        };
        if !matches!(space, Space::Generic | Space::Global | Space::Shared) {
            return text(m.line(), "atomics work on global and shared memory");
        }
        let a = self.src(&rest[1], ty)?;
        let b = if cas { self.src(&rest[2], ty)? } else { a };
        if space != Space::Shared {
            self.k.communicates = true;
        }
        self.emit(
            Op::Atom(Box::new(Atom {
                op,
                ty,
                space,
                d,
                addr,
                a,
                b,
                sem,
                scope,
            })),
            Class::Atomic,
        );
        Ok(())
    }

    fn cp(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        if !m.take("async") {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        if m.has("bulk") {
            return self.bulk(m, o);
        }
        if m.take("commit_group") {
            self.count(o, &[0])?;
            self.emit(Op::CpCommit, Class::Async);
            return Ok(());
        }
        if m.take("wait_all") {
            self.count(o, &[0])?;
            self.emit(Op::CpWait(u32::MAX), Class::Async);
            return Ok(());
        }
        if m.take("wait_group") {
            self.count(o, &[1])?;
            let Operand::Imm(Imm::Int(n)) = o[0] else {
                return text(m.line(), "cp.async.wait_group takes a number");
            };
            self.emit(Op::CpWait(n.min(1 << 20) as u32), Class::Async);
            return Ok(());
        }
        if m.take("mbarrier") {
            return self.cp_arrive(m, o);
        }
        let kind = m.one_of(&["ca", "cg"]);
        let to = m.first(space);
        let from = m.first(space);
        m.caching();
        if kind.is_none() || to != Some(Space::Shared) || from != Some(Space::Global) {
            return unsupported(m.line(), format!("'{}'", m.all()));
        }
        self.count(o, &[3, 4])?;
        let (d, _) = self.addr(&o[0])?;
        let (s, _) = self.addr(&o[1])?;
        let size = match (&o[2], kind) {
            (Operand::Imm(Imm::Int(16)), _) => 16,
            (Operand::Imm(Imm::Int(n @ (4 | 8))), Some("ca")) => *n as u32,
            _ => return text(m.line(), "cp.async copies 4, 8 or 16 bytes, with .cg 16"),
        };
        let read = match o.get(3) {
            None => self.const32(size),
            Some(Operand::Name(p)) if matches!(self.register(p)?, Some((Width::P, _))) => {
                return unsupported(m.line(), "cp.async with ignore-src");
            }
            Some(r) => self.src(r, Ty::U32)?,
        };
        self.emit(Op::CpAsync(Box::new((d, s, size, read))), Class::Async);
        Ok(())
    }
}
