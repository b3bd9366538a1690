//! Branches, calls and ends.

use super::{BranchFixup, Builder, Callee, Sym, mods::Mods, operand::width};
use crate::counters::Class;
use crate::error::{PtxError, text, unsupported};
use crate::parse::ast::*;
use crate::program::*;
use crate::sm90::Sm90;

impl Builder<'_> {
    pub(crate) fn control(
        &mut self,
        m: &mut Mods<'_>,
        o: &[Operand],
        end: usize,
    ) -> Result<bool, PtxError> {
        match m.op() {
            "bra" => {
                m.take("uni");
                self.count(o, &[1])?;
                let Operand::Name(l) = &o[0] else {
                    return text(m.line(), "bra goes to a label");
                };
                let l = self.label(l)?;
                self.jump(l);
            }
            "brx" => {
                m.take("idx");
                m.take("uni");
                self.count(o, &[2])?;
                let index = self.src(&o[0], Ty::U32)?;
                let targets = match &o[1] {
                    Operand::Name(n) => match self.find(n) {
                        Some(Sym::Targets(t)) => t.clone(),
                        _ => return text(m.line(), format!("'{n}' is no list of targets")),
                    },
                    _ => return text(m.line(), "brx.idx takes a list of targets"),
                };
                let labels = targets
                    .iter()
                    .map(|t| self.label(t))
                    .collect::<Result<Vec<_>, _>>()?;
                self.fixes.push(BranchFixup {
                    at: self.k.code.len() as u32,
                    labels,
                });
                self.emit(
                    Op::Brx(Box::new((Vec::new(), index, u32::MAX))),
                    Class::Control,
                );
            }
            "ret" => {
                m.take("uni");
                if self.in_function {
                    self.jump(end);
                } else {
                    self.emit(Op::Exit, Class::Control);
                }
            }
            "exit" => self.emit(Op::Exit, Class::Control),
            "trap" => self.emit(Op::Trap, Class::Control),
            "brkpt" | "pmevent" => self.emit(Op::Nop, Class::Control),
            "nanosleep" => {
                m.ty()?;
                self.count(o, &[1])?;
                self.src(&o[0], Ty::U32)?;
                self.emit(Op::Nanosleep, Class::Control);
            }
            "call" => self.call(m, o)?,
            "mapa" | "getctarank" => self.mapa(m, o)?,
            "griddepcontrol" => {
                let waits = m.take("wait");
                m.take("launch_dependents");
                self.k.waits |= waits;
                let op = match waits {
                    true => Sm90::DependencyWait,
                    false => Sm90::LaunchDependents,
                };
                self.sm90(op, Class::Control);
            }
            "setmaxnreg" => {
                self.set_registers(m, o)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn jump(&mut self, label: usize) {
        self.fixes.push(BranchFixup {
            at: self.k.code.len() as u32,
            labels: vec![label],
        });
        self.emit(Op::Bra(0, u32::MAX), Class::Control);
    }

    fn callee(&mut self, name: &str) -> Result<usize, PtxError> {
        // A declaration may stand before the definition.
        let all = &self.ast.functions;
        let found = |f: &&Function| !f.entry && f.name == name;
        let index = all
            .iter()
            .position(|f| found(&f) && f.body.is_some())
            .or_else(|| all.iter().position(|f| found(&f)));
        let Some(index) = index else {
            return text(
                self.line,
                format!("'{name}' is no function here; calls through registers are not supported"),
            );
        };
        if let Some(c) = self.callees.iter().position(|c| c.index == index) {
            return Ok(c);
        }
        let f = &self.ast.functions[index];
        let mut c = Callee {
            index,
            params: Vec::new(),
            returns: Vec::new(),
            bytes: Vec::new(),
            entry: None,
        };
        for (k, p) in f.params.iter().chain(&f.returns).enumerate() {
            let sym = match p.register {
                true => Sym::Reg(p.ty, self.new_reg(p.ty, &p.name)?),
                false => Sym::Local(self.local(p.bytes, p.align)?),
            };
            c.bytes.push(p.bytes as u32);
            match k < f.params.len() {
                true => c.params.push(sym),
                false => c.returns.push(sym),
            }
        }
        self.callees.push(c);
        Ok(self.callees.len() - 1)
    }

    fn call(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<(), PtxError> {
        m.take("uni");
        let group = |o: Option<&Operand>| match o {
            Some(Operand::Group(g)) => Some(g.clone()),
            _ => None,
        };
        let returned = group(o.first());
        let rest = if returned.is_some() { &o[1..] } else { o };
        let Some(Operand::Name(name)) = rest.first() else {
            return unsupported(m.line(), "calls through registers");
        };
        if matches!(self.find(name), Some(Sym::Reg(..))) {
            return unsupported(m.line(), "calls through registers");
        }
        let args = group(rest.get(1)).unwrap_or_default();
        let returned = returned.unwrap_or_default();
        let id = self.callee(name)?;
        let c = self.callees[id].clone();
        if args.len() != c.params.len() || returned.len() != c.returns.len() {
            return text(
                m.line(),
                format!(
                    "'{name}' takes {} and gives {}",
                    c.params.len(),
                    c.returns.len()
                ),
            );
        }
        for (k, (a, p)) in args.iter().zip(&c.params).enumerate() {
            match p {
                Sym::Reg(ty, row) => {
                    let a = self.src(a, *ty)?;
                    self.emit(Op::Mov(width(*ty), *row, a), Class::Move);
                }
                Sym::Local(to) => self.pass(a, *to, c.bytes[k], true)?,
                _ => {}
            }
        }
        self.calls.push((self.k.code.len() as u32, id));
        self.emit(Op::Call(0), Class::Control);
        for (k, (r, p)) in returned.iter().zip(&c.returns).enumerate() {
            match p {
                Sym::Reg(ty, row) => {
                    let d = self.dst(r, *ty)?;
                    self.emit(Op::Mov(width(*ty), d, *row), Class::Move);
                }
                Sym::Local(from) => self.pass(r, *from, c.bytes[args.len() + k], false)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Copies between a `.param` of the caller and the function's own place for it.
    fn pass(&mut self, o: &Operand, place: u32, bytes: u32, into: bool) -> Result<(), PtxError> {
        let Operand::Name(n) = o else {
            return unsupported(self.line, "constants as arguments of .param functions");
        };
        match self.find(n).cloned() {
            Some(Sym::Local(own)) => {
                let (d, s) = if into { (place, own) } else { (own, place) };
                self.emit(Op::CopyLocal(d, s, bytes), Class::Move);
                Ok(())
            }
            _ => text(self.line, format!("'{n}' is no .param of this call")),
        }
    }
}
