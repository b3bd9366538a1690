//! PTX from programs of threads ([`crate::simt`]).
//!
//! Values are virtual registers named by type and number: `%p` truth, `%r` 32-bit integers, `%l`
//! 64-bit ones, `%f` f32, `%d` f64; variables have a `v` in front. Arithmetic says how it rounds and
//! nothing is contracted but what the program says is one multiply-add.
mod counted;
mod math;
mod matrix;
mod memory;
mod output;
mod pipeline;
mod places;
mod warpgroup;

use super::lines::Lines;
use super::printed::Printed;
use super::source::Source;
use super::{ParamSpec, ParamValue, TensorParam};
use crate::EmitError;
use crate::simt::forms::ThreadOp;
use crate::simt::ir::{Inst, Op, Pipeline, Program, Reg, Ty};
use counted::{Part, pipeline_of};
use expr::Compare;
use foldhash::fast::FixedState;
use layout::DType;
use output::{Arg, Name, Output, Second};
use places::{beyond, shared_arrays};
use std::collections::HashMap;
use std::fmt::Write;

pub(super) use counted::Counted;

type Out<T> = Result<T, String>;

struct Printer<'a> {
    p: &'a Program,
    out: Output,
    temps: u32,
    labels: u32,
    /// First byte of every shared array.
    shared: Vec<u32>,
    /// `min.NaN` and `max.NaN` are there, and two values are rounded to 16 bits at once.
    nan: bool,
    source: &'a Source,
    /// By value the integer that it is known to be.
    numbers: Vec<Option<i64>>,
    /// By value, of elements' numbers that are another one and so many more, and nothing but elements' numbers.
    beyond: Vec<Option<(Reg, i64)>>,
    /// Addresses that are in registers where the text has come to, and in which order they came.
    addresses: HashMap<(memory::Space, Reg), Name, FixedState>,
    /// Parts of the text by instruction.
    parts: Vec<Part>,
    entered: Vec<(memory::Space, Reg)>,
    /// The pipeline that is printed.
    pipeline: Option<Printing>,
    /// By variable, whether it has its zero in the task at hand.
    begun: Vec<bool>,
}

/// The pipeline that is printed.
struct Printing {
    pipeline: Pipeline,
    /// Number that its labels end with.
    label: u32,
    /// This thread's number.
    thread: Name,
    /// Threads that compute.
    computing: u32,
    /// The CTA's number in its cluster, where CTAs copy to each other's stages.
    rank: Option<Name>,
    /// Sides printed so far.
    sides: u32,
    /// The barrier of the stage that is filled.
    filled: Option<Name>,
    /// Whether this warp, one that copies, has waited for the kernels before.
    waited: Option<Name>,
    /// The piece and the stage that threads which compute have come to.
    come: Option<[Name; 2]>,
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

/// What the names of variables begin with.
fn variable(t: Ty) -> &'static str {
    match t {
        Ty::Bool => "vp",
        Ty::I32 | Ty::U32 => "vr",
        Ty::I64 => "vl",
        Ty::F32 => "vf",
        Ty::F64 => "vd",
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
    text(p, arch, source).map_err(|why| refused(p, why))
}

fn refused(p: &Program, why: String) -> EmitError {
    EmitError::Rule {
        kernel: p.name.clone(),
        statement: "the text".into(),
        rule: "PTX",
        why,
    }
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
        ("td", "f64"),
    ] {
        let _ = writeln!(out, "\t.reg .{ty} %{c}<{}>;", temps + 1);
    }
    out
}

/// The text of a scalar operation.
pub(super) fn alone(a: ThreadOp) -> Out<String> {
    let from: Vec<String> = a.given.iter().map(|r| format!("%given{r}")).collect();
    let made = (a.made, "%made");
    scope((a.regs, a.vars, &a.body), (&a.given, &from), made, 0)
}

