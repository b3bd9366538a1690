//! Scalar programs as PTX.
//!
//! f32 is computed as written: every operation rounds (`.rn`), nothing is contracted but the
//! polynomials below, which are written as fused multiply-adds. f16 and bf16 values are held in f32
//! registers and rounded after each operation, as [`expr::Unary`] says. Relative errors: exp 2^-21
//! (`ex2.approx` has 2^-22), sigmoid 2^-20, tanh 2^-21; erf: absolute 2^-22. What has no form here is
//! written out as in kernels of threads ([`crate::simt::scalar`]).
use super::params::Params;
use super::text::{Kind, Reg, Text};
use crate::simt::build::Build;
use crate::simt::ir::{Reg as Wide, Ty};
use crate::simt::scalar;
use expr::{Binary, Compare, Expr, Inst, Scalar, Unary};
use layout::DType;

/// A scalar in a register: f32, f16 and bf16 in `F`, bool in `P`, I64 in `D`, I32 and U32 in `R`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Val {
    pub reg: Reg,
    pub dtype: DType,
}

/// Register type that holds `d`.
pub(crate) fn kind_of(d: DType) -> Option<Kind> {
    match d {
        DType::F32 | DType::F16 | DType::BF16 => Some(Kind::F),
        DType::Bool => Some(Kind::P),
        DType::I64 => Some(Kind::D),
        DType::I32 | DType::U32 => Some(Kind::R),
        _ => None,
    }
}

/// An f32 literal.
pub(crate) fn literal(v: f64) -> String {
    format!("0f{:08X}", (v as f32).to_bits())
}

/// `v` rounded to f16.
pub(crate) fn round16(t: &mut Text, v: Reg) -> Reg {
    let h = t.def(Kind::H, |d| format!("cvt.rn.f16.f32 {d}, {v}"));
    t.f("cvt.f32.f16", format_args!("{h}"))
}

/// The value of the bf16 in `h`: the upper half of an f32.
pub(crate) fn wide16(t: &mut Text, h: Reg) -> Reg {
    let zero = t.def(Kind::H, |d| format!("mov.b16 {d}, 0"));
    t.f("mov.b32", format_args!("{{{zero}, {h}}}"))
}

/// `v` rounded to f16 or bf16; other types as they are.
pub(crate) fn rounded(t: &mut Text, v: Reg, d: DType) -> Reg {
    match d {
        DType::F16 => round16(t, v),
        DType::BF16 => {
            let h = t.def(Kind::H, |d| format!("cvt.rn.bf16.f32 {d}, {v}"));
            wide16(t, h)
        }
        _ => v,
    }
}

/// A constant of type `d`.
pub(crate) fn constant(t: &mut Text, v: f64, d: DType) -> Result<Val, String> {
    let v = match Scalar::Float(v).cast(DType::F64, d) {
        Scalar::Float(x) => x,
        Scalar::Int(x) => x as f64,
    };
    let reg = match kind_of(d) {
        Some(Kind::F) => t.f("mov.f32", format_args!("{}", literal(v))),
        Some(Kind::P) => t.p("setp.ne.s32", format_args!("{}, 0", (v != 0.0) as i32)),
        Some(Kind::D) => t.d("mov.b64", format_args!("{}", v as i64)),
        Some(Kind::R) => t.r("mov.b32", format_args!("{}", v as i64)),
        _ => return Err(format!("constants of type {d} have no PTX form here")),
    };
    Ok(Val { reg, dtype: d })
}

