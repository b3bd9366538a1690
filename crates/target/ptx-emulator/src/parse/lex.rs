//! Text to tokens.

use crate::error::{PtxError, text};

/// One token.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// Names, opcodes with their modifiers and directives: letters, digits, `_ $ % .` and `::`.
    Word(String),
    /// An integer, as its 64 bits.
    Int(u64),
    /// `0f` and eight hex digits.
    F32(u32),
    /// `0d` and sixteen hex digits, or a decimal number with a point.
    F64(u64),
    /// A string in quotes.
    Text(String),
    /// Any other character; shifts are two of them.
    Sign(char),
}

/// A token and its line.
pub type Placed = (Token, u32);

fn word_char(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

/// The tokens of `source`.
pub fn lex(source: &str) -> Result<Vec<Placed>, PtxError> {
    let s = source.as_bytes();
    let (mut i, mut line, mut out) = (0usize, 1u32, Vec::with_capacity(source.len() / 4));
    while i < s.len() {
        let c = s[i];
        if c == b'\n' {
            line += 1;
            i += 1;
        } else if c.is_ascii_whitespace() || c == 0 {
            i += 1;
        } else if s[i..].starts_with(b"//") {
            while i < s.len() && s[i] != b'\n' {
                i += 1;
            }
        } else if s[i..].starts_with(b"/*") {
            let start = line;
            i += 2;
            loop {
                if i + 1 >= s.len() {
                    return text(start, "a comment that begins here does not end");
                }
                if s[i..].starts_with(b"*/") {
                    i += 2;
                    break;
                }
                line += u32::from(s[i] == b'\n');
                i += 1;
            }
        } else if c == b'"' {
            let start = i + 1;
            i = start;
            while i < s.len() && s[i] != b'"' && s[i] != b'\n' {
                i += 1;
            }
            if s.get(i) != Some(&b'"') {
                return text(line, "a string that begins here does not end");
            }
            out.push((Token::Text(source[start..i].to_string()), line));
            i += 1;
        } else if c.is_ascii_digit() {
            let (token, next) = number(source, i, line)?;
            out.push((token, line));
            i = next;
        } else if word_char(c) && (c != b'%' || s.get(i + 1).is_some_and(|&n| word_char(n))) {
            let start = i;
            i += 1;
            while i < s.len() {
                if word_char(s[i]) {
                    i += 1;
                } else if s[i..].starts_with(b"::") {
                    i += 2;
                } else {
                    break;
                }
            }
            out.push((Token::Word(source[start..i].to_string()), line));
        } else if c.is_ascii() {
            out.push((Token::Sign(c as char), line));
            i += 1;
        } else {
            return text(
                line,
                "a character that is not ASCII stands outside a comment",
            );
        }
    }
    Ok(out)
}

fn number(source: &str, start: usize, line: u32) -> Result<(Token, usize), PtxError> {
    let s = source.as_bytes();
    let mut end = start;
    while end < s.len() && (s[end].is_ascii_alphanumeric() || s[end] == b'.') {
        end += 1;
        // An exponent's sign.
        if end < s.len()
            && matches!(s[end], b'+' | b'-')
            && matches!(s[end - 1], b'e' | b'E')
            && source[start..end].contains('.')
        {
            end += 1;
        }
    }
    let word = &source[start..end];
    let bad = || text(line, format!("'{word}' is no number"));
    let low = word.to_ascii_lowercase();
    let token = if let Some(h) = low.strip_prefix("0f") {
        match (h.len(), u32::from_str_radix(h, 16)) {
            (8, Ok(v)) => Token::F32(v),
            _ => return bad(),
        }
    } else if let Some(h) = low.strip_prefix("0d") {
        match (h.len(), u64::from_str_radix(h, 16)) {
            (16, Ok(v)) => Token::F64(v),
            _ => return bad(),
        }
    } else if low.contains('.') {
        match low.parse::<f64>() {
            Ok(v) => Token::F64(v.to_bits()),
            Err(_) => return bad(),
        }
    } else {
        let digits = low.strip_suffix('u').unwrap_or(&low);
        let parsed = if let Some(h) = digits.strip_prefix("0x") {
            u64::from_str_radix(h, 16)
        } else if let Some(b) = digits.strip_prefix("0b") {
            u64::from_str_radix(b, 2)
        } else if digits.len() > 1 && digits.starts_with('0') {
            u64::from_str_radix(&digits[1..], 8)
        } else {
            digits.parse()
        };
        match parsed {
            Ok(v) => Token::Int(v),
            Err(_) => return bad(),
        }
    };
    Ok((token, end))
}
