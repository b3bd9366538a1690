//! Scalar programs as formulas for people, as `formula` reads them back. The report and the whys print them;
//! the lossless form is in `text`.
use crate::{Binary, Compare, Expr, Inst, Unary};
use layout::DType;

/// Characters that a formula may take; the rest is cut.
const MAX_CHARS: usize = 160;

/// Binding strength of a formula's outermost operator.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    Choice,
    Compare,
    Bits,
    Sum,
    Product,
    Prefix,
    Atom,
}

struct Part {
    text: String,
    level: Level,
}

impl Part {
    fn new(text: String, level: Level) -> Part {
        // Shared parts are written out at each use, so every part is cut, not only the last.
        match text.char_indices().nth(MAX_CHARS) {
            None => Part { text, level },
            Some((at, _)) => Part {
                text: format!("{}…", &text[..at]),
                level: Level::Atom,
            },
        }
    }

    fn within(&self, level: Level) -> String {
        if self.level >= level {
            self.text.clone()
        } else {
            format!("({})", self.text)
        }
    }
}

/// The instructions so far, as text.
struct Parts(Vec<Part>);

impl Parts {
    /// An argument as an operand of something of strength `level`; '?' for an invalid program's forward
    /// references.
    fn within(&self, r: u32, level: Level) -> String {
        match self.0.get(r as usize) {
            Some(p) => p.within(level),
            None => "?".into(),
        }
    }

    fn call(&self, f: &str, args: &[u32]) -> Part {
        let text = |&a: &u32| self.0.get(a as usize).map_or("?", |p| p.text.as_str());
        let args: Vec<&str> = args.iter().map(text).collect();
        Part::new(format!("{f}({})", args.join(", ")), Level::Atom)
    }

    fn infix(&self, op: &str, level: Level, right: Level, a: u32, b: u32) -> Part {
        let text = format!("{}{op}{}", self.within(a, level), self.within(b, right));
        Part::new(text, level)
    }

    fn prefix(&self, op: char, a: u32) -> Part {
        Part::new(
            format!("{op}{}", self.within(a, Level::Atom)),
            Level::Prefix,
        )
    }

    /// A constant or an operation.
    fn operation(&self, inst: &Inst) -> Part {
        match inst {
            Inst::Float { bits, dtype } => float(f64::from_bits(*bits), *dtype),
            Inst::Int { value, .. } if *value < 0 => Part::new(value.to_string(), Level::Prefix),
            Inst::Int { value, .. } => Part::new(value.to_string(), Level::Atom),
            Inst::Dim(d) => {
                let plain = d.known().is_some_and(|n| n >= 0) || d.as_sym().is_some();
                Part::new(d.to_string(), if plain { Level::Atom } else { Level::Sum })
            }
            Inst::Unary(Unary::Neg, a) => self.prefix('-', *a),
            Inst::Unary(Unary::Not, a) => self.prefix('!', *a),
            Inst::Unary(Unary::BitNot, a) => self.prefix('~', *a),
            Inst::Unary(u, a) => self.call(u.name(), &[*a]),
            Inst::Binary(f, a, b) => self.binary(*f, *a, *b),
            Inst::Compare(f, a, b) => {
                let op = match f {
                    Compare::Eq => " == ",
                    Compare::Ne => " != ",
                    Compare::Lt => " < ",
                    Compare::Le => " <= ",
                    Compare::Gt => " > ",
                    Compare::Ge => " >= ",
                };
                self.infix(op, Level::Compare, Level::Bits, *a, *b)
            }
            Inst::Select(c, a, b) => {
                let (c, a) = (
                    self.within(*c, Level::Compare),
                    self.within(*a, Level::Compare),
                );
                let text = format!("{c} ? {a} : {}", self.within(*b, Level::Choice));
                Part::new(text, Level::Choice)
            }
            Inst::Cast(a, d) => self.call(d.name(), &[*a]),
            Inst::Input { slot, .. } => Part::new(format!("x{slot}"), Level::Atom),
            Inst::Index { axis } => Part::new(format!("i{axis}"), Level::Atom),
        }
    }

