//! One instruction of one warp.

mod access;
pub(crate) use access::byte_mask;
mod atom;
mod bits;
mod bulk;
mod cluster;
mod control;
mod copy;
mod cvt;
mod descriptor;
mod flight;
mod float;
mod half;
mod int;
mod land;
mod matrix;
mod mbarrier;
mod mem;
mod moves;
mod proxy;
mod registers;
pub(crate) mod round;
mod simd;
mod sm90;
mod tensor;
mod warp;
mod wgmma;

use crate::checks::{Kind, Report};
use crate::machine::cta::Core;
use crate::machine::launch_state::LaunchState;
use crate::machine::warp::{GroupState, NONE, Warp};
use crate::memory::Memory;
use crate::program::*;

/// Where the lanes go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With the next instruction.
    Next,
    /// Somewhere else: the group says where.
    Moved,
    /// Nowhere for now.
    Blocked,
}

/// All that an instruction may touch.
pub(crate) struct Ctx<'a> {
    pub k: &'a Kernel,
    pub mem: &'a Memory,
    pub world: &'a mut LaunchState,
    pub cta: &'a mut Core,
    pub w: &'a mut Warp,
    /// The other CTAs of the cluster.
    pub peers: Vec<&'a mut Core>,
    pub pc: u32,
    pub line: u32,
}

