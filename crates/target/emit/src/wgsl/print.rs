//! The text.
use super::{Array, Number, Wgsl};
use crate::EmitError;
use crate::simt::forms::ThreadOp;
use crate::simt::ir::{Inst, Op, Program, Reg, Ty};
use expr::{Binary, Compare, Unary};
use layout::DType;
use std::fmt::Write;

type Out<T> = Result<T, String>;

/// Functions that are used by many.
const HELPERS: &str = "
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn min_f(a: f32, b: f32) -> f32 { return select(select(min(a, b), b, is_nan(b)), a, is_nan(a)); }
fn max_f(a: f32, b: f32) -> f32 { return select(select(max(a, b), b, is_nan(b)), a, is_nan(a)); }
fn to_i32(x: f32) -> i32 {
  return select(select(i32(x), 2147483647i, x >= 2147483648.0), bitcast<i32>(0x80000000u), x <= -2147483648.0);
}
fn to_u32(x: f32) -> u32 { return select(select(u32(x), 4294967295u, x >= 4294967296.0), 0u, x <= 0.0); }
fn exp_f(x: f32) -> f32 {
  return select(exp(clamp(x, -105.0, 89.0)) * select(1.0, bitcast<f32>(infinity), x > 88.72284), x, is_nan(x));
}
fn power_f(x: f32) -> f32 {
  return select(exp2(clamp(x, -150.0, 127.99)) * select(1.0, bitcast<f32>(infinity), x >= 128.0), x, is_nan(x));
}
fn log_f(x: f32) -> f32 {
  let small = x < 1.17549435e-38;
  let l = log(select(x, x * 16777216.0, small)) - select(0.0, 16.635532, small);
  let none = select(l, bitcast<f32>(not_a_number), x < 0.0);
  return select(select(none, -bitcast<f32>(infinity), x == 0.0), x, !(x < bitcast<f32>(infinity)));
}
fn half_bits(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  let sign = (b >> 16u) & 0x8000u;
  let m = b & 0x7fffffffu;
  if (m > 0x7f800000u) { return sign | 0x7e00u; }
  if (m >= 0x477ff000u) { return sign | 0x7c00u; }
  if (m < 0x38800000u) {
    let scaled = bitcast<f32>(m) * 16777216.0;
    return sign | u32(round(scaled));
  }
  return sign | ((m - 0x38000000u + 0xfffu + ((m >> 13u) & 1u)) >> 13u);
}
fn half_value(h: u32) -> f32 {
  let sign = (h & 0x8000u) << 16u;
  let m = h & 0x7fffu;
  if (m < 0x400u) {
    return bitcast<f32>(bitcast<u32>(f32(m) * 5.9604644775390625e-8) | sign);
  }
  if (m >= 0x7c00u) { return bitcast<f32>(sign | 0x7f800000u | ((m & 0x3ffu) << 13u)); }
  return bitcast<f32>(sign | ((m << 13u) + 0x38000000u));
}
fn brain_bits(x: f32) -> u32 {
  let b = bitcast<u32>(x);
  if (is_nan(x)) { return (b >> 16u) | 0x40u; }
  return (b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u;
}
fn brain_value(h: u32) -> f32 { return bitcast<f32>(h << 16u); }
";

/// The same where there are 64-bit integers.
const WIDE_HELPERS: &str = "
fn to_i64(x: f32) -> i64 {
  let low = select(i64(x), -9223372036854775807li - 1li, x <= -9223372036854775808.0);
  return select(low, 9223372036854775807li, x >= 9223372036854775808.0);
}
";

/// Numbers before those of the operands.
const HEAD: usize = 3;

/// The sign bit of a 64-bit number.
const TOP: &str = "0x8000000000000000lu";

fn name(t: Ty) -> Out<&'static str> {
    Ok(match t {
        Ty::Bool => "bool",
        Ty::I32 => "i32",
        Ty::U32 => "u32",
        Ty::I64 => "i64",
        Ty::F32 => "f32",
        Ty::F64 => return Err("f64 has no WGSL form".into()),
    })
}

