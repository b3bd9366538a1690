//! Conversions and functions of values.
use super::output::Second;
use super::{Name, Out, Printer, suffix};
use crate::simt::ir::{Reg, Ty};
use expr::{Binary, Unary};

impl Printer<'_> {
    pub(super) fn convert(&mut self, to: Name, ty: Ty, x: Reg) -> Out<()> {
        let (from, v) = (self.ty(x), self.r(x));
        let line = match (from, ty) {
            (Ty::F32, Ty::F64) => format!("cvt.f64.f32 {to}, {v};"),
            (Ty::F64, Ty::F32) => format!("cvt.rn.f32.f64 {to}, {v};"),
            (f, t) if f.is_float() && !t.is_float() => {
                format!("cvt.rzi.{}.{} {to}, {v};", suffix(t), suffix(f))
            }
            (f, t) if t.is_float() => format!("cvt.rn.{}.{} {to}, {v};", suffix(t), suffix(f)),
            (Ty::I64, Ty::I32 | Ty::U32) => format!("cvt.u32.u64 {to}, {v};"),
            (Ty::I32, Ty::I64) => format!("cvt.s64.s32 {to}, {v};"),
            (Ty::U32, Ty::I64) => format!("cvt.u64.u32 {to}, {v};"),
            (Ty::I32 | Ty::U32, Ty::I32 | Ty::U32) => format!("mov.b32 {to}, {v};"),
            (f, t) => return Err(format!("a conversion of {f:?} to {t:?} has no PTX form")),
        };
        self.line(&line);
        Ok(())
    }

    pub(super) fn unary(&mut self, to: Name, f: Unary, x: Reg) -> Out<()> {
        let (ty, v) = (self.ty(x), self.r(x));
        let k = suffix(ty);
        let line = match f {
            Unary::Not if ty == Ty::Bool => format!("not.pred {to}, {v};"),
            Unary::Neg => format!("neg.{k} {to}, {v};"),
            Unary::Abs => format!("abs.{k} {to}, {v};"),
            Unary::Sqrt => format!("sqrt.rn.{k} {to}, {v};"),
            Unary::Floor => format!("cvt.rmi.{k}.{k} {to}, {v};"),
            Unary::Ceil => format!("cvt.rpi.{k}.{k} {to}, {v};"),
            Unary::Round => format!("cvt.rni.{k}.{k} {to}, {v};"),
            Unary::IsNan => format!("testp.notanumber.{k} {to}, {v};"),
            Unary::IsInf => format!("testp.infinite.{k} {to}, {v};"),
            Unary::Exp if ty == Ty::F32 => {
                self.exp(to, v);
                return Ok(());
            }
            Unary::Log if ty == Ty::F32 => {
                self.log(to, v);
                return Ok(());
            }
            _ => return Err(format!("{f:?} of {ty:?} has no PTX form")),
        };
        self.line(&line);
        Ok(())
    }

    /// `2^(x log2 e)`, the product taken in two parts so that its rounding does not grow with `x`.
    fn exp(&mut self, to: Name, x: Name) {
        let lit = |v: f64| format!("0f{:08X}", (v as f32).to_bits());
        let high = std::f64::consts::LOG2_E as f32;
        let low = std::f64::consts::LOG2_E - f64::from(high);
        let [c, h, n, l, e, s] = [(); 6].map(|()| self.temp("tf"));
        // Beyond these the result is 0 or infinite already; infinities would make the low part a NaN.
        let p = self.temp("tp");
        self.line(format_args!("max.f32 {c}, {x}, {};", lit(-105.0)));
        self.line(format_args!("min.f32 {c}, {c}, {};", lit(89.0)));
        self.line(format_args!("mul.rn.f32 {h}, {c}, {};", lit(high.into())));
        self.line(format_args!("neg.f32 {n}, {h};"));
        self.line(format_args!(
            "fma.rn.f32 {l}, {c}, {}, {n};",
            lit(high.into())
        ));
        self.line(format_args!("fma.rn.f32 {l}, {c}, {}, {l};", lit(low)));
        self.line(format_args!("ex2.approx.f32 {e}, {h};"));
        self.line(format_args!(
            "fma.rn.f32 {s}, {l}, {}, {};",
            lit(std::f64::consts::LN_2),
            lit(1.0)
        ));
        self.line(format_args!("mul.rn.f32 {e}, {e}, {s};"));
        self.line(format_args!("testp.notanumber.f32 {p}, {x};"));
        self.line(format_args!("selp.f32 {to}, {x}, {e}, {p};"));
    }

    /// `e ln 2 + log(m)` for x = m 2^e with m near 1, the logarithm by the odd series of
    /// (m - 1) / (m + 1).
    fn log(&mut self, to: Name, x: Name) {
        let lit = |v: f64| format!("0f{:08X}", (v as f32).to_bits());
        let [y, m, fe, a, b, s, u, q, r, t] = [(); 10].map(|()| self.temp("tf"));
        let [bits, e, w] = [(); 3].map(|()| self.temp("tr"));
        let [small, zero, less, large] = [(); 4].map(|()| self.temp("tp"));
        // Denormal numbers are scaled up.
        self.line(format_args!("setp.lt.f32 {small}, {x}, 0f00800000;"));
        self.line(format_args!("mul.rn.f32 {y}, {x}, 0f4B800000;"));
        self.line(format_args!("selp.f32 {y}, {y}, {x}, {small};"));
        self.line(format_args!("mov.b32 {bits}, {y};"));
        // The exponent for which m lies in sqrt(1/2)..sqrt(2).
        self.line(format_args!("sub.s32 {e}, {bits}, {};", 0x3f35_04f3));
        self.line(format_args!("and.b32 {e}, {e}, {};", 0xff80_0000u32));
        self.line(format_args!("sub.s32 {w}, {bits}, {e};"));
        self.line(format_args!("mov.b32 {m}, {w};"));
        self.line(format_args!("shr.s32 {e}, {e}, 23;"));
        self.line(format_args!("cvt.rn.f32.s32 {fe}, {e};"));
        self.line(format_args!("sub.rn.f32 {t}, {fe}, {};", lit(24.0)));
        self.line(format_args!("selp.f32 {fe}, {t}, {fe}, {small};"));
        self.line(format_args!("sub.rn.f32 {a}, {m}, {};", lit(1.0)));
        self.line(format_args!("add.rn.f32 {b}, {m}, {};", lit(1.0)));
        self.line(format_args!("div.rn.f32 {s}, {a}, {b};"));
        self.line(format_args!("mul.rn.f32 {u}, {s}, {s};"));
        self.line(format_args!("mov.f32 {q}, {};", lit(2.0 / 9.0)));
        for c in [2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0] {
            self.line(format_args!("fma.rn.f32 {q}, {q}, {u}, {};", lit(c)));
        }
        self.line(format_args!("mul.rn.f32 {q}, {q}, {u};"));
        // log(m) = a - s (a - q'): the sum of 2 s and what is left of the series.
        self.line(format_args!("add.rn.f32 {r}, {s}, {s};"));
        self.line(format_args!("fma.rn.f32 {r}, {s}, {q}, {r};"));
        self.line(format_args!(
            "fma.rn.f32 {r}, {fe}, {}, {r};",
            lit(std::f64::consts::LN_2)
        ));
        self.line(format_args!("setp.eq.f32 {zero}, {x}, 0f00000000;"));
        self.line(format_args!("selp.f32 {r}, 0fFF800000, {r}, {zero};"));
        self.line(format_args!("setp.lt.f32 {less}, {x}, 0f00000000;"));
        self.line(format_args!("selp.f32 {r}, 0f7FC00000, {r}, {less};"));
        // Infinity and what is no number stay as they are.
        self.line(format_args!("setp.geu.f32 {large}, {x}, 0f7F800000;"));
        self.line(format_args!("selp.f32 {to}, {x}, {r}, {large};"));
    }

    pub(super) fn binary(&mut self, to: Name, f: Binary, x: Reg, y: Reg) -> Out<()> {
        let (ty, a) = (self.ty(x), self.r(x));
        let zero = self.numbers[y as usize] == Some(0);
        let b = match f {
            // No assembler has to make something of a number over zero.
            Binary::Div | Binary::Fmod if zero => Second::Register(self.r(y)),
            _ => self.second(y),
        };
        let k = suffix(ty);
        let bits = match ty {
            Ty::Bool => "pred",
            Ty::I64 => "b64",
            _ => "b32",
        };
        let float = ty.is_float();
        let (name, mode, kind) = match f {
            Binary::Add | Binary::Sub if float => (f.name(), ".rn", k),
            Binary::Add | Binary::Sub => (f.name(), "", k),
            Binary::Mul => ("mul", if float { ".rn" } else { ".lo" }, k),
            Binary::Div => ("div", if float { ".rn" } else { "" }, k),
            Binary::Fmod if !float => ("rem", "", k),
            Binary::Min | Binary::Max if ty == Ty::F32 && self.nan => (f.name(), ".NaN", k),
            Binary::Min | Binary::Max if float => {
                let (p, q) = (self.temp("tp"), self.temp("tp"));
                let t = self.temp(if ty == Ty::F64 { "td" } else { "tf" });
                self.line(format_args!("{}.{k} {t}, {a}, {b};", f.name()));
                self.line(format_args!("testp.notanumber.{k} {p}, {a};"));
                self.line(format_args!("testp.notanumber.{k} {q}, {b};"));
                self.line(format_args!("selp.{k} {t}, {b}, {t}, {q};"));
                self.line(format_args!("selp.{k} {to}, {a}, {t}, {p};"));
                return Ok(());
            }
            Binary::Min | Binary::Max => (f.name(), "", k),
            Binary::And | Binary::Or | Binary::Xor => (f.name(), "", bits),
            Binary::Shl | Binary::Shr => {
                let mut by = b;
                if ty == Ty::I64 {
                    let t = self.temp("tr");
                    self.line(format_args!("cvt.u32.u64 {t}, {by};"));
                    by = Second::Register(t);
                }
                let (name, kind) = match (f, ty) {
                    (Binary::Shl, _) => ("shl", bits),
                    (_, Ty::I64) => ("shr", "u64"),
                    _ => ("shr", "u32"),
                };
                self.ins(&[name, ".", kind], &[to.into(), a.into(), by.into()]);
                return Ok(());
            }
            _ => return Err(format!("{f:?} of {ty:?} has no PTX form")),
        };
        let args = [to.into(), a.into(), b.into()];
        self.ins(&[name, mode, ".", kind], &args);
        Ok(())
    }
}
