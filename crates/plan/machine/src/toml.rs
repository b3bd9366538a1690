//! TOML that people write, read into a type; errors name the line and what is wrong there.

use serde::de::{DeserializeOwned, Deserializer, Error as _};

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct TomlError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong and what is expected, and in which section.
    pub message: String,
}

/// Reads a text.
///
/// # Errors
/// It is not TOML, or does not hold what the type needs.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, TomlError> {
    if let Some(line) = too_deep(text) {
        let message = format!("more than {DEEPEST} values or names inside each other; write fewer");
        return Err(TomlError { line, message });
    }
    basic_toml::from_str(text).map_err(|e| locate::<T>(text, &e))
}

/// Reads a field whose type has variants with contents, which the reader of TOML does not know: for `deserialize_with`.
///
/// # Errors
/// None of the variants.
pub fn variant<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<T, D::Error> {
    let value = <serde_json::Value as serde::Deserialize>::deserialize(from)?;
    serde_json::from_value(value).map_err(D::Error::custom)
}

/// Values or names inside each other at most. The reader calls itself for each, and the stack is not endless.
const DEEPEST: usize = 64;

/// The line, from 1, where values or names are deeper inside each other than [`DEEPEST`].
fn too_deep(text: &str) -> Option<usize> {
    let (mut line, mut open, mut names) = (1, 0usize, 0);
    let mut rest = text.as_bytes();
    while let Some(&first) = rest.first() {
        let len = match first {
            b'#' => rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()),
            b'"' | b'\'' => string_len(rest),
            _ => 1,
        };
        match first {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            b'.' => names += 1,
            b',' | b'=' | b'\n' => names = 0,
            _ => {}
        }
        if open.max(names) > DEEPEST {
            return Some(line);
        }
        let (token, after) = rest.split_at(len);
        line += token.iter().filter(|&&b| b == b'\n').count();
        rest = after;
    }
    None
}

/// Bytes of the string that a text begins with, quotes included.
fn string_len(text: &[u8]) -> usize {
    let quote = text[0];
    let three = text.starts_with(&[quote; 3]);
    let ends = &text[..if three { 3 } else { 1 }];
    let mut at = ends.len();
    while at < text.len() && !text[at..].starts_with(ends) && (three || text[at] != b'\n') {
        at += 1 + usize::from(quote == b'"' && text[at] == b'\\');
    }
    at += ends.len();
    // Two quotes may stand before the three that end it.
    for _ in 0..2 {
        at += usize::from(three && text.get(at) == Some(&quote));
    }
    at.min(text.len())
}

/// What the reader says, its place taken off, and the line.
fn said(e: &basic_toml::Error) -> (String, usize) {
    let (line, column) = e.line_col().unwrap_or_default();
    let all = e.to_string();
    let place = format!(" at line {} column {}", line + 1, column + 1);
    let text = all.strip_suffix(&place).unwrap_or(&all);
    (text.replace('\n', "; "), line + 1)
}

/// The line that a mistake is in. Where the reader does not know it, it names the last section of the text: the
/// shortest beginning of the text with the same mistake ends with the right one.
fn locate<T: DeserializeOwned>(text: &str, e: &basic_toml::Error) -> TomlError {
    let (whole, _) = said(e);
    let line_in = |end: usize| {
        let e = basic_toml::from_str::<T>(&text[..end]).err()?;
        let (same, line) = said(&e);
        (same == whole).then_some(line)
    };
    let headers = text.match_indices("\n[").map(|(at, _)| at + 1);
    let ends: Vec<usize> = headers.chain([text.len()]).collect();
    let first = ends.partition_point(|&end| line_in(end).is_none());
    let section = ends.get(first).and_then(|&end| line_in(end)).unwrap_or(1);
    let (message, key) = match whole.rsplit_once(" for key `") {
        Some((message, key)) => (message, key.trim_end_matches('`')),
        None => (&*whole, ""),
    };
    let line = match message.split('`').nth(1) {
        // Of the whole text.
        _ if message.starts_with("missing field") && key.is_empty() => 1,
        Some(name) if message.starts_with("unknown field") => line_of(text, section, name),
        _ => line_of(text, section, key.rsplit('.').next().unwrap_or(key)),
    };
    let header = match line {
        1 if section > 1 => None,
        _ => header_of(text, line),
    };
    let message = match header {
        Some(header) => format!("{message} (in {header})"),
        None => message.to_string(),
    };
    TomlError { line, message }
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

/// The line, from 1, that gives `name` a value in the section that begins in line `start`; `start` where none does, or
/// where it is a line inside a section.
fn line_of(text: &str, start: usize, name: &str) -> usize {
    let mut lines = text.lines().enumerate().skip(start - 1).peekable();
    if start > 1 && !lines.peek().is_some_and(|(_, l)| is_header(l)) {
        return start;
    }
    let gives = |l: &str| {
        let rest = l.trim_start().strip_prefix(name);
        rest.is_some_and(|r| r.trim_start().starts_with('='))
    };
    lines
        .take_while(|(n, l)| n + 1 == start || !is_header(l))
        .find(|(_, l)| gives(l))
        .map_or(start, |(n, _)| n + 1)
}

/// The header of the section that a line stands in or is.
fn header_of(text: &str, line: usize) -> Option<&str> {
    let headers = text.lines().take(line).filter(|l| is_header(l));
    headers.last().map(str::trim)
}
