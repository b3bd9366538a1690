//! Text form of layouts, written by `Display` and read back. Kernels' and plans' text use it.
use crate::{Dim, Layout, Leaf, Mode, ParseError};
use std::fmt;
use std::str::FromStr;

/// Bytes beyond which a layout's text is refused.
const MAX_LEN: usize = 1 << 16;

/// `(4,(2,3)):(24,(12,4))+0`: extents, strides and offset in bits, one entry per mode; a mode of
/// several leaves (or none) is a list in parentheses. [`FromStr`] reads it back.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tuple(f, |l| &l.extent)?;
        f.write_str(":")?;
        self.tuple(f, |l| &l.stride)?;
        write!(f, "+{}", self.offset)
    }
}

impl Layout {
    fn tuple(&self, f: &mut fmt::Formatter<'_>, part: fn(&Leaf) -> &Dim) -> fmt::Result {
        f.write_str("(")?;
        for (i, m) in self.modes.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            if let [leaf] = m.leaves.as_slice() {
                write!(f, "{}", part(leaf))?;
                continue;
            }
            f.write_str("(")?;
            for (j, l) in m.leaves.iter().enumerate() {
                let comma = if j > 0 { "," } else { "" };
                write!(f, "{comma}{}", part(l))?;
            }
            f.write_str(")")?;
        }
        f.write_str(")")
    }
}

/// Splits the text between a `(` at `at` and its `)` at top-level commas; gives the pieces with
/// their positions and the position after the `)`.
fn list(text: &str, at: usize) -> Result<(Vec<(usize, usize)>, usize), ParseError> {
    let fail = |at, expected| {
        Err(ParseError {
            text: text.into(),
            at,
            expected,
        })
    };
    if !text[at..].starts_with('(') {
        return fail(at, "'('");
    }
    let (mut out, mut depth, mut quoted, mut start) = (Vec::new(), 0usize, false, at + 1);
    for (i, c) in text[at..].char_indices().map(|(i, c)| (i + at, c)) {
        match c {
            '`' => quoted = !quoted,
            _ if quoted => {}
            '(' => depth += 1,
            ',' if depth == 1 => {
                out.push((start, i));
                start = i + 1;
            }
            ')' => {
                depth -= 1;
                if depth == 0 {
                    if !(out.is_empty() && text[start..i].trim().is_empty()) {
                        out.push((start, i));
                    }
                    return Ok((out, i + 1));
                }
            }
            _ => {}
        }
    }
    fail(text.len(), "')'")
}

fn dim(text: &str, (from, to): (usize, usize)) -> Result<Dim, ParseError> {
    text[from..to].parse().map_err(|e: ParseError| ParseError {
        text: text.into(),
        at: from + e.at,
        expected: e.expected,
    })
}

/// Per mode the leaves' entries.
fn modes(text: &str, at: usize) -> Result<(Vec<Vec<Dim>>, usize), ParseError> {
    let (parts, end) = list(text, at)?;
    let mut out = Vec::new();
    for (from, to) in parts {
        let from = from + text[from..to].len() - text[from..to].trim_start().len();
        if !text[from..to].starts_with('(') {
            out.push(vec![dim(text, (from, to))?]);
            continue;
        }
        let (leaves, after) = list(text, from)?;
        if !text[after..to].trim().is_empty() {
            return Err(ParseError {
                text: text.into(),
                at: after,
                expected: "',' or ')'",
            });
        }
        out.push(
            leaves
                .into_iter()
                .map(|l| dim(text, l))
                .collect::<Result<_, _>>()?,
        );
    }
    Ok((out, end))
}

impl FromStr for Layout {
    type Err = ParseError;

    /// Reads the text form; the offset may be left out.
    fn from_str(text: &str) -> Result<Layout, ParseError> {
        let fail = |at, expected| {
            Err(ParseError {
                text: text.into(),
                at,
                expected,
            })
        };
        if text.len() > MAX_LEN {
            return Err(ParseError {
                text: String::new(),
                at: MAX_LEN,
                expected: "a shorter layout",
            });
        }
        let (extents, at) = modes(text, 0)?;
        if !text[at..].starts_with(':') {
            return fail(at, "':'");
        }
        let (strides, at) = modes(text, at + 1)?;
        if extents.len() != strides.len()
            || extents
                .iter()
                .zip(&strides)
                .any(|(e, s)| e.len() != s.len())
        {
            return fail(at, "one stride per extent");
        }
        let offset = match text[at..].trim() {
            "" => Dim::ZERO,
            t if t.starts_with('+') => dim(
                text,
                (at + text[at..].find('+').unwrap_or(0) + 1, text.len()),
            )?,
            _ => return fail(at, "'+' and the offset, or the end"),
        };
        let modes = extents
            .into_iter()
            .zip(strides)
            .map(|(e, s)| Mode {
                leaves: e
                    .into_iter()
                    .zip(s)
                    .map(|(extent, stride)| Leaf { extent, stride })
                    .collect(),
            })
            .collect();
        Ok(Layout { offset, modes })
    }
}
