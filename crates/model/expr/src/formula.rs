//! Programs written as formulas: `max(a*0.5 + b, 0)`, as [`Expr::pretty`] prints them.
use crate::{Binary, Compare, Expr, ExprBuilder, ExprError, Inst, Ref, Unary};
use layout::{DType, Dim};

/// Bytes beyond which a formula is refused, and nesting.
const MAX_LEN: usize = 1 << 14;
const MAX_DEPTH: u32 = 64;

/// What a formula's names stand for.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Arguments, one per slot, each with its type.
    pub args: &'a [(&'a str, DType)],
    /// Axes: `i` followed by the axis' name is the coordinate along it.
    pub axes: &'a [&'a str],
}

/// A part of a formula.
enum Node {
    Number(String),
    Arg(usize),
    Index(u32),
    Dim(Dim),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    Compare(Compare, Box<Node>, Box<Node>),
    Select(Box<[Node; 3]>),
    Cast(Box<Node>, DType),
}

/// An error at byte `at` of the formula.
fn fail<T>(at: usize, why: impl Into<String>) -> Result<T, ExprError> {
    Err(ExprError::Formula {
        column: at + 1,
        why: why.into(),
    })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    names: Names<'a>,
}

/// Operators between two parts, the loosest first, and those of one strength together; longer ones come
/// before those that they begin with.
const INFIX: [&[(&str, Infix)]; 4] = [
    &[
        ("==", Infix::Compare(Compare::Eq)),
        ("!=", Infix::Compare(Compare::Ne)),
        ("<=", Infix::Compare(Compare::Le)),
        (">=", Infix::Compare(Compare::Ge)),
        ("<", Infix::Compare(Compare::Lt)),
        (">", Infix::Compare(Compare::Gt)),
    ],
    &[
        ("<<", Infix::Binary(Binary::Shl)),
        (">>", Infix::Binary(Binary::Shr)),
        ("&", Infix::Binary(Binary::And)),
        ("|", Infix::Binary(Binary::Or)),
        ("^", Infix::Binary(Binary::Xor)),
    ],
    &[
        ("+", Infix::Binary(Binary::Add)),
        ("-", Infix::Binary(Binary::Sub)),
    ],
    &[
        ("*", Infix::Binary(Binary::Mul)),
        ("/", Infix::Binary(Binary::Div)),
    ],
];

#[derive(Clone, Copy)]
enum Infix {
    Binary(Binary),
    Compare(Compare),
}