fn constant(ty: Ty, bits: u64) -> Out<String> {
    Ok(match ty {
        Ty::Bool => (bits != 0).to_string(),
        Ty::I32 => match bits as i64 as i32 {
            i32::MIN => "bitcast<i32>(0x80000000u)".into(),
            v => format!("{v}i"),
        },
        Ty::U32 => format!("{}u", bits as u32),
        Ty::I64 => match bits as i64 {
            i64::MIN => "(-9223372036854775807li - 1li)".into(),
            v => format!("{v}li"),
        },
        Ty::F32 => {
            let v = f64::from_bits(bits) as f32;
            match v {
                v if v.is_nan() => "bitcast<f32>(not_a_number)".into(),
                v if v == f32::INFINITY => "bitcast<f32>(infinity)".into(),
                v if v == f32::NEG_INFINITY => "(-bitcast<f32>(infinity))".into(),
                v if v != 0.0 && v.abs() < f32::MIN_POSITIVE => {
                    format!("bitcast<f32>({}u)", v.to_bits())
                }
                v => format!("{v:e}f"),
            }
        }
        Ty::F64 => return Err("f64 has no WGSL form".into()),
    })
}

/// Whether values of `d` have a type.
pub(super) fn held(d: DType) -> bool {
    Ty::of(d).is_some_and(|t| name(t).is_ok())
}

/// The text of a scalar operation, where no 64-bit integer is in it.
pub(super) fn alone_in_32_bits(a: ThreadOp) -> Out<String> {
    match a.regs.contains(&Ty::I64) {
        true => Err("it takes 64-bit integers".into()),
        false => alone(a),
    }
}

/// The text of a scalar operation.
pub(super) fn alone(a: ThreadOp) -> Out<String> {
    for &t in a.regs.iter().chain(&a.vars) {
        name(t)?;
    }
    let p = Program {
        name: String::new(),
        threads: 0,
        registers: None,
        regs: a.regs,
        vars: a.vars,
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
    let mut s = Printer {
        p: &p,
        arrays: &[],
        atomic: [false; 2],
        out: String::new(),
    };
    s.body(&a.body)?;
    Ok(s.out)
}

struct Printer<'a> {
    p: &'a Program,
    arrays: &'a [Array],
    /// Whether the array is read and written by atomic operations.
    atomic: [bool; 2],
    out: String,
}

pub(super) fn print(p: &Program, arrays: &[Array]) -> Result<Wgsl, EmitError> {
    text(p, arrays).map_err(|why| EmitError::Rule {
        kernel: p.name.clone(),
        statement: "the text".into(),
        rule: "WGSL",
        why,
    })
}

fn text(p: &Program, arrays: &[Array]) -> Out<Wgsl> {
    if arrays.len() != p.operands.len() {
        return Err(format!(
            "{} arrays for {} operands",
            arrays.len(),
            p.operands.len()
        ));
    }
    let mut int64 = p.regs.contains(&Ty::I64) || p.vars.contains(&Ty::I64);
    int64 |= p.operands.iter().any(|o| o.dtype == DType::I64);
    let mut numbers = vec![Number::Tasks, Number::First, Number::Fault];
    numbers.extend((0..p.operands.len()).map(|o| Number::Operand(o as u16)));
    numbers.extend(p.dims.iter().cloned().map(Number::Dim));
    let mut atomic = [false; 2];
    for (o, &a) in p.operands.iter().zip(arrays) {
        atomic[a as usize] |= o.written && o.dtype.bits() < 32;
    }
    let mut used = [false; 2];
    arrays.iter().for_each(|&a| used[a as usize] = true);
    used[0] |= !p.faults.is_empty();
    let mut s = Printer {
        p,
        arrays,
        atomic,
        out: String::new(),
    };
    // No names: kernels that do the same have the same text, and one pipeline.
    let o = &mut s.out;
    for (i, name) in ["work", "kept"].into_iter().enumerate() {
        if used[i] {
            let element = if atomic[i] { "atomic<u32>" } else { "u32" };
            let _ = writeln!(
                o,
                "@group(0) @binding({i}) var<storage, read_write> {name}: array<{element}>;"
            );
        }
    }
    let _ = writeln!(
        o,
        "@group(0) @binding(2) var<storage, read> numbers: array<i32>;"
    );
    let _ = writeln!(o, "var<private> infinity: u32 = 0x7f800000u;");
    let _ = writeln!(o, "var<private> not_a_number: u32 = 0x7fc00000u;");
    let mut bytes = 0u64;
    for (i, a) in p.shared.iter().enumerate() {
        let ty = Ty::of(a.dtype).ok_or("a shared tile has no type")?;
        let _ = writeln!(
            o,
            "var<workgroup> s{i}: array<{}, {}>;",
            name(ty)?,
            a.elements.max(1)
        );
        bytes += u64::from(a.elements) * if ty == Ty::I64 { 8 } else { 4 };
    }
    o.push_str(HELPERS);
    if int64 {
        o.push_str(WIDE_HELPERS);
    }
    for i in 0..p.operands.len() {
        s.operand(i)?;
    }
    let o = &mut s.out;
    let _ = writeln!(
        o,
        "@compute @workgroup_size({})\nfn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread_index: u32) {{",
        p.threads
    );
    // As natural numbers: workgroups beyond the last task may lie beyond 2^31.
    let _ = writeln!(
        o,
        "let place = u32(numbers[1]) + group.y * groups.x + group.x;\nlet task = i32(place);"
    );
    let _ = writeln!(o, "let thread = i32(thread_index);");
    let _ = writeln!(o, "if (place < u32(numbers[0])) {{");
    for (i, &t) in p.vars.iter().enumerate() {
        let _ = writeln!(o, "var v{i}: {};", name(t)?);
    }
    s.body(&p.body)?;
    s.out.push_str("}\n}\n");
    Ok(Wgsl {
        text: s.out,
        entry: "main",
        threads: p.threads,
        shared_bytes: bytes,
        numbers,
        faults: p.faults.clone(),
        int64,
    })
}