/// Values of the outputs of `e` for `args`; `index` gives a coordinate along a kernel axis as a
/// 64-bit register.
pub(crate) fn eval(
    t: &mut Text,
    params: &mut Params,
    e: &Expr,
    args: &[Val],
    index: &mut dyn FnMut(&mut Text, &mut Params, u32) -> Result<Reg, String>,
) -> Result<Vec<Val>, String> {
    let types = e.types().map_err(|x| x.to_string())?;
    let mut v: Vec<Val> = Vec::with_capacity(e.insts.len());
    for (inst, &dtype) in e.insts.iter().zip(&types) {
        let at = |r: &u32| v[*r as usize];
        let reg = match inst {
            Inst::Input { slot, dtype } => {
                let a = args
                    .get(*slot as usize)
                    .ok_or("a program reads an argument that it is not given")?;
                if a.dtype != *dtype {
                    return Err(format!(
                        "argument {slot} has type {} where {dtype} is read",
                        a.dtype
                    ));
                }
                a.reg
            }
            Inst::Float { bits, dtype } => constant(t, f64::from_bits(*bits), *dtype)?.reg,
            Inst::Int { value, dtype } => match kind_of(*dtype) {
                Some(Kind::D) => t.d("mov.b64", format_args!("{value}")),
                _ => constant(t, *value as f64, *dtype)?.reg,
            },
            Inst::Index { axis } => index(t, params, *axis)?,
            Inst::Dim(d) => {
                let n = params.dim(t, d);
                t.d("mov.b64", format_args!("{n}"))
            }
            Inst::Unary(f, a) => {
                let (f, d) = (*f, at(a).dtype);
                let own = unary(t, f, at(a));
                own.or_else(|_| {
                    as_threads(t, &[at(a)], dtype, |b, x| scalar::unary(b, f, x[0], d))
                })?
            }
            Inst::Binary(f, a, b) => {
                let (f, args) = (*f, [at(a), at(b)]);
                let own = binary(t, f, args[0], args[1]);
                own.or_else(|_| {
                    as_threads(t, &args, dtype, |b, x| {
                        scalar::binary(b, f, x[0], x[1], dtype)
                    })
                })?
            }
            Inst::Compare(c, a, b) => {
                let (c, args) = (*c, [at(a), at(b)]);
                let own = compare(t, c, args[0], args[1]);
                own.or_else(|_| {
                    as_threads(t, &args, dtype, |b, x| {
                        scalar::compare(b, c, x[0], x[1], args[0].dtype)
                    })
                })?
            }
            Inst::Select(c, a, b) => {
                let args = [at(c), at(a), at(b)];
                let [c, a, b] = args.map(|v| v.reg);
                match kind_of(dtype) {
                    Some(Kind::F) => t.f("selp.f32", format_args!("{a}, {b}, {c}")),
                    Some(Kind::D) => t.d("selp.b64", format_args!("{a}, {b}, {c}")),
                    Some(Kind::R) => t.r("selp.b32", format_args!("{a}, {b}, {c}")),
                    _ => as_threads(t, &args, dtype, |b, x| Ok(b.select(x[0], x[1], x[2])))?,
                }
            }
            Inst::Cast(a, to) => {
                let (d, to) = (at(a).dtype, *to);
                let own = cast(t, at(a), to);
                own.or_else(|_| as_threads(t, &[at(a)], to, |b, x| scalar::cast(b, x[0], d, to)))?
            }
        };
        v.push(Val { reg, dtype });
    }
    Ok(e.outputs.iter().map(|&o| v[o as usize]).collect())
}

/// What `f` makes of `args`, a value of `to`, as a thread of a kernel of threads has it.
fn as_threads(
    t: &mut Text,
    args: &[Val],
    to: DType,
    f: impl FnOnce(&mut Build, &[Wide]) -> Result<Wide, String>,
) -> Result<Reg, String> {
    let none = |d: DType| format!("values of {d} have no PTX form here");
    let mut b = Build::new();
    let mut given = vec![];
    for a in args {
        let ty = kind_of(a.dtype).and_then(|_| Ty::of(a.dtype));
        given.push(b.fresh(ty.ok_or_else(|| none(a.dtype))?));
    }
    let kind = kind_of(to).ok_or_else(|| none(to))?;
    let made = f(&mut b, &given)?;
    if Ty::of(to) != Some(b.ty(made)) || !b.dims.is_empty() {
        return Err(none(to));
    }
    let body = b.close();
    let out = t.reg(kind);
    let regs: Vec<Reg> = args.iter().map(|a| a.reg).collect();
    let lines = super::threads::scope(
        (
            std::mem::take(&mut b.regs),
            std::mem::take(&mut b.vars),
            &body,
        ),
        (&given, &regs),
        (made, out),
        t.scope_number(),
    )?;
    t.scope(&lines);
    Ok(out)
}