impl Reader<'_> {
    fn blank(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn eat(&mut self, what: &str) -> bool {
        self.blank();
        let found = self.text[self.at..].starts_with(what);
        if found {
            self.at += what.len();
        }
        found
    }

    fn expect(&mut self, what: &str) -> Result<(), ExprError> {
        match self.eat(what) {
            true => Ok(()),
            false => fail(self.at, format!("'{what}' is missing here")),
        }
    }

    fn choice(&mut self) -> Result<Node, ExprError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return fail(
                self.at,
                "it is nested too deeply; split it into several maps",
            );
        }
        let c = self.infix(0)?;
        let n = match self.eat("?") {
            false => c,
            true => {
                let a = self.choice()?;
                self.expect(":")?;
                let b = self.choice()?;
                Node::Select(Box::new([c, a, b]))
            }
        };
        self.depth -= 1;
        Ok(n)
    }

    fn infix(&mut self, level: usize) -> Result<Node, ExprError> {
        let Some(all) = INFIX.get(level) else {
            return self.prefix();
        };
        let mut left = self.infix(level + 1)?;
        let mut length = 0;
        loop {
            self.blank();
            let rest = &self.text[self.at..];
            // `<` of a comparison is no half of a shift.
            let shift = level == 0 && (rest.starts_with("<<") || rest.starts_with(">>"));
            let found = all.iter().find(|(op, _)| rest.starts_with(op) && !shift);
            let Some((op, f)) = found else {
                return Ok(left);
            };
            length += 1;
            if length > 1000 {
                return fail(self.at, "it has too many parts; split it into several maps");
            }
            self.at += op.len();
            let right = self.infix(level + 1)?;
            left = match f {
                Infix::Binary(f) => Node::Binary(*f, left.into(), right.into()),
                Infix::Compare(f) => Node::Compare(*f, left.into(), right.into()),
            };
        }
    }

    fn prefix(&mut self) -> Result<Node, ExprError> {
        self.blank();
        let number = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let rest = &self.text[self.at..];
        let word = rest.strip_prefix('-').is_some_and(|r| r.starts_with("inf"));
        if (rest.starts_with('-') && number(rest[1..].chars().next())) || word {
            return self.atom();
        }
        for (sign, f) in [("-", Unary::Neg), ("!", Unary::Not), ("~", Unary::BitNot)] {
            if !rest.starts_with("!=") && self.eat(sign) {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return fail(
                        self.at,
                        "it is nested too deeply; split it into several maps",
                    );
                }
                let of = self.prefix()?;
                self.depth -= 1;
                return Ok(Node::Unary(f, of.into()));
            }
        }
        self.atom()
    }

    fn word(&mut self) -> &str {
        let rest = &self.text[self.at..];
        let long = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let end = rest.find(|c: char| !long(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        self.at += end;
        word
    }

    /// A number such as `3`, `-0.5`, `1e-5`, `inf` or `nan`.
    fn number(&mut self) -> Option<String> {
        let rest = &self.text[self.at..];
        let body = rest.strip_prefix('-').unwrap_or(rest);
        let sign = rest.len() - body.len();
        let mut end = 0;
        if body.starts_with("inf") || body.starts_with("NaN") {
            end = 3;
        } else if body.starts_with(|c: char| c.is_ascii_digit()) {
            let mut before = ' ';
            for (i, c) in body.char_indices() {
                let exponent = matches!(before, 'e' | 'E') && matches!(c, '-' | '+');
                if !(c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E') || exponent) {
                    break;
                }
                before = c;
                end = i + c.len_utf8();
            }
        }
        let follows = body[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if end == 0 || follows {
            return None;
        }
        self.at += sign + end;
        Some(rest[..sign + end].to_string())
    }

    fn atom(&mut self) -> Result<Node, ExprError> {
        if self.eat("(") {
            let n = self.choice()?;
            self.expect(")")?;
            return Ok(n);
        }
        self.blank();
        if let Some(n) = self.number() {
            return Ok(Node::Number(n));
        }
        let from = self.at;
        let names = self.names;
        // A whole dimension in braces: {2*n + 1}.
        if self.eat("{") {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find('}') else {
                return fail(from, "'{' has no '}'");
            };
            let dim: Dim = match rest[..end].trim().parse() {
                Ok(d) => d,
                Err(e) => return fail(self.at, format!("{e}")),
            };
            self.at += end + 1;
            return Ok(Node::Dim(dim));
        }
        let word = self.word().to_string();
        if word.is_empty() {
            return fail(from, "a name, a number or '(' is missing here");
        }
        if !self.eat("(") {
            if let Some(slot) = names.args.iter().position(|a| a.0 == word) {
                return Ok(Node::Arg(slot));
            }
            let axis = word.strip_prefix('i');
            let axis = axis.and_then(|n| names.axes.iter().position(|a| *a == n));
            return match axis {
                Some(a) => Ok(Node::Index(a as u32)),
                None => {
                    let known: Vec<&str> = names.args.iter().map(|a| a.0).collect();
                    fail(
                        from,
                        format!(
                            "'{word}' is no tile; there are {}",
                            match known.is_empty() {
                                true => "none".to_string(),
                                false => known.join(", "),
                            }
                        ),
                    )
                }
            };
        }
        let mut args = vec![self.choice()?];
        while self.eat(",") {
            args.push(self.choice()?);
        }
        self.expect(")")?;
        let unary = Unary::from_name(&word);
        let binary = Binary::from_name(&word);
        let compare = Compare::from_name(&word);
        let to = DType::from_name(&word);
        let count = args.len();
        let mut args = args.into_iter();
        match (unary, binary, compare, to, args.next(), args.next()) {
            (Some(f), _, _, _, Some(a), None) => Ok(Node::Unary(f, a.into())),
            (_, _, _, Some(d), Some(a), None) => Ok(Node::Cast(a.into(), d)),
            (_, Some(f), _, _, Some(a), Some(b)) if count == 2 => {
                Ok(Node::Binary(f, a.into(), b.into()))
            }
            (_, _, Some(f), _, Some(a), Some(b)) if count == 2 => {
                Ok(Node::Compare(f, a.into(), b.into()))
            }
            _ => fail(
                from,
                format!("there is no function '{word}' of {count} arguments"),
            ),
        }
    }
}

struct Lower<'a> {
    b: ExprBuilder,
    names: Names<'a>,
}

impl Lower<'_> {
    /// The type that a part has by itself; `None` for numbers, which take that of what is beside them.
    fn own(&self, n: &Node) -> Option<DType> {
        match n {
            Node::Number(_) => None,
            Node::Arg(slot) => Some(self.names.args[*slot].1),
            Node::Index(_) | Node::Dim(_) => Some(DType::I64),
            Node::Unary(Unary::IsNan | Unary::IsInf, _) | Node::Compare(..) => Some(DType::Bool),
            Node::Unary(_, a) => self.own(a),
            Node::Binary(_, a, b) => self.own(a).or_else(|| self.own(b)),
            Node::Select(all) => self.own(&all[1]).or_else(|| self.own(&all[2])),
            Node::Cast(_, d) => Some(*d),
        }
    }

    fn lower(&mut self, n: &Node, want: DType) -> Result<Ref, ExprError> {
        Ok(match n {
            Node::Number(text) => {
                if want.is_float() {
                    match text.parse::<f64>() {
                        Ok(v) => self.b.constant(v, want),
                        Err(_) => return fail(0, format!("'{text}' is no number")),
                    }
                } else {
                    match text.parse::<i64>() {
                        Ok(v) => self.b.int(v, want),
                        Err(_) => {
                            return fail(0, format!("'{text}' is no number of type {want}"));
                        }
                    }
                }
            }
            Node::Arg(slot) => self.b.input(*slot as u32, self.names.args[*slot].1),
            Node::Index(a) => self.b.index(*a),
            Node::Dim(d) => self.b.dim(d),
            Node::Unary(f, a) => {
                let of = self.own(a).unwrap_or(match f {
                    Unary::IsNan | Unary::IsInf => DType::F32,
                    _ => want,
                });
                let a = self.lower(a, of)?;
                self.b.unary(*f, a)
            }
            Node::Binary(f, a, b) => {
                let of = self.own(n).unwrap_or(want);
                let (a, b) = (self.lower(a, of)?, self.lower(b, of)?);
                self.b.binary(*f, a, b)
            }
            Node::Compare(f, a, b) => {
                let of = self.own(a).or_else(|| self.own(b)).unwrap_or(DType::F32);
                let (a, b) = (self.lower(a, of)?, self.lower(b, of)?);
                self.b.compare(*f, a, b)
            }
            Node::Select(all) => {
                let of = self.own(n).unwrap_or(want);
                let [c, a, b] = &**all;
                let c = self.lower(c, DType::Bool)?;
                let (a, b) = (self.lower(a, of)?, self.lower(b, of)?);
                self.b.select(c, a, b)
            }
            Node::Cast(a, d) => {
                let of = self.own(a).unwrap_or(*d);
                let a = self.lower(a, of)?;
                self.b.cast(a, *d)
            }
        })
    }
}

