//! JSON text. Whatever is written goes through [`compact`]: each further way to write is another copy of the code that
//! goes through the types of a plan.
use serde::Serialize;

/// `value` as JSON without spaces.
///
/// # Errors
/// A key is no text.
pub fn compact(value: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string(value)
}

/// What [`compact`] wrote, set in lines, two spaces for each level.
pub fn indented(compact: &str) -> String {
    let mut out = String::with_capacity(compact.len() * 2);
    let (mut level, mut opened) = (0usize, false);
    let (mut quoted, mut escaped) = (false, false);
    for c in compact.chars() {
        let closes = !quoted && matches!(c, ']' | '}');
        level = level.saturating_sub(usize::from(closes));
        // An empty list stays on one line.
        if opened != closes {
            line(&mut out, level);
        }
        opened = false;
        out.push(c);
        if quoted {
            quoted = escaped || c != '"';
            escaped = c == '\\' && !escaped;
            continue;
        }
        match c {
            '"' => quoted = true,
            '[' | '{' => (level, opened) = (level + 1, true),
            ',' => line(&mut out, level),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

fn line(out: &mut String, level: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", level));
}