fn unary(t: &mut Text, f: Unary, a: Val) -> Result<Reg, String> {
    let x = a.reg;
    if a.dtype == DType::Bool && f == Unary::Not {
        return Ok(t.p("not.pred", format_args!("{x}")));
    }
    if a.dtype == DType::I64 && f == Unary::Neg {
        return Ok(t.d("neg.s64", format_args!("{x}")));
    }
    if kind_of(a.dtype) != Some(Kind::F) {
        return Err(format!("{f:?} of {} has no PTX form here", a.dtype));
    }
    // These are exact on f16 and bf16 values.
    match f {
        Unary::Neg => return Ok(t.f("neg.f32", format_args!("{x}"))),
        Unary::Abs => return Ok(t.f("abs.f32", format_args!("{x}"))),
        Unary::Floor => return Ok(t.f("cvt.rmi.f32.f32", format_args!("{x}"))),
        Unary::Ceil => return Ok(t.f("cvt.rpi.f32.f32", format_args!("{x}"))),
        Unary::Round => return Ok(t.f("cvt.rni.f32.f32", format_args!("{x}"))),
        Unary::IsNan => return Ok(t.p("testp.notanumber.f32", format_args!("{x}"))),
        Unary::IsInf => return Ok(t.p("testp.infinite.f32", format_args!("{x}"))),
        _ => {}
    }
    let r = match f {
        Unary::Sqrt => t.f("sqrt.rn.f32", format_args!("{x}")),
        Unary::Rsqrt => {
            let s = t.f("sqrt.rn.f32", format_args!("{x}"));
            t.f("rcp.rn.f32", format_args!("{s}"))
        }
        Unary::Reciprocal => t.f("rcp.rn.f32", format_args!("{x}")),
        Unary::Exp => exp(t, x),
        Unary::Sigmoid => {
            let n = t.f("neg.f32", format_args!("{x}"));
            let e = exp(t, n);
            let s = t.f("add.rn.f32", format_args!("{e}, {}", literal(1.0)));
            t.f("rcp.rn.f32", format_args!("{s}"))
        }
        Unary::Tanh => tanh(t, x),
        Unary::Erf => erf(t, x),
        _ => return Err(format!("{f:?} has no PTX form here")),
    };
    Ok(rounded(t, r, a.dtype))
}

fn binary(t: &mut Text, f: Binary, a: Val, b: Val) -> Result<Reg, String> {
    let (x, y) = (a.reg, b.reg);
    let none = || Err(format!("{f:?} of {} has no PTX form here", a.dtype));
    match kind_of(a.dtype) {
        Some(Kind::F) => {
            let op = match f {
                Binary::Add => "add.rn.f32",
                Binary::Sub => "sub.rn.f32",
                Binary::Mul => "mul.rn.f32",
                Binary::Div => "div.rn.f32",
                // Exact: no rounding after it.
                Binary::Min => return Ok(t.f("min.NaN.f32", format_args!("{x}, {y}"))),
                Binary::Max => return Ok(t.f("max.NaN.f32", format_args!("{x}, {y}"))),
                _ => return none(),
            };
            let r = t.f(op, format_args!("{x}, {y}"));
            Ok(rounded(t, r, a.dtype))
        }
        Some(Kind::P) => {
            let op = match f {
                Binary::And | Binary::Mul | Binary::Min => "and.pred",
                Binary::Or | Binary::Add | Binary::Max => "or.pred",
                Binary::Xor | Binary::Sub => "xor.pred",
                _ => return none(),
            };
            Ok(t.p(op, format_args!("{x}, {y}")))
        }
        Some(kind @ (Kind::D | Kind::R)) => {
            let w = match (kind, a.dtype) {
                (Kind::D, _) => "s64",
                (_, DType::U32) => "u32",
                _ => "s32",
            };
            let op = match f {
                Binary::Add => format!("add.{w}"),
                Binary::Sub => format!("sub.{w}"),
                Binary::Mul => format!("mul.lo.{w}"),
                Binary::Min => format!("min.{w}"),
                Binary::Max => format!("max.{w}"),
                _ => return none(),
            };
            Ok(t.def(kind, |d| format!("{op} {d}, {x}, {y}")))
        }
        _ => none(),
    }
}