impl Expr {
    /// Reads a formula whose result is of type `result`: names are arguments, `i` with an axis' name is
    /// the coordinate along it, `{2*n}` is a dimension; numbers are of the type of what they stand beside.
    /// Functions are called by the names that text forms have, casts by the type's.
    ///
    /// # Errors
    /// Where it cannot be read, with the column, from 1.
    pub fn from_formula(text: &str, names: Names<'_>, result: DType) -> Result<Expr, ExprError> {
        if text.len() > MAX_LEN {
            return fail(0, format!("it is longer than {MAX_LEN} bytes"));
        }
        let mut r = Reader {
            text,
            at: 0,
            depth: 0,
            names,
        };
        let node = r.choice()?;
        r.blank();
        if r.at < text.len() {
            return fail(r.at, "nothing may follow here");
        }
        let mut l = Lower {
            b: ExprBuilder::new(),
            names,
        };
        let of = l.own(&node).unwrap_or(result);
        let out = l.lower(&node, of)?;
        if of != result {
            return fail(
                0,
                format!("it is of type {of} where {result} is wanted; write {result}(..)"),
            );
        }
        Ok(l.b.finish(&[out]))
    }

    /// The formula that [`Expr::from_formula`] reads back as this program, up to the order of
    /// instructions, if there is one.
    pub fn formula(&self, names: Names<'_>) -> Option<String> {
        let (&[out], true) = (self.outputs.as_slice(), self.insts.len() <= 64) else {
            return None;
        };
        let result = *self.types().ok()?.get(out as usize)?;
        let args: Vec<&str> = names.args.iter().map(|a| a.0).collect();
        let text = self.pretty_with(&args, Some(names.axes));
        let back = Expr::from_formula(&text, names, result).ok()?;
        (back.in_order() == self.in_order()).then_some(text)
    }