/// Values without memory as a scope of its own inside another text: `given` are there as `from`, `made`
/// goes to `to`; names have `number` in them, so that they are nobody else's.
pub(super) fn scope(
    (regs, vars, body): (Vec<Ty>, Vec<Ty>, &[Inst]),
    (given, from): (&[Reg], &[impl std::fmt::Display]),
    (made, to): (Reg, impl std::fmt::Display),
    number: u32,
) -> Out<String> {
    let p = Program {
        name: String::new(),
        threads: 0,
        registers: None,
        regs,
        vars,
        shared: vec![],
        dims: vec![],
        operands: vec![],
        tensors: vec![],
        tasks: layout::Dim::ONE,
        walkers: 0,
        cluster: 1,
        faults: vec![],
        body: vec![],
    };
    let out = Output::text(p.regs.len());
    let mut s = Printer::new(&p, vec![], true, &Source::Entry, out);
    s.body(body)?;
    let printed = std::mem::replace(&mut s.out, Output::text(0)).into_text();
    let own = |text: &str| {
        let named = text.replace('%', &format!("%s{number}"));
        named.replace('$', &format!("$s{number}_"))
    };
    let line = |r: Reg, to: &str, from: &str| format!("\tmov.{} {to}, {from};\n", moved(s.ty(r)));
    let mut out = own(&declared(p.regs.len(), p.vars.len(), s.temps));
    for (&g, f) in given.iter().zip(from) {
        out += &line(g, &own(&s.r(g).to_string()), &f.to_string());
    }
    out += &own(&printed);
    out += &line(made, &to.to_string(), &own(&s.r(made).to_string()));
    Ok(out)
}

/// As [`print`], as lines to be counted, without a text.
///
/// # Errors
/// As [`print`].
pub(super) fn counted(p: &Program, arch: &str) -> Result<Counted, EmitError> {
    let of = || -> Out<Counted> {
        let mut out = Output::lines(p.regs.len());
        out.line(head(p, 0, walks(p, &Source::Entry)));
        let body = body(p, arch, &Source::Entry, out)?;
        Ok(Counted {
            shared_bytes: body.shared_bytes,
            lines: body.out.into_lines(),
            parts: body.parts,
        })
    };
    of().map_err(|why| refused(p, why))
}

/// Registers of a thread of `p`, whose lines these are, by estimate.
pub(super) fn held(p: &Program, arch: &str, lines: &Lines) -> u32 {
    registers(p, arch, &Source::Entry, lines).0
}

/// Whether a launch's CTAs walk tasks.
fn walks(p: &Program, source: &Source) -> bool {
    p.walkers > 0 && *source == Source::Entry
}

/// Declarations of all registers, of which `temps` are for the text alone.
fn head(p: &Program, temps: u32, walks: bool) -> String {
    let mut head = declared(p.regs.len(), p.vars.len(), temps);
    let _ = writeln!(
        head,
        "\t.reg .b64 %l_<{}>;\n\t.reg .b64 %dim_<{}>;\n\t.reg .b64 %fault;",
        p.operands.len() + 1,
        p.dims.len() + 1
    );
    if !p.tensors.is_empty() {
        let _ = writeln!(head, "\t.reg .b64 %map_<{}>;", p.tensors.len() + 1);
    }
    if walks {
        head += "\t.reg .b64 %tasks_;\n\t.reg .b32 %tasks;\n";
    }
    head
}

/// Registers that each thread of `p`, whose lines these are, holds by estimate, and is given.
fn registers(p: &Program, arch: &str, source: &Source, lines: &Lines) -> (u32, u32) {
    match p.registers {
        // They are shared out among all that the CTA begins with.
        Some(asked) if *source == Source::Entry && pipeline_of(&p.body).is_some() => (asked, asked),
        Some(asked) => (super::pressure::estimate(lines, asked), asked),
        None => {
            let most = super::arch::registers_for(p.threads);
            let held = super::pressure::estimate_threads(lines, arch, most);
            (held.estimate, held.given(most))
        }
    }
}

/// A program's instructions without its declarations.
struct Body {
    out: Output,
    /// Registers for the text alone.
    temps: u32,
    params: Vec<ParamSpec>,
    shared_bytes: u32,
    /// Parts of the lines by instruction, where these are counted.
    parts: Vec<Part>,
}

