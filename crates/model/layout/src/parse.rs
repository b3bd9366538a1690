//! Reading dimension expressions from text, with limits on depth and length, since text may come from any file.
use crate::Dim;
use crate::serial::{known, remember};
use std::str::FromStr;

/// Why a dimension expression could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dimension expression '{text}' is wrong at byte {at}: expected {expected}")]
pub struct ParseError {
    /// The whole text.
    pub text: String,
    /// Byte offset of the fault.
    pub at: usize,
    /// What would have been right there.
    pub expected: &'static str,
}

/// Nesting beyond which an expression is refused, so that hostile text cannot exhaust the stack.
const MAX_DEPTH: usize = 64;
/// Length beyond which an expression is refused.
const MAX_LEN: usize = 1 << 14;
/// Terms and atoms beyond which an expression is refused: products and `mod` multiply out.
const MAX_WEIGHT: usize = 1 << 12;

impl FromStr for Dim {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Dim, ParseError> {
        let mut p = Parser {
            text,
            at: 0,
            depth: 0,
        };
        if text.len() > MAX_LEN {
            return Err(p.fail("a shorter expression"));
        }
        let d = p.sum()?;
        p.space();
        if p.at < text.len() {
            return Err(p.fail("an operator or the end"));
        }
        Ok(d)
    }
}

/// The call that `text` begins with, up to the parenthesis that closes its arguments; `None` where names in it
/// may have parentheses of their own.
fn call(text: &str) -> Option<&str> {
    let mut open = 0usize;
    for (i, c) in text.bytes().enumerate() {
        match c {
            b'`' => return None,
            b'(' => open += 1,
            b')' if open <= 1 => return Some(&text[..=i]),
            b')' => open -= 1,
            _ => {}
        }
    }
    None
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn fail(&self, expected: &'static str) -> ParseError {
        ParseError {
            text: self.text.into(),
            at: self.at,
            expected,
        }
    }

    fn bounded(&self, v: &Dim) -> Result<(), ParseError> {
        if v.weight(MAX_WEIGHT) > MAX_WEIGHT {
            return Err(self.fail("a smaller expression"));
        }
        Ok(())
    }

    fn space(&mut self) {
        while self.text[self.at..].starts_with(' ') {
            self.at += 1;
        }
    }

    fn eat(&mut self, c: char) -> bool {
        self.space();
        let hit = self.text[self.at..].starts_with(c);
        if hit {
            self.at += c.len_utf8();
        }
        hit
    }

    fn sum(&mut self) -> Result<Dim, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.fail("less nesting"));
        }
        let mut v = if self.eat('-') {
            -self.product()?
        } else {
            self.product()?
        };
        loop {
            if self.eat('+') {
                v = v + self.product()?;
                self.bounded(&v)?;
            } else if self.eat('-') {
                v = v - self.product()?;
                self.bounded(&v)?;
            } else {
                self.depth -= 1;
                return Ok(v);
            }
        }
    }

    fn product(&mut self) -> Result<Dim, ParseError> {
        let mut v = self.factor()?;
        while self.eat('*') {
            let f = self.factor()?;
            if v.weight(MAX_WEIGHT) * f.weight(MAX_WEIGHT) > 4 * MAX_WEIGHT {
                return Err(self.fail("a smaller expression"));
            }
            v = v * f;
            self.bounded(&v)?;
        }
        Ok(v)
    }

    fn factor(&mut self) -> Result<Dim, ParseError> {
        if self.eat('(') {
            let v = self.sum()?;
            return if self.eat(')') {
                Ok(v)
            } else {
                Err(self.fail("')'"))
            };
        }
        if self.eat('`') {
            let rest = &self.text[self.at..];
            let end = rest.find('`').ok_or_else(|| self.fail("a closing '`'"))?;
            self.at += end + 1;
            return Ok(Dim::sym(&rest[..end]));
        }
        self.space();
        let rest = &self.text[self.at..];
        let word = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(rest.len());
        if word == 0 {
            return Err(self.fail("a number, a symbol or '('"));
        }
        let w = &rest[..word];
        if w.starts_with(|c: char| c.is_ascii_digit()) {
            let n = w
                .parse::<i64>()
                .map_err(|_| self.fail("a 64-bit integer"))?;
            self.at += word;
            return Ok(Dim::Known(n));
        }
        let from = self.at;
        self.at += word;
        if matches!(w, "floordiv" | "ceildiv" | "mod" | "min" | "max") && self.eat('(') {
            // Sizes of a network are calls within calls, and most were met before by themselves.
            let whole = call(&self.text[from..]);
            if let Some((v, text)) = whole.and_then(|t| Some((known(t)?, t))) {
                self.at = from + text.len();
                return Ok(v);
            }
            let a = self.sum()?;
            if !self.eat(',') {
                return Err(self.fail("','"));
            }
            let b = self.sum()?;
            if !self.eat(')') {
                return Err(self.fail("')'"));
            }
            let v = match w {
                "floordiv" => a.floor_div(&b),
                "ceildiv" => a.ceil_div(&b),
                "mod" => a.modulo(&b),
                "min" => a.min_with(&b),
                _ => a.max_with(&b),
            };
            self.bounded(&v)?;
            if let Some(text) = whole {
                remember(text, &v);
            }
            return Ok(v);
        }
        Ok(Dim::sym(w))
    }
}
