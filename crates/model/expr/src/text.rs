//! Lossless text form of programs and monoids: one instruction after the other, read back to an equal program.
//! Kernel text, plans and tests use it; formulas for people are in `pretty`.
use crate::{Binary, Compare, Expr, ExprError, Inst, Monoid, Ref, Unary};
use layout::{DType, Dim};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Bytes beyond which a text is refused.
const MAX_LEN: usize = 1 << 22;

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inst::Input { slot, dtype } => write!(f, "input {slot} {dtype}"),
            Inst::Float { bits, dtype } => {
                let x = f64::from_bits(*bits);
                if x.is_nan() {
                    // Decimal text would lose the payload.
                    write!(f, "const {bits:#x} {dtype}")
                } else {
                    write!(f, "const {x:?} {dtype}")
                }
            }
            Inst::Int { value, dtype } => write!(f, "int {value} {dtype}"),
            Inst::Index { axis } => write!(f, "index {axis}"),
            Inst::Dim(d) => write!(f, "dim {d}"),
            Inst::Unary(u, a) => write!(f, "{u} %{a}"),
            Inst::Binary(b, x, y) => write!(f, "{b} %{x} %{y}"),
            Inst::Compare(c, x, y) => write!(f, "{c} %{x} %{y}"),
            Inst::Select(c, x, y) => write!(f, "select %{c} %{x} %{y}"),
            Inst::Cast(a, d) => write!(f, "cast %{a} {d}"),
        }
    }
}

/// `%0 = input 0 f32; %1 = const 0.5 f32; %2 = mul %0 %1; out %2`; [`FromStr`] reads it back to
/// an equal program.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, inst) in self.insts.iter().enumerate() {
            write!(f, "%{i} = {inst}; ")?;
        }
        f.write_str("out")?;
        for o in &self.outputs {
            write!(f, " %{o}")?;
        }
        Ok(())
    }
}

/// Splits at `;` and line ends, but not inside back-quoted symbols.
fn pieces(text: &str) -> Vec<&str> {
    let (mut out, mut start, mut quoted) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        match c {
            '`' => quoted = !quoted,
            ';' | '\n' if !quoted => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    out
}

struct Line<'a> {
    number: usize,
    names: &'a BTreeMap<&'a str, Ref>,
}

impl Line<'_> {
    fn fail<T>(&self, why: impl Into<String>) -> Result<T, ExprError> {
        Err(ExprError::Text {
            line: self.number,
            why: why.into(),
        })
    }

    fn reference(&self, w: &str) -> Result<Ref, ExprError> {
        match self.names.get(w) {
            Some(&r) => Ok(r),
            None => self.fail(format!("'{w}' is no earlier instruction")),
        }
    }

    fn number<T: FromStr>(&self, w: &str) -> Result<T, ExprError> {
        w.parse()
            .or_else(|_| self.fail(format!("'{w}' is no number that fits")))
    }

    fn dtype(&self, w: &str) -> Result<DType, ExprError> {
        match DType::from_name(w) {
            Some(d) => Ok(d),
            None => self.fail(format!("'{w}' is no element type")),
        }
    }

    fn inst(&self, text: &str) -> Result<Inst, ExprError> {
        let (op, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if op == "dim" {
            return match rest.trim().parse::<Dim>() {
                Ok(d) => Ok(Inst::Dim(d)),
                Err(e) => self.fail(e.to_string()),
            };
        }
        let w: Vec<&str> = rest.split_whitespace().collect();
        match (op, w.as_slice()) {
            ("input", [slot, d]) => {
                let slot: u32 = self.number(slot)?;
                // Arity is one more than the slot and sizes argument lists.
                if slot > u16::MAX as u32 {
                    return self.fail(format!("argument slot {slot} is beyond 65535"));
                }
                Ok(Inst::Input {
                    slot,
                    dtype: self.dtype(d)?,
                })
            }
            ("const", [x, d]) => {
                let bits = match x.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16)
                        .or_else(|_| self.fail(format!("'{x}' is no 64-bit pattern")))?,
                    None => self.number::<f64>(x)?.to_bits(),
                };
                Ok(Inst::Float {
                    bits,
                    dtype: self.dtype(d)?,
                })
            }
            ("int", [n, d]) => Ok(Inst::Int {
                value: self.number(n)?,
                dtype: self.dtype(d)?,
            }),
            ("index", [axis]) => Ok(Inst::Index {
                axis: self.number(axis)?,
            }),
            ("cast", [a, d]) => Ok(Inst::Cast(self.reference(a)?, self.dtype(d)?)),
            ("select", [c, a, b]) => Ok(Inst::Select(
                self.reference(c)?,
                self.reference(a)?,
                self.reference(b)?,
            )),
            (op, [a]) if Unary::from_name(op).is_some() => {
                let a = self.reference(a)?;
                Unary::from_name(op).map_or_else(|| self.fail(op), |u| Ok(Inst::Unary(u, a)))
            }
            (op, [a, b]) => {
                let (a, b) = (self.reference(a)?, self.reference(b)?);
                if let Some(f) = Binary::from_name(op) {
                    Ok(Inst::Binary(f, a, b))
                } else if let Some(f) = Compare::from_name(op) {
                    Ok(Inst::Compare(f, a, b))
                } else {
                    self.fail(format!("there is no function '{op}' of two arguments"))
                }
            }
            _ => self.fail(format!(
                "'{op}' with {} arguments is no instruction",
                w.len()
            )),
        }
    }
}