    /// The same program with its instructions in the order in which its outputs ask for them; those that
    /// no output asks for are left out. What is not a valid program stays as it is.
    #[must_use]
    pub fn in_order(&self) -> Expr {
        fn place(e: &Expr, at: Ref, b: &mut ExprBuilder, done: &mut [Option<Ref>]) -> Option<Ref> {
            // A stack of its own: programs may be long chains.
            let mut stack = vec![at];
            while let Some(&r) = stack.last() {
                let inst = e.insts.get(r as usize)?;
                let args: Vec<Ref> = inst.args().collect();
                if args.iter().any(|&a| a >= r) {
                    return None;
                }
                let missing = args.iter().rev().filter(|&&a| done[a as usize].is_none());
                let before = stack.len();
                stack.extend(missing);
                if stack.len() > before {
                    continue;
                }
                stack.pop();
                if done[r as usize].is_none() {
                    let moved = inst.with_args(&|a| done[a as usize].unwrap_or(0));
                    done[r as usize] = Some(b.push(moved));
                }
            }
            done[at as usize]
        }
        let mut b = ExprBuilder::new();
        let mut done = vec![None; self.insts.len()];
        let outs: Option<Vec<Ref>> = self
            .outputs
            .iter()
            .map(|&o| place(self, o, &mut b, &mut done))
            .collect();
        match outs {
            Some(outs) => b.finish(&outs),
            None => self.clone(),
        }
    }
}

impl Inst {
    /// The same instruction on other arguments.
    fn with_args(&self, to: &dyn Fn(Ref) -> Ref) -> Inst {
        match self {
            Inst::Unary(f, a) => Inst::Unary(*f, to(*a)),
            Inst::Binary(f, a, b) => Inst::Binary(*f, to(*a), to(*b)),
            Inst::Compare(f, a, b) => Inst::Compare(*f, to(*a), to(*b)),
            Inst::Select(c, a, b) => Inst::Select(to(*c), to(*a), to(*b)),
            Inst::Cast(a, d) => Inst::Cast(to(*a), *d),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Names;
    use crate::{Expr, Scalar};
    use layout::DType;

    const NAMES: Names = Names {
        args: &[("a", DType::F32), ("b", DType::F32), ("n", DType::I64)],
        axes: &["m", "k"],
    };

    fn read(text: &str) -> Expr {
        let e = Expr::from_formula(text, NAMES, DType::F32);
        e.unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn formulas_are_read_back_as_they_are_printed() {
        for text in [
            "max(a*0.5 + b, 0)",
            "a < b ? (a - b)/2 : -(a + b)",
            "tanh(f32(n + im*{2*rows})) + 1e-5",
            "a - (b - 1) - a*b/3",
            "f32((n == 3) & (n != 4) | (n << 2 > 1) ? 1 : n)",
            "exp(-a)*inf",
            "f32(!is_nan(a))",
            "-a*-1.5",
        ] {
            let e = read(text);
            let printed = e.formula(NAMES).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(read(&printed).in_order(), e.in_order(), "{text}: {printed}");
        }
    }

    #[test]
    fn a_formula_means_what_it_says() {
        let value = |text: &str, a: f64, b: f64| {
            let e = read(text);

            let args = [Scalar::Float(a), Scalar::Float(b), Scalar::Int(0)];
            e.eval_plain(&args).unwrap()[0].as_f64()
        };
        assert_eq!(value("a - b - 1", 5.0, 2.0), 2.0);
        assert_eq!(value("a + b*2", 5.0, 2.0), 9.0);
        assert_eq!(value("a < b ? 1 : a < 6 ? 2 : 3", 5.0, 2.0), 2.0);
        assert_eq!(value("-a*b", 5.0, 2.0), -10.0);
    }

    #[test]
    fn faults_are_named_with_their_column() {
        for (text, column, part) in [
            ("a + c", 5, "'c' is no tile"),
            ("a + ", 5, "missing"),
            ("(a", 3, "')'"),
            ("a b", 3, "follow"),
            ("frob(a)", 1, "frob"),
            ("a == b", 1, "bool"),
            ("{x", 1, "'}'"),
        ] {
            let e = Expr::from_formula(text, NAMES, DType::F32)
                .unwrap_err()
                .to_string();
            assert!(e.contains(&format!("column {column}")), "{text}: {e}");
            assert!(e.to_lowercase().contains(part), "{text}: {e}");
        }
        let deep = "(".repeat(5000) + "a";
        assert!(Expr::from_formula(&deep, NAMES, DType::F32).is_err());
        let deep = "-".repeat(5000) + "a";
        assert!(Expr::from_formula(&deep, NAMES, DType::F32).is_err());
        let long = "a".to_string() + &" + a".repeat(5000);
        assert!(Expr::from_formula(&long, NAMES, DType::F32).is_err());
    }
}
