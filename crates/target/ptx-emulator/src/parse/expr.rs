//! Constant expressions.

use super::{Parser, ast::Imm, lex::Token, show};
use crate::error::{PtxError, text};

/// Deepest nesting of parentheses and signs.
const DEPTH: u32 = 64;

impl Parser {
    /// A constant: a number, or an expression of integers.
    pub(crate) fn constant(&mut self) -> Result<Imm, PtxError> {
        self.binary(0, 0)
    }

    fn binary(&mut self, level: usize, depth: u32) -> Result<Imm, PtxError> {
        const LEVELS: [&[&str]; 6] = [
            &["|"],
            &["^"],
            &["&"],
            &["<<", ">>"],
            &["+", "-"],
            &["*", "/", "%"],
        ];
        if level == LEVELS.len() {
            return self.unary(depth);
        }
        let mut a = self.binary(level + 1, depth)?;
        'more: loop {
            for op in LEVELS[level] {
                let c = op.chars().next().unwrap_or(' ');
                let double = op.len() == 2;
                if !self.is(c) || (double && self.peek2() != Some(&Token::Sign(c))) {
                    continue;
                }
                let line = self.line();
                self.at += op.len();
                let b = self.binary(level + 1, depth)?;
                a = match (a, b) {
                    (Imm::Int(x), Imm::Int(y)) => Imm::Int(match (*op, y) {
                        ("|", _) => x | y,
                        ("^", _) => x ^ y,
                        ("&", _) => x & y,
                        ("<<", _) => x.checked_shl(y as u32).unwrap_or(0),
                        (">>", _) => x.checked_shr(y as u32).unwrap_or(0),
                        ("+", _) => x.wrapping_add(y),
                        ("-", _) => x.wrapping_sub(y),
                        ("*", _) => x.wrapping_mul(y),
                        (_, 0) => return text(line, "division by zero in a constant"),
                        ("/", _) => x / y,
                        (_, _) => x % y,
                    }),
                    (Imm::F64(x), Imm::F64(y)) => {
                        let (x, y) = (f64::from_bits(x), f64::from_bits(y));
                        let r = match *op {
                            "+" => x + y,
                            "-" => x - y,
                            "*" => x * y,
                            "/" => x / y,
                            _ => return text(line, format!("'{op}' on floating-point constants")),
                        };
                        Imm::F64(r.to_bits())
                    }
                    _ => return text(line, format!("'{op}' on constants of two kinds")),
                };
                continue 'more;
            }
            return Ok(a);
        }
    }

    fn unary(&mut self, depth: u32) -> Result<Imm, PtxError> {
        let line = self.line();
        if depth > DEPTH {
            return text(line, "a constant expression is nested too deeply");
        }
        match self.next()? {
            Token::Int(v) => Ok(Imm::Int(v)),
            Token::F32(v) => Ok(Imm::F32(v)),
            Token::F64(v) => Ok(Imm::F64(v)),
            Token::Word(w) if w == "WARP_SZ" => Ok(Imm::Int(32)),
            Token::Sign('-') => Ok(match self.unary(depth + 1)? {
                Imm::Int(v) => Imm::Int(v.wrapping_neg()),
                Imm::F32(v) => Imm::F32(v ^ 0x8000_0000),
                Imm::F64(v) => Imm::F64(v ^ (1 << 63)),
            }),
            Token::Sign('+') => self.unary(depth + 1),
            Token::Sign('~') => match self.unary(depth + 1)? {
                Imm::Int(v) => Ok(Imm::Int(!v)),
                _ => text(line, "'~' on a floating-point constant"),
            },
            Token::Sign('!') => match self.unary(depth + 1)? {
                Imm::Int(v) => Ok(Imm::Int(u64::from(v == 0))),
                _ => text(line, "'!' on a floating-point constant"),
            },
            Token::Sign('(') => {
                if matches!(self.word(), Some(".s64" | ".u64")) {
                    self.at += 1;
                    self.want(')')?;
                    return self.unary(depth + 1);
                }
                let v = self.binary(0, depth + 1)?;
                self.want(')')?;
                Ok(v)
            }
            t => text(line, format!("a number expected, found {}", show(&t))),
        }
    }
}