/// Reads the text form. Names after `%` are free; instructions are separated by `;` or line ends
/// and numbered from 1 in errors.
impl FromStr for Expr {
    type Err = ExprError;

    fn from_str(text: &str) -> Result<Expr, ExprError> {
        if text.len() > MAX_LEN {
            return Err(ExprError::Text {
                line: 0,
                why: format!("it is longer than {MAX_LEN} bytes"),
            });
        }
        let mut names: BTreeMap<&str, Ref> = BTreeMap::new();
        let mut insts = Vec::new();
        let mut outputs = None;
        let mut number = 0;
        for piece in pieces(text) {
            let piece = piece.trim();
            if piece.is_empty() {
                continue;
            }
            number += 1;
            let line = Line {
                number,
                names: &names,
            };
            if outputs.is_some() {
                return line.fail("nothing may follow 'out'");
            }
            if piece.split_whitespace().next() == Some("out") {
                let refs: Result<Vec<Ref>, ExprError> = piece
                    .split_whitespace()
                    .skip(1)
                    .map(|w| line.reference(w))
                    .collect();
                outputs = Some(refs?);
                continue;
            }
            let Some((name, body)) = piece.split_once('=') else {
                return line.fail("expected '%name = instruction' or 'out'");
            };
            let name = name.trim();
            if !name.starts_with('%') || name.len() < 2 || name.contains(char::is_whitespace) {
                return line.fail(format!("'{name}' is no name; names start with '%'"));
            }
            insts.push(line.inst(body.trim())?);
            names.insert(name, (insts.len() - 1) as Ref);
        }
        match outputs {
            Some(outputs) => Ok(Expr { insts, outputs }),
            None => Err(ExprError::Text {
                line: number,
                why: "the 'out' line is missing".into(),
            }),
        }
    }
}

/// `monoid sum { identity: ... } { lift: ... } { combine: ... } { finish: ... }`; [`FromStr`]
/// reads it back to an equal reduction when its name has no braces.
impl fmt::Display for Monoid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "monoid {} {{ identity: {} }} {{ lift: {} }} {{ combine: {} }} {{ finish: {} }}",
            self.name, self.identity, self.lift, self.combine, self.finish
        )
    }
}

impl FromStr for Monoid {
    type Err = ExprError;

    fn from_str(text: &str) -> Result<Monoid, ExprError> {
        let fail = |why: &str| ExprError::Text {
            line: 1,
            why: why.into(),
        };
        let rest = text
            .trim()
            .strip_prefix("monoid ")
            .ok_or_else(|| fail("expected 'monoid'"))?;
        let at = rest
            .find('{')
            .ok_or_else(|| fail("expected '{' after the name"))?;
        let name = rest[..at].trim().to_string();
        let mut rest = &rest[at..];
        let mut part = |label: &str| -> Result<Expr, ExprError> {
            let bad = || fail(&format!("expected '{{ {label}: program }}'"));
            let body = rest.trim_start().strip_prefix('{').ok_or_else(bad)?;
            let mut quoted = false;
            let end = body
                .char_indices()
                .find(|&(_, c)| {
                    quoted ^= c == '`';
                    c == '}' && !quoted
                })
                .ok_or_else(bad)?
                .0;
            rest = &body[end + 1..];
            body[..end]
                .trim()
                .strip_prefix(label)
                .and_then(|b| b.strip_prefix(':'))
                .ok_or_else(bad)?
                .parse()
        };
        let m = Monoid {
            identity: part("identity")?,
            lift: part("lift")?,
            combine: part("combine")?,
            finish: part("finish")?,
            name,
        };
        if !rest.trim().is_empty() {
            return Err(fail("nothing may follow the last program"));
        }
        Ok(m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_round_trips() {
        let t = "%0 = input 0 f32; %1 = const 0.5 f32; %2 = mul %0 %1; out %2";
        let e: Expr = t.parse().unwrap();
        assert_eq!(e.to_string(), t);
        let t = "%0 = const -0.0 f16; %1 = const 0xfff8000000000123 bf16; %2 = const inf f64; \
                 %3 = const 1e-320 f64; %4 = int -5 i4; %5 = index 2; \
                 %6 = dim `a;b = c`*floordiv(n + 3, 4); %7 = lt %5 %6; %8 = select %7 %5 %6; \
                 %9 = cast %8 u8; %10 = is_nan %3; out %9 %10 %9";
        let e: Expr = t.parse().unwrap();
        assert_eq!(e.to_string(), t);
        assert_eq!(e, e.to_string().parse().unwrap());
        let named: Expr = "%x = input 0 f32\n%y = neg %x\nout %y".parse().unwrap();
        assert_eq!(named.to_string(), "%0 = input 0 f32; %1 = neg %0; out %1");
    }

    #[test]
    fn faults_are_named() {
        for (t, part) in [
            ("", "missing"),
            ("%0 = input 0 f32", "missing"),
            ("%0 = neg %0; out %0", "no earlier"),
            ("%0 = frob 1 2 3; out", "frob"),
            ("%0 = input 0 f33; out %0", "f33"),
            ("%0 = const 0xg f32; out %0", "pattern"),
            ("%0 = input 99999999 f32; out %0", "slot"),
            ("%0 = dim n +; out %0", "dimension"),
            ("out; out", "follow"),
            ("= input", "name"),
        ] {
            match t.parse::<Expr>() {
                Err(e) => assert!(e.to_string().contains(part), "{t}: {e}"),
                Ok(e) => panic!("{t} read as {e}"),
            }
        }
    }
}
