//! PTX from programs of threads ([`crate::simt`]): every family without tensor-core instructions.
//!
//! Values are virtual registers named by type and number: `%p` truth, `%r` 32-bit integers, `%l`
//! 64-bit ones, `%f` f32, `%d` f64; variables have a `v` in front. Arithmetic says how it rounds and
//! nothing is contracted but what the program says is one multiply-add.
mod math;

use super::source::{Printed, Source};
use super::{ParamSpec, ParamValue};
use crate::EmitError;
use crate::simt::ir::{Inst, Op, Program, Reg, Ty};
use expr::Compare;
use layout::DType;
use std::fmt::Write;

type Out<T> = Result<T, String>;

struct Printer<'a> {
    p: &'a Program,
    out: String,
    temps: u32,
    labels: u32,
    /// First byte of every shared array.
    shared: Vec<u32>,
    /// `min.NaN` and `max.NaN` are there.
    nan: bool,
    source: &'a Source,
}

/// Bytes of an element in shared memory.
fn size(d: DType) -> u32 {
    d.bits().max(8) / 8
}

fn prefix(t: Ty) -> &'static str {
    match t {
        Ty::Bool => "p",
        Ty::I32 | Ty::U32 => "r",
        Ty::I64 => "l",
        Ty::F32 => "f",
        Ty::F64 => "d",
    }
}

/// Instruction suffix for arithmetic.
fn suffix(t: Ty) -> &'static str {
    match t {
        Ty::Bool => "pred",
        Ty::I32 => "s32",
        Ty::U32 => "u32",
        Ty::I64 => "s64",
        Ty::F32 => "f32",
        Ty::F64 => "f64",
    }
}

fn moved(t: Ty) -> &'static str {
    match t {
        Ty::Bool => "pred",
        Ty::I32 | Ty::U32 => "b32",
        Ty::I64 => "b64",
        Ty::F32 => "f32",
        Ty::F64 => "f64",
    }
}

/// Prints a lowered program for `arch`.
///
/// # Errors
/// An element type or function has no PTX form.
pub(super) fn print(p: &Program, arch: &str, source: &Source) -> Result<Printed, EmitError> {
    text(p, arch, source).map_err(|why| EmitError::Rule {
        kernel: p.name.clone(),
        statement: "the text".into(),
        rule: "PTX",
        why,
    })
}

/// Declarations of registers by type: `count` values and variables each, and `temps` in between.
fn declared(values: usize, vars: usize, temps: u32) -> String {
    let mut out = String::new();
    for (c, ty) in [
        ("p", "pred"),
        ("r", "b32"),
        ("l", "b64"),
        ("f", "f32"),
        ("d", "f64"),
    ] {
        let _ = writeln!(
            out,
            "\t.reg .{ty} %{c}<{}>;\n\t.reg .{ty} %v{c}<{}>;",
            values + 1,
            vars + 1
        );
    }
    for (c, ty) in [
        ("tp", "pred"),
        ("th", "b16"),
        ("tr", "b32"),
        ("tl", "b64"),
        ("tf", "f32"),
    ] {
        let _ = writeln!(out, "\t.reg .{ty} %{c}<{}>;", temps + 1);
    }
    out
}

/// Values without memory as a scope of its own inside another text: `given` are there as `from`, `made`
/// goes to `to`; names have `number` in them, so that they are nobody else's.
pub(super) fn scope(
    (regs, body): (Vec<Ty>, &[Inst]),
    (given, from): (&[Reg], &[impl std::fmt::Display]),
    (made, to): (Reg, impl std::fmt::Display),
    number: u32,
) -> Out<String> {
    let p = Program {
        name: String::new(),
        threads: 0,
        regs,
        vars: vec![],
        shared: vec![],
        dims: vec![],
        operands: vec![],
        tasks: layout::Dim::ONE,
        faults: vec![],
        body: vec![],
    };
    let mut s = Printer {
        p: &p,
        out: String::new(),
        temps: 0,
        labels: 0,
        shared: vec![],
        nan: true,
        source: &Source::Entry,
    };
    s.body(body)?;
    let own = |text: &str| text.replace('%', &format!("%s{number}"));
    let line = |r: Reg, to: &str, from: &str| format!("\tmov.{} {to}, {from};\n", moved(s.ty(r)));
    let mut out = own(&declared(p.regs.len(), 0, s.temps));
    for (&g, f) in given.iter().zip(from) {
        out += &line(g, &own(&s.r(g)), &f.to_string());
    }
    out += &own(&s.out);
    out += &line(made, &to.to_string(), &own(&s.r(made)));
    Ok(out)
}

