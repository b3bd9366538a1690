//! Index expressions as people write them: `lane*33 % 1024`, `lane ^ (lane / 8)`, `lane < 16`. They
//! become the project's own scalar programs, whose text form is read as well.

use expr::{Binary, Compare, Expr, ExprBuilder, Inst, Ref, Unary};
use layout::DType;

/// Why an index expression gave no elements.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The text does not read.
    #[error("index expression `{text}` is wrong at character {at}: expected {expected}")]
    Parse {
        /// The whole text.
        text: String,
        /// Character, from 1.
        at: usize,
        /// What would have been right there.
        expected: &'static str,
    },
    /// The program does not evaluate.
    #[error("index expression: {0}")]
    Eval(String),
    /// A quotient or remainder by nothing.
    #[error("lane {lane} divides by 0; give an expression that does not, or switch the lane off")]
    Division {
        /// The lane.
        lane: u64,
    },
    /// An element that no memory has.
    #[error("lane {lane} accesses element {value}; give an expression from 0 to 2^53")]
    Range {
        /// The lane.
        lane: u64,
        /// What the expression gave.
        value: String,
    },
}

/// Nesting and length beyond which an expression is refused.
const MAX_DEPTH: usize = 64;
const MAX_LEN: usize = 4096;

/// Reads an expression of the lane index over whole numbers: `lane` (or `i`), numbers, `+ - * / %`,
/// `<< >> & ^ |`, comparisons, brackets, with C's precedence; `/` truncates. A text that begins with
/// `%` is the text form of a scalar program in which the lane is argument 0 or coordinate 0.
///
/// # Errors
/// [`IndexError::Parse`] with the place.
pub fn parse_index(text: &str) -> Result<Expr, IndexError> {
    if text.trim_start().starts_with('%') {
        return text
            .parse()
            .map_err(|e: expr::ExprError| IndexError::Eval(e.to_string()));
    }
    let mut p = Parser {
        text,
        chars: text.chars().take(MAX_LEN + 1).collect(),
        at: 0,
        depth: 0,
        b: ExprBuilder::new(),
    };
    if p.chars.len() > MAX_LEN {
        return Err(p.fail("a shorter expression"));
    }
    let out = p.level(0)?;
    p.space();
    if p.at < p.chars.len() {
        return Err(p.fail("an operator or the end"));
    }
    Ok(p.b.finish(&[out]))
}

#[derive(Clone, Copy)]
enum Op {
    Binary(Binary),
    Compare(Compare),
}

/// Operators from the loosest to the tightest; within a level, longer ones first.
const LEVELS: &[&[(&str, Op)]] = &[
    &[("||", Op::Binary(Binary::Or))],
    &[("&&", Op::Binary(Binary::And))],
    &[("|", Op::Binary(Binary::Or))],
    &[("^", Op::Binary(Binary::Xor))],
    &[("&", Op::Binary(Binary::And))],
    &[
        ("==", Op::Compare(Compare::Eq)),
        ("!=", Op::Compare(Compare::Ne)),
    ],
    &[
        ("<=", Op::Compare(Compare::Le)),
        (">=", Op::Compare(Compare::Ge)),
        ("<", Op::Compare(Compare::Lt)),
        (">", Op::Compare(Compare::Gt)),
    ],
    &[
        ("<<", Op::Binary(Binary::Shl)),
        (">>", Op::Binary(Binary::Shr)),
    ],
    &[
        ("+", Op::Binary(Binary::Add)),
        ("-", Op::Binary(Binary::Sub)),
    ],
    &[
        ("*", Op::Binary(Binary::Mul)),
        ("/", Op::Binary(Binary::Div)),
        ("%", Op::Binary(Binary::Mod)),
    ],
];

struct Parser<'a> {
    text: &'a str,
    chars: Vec<char>,
    at: usize,
    depth: usize,
    b: ExprBuilder,
}

impl Parser<'_> {
    fn fail(&self, expected: &'static str) -> IndexError {
        IndexError::Parse {
            text: self.text.chars().take(200).collect(),
            at: self.at + 1,
            expected,
        }
    }

    fn space(&mut self) {
        while self.chars.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
    }

    fn starts(&self, word: &str) -> bool {
        word.chars()
            .enumerate()
            .all(|(k, c)| self.chars.get(self.at + k) == Some(&c))
    }

    /// The operator of a level that stands here, unless it is the beginning of a longer one.
    fn operator(&mut self, level: usize) -> Option<Op> {
        self.space();
        let (word, op) = LEVELS[level].iter().find(|o| self.starts(o.0))?;
        let longer = LEVELS
            .iter()
            .flat_map(|l| l.iter())
            .any(|o| o.0.len() > word.len() && o.0.starts_with(word) && self.starts(o.0));
        if longer {
            return None;
        }
        self.at += word.len();
        Some(*op)
    }

    fn level(&mut self, level: usize) -> Result<Ref, IndexError> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.level(level + 1)?;
        while let Some(op) = self.operator(level) {
            let right = self.level(level + 1)?;
            left = match op {
                Op::Binary(f) => self.b.binary(f, left, right),
                Op::Compare(f) => {
                    let truth = self.b.compare(f, left, right);
                    self.b.cast(truth, DType::I64)
                }
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Ref, IndexError> {
        self.space();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fail("fewer brackets"));
        }
        let out = match self.chars.get(self.at).copied() {
            Some('-') => {
                self.at += 1;
                let v = self.unary()?;
                self.b.unary(Unary::Neg, v)
            }
            Some('(') => {
                self.at += 1;
                let v = self.level(0)?;
                self.space();
                if self.chars.get(self.at) != Some(&')') {
                    return Err(self.fail("`)`"));
                }
                self.at += 1;
                v
            }
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some(c) if c.is_alphabetic() => self.name()?,
            _ => return Err(self.fail("`lane`, a number or `(`")),
        };
        self.depth -= 1;
        Ok(out)
    }

    fn number(&mut self) -> Result<Ref, IndexError> {
        let mut v: i64 = 0;
        while let Some(d) = self.chars.get(self.at).and_then(|c| c.to_digit(10)) {
            v = v
                .checked_mul(10)
                .and_then(|v| v.checked_add(i64::from(d)))
                .ok_or_else(|| self.fail("a number below 2^63"))?;
            self.at += 1;
        }
        Ok(self.b.int(v, DType::I64))
    }

    fn name(&mut self) -> Result<Ref, IndexError> {
        let from = self.at;
        while self
            .chars
            .get(self.at)
            .is_some_and(|c| c.is_alphanumeric() || *c == '_')
        {
            self.at += 1;
        }
        let name: String = self.chars[from..self.at].iter().collect();
        match name.as_str() {
            "lane" | "i" | "tid" => Ok(self.b.push(Inst::Index { axis: 0 })),
            _ => {
                self.at = from;
                Err(self.fail("`lane`, the only name there is"))
            }
        }
    }
}