    fn binary(&self, f: Binary, a: u32, b: u32) -> Part {
        match f {
            Binary::Add => self.infix(" + ", Level::Sum, Level::Product, a, b),
            Binary::Sub => self.infix(" - ", Level::Sum, Level::Product, a, b),
            Binary::Mul => self.infix("*", Level::Product, Level::Prefix, a, b),
            Binary::Div => self.infix("/", Level::Product, Level::Prefix, a, b),
            Binary::And => self.infix(" & ", Level::Bits, Level::Sum, a, b),
            Binary::Or => self.infix(" | ", Level::Bits, Level::Sum, a, b),
            Binary::Xor => self.infix(" ^ ", Level::Bits, Level::Sum, a, b),
            Binary::Shl => self.infix(" << ", Level::Bits, Level::Sum, a, b),
            Binary::Shr => self.infix(" >> ", Level::Bits, Level::Sum, a, b),
            f => self.call(f.name(), &[a, b]),
        }
    }
}

/// A constant: the shortest text at its own width.
fn float(x: f64, dtype: DType) -> Part {
    let text = match dtype.bits() <= 32 {
        true => (x as f32).to_string(),
        false => x.to_string(),
    };
    let text = match text.len() > 12 {
        true => format!("{x:e}"),
        false => text,
    };
    Part::new(text, if x < 0.0 { Level::Prefix } else { Level::Atom })
}

impl Expr {
    /// A formula for people, such as `max(a*0.5 + b, 0)`: argument `i` is called `names[i]` (`x{i}`
    /// without a name), coordinates `i0`, `i1`, ...; several results are separated by `, `. Long
    /// formulas are cut with `…`.
    pub fn pretty(&self, names: &[&str]) -> String {
        self.pretty_with(names, None)
    }

    /// As [`Expr::pretty`]; with the axes' names a coordinate is `i` and its axis' name, and a dimension
    /// stands in braces.
    pub(crate) fn pretty_with(&self, names: &[&str], axes: Option<&[&str]>) -> String {
        let mut parts = Parts(Vec::with_capacity(self.insts.len()));
        for inst in &self.insts {
            let part = match inst {
                Inst::Index { axis } => {
                    let name = axes.and_then(|a| a.get(*axis as usize));
                    let name = name.map_or_else(|| axis.to_string(), |n| n.to_string());
                    Part::new(format!("i{name}"), Level::Atom)
                }
                Inst::Dim(d) if axes.is_some() => Part::new(format!("{{{d}}}"), Level::Atom),
                Inst::Input { slot, .. } => match names.get(*slot as usize) {
                    Some(n) => Part::new(n.to_string(), Level::Atom),
                    None => Part::new(format!("x{slot}"), Level::Atom),
                },
                other => parts.operation(other),
            };
            parts.0.push(part);
        }
        let outs: Vec<&str> = self
            .outputs
            .iter()
            .map(|&o| parts.0.get(o as usize).map_or("?", |p| p.text.as_str()))
            .collect();
        Part::new(outs.join(", "), Level::Atom).text
    }
}

#[cfg(test)]
mod tests {
    use crate::{Binary, Compare, Expr, ExprBuilder, Unary};
    use layout::DType;

    #[test]
    fn formulas() {
        let mut b = ExprBuilder::new();
        let (x, y) = (b.input(0, DType::F32), b.input(1, DType::F32));
        let (h, z) = (b.constant(0.5, DType::F32), b.constant(0.0, DType::F32));
        let m = b.mul(x, h);
        let s = b.add(m, y);
        let r = b.binary(Binary::Max, s, z);
        let d = b.sub(x, s);
        let q = b.div(d, s);
        let c = b.compare(Compare::Lt, x, y);
        let w = b.select(c, q, r);
        let n = b.unary(Unary::Neg, s);
        let t = b.cast(n, DType::F16);
        let e = b.finish(&[r, w, t]);
        assert_eq!(
            e.pretty(&["a", "b"]),
            "max(a*0.5 + b, 0), a < b ? (a - (a*0.5 + b))/(a*0.5 + b) : max(a*0.5 + b, 0), f16(-(a*0.5 + b))"
        );
    }

    #[test]
    fn growth_is_capped() {
        let mut b = ExprBuilder::new();
        let mut x = b.input(0, DType::F32);
        for _ in 0..200 {
            x = b.add(x, x);
        }
        let e: Expr = b.finish(&[x]);
        assert!(e.pretty(&[]).chars().count() <= 161);
    }
}