fn text(p: &Program, arch: &str, source: &Source) -> Out<Printed> {
    let mut shared = vec![];
    let mut bytes = 0u32;
    for a in &p.shared {
        shared.push(bytes);
        let n = a
            .elements
            .checked_mul(size(a.dtype))
            .and_then(|n| n.checked_next_multiple_of(16));
        bytes = n
            .and_then(|n| bytes.checked_add(n))
            .ok_or("shared memory leaves 32 bits")?;
    }
    let mut s = Printer {
        p,
        out: String::new(),
        temps: 0,
        labels: 0,
        shared,
        nan: arch != "sm_75",
        source,
    };
    let mut params = vec![];
    for (i, o) in p.operands.iter().enumerate() {
        let _ = o;
        let name = format!("operand_{i}");
        s.param("u64", &format!("%l_{i}"), &name, params.len());
        s.line(&format!("cvta.to.global.u64 %l_{i}, %l_{i};"));
        params.push(ParamSpec {
            name,
            value: ParamValue::Operand(i as u16),
        });
    }
    for (i, d) in p.dims.iter().enumerate() {
        let name = format!("dim_{i}");
        s.param("s64", &format!("%dim_{i}"), &name, params.len());
        params.push(ParamSpec {
            name,
            value: ParamValue::Dim(d.clone()),
        });
    }
    if !p.faults.is_empty() {
        s.param("u64", "%fault", "fault", params.len());
        s.line("cvta.to.global.u64 %fault, %fault;");
        params.push(ParamSpec {
            name: "fault".into(),
            value: ParamValue::Fault,
        });
    }
    for (i, &t) in p.vars.iter().enumerate() {
        let v = format!("%v{}{i}", prefix(t));
        match t {
            Ty::Bool => s.truth(&v, false),
            Ty::F32 => s.line(&format!("mov.f32 {v}, 0f00000000;")),
            Ty::F64 => s.line(&format!("mov.f64 {v}, 0d0000000000000000;")),
            t => s.line(&format!("mov.{} {v}, 0;", moved(t))),
        }
    }
    s.body(&p.body)?;
    let mut head = declared(p.regs.len(), p.vars.len(), s.temps);
    let _ = writeln!(
        head,
        "\t.reg .b64 %l_<{}>;\n\t.reg .b64 %dim_<{}>;\n\t.reg .b64 %fault;",
        p.operands.len() + 1,
        p.dims.len() + 1
    );
    let code = head + &s.out;
    let most = super::target::registers_for(p.threads);
    let held = super::pressure::estimate_threads(&code, most);
    Ok(Printed {
        name: p.name.clone(),
        held,
        code,
        params,
        threads: p.threads,
        registers: super::pressure::given(held, most),
        shared_bytes: bytes,
        faults: p.faults.clone(),
    })
}