impl Ctx<'_> {
    /// Runs up to `budget` instructions; gives how many there were.
    pub fn run(&mut self, budget: u32) -> u32 {
        let mut left = budget;
        while left > 0 && !self.world.reports.fatal {
            let cur = self.w.current;
            match self.w.fragments.get(cur) {
                Some(f) if f.doing == GroupState::Ready => {}
                _ => match self
                    .w
                    .fragments
                    .iter()
                    .position(|f| f.doing == GroupState::Ready)
                {
                    Some(k) => {
                        self.w.current = k;
                        continue;
                    }
                    None => break,
                },
            }
            left -= 1;
            self.step();
        }
        self.world.steps += u64::from(budget - left);
        budget - left
    }

    fn step(&mut self) {
        let k = self.k;
        let f = &self.w.fragments[self.w.current];
        let (mask, node, pc) = (f.mask, f.node, f.pc);
        let inst = &k.code[pc as usize];
        self.pc = pc;
        self.line = inst.line;
        self.w.steps += 1;
        let act = match inst.guard {
            ALWAYS => mask,
            g => mask & self.w.ap(g >> 1, g & 1 == 1),
        };
        let c = &mut self.world.counts[pc as usize];
        c.issued += 1;
        c.lanes += u64::from(act.count_ones());
        if let Some(p) = &self.world.clock.pace {
            self.cta.hand.issued(p);
        }
        if self.world.checks.uninitialised {
            self.check_registers(inst, mask, act);
        }
        if !self.k.hazards.is_empty() && act != 0 {
            self.check_flight(inst);
        }
        if let Some(t) = &mut self.w.trace {
            t.begin(pc, act);
        }
        let flow = if act == 0 {
            Flow::Next
        } else {
            self.exec(&inst.op, act, mask)
        };
        if flow == Flow::Blocked
            && let Some(t) = &mut self.w.trace
            && matches!(
                inst.op,
                Op::Bar(..) | Op::Mma(_) | Op::Matrix(_) | Op::Sm90(_)
            )
            && !t.touched()
        {
            // It waits for the warp's other lanes and comes here again.
            t.take_back();
        }
        match flow {
            Flow::Next => {
                let cur = self.w.current;
                self.w.fragments[cur].pc = pc + 1;
                if node != NONE {
                    self.w.arrive(cur);
                }
            }
            Flow::Moved | Flow::Blocked => {}
        }
    }

    #[inline]
    fn check_registers(&mut self, inst: &Inst, mask: u32, act: u32) {
        let (first, count) = inst.reads;
        for k in first..first + u32::from(count) {
            let (w, r) = self.k.reads[k as usize];
            let known = match w {
                Width::P => self.w.initp[r as usize],
                Width::W64 => self.w.init64[r as usize],
                _ => self.w.init32[r as usize],
            };
            let guard = w == Width::P && inst.guard >> 1 == r;
            let missing = (if guard { mask } else { act }) & !known;
            if missing != 0 {
                let names = match w {
                    Width::P => 2,
                    Width::W64 => 1,
                    _ => 0,
                };
                let name = &self.k.names[names][r as usize];
                let message = format!("register {name} is read, but nothing wrote it");
                self.report(
                    Kind::UninitialisedRegister,
                    missing.trailing_zeros(),
                    None,
                    || message,
                );
                // Once is enough.
                match w {
                    Width::P => self.w.initp[r as usize] |= missing,
                    Width::W64 => self.w.init64[r as usize] |= missing,
                    _ => self.w.init32[r as usize] |= missing,
                }
            }
        }
    }

    pub(crate) fn report(
        &mut self,
        kind: Kind,
        lane: u32,
        other: Option<u32>,
        message: impl FnOnce() -> String,
    ) {
        let other_line = other.map(|pc| self.world.line_of(self.k, pc));
        if self.world.reports.count_repeat(kind, self.line, other_line) {
            return;
        }
        self.world.reports.add(Report {
            kind,
            line: self.line,
            other_line,
            kernel: self.k.name.clone(),
            cta: Some(self.cta.id),
            warp: self.w.index,
            lane,
            message: message(),
            count: 1,
        });
    }

    fn exec(&mut self, op: &Op, act: u32, mask: u32) -> Flow {
        match op {
            Op::Nop => {}
            Op::I1(w, f, d, a) => self.int1(*w, *f, *d, *a, act),
            Op::I2(w, f, d, a, b) => self.int2(*w, *f, *d, *a, *b, act),
            Op::Shift64(f, d, a, b) => self.shift64(*f, *d, *a, *b, act),
            Op::I3(w, f, d, a, b, c) => self.int3(*w, *f, *d, *a, *b, *c, act),
            Op::Bfi(w, d, a, b, p, n) => self.bfi(*w, [*d, *a, *b, *p, *n], act),
            Op::Bfe64(s, d, a, p, n) => self.bfe64(*s, [*d, *a, *p, *n], act),
            Op::MulWide(s, w, d, a, b) => self.mul_wide(*s, *w, *d, *a, *b, act),
            Op::MadWide(s, w, d, a, b, c) => self.mad_wide(*s, *w, [*d, *a, *b, *c], act),
            Op::Carry(sub, ci, co, w, d, a, b) => {
                self.carry(*sub, *ci, *co, *w, [*d, *a, *b], act);
            }
            Op::MadCarry(hi, s, ci, co, d, a, b, c) => {
                self.mad_carry([*hi, *s, *ci, *co], [*d, *a, *b, *c], act);
            }
            Op::Pair16(f, d, a, b) => self.pair16(*f, *d, *a, *b, act),
            Op::F1(f, what, m, d, a) => self.float1(*f, *what, *m, *d, *a, act),
            Op::F2(f, what, m, d, a, b) => self.float2(*f, *what, *m, *d, *a, *b, act),
            Op::Fma(f, m, d, a, b, c) => self.fma(*f, *m, *d, *a, *b, *c, act),
            Op::H1(f, what, m, d, a) => self.half1(*f, *what, *m, *d, *a, act),
            Op::H2(f, what, m, d, a, b) => self.half2(*f, *what, *m, *d, *a, *b, act),
            Op::HFma(f, m, d, a, b, c) => self.half_fma(*f, *m, [*d, *a, *b, *c], act),
            Op::Testp(f, t, d, a) => self.testp(*f, *t, *d, *a, act),
            Op::Setp(ty, cmp, ftz, p, q, a, b, with) => {
                self.setp(*ty, *cmp, *ftz, (*p, *q), *a, *b, *with, act);
            }
            Op::Set(s) => self.set(s, act),
            Op::Selp(w, d, a, b, p, n) => self.selp(*w, *d, *a, *b, *p, *n, act),
            Op::Mov(Width::W64, d, a) => {
                let v = *self.w.a64(self.k, *a);
                self.w.put64(*d, act, &v);
            }
            Op::Mov(_, d, a) => {
                let v = *self.w.a32(self.k, *a);
                self.w.put32(*d, act, &v);
            }
            Op::Pred(logic, d, a, na, b, nb) => {
                let (a, b) = (self.w.ap(*a, *na), self.w.ap(*b, *nb));
                self.w.putp(*d, act, moves::logic(*logic, a, b));
            }
            Op::Pack(p) => self.pack(p, act),
            Op::ReadSpecial(s, d) => self.special(*s, *d, act),
            Op::Cvt(c) => self.cvt(c, act),
            Op::CvtPair(f, m, d, hi, lo) => self.cvt_pair(*f, *m, *d, *hi, *lo, act),
            Op::Cvta(to_generic, s, _, w, d, a) => self.cvta(*to_generic, *s, *w, *d, *a, act),
            Op::IsSpace(s, d, w, a) => self.is_space(*s, *d, *w, *a, act),
            Op::Ld(a) => self.load(a, act),
            Op::St(a) => self.store(a, act),
            Op::Atom(a) => self.atomic(a, act),
            Op::Fence(s) => self.fence(*s, act),
            Op::CpAsync(c) => self.cp_async(c, act),
            Op::CpCommit => {
                for l in crate::machine::cta::lanes(act) {
                    self.w.committed[l as usize] += 1;
                }
            }
            Op::CpWait(n) => self.cp_wait(*n, act),
            Op::Matrix(_) | Op::Mma(_) if act == mask && self.holds(act) => return Flow::Blocked,
            Op::Matrix(m) => self.fragments(m, act),
            Op::Mma(m) => self.mma(m, act),
            Op::Warp(g) => return self.warp_wide(&g.0, g.1, act, mask),
            Op::ActiveMask(d) => self.w.put32(*d, act, &[act; 32]),
            Op::Bar(aligned, kind, id, n) => return self.bar(*aligned, *kind, *id, *n, act, mask),
            Op::Bra(to, meet) => return self.branch(*to, *meet, act, mask),
            Op::Brx(b) => return self.branch_index(b, act, mask),
            Op::Call(to) => return self.call(*to, act, mask),
            Op::Return => return self.ret(),
            Op::Exit => return self.exit(act, mask),
            Op::Trap => self.report(Kind::Trap, act.trailing_zeros(), None, || {
                "the kernel trapped".into()
            }),
            Op::Nanosleep => {}
            Op::CopyLocal(d, s, bytes) => self.copy_local(*d, *s, *bytes, act),
            Op::Sm90(op) => return self.sm90(op, act, mask),
        }
        Flow::Next
    }
}