fn compare(t: &mut Text, c: Compare, a: Val, b: Val) -> Result<Reg, String> {
    let name = match c {
        Compare::Eq => "eq",
        Compare::Ne => "ne",
        Compare::Lt => "lt",
        Compare::Le => "le",
        Compare::Gt => "gt",
        Compare::Ge => "ge",
    };
    let (x, y) = (a.reg, b.reg);
    Ok(match (kind_of(a.dtype), a.dtype) {
        // Unordered `ne` is true for a NaN.
        (Some(Kind::F), _) if c == Compare::Ne => t.p("setp.neu.f32", format_args!("{x}, {y}")),
        (Some(Kind::F), _) => t.p(&format!("setp.{name}.f32"), format_args!("{x}, {y}")),
        (Some(Kind::D), _) => t.p(&format!("setp.{name}.s64"), format_args!("{x}, {y}")),
        (Some(Kind::R), DType::U32) => t.p(&format!("setp.{name}.u32"), format_args!("{x}, {y}")),
        (Some(Kind::R), _) => t.p(&format!("setp.{name}.s32"), format_args!("{x}, {y}")),
        (Some(Kind::P), _) => match c {
            Compare::Ne => t.p("xor.pred", format_args!("{x}, {y}")),
            Compare::Eq => {
                let n = t.p("xor.pred", format_args!("{x}, {y}"));
                t.p("not.pred", format_args!("{n}"))
            }
            _ => return Err("an order of truth values has no PTX form here".into()),
        },
        _ => return Err(format!("a comparison of {} has no PTX form here", a.dtype)),
    })
}

fn cast(t: &mut Text, a: Val, to: DType) -> Result<Reg, String> {
    use DType::*;
    let x = a.reg;
    Ok(match (a.dtype, to) {
        (from, to) if from == to => x,
        (F16 | BF16, F32) => x,
        (F32, F16 | BF16) | (F16, BF16) | (BF16, F16) => rounded(t, x, to),
        (F32 | F16 | BF16, Bool) => t.p("setp.neu.f32", format_args!("{x}, {}", literal(0.0))),
        (Bool, F32 | F16 | BF16) => t.f(
            "selp.f32",
            format_args!("{}, {}, {x}", literal(1.0), literal(0.0)),
        ),
        (Bool, I64) => t.d("selp.b64", format_args!("1, 0, {x}")),
        (Bool, I32) => t.r("selp.b32", format_args!("1, 0, {x}")),
        (I64, Bool) => t.p("setp.ne.s64", format_args!("{x}, 0")),
        (I32, Bool) => t.p("setp.ne.s32", format_args!("{x}, 0")),
        (I64, I32) => t.r("cvt.u32.u64", format_args!("{x}")),
        (I32, I64) => t.d("cvt.s64.s32", format_args!("{x}")),
        (I64, F32) => t.f("cvt.rn.f32.s64", format_args!("{x}")),
        (I32, F32) => t.f("cvt.rn.f32.s32", format_args!("{x}")),
        (I64, F16) => {
            let h = t.def(Kind::H, |d| format!("cvt.rn.f16.s64 {d}, {x}"));
            t.f("cvt.f32.f16", format_args!("{h}"))
        }
        (from, to) => {
            return Err(format!(
                "a conversion of {from} to {to} has no PTX form here"
            ));
        }
    })
}