impl Printer<'_> {
    fn line(&mut self, s: &str) {
        self.out.push('\t');
        self.out.push_str(s);
        self.out.push('\n');
    }

    fn param(&mut self, ty: &str, to: &str, name: &str, index: usize) {
        let line = self.source.param(ty, to, name, index);
        self.line(&format!("{line};"));
    }

    fn ty(&self, r: Reg) -> Ty {
        self.p.regs[r as usize]
    }

    fn r(&self, r: Reg) -> String {
        format!("%{}{r}", prefix(self.ty(r)))
    }

    fn temp(&mut self, c: &str) -> String {
        self.temps += 1;
        format!("%t{c}{}", self.temps)
    }

    fn body(&mut self, body: &[Inst]) -> Out<()> {
        body.iter().try_for_each(|i| self.inst(i))
    }

    /// Address of element `index` of an operand.
    fn global(&mut self, operand: u16, index: Reg) -> String {
        let d = self.p.operands[operand as usize].dtype;
        let (t, index) = (self.temp("l"), self.r(index));
        if d.bits() == 4 {
            let half = self.temp("r");
            self.line(&format!("shr.u32 {half}, {index}, 1;"));
            self.line(&format!("cvt.u64.u32 {t}, {half};"));
        } else {
            self.line(&format!("mul.wide.s32 {t}, {index}, {};", size(d)));
        }
        self.line(&format!("add.s64 {t}, {t}, %l_{operand};"));
        t
    }

    fn shared_at(&mut self, array: u32, index: Reg) -> String {
        let d = self.p.shared[array as usize].dtype;
        let (t, index) = (self.temp("r"), self.r(index));
        let base = self.temp("r");
        self.line(&format!("mov.u32 {base}, shared_bytes;"));
        self.line(&format!("mad.lo.s32 {t}, {index}, {}, {base};", size(d)));
        format!("{t}+{}", self.shared[array as usize])
    }

    /// Reads one element of type `d` into register `to`; `index` picks a nibble.
    fn read(&mut self, space: &str, at: &str, d: DType, to: &str, index: Option<Reg>) -> Out<()> {
        match d {
            DType::F32 => self.line(&format!("ld.{space}.f32 {to}, [{at}];")),
            DType::F64 => self.line(&format!("ld.{space}.f64 {to}, [{at}];")),
            DType::I32 | DType::U32 => self.line(&format!("ld.{space}.b32 {to}, [{at}];")),
            DType::I64 | DType::U64 => self.line(&format!("ld.{space}.b64 {to}, [{at}];")),
            DType::I8 => self.line(&format!("ld.{space}.s8 {to}, [{at}];")),
            DType::U8 => self.line(&format!("ld.{space}.u8 {to}, [{at}];")),
            DType::I16 => self.line(&format!("ld.{space}.s16 {to}, [{at}];")),
            DType::U16 => self.line(&format!("ld.{space}.u16 {to}, [{at}];")),
            DType::F16 => {
                let h = self.temp("h");
                self.line(&format!("ld.{space}.b16 {h}, [{at}];"));
                self.line(&format!("cvt.f32.f16 {to}, {h};"));
            }
            DType::BF16 => {
                let t = self.temp("r");
                self.line(&format!("ld.{space}.u16 {t}, [{at}];"));
                self.line(&format!("shl.b32 {t}, {t}, 16;"));
                self.line(&format!("mov.b32 {to}, {t};"));
            }
            DType::Bool => {
                let t = self.temp("r");
                self.line(&format!("ld.{space}.u8 {t}, [{at}];"));
                self.line(&format!("setp.ne.u32 {to}, {t}, 0;"));
            }
            DType::I4 | DType::U4 => {
                let index = self.r(index.ok_or("a nibble without a place")?);
                let (t, s) = (self.temp("r"), self.temp("r"));
                self.line(&format!("ld.{space}.u8 {t}, [{at}];"));
                self.line(&format!("and.b32 {s}, {index}, 1;"));
                self.line(&format!("shl.b32 {s}, {s}, 2;"));
                let kind = if d == DType::I4 { "s32" } else { "u32" };
                self.line(&format!("bfe.{kind} {to}, {t}, {s}, 4;"));
            }
            d => return Err(format!("{d} has no PTX form")),
        }
        Ok(())
    }

    fn write(
        &mut self,
        space: &str,
        at: &str,
        d: DType,
        from: &str,
        index: Option<Reg>,
    ) -> Out<()> {
        match d {
            DType::F32 => self.line(&format!("st.{space}.f32 [{at}], {from};")),
            DType::F64 => self.line(&format!("st.{space}.f64 [{at}], {from};")),
            DType::I32 | DType::U32 => self.line(&format!("st.{space}.b32 [{at}], {from};")),
            DType::I64 | DType::U64 => self.line(&format!("st.{space}.b64 [{at}], {from};")),
            DType::I8 | DType::U8 => self.line(&format!("st.{space}.u8 [{at}], {from};")),
            DType::I16 | DType::U16 => self.line(&format!("st.{space}.u16 [{at}], {from};")),
            DType::F16 => {
                let h = self.temp("h");
                self.line(&format!("cvt.rn.f16.f32 {h}, {from};"));
                self.line(&format!("st.{space}.b16 [{at}], {h};"));
            }
            DType::BF16 => {
                let t = self.brain(from);
                self.line(&format!("shr.u32 {t}, {t}, 16;"));
                self.line(&format!("st.{space}.u16 [{at}], {t};"));
            }
            DType::Bool => {
                let t = self.temp("r");
                self.line(&format!("selp.u32 {t}, 1, 0, {from};"));
                self.line(&format!("st.{space}.u8 [{at}], {t};"));
            }
            DType::I4 | DType::U4 => {
                // Two threads may share the byte: its word is changed as a whole.
                let index = self.r(index.ok_or("a nibble without a place")?);
                let (word, low) = (self.temp("l"), self.temp("l"));
                let (s, v, m) = (self.temp("r"), self.temp("r"), self.temp("r"));
                self.line(&format!("and.b64 {word}, {at}, -4;"));
                self.line(&format!("and.b64 {low}, {at}, 3;"));
                self.line(&format!("cvt.u32.u64 {s}, {low};"));
                self.line(&format!("shl.b32 {s}, {s}, 3;"));
                self.line(&format!("and.b32 {v}, {index}, 1;"));
                self.line(&format!("mad.lo.u32 {s}, {v}, 4, {s};"));
                self.line(&format!("mov.u32 {m}, 15;"));
                self.line(&format!("shl.b32 {m}, {m}, {s};"));
                self.line(&format!("not.b32 {m}, {m};"));
                self.line(&format!("and.b32 {v}, {from}, 15;"));
                self.line(&format!("shl.b32 {v}, {v}, {s};"));
                self.line(&format!("red.global.and.b32 [{word}], {m};"));
                self.line(&format!("red.global.or.b32 [{word}], {v};"));
            }
            d => return Err(format!("{d} has no PTX form")),
        }
        Ok(())
    }

    /// The bits of `x` rounded to bf16, in the upper half of a register.
    fn brain(&mut self, x: &str) -> String {
        let (b, t, p) = (self.temp("r"), self.temp("r"), self.temp("p"));
        self.line(&format!("mov.b32 {b}, {x};"));
        self.line(&format!("bfe.u32 {t}, {b}, 16, 1;"));
        self.line(&format!("add.u32 {t}, {t}, {b};"));
        self.line(&format!("add.u32 {t}, {t}, 32767;"));
        self.line(&format!("testp.notanumber.f32 {p}, {x};"));
        let q = self.temp("r");
        self.line(&format!("or.b32 {q}, {b}, 4194304;"));
        self.line(&format!("selp.b32 {t}, {q}, {t}, {p};"));
        self.line(&format!("and.b32 {t}, {t}, -65536;"));
        t
    }

    fn truth(&mut self, to: &str, v: bool) {
        let t = self.temp("r");
        self.line(&format!("mov.u32 {t}, {};", i32::from(v)));
        self.line(&format!("setp.ne.u32 {to}, {t}, 0;"));
    }

    /// Nothing, as a value of type `t`.
    fn zero(&mut self, to: &str, t: Ty) {
        match t {
            Ty::Bool => self.truth(to, false),
            Ty::F32 => self.line(&format!("mov.f32 {to}, 0f00000000;")),
            Ty::F64 => self.line(&format!("mov.f64 {to}, 0d0000000000000000;")),
            t => self.line(&format!("mov.{} {to}, 0;", moved(t))),
        }
    }

    /// `f` where `guard` holds.
    fn guarded(&mut self, guard: Option<Reg>, f: impl FnOnce(&mut Self) -> Out<()>) -> Out<()> {
        let Some(g) = guard else { return f(self) };
        self.labels += 1;
        let label = format!("$skip_{}", self.labels);
        let g = self.r(g);
        self.line(&format!("@!{g} bra {label};"));
        f(self)?;
        self.out.push_str(&format!("{label}:\n"));
        Ok(())
    }

    /// Reads `dst.len()` neighbours at once, as words.
    fn read_run(&mut self, space: &str, at: &str, d: DType, dst: &[Reg]) -> Out<()> {
        let bits = d.bits() * dst.len() as u32;
        if d.bits() < 8 || ![16, 32, 64, 128].contains(&bits) || (bits < 32 && d.bits() == 16) {
            for (i, &r) in dst.iter().enumerate() {
                let to = self.r(r);
                self.read(space, &format!("{at}+{}", i as u32 * size(d)), d, &to, None)?;
            }
            return Ok(());
        }
        if d.bits() == 64 {
            let list: Vec<String> = dst.iter().map(|&r| self.r(r)).collect();
            let kind = moved(self.ty(dst[0]));
            self.line(&format!(
                "ld.{space}.v{}.{kind} {{{}}}, [{at}];",
                dst.len(),
                list.join(", ")
            ));
            return Ok(());
        }
        let words = (bits / 32).max(1);
        let names: Vec<String> = (0..words).map(|_| self.temp("r")).collect();
        match (words, bits) {
            (_, 16) => self.line(&format!("ld.{space}.u16 {}, [{at}];", names[0])),
            (1, _) => self.line(&format!("ld.{space}.b32 {}, [{at}];", names[0])),
            (n, _) => self.line(&format!(
                "ld.{space}.v{n}.b32 {{{}}}, [{at}];",
                names.join(", ")
            )),
        }
        let per = 32 / d.bits();
        for (i, &r) in dst.iter().enumerate() {
            let (word, part) = (&names[i / per as usize], i as u32 % per);
            let (word, to) = (word.clone(), self.r(r));
            let shift = part * d.bits();
            match d {
                DType::F32 | DType::I32 | DType::U32 => {
                    self.line(&format!("mov.b32 {to}, {word};"));
                }
                DType::BF16 => {
                    let t = self.temp("r");
                    let op = if part == 0 { "shl.b32" } else { "and.b32" };
                    let by = if part == 0 { "16" } else { "-65536" };
                    self.line(&format!("{op} {t}, {word}, {by};"));
                    self.line(&format!("mov.b32 {to}, {t};"));
                }
                DType::F16 => {
                    let (t, h) = (self.temp("r"), self.temp("h"));
                    self.line(&format!("shr.u32 {t}, {word}, {shift};"));
                    self.line(&format!("cvt.u16.u32 {h}, {t};"));
                    self.line(&format!("cvt.f32.f16 {to}, {h};"));
                }
                DType::Bool => {
                    let t = self.temp("r");
                    self.line(&format!("bfe.u32 {t}, {word}, {shift}, 8;"));
                    self.line(&format!("setp.ne.u32 {to}, {t}, 0;"));
                }
                d => {
                    let kind = if d.is_signed_int() { "s32" } else { "u32" };
                    self.line(&format!("bfe.{kind} {to}, {word}, {shift}, {};", d.bits()));
                }
            }
        }
        Ok(())
    }

    fn inst(&mut self, i: &Inst) -> Out<()> {
        match i {
            Inst::Let(r, op) => self.op(*r, op),
            Inst::Set(v, r) => {
                let t = self.ty(*r);
                let from = self.r(*r);
                self.line(&format!("mov.{} %v{}{v}, {from};", moved(t), prefix(t)));
                Ok(())
            }
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => {
                let d = self.p.operands[*operand as usize].dtype;
                if guard.is_some() {
                    for &r in dst {
                        let (to, t) = (self.r(r), self.ty(r));
                        self.zero(&to, t);
                    }
                }
                self.guarded(*guard, |s| {
                    let at = s.global(*operand, *index);
                    s.read_run("global", &at, d, dst)
                })
            }
            Inst::LoadSharedRun { dst, array, index } => {
                let d = self.p.shared[*array as usize].dtype;
                let at = self.shared_at(*array, *index);
                self.read_run("shared", &at, d, dst)
            }
            Inst::Store {
                operand,
                index,
                values,
                guard,
            } => {
                let d = self.p.operands[*operand as usize].dtype;
                self.guarded(*guard, |s| {
                    let at = s.global(*operand, *index);
                    if s.vector(d, values) {
                        return s.write_vector("global", &at, values);
                    }
                    for (n, &r) in values.iter().enumerate() {
                        let from = s.r(r);
                        let at = match n {
                            0 => at.clone(),
                            n => format!("{at}+{}", n as u32 * size(d)),
                        };
                        s.write("global", &at, d, &from, Some(*index))?;
                    }
                    Ok(())
                })
            }
            Inst::StoreShared {
                array,
                index,
                values,
            } => {
                let d = self.p.shared[*array as usize].dtype;
                let at = self.shared_at(*array, *index);
                if self.vector(d, values) {
                    return self.write_vector("shared", &at, values);
                }
                for (n, &r) in values.iter().enumerate() {
                    let from = self.r(r);
                    let (base, offset) = at.split_once('+').unwrap_or((&at, "0"));
                    let offset: u32 = offset.parse().unwrap_or(0) + n as u32 * size(d);
                    self.write("shared", &format!("{base}+{offset}"), d, &from, None)?;
                }
                Ok(())
            }
            Inst::For {
                i,
                from,
                to,
                step,
                body,
            } => {
                self.labels += 1;
                let (top, end) = (
                    format!("$loop_{}", self.labels),
                    format!("$end_{}", self.labels),
                );
                let (i, from, to, step) = (self.r(*i), self.r(*from), self.r(*to), self.r(*step));
                let p = self.temp("p");
                self.line(&format!("mov.b32 {i}, {from};"));
                self.out.push_str(&format!("{top}:\n"));
                // Loops are written out as often as the schedule says, and no more.
                self.line(".pragma \"nounroll\";");
                self.line(&format!("setp.ge.s32 {p}, {i}, {to};"));
                self.line(&format!("@{p} bra {end};"));
                self.body(body)?;
                self.line(&format!("add.s32 {i}, {i}, {step};"));
                self.line(&format!("bra {top};"));
                self.out.push_str(&format!("{end}:\n"));
                Ok(())
            }
            Inst::If { cond, body } => self.guarded(Some(*cond), |s| s.body(body)),
            Inst::Barrier => {
                let line = self.source.barrier();
                self.line(&format!("{line};"));
                Ok(())
            }
            Inst::Fault { cond, code } => self.guarded(Some(*cond), |s| {
                let t = s.temp("r");
                s.line(&format!("mov.u32 {t}, {};", code + 1));
                // Several threads may find something: the highest number stays.
                s.line(&format!("red.relaxed.gpu.global.max.u32 [%fault], {t};"));
                Ok(())
            }),
        }
    }

    /// Whether `values` are stored as one vector.
    fn vector(&self, d: DType, values: &[Reg]) -> bool {
        d.bits() == 32 && matches!(values.len(), 2 | 4)
    }

    fn write_vector(&mut self, space: &str, at: &str, values: &[Reg]) -> Out<()> {
        let kind = moved(self.ty(values[0]));
        let list: Vec<String> = values.iter().map(|&r| self.r(r)).collect();
        self.line(&format!(
            "st.{space}.v{}.{kind} [{at}], {{{}}};",
            values.len(),
            list.join(", ")
        ));
        Ok(())
    }

    fn op(&mut self, r: Reg, op: &Op) -> Out<()> {
        let (to, ty) = (self.r(r), self.ty(r));
        let p = self.p;
        match op {
            Op::Const(bits) => {
                let bits = *bits;
                match ty {
                    Ty::Bool => self.truth(&to, bits != 0),
                    Ty::F32 => {
                        let v = (f64::from_bits(bits) as f32).to_bits();
                        self.line(&format!("mov.f32 {to}, 0f{v:08X};"));
                    }
                    Ty::F64 => self.line(&format!("mov.f64 {to}, 0d{bits:016X};")),
                    Ty::I64 => self.line(&format!("mov.b64 {to}, {};", bits as i64)),
                    Ty::U32 => self.line(&format!("mov.b32 {to}, {};", bits as u32)),
                    Ty::I32 => self.line(&format!("mov.b32 {to}, {};", bits as i64 as i32)),
                }
            }
            Op::Thread => self.line(&format!("mov.u32 {to}, %tid.x;")),
            Op::Task => {
                let task = self.source.task();
                self.line(&format!("mov.u32 {to}, {task};"));
            }
            Op::Dim(d) => match ty {
                Ty::I64 => self.line(&format!("mov.b64 {to}, %dim_{d};")),
                _ => self.line(&format!("cvt.u32.u64 {to}, %dim_{d};")),
            },
            Op::Get(v) => self.line(&format!("mov.{} {to}, %v{}{v};", moved(ty), prefix(ty))),
            Op::Unary(f, x) => return self.unary(&to, *f, *x),
            Op::Binary(f, x, y) => return self.binary(&to, *f, *x, *y),
            Op::Compare(f, x, y) => {
                let name = match f {
                    Compare::Eq => "eq",
                    Compare::Ne if self.ty(*x).is_float() => "neu",
                    Compare::Ne => "ne",
                    Compare::Lt => "lt",
                    Compare::Le => "le",
                    Compare::Gt => "gt",
                    Compare::Ge => "ge",
                };
                let (kind, x, y) = (suffix(self.ty(*x)), self.r(*x), self.r(*y));
                self.line(&format!("setp.{name}.{kind} {to}, {x}, {y};"));
            }
            Op::Select(c, x, y) => {
                let (c, x, y) = (self.r(*c), self.r(*x), self.r(*y));
                if ty == Ty::Bool {
                    let (a, n, b) = (self.temp("p"), self.temp("p"), self.temp("p"));
                    self.line(&format!("and.pred {a}, {c}, {x};"));
                    self.line(&format!("not.pred {n}, {c};"));
                    self.line(&format!("and.pred {b}, {n}, {y};"));
                    self.line(&format!("or.pred {to}, {a}, {b};"));
                } else {
                    self.line(&format!("selp.{} {to}, {x}, {y}, {c};", moved(ty)));
                }
            }
            Op::MulAdd(x, y, z) => {
                let (x, y, z) = (self.r(*x), self.r(*y), self.r(*z));
                match ty {
                    Ty::F32 | Ty::F64 => {
                        self.line(&format!("fma.rn.{} {to}, {x}, {y}, {z};", suffix(ty)));
                    }
                    ty => self.line(&format!("mad.lo.{} {to}, {x}, {y}, {z};", suffix(ty))),
                }
            }
            Op::Convert(x) => return self.convert(&to, ty, *x),
            Op::Bits(x) => {
                let x = self.r(*x);
                self.line(&format!("mov.b32 {to}, {x};"));
            }
            Op::Narrow(d, x) => {
                let x = self.r(*x);
                match d {
                    DType::F16 => {
                        let h = self.temp("h");
                        self.line(&format!("cvt.rn.f16.f32 {h}, {x};"));
                        self.line(&format!("cvt.f32.f16 {to}, {h};"));
                    }
                    DType::BF16 => {
                        let t = self.brain(&x);
                        self.line(&format!("mov.b32 {to}, {t};"));
                    }
                    d => {
                        let kind = if d.is_signed_int() { "s32" } else { "u32" };
                        self.line(&format!("bfe.{kind} {to}, {x}, 0, {};", d.bits()));
                    }
                }
            }
            Op::Load {
                operand,
                index,
                guard,
            } => {
                let d = p.operands[*operand as usize].dtype;
                if guard.is_some() {
                    self.zero(&to, ty);
                }
                return self.guarded(*guard, |s| {
                    let at = s.global(*operand, *index);
                    s.read("global", &at, d, &to, Some(*index))
                });
            }
            Op::LoadShared { array, index } => {
                let d = p.shared[*array as usize].dtype;
                let at = self.shared_at(*array, *index);
                return self.read("shared", &at, d, &to, None);
            }
            Op::Shuffle(x, mask) => {
                let v = self.r(*x);
                match ty {
                    Ty::I32 | Ty::U32 => {
                        self.line(&format!("shfl.sync.bfly.b32 {to}, {v}, {mask}, 31, -1;"));
                    }
                    Ty::F32 => {
                        let t = self.temp("r");
                        self.line(&format!("mov.b32 {t}, {v};"));
                        self.line(&format!("shfl.sync.bfly.b32 {t}, {t}, {mask}, 31, -1;"));
                        self.line(&format!("mov.b32 {to}, {t};"));
                    }
                    Ty::Bool => {
                        let t = self.temp("r");
                        self.line(&format!("selp.u32 {t}, 1, 0, {v};"));
                        self.line(&format!("shfl.sync.bfly.b32 {t}, {t}, {mask}, 31, -1;"));
                        self.line(&format!("setp.ne.u32 {to}, {t}, 0;"));
                    }
                    Ty::I64 | Ty::F64 => {
                        let (a, b) = (self.temp("r"), self.temp("r"));
                        self.line(&format!("mov.b64 {{{a}, {b}}}, {v};"));
                        self.line(&format!("shfl.sync.bfly.b32 {a}, {a}, {mask}, 31, -1;"));
                        self.line(&format!("shfl.sync.bfly.b32 {b}, {b}, {mask}, 31, -1;"));
                        self.line(&format!("mov.b64 {to}, {{{a}, {b}}};"));
                    }
                }
            }
        }
        Ok(())
    }
}