fn text(p: &Program, arch: &str, source: &Source) -> Out<Printed> {
    let walks = walks(p, source);
    let body = body(p, arch, source, Output::text(p.regs.len()))?;
    let code = head(p, body.temps, walks) + &body.out.into_text();
    let (held, registers) = registers(p, arch, source, &Lines::of(&code));
    Ok(Printed {
        name: p.name.clone(),
        held,
        code,
        params: body.params,
        threads: p.threads,
        registers,
        shared_bytes: body.shared_bytes,
        walkers: if walks { p.walkers } else { 0 },
        cluster: p.cluster,
        faults: p.faults.clone(),
    })
}

/// Prints the instructions of `p` to `out`.
fn body(p: &Program, arch: &str, source: &Source, out: Output) -> Out<Body> {
    let (shared, shared_bytes) = shared_arrays(p)?;
    let mut s = Printer::new(p, shared, arch != "sm_75", source, out);
    let mut params = vec![];
    for (i, o) in p.operands.iter().enumerate() {
        let _ = o;
        let name = format!("operand_{i}");
        s.param("u64", &format!("%l_{i}"), &name, params.len());
        s.line(format_args!("cvta.to.global.u64 %l_{i}, %l_{i};"));
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
    for (i, t) in p.tensors.iter().enumerate() {
        if *source != Source::Entry {
            return Err("boxes of tensors are copied by steps that are launched alone".into());
        }
        let (_, share) = (t.view.share(t.among))
            .filter(|_| t.among > 1)
            .unwrap_or_else(|| (0, t.view.clone()));
        let name = format!("tensor_{i}");
        s.line(format_args!("mov.b64 %map_{i}, {name};"));
        s.line(format_args!("cvta.param.u64 %map_{i}, %map_{i};"));
        params.push(ParamSpec {
            name,
            value: ParamValue::Tensor(TensorParam {
                operand: t.operand,
                dtype: p.operands[t.operand as usize].dtype,
                view: share,
                swizzle: t.swizzle,
            }),
        });
    }
    let walks = walks(p, source);
    if walks {
        s.param("s64", "%tasks_", "tasks", params.len());
        s.line("cvt.u32.u64 %tasks, %tasks_;");
        params.push(ParamSpec {
            name: "tasks".into(),
            value: ParamValue::Tasks(p.tasks.clone()),
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
    s.once(&p.body)?;
    Ok(Body {
        out: s.out,
        temps: s.temps,
        params,
        shared_bytes,
        parts: s.parts,
    })
}

impl<'a> Printer<'a> {
    fn new(
        p: &'a Program,
        shared: Vec<u32>,
        nan: bool,
        source: &'a Source,
        out: Output,
    ) -> Printer<'a> {
        Printer {
            p,
            out,
            temps: 0,
            labels: 0,
            shared,
            nan,
            source,
            numbers: vec![None; p.regs.len()],
            beyond: beyond(p),
            addresses: HashMap::default(),
            parts: vec![],
            entered: vec![],
            pipeline: None,
            begun: vec![false; p.vars.len()],
        }
    }

    /// `f`, whose addresses are not there afterwards.
    fn inner(&mut self, f: impl FnOnce(&mut Self) -> Out<()>) -> Out<()> {
        let before = self.entered.len();
        let done = f(self);
        for key in self.entered.drain(before..) {
            self.addresses.remove(&key);
        }
        done
    }

    fn line(&mut self, s: impl std::fmt::Display) {
        self.out.line(s);
    }

    /// Prints an instruction whose name is put together of `op`.
    fn ins(&mut self, op: &[&str], args: &[Arg]) {
        self.out.instruction(None, op, args);
    }

    fn param(&mut self, ty: &str, to: &str, name: &str, index: usize) {
        let line = self.source.param(ty, to, name, index);
        self.line(format_args!("{line};"));
    }

    fn ty(&self, r: Reg) -> Ty {
        self.p.regs[r as usize]
    }

    fn r(&self, r: Reg) -> Name {
        Name {
            kind: prefix(self.ty(r)),
            number: r,
        }
    }

    /// Gives the variables that `i` names, and nothing before it in the task at hand, their zeros. One that is set where a
    /// condition holds would take a register from its zero on: all through a loop that does not name it, if that stood
    /// at the start.
    fn begin(&mut self, i: &Inst) {
        let mut new = vec![];
        i.vars(&mut |v| {
            if !std::mem::replace(&mut self.begun[v as usize], true) {
                new.push(v);
            }
        });
        for v in new {
            let t = self.p.vars[v as usize];
            let name = Name {
                kind: variable(t),
                number: v,
            };
            self.zero(name, t);
        }
    }

    /// `body`, which a thread comes to once in a task.
    fn once(&mut self, body: &[Inst]) -> Out<()> {
        for i in body {
            if !matches!(i, Inst::Pipeline { .. }) {
                self.begin(i);
            }
            self.part(i)?;
        }
        Ok(())
    }

    /// A value as the second operand of an instruction of 32-bit integers: a number where it is one, which
    /// lets an assembler shift where it would divide.
    fn second(&self, r: Reg) -> Second {
        match (self.numbers[r as usize], self.ty(r)) {
            (Some(v), Ty::I32) => Second::Number(v),
            _ => Second::Register(self.r(r)),
        }
    }

    /// A register for the text alone, of a kind that begins with `t`.
    fn temp(&mut self, kind: &'static str) -> Name {
        self.temps += 1;
        Name {
            kind,
            number: self.temps,
        }
    }

    fn body(&mut self, body: &[Inst]) -> Out<()> {
        body.iter().try_for_each(|i| self.part(i))
    }

    /// Prints an instruction, and notes which part of the text it is.
    fn part(&mut self, i: &Inst) -> Out<()> {
        let (own, start) = (self.parts.len(), self.out.place());
        self.parts.push(Part::default());
        self.inst(i)?;
        let part = &mut self.parts[own];
        part.whole = start..self.out.place();
        if i.body().is_empty() {
            part.body = part.whole.end..part.whole.end;
        }
        Ok(())
    }

    /// The body of instruction number `own`.
    fn body_of(&mut self, own: usize, body: &[Inst]) -> Out<()> {
        let start = self.out.place();
        self.inner(|s| s.body(body))?;
        self.parts[own].body = start..self.out.place();
        Ok(())
    }

    /// The bits of `x` rounded to bf16, in the upper half of a register.
    fn brain(&mut self, x: Name) -> Name {
        let (b, t, p) = (self.temp("tr"), self.temp("tr"), self.temp("tp"));
        self.line(format_args!("mov.b32 {b}, {x};"));
        self.line(format_args!("bfe.u32 {t}, {b}, 16, 1;"));
        self.line(format_args!("add.u32 {t}, {t}, {b};"));
        self.line(format_args!("add.u32 {t}, {t}, 32767;"));
        self.line(format_args!("testp.notanumber.f32 {p}, {x};"));
        let q = self.temp("tr");
        self.line(format_args!("or.b32 {q}, {b}, 4194304;"));
        self.line(format_args!("selp.b32 {t}, {q}, {t}, {p};"));
        self.line(format_args!("and.b32 {t}, {t}, -65536;"));
        t
    }

    fn truth(&mut self, to: Name, v: bool) {
        let t = self.temp("tr");
        self.line(format_args!("mov.u32 {t}, {};", i32::from(v)));
        self.line(format_args!("setp.ne.u32 {to}, {t}, 0;"));
    }

    /// Nothing, as a value of type `t`.
    fn zero(&mut self, to: Name, t: Ty) {
        match t {
            Ty::Bool => self.truth(to, false),
            Ty::F32 => self.line(format_args!("mov.f32 {to}, 0f00000000;")),
            Ty::F64 => self.line(format_args!("mov.f64 {to}, 0d0000000000000000;")),
            t => self.line(format_args!("mov.{} {to}, 0;", moved(t))),
        }
    }

    /// `f` where `guard` holds.
    fn guarded(&mut self, guard: Option<Reg>, f: impl FnOnce(&mut Self) -> Out<()>) -> Out<()> {
        let Some(g) = guard else { return f(self) };
        self.labels += 1;
        let label = format!("$skip_{}", self.labels);
        let g = self.r(g);
        self.line(format_args!("@!{g} bra {label};"));
        f(self)?;
        self.out.label(&label);
        Ok(())
    }

    fn inst(&mut self, i: &Inst) -> Out<()> {
        let own = self.parts.len() - 1;
        match i {
            Inst::Let(r, op) => self.op(*r, op),
            Inst::Set(v, r) => {
                let t = self.ty(*r);
                let to = Name {
                    kind: variable(t),
                    number: *v,
                };
                self.ins(&["mov.", moved(t)], &[to.into(), self.r(*r).into()]);
                Ok(())
            }
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => {
                let d = self.p.operands[*operand as usize].dtype;
                let at = self.global(*operand, *index, *guard);
                self.read_run(&at, d, dst)
            }
            Inst::LoadSharedRun { dst, array, index } => {
                let d = self.p.shared[*array as usize].dtype;
                let at = self.shared_at(*array, *index);
                self.read_run(&at, d, dst)
            }
            Inst::LoadPart { .. } | Inst::ClusterArrive | Inst::ClusterWait => self.in_cluster(i),
            Inst::Store {
                operand,
                index,
                values,
                guard,
            } => {
                let d = self.p.operands[*operand as usize].dtype;
                let at = self.global(*operand, *index, *guard);
                self.write_run(&at, d, values, Some(*index))
            }
            Inst::StoreShared {
                array,
                index,
                values,
            } => {
                let d = self.p.shared[*array as usize].dtype;
                let at = self.shared_at(*array, *index);
                self.write_run(&at, d, values, None)
            }
            Inst::For {
                i,
                from,
                to,
                step,
                body,
            } => self.looped(own, (*i, *from, *to, *step), body),
            Inst::If { cond, body } => self.guarded(Some(*cond), |s| s.body_of(own, body)),
            Inst::Copy { .. }
            | Inst::Commit
            | Inst::Wait(_)
            | Inst::LoadMatrix { .. }
            | Inst::Multiply { .. } => {
                self.together(i);
                Ok(())
            }
            Inst::Warpgroup(w) => {
                self.warpgroup(w);
                Ok(())
            }
            Inst::Pipeline { .. }
            | Inst::Side { .. }
            | Inst::Bulk { .. }
            | Inst::Box { .. }
            | Inst::Freed => self.sided(own, i),
            Inst::Barrier => {
                let some = self.pipeline.as_ref().and_then(|p| p.barrier());
                let line = some.unwrap_or_else(|| self.source.barrier());
                self.line(format_args!("{line};"));
                Ok(())
            }
            Inst::DependencyWait => {
                self.dependency_wait();
                Ok(())
            }
            Inst::LaunchDependents => {
                if self.source.ends() {
                    self.line("griddepcontrol.launch_dependents;");
                }
                Ok(())
            }
            Inst::Fault { cond, code } => self.fault(*cond, *code),
        }
    }

    /// What CTAs of a cluster do with each other beside copies.
    fn in_cluster(&mut self, i: &Inst) -> Out<()> {
        let Inst::LoadPart {
            dst,
            array,
            rank,
            index,
            guard,
        } = i
        else {
            self.meeting(i);
            return Ok(());
        };
        let d = self.p.shared[*array as usize].dtype;
        let at = self.part_at(*array, *rank, (*index, *guard));
        self.read_run(&at, d, dst)
    }

    fn fault(&mut self, cond: Reg, code: u32) -> Out<()> {
        self.guarded(Some(cond), |s| {
            let t = s.temp("tr");
            s.line(format_args!("mov.u32 {t}, {};", code + 1));
            // Several threads may find something: the highest number stays.
            s.line(format_args!(
                "red.relaxed.gpu.global.max.u32 [%fault], {t};"
            ));
            Ok(())
        })
    }

    /// A loop, which is instruction number `own`, with its counter, bounds and step.
    fn looped(
        &mut self,
        own: usize,
        (i, from, to, step): (Reg, Reg, Reg, Reg),
        body: &[Inst],
    ) -> Out<()> {
        self.labels += 1;
        let (top, end) = (
            format!("$loop_{}", self.labels),
            format!("$end_{}", self.labels),
        );
        let (i, from) = (self.r(i), self.r(from));
        let (to, step) = (self.second(to), self.second(step));
        let p = self.temp("tp");
        self.line(format_args!("mov.b32 {i}, {from};"));
        self.out.label(&top);
        // Loops are written out as often as the schedule says, and no more.
        self.line(".pragma \"nounroll\";");
        self.line(format_args!("setp.ge.s32 {p}, {i}, {to};"));
        self.line(format_args!("@{p} bra {end};"));
        self.body_of(own, body)?;
        self.line(format_args!("add.s32 {i}, {i}, {step};"));
        self.line(format_args!("bra {top};"));
        self.out.label(&end);
        Ok(())
    }

    /// `to`, which is the register of `r`, becomes the number of these bits.
    fn constant(&mut self, r: Reg, to: Name, bits: u64) {
        let ty = self.ty(r);
        if ty == Ty::I32 {
            self.numbers[r as usize] = Some(i64::from(bits as i64 as i32));
        }
        let number = match ty {
            Ty::Bool => return self.truth(to, bits != 0),
            Ty::F32 => Arg::Single(f64::from_bits(bits) as f32),
            Ty::F64 => Arg::Double(f64::from_bits(bits)),
            Ty::I64 => Arg::Number(bits as i64),
            Ty::U32 => Arg::Number((bits as u32).into()),
            Ty::I32 => Arg::Number((bits as i64 as i32).into()),
        };
        self.ins(&["mov.", moved(ty)], &[to.into(), number]);
    }

    /// `to` becomes `x` rounded, or cut, to type `d`.
    fn narrow(&mut self, to: Name, d: DType, x: Reg) {
        let x = self.r(x);
        match d {
            DType::F16 => {
                let h = self.temp("th");
                self.line(format_args!("cvt.rn.f16.f32 {h}, {x};"));
                self.line(format_args!("cvt.f32.f16 {to}, {h};"));
            }
            DType::BF16 => {
                let t = self.brain(x);
                self.line(format_args!("mov.b32 {to}, {t};"));
            }
            d => {
                let kind = if d.is_signed_int() { "s32" } else { "u32" };
                self.line(format_args!("bfe.{kind} {to}, {x}, 0, {};", d.bits()));
            }
        }
    }

    /// `to` becomes the `x` of the lane whose number differs by `mask`.
    fn shuffle(&mut self, to: Name, ty: Ty, x: Reg, mask: u32) {
        let v = self.r(x);
        match ty {
            Ty::I32 | Ty::U32 => {
                self.line(format_args!(
                    "shfl.sync.bfly.b32 {to}, {v}, {mask}, 31, -1;"
                ));
            }
            Ty::F32 => {
                let t = self.temp("tr");
                self.line(format_args!("mov.b32 {t}, {v};"));
                self.line(format_args!("shfl.sync.bfly.b32 {t}, {t}, {mask}, 31, -1;"));
                self.line(format_args!("mov.b32 {to}, {t};"));
            }
            Ty::Bool => {
                let t = self.temp("tr");
                self.line(format_args!("selp.u32 {t}, 1, 0, {v};"));
                self.line(format_args!("shfl.sync.bfly.b32 {t}, {t}, {mask}, 31, -1;"));
                self.line(format_args!("setp.ne.u32 {to}, {t}, 0;"));
            }
            Ty::I64 | Ty::F64 => {
                let (a, b) = (self.temp("tr"), self.temp("tr"));
                self.line(format_args!("mov.b64 {{{a}, {b}}}, {v};"));
                self.line(format_args!("shfl.sync.bfly.b32 {a}, {a}, {mask}, 31, -1;"));
                self.line(format_args!("shfl.sync.bfly.b32 {b}, {b}, {mask}, 31, -1;"));
                self.line(format_args!("mov.b64 {to}, {{{a}, {b}}};"));
            }
        }
    }

    fn op(&mut self, r: Reg, op: &Op) -> Out<()> {
        if self.beyond[r as usize].is_some() {
            return Ok(());
        }
        let (to, ty) = (self.r(r), self.ty(r));
        let p = self.p;
        match op {
            Op::Const(bits) => {
                self.constant(r, to, *bits);
            }
            Op::Thread => self.line(format_args!("mov.u32 {to}, %tid.x;")),
            Op::Task => {
                let task = self.source.task();
                self.line(format_args!("mov.u32 {to}, {task};"));
            }
            Op::Dim(d) => match ty {
                Ty::I64 => self.line(format_args!("mov.b64 {to}, %dim_{d};")),
                _ => self.line(format_args!("cvt.u32.u64 {to}, %dim_{d};")),
            },
            Op::Get(v) => {
                let from = Name {
                    kind: variable(ty),
                    number: *v,
                };
                self.ins(&["mov.", moved(ty)], &[to.into(), from.into()]);
            }
            Op::Unary(f, x) => return self.unary(to, *f, *x),
            // An assembler scales the argument and the result of one that keeps subnormal numbers.
            Op::Power(x) => self.line(format_args!("ex2.approx.ftz.f32 {to}, {};", self.r(*x))),
            Op::Binary(f, x, y) => return self.binary(to, *f, *x, *y),
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
                let (kind, x, y) = (suffix(self.ty(*x)), self.r(*x), self.second(*y));
                let args = [to.into(), x.into(), y.into()];
                self.ins(&["setp.", name, ".", kind], &args);
            }
            Op::Select(c, x, y) => {
                let (c, x, y) = (self.r(*c), self.r(*x), self.r(*y));
                if ty == Ty::Bool {
                    let (a, n, b) = (self.temp("tp"), self.temp("tp"), self.temp("tp"));
                    self.line(format_args!("and.pred {a}, {c}, {x};"));
                    self.line(format_args!("not.pred {n}, {c};"));
                    self.line(format_args!("and.pred {b}, {n}, {y};"));
                    self.line(format_args!("or.pred {to}, {a}, {b};"));
                } else {
                    let args = [to, x, y, c].map(Arg::Register);
                    self.ins(&["selp.", moved(ty)], &args);
                }
            }
            Op::MulAdd(x, y, z) => {
                let (x, y, z) = (self.r(*x), self.r(*y), self.r(*z));
                let name = if ty.is_float() { "fma.rn." } else { "mad.lo." };
                self.ins(&[name, suffix(ty)], &[to, x, y, z].map(Arg::Register));
            }
            Op::Convert(x) => return self.convert(to, ty, *x),
            Op::Bits(x) => {
                self.ins(&["mov.b32"], &[to.into(), self.r(*x).into()]);
            }
            Op::Narrow(d, x) => {
                self.narrow(to, *d, *x);
            }
            Op::Load {
                operand,
                index,
                guard,
            } => {
                let d = p.operands[*operand as usize].dtype;
                let at = self.global(*operand, *index, *guard);
                return self.read(&at, d, to, Some(*index));
            }
            Op::LoadShared { array, index } => {
                let d = p.shared[*array as usize].dtype;
                let at = self.shared_at(*array, *index);
                return self.read(&at, d, to, Some(*index));
            }
            Op::Shuffle(x, mask) => {
                self.shuffle(to, ty, *x, *mask);
            }
            Op::AnyLane(x) => {
                let x = self.r(*x);
                self.line(format_args!("vote.sync.any.pred {to}, {x}, -1;"));
            }
            Op::Half(x, second) => self.half(to, *x, *second),
            Op::Halves(f, x, y) => self.halves(to, *f, *x, *y),
            Op::PackNear(x, y) => self.pack_near(to, *x, *y),
            Op::Pack(d, x, y) => {
                let (x, y) = (self.r(*x), self.r(*y));
                self.pack(to, *d, x, y);
            }
        }
        Ok(())
    }
}