/// `2^(x log2 e)`, the product taken in two parts so that its rounding does not grow with `x`.
fn exp(t: &mut Text, x: Reg) -> Reg {
    // Beyond these the result is 0 or infinite already; infinities would make the low part a NaN.
    let x = t.f("max.NaN.f32", format_args!("{x}, {}", literal(-105.0)));
    let x = t.f("min.NaN.f32", format_args!("{x}, {}", literal(89.0)));
    let high = std::f64::consts::LOG2_E as f32;
    let low = std::f64::consts::LOG2_E - high as f64;
    let h = t.f("mul.rn.f32", format_args!("{x}, {}", literal(high as f64)));
    let n = t.f("neg.f32", format_args!("{h}"));
    let l = t.f(
        "fma.rn.f32",
        format_args!("{x}, {}, {n}", literal(high as f64)),
    );
    let l = t.f("fma.rn.f32", format_args!("{x}, {}, {l}", literal(low)));
    let e = t.f("ex2.approx.f32", format_args!("{h}"));
    let s = t.f(
        "fma.rn.f32",
        format_args!("{l}, {}, {}", literal(std::f64::consts::LN_2), literal(1.0)),
    );
    t.f("mul.rn.f32", format_args!("{e}, {s}"))
}

fn horner(t: &mut Text, x: Reg, coefficients: &[f64]) -> Reg {
    let mut it = coefficients.iter().rev();
    let mut r = t.f(
        "mov.f32",
        format_args!("{}", literal(it.next().copied().unwrap_or(0.0))),
    );
    for &c in it {
        r = t.f("fma.rn.f32", format_args!("{r}, {x}, {}", literal(c)));
    }
    r
}

/// tanh: an odd polynomial below 0.65, `1 - 2 / (exp(2x) + 1)` above.
fn tanh(t: &mut Text, x: Reg) -> Reg {
    const P: [f64; 5] = [
        -0.33333327491207454,
        0.13332619018964814,
        -0.053827915767137795,
        0.02088914771380357,
        -0.005942244973791396,
    ];
    let m = t.f("abs.f32", format_args!("{x}"));
    let u = t.f("mul.rn.f32", format_args!("{x}, {x}"));
    let p = horner(t, u, &P);
    let x3 = t.f("mul.rn.f32", format_args!("{x}, {u}"));
    let small = t.f("fma.rn.f32", format_args!("{x3}, {p}, {x}"));
    let d = t.f("add.rn.f32", format_args!("{m}, {m}"));
    let e = exp(t, d);
    let e = t.f("add.rn.f32", format_args!("{e}, {}", literal(1.0)));
    let q = t.f("div.rn.f32", format_args!("{}, {e}", literal(-2.0)));
    let q = t.f("add.rn.f32", format_args!("{q}, {}", literal(1.0)));
    let large = t.f("copysign.f32", format_args!("{x}, {q}"));
    let is_small = t.p("setp.lt.f32", format_args!("{m}, {}", literal(0.65)));
    t.f("selp.f32", format_args!("{small}, {large}, {is_small}"))
}

/// erf: an odd polynomial up to 1, `1 - 2^q(x)` above, where q is fitted to the logarithm of erfc.
fn erf(t: &mut Text, x: Reg) -> Reg {
    const SMALL: [f64; 7] = [
        1.1283791659137503,
        -0.3761262713596606,
        0.11283600176258368,
        -0.026854444591915674,
        0.005189535339318152,
        -0.0008020841279322705,
        7.889119529670696e-05,
    ];
    const LARGE: [f64; 9] = [
        0.00029484578443568244,
        -1.629756639206652,
        -0.9132829014828643,
        -0.15673321415954494,
        0.036606519527899284,
        -0.006178281036625655,
        0.0006691382925868572,
        -3.652737495141167e-05,
        3.6302140893340606e-07,
    ];
    let m = t.f("abs.f32", format_args!("{x}"));
    let u = t.f("mul.rn.f32", format_args!("{x}, {x}"));
    let p = horner(t, u, &SMALL);
    let small = t.f("mul.rn.f32", format_args!("{x}, {p}"));
    // erf(4) rounds to 1.
    let c = t.f("min.NaN.f32", format_args!("{m}, {}", literal(4.0)));
    let q = horner(t, c, &LARGE);
    let e = t.f("ex2.approx.f32", format_args!("{q}"));
    let e = t.f("sub.rn.f32", format_args!("{}, {e}", literal(1.0)));
    let large = t.f("copysign.f32", format_args!("{x}, {e}"));
    let is_small = t.p("setp.le.f32", format_args!("{m}, {}", literal(1.0)));
    t.f("selp.f32", format_args!("{small}, {large}, {is_small}"))
}