impl Printer<'_> {
    fn array(&self, operand: usize) -> (&'static str, bool) {
        let a = self.arrays[operand] as usize;
        (["work", "kept"][a], self.atomic[a])
    }

    /// The word `at` of an operand's array.
    fn word(&self, operand: usize, at: &str) -> String {
        let (array, atomic) = self.array(operand);
        match atomic {
            true => format!("atomicLoad(&{array}[{at}])"),
            false => format!("{array}[{at}]"),
        }
    }

    fn set_word(&self, operand: usize, at: &str, value: &str) -> String {
        let (array, atomic) = self.array(operand);
        match atomic {
            true => format!("atomicStore(&{array}[{at}], {value});"),
            false => format!("{array}[{at}] = {value};"),
        }
    }

    /// Functions that read and write an element of operand `i`.
    fn operand(&mut self, i: usize) -> Out<()> {
        let operand = &self.p.operands[i];
        let d = operand.dtype;
        let ty = Ty::of(d).ok_or("an operand has no type")?;
        let t = name(ty)?;
        let base = format!("u32(numbers[{}])", i + HEAD);
        let per = 32 / d.bits().min(32);
        let read = match d.bits() {
            64 => {
                let low = self.word(i, "w");
                let high = self.word(i, "w + 1u");
                format!(
                    "let w = {base} + u32(i) * 2u; return i64(u64({low}) | (u64({high}) << 32u));"
                )
            }
            32 => {
                let w = self.word(i, &format!("{base} + u32(i)"));
                format!("return bitcast<{t}>({w});")
            }
            bits => {
                let w = self.word(i, &format!("{base} + u32(i) / {per}u"));
                let shift = format!("(u32(i) % {per}u) * {bits}u");
                let take = match d {
                    DType::F16 => format!("half_value(extractBits(w, {shift}, 16u))"),
                    DType::BF16 => format!("brain_value(extractBits(w, {shift}, 16u))"),
                    DType::Bool => format!("extractBits(w, {shift}, 8u) != 0u"),
                    d if d.is_signed_int() => {
                        format!("extractBits(bitcast<i32>(w), {shift}, {bits}u)")
                    }
                    _ => format!("extractBits(w, {shift}, {bits}u)"),
                };
                format!("let w = {w}; return {take};")
            }
        };
        let _ = writeln!(self.out, "fn read_{i}(i: i32) -> {t} {{ {read} }}");
        if !operand.written {
            return Ok(());
        }
        let write = match d.bits() {
            64 => {
                let low = self.set_word(i, "w", "u32(u64(x) & 0xfffffffflu)");
                let high = self.set_word(i, "w + 1u", "u32(u64(x) >> 32u)");
                format!("let w = {base} + u32(i) * 2u; {low} {high}")
            }
            32 => self.set_word(i, &format!("{base} + u32(i)"), "bitcast<u32>(x)"),
            bits => {
                let array = self.array(i).0;
                let value = match d {
                    DType::F16 => "half_bits(x)".to_string(),
                    DType::BF16 => "brain_bits(x)".into(),
                    DType::Bool => "select(0u, 1u, x)".into(),
                    _ => format!("(bitcast<u32>(x) & {}u)", (1u32 << bits) - 1),
                };
                format!(
                    "let w = {base} + u32(i) / {per}u; let shift = (u32(i) % {per}u) * {bits}u; atomicAnd(&{array}[w], ~({}u << shift)); atomicOr(&{array}[w], {value} << shift);",
                    (1u32 << bits) - 1
                )
            }
        };
        let _ = writeln!(self.out, "fn write_{i}(i: i32, x: {t}) {{ {write} }}");
        Ok(())
    }

    fn ty(&self, r: Reg) -> Ty {
        self.p.regs[r as usize]
    }

    fn line(&mut self, s: &str) {
        self.out.push_str(s);
        self.out.push('\n');
    }

    fn body(&mut self, body: &[Inst]) -> Out<()> {
        for i in body {
            self.inst(i)?;
        }
        Ok(())
    }

    fn inst(&mut self, i: &Inst) -> Out<()> {
        match i {
            Inst::Let(
                r,
                Op::Load {
                    operand,
                    index,
                    guard: Some(g),
                },
            ) => {
                let t = name(self.ty(*r))?;
                self.line(&format!(
                    "var r{r}: {t}; if (r{g}) {{ r{r} = read_{operand}(r{index}); }}"
                ));
            }
            Inst::Let(r, op) => {
                let e = self.op(op, self.ty(*r))?;
                self.line(&format!("let r{r} = {e};"));
            }
            Inst::Set(v, r) => self.line(&format!("v{v} = r{r};")),
            Inst::LoadRun {
                dst,
                operand,
                index,
                guard,
            } => {
                for &r in dst {
                    let t = name(self.ty(r))?;
                    self.line(&format!("var r{r}: {t};"));
                }
                if let Some(g) = guard {
                    self.line(&format!("if (r{g}) {{"));
                }
                for (n, r) in dst.iter().enumerate() {
                    self.line(&format!("r{r} = read_{operand}(r{index} + {n}i);"));
                }
                if guard.is_some() {
                    self.line("}");
                }
            }
            Inst::LoadSharedRun { dst, array, index } => {
                for (n, r) in dst.iter().enumerate() {
                    self.line(&format!("let r{r} = s{array}[r{index} + {n}i];"));
                }
            }
            Inst::Store {
                operand,
                index,
                values,
                guard,
            } => {
                if let Some(g) = guard {
                    self.line(&format!("if (r{g}) {{"));
                }
                for (n, r) in values.iter().enumerate() {
                    self.line(&format!("write_{operand}(r{index} + {n}i, r{r});"));
                }
                if guard.is_some() {
                    self.line("}");
                }
            }
            Inst::StoreShared {
                array,
                index,
                values,
            } => {
                for (n, r) in values.iter().enumerate() {
                    self.line(&format!("s{array}[r{index} + {n}i] = r{r};"));
                }
            }
            Inst::For {
                i,
                from,
                to,
                step,
                body,
            } => {
                self.line(&format!(
                    "for (var r{i}: i32 = r{from}; r{i} < r{to}; r{i} += r{step}) {{"
                ));
                self.body(body)?;
                self.line("}");
            }
            Inst::If { cond, body } => {
                self.line(&format!("if (r{cond}) {{"));
                self.body(body)?;
                self.line("}");
            }
            Inst::Barrier => self.line("workgroupBarrier();"),
            Inst::Fault { cond, code } => {
                let set = match self.atomic[0] {
                    true => format!("atomicStore(&work[u32(numbers[2])], {}u);", code + 1),
                    false => format!("work[u32(numbers[2])] = {}u;", code + 1),
                };
                self.line(&format!("if (r{cond}) {{ {set} }}"));
            }
            _ => return Err("there are no matrix instructions, and no copies beside them".into()),
        }
        Ok(())
    }

    fn op(&self, op: &Op, ty: Ty) -> Out<String> {
        let p = self.p;
        Ok(match op {
            Op::Const(bits) => constant(ty, *bits)?,
            Op::Thread => "thread".into(),
            Op::Task => "task".into(),
            Op::Dim(d) => format!(
                "{}(numbers[{}])",
                name(ty)?,
                HEAD as u32 + p.operands.len() as u32 + d
            ),
            Op::Get(v) => format!("v{v}"),
            Op::Unary(f, x) => self.unary(*f, *x)?,
            Op::Power(x) => format!("power_f(r{x})"),
            Op::Binary(f, x, y) => self.binary(*f, *x, *y)?,
            Op::Compare(f, x, y) => {
                let sign = match f {
                    Compare::Eq => "==",
                    Compare::Ne => "!=",
                    Compare::Lt => "<",
                    Compare::Le => "<=",
                    Compare::Gt => ">",
                    Compare::Ge => ">=",
                };
                match (self.ty(*x), f) {
                    // Order of 64-bit numbers as unsigned ones with the sign turned: a widespread driver
                    // (Mesa 22.3) takes a widened number for greater than any constant.
                    (Ty::I64, Compare::Lt | Compare::Le | Compare::Gt | Compare::Ge) => {
                        format!("(u64(r{x}) ^ {TOP}) {sign} (u64(r{y}) ^ {TOP})")
                    }
                    _ => format!("r{x} {sign} r{y}"),
                }
            }
            Op::Select(c, x, y) => format!("select(r{y}, r{x}, r{c})"),
            Op::MulAdd(x, y, z) if ty == Ty::F32 => format!("fma(r{x}, r{y}, r{z})"),
            Op::MulAdd(x, y, z) => format!("r{x} * r{y} + r{z}"),
            // Conversions of what lies outside are clamped to a float, which is below the largest integer.
            Op::Convert(x) if self.ty(*x) == Ty::F32 && ty != Ty::F32 => {
                format!("to_{}(r{x})", name(ty)?)
            }
            Op::Convert(x) => format!("{}(r{x})", name(ty)?),
            Op::Bits(x) => format!("bitcast<{}>(r{x})", name(ty)?),
            Op::Narrow(d, x) => match d {
                DType::F16 => format!("half_value(half_bits(r{x}))"),
                DType::BF16 => format!("brain_value(brain_bits(r{x}))"),
                d => format!("extractBits(r{x}, 0u, {}u)", d.bits()),
            },
            Op::Load { operand, index, .. } => format!("read_{operand}(r{index})"),
            Op::LoadShared { array, index } => format!("s{array}[r{index}]"),
            Op::Pack(..) | Op::PackNear(..) | Op::Half(..) | Op::Halves(..) => {
                return Err("there are no matrix instructions".into());
            }
            Op::Shuffle(..) | Op::AnyLane(_) => {
                return Err("threads exchange values through shared memory".into());
            }
        })
    }

    fn unary(&self, f: Unary, x: Reg) -> Out<String> {
        let float = self.ty(x) == Ty::F32;
        Ok(match f {
            Unary::Not => format!("!r{x}"),
            Unary::Neg => format!("-r{x}"),
            Unary::IsNan if float => format!("is_nan(r{x})"),
            Unary::IsInf if float => format!("is_inf(r{x})"),
            // What the language leaves open is said: numbers that are none, and the ends of the range.
            Unary::Exp | Unary::Log if float => format!("{}_f(r{x})", f.name()),
            Unary::Abs | Unary::Sqrt | Unary::Floor | Unary::Ceil | Unary::Round if float => {
                format!("{}(r{x})", f.name())
            }
            _ => return Err(format!("{f:?} has no WGSL form")),
        })
    }

    fn binary(&self, f: Binary, x: Reg, y: Reg) -> Out<String> {
        let ty = self.ty(x);
        let sign = match (f, ty) {
            (Binary::Add, _) => "+",
            (Binary::Sub, _) => "-",
            (Binary::Mul, _) => "*",
            (Binary::Div, _) => "/",
            (Binary::Fmod, _) => "%",
            (Binary::And, _) => "&",
            (Binary::Or, _) => "|",
            (Binary::Xor, Ty::Bool) => "!=",
            (Binary::Xor, _) => "^",
            (Binary::Min, Ty::F32) => return Ok(format!("min_f(r{x}, r{y})")),
            (Binary::Max, Ty::F32) => return Ok(format!("max_f(r{x}, r{y})")),
            (Binary::Min, _) => return Ok(format!("min(r{x}, r{y})")),
            (Binary::Max, _) => return Ok(format!("max(r{x}, r{y})")),
            (Binary::Shl, _) => return Ok(format!("r{x} << u32(r{y})")),
            (Binary::Shr, Ty::I32) => {
                return Ok(format!("bitcast<i32>(bitcast<u32>(r{x}) >> u32(r{y}))"));
            }
            (Binary::Shr, Ty::I64) => return Ok(format!("i64(u64(r{x}) >> u32(r{y}))")),
            (Binary::Shr, _) => return Ok(format!("r{x} >> u32(r{y})")),
            _ => return Err(format!("{f:?} has no WGSL form")),
        };
        Ok(format!("r{x} {sign} r{y}"))
    }
}
